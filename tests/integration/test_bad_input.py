"""Hostile and broken input: a clear error or a closed connection, and nobody else notices."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.base.errors import ErrorCode
from ottla.records.builder import NewRecord, build_batch
from ottla.records.compression import Codec
from ottla.records.control import end_transaction_marker
from ottla.wire.api_keys import ApiKey
from ottla.wire.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.apis.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.broker_process import BrokerProcess
from tests.raw_client import ConnectionClosedError, RawClient


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.port) as raw:
        yield raw


@pytest.fixture
def bystander(broker: BrokerProcess) -> Iterator[RawClient]:
    """Another client of the same broker: whatever the first one does, this one is served."""
    with RawClient(broker.port) as raw:
        yield raw
        response = raw.call(MetadataRequest(topics=[]), 12)
        assert isinstance(response, MetadataResponse) and response.brokers


def batch(*values: bytes, **fields: object) -> bytearray:
    records = [NewRecord(None, value, (), 1_700_000_000_000 + i) for i, value in enumerate(values or (b"v",))]
    return bytearray(build_batch(records, **fields))  # type: ignore[arg-type]


def produce(client: RawClient, topic: str, records: bytes | None, *, version: int = 9, acks: int = 1) -> int:
    request = ProduceRequest(
        acks=acks,
        timeout_ms=5000,
        topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])],
    )
    response = client.call(request, version)
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0].error_code


def make_topic(client: RawClient, name: str, **configs: str) -> None:
    topic = CreatableTopic(
        name=name,
        num_partitions=1,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()],
    )
    response = client.call(CreateTopicsRequest(topics=[topic]), 7)
    assert response.topics[0].error_code == 0, response  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        struct.pack(">i", 2) + b"\0\0",
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, ApiKey.METADATA, 99, 1, -1),
        struct.pack(">ihhih", 10, ApiKey.METADATA, -1, 1, -1),
        struct.pack(">ihhih", 10, ApiKey.PRODUCE, 0, 1, -1),
        struct.pack(">ihhih", 10, ApiKey.METADATA, 1, 1, 500),
        struct.pack(">ihhihi", 14, ApiKey.METADATA, 1, 1, -1, 2**31 - 1),
        struct.pack(">ihhihi", 14, ApiKey.METADATA, 1, 1, -1, -5),
        struct.pack(">ihhih", 10, ApiKey.METADATA, 1, 1, -1),
        struct.pack(">ihhihB", 11, ApiKey.FETCH, 12, 1, -1, 255),
    ],
)
def test_what_is_no_request_closes_the_connection(client: RawClient, bystander: RawClient, frame: bytes) -> None:
    client.send_bytes(frame)
    assert client.is_closed_by_broker()


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(client: RawClient) -> None:
    client.send_bytes(struct.pack(">ihhihB", 11, ApiKey.API_VERSIONS, 77, 5, -1, 0))
    frame = client.receive_frame()
    assert struct.unpack_from(">ihi", frame) == (5, ErrorCode.UNSUPPORTED_VERSION, 1)
    assert struct.unpack_from(">hhh", frame, 10) == (ApiKey.API_VERSIONS, 0, 4)
    assert isinstance(client.call(ApiVersionsRequest(), 0), ApiVersionsResponse)


def test_api_versions_refuses_a_bad_software_name(client: RawClient) -> None:
    response = client.call(ApiVersionsRequest(client_software_name="a b", client_software_version="1"), 3)
    assert isinstance(response, ApiVersionsResponse) and response.error_code == ErrorCode.INVALID_REQUEST


def flipped(data: bytearray, position: int) -> bytearray:
    data[position] ^= 1
    return data


def with_field(data: bytearray, form: str, position: int, value: int) -> bytearray:
    struct.pack_into(form, data, position, value)
    return data


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (flipped(batch(b"value"), 66), ErrorCode.CORRUPT_MESSAGE),
        (batch()[:-1], ErrorCode.CORRUPT_MESSAGE),
        (batch()[:30], ErrorCode.CORRUPT_MESSAGE),
        (with_field(batch(), ">i", 8, 2**31 - 1), ErrorCode.CORRUPT_MESSAGE),
        (with_field(batch(), ">i", 8, -1), ErrorCode.CORRUPT_MESSAGE),
        (with_field(batch(), ">b", 16, 1), ErrorCode.INVALID_RECORD),
        (with_field(batch(), ">q", 0, 5), ErrorCode.INVALID_RECORD),
        (batch() + batch(), ErrorCode.INVALID_RECORD),
        (batch(control=True), ErrorCode.INVALID_RECORD),
        (
            bytearray(end_transaction_marker(1, 0, True, 0, 0)),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
    ],
)
def test_bad_batches_are_refused_and_nothing_is_written(
    client: RawClient, bystander: RawClient, new_topic: str, records: bytes | None, code: ErrorCode
) -> None:
    make_topic(client, new_topic)
    assert produce(client, new_topic, records) == code
    assert produce(client, new_topic, batch()) == 0
    fetched = client.call(
        FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            topics=[FetchTopic(topic=new_topic, partitions=[FetchPartition(partition=0, fetch_offset=0)])],
        ),
        4,
    )
    assert fetched.responses[0].partitions[0].high_watermark == 1  # type: ignore[attr-defined]


def test_oversize_batches(client: RawClient, new_topic: str) -> None:
    make_topic(client, new_topic, max_message_bytes="1000")
    assert produce(client, new_topic, batch(b"x" * 1000)) == ErrorCode.MESSAGE_TOO_LARGE
    assert produce(client, new_topic, batch(b"x" * 900)) == 0


def test_a_keyless_record_on_a_compacted_topic_is_named(client: RawClient, new_topic: str) -> None:
    make_topic(client, new_topic, cleanup_policy="compact")
    request = ProduceRequest(
        acks=1,
        topic_data=[TopicProduceData(name=new_topic, partition_data=[PartitionProduceData(index=0, records=batch())])],
    )
    response = client.call(request, 9)
    assert isinstance(response, ProduceResponse)
    partition = response.responses[0].partition_responses[0]
    assert partition.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in partition.record_errors] == [0]


def test_zstd_needs_produce_version_7(client: RawClient, new_topic: str) -> None:
    make_topic(client, new_topic)
    assert produce(client, new_topic, batch(codec=Codec.ZSTD), version=6) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produce(client, new_topic, batch(codec=Codec.ZSTD), version=7) == 0


def test_a_bomb_on_a_topic_that_must_be_opened_is_refused(
    client: RawClient, bystander: RawClient, broker: BrokerProcess, new_topic: str
) -> None:
    make_topic(client, new_topic, cleanup_policy="compact")
    bomb = batch(bytes(300_000_000), codec=Codec.ZSTD)
    assert len(bomb) < 1_000_000
    assert produce(client, new_topic, bomb) in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
    status = Path(f"/proc/{broker.pid}/status").read_text()
    high_water_kb = int(status.split("VmHWM:")[1].split()[0])
    assert high_water_kb < 300_000


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_impossible_acks(client: RawClient, new_topic: str, acks: int) -> None:
    make_topic(client, new_topic)
    assert produce(client, new_topic, batch(), acks=acks) == ErrorCode.INVALID_REQUIRED_ACKS


def test_an_error_with_acks_0_closes_the_connection(client: RawClient, bystander: RawClient) -> None:
    with pytest.raises(ConnectionClosedError):
        produce(client, "no-such-topic", batch(), acks=0)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (CreatableTopic(name="", num_partitions=1, replication_factor=1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic(name="../../x", num_partitions=1, replication_factor=1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic(name="a\0b", num_partitions=1, replication_factor=1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic(name="x" * 250, num_partitions=1, replication_factor=1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic(name="p0", num_partitions=0, replication_factor=1), ErrorCode.INVALID_PARTITIONS),
        (CreatableTopic(name="p-", num_partitions=-2, replication_factor=1), ErrorCode.INVALID_PARTITIONS),
        (CreatableTopic(name="pmax", num_partitions=2**31 - 1, replication_factor=1), ErrorCode.INVALID_PARTITIONS),
        (CreatableTopic(name="r2", num_partitions=1, replication_factor=2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (CreatableTopic(name="r0", num_partitions=1, replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (
            CreatableTopic(
                name="c1",
                num_partitions=1,
                replication_factor=1,
                configs=[CreatableTopicConfig(name="no.such.setting", value="1")],
            ),
            ErrorCode.INVALID_CONFIG,
        ),
        (
            CreatableTopic(
                name="c2",
                num_partitions=1,
                replication_factor=1,
                configs=[CreatableTopicConfig(name="segment.bytes", value="many")],
            ),
            ErrorCode.INVALID_CONFIG,
        ),
    ],
)
def test_topics_that_cannot_be(client: RawClient, bystander: RawClient, topic: CreatableTopic, code: ErrorCode) -> None:
    response = client.call(CreateTopicsRequest(topics=[topic]), 7)
    assert response.topics[0].error_code == code, response  # type: ignore[attr-defined]
    assert response.topics[0].error_message  # type: ignore[attr-defined]


def test_metadata_for_an_illegal_name_creates_nothing(client: RawClient) -> None:
    response = client.call(MetadataRequest(topics=[MetadataRequestTopic(name="bad name")]), 9)
    assert isinstance(response, MetadataResponse)
    assert response.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
