"""Short forms of requests that many tests send with the raw client."""

from __future__ import annotations

from ottla.base.types import Uuid
from ottla.records.builder import NewRecord, build_batch
from ottla.wire.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.apis.fetch import FetchablePartitionResponse as FetchedPartition
from ottla.wire.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.raw_client import RawClient

T0 = 1_700_000_000_000


def batch(*values: bytes, timestamps: list[int] | None = None, **fields: object) -> bytearray:
    times = timestamps or [T0 + i for i in range(len(values))]
    records = [NewRecord(None, value, (), at) for value, at in zip(values, times, strict=True)]
    return bytearray(build_batch(records, **fields))  # type: ignore[arg-type]


def create_topic(client: RawClient, name: str, partitions: int = 1, **configs: str) -> Uuid:
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()],
    )
    response = client.call(CreateTopicsRequest(topics=[topic]), 7)
    assert isinstance(response, CreateTopicsResponse)
    assert response.topics[0].error_code == 0, response
    return response.topics[0].topic_id


def produce_request(topic: str, records: bytes, *, partition: int = 0, acks: int = -1) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=5000,
        topic_data=[
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=records)])
        ],
    )


def produce(client: RawClient, topic: str, records: bytes, *, partition: int = 0) -> PartitionProduceResponse:
    response = client.call(produce_request(topic, records, partition=partition), 9)
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0]


def fetch_request(
    topics: dict[str | Uuid, list[FetchPartition]],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50_000_000,
    session: tuple[int, int] = (0, -1),
    isolation_level: int = 0,
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            FetchTopic(topic=name, partitions=parts)
            if isinstance(name, str)
            else FetchTopic(topic_id=name, partitions=parts)
            for name, parts in topics.items()
        ],
    )


def fetch_one(client: RawClient, topic: str, offset: int, **options: int) -> FetchedPartition:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=10_000_000)
    response = client.call(fetch_request({topic: [wanted]}, **options), 11)  # type: ignore[arg-type]
    assert isinstance(response, FetchResponse) and response.error_code == 0
    return response.responses[0].partitions[0]


def list_offset(
    client: RawClient, topic: str, timestamp: int, *, version: int = 7, isolation_level: int = 0, leader_epoch: int = -1
) -> ListOffsetsPartitionResponse:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=leader_epoch)
                ],
            )
        ],
    )
    response = client.call(request, version)
    assert isinstance(response, ListOffsetsResponse)
    return response.topics[0].partitions[0]
