"""What a broker shows of a partition, byte for byte: for comparison with its files."""

from __future__ import annotations

import struct

from ottla.wire.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.raw_client import RawClient

_FETCH_BYTES = 1 << 20
_HEADER_SIZE = 61


class FetchedPart:
    """One answer about one partition."""

    def __init__(self, error_code: int, high_watermark: int, data: bytes) -> None:
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.data = data


def fetch(client: RawClient, topic: str, partition: int, offset: int, max_bytes: int = _FETCH_BYTES) -> FetchedPart:
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)],
            )
        ],
    )
    response = client.call(request, 11)
    assert isinstance(response, FetchResponse) and response.error_code == 0
    part = response.responses[0].partitions[0]
    return FetchedPart(part.error_code, part.high_watermark, bytes(part.records or b""))


def whole_batches(data: bytes) -> bytes:
    """`data` without the batch that a fetch has cut at its end."""
    position = 0
    while position + _HEADER_SIZE <= len(data):
        size = _size_at(data, position)
        if size < _HEADER_SIZE or position + size > len(data):
            break
        position += size
    return data[:position]


def end_offset_of(data: bytes) -> int:
    """The offset after the last of some whole batches."""
    position = last = 0
    while position < len(data):
        last, position = position, position + _size_at(data, position)
    base_offset, last_delta = struct.unpack_from(">q15xi", data, last)
    return int(base_offset + last_delta + 1)


def _size_at(data: bytes, position: int) -> int:
    return 12 + int.from_bytes(data[position + 8 : position + 12], "big", signed=True)


def fetch_all(client: RawClient, topic: str, partition: int, start_offset: int = 0) -> bytes:
    """All the batches a consumer would get, up to the high watermark."""
    parts: list[bytes] = []
    offset = start_offset
    while True:
        part = fetch(client, topic, partition, offset)
        assert part.error_code == 0, f"{topic}-{partition} at {offset}: error {part.error_code}"
        if offset >= part.high_watermark:
            return b"".join(parts)
        found = whole_batches(part.data)
        assert found, f"{topic}-{partition} gave nothing at {offset}, below {part.high_watermark}"
        parts.append(found)
        offset = end_offset_of(found)


def offset_for_time(client: RawClient, topic: str, partition: int, timestamp: int) -> tuple[int, int] | None:
    """(timestamp, offset) as ListOffsets answers."""
    asked = ListOffsetsTopic(
        name=topic, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=timestamp)]
    )
    response = client.call(ListOffsetsRequest(replica_id=-1, topics=[asked]), 7)
    assert isinstance(response, ListOffsetsResponse)
    found = response.topics[0].partitions[0]
    assert found.error_code == 0, f"{topic}-{partition} at time {timestamp}: error {found.error_code}"
    return None if found.offset < 0 else (found.timestamp, found.offset)


def create_topic(client: RawClient, name: str, partitions: int, configs: dict[str, str]) -> None:
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    response = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    assert isinstance(response, CreateTopicsResponse) and response.topics[0].error_code == 0, response


def produce(client: RawClient, topic: str, batches: dict[int, bytes], acks: int) -> dict[int, tuple[int, int]]:
    """Sends one batch per partition; (error code, base offset) of each."""
    data = [PartitionProduceData(index=partition, records=batch) for partition, batch in batches.items()]
    request = ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[TopicProduceData(name=topic, partition_data=data)])
    response = client.call(request, 9)
    assert isinstance(response, ProduceResponse)
    return {part.index: (part.error_code, part.base_offset) for part in response.responses[0].partition_responses}
