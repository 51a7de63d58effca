"""Runs of records of one shape by the column: the same as the general way, and really taken where they should be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import CorruptBatchError
from ottla.records.batch import HEADER_SIZE, read_header
from ottla.records.builder import RecordFields, build_batch
from ottla.records.compression import Codec
from ottla.records.reader import read_records
from tests.unit.log.cleaning_passes import rewritten

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")

from ottla.records.columns import decode_columns  # noqa: E402
from ottla.records.columns.runs import read_runs  # noqa: E402

NOW_MS = 1_700_000_000_000


@st.composite
def run_rows(draw: st.DrawFn) -> list[RecordFields]:
    """A few runs, of which each has keys and values of its own size, and sometimes a record with headers in it."""
    made: list[RecordFields] = []
    for _ in range(draw(st.integers(1, 3))):
        key = draw(st.none() | st.binary(max_size=3) | st.just(b"k" * 50))
        value = draw(st.none() | st.binary(max_size=3) | st.integers(20, 300).map(lambda size: b"v" * size))
        ms_per_row = draw(st.sampled_from((0, 1, 7, 300)))
        made += [
            (key, value and bytes([index % 251]) + value[1:], [], NOW_MS + index * ms_per_row)
            for index in range(draw(st.sampled_from((1, 17, 70, 400))))
        ]
    if draw(st.integers(0, 4)) == 0:
        at = draw(st.integers(0, len(made) - 1))
        made[at] = (*made[at][:2], [("h", b"1")], made[at][3])
    return made


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    data = b""
    for number in range(draw(st.integers(1, 3))):
        append_time = draw(st.none() | st.just(NOW_MS + 5))
        batch = build_batch(
            draw(run_rows()),
            base_offset=number * 10_000,
            codec=draw(st.sampled_from((Codec.NONE, Codec.LZ4))),
            log_append_time_ms=append_time,
        )
        if draw(st.integers(0, 3)) == 0:
            batch = rewritten(batch, list(range(0, read_header(batch).record_count, draw(st.integers(1, 3)))))
        data += batch
    return data


def decoded(data: bytes | bytearray, *, uses_runs: bool, **options: Any) -> Any:
    """What comes out, or that nothing does."""
    with pytest.MonkeyPatch.context() as patch:
        if not uses_runs:
            patch.setattr("ottla.records.columns.fields.read_runs", lambda *given: None)
        try:
            found = decode_columns(data, check_crc=False, **options)
        except CorruptBatchError:
            return "refused"
    found.records.validate(full=True)
    # Timestamps as numbers: damage leads to years that Python's datetime does not know.
    at = found.records.schema.get_field_index("timestamp")
    numbers = found.records.set_column(at, "timestamp", found.records.column(at).cast(pa.int64()))
    return numbers.to_pydict(), found.next_offset


@settings(max_examples=60)
@given(batches(), st.data())
def test_the_same_as_the_general_way(data: bytes, draws: st.DataObject) -> None:
    assert decoded(data, uses_runs=True) == decoded(data, uses_runs=False)
    options = {"start_offset": draws.draw(st.integers(0, 20_000)), "end_offset": draws.draw(st.integers(0, 25_000))}
    assert decoded(data, uses_runs=True, **options) == decoded(data, uses_runs=False, **options)


@settings(max_examples=150)
@given(batches(), st.data())
def test_damage_is_met_in_the_same_way(data: bytes, draws: st.DataObject) -> None:
    damaged = bytearray(data)
    for _ in range(draws.draw(st.integers(1, 3))):
        at = draws.draw(st.integers(HEADER_SIZE, len(damaged) - 1))
        damaged[at] = draws.draw(st.sampled_from((0, 1, 2, 127, 128, 255)) | st.integers(0, 255))
    assert decoded(damaged, uses_runs=True) == decoded(damaged, uses_runs=False)


def runs_of(rows: Iterable[RecordFields]) -> tuple[list[int] | None, list[int], list[int]]:
    """The length of each run, and the numbers that were read."""
    batch = build_batch(list(rows))
    count = read_header(batch).record_count
    timestamps, offsets = np.zeros(count, np.int64), np.zeros(count, np.int64)
    octets = np.frombuffer(batch, np.uint8)
    found = read_runs(batch, octets, HEADER_SIZE, len(batch), timestamps, offsets)
    return None if found is None else [run.rows for run in found], timestamps.tolist(), offsets.tolist()


@pytest.mark.parametrize("key", [None, b"", b"key", b"k" * 40])
@pytest.mark.parametrize("size", [30, 100, 1000])
def test_records_of_one_size_are_few_runs(key: bytes | None, size: int) -> None:
    lengths, timestamps, offsets = runs_of((key, b"v" * size, [], NOW_MS) for _ in range(9000))
    # A byte more is needed for the offsets from 64 and from 8192 on.
    assert lengths == [64, 8128, 808]
    assert timestamps == [0] * 9000
    assert offsets == list(range(9000))


def test_the_last_run_may_be_one_record() -> None:
    assert runs_of((None, b"v" * 100, [], NOW_MS) for _ in range(65))[0] == [64, 1]


def test_timestamps_that_rise() -> None:
    lengths, timestamps, _ = runs_of((None, b"v" * 100, [], NOW_MS + index) for index in range(1000))
    assert lengths == [64, 936]
    assert timestamps == list(range(1000))


def test_other_records_are_not_runs() -> None:
    assert runs_of((None, b"v" * (index % 50), [], NOW_MS) for index in range(1000))[0] is None
    assert runs_of((None, b"v" * 50, [("h", None)], NOW_MS) for _ in range(1000))[0] is None
    mixed: list[RecordFields] = [(None, b"v" * 50, [], NOW_MS)] * 60
    assert runs_of([*mixed, (None, b"v" * 50, [("h", b"")], NOW_MS), *mixed])[0] is None


def test_attributes_of_records_may_be_anything() -> None:
    batch = bytearray(build_batch([(None, b"v" * 50, [], NOW_MS)] * 50))
    size = (len(batch) - HEADER_SIZE) // 50
    for at in range(HEADER_SIZE + 1, len(batch), size):
        batch[at] = at % 256
    records = read_records(batch)
    assert [record.value for record in records] == [b"v" * 50] * 50
    assert decoded(batch, uses_runs=True)[0]["value"] == [b"v" * 50] * 50
    assert runs_of([(None, b"v" * 50, [], NOW_MS)] * 50)[0] == [50]


@pytest.mark.parametrize("key_size", [0, 3, 8, 9, 17, 40])
@pytest.mark.parametrize("ms_per_row", [0, 1])
@pytest.mark.parametrize("at", [1, 30, 60, 61])
def test_a_shorter_value_with_headers_may_make_a_record_of_the_same_size(
    key_size: int, ms_per_row: int, at: int
) -> None:
    key = b"k" * key_size
    rows: list[RecordFields] = [(key, b"v" * 40, [], NOW_MS + index * ms_per_row) for index in range(62)]
    rows[at] = (key, b"v" * 38, [("", b"")], rows[at][3])
    batch = build_batch(rows)
    assert (len(batch) - HEADER_SIZE) % 62 == 0, "all records have the same size"
    found = decoded(batch, uses_runs=True)
    assert found == decoded(batch, uses_runs=False)
    assert found[0]["value"] == [row[1] for row in rows]


def test_a_run_of_one_time_is_read_at_once() -> None:
    def kinds(ms_per_row: int, count: int) -> list[tuple[int, bool]]:
        batch = build_batch(
            [(b"%08d" % index, bytes([index % 251]) * 40, [], NOW_MS + index * ms_per_row) for index in range(count)]
        )
        numbers = np.zeros(count, np.int64), np.zeros(count, np.int64)
        found = read_runs(batch, np.frombuffer(batch, np.uint8), HEADER_SIZE, len(batch), *numbers)
        assert found is not None
        return [(run.rows, run.is_even) for run in found]

    assert kinds(0, 9000) == [(64, True), (8128, True), (808, True)]
    assert kinds(1, 1000) == [(64, False), (936, False)]


def test_a_plain_batch_is_looked_at_for_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []

    def look(*given: Any) -> Any:
        found.append(read_runs(*given))
        return found[-1]

    monkeypatch.setattr("ottla.records.columns.fields.read_runs", look)
    decode_columns(build_batch([(None, b"v" * 50, [], NOW_MS)] * 50))
    assert [[run.rows for run in runs] for runs in found] == [[50]]
