"""Columns of records that somebody has damaged, byte by byte: what the reader refuses they refuse, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import CorruptBatchError
from ottla.records.batch import HEADER_SIZE, pack_batch, read_header
from ottla.records.builder import build_batch, encode_record
from ottla.records.reader import Record, read_records

pa = pytest.importorskip("pyarrow")
pytest.importorskip("numpy")

from ottla.records.columns import decode_columns  # noqa: E402

PLAIN = read_header(build_batch([(b"k", b"v", (), 0)]))


def batch_of(records: list[bytes], **fields: int) -> bytes:
    many = {"record_count": len(records), "last_offset_delta": len(records) - 1, "base_timestamp": 5_000}
    return pack_batch(PLAIN._replace(**many | fields), b"".join(records))


def read(data: bytes) -> list[Record] | None:
    try:
        return read_records(data)
    except CorruptBatchError:
        return None


def decoded(data: bytes, columns: tuple[str, ...]) -> list[tuple[Any, ...]] | None:
    try:
        found = decode_columns(data, columns=(*columns, "offset", "timestamp", "key", "value"), check_crc=False).records
    except CorruptBatchError:
        return None
    times = found["timestamp"].cast(pa.int64()).to_pylist()
    rows = zip(*(found[name].to_pylist() for name in ("offset",)), times, strict=True)
    fields = zip(found["key"].to_pylist(), found["value"].to_pylist(), strict=True)
    whole = [(*numbers, *own) for numbers, own in zip(rows, fields, strict=True)]
    if "headers" not in columns:
        return whole
    headers = [tuple((each["key"], each["value"]) for each in own or ()) for own in found["headers"].to_pylist()]
    return [(*row, own) for row, own in zip(whole, headers, strict=True)]


RUN = 34
SAME = [encode_record(n, 0, None, b"value") for n in range(RUN)]
KEYS = [encode_record(n, 3, b"key", b"v" * 70) for n in range(RUN)]
RISING = [encode_record(n, 64 + n, b"0123456789", b"v") for n in range(RUN)]
NULLS = [encode_record(n, 0, b"k%02d" % n, None) for n in range(RUN)]
WIDE = [encode_record(n, 0, b"k", b"v") for n in range(50, 50 + RUN)]
MIXED = [encode_record(n, n * 60, b"k" * (n % 3), b"v" * (n % 4), [("h", b"x")] * (n % 2)) for n in range(6)]
SHORT = [encode_record(0, 0, None, None), encode_record(1, -5, b"", b"", [("", None)])]

CHANGES = (1, 2, 0x80, 0xFF)


@pytest.mark.parametrize("columns", [(), ("headers",)], ids=["plain", "with headers"])
@pytest.mark.parametrize(
    "records",
    [SAME, KEYS, RISING, NULLS, WIDE, MIXED, SHORT],
    ids=["same", "keys", "rising", "nulls", "wide", "mixed", "short"],
)
def test_each_byte_that_is_damaged_is_met_as_by_the_reader(
    records: list[bytes], columns: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = batch_of(records, last_offset_delta=50 + RUN)
    ends = [HEADER_SIZE + sum(map(len, records[: n + 1])) for n in range(len(records))]
    starts = [HEADER_SIZE, *ends[:-1]]
    chosen = range(len(records)) if len(records) < RUN else (1, RUN // 2, RUN - 1)
    # Of values, only what has to do with where they begin and end.
    places = {at for n in chosen for at in (*range(starts[n], min(starts[n] + 16, ends[n])), ends[n] - 2, ends[n] - 1)}
    for at in sorted(places):
        for change in CHANGES:
            damaged = whole[:at] + bytes([whole[at] ^ change]) + whole[at + 1 :]
            expected = read(damaged)
            found = decoded(damaged, columns)
            if columns:
                assert found == expected, (at, change)
                continue
            # Headers are passed over, so they may be anything; but they are, whichever way is taken.
            with monkeypatch.context() as patch:
                patch.setattr("ottla.records.columns.fields.read_runs", lambda *_: None)
                assert found == decoded(damaged, columns), (at, change)
            if expected is not None:
                assert found == [record[:4] for record in expected], (at, change)


@pytest.mark.parametrize("records", [SAME, KEYS, RISING, NULLS, MIXED, SHORT])
def test_numbers_at_the_ends_of_64_bits(records: list[bytes]) -> None:
    for base in (2**63 - 1, 2**63 - 98, 2**63 - 2**27, 2**62, 2**62 - 1, -(2**62), 1 - 2**62, -(2**63), -1, 0):
        for fields in (
            {"base_timestamp": base},
            {"base_timestamp": base, "attributes": 8, "max_timestamp": base},
            {"base_offset": max(base, 0)},
            {"base_offset": max(base, 0), "last_offset_delta": 97},
        ):
            data = batch_of(records, **fields)
            header = read_header(data)
            if header.last_offset >= 2**63:
                with pytest.raises(CorruptBatchError, match="beyond 64 bits"):
                    decode_columns(data)
                continue
            expected = read(data)
            assert decoded(data, ("headers",)) == expected
            assert decoded(data, ()) == (None if expected is None else [record[:4] for record in expected])


@pytest.mark.parametrize("last", [RUN - 2, RUN - 1, RUN])
def test_the_last_offset_of_a_run_is_within_its_batch(last: int) -> None:
    for records in (SAME, KEYS, RISING):
        data = batch_of(records, last_offset_delta=last)
        if last < RUN - 1:
            with pytest.raises(CorruptBatchError, match="beyond the last one"):
                decode_columns(data)
        else:
            assert decoded(data, ()) == [record[:4] for record in read_records(data)]


@pytest.mark.parametrize("count", [RUN - 1, RUN + 1])
def test_as_many_records_of_a_run_as_are_claimed(count: int) -> None:
    for records in (SAME, KEYS, RISING):
        with pytest.raises(CorruptBatchError):
            decode_columns(batch_of(records, record_count=count, last_offset_delta=99))


@pytest.mark.parametrize("key_size", [None, 0, 1, 3, 7, 8, 9, 15, 16, 17, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 70])
@pytest.mark.parametrize("value_size", [None, 0, 1, 50, 63, 64, 9_000])
def test_runs_with_keys_and_values_of_any_length(key_size: int | None, value_size: int | None) -> None:
    for step in (0, 1, -1, 40):
        rows = [
            (
                None if key_size is None else bytes([65 + n % 50]) * key_size,
                None if value_size is None else bytes([97 + n % 90]) * value_size,
                5_000 + (n > 0) * (100 + n % 16 * step),
            )
            for n in range(70)
        ]
        data = batch_of([encode_record(n, time - 5_000, *fields) for n, (*fields, time) in enumerate(rows)])
        assert decoded(data, ()) == [(n, time, *fields) for n, (*fields, time) in enumerate(rows)]


STRANGERS: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]] = [
    (b"kex", b"value", (), 5),
    (b"ke", b"values", (), 5),
    (None, b"value", (), 5),
    (None, b"valueabc", (), 5),
    (b"key", None, (), 5),
    (b"keyvalue", None, (), 5),
    (b"key", b"val", (("", None),), 5),
    (b"key", b"va", (("", b"x"),), 5),
    (b"key", b"value", (), 4),
    (b"key", b"value", (), -5),
    (b"key", b"value", (), 64),
    (b"key", b"valu", (), 64),
    (b"ke", b"value", (), 64),
]


@pytest.mark.parametrize("stranger", STRANGERS)
@pytest.mark.parametrize("step", [0, 1])
def test_a_stranger_in_a_run_is_read_as_it_is(stranger: tuple[Any, ...], step: int) -> None:
    for at in (0, 1, 2, 16, 17, 18, 38, 39):
        rows: list[tuple[Any, ...]] = [(b"key", b"value", (), 5 + n * step) for n in range(40)]
        rows[at] = stranger
        data = batch_of([encode_record(n, row[3], row[0], row[1], row[2]) for n, row in enumerate(rows)])
        assert decoded(data, ("headers",)) == [(n, 5_000 + row[3], *row[:3]) for n, row in enumerate(rows)]
        assert decoded(data, ()) == [(n, 5_000 + row[3], *row[:2]) for n, row in enumerate(rows)]


def test_a_gap_in_a_run_is_read_as_it_is() -> None:
    for at in (0, 1, 2, 16, 17, 39):
        for jump in (1, 2, 64, 8192):
            offsets = [n + (n >= at) * jump for n in range(40)]
            data = batch_of([encode_record(each, 0, b"k", b"value") for each in offsets], last_offset_delta=9_000)
            assert decoded(data, ()) == [(each, 5_000, b"k", b"value") for each in offsets]
    for at in (1, 2, 16, 17, 39):
        data = batch_of([encode_record(n - (n >= at), 0, b"k", b"value") for n in range(40)])
        with pytest.raises(CorruptBatchError, match="do not rise"):
            decode_columns(data)
