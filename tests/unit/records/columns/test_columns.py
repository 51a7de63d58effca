"""Columns against the row by row reader and builder: the same records, the same bytes, the same refusals."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import CorruptBatchError, InvalidRecordError
from ottla.records.batch import (
    HEADER_SIZE,
    crc_is_valid,
    iter_headers,
    iter_ordered_headers,
    pack_batch,
    read_header,
    set_max_timestamp,
    set_producer,
)
from ottla.records.builder import RecordFields, build_batch
from ottla.records.compression import Codec
from ottla.records.control import end_transaction_marker
from ottla.records.reader import Record, read_records
from tests.unit.log.cleaning_passes import rewritten
from tests.waiting import PATIENCE_S

pa = pytest.importorskip("pyarrow")
pytest.importorskip("numpy")

from ottla.records.columns import COLUMN_NAMES, HEADERS_TYPE, columns_schema, decode_columns, encode_columns  # noqa: E402

NOW_MS = 1_700_000_000_000

payloads = st.none() | st.binary(max_size=12) | st.integers(60, 9000).map(lambda size: b"x" * size)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)
timestamps = st.integers(NOW_MS - 20_000, NOW_MS + 20_000) | st.integers(-1, 2**62)
rows = st.tuples(payloads, payloads, headers, timestamps)
codecs = st.sampled_from(list(Codec))


@st.composite
def uniform_rows(draw: st.DrawFn) -> list[RecordFields]:
    """Runs of rows of one size with a stranger between them, which is where the shortcut must not run on."""
    size = draw(st.integers(0, 200))
    made: list[RecordFields] = []
    for count in draw(st.lists(st.integers(1, 300), min_size=1, max_size=4)):
        made += [(None, bytes([index % 251]) * size, [], NOW_MS + index // 7) for index in range(count)]
        made.append((draw(st.none() | st.just(b"k")), draw(st.none() | st.binary(max_size=300)), [], NOW_MS))
    return made


@st.composite
def even_rows(draw: st.DrawFn) -> list[RecordFields]:
    """Rows of one size all through, whose timestamps stand still, rise slowly, leap, or go back."""
    key = draw(st.none() | st.binary(max_size=3))
    value = draw(st.none() | st.binary(max_size=3) | st.just(b"v" * 100))
    count = draw(st.integers(1, 400))
    steps = draw(st.lists(st.integers(-200, 20_000), max_size=6))
    times = [NOW_MS + sum(steps[: index * len(steps) // count]) for index in range(count)]
    return [(key, value and bytes([index % 251]) + value[1:], [], times[index]) for index in range(count)]


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, list[tuple[Record, int]]]:
    """Batches as they lie in a log, with compaction's gaps; and what the row by row reader says they hold."""
    offset = draw(st.integers(0, 2**40))
    data = b""
    expected: list[tuple[Record, int]] = []
    for _ in range(draw(st.integers(0, 4))):
        records = draw(st.lists(rows, min_size=1, max_size=8) | uniform_rows())
        append_time = draw(st.none() | st.just(NOW_MS + 5))
        batch = build_batch(records, base_offset=offset, codec=draw(codecs), log_append_time_ms=append_time)
        header = read_header(batch)
        if draw(st.booleans()):
            offsets = enumerate(range(header.base_offset, header.next_offset))
            batch = rewritten(batch, [row for row, at in offsets if draw(st.booleans()) or at % 3])
        header = read_header(batch)
        expected += [(record, int(header.timestamp_type)) for record in read_records(batch, header)]
        data += batch
        offset = header.next_offset + draw(st.integers(0, 3))
    return data, expected


def as_rows(records: Any) -> list[tuple[Record, int]]:
    found = []
    for row in records.set_column(
        records.schema.get_field_index("timestamp"), "timestamp", records["timestamp"].cast(pa.int64())
    ).to_pylist():
        own = tuple((header["key"], header["value"]) for header in row["headers"] or ())
        assert row["headers"] is None or own
        found.append((Record(row["offset"], row["timestamp"], row["key"], row["value"], own), row["timestampType"]))
    return found


def as_table(records: list[RecordFields]) -> Any:
    keys, values, own_headers, times = zip(*records, strict=True)
    return pa.table(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "timestamp": pa.array(times, pa.int64()),
            "headers": pa.array([[{"key": k, "value": v} for k, v in own] for own in own_headers], HEADERS_TYPE),
        }
    )


class TestDecode:
    def test_batches_of_other_implementations(self, golden_batch: dict[str, Any]) -> None:
        header = read_header(golden_batch["bytes"])
        expected = [] if header.is_control else read_records(golden_batch["bytes"])
        decoded = decode_columns(golden_batch["bytes"], columns=COLUMN_NAMES)
        assert as_rows(decoded.records) == [(record, int(header.timestamp_type)) for record in expected]
        assert decoded.next_offset == header.next_offset

    @settings(max_examples=50)
    @given(logs())
    def test_gives_what_the_reader_gives(self, log: tuple[bytes, list[tuple[Record, int]]]) -> None:
        data, expected = log
        decoded = decode_columns(data, columns=COLUMN_NAMES, topic="t", partition=3)
        assert decoded.records.schema == columns_schema(COLUMN_NAMES)
        decoded.records.validate(full=True)
        assert as_rows(decoded.records) == expected
        assert set(decoded.records["topic"].to_pylist()) <= {"t"}
        assert set(decoded.records["partition"].to_pylist()) <= {3}
        last = [header.next_offset for _, header in iter_headers(data)]
        assert decoded.next_offset == (last[-1] if last else 0)

    @settings(max_examples=50)
    @given(logs())
    def test_groups_of_batches_are_put_together(self, log: tuple[bytes, list[tuple[Record, int]]]) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("ottla.records.columns.decode._GROUP_SIZE", 100)
            assert as_rows(decode_columns(log[0], columns=COLUMN_NAMES).records) == log[1]

    @settings(max_examples=50)
    @given(logs(), st.data())
    def test_a_range_of_offsets(self, log: tuple[bytes, list[tuple[Record, int]]], data: st.DataObject) -> None:
        batches, expected = log
        around = [record.offset + step for record, _ in expected for step in (0, 1)] or [0]
        start, end = sorted(data.draw(st.tuples(st.sampled_from(around), st.sampled_from(around))))
        decoded = decode_columns(memoryview(batches), columns=COLUMN_NAMES, start_offset=start, end_offset=end)
        assert as_rows(decoded.records) == [item for item in expected if start <= item[0].offset < end]

    @settings(max_examples=50)
    @given(logs(), st.integers(1, 200))
    def test_a_batch_cut_short_at_the_end_is_left_out(
        self, log: tuple[bytes, list[tuple[Record, int]]], cut: int
    ) -> None:
        whole = log[0] + build_batch([(None, b"more", [], 0)] * 40, base_offset=2**41)
        decoded = decode_columns(whole[:-cut], columns=COLUMN_NAMES)
        assert as_rows(decoded.records) == log[1]

    @settings(max_examples=50)
    @given(logs(), st.data())
    def test_damage_raises_or_changes_nothing_the_reader_would_not(
        self, log: tuple[bytes, list[tuple[Record, int]]], draws: st.DataObject
    ) -> None:
        """Without the checksum, so that the damage is really met: whatever the reader refuses is refused here."""
        damaged = bytearray(log[0] or build_batch([(b"k", b"v", [("h", b"1")], 5)]))
        for _ in range(draws.draw(st.integers(1, 4))):
            damaged[draws.draw(st.integers(0, len(damaged) - 1))] = draws.draw(st.integers(0, 255))
        try:
            expected = [
                (record, int(header.timestamp_type))
                for pos, header in iter_ordered_headers(damaged)
                if not header.is_control
                for record in read_records(memoryview(damaged)[pos:], header)
            ]
        except CorruptBatchError:
            with pytest.raises(CorruptBatchError):
                decode_columns(damaged, columns=COLUMN_NAMES, check_crc=False, start_offset=-(2**63))
        else:
            decoded = decode_columns(damaged, columns=COLUMN_NAMES, check_crc=False, start_offset=-(2**63))
            assert as_rows(decoded.records) == expected

    @given(st.lists(st.integers(0, 255) | st.sampled_from((0, 1, 2, 128, 255)), max_size=120), st.integers(-2, 12))
    def test_hostile_records(self, payload: list[int], count: int) -> None:
        header = read_header(build_batch([(None, b"v", [], 0)]))._replace(record_count=count, last_offset_delta=100)
        batch = pack_batch(header, bytes(payload))
        try:
            expected = [(record, 0) for record in read_records(batch)]
        except CorruptBatchError:
            with pytest.raises(CorruptBatchError):
                decode_columns(batch, columns=COLUMN_NAMES)
        else:
            assert as_rows(decode_columns(batch, columns=COLUMN_NAMES).records) == expected

    def test_the_checksum_is_checked_unless_told_otherwise(self) -> None:
        batch = bytearray(build_batch([(b"key", b"value", [], 0)]))
        batch[-3] ^= 1
        with pytest.raises(CorruptBatchError, match="checksum"):
            decode_columns(batch)
        assert decode_columns(batch, check_crc=False).records["value"].to_pylist() == [b"valte"]

    def test_only_the_asked_columns_in_a_fixed_order(self) -> None:
        decoded = decode_columns(build_batch([(b"k", b"v", [], 7)], base_offset=4), columns=["offset", "value"])
        assert decoded.records.schema.names == ["value", "offset"]
        assert decoded.records.to_pylist() == [{"value": b"v", "offset": 4}]
        with pytest.raises(ValueError, match="no column 'values'"):
            decode_columns(b"", columns=["values"])

    def test_nothing(self) -> None:
        decoded = decode_columns(b"", start_offset=12)
        assert decoded.records.num_rows == 0
        assert decoded.next_offset == 12

    @given(st.lists(st.binary(min_size=3, max_size=3), min_size=1, max_size=5))
    def test_header_keys_that_are_not_utf8_are_replaced(self, keys: list[bytes]) -> None:
        named = [(f"{index:03}", b"v") for index in range(len(keys))]
        batch = bytearray(build_batch([(None, b"a", named, 1), (None, b"b", [("x", None)], 1)]))
        # From the last to the first: a key that looks like one of those lies behind it.
        for index, key in reversed(list(enumerate(keys))):
            batch = batch.replace(f"{index:03}".encode(), key, 1)
        decoded = decode_columns(batch, columns=COLUMN_NAMES, check_crc=False).records
        decoded.validate(full=True)
        assert [record for record, _ in as_rows(decoded)] == read_records(batch)
        assert decoded["headers"].to_pylist()[0] == [
            {"key": key.decode(errors="replace"), "value": b"v"} for key in keys
        ]

    def test_a_record_with_very_many_headers(self) -> None:
        many = [(f"h{index}", str(index).encode()) for index in range(100)]
        batch = build_batch([(None, b"a", [("one", None)], 1), (None, b"b", many, 1), (None, b"c", [], 1)])
        assert [record.headers for record, _ in as_rows(decode_columns(batch, columns=COLUMN_NAMES).records)] == [
            (("one", None),),
            tuple(many),
            (),
        ]

    def test_timestamps_beyond_64_bits(self) -> None:
        batch = bytearray(build_batch([(None, b"v", [], 0), (None, b"v", [], 2**62)]))
        batch[27:35] = (2**62 + 5).to_bytes(8, "big")
        set_max_timestamp(batch, 0, len(batch), 0)
        with pytest.raises(CorruptBatchError, match="64 bits"):
            decode_columns(batch)

    def test_offsets_beyond_64_bits(self) -> None:
        batch = build_batch([(None, b"v", [], 0)] * 2, base_offset=2**63 - 1)
        with pytest.raises(CorruptBatchError, match="64 bits"):
            decode_columns(batch)

    def test_a_bomb(self) -> None:
        batch = build_batch([(None, bytes(1_000_000), [], 0)], codec=Codec.ZSTD)
        with pytest.raises(CorruptBatchError, match="larger"):
            decode_columns(batch, max_uncompressed=10_000)

    def test_it_stops_where_arrow_could_not_count_further(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from ottla.records.columns import decode as columns_decode

        monkeypatch.setattr(columns_decode, "MAX_DECODED", 3000)
        for codec in (Codec.NONE, Codec.GZIP):
            data = b"".join(
                build_batch([(None, bytes([n]) * 1000, [], 0)], base_offset=n, codec=codec) for n in range(9)
            )
            seen, offset = [], 0
            while offset < 9:
                decoded = decode_columns(data, start_offset=offset)
                assert decoded.next_offset > offset
                seen += decoded.records["offset"].to_pylist()
                offset = decoded.next_offset
            assert seen == list(range(9))


class TestTransactions:
    def _log(self) -> bytes:
        def written(producer_id: int, offset: int) -> bytes:
            return build_batch(
                [(None, b"%d" % producer_id, [], 0)],
                base_offset=offset,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            )

        def ended(producer_id: int, offset: int, commit: bool) -> bytes:
            return end_transaction_marker(producer_id, 0, commit, 0, NOW_MS, base_offset=offset)

        return b"".join(
            (
                written(1, 0),
                written(2, 1),
                build_batch([(None, b"plain", [], 0)], base_offset=2),
                ended(1, 3, False),
                written(1, 4),
                ended(2, 5, True),
                ended(1, 6, True),
                written(1, 7),
                ended(1, 8, False),
            )
        )

    def test_aborted_records_are_left_out(self) -> None:
        decoded = decode_columns(self._log(), aborted=[(1, 7), (1, 0)])
        assert decoded.records["offset"].to_pylist() == [1, 2, 4]
        assert decoded.next_offset == 9

    def test_without_the_list_only_markers_are_left_out(self) -> None:
        assert decode_columns(self._log()).records["offset"].to_pylist() == [0, 1, 2, 4, 7]

    def test_a_read_that_starts_inside_an_aborted_transaction(self) -> None:
        decoded = decode_columns(self._log(), aborted=[(1, 0)], start_offset=1)
        assert decoded.records["offset"].to_pylist() == [1, 2, 4, 7]


class TestEncode:
    @settings(max_examples=50)
    @given(st.lists(rows, min_size=1, max_size=20) | uniform_rows() | even_rows(), codecs)
    def test_gives_the_bytes_the_builder_gives(self, records: list[RecordFields], codec: Codec) -> None:
        (batch,) = encode_columns(
            as_table(records),
            codec=codec,
            max_batch_size=2**30,
            producer_id=7,
            producer_epoch=1,
            base_sequence=3,
            transactional=True,
        )
        assert batch.make() == build_batch(
            records, codec=codec, producer_id=7, producer_epoch=1, base_sequence=3, transactional=True
        )
        assert (batch.first_row, batch.record_count) == (0, len(records))

    @settings(max_examples=50)
    @given(st.lists(rows, min_size=1, max_size=40) | uniform_rows() | even_rows(), st.integers(100, 3000))
    def test_batches_are_within_the_size_and_in_order(self, records: list[RecordFields], max_size: int) -> None:
        batches = encode_columns(as_table(records), max_batch_size=max_size, producer_id=1, base_sequence=2**31 - 3)
        next_row = 0
        for batch in batches:
            assert batch.first_row == next_row
            own = records[next_row : next_row + batch.record_count]
            sequence = (2**31 - 3 + next_row) % 2**31
            assert batch.make() == build_batch(own, producer_id=1, base_sequence=sequence)
            assert len(batch.make()) <= max_size or batch.record_count == 1
            next_row += batch.record_count
        assert next_row == len(records)

    @settings(max_examples=50)
    @given(st.lists(rows, min_size=1, max_size=20), codecs)
    def test_there_and_back(self, records: list[RecordFields], codec: Codec) -> None:
        data = b"".join(batch.make() for batch in encode_columns(as_table(records), codec=codec))
        decoded = as_rows(decode_columns(data, columns=COLUMN_NAMES).records)
        assert [(row.key, row.value, list(row.headers), row.timestamp) for row, _ in decoded] == records

    @pytest.mark.parametrize("rows_per_ms", [20_000, 100, 1])
    @pytest.mark.parametrize("key", [None, b"key"])
    def test_many_rows_of_one_size(self, key: bytes | None, rows_per_ms: int) -> None:
        records: list[RecordFields] = [(key, b"%05d" % n, [], NOW_MS + n // rows_per_ms) for n in range(20_000)]
        (batch,) = encode_columns(as_table(records))
        assert batch.make() == build_batch(records)
        parts = list(encode_columns(as_table(records), max_batch_size=100_000))
        assert max(part.record_count for part in parts) - min(part.record_count for part in parts) <= 1
        for part in parts:
            own = records[part.first_row : part.first_row + part.record_count]
            assert part.make() == build_batch(own) and len(part.make()) <= 100_000

    def test_the_checksum_can_be_left_to_the_producer(self) -> None:
        (batch,) = encode_columns(as_table([(None, b"v", [], NOW_MS)]), checksum=False)
        data = batch.make()
        assert not crc_is_valid(data, read_header(data))
        set_producer(data, 0, len(data), producer_id=7, producer_epoch=1, base_sequence=3)
        assert data == build_batch([(None, b"v", [], NOW_MS)], producer_id=7, producer_epoch=1, base_sequence=3)

    def test_large_tables_are_encoded_in_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from ottla.records.columns import encode as columns_encode

        records: list[RecordFields] = [(b"%d" % n, bytes(n), [("h", b"%d" % n)], NOW_MS + n) for n in range(200)]
        whole = [(batch.make(), batch.first_row) for batch in encode_columns(as_table(records), max_batch_size=700)]
        monkeypatch.setattr(columns_encode, "_GROUP_SIZE", 1500)
        parts = encode_columns(as_table(records), max_batch_size=700)
        assert [(batch.make(), batch.first_row) for batch in parts] == whole

    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
    @pytest.mark.parametrize("timestamps", ["one", "many"])
    @pytest.mark.parametrize("lengths", ["even", "uneven"])
    def test_a_batch_can_be_made_again(self, lengths: str, timestamps: str, codec: Codec) -> None:
        records: list[RecordFields] = [
            (None, bytes(1 if lengths == "even" else n), [], NOW_MS + (n if timestamps == "many" else 0))
            for n in range(100)
        ]
        (batch,) = encode_columns(as_table(records), codec=codec)
        first = bytes(batch.make())
        assert first == build_batch(records, codec=codec) and len(first) == batch.size
        assert batch.make() == first

    def test_a_slice_of_a_table_in_chunks(self) -> None:
        part: list[RecordFields] = [(b"%d" % n, None if n % 3 else b"v", [("h", None)] * (n % 2), n) for n in range(9)]
        table = pa.concat_tables([as_table(part), as_table(part)]).slice(4, 11)
        (batch,) = encode_columns(table)
        assert batch.make() == build_batch((part + part)[4:15])
        (batch,) = encode_columns(table.combine_chunks().to_batches()[0].slice(1, 5))
        assert batch.make() == build_batch((part + part)[5:10])

    def test_text_and_other_timestamps(self) -> None:
        table = pa.table(
            {
                "value": pa.array(["a", None], pa.large_string()),
                "timestamp": pa.array([1_500_999, None], pa.timestamp("us", tz="UTC")),
                "offset": [1, 2],
            }
        )
        (batch,) = encode_columns(table, default_timestamp_ms=99)
        assert read_records(batch.make()) == [Record(0, 1500, None, b"a", ()), Record(1, 99, None, None, ())]

    def test_the_widest_span_of_timestamps(self) -> None:
        records: list[RecordFields] = [(None, b"a", [], 2**63 - 1), (None, b"b", [], 0), (None, b"c", [], 2**63 - 1)]
        (batch,) = encode_columns(as_table(records))
        assert batch.make() == build_batch(records)

    def test_no_rows_give_no_batches(self) -> None:
        assert not list(encode_columns(pa.table({"value": pa.array([], pa.binary())})))

    @pytest.mark.parametrize(
        ("columns", "complaint"),
        [
            ({"key": [b"k"]}, "no column 'value'"),
            ({"value": [b"v"], "colour": [1]}, "'colour'"),
            ({"value": [1.5]}, "'value' is double"),
            ({"value": [b"v"], "timestamp": ["now"]}, "'timestamp' is string"),
            ({"value": [b"v"], "timestamp": pa.array([2**62], pa.timestamp("s"))}, "do not fit 64 bits"),
            ({"value": [b"v"], "headers": [5]}, "'headers' is int64"),
        ],
    )
    def test_tables_that_cannot_be_sent(self, columns: dict[str, Any], complaint: str) -> None:
        with pytest.raises(ValueError, match=complaint):
            encode_columns(pa.table(columns))

    def test_rows_that_cannot_be_sent(self) -> None:
        with pytest.raises(InvalidRecordError, match="row 1 has the timestamp -2"):
            encode_columns(pa.table({"value": [b"a", b"b"], "timestamp": [0, -2]}))
        nameless = pa.array([[{"key": None, "value": b"v"}]], HEADERS_TYPE)
        with pytest.raises(InvalidRecordError, match="no key"):
            encode_columns(pa.table({"value": [b"a"], "headers": nameless}))

    def test_the_checksum_holds(self) -> None:
        (batch,) = encode_columns(pa.table({"value": [b"a" * HEADER_SIZE]}))
        assert crc_is_valid(batch.make(), read_header(batch.make()))


def test_the_rest_of_the_room_does_without_arrow() -> None:
    """A broker must not pay for pyarrow, nor need it."""
    program = (
        "import sys; import ottla.records.builder, ottla.records.reader, ottla.records.control;"
        "sys.exit('numpy' in sys.modules or 'pyarrow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=PATIENCE_S, check=False).returncode == 0


def test_what_is_missing_is_named() -> None:
    program = "import sys; sys.modules['pyarrow'] = None; import ottla.records.columns"
    run = subprocess.run(
        [sys.executable, "-c", program], timeout=PATIENCE_S, check=False, capture_output=True, text=True
    )
    assert "pyarrow is missing: pip install 'ottla[columns]'" in run.stderr
