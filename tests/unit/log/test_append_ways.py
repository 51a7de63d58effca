"""The short and the long way of a batch into the log: the same verdicts, the same offsets, the same files.

Both ways ask the same rule when to begin a new segment, so the test has one of its own, said in another way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import KafkaError
from ottla.log.config import LOG_APPEND_TIME, LogConfig
from ottla.log.partition_log import AppendInfo, Origin, PartitionLog
from ottla.log.stage import NOT_STAGED, Stage
from ottla.records.batch import BatchHeader, pack_batch, read_header
from ottla.records.builder import encode_record
from ottla.records.compression import Codec
from tests.unit.log.samples import FRESH_LOG, NOW_MS, MakeLog, batch, idempotent, reopen

_MakeBatch = Callable[[], memoryview]


class _ClosedStage(Stage):
    """Sends every batch the long way."""

    def add(self, records: memoryview, leader_epoch: int, now_ms: int) -> int:
        return NOT_STAGED


# -- batches -----------------------------------------------------------------------------------------------------


def _with_fields(records: memoryview, change: Callable[[BatchHeader], dict[str, int]]) -> memoryview:
    """Another header with a checksum that is right, so that only the field is wrong."""
    header = read_header(records)
    changed = pack_batch(header._replace(**change(header)), bytes(records[61:]))
    return memoryview(bytearray(changed))


def _flagged(bits: int) -> _MakeBatch:
    return lambda: _with_fields(batch(b"f"), lambda header: {"attributes": header.attributes | bits})


def _miscounted(by: int) -> _MakeBatch:
    return lambda: _with_fields(batch(b"f"), lambda header: {"record_count": header.record_count + by})


def _patched(position: int, value: int) -> _MakeBatch:
    def make() -> memoryview:
        records = batch()
        records[position] = value
        return records

    return make


_plain = st.builds(
    lambda size, count, age_ms, codec, key: (
        lambda: batch(*[b"v" * size] * count, timestamp=NOW_MS + age_ms, codec=codec, key=key)
    ),
    st.integers(0, 200),
    st.integers(1, 4),
    st.integers(-3000, 3000),
    st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4]),
    st.sampled_from([b"k", b"k", None]),
)
_of_producers = st.builds(
    lambda sequence, count, producer_id, epoch, transactional: (
        lambda: idempotent(sequence, count, producer_id=producer_id, producer_epoch=epoch, transactional=transactional)
    ),
    st.integers(-1, 6),
    st.integers(1, 2),
    st.integers(7, 8),
    st.integers(0, 1),
    st.sampled_from([False, False, False, True]),
)
_odd: list[_MakeBatch] = [
    lambda: batch(timestamp=-1),
    lambda: batch()[:40],
    lambda: batch()[:-1],
    lambda: memoryview(bytearray(batch()) * 2),
    lambda: batch(transactional=True),
    lambda: batch(control=True),
    lambda: batch(log_append_time_ms=NOW_MS),
    *map(_flagged, (0x05, 0x07, 0x40, -0x8000)),
    *map(_miscounted, (-1, 1)),
    *(_patched(position, value) for position, value in ((7, 5), (16, 1), (10, 255), (-1, 255))),
]
_batches = st.one_of(_plain, _plain, _of_producers, st.sampled_from(_odd))

_topics = st.sampled_from(
    [
        {},
        {},
        {"cleanup_policy": frozenset({"compact"})},
        {"compression_type": "gzip"},
        {"message_timestamp_type": LOG_APPEND_TIME},
        {"message_timestamp_before_max_ms": 2500},
    ]
)


# -- when a segment ends -----------------------------------------------------------------------------------------


@dataclass
class _ModelSegment:
    base_offset: int
    created_ms: int
    size: int = 0
    first_timestamp: int = -1
    max_timestamp: int = -1
    indexed_position: int = 0
    indexed_timestamp: int = -1
    offset_entries: int = 0
    time_entries: int = 0


class _Model:
    """Says at which offsets segments begin, from the batches in the order of the log."""

    def __init__(self, config: LogConfig) -> None:
        self._config = config
        self.segments = [_ModelSegment(0, NOW_MS)]

    def append(self, header: BatchHeader, now_ms: int) -> None:
        config, last = self._config, self.segments[-1]
        is_full = (
            last.size + header.size > config.segment_bytes
            or last.offset_entries >= config.segment_index_bytes // 8
            or last.time_entries >= config.segment_index_bytes // 12 - 1
        )
        has_time = last.first_timestamp >= 0
        age_ms = header.max_timestamp - last.first_timestamp if has_time else now_ms - last.created_ms
        if last.size and (is_full or age_ms > config.segment_ms):
            last = _ModelSegment(header.base_offset, now_ms)
            self.segments.append(last)
        if not last.size:
            last.first_timestamp = header.max_timestamp
        last.max_timestamp = max(last.max_timestamp, header.max_timestamp)
        if last.size - last.indexed_position > config.index_interval_bytes:
            last.indexed_position = last.size
            last.offset_entries += 1
            if last.max_timestamp > last.indexed_timestamp:
                last.indexed_timestamp = last.max_timestamp
                last.time_entries += 1
        last.size += header.size


# -- the law -----------------------------------------------------------------------------------------------------


def _files(log: PartitionLog) -> dict[str, bytes]:
    log.close()
    return {path.name: path.read_bytes() for path in Path(log.directory).iterdir() if path.is_file()}


def _append(log: PartitionLog, records: memoryview, now_ms: int) -> AppendInfo | tuple[Any, ...]:
    try:
        return log.append_as_leader(records, leader_epoch=0, now_ms=now_ms)
    except KafkaError as e:
        return type(e), e.code, e.message, getattr(e, "record_errors", None)


@settings(max_examples=60, deadline=None, suppress_health_check=FRESH_LOG)
@given(
    groups=st.lists(st.lists(_batches, min_size=1, max_size=6), max_size=6),
    topic=_topics,
    segment_bytes=st.sampled_from([700, 1 << 20]),
    segment_ms=st.sampled_from([2000, 1 << 40]),
    segment_index_bytes=st.sampled_from([36, 60, 4096]),
    index_interval_bytes=st.sampled_from([0, 100, 4096]),
)
def test_both_ways_lead_to_the_same_log(
    make_log: MakeLog, groups: list[list[_MakeBatch]], topic: dict[str, Any], **limits: int
) -> None:
    config = {"message_timestamp_after_max_ms": 2500, "max_message_bytes": 600, **limits, **topic}
    logs = staged, one_by_one, by_the_long_way = make_log(**config), make_log(**config), make_log(**config)
    by_the_long_way.stage = _ClosedStage(by_the_long_way, by_the_long_way.stage.rules)
    model = _Model(staged.config)
    for number, group in enumerate(groups):
        now_ms = NOW_MS + 900 * number
        for make in group:
            expected = _append(by_the_long_way, make(), now_ms)
            assert _append(one_by_one, make(), now_ms) == expected
            records = make()
            first_offset = staged.stage.add(records, 0, now_ms)
            if first_offset == NOT_STAGED:
                assert _append(staged, records, now_ms) == expected
            else:
                assert isinstance(expected, AppendInfo)
                assert (first_offset, expected.is_duplicate) == (expected.first_offset, False)
            if isinstance(expected, AppendInfo) and not expected.is_duplicate:
                model.append(_stored_header(by_the_long_way, expected.first_offset), now_ms)
        staged.stage.write(now_ms)
        for log in logs:
            assert log.log_end_offset == by_the_long_way.log_end_offset
            assert [s.base_offset for s in log.segments.all()] == [s.base_offset for s in model.segments]
        for offset in range(by_the_long_way.log_end_offset):
            places = [log.read(offset, 1, end_offset=offset + 1).data for log in logs]
            assert len({place and place[1:] for place in places}) == 1
    assert _files(staged) == _files(one_by_one) == _files(by_the_long_way)
    assert reopen(staged, is_clean=False).log_end_offset == by_the_long_way.log_end_offset


def _stored_header(log: PartitionLog, offset: int) -> BatchHeader:
    data = log.read(offset, 1, end_offset=log.log_end_offset).data
    assert data is not None
    segment = log.segments.all()[log.segments.number_of(offset)]
    return segment.header_at(data.position)


# -- batches of this broker --------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, suppress_health_check=FRESH_LOG)
@given(
    appends=st.lists(
        st.tuples(
            st.lists(st.sampled_from([b"v", b"w" * 100, None]), min_size=1, max_size=6),
            st.integers(0, 2),
            st.sampled_from([None, None, None, (7, 0)]),
        ),
        max_size=12,
    ),
    topic=_topics,
    segment_bytes=st.sampled_from([400, 1 << 20]),
    segment_ms=st.sampled_from([2000, 1 << 40]),
    segment_index_bytes=st.sampled_from([36, 4096]),
    index_interval_bytes=st.sampled_from([0, 100, 4096]),
)
def test_records_of_the_broker_are_stored_as_the_batch_that_they_make(
    make_log: MakeLog, appends: list[tuple[list[bytes | None], int, Any]], topic: dict[str, Any], **limits: int
) -> None:
    config = {"max_message_bytes": 600, **limits, **topic}
    own, by_batch = make_log(**config), make_log(**config)
    now_ms, leader_epoch = NOW_MS, 0
    for values, epochs_up, transaction_of in appends:
        now_ms, leader_epoch = now_ms + 900, leader_epoch + epochs_up
        producer = {}
        if transaction_of is not None:
            producer = {"producer_id": transaction_of[0], "producer_epoch": transaction_of[1], "transactional": True}
        made = batch(*values, timestamp=now_ms, **producer)
        encoded = [encode_record(number, 0, b"k", value) for number, value in enumerate(values)]
        stored = _refused_or(
            by_batch.append_as_leader, made, leader_epoch=leader_epoch, now_ms=now_ms, origin=Origin.COORDINATOR
        )
        got = _refused_or(
            own.append_own, encoded, leader_epoch=leader_epoch, now_ms=now_ms, transaction_of=transaction_of
        )
        assert got == (stored.first_offset if isinstance(stored, AppendInfo) else stored)
        assert own.log_end_offset == by_batch.log_end_offset
    assert _files(own) == _files(by_batch)


def _refused_or(append: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
    try:
        return append(*arguments, **more)
    except KafkaError as e:
        return e.code, e.message
