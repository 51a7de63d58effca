"""Lists and maps in one block or several, with their sizes or without, beside others that are longer or wrong."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("fastavro")
pytest.importorskip("pyspark")

from tests.unit.spark.pipeline.formats.avro_values import decoded
from tests.unit.spark.pipeline.formats.test_avro_bounds import record, varint

EARLY = "f: the value ends too early"


def text(value: str) -> bytes:
    return varint(len(value)) + value.encode()


def block(*items: bytes, is_sized: bool = False, count: int | None = None) -> bytes:
    data = b"".join(items)
    said = len(items) if count is None else count
    return varint(-said) + varint(len(data)) + data if is_sized else varint(said) + data


def ints(*numbers: int, **more: Any) -> bytes:
    return block(*map(varint, numbers), **more)


def texts(*values: str, **more: Any) -> bytes:
    return block(*map(text, values), **more)


END = b"\0"
INTS, TEXTS = {"type": "array", "items": "int"}, {"type": "array", "items": "string"}
DOUBLES, FLAGS = {"type": "array", "items": "double"}, {"type": "array", "items": "boolean"}
MAP = {"type": "map", "values": "int"}


@pytest.mark.parametrize(
    ("kind", "data", "found"),
    [
        (INTS, END, []),
        (INTS, ints(300, -300) + END, [300, -300]),
        (INTS, ints(1, 2, is_sized=True) + END, [1, 2]),
        (INTS, ints(1) + ints(2, 3, is_sized=True) + ints(4) + END, [1, 2, 3, 4]),
        (TEXTS, texts("a", "") + texts("bcd", is_sized=True) + END, ["a", "", "bcd"]),
        (DOUBLES, block(bytes(8), bytes(8)) + block(bytes(8), is_sized=True) + END, [0.0, 0.0, 0.0]),
        (FLAGS, block(b"\1", b"\0", b"\1") + END, [True, False, True]),
        (MAP, block(text("k") + varint(1), text("") + varint(2)) + END, [("k", 1), ("", 2)]),
        (MAP, block(text("k") + varint(1), is_sized=True) + block(text("l") + varint(2)) + END, [("k", 1), ("l", 2)]),
        ({"type": "array", "items": INTS}, block(ints(1) + END, END, ints(2, 3) + END) + END, [[1], [], [2, 3]]),
        ({"type": "array", "items": ["null", "int"]}, block(b"\0", b"\2\4", b"\0") + END, [None, 2, None]),
        ({"type": "map", "values": TEXTS}, block(text("k") + texts("a", "b") + END) + END, [("k", ["a", "b"])]),
        (
            {"type": "array", "items": {**record("int"), "name": "Item"}},
            block(varint(5), varint(6)) + END,
            [{"f": 5}, {"f": 6}],
        ),
    ],
)
def test_blocks(kind: Any, data: bytes, found: Any) -> None:
    """Alone, and between values that are cut off anywhere."""
    assert decoded([data], record(kind)) == [({"f": found}, None)]
    cut = [data[:at] for at in range(len(data))]
    values = decoded([data, *cut, data], record(kind))
    assert values[0] == values[-1] == ({"f": found}, None)
    assert [value for value, _ in values[1:-1]] == [None] * len(cut)
    assert all(error is not None and error.endswith("the value ends too early") for _, error in values[1:-1])


@pytest.mark.parametrize(
    ("kind", "data", "told"),
    [
        (INTS, varint(-1) + varint(-1) + varint(5) + END, "f: a length is below zero"),
        (INTS, varint(-1) + varint(99) + varint(5) + END, EARLY),
        (INTS, varint(3) + varint(1) + END, EARLY),
        (INTS, varint(-(2**63)) + varint(0) + END, EARLY),
        (DOUBLES, varint(2) + bytes(15), EARLY),
        (DOUBLES, varint(1) + bytes(7), EARLY),
        (FLAGS, varint(2) + b"\1\2" + END, "f: a boolean is neither 0 nor 1"),
        (INTS, varint(2) + varint(1) + varint(2**31) + END, "f: a number does not fit an int"),
        (TEXTS, varint(2) + text("a") + b"\x02\xff" + END, "f: a text is not UTF-8"),
        (MAP, varint(1) + b"\x02\xff" + varint(1) + END, "f.key: a text is not UTF-8"),
        (INTS, ints(1) + END + b"xy", "2 bytes are left after what the schema describes"),
    ],
)
def test_what_is_wrong_with_a_list_stays_with_it(kind: Any, data: bytes, told: str) -> None:
    good = END
    assert decoded([good, data, good], record(kind)) == [({"f": []}, None), (None, told), ({"f": []}, None)]


def test_lists_of_different_lengths_are_read_side_by_side() -> None:
    rows = [[str(number) * (number % 3) for number in range(count)] for count in (3, 0, 7, 1, 5)]
    values: list[bytes | None] = [texts(*row) + END if row else END for row in rows]
    values[2] = texts(*rows[2][:4]) + texts(*rows[2][4:]) + END
    assert decoded(values, record(TEXTS)) == [({"f": row}, None) for row in rows]
