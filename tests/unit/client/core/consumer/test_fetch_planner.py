"""What is asked of which broker, field by field, and what each part of an answer does to a cursor."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.consumer.cursors import NOBODY, Stage
from ottla.client.core.consumer.fetch_planner import CHUNKS_MAX, PREFERRED_REPLICA_MS
from ottla.client.core.consumer.options import LATEST
from ottla.client.core.metadata import PartitionLeader
from ottla.client.errors import OffsetOutOfRangeError, PartitionError
from ottla.wire.apis.fetch import (
    EpochEndOffset,
    FetchablePartitionResponse,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
)
from ottla.wire.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

from .test_cursors import FIRST, SECOND, TOPIC_ID, Reader, batch, response

E = ErrorCode
BACKOFF_MS = 100


def test_a_request_says_what_the_settings_say() -> None:
    reader = Reader(
        fetch_max_wait_ms=7,
        fetch_min_bytes=8,
        fetch_max_bytes=900_000,
        max_partition_fetch_bytes=1234,
        isolation_level="read_committed",
        client_rack="north",
    )
    (cursor,) = reader.cursors.all()
    cursor.seek(5)
    cursor.leader_epoch = 3
    call = reader.call()
    request = call.request
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (7, 8, 900_000)
    assert (request.isolation_level, request.rack_id) == (1, "north")
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (topic.topic_id, partition.partition, partition.fetch_offset) == (TOPIC_ID, 0, 5)
    assert (partition.current_leader_epoch, partition.partition_max_bytes) == (3, 1234)
    assert call.node_id == cursor.in_flight_to == 1
    assert call.max_version == max(FetchRequest.VERSIONS)
    assert call.names == {TOPIC_ID: "t"} and call.turns == {FIRST: (cursor, cursor.turn, 5)}


def test_topics_without_an_id_are_asked_for_by_their_names() -> None:
    reader = Reader()
    partitions = [MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=0)]
    reader.metadata.update(
        MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="h", port=1)],
            topics=[MetadataResponseTopic(name="t", partitions=partitions)],
        ),
        0,
    )
    assert reader.call().max_version == 12, "the last version with names"


@pytest.mark.parametrize(("limit", "is_planned"), [(-1, False), (0, True)])
def test_no_more_is_asked_for_while_more_than_one_answer_waits(limit: int, is_planned: bool) -> None:
    records = batch(0)
    reader = Reader((FIRST, SECOND), fetch_max_bytes=len(records) + limit)
    for call in reader.planner.plan(0):
        reader.planner.answered(call, response(records if call.node_id == 1 else b""), 0)
    assert reader.planner.buffered_bytes() == len(records)
    assert bool(reader.planner.plan(0)) is is_planned
    for hide in ("is_paused", "is_held_up"):
        (cursor,) = [cursor for cursor in reader.cursors.all() if cursor.chunks]
        setattr(cursor, hide, True)
        assert reader.planner.buffered_bytes() == 0, "what may wait for long holds up nobody"
        setattr(cursor, hide, False)


def test_whoever_was_first_comes_last_the_next_time() -> None:
    partitions = tuple(TopicPartition("t", number) for number in range(3))
    reader = Reader(partitions)
    reader.metadata.update(_led_by_first(3), 0)
    orders = []
    for _ in range(3):
        call = reader.call()
        orders.append([partition.partition for partition in call.turns])
        reader.planner.failed(call, -BACKOFF_MS)
    assert orders == [[1, 2, 0], [2, 0, 1], [0, 1, 2]]


def test_nothing_is_planned_for_nobody_and_metadata_are_asked_for_without_a_leader() -> None:
    assert Reader(()).planner.plan(0) == []
    reader = Reader()
    before_ms = reader.metadata.next_refresh_ms()
    reader.metadata.brokers.pop(1)
    assert reader.planner.plan(0) == [] and reader.planner.brokers_in_flight == 0
    assert reader.metadata.next_refresh_ms() < before_ms


def test_a_full_partition_makes_room_before_the_ends_of_others_are_waited_for() -> None:
    reader = Reader((FIRST, SECOND))
    reader.metadata.update(_led_by_first(2), 0)
    first, second = reader.cursors.all()
    for number in range(CHUNKS_MAX):
        first.chunks.append(_chunk(reader, number))
    for end_offset, is_planned in ((-1, True), (0, False), (1, True)):
        second.end_offset = end_offset
        calls = reader.planner.plan(0)
        assert bool(calls) is is_planned, end_offset
        for call in calls:
            reader.planner.failed(call, -BACKOFF_MS)
    second.end_offset = 0
    for name in ("is_paused", "is_held_up"):
        setattr(first, name, True)
        (call,) = reader.planner.plan(0)
        assert list(call.turns) == [SECOND]
        reader.planner.failed(call, -BACKOFF_MS)
        setattr(first, name, False)
    first.chunks.pop()
    (call,) = reader.planner.plan(0)
    assert set(call.turns) == {FIRST, SECOND}


def _topic(*partitions: FetchablePartitionResponse) -> FetchableTopicResponse:
    return FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(partitions))


def test_a_session_goes_on_until_its_broker_is_lost() -> None:
    reader = Reader()
    for epoch in (0, 1, 2):
        call = reader.call()
        assert (call.request.session_id, call.request.session_epoch) == (7 if epoch else 0, epoch)
        reader.planner.answered(call, FetchResponse(session_id=7, responses=[]), 0)
    call = reader.call()
    reader.metadata.update(_led_by_first(2), 0)
    before_ms = reader.metadata.next_refresh_ms()
    reader.planner.failed(call, -BACKOFF_MS)
    assert reader.metadata.next_refresh_ms() < before_ms, "its partitions may have moved"
    assert reader.call().request.session_epoch == 0


def _led_by_first(partitions: int) -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="h", port=1)],
        topics=[
            MetadataResponseTopic(
                name="t",
                topic_id=TOPIC_ID,
                partitions=[
                    MetadataResponsePartition(partition_index=number, leader_id=1, leader_epoch=0)
                    for number in range(partitions)
                ],
            )
        ],
    )


def _chunk(reader: Reader, number: int) -> Any:
    other = Reader()
    other.answer(batch(3 * number))
    return other.cursors.all()[0].chunks[0]


# Answers


def test_an_answer_moves_the_fetch_offset_and_tells_the_bounds_of_the_log() -> None:
    reader = Reader()
    (cursor,) = reader.cursors.all()
    call = reader.answer(batch(0, partition_leader_epoch=4) + batch(3, 2, partition_leader_epoch=5), log_start_offset=2)
    assert (cursor.fetch_offset, cursor.fetch_epoch) == (5, 5)
    assert (cursor.end_offset, cursor.log_start_offset) == (100, 2)
    assert (cursor.in_flight_to, reader.planner.brokers_in_flight) == (NOBODY, 0)
    assert call.turns[FIRST][2] == 0
    reader.answer(batch(5, partition_leader_epoch=1))
    assert (cursor.fetch_offset, cursor.fetch_epoch) == (8, 5), "an epoch never goes back"
    assert [chunk.arrival for chunk in cursor.chunks] == [0, 1]


@pytest.mark.parametrize(("isolation", "end_offset"), [("read_committed", 40), ("read_uncommitted", 100)])
def test_the_end_of_a_log_is_where_this_reader_may_read(isolation: str, end_offset: int) -> None:
    reader = Reader(isolation_level=isolation)
    (cursor,) = reader.cursors.all()
    reader.answer(last_stable_offset=40)
    assert cursor.end_offset == end_offset
    assert not cursor.chunks, "nothing has come"
    call = reader.call()
    later = FetchablePartitionResponse(partition_index=0, high_watermark=101, last_stable_offset=41)
    reader.planner.answered(call, FetchResponse(responses=[_topic(later)]), 0)
    assert cursor.end_offset == end_offset + 1, "it grows"


@pytest.mark.parametrize(
    ("epoch", "stage"), [(-1, Stage.READY), (0, Stage.AWAITS_VALIDATION), (3, Stage.AWAITS_VALIDATION)]
)
def test_a_log_that_has_diverged_is_looked_at_first(epoch: int, stage: Stage) -> None:
    reader = Reader()
    (cursor,) = reader.cursors.all()
    reader.answer(batch(0), diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=0))
    assert cursor.stage is stage
    assert len(cursor.chunks) == (stage is Stage.READY)


@pytest.mark.parametrize("replica", [0, 3])
def test_a_replica_that_is_named_is_read_from_for_a_while(replica: int) -> None:
    reader = Reader()
    reader.metadata.brokers[0] = reader.metadata.brokers[1]._replace(node_id=0)
    (cursor,) = reader.cursors.all()
    reader.answer(now_ms=1000, preferred_read_replica=replica)
    assert cursor.preferred_replica == replica
    assert reader.planner.node_for(cursor, 1000 + PREFERRED_REPLICA_MS - 1) == replica
    assert reader.planner.node_for(cursor, 1000 + PREFERRED_REPLICA_MS) == 1
    assert cursor.preferred_replica < 0, "the leader is asked anew"


def test_an_answer_for_a_cursor_that_waits_for_something_else_is_dropped() -> None:
    reader = Reader()
    (cursor,) = reader.cursors.all()
    call = reader.call()
    cursor.stage = Stage.AWAITS_VALIDATION
    reader.planner.answered(call, response(batch(0)), 0)
    assert not cursor.chunks and cursor.fetch_offset == 0


def test_whole_answers_that_fail_are_followed_by_a_pause() -> None:
    reader = Reader()
    (cursor,) = reader.cursors.all()
    call = reader.call()
    reader.planner.answered(call, FetchResponse(error_code=E.UNKNOWN_SERVER_ERROR), 1000)
    assert cursor.not_before_ms == 1000 + BACKOFF_MS and cursor.in_flight_to == NOBODY
    assert reader.planner.plan(1000 + BACKOFF_MS - 1) == []
    call = reader.call(1000 + BACKOFF_MS)
    cursor.preferred_replica = 3
    reader.planner.failed(call, 2000)
    assert cursor.not_before_ms == 2000 + BACKOFF_MS and cursor.preferred_replica < 0
    assert reader.call(2000 + BACKOFF_MS).request.session_epoch == 0, "the session is begun anew"


def test_an_error_of_a_partition_is_followed_by_a_pause_and_a_success_forgets_it() -> None:
    reader = Reader()
    (cursor,) = reader.cursors.all()
    reader.answer(now_ms=1000, error_code=E.TOPIC_AUTHORIZATION_FAILED)
    assert cursor.not_before_ms == 1000 + BACKOFF_MS
    assert cursor.error is not None and "t-0: fetching from 0" in str(cursor.error)
    assert cursor.end_offset == -1, "an error says nothing of the end"
    reader.answer(batch(0), now_ms=1000 + BACKOFF_MS)
    assert cursor.error is None


def test_what_a_follower_says_of_offsets_does_not_hold_for_the_leader() -> None:
    reader = Reader()
    (cursor,) = reader.cursors.all()
    reader.answer(preferred_read_replica=3)
    call = reader.call()
    assert call.node_id == 3
    reader.planner.answered(call, response(error_code=E.OFFSET_OUT_OF_RANGE), 0)
    assert cursor.stage is Stage.READY and cursor.preferred_replica < 0
    assert reader.call(BACKOFF_MS).node_id == 1


@pytest.mark.parametrize(
    ("position", "is_reset"), [(3, True), (4, True), (2, False)], ids=["all read", "beyond", "something left"]
)
def test_a_reset_waits_until_what_was_fetched_is_read(position: int, is_reset: bool) -> None:
    reader = Reader(auto_offset_reset="latest")
    (cursor,) = reader.cursors.all()
    reader.answer(batch(0))
    cursor.position = position
    reader.answer(error_code=E.OFFSET_OUT_OF_RANGE)
    assert cursor.stage is (Stage.AWAITS_RESET if is_reset else Stage.READY)
    assert cursor.reset_timestamp == (LATEST if is_reset else 0)


def test_without_a_reset_the_application_is_told_what_is_out_of_range() -> None:
    reader = Reader(auto_offset_reset="none")
    (cursor,) = reader.cursors.all()
    cursor.seek(7)
    reader.answer(error_code=E.OFFSET_OUT_OF_RANGE)
    assert cursor.stage is Stage.HALTED and isinstance(cursor.error, OffsetOutOfRangeError)
    assert (cursor.error.offset, cursor.error.topic_partition) == (7, FIRST) and "offset 7 is not" in str(cursor.error)


@pytest.mark.parametrize(("size", "is_too_large"), [(40, False), (41, True)])
def test_a_batch_that_never_comes_whole_is_larger_than_was_asked_for(size: int, is_too_large: bool) -> None:
    reader = Reader(max_partition_fetch_bytes=40)
    (cursor,) = reader.cursors.all()
    reader.answer(batch(0)[:size])
    assert (cursor.stage is Stage.HALTED) is is_too_large
    assert isinstance(cursor.error, PartitionError) is is_too_large
    if cursor.error is not None:
        assert cursor.error.code is E.MESSAGE_TOO_LARGE and "max.partition.fetch.bytes (40)" in str(cursor.error)
        assert not cursor.chunks


def test_the_end_of_a_partition_that_an_answer_leaves_out_is_that_of_the_one_before() -> None:
    reader = Reader()
    reader.answer()
    reader.cursors.replace([])
    reader.cursors.replace([FIRST])
    (cursor,) = reader.cursors.all()
    cursor.seek(0)
    call = reader.call()
    reader.planner.answered(call, FetchResponse(responses=[]), 0)
    assert cursor.end_offset == 100


def test_partitions_are_found_by_the_ids_that_were_asked_for() -> None:
    reader = Reader((FIRST, SECOND))
    first, second = reader.cursors.all()
    calls = {call.node_id: call for call in reader.planner.plan(0)}
    assert reader.planner.brokers_in_flight == 2
    answer = response(batch(0))
    answer.responses[0].partitions.append(FetchablePartitionResponse(partition_index=1, high_watermark=8))
    reader.planner.answered(calls[1], answer, 0)
    assert first.end_offset == 100 and second.end_offset == -1, "that broker was not asked about the other one"
    assert second.in_flight_to == 2 and reader.planner.brokers_in_flight == 1


def test_the_end_of_an_empty_log_is_not_forgotten_when_another_broker_says_nothing_of_it() -> None:
    reader = Reader()
    (cursor,) = reader.cursors.all()
    reader.planner.answered(reader.call(), FetchResponse(responses=[]), 0)
    assert cursor.end_offset == -1, "nobody has said anything"
    empty = FetchablePartitionResponse(partition_index=0, high_watermark=0)
    reader.planner.answered(reader.call(), FetchResponse(responses=[_topic(empty)]), 0)
    assert cursor.end_offset == 0
    reader.metadata.learn_leader("t", 0, PartitionLeader(2, 1))
    call = reader.call()
    assert call.node_id == 2
    reader.planner.answered(call, FetchResponse(responses=[]), 0)
    assert cursor.end_offset == 0
