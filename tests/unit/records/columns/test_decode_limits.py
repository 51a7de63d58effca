"""How much is decoded, and how: groups of batches, limits of bytes, and which batches are nothing but runs."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import CorruptBatchError
from ottla.records.batch import HEADER_SIZE, pack_batch, read_header
from ottla.records.builder import RecordFields, build_batch
from ottla.records.scan import MIN_RECORD_SIZE

pa = pytest.importorskip("pyarrow")
np = pytest.importorskip("numpy")

from ottla.records.arrays.layout import Payload  # noqa: E402
from ottla.records.columns import decode, decode_columns, fields, hashing  # noqa: E402
from ottla.records.columns.input import RecordColumns  # noqa: E402
from ottla.records.columns.runs import read_runs  # noqa: E402
from ottla.records.hashing import partition_for_key  # noqa: E402

HEADER = read_header(build_batch([(None, b"v", [], 0)]))


def batch(count: int, *, base_offset: int = 0, value: bytes = b"v" * 20) -> bytes:
    return build_batch([(b"k", value, [], 7)] * count, base_offset=base_offset)


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([], [[]]),
        ([200], [[200]]),
        ([60, 40], [[60, 40]]),
        ([60, 41], [[60], [41]]),
        ([200, 1], [[200], [1]]),
        ([50, 50, 1, 99, 1], [[50, 50], [1, 99], [1]]),
    ],
)
def test_a_group_has_as_many_batches_as_fit_but_one_at_least(
    sizes: list[int], groups: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "_GROUP_SIZE", 100)
    payloads, start = [], 1_000
    for size in sizes:
        payloads.append(Payload(HEADER, start, start + size))
        start += size + HEADER_SIZE
    found = [[payload.end - payload.start for payload in group] for group in decode._groups(payloads)]
    assert found == groups


def test_of_many_batches_the_first_are_read_that_have_no_more_bytes_together() -> None:
    data = b"".join(batch(3, base_offset=3 * number) for number in range(3))
    size = len(data) // 3
    for size_max, batches in ((1, 1), (2 * size - 1, 1), (2 * size, 2), (3 * size - 1, 2), (3 * size, 3), (None, 3)):
        decoded = decode_columns(data, columns=["offset"], size_max=size_max)
        assert (len(decoded.records), decoded.next_offset) == (3 * batches, 3 * batches)
    later = decode_columns(data, columns=["offset"], start_offset=3, size_max=2 * size)
    assert later.records["offset"].to_pylist() == list(range(3, 9)), "what lies before is not counted"


def test_no_batch_may_have_more_bytes_than_are_allowed() -> None:
    data = b"".join(batch(3, base_offset=3 * number) for number in range(3))
    size = len(data) // 3 - HEADER_SIZE
    assert len(decode_columns(data, max_uncompressed=size).records) == 9
    with pytest.raises(CorruptBatchError, match=f"the records are {size} bytes, more than the {size - 1} allowed"):
        decode_columns(data, max_uncompressed=size - 1)


@pytest.mark.parametrize(
    ("more", "words"), [(1, "11 records cannot be in 70 bytes"), (0, "10 records do not end where")]
)
def test_no_batch_has_more_records_than_there_is_room_for(more: int, words: str) -> None:
    payload = bytes(10 * MIN_RECORD_SIZE)
    header = HEADER._replace(record_count=10 + more, last_offset_delta=100)
    with pytest.raises(CorruptBatchError, match=words):
        decode_columns(pack_batch(header, payload))
    with pytest.raises(CorruptBatchError, match="-1 records cannot be in"):
        decode_columns(pack_batch(header._replace(record_count=-1), payload))


@pytest.mark.parametrize(("end_offset", "are_runs"), [(None, True), (601, True), (600, True), (599, False)])
def test_runs_that_are_wanted_as_a_whole_are_taken_as_they_come(
    end_offset: int | None, are_runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fields.RunFields, "take", lambda *_: pytest.fail("the numbers were checked one by one"))
    data = batch(200) + batch(400, base_offset=200)
    made: list[Any] = []
    read = fields.read_fields

    def noted(*arguments: Any, **options: Any) -> Any:
        made.append(read(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(decode, "read_fields", noted)
    decoded = decode_columns(data, end_offset=end_offset)
    assert decoded.records["offset"].to_pylist() == list(range(600))[:end_offset]
    assert [isinstance(one, fields.RunFields) for one in made] == [are_runs]
    if are_runs:
        assert (made[0].first_offset, made[0].last_offset) == (0, 599)


@pytest.mark.parametrize("key_size", [0, 1, 2, 9])
def test_keys_and_values_may_differ_in_a_run_that_is_even(key_size: int) -> None:
    rows: list[RecordFields] = [
        (bytes([index % 2, *range(8)])[:key_size], bytes([index % 251]) * 40, [], 7) for index in range(300)
    ]
    data = build_batch(rows)
    deltas = np.empty(300, np.int64), np.empty(300, np.int64)
    octets = np.frombuffer(data + bytes(16), np.uint8)
    runs = read_runs(data, octets, HEADER_SIZE, len(data), *deltas)
    assert runs is not None
    assert [(run.first_delta, run.rows, run.is_even) for run in runs] == [(0, 64, True), (64, 236, True)]
    assert deltas[1].tolist() == list(range(300))


@pytest.mark.parametrize(("size", "alone"), [(511, 0), (512, 0), (513, 1)])
def test_only_very_long_keys_are_hashed_one_by_one(size: int, alone: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bytes] = []

    def counted(key: bytes, count: int) -> int:
        calls.append(key)
        return partition_for_key(key, count)

    monkeypatch.setattr(hashing, "partition_for_key", counted)
    keys = [b"short", bytes(range(251)) * 3]
    keys[1] = keys[1][:size]
    found = hashing.partitions_for_keys(pa.array(keys, pa.binary()), 1_000)
    assert found.tolist() == [partition_for_key(key, 1_000) for key in keys]
    assert len(calls) == alone


def test_rows_are_cut_out_of_columns_with_all_that_belongs_to_them() -> None:
    headers = pa.array(
        [[{"key": "h", "value": b"1"}], None, [], [{"key": "i", "value": None}]],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    table = pa.table(
        {
            "key": pa.array([b"a", None, b"ccc", b""], pa.binary()),
            "value": pa.array([b"1", b"22", None, b""], pa.binary()),
            "timestamp": pa.array([5, 6, 7, 8], pa.int64()),
            "headers": headers,
        }
    )
    columns = RecordColumns.of(table, 0)
    assert columns.slice(0, 4) is columns
    for first, last in ((1, 4), (0, 3), (1, 2), (2, 2)):
        cut = columns.slice(first, last)
        rows = slice(first, last)
        assert cut.keys.to_pylist() == [b"a", b"", b"ccc", b""][rows]
        assert cut.values.to_pylist() == [b"1", b"22", b"", b""][rows]
        assert cut.headers.to_pylist() == [b"\x02\x02h\x021", b"\0", b"\0", b"\x02\x02i\x01"][rows]
        assert cut.timestamps.tolist() == [5, 6, 7, 8][rows]
        assert cut.key_lengths.tolist() == [1, -1, 3, 0][rows]
        assert cut.value_lengths.tolist() == [1, 2, -1, 0][rows]
        assert cut.payload_sizes.tolist() == [7, 3, 4, 4][rows]
