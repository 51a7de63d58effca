"""Several batches in one write: the same log as if they had been written one by one, or no trace of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import KafkaError, LogDirError
from ottla.log.partition_log import PartitionLog
from ottla.log.staged_appends import NOT_STAGED
from tests.unit.log.samples import FRESH_LOG, NOW_MS, MakeLog, append, batch, idempotent, read_all, reopen

LARGE_INDEX_BYTES = 65_536
"""A segment whose index is nearly full takes nothing without being asked."""


@pytest.fixture
def log(make_log: MakeLog) -> PartitionLog:
    log = make_log(segment_index_bytes=LARGE_INDEX_BYTES)
    append(log, b"first")
    return log


def test_nothing_is_there_before_the_write(log: PartitionLog) -> None:
    assert [log.stage(batch(b"a", b"b"), 0, NOW_MS), log.stage(batch(b"c"), 0, NOW_MS)] == [1, 3]
    assert (log.log_end_offset, log.producers.end_offset, [r.value for r in read_all(log)]) == (1, 1, [b"first"])
    log.write_staged(NOW_MS)
    assert not log.has_staged
    assert (log.log_end_offset, log.producers.end_offset) == (4, 4)
    assert [(r.offset, r.value) for r in read_all(log)] == [(0, b"first"), (1, b"a"), (2, b"b"), (3, b"c")]


def test_other_appends_come_after_what_is_staged(log: PartitionLog) -> None:
    log.stage(batch(b"a"), 0, NOW_MS)
    assert append(log, b"b") == 2
    assert [r.value for r in read_all(log)] == [b"first", b"a", b"b"]


def test_one_producer_stages_one_batch_after_the_other(log: PartitionLog) -> None:
    assert log.stage(idempotent(0), 0, NOW_MS) == NOT_STAGED, "the first batch of a producer goes the long way"
    log.append_as_leader(idempotent(0), leader_epoch=0, now_ms=NOW_MS)
    assert [log.stage(idempotent(at, 2), 0, NOW_MS) for at in (1, 3)] == [2, 4]
    assert log.stage(idempotent(3, 2), 0, NOW_MS) == NOT_STAGED, "a duplicate of what is not even written"
    assert log.stage(idempotent(5, producer_epoch=1), 0, NOW_MS) == NOT_STAGED
    assert log.producers.entries[7].last_sequence == 0
    duplicate = log.append_as_leader(idempotent(3, 2), leader_epoch=0, now_ms=NOW_MS)
    assert (duplicate.first_offset, duplicate.is_duplicate) == (4, True)
    assert log.producers.entries[7].last_sequence == 4


def _fails(*_: Any) -> int:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("count", [1, 3])
def test_a_failed_write_leaves_no_trace(log: PartitionLog, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    log.append_as_leader(idempotent(0), leader_epoch=0, now_ms=NOW_MS)
    size_before = log.size_bytes
    for sequence in range(1, count + 1):
        assert log.stage(idempotent(sequence), 0, NOW_MS) != NOT_STAGED
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", _fails)
        patched.setattr(os, "pwritev", _fails)
        with pytest.raises(LogDirError, match="No space left"):
            log.write_staged(NOW_MS)
    assert not log.has_staged
    assert (log.log_end_offset, log.size_bytes, log.producers.entries[7].last_sequence) == (2, size_before, 0)
    assert log.append_as_leader(idempotent(1), leader_epoch=0, now_ms=NOW_MS).first_offset == 2


def test_a_short_write_is_completed(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [b"a" * 300, b"b" * 300]
    for value in values:
        log.stage(batch(value), 0, NOW_MS)
    real: Callable[..., int] = os.pwritev
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwritev", lambda fd, data, position: real(fd, [data[0][:50]], position))
        log.write_staged(NOW_MS)
    assert [r.value for r in read_all(log)] == [b"first", *values]


def test_a_new_leader_epoch_goes_the_long_way(log: PartitionLog) -> None:
    assert log.stage(batch(), 3, NOW_MS) == NOT_STAGED
    log.append_as_leader(batch(), leader_epoch=3, now_ms=NOW_MS)
    assert log.stage(batch(), 3, NOW_MS) == 2


def test_settings_are_obeyed_as_they_change(make_log: MakeLog) -> None:
    log = make_log(segment_index_bytes=LARGE_INDEX_BYTES)
    append(log)
    assert log.stage(batch(b"x" * 100), 0, NOW_MS) == 1
    log.write_staged(NOW_MS)
    log.update_config(make_log(segment_index_bytes=LARGE_INDEX_BYTES, max_message_bytes=120).config)
    assert log.stage(batch(b"x" * 100), 0, NOW_MS) == NOT_STAGED
    log.update_config(make_log(segment_index_bytes=LARGE_INDEX_BYTES, cleanup_policy=("compact",)).config)
    assert log.stage(batch(b"x"), 0, NOW_MS) == NOT_STAGED


def _corrupt(records: memoryview) -> memoryview:
    records[-1] ^= 1
    return records


def _at_offset(records: memoryview) -> memoryview:
    records[7] = 5
    return records


_batches = st.one_of(
    st.builds(
        lambda size, count, age_ms: lambda: batch(*[b"v" * size] * count, timestamp=NOW_MS + age_ms),
        st.integers(0, 200),
        st.integers(1, 4),
        st.integers(-3000, 3000),
    ),
    st.builds(
        lambda sequence, count, producer_id, epoch: (
            lambda: idempotent(sequence, count, producer_id=producer_id, producer_epoch=epoch)
        ),
        st.integers(0, 6),
        st.integers(1, 2),
        st.integers(7, 8),
        st.integers(0, 1),
    ),
    st.just(lambda: batch(timestamp=-1)),
    st.just(lambda: _corrupt(batch())),
    st.just(lambda: _at_offset(batch())),
    st.just(lambda: batch()[:40]),
    st.just(lambda: idempotent(0, producer_id=9, transactional=True)),
)


def _files(log: PartitionLog) -> dict[str, bytes]:
    log.close()
    wanted = (".log", ".index", ".timeindex", ".snapshot")
    return {path.name: path.read_bytes() for path in Path(log.directory).iterdir() if path.suffix in wanted}


@settings(max_examples=25, deadline=None, suppress_health_check=FRESH_LOG)
@given(
    groups=st.lists(st.lists(_batches, min_size=1, max_size=6), max_size=6),
    segment_bytes=st.sampled_from([700, 1 << 20]),
    segment_ms=st.sampled_from([2000, 1 << 40]),
)
def test_staged_or_one_by_one_is_the_same_log(
    make_log: MakeLog, groups: list[list[Callable[[], memoryview]]], segment_bytes: int, segment_ms: int
) -> None:
    config = {
        "segment_index_bytes": LARGE_INDEX_BYTES,
        "index_interval_bytes": 100,
        "segment_bytes": segment_bytes,
        "segment_ms": segment_ms,
        "segment_jitter_ms": 0,
        "message_timestamp_after_max_ms": 2500,
    }
    grouped, single, long_way = make_log(**config), make_log(**config), make_log(**config)

    def append_to(log: PartitionLog, append: Callable[..., Any], records: memoryview) -> object:
        try:
            return append(records, leader_epoch=0, now_ms=NOW_MS)[:2]
        except KafkaError as e:
            return e.code, e.message

    def look(records: memoryview, *, leader_epoch: int, now_ms: int) -> Any:
        return long_way._append_with_a_look(records, leader_epoch, now_ms)

    for group in groups:
        for make in group:
            expected = append_to(long_way, look, make())
            assert append_to(single, single.append_as_leader, make()) == expected
            records = make()
            first_offset = grouped.stage(records, 0, NOW_MS)
            if first_offset == NOT_STAGED:
                assert append_to(grouped, grouped.append_as_leader, records) == expected
            else:
                assert isinstance(expected, tuple)
                assert first_offset == expected[0]
        grouped.write_staged(NOW_MS)
        assert grouped.log_end_offset == single.log_end_offset == long_way.log_end_offset
        for offset in range(long_way.log_end_offset):
            places = [log.read(offset, 1, end_offset=offset + 1).data for log in (grouped, single, long_way)]
            assert len({place and place[1:] for place in places}) == 1
    assert _files(grouped) == _files(single) == _files(long_way)
    assert reopen(grouped, is_clean=False).log_end_offset == long_way.log_end_offset
