"""Many values read at once: what is wrong with one of them stays with it."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

import numpy as np
import pyarrow as pa

from ottla.spark.pipeline.formats.avro.lanes import Batch, Lanes


def begun(*values: bytes) -> tuple[Batch, Lanes]:
    """The values in the middle of an array, and lanes at their first bytes."""
    batch = Batch(pa.array([b"\xff\xff", *values, b"\xff\xff"], pa.binary()).slice(1, len(values)))
    return batch, Lanes(np.arange(len(values)), batch.starts.copy())


def left(batch: Batch, lanes: Lanes) -> list[int]:
    """How many bytes of each value are behind its lane."""
    return [int(count) for count in batch.ends[lanes.values] - lanes.at]


def test_lengths_that_are_not_within_their_values_are_none() -> None:
    batch, lanes = begun(b"\x04ab!", b"\x04ab", b"\x04a", b"\x01abc", b"\x00x", b"\x80", b"\x04ab")
    lengths, lanes = batch.lengths(lanes, "f")
    assert lengths.tolist() == [2, 2, 0, 0, 0, 0, 2]
    assert left(batch, lanes) == [3, 2, 0, 0, 1, 0, 2]
    assert batch.errors == {
        2: "f: the value ends too early",
        3: "f: a length is below zero",
        5: "f: the value ends too early",
    }
    assert batch.is_bad.tolist() == [False, False, True, True, False, True, False]
    assert batch.slices(lanes, lengths).to_pylist() == [b"ab", b"ab", b"", b"", b"", b"", b"ab"]


@pytest.mark.parametrize("number", [0, -1, 63, -64, 64, 2**31, -(2**31), 2**56, 2**62, 2**63 - 1, -(2**63)])
def test_numbers_of_every_length(number: int) -> None:
    def coded(number: int) -> bytes:
        rest = (number << 1) ^ (number >> 63)
        out = bytearray()
        while rest > 0x7F:
            out.append(rest & 0x7F | 0x80)
            rest >>= 7
        return bytes([*out, rest])

    batch, lanes = begun(coded(number), coded(5) + b"!", coded(number) + b"!!")
    numbers, lanes = batch.longs(lanes, "f")
    assert numbers.tolist() == [number, 5, number]
    assert (left(batch, lanes), batch.errors) == ([0, 1, 2], {})


def test_numbers_that_are_too_long_or_cut_off() -> None:
    batch, lanes = begun(b"\xff" * 9 + b"\x02!", b"\xff" * 9 + b"\x01!", b"\xff" * 9, b"\x02", b"")
    numbers, lanes = batch.longs(lanes, "f")
    assert batch.errors == {
        0: "f: a number has more than 64 bits",
        2: "f: the value ends too early",
        4: "f: the value ends too early",
    }
    assert (numbers[[1, 3]].tolist(), left(batch, lanes)) == ([-(2**63), 1], [0, 1, 0, 0, 0])


def test_the_first_thing_that_is_wrong_with_a_value_is_told() -> None:
    batch, lanes = begun(b"a", b"bcd")
    lanes = lanes.moved(batch.fail(lanes, np.array([True, False]), "first"))
    assert left(batch, lanes) == [0, 3]
    batch.fail(lanes, np.array([True, True]), "second")
    assert batch.errors == {0: "first", 1: "second"}


def test_what_is_left_after_all_was_read_is_wrong() -> None:
    batch, lanes = begun(b"a", b"bcd", b"")
    batch.check_ends(lanes.moved(batch.starts + np.array([1, 1, 0])))
    assert batch.errors == {1: "2 bytes are left after what the schema describes"}
    assert batch.is_bad.tolist() == [False, True, False]


def test_bytes_and_rows_of_bytes_end_with_the_value() -> None:
    batch, lanes = begun(b"abc", b"d", b"")
    assert batch.head(1)[:2].tolist() == [[ord("a")], [ord("d")]]
    assert batch.head(16)[0, :4].tolist() == list(b"abcd")
    octets, after = batch.octets(lanes.of([0, 1]), "f")
    assert (bytes(octets), left(batch, after), batch.errors) == (b"ad", [2, 0], {})
    rows, after = batch.matrix(lanes.of([0]), 3, "f")
    assert (rows.tolist(), left(batch, after), batch.errors) == ([list(b"abc")], [0], {})
    _, after = batch.octets(lanes, "g")
    assert (left(batch, after), batch.errors) == ([2, 0, 0], {2: "g: the value ends too early"})
    rows, after = batch.matrix(lanes, 16, "h")
    assert (left(batch, after), sorted(batch.errors)) == ([0, 0, 0], [0, 1, 2])


@pytest.mark.parametrize("values", [pa.array([None, None], pa.binary()), pa.array([b"", b""], pa.binary())])
def test_values_without_bytes(values: Any) -> None:
    batch = Batch(values)
    assert (batch.starts.tolist(), batch.ends.tolist()) == ([0, 0], [0, 0])
    _, lanes = batch.longs(Lanes(np.arange(2), batch.starts), "f")
    assert (left(batch, lanes), sorted(batch.errors)) == ([0, 0], [0, 1])


def test_items_of_one_width_that_follow_one_another() -> None:
    batch, lanes = begun(b"aabbcc!", b"", b"dd")
    items, after = batch.several(lanes, np.array([3, 0, 1]), 2, "f")
    assert (items.values.tolist(), items.at.tolist()) == ([0, 0, 0, 2], [0, 2, 4, 7])
    assert left(batch, after) == [1, 0, 0]


def test_numbers_that_follow_one_another() -> None:
    batch, lanes = begun(b"\x02\x80\x01\x04!", b"\x06", b"\x02\x80")
    items, after = batch.several(lanes, np.array([3, 1, 2]), None, "f")
    assert items.values.tolist() == [0, 0, 0, 1, 2, 2]
    assert items.at.tolist() == [0, 1, 3, 5, 6, 7]
    assert left(batch, after) == [1, 0, 0]
    assert batch.errors == {2: "f: the value ends too early"}


def test_signed_numbers_are_turned_round_and_filled_up() -> None:
    batch, lanes = begun(b"\x01\x02", b"\xfe", b"", b"\x80" + bytes(15), b"\x7f")
    found = batch.signed(lanes, np.array([2, 1, 0, 16, 1]))
    assert [int.from_bytes(row.tobytes(), "little", signed=True) for row in found] == [258, -2, 0, -(2**127), 127]
