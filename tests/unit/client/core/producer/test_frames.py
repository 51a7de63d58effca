"""Requests and replies made from examples are those that the declared codec writes, and reads."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.types import TopicPartition
from ottla.client.core.metadata import BrokerAddress, PartitionLeader
from ottla.client.core.producer.frames import ProduceFrames, read_reply
from ottla.client.core.producer.options import ProducerSettings
from ottla.client.core.producer.results import PartitionResult
from ottla.wire.apis.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.wire.header import encode_request_frame, encode_response_frame

TOPICS = st.text("abc.-_019", min_size=1, max_size=200)
OFFSETS = st.integers(-1, 2**63 - 1)
MODERATELY = settings(max_examples=60, deadline=None, derandomize=True)


def frames_of(
    transactional_id: str | None = None, client_id: str | None = "me"
) -> tuple[ProduceFrames, ProducerSettings]:
    given_settings: dict[str, object] = {"bootstrap.servers": "b:1"}
    if transactional_id is not None:
        given_settings["transactional.id"] = transactional_id
    parsed = ProducerSettings.parse(given_settings)
    return ProduceFrames(parsed, client_id), parsed


@MODERATELY
@given(
    version=st.integers(3, 11),
    topic=TOPICS,
    partition=st.integers(0, 2**31 - 1),
    transactional_id=st.sampled_from([None, "t", "long" * 50]),
    client_id=st.sampled_from([None, "", "ottla-producer"]),
    sizes=st.lists(st.integers(0, 40_000), min_size=1, max_size=4),
    correlation_id=st.integers(0, 2**31 - 1),
)
def test_requests_are_those_of_the_declared_codec(
    version: int,
    topic: str,
    partition: int,
    transactional_id: str | None,
    client_id: str | None,
    sizes: list[int],
    correlation_id: int,
) -> None:
    frames, parsed = frames_of(transactional_id, client_id)
    for size in sizes:
        payload = memoryview(bytes(range(256)) * (size // 256 + 1))[:size]
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=parsed.client.request_timeout_ms,
            topic_data=[
                TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=payload)])
            ],
        )
        parts = frames.request(TopicPartition(topic, partition), payload, version, correlation_id)
        assert parts[1] is payload
        assert b"".join(parts) == encode_request_frame(request, version, correlation_id, client_id)


def reply(
    version: int, topic: str, entry: PartitionProduceResponse, *more: TopicProduceResponse, **fields: Any
) -> memoryview:
    responses = [TopicProduceResponse(name=topic, partition_responses=[entry]), *more]
    return memoryview(encode_response_frame(ProduceResponse(responses=responses, **fields), version, 77))[4:]


@MODERATELY
@given(
    version=st.integers(9, 11),
    topic=TOPICS,
    base_offset=OFFSETS,
    time_ms=OFFSETS,
    start=OFFSETS,
    throttle_ms=st.integers(0, 2**31 - 1),
)
def test_the_usual_reply_is_read_at_once(
    version: int, topic: str, base_offset: int, time_ms: int, start: int, throttle_ms: int
) -> None:
    frames, _ = frames_of()
    place = TopicPartition(topic, 3)
    frames.request(place, b"", version, 0)
    entry = PartitionProduceResponse(
        index=3, base_offset=base_offset, log_append_time_ms=time_ms, log_start_offset=start
    )
    frame = reply(version, topic, entry, throttle_time_ms=throttle_ms)
    assert frames.stored(frame, place, version) == PartitionResult(0, base_offset, time_ms)


@pytest.mark.parametrize(
    "frame",
    [
        reply(11, "t", PartitionProduceResponse(index=3, error_code=3)),
        reply(11, "t", PartitionProduceResponse(index=4)),
        reply(11, "u", PartitionProduceResponse(index=3)),
        reply(11, "t", PartitionProduceResponse(index=3, error_message="")),
        reply(11, "t", PartitionProduceResponse(index=3, record_errors=[BatchIndexAndErrorMessage()])),
        reply(11, "t", PartitionProduceResponse(index=3, current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=2))),
        reply(11, "t", PartitionProduceResponse(index=3), TopicProduceResponse(name="u")),
        reply(11, "t", PartitionProduceResponse(index=3), node_endpoints=[NodeEndpoint(node_id=1, host="h", port=2)]),
        reply(11, "t", PartitionProduceResponse(index=3))[:-1],
        reply(11, "t", PartitionProduceResponse(index=3))[:3],
        memoryview(b""),
    ],
)
def test_any_other_reply_is_left_to_the_declared_codec(frame: memoryview) -> None:
    frames, _ = frames_of()
    place = TopicPartition("t", 3)
    frames.request(place, b"", 11, 0)
    assert frames.stored(frame, place, 11) is None


def test_replies_of_old_versions_are_left_to_the_declared_codec() -> None:
    frames, _ = frames_of()
    place = TopicPartition("t", 3)
    frames.request(place, b"", 8, 0)
    assert frames.stored(reply(8, "t", PartitionProduceResponse(index=3)), place, 8) is None


def test_a_reply_of_any_kind_is_read_whole() -> None:
    refused = PartitionProduceResponse(
        index=3,
        error_code=87,
        base_offset=-1,
        error_message="no",
        record_errors=[BatchIndexAndErrorMessage(batch_index=2, batch_index_error_message="why")],
        current_leader=LeaderIdAndEpoch(leader_id=0, leader_epoch=9),
    )
    stored = TopicProduceResponse(
        name="u", partition_responses=[PartitionProduceResponse(index=0, base_offset=5, log_append_time_ms=6)]
    )
    endpoint = NodeEndpoint(node_id=4, host="h", port=9, rack="r")
    frame = reply(11, "t", refused, stored, node_endpoints=[endpoint])
    assert read_reply(frame, 11) == (
        {
            TopicPartition("t", 3): PartitionResult(87, -1, -1, "no", PartitionLeader(0, 9), ((2, "why"),)),
            TopicPartition("u", 0): PartitionResult(0, 5, 6, None, None, ()),
        },
        [BrokerAddress(4, "h", 9, "r")],
    )
