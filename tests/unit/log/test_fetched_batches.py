"""What a leader sends to a follower: stored in one pass, and as `append_as_follower` would."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.base.errors import CorruptBatchError, InvalidRecordError
from ottla.log.partition_log import PartitionLog
from ottla.records.batch import assign_offsets
from ottla.records.builder import NewRecord, build_batch
from ottla.records.control import end_transaction_marker
from tests.unit.log.samples import NOW_MS, MakeLog, batch


class Sent(NamedTuple):
    records: int
    producer_id: int
    is_transactional: bool
    is_marker: bool
    gap: int
    """Of offsets, before it."""
    epochs_up: int


_sent = st.builds(
    Sent,
    st.integers(1, 4),
    st.sampled_from([-1, -1, 5, 6]),
    st.booleans(),
    st.sampled_from([False, False, True]),
    st.integers(0, 2),
    st.integers(0, 2),
)


def encode(batches: list[Sent]) -> list[bytes]:
    offset, epoch = 0, 1
    sequences = {5: 0, 6: 0}
    encoded = []
    for records, producer_id, is_transactional, is_marker, gap, epochs_up in batches:
        offset, epoch = offset + gap, epoch + epochs_up
        if is_marker and producer_id >= 0:
            made, records = end_transaction_marker(producer_id, 0, True, 0, NOW_MS), 1
        else:
            fields: dict[str, Any] = {}
            if producer_id >= 0:
                fields = {
                    "producer_id": producer_id,
                    "producer_epoch": 0,
                    "base_sequence": sequences[producer_id],
                    "transactional": is_transactional,
                }
                sequences[producer_id] += records
            made = build_batch([NewRecord(None, b"v", (), NOW_MS + number) for number in range(records)], **fields)
        data = memoryview(bytearray(made))
        assign_offsets(data, 0, offset, epoch)
        encoded.append(bytes(data))
        offset += records
    return encoded


def state(log: PartitionLog) -> Any:
    segments = [(s.base_offset, os.pread(s.log.fd, s.size, 0), s.max_timestamp) for s in log.segments.all()]
    index = bytes(log.segments.active.offset_index.entries())
    producers = [repr(entry) for entry in log.producers.entries.values()]
    return log.log_end_offset, segments, index, producers, log.epochs.entries(), log.producers.end_offset


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(_sent, min_size=1, max_size=8), cut_bytes=st.integers(0, 60), replies=st.integers(1, 3))
def test_both_ways_are_the_same(make_log: MakeLog, batches: list[Sent], cut_bytes: int, replies: int) -> None:
    one, other = make_log(index_interval_bytes=100), make_log(index_interval_bytes=100)
    encoded = encode(batches)
    size = -(-len(encoded) // replies)
    for start in range(0, len(encoded), size):
        reply = encoded[start : start + size]
        one.append_as_follower(memoryview(bytearray(b"".join(reply))), now_ms=NOW_MS)
        of_next = (encoded[start + size :] or [b""])[0][:cut_bytes]
        other.append_fetched(memoryview(bytearray(b"".join(reply) + of_next)), now_ms=NOW_MS)
        assert state(other) == state(one)


def test_a_part_of_a_batch_is_nothing(log: PartitionLog) -> None:
    for size in (0, 11, 61, 65):
        log.append_fetched(memoryview(bytearray(batch(b"a")[:size])))
    assert log.log_end_offset == 0


def test_what_is_damaged_or_there_already_is_refused_as_a_whole(log: PartitionLog) -> None:
    good, bad = bytearray(batch(b"a")), bytearray(batch(b"b", base_offset=1))
    bad[-1] ^= 1
    with pytest.raises(CorruptBatchError, match="offset 1 has a wrong checksum"):
        log.append_fetched(memoryview(good + bad))
    bad[16] = 1
    with pytest.raises(CorruptBatchError, match="no batch of magic 2"):
        log.append_fetched(memoryview(good + bad))
    with pytest.raises(InvalidRecordError, match="goes on at 1"):
        log.append_fetched(memoryview(good + good))
    assert log.log_end_offset == 0
