"""Produce requests of one batch, and what replies say.

The declared codec writes an example of a request, and of the reply that all was stored, once for each partition. After
that only what differs is put in, or read: it takes a quarter of the time.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.client.core.metadata import BrokerAddress, PartitionLeader
from ottla.client.core.producer.options import ProducerSettings
from ottla.client.core.producer.results import PartitionResult
from ottla.wire.api_keys import ApiKey
from ottla.wire.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.wire.header import encode_request_frame, encode_response_frame, read_response_header
from ottla.wire.primitives import write_unsigned_varint

_FRAME_START = struct.Struct(">ihhi")
_INT32 = struct.Struct(">i")
_OFFSET_AND_TIME = struct.Struct(">qq")

_FRAME_SIZE_BYTES = 4
_SOME_OFFSET = int.from_bytes(b"\x01\x02\x03\x04\x05\x06\x07\x08", "big")
_OFFSETS_BYTES = 3 * 8
"""The offset of the first record, the time of the append, the start of the log."""
_END_BYTES = 4 + 1
"""For how long the broker has held the reply back, and no tags."""


class _Example(NamedTuple):
    request_head: bytes
    """From behind the correlation id up to the length of the records."""
    request_tail: bytes
    is_flexible: bool
    reply_head: bytes
    """From behind the correlation id up to the first offset, so it says that there was no error."""
    reply_tail: bytes
    """From behind the offsets up to the end, which differs."""


class ProduceFrames:
    def __init__(self, settings: ProducerSettings, client_id: str | None) -> None:
        self._settings = settings
        self._client_id = client_id
        self._examples: dict[tuple[TopicPartition, int], _Example] = {}

    def request(
        self, place: TopicPartition, payload: bytes | memoryview, version: int, correlation_id: int
    ) -> list[bytes | memoryview]:
        """The frame of a request with this one batch, in parts: the batch is not copied."""
        example = self._examples.get((place, version)) or self._learn(place, version)
        length = len(payload)
        length_bytes = write_unsigned_varint(length + 1) if example.is_flexible else _INT32.pack(length)
        size = (
            _FRAME_START.size
            - _FRAME_SIZE_BYTES
            + len(example.request_head)
            + len(length_bytes)
            + length
            + len(example.request_tail)
        )
        start = _FRAME_START.pack(size, ApiKey.PRODUCE, version, correlation_id)
        head = b"".join((start, example.request_head, length_bytes))
        return [head, payload, example.request_tail] if example.request_tail else [head, payload]

    def stored(self, frame: memoryview, place: TopicPartition, version: int) -> PartitionResult | None:
        """What the reply to such a request says if it is the usual one: stored, and nothing else; otherwise None."""
        example = self._examples[place, version]
        reply = bytes(frame)
        offsets_at = _INT32.size + len(example.reply_head)
        tail_at = offsets_at + _OFFSETS_BYTES
        if (
            not example.is_flexible
            or len(reply) != tail_at + len(example.reply_tail) + _END_BYTES
            or reply[-1]
            or reply[_INT32.size : offsets_at] != example.reply_head
            or reply[tail_at:-_END_BYTES] != example.reply_tail
        ):
            return None
        base_offset, log_append_time_ms = _OFFSET_AND_TIME.unpack_from(reply, offsets_at)
        return PartitionResult(0, base_offset, log_append_time_ms)

    def _learn(self, place: TopicPartition, version: int) -> _Example:
        settings = self._settings
        topic, partition = place
        request = ProduceRequest(
            transactional_id=settings.transactional_id,
            acks=settings.acks,
            timeout_ms=settings.client.request_timeout_ms,
            topic_data=[
                TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=b"")])
            ],
        )
        stored = PartitionProduceResponse(index=partition, base_offset=_SOME_OFFSET)
        response = ProduceResponse(responses=[TopicProduceResponse(name=topic, partition_responses=[stored])])
        whole = encode_request_frame(request, version, 0, self._client_id)[_FRAME_START.size :]
        reply = encode_response_frame(response, version, 0)[_FRAME_SIZE_BYTES:]
        offsets_at = reply.index(_SOME_OFFSET.to_bytes(8, "big"))
        is_flexible = version in ProduceRequest.FLEXIBLE_VERSIONS
        # The records are last: behind them there are only tags, of the partition, the topic and the request, all empty.
        tail = whole[-3:] if is_flexible else b""
        length_size = 1 if is_flexible else _INT32.size
        example = self._examples[place, version] = _Example(
            whole[: len(whole) - len(tail) - length_size],
            tail,
            is_flexible,
            reply[_INT32.size : offsets_at],
            reply[offsets_at + _OFFSETS_BYTES : -_END_BYTES],
        )
        return example


def read_reply(frame: memoryview, version: int) -> tuple[dict[TopicPartition, PartitionResult], list[BrokerAddress]]:
    """What any reply says of each partition, and where the leaders are that it names."""
    _, position = read_response_header(frame, ApiKey.PRODUCE, version)
    response = ProduceResponse.decode(frame, version, position)[0]
    results = {}
    for topic in response.responses:
        for entry in topic.partition_responses:
            leader = entry.current_leader
            results[TopicPartition(topic.name, entry.index)] = PartitionResult(
                entry.error_code,
                entry.base_offset,
                entry.log_append_time_ms,
                entry.error_message,
                PartitionLeader(leader.leader_id, leader.leader_epoch) if leader.leader_id >= 0 else None,
                tuple((record.batch_index, record.batch_index_error_message) for record in entry.record_errors),
            )
    endpoints = [BrokerAddress(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints]
    return results, endpoints
