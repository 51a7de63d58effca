"""Each API the broker advertises answers in each advertised version, without errors and with nothing left to read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import NIL_UUID, Uuid
from ottla.records.batch import read_header
from ottla.records.builder import NewRecord, build_batch
from ottla.records.reader import read_records
from ottla.wire.api_keys import ApiKey
from ottla.wire.apis import alter_configs, describe_producers, describe_topic_partitions, incremental_alter_configs
from ottla.wire.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.apis.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.wire.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.apis.describe_cluster import DescribeClusterRequest
from ottla.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.apis.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.wire.apis.elect_leaders import ElectLeadersRequest
from ottla.wire.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.apis.find_coordinator import FindCoordinatorRequest
from ottla.wire.apis.init_producer_id import InitProducerIdRequest
from ottla.wire.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.apis.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.wire.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.wire.message import Request, Response, Struct
from tests.broker_process import BrokerProcess
from tests.interop.coordinator_requests import COORDINATED, LOADING, CoordinatorType
from tests.interop.peers.peer import PATIENCE_S
from tests.raw_client import ConnectionClosedError, RawClient

pytestmark = pytest.mark.interop

TOPIC_RESOURCE = 2
RECORDS = [NewRecord(b"%d" % i, b"value", [("h", b"x")], 1_700_000_000_000 + i) for i in range(3)]
FIRST_WITH_TOPIC_IDS = 13
ADVERTISED_BUT_CLOSED = {(ApiKey.PRODUCE, version) for version in (0, 1, 2)}
"""librdkafka compresses only for brokers that list Produce version 0, which nobody sends any more."""


class Stage:
    """A topic with three records, and a client to ask about it."""

    def __init__(self, client: RawClient, topic: str) -> None:
        self.client = client
        self.topic = topic
        self.topic_id = self.create(topic)
        self.client.call(self.produce(0), 9)
        self.broker_id = self._metadata().brokers[0].node_id

    def create(self, name: str) -> Uuid:
        response = self.client.call(create_topics(name), 7)
        assert isinstance(response, CreateTopicsResponse)
        assert response.topics[0].error_code == 0, response
        return response.topics[0].topic_id

    def _metadata(self) -> MetadataResponse:
        response = self.client.call(MetadataRequest(topics=[]), 12)
        assert isinstance(response, MetadataResponse)
        return response

    def produce(self, _version: int) -> ProduceRequest:
        data = PartitionProduceData(index=0, records=build_batch(RECORDS))
        return ProduceRequest(
            acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name=self.topic, partition_data=[data])]
        )

    def fetch(self, version: int) -> FetchRequest:
        topic = FetchTopic(partitions=[FetchPartition(partition=0, partition_max_bytes=1_000_000)])
        if version < FIRST_WITH_TOPIC_IDS:
            topic.topic = self.topic
        else:
            topic.topic_id = self.topic_id
        return FetchRequest(max_wait_ms=0, min_bytes=1, session_epoch=0, topics=[topic])

    def delete_topic(self, version: int) -> DeleteTopicsRequest:
        name = f"{self.topic}-doomed-{version}"
        topic_id = self.create(name)
        # The request names the topics once, either way: version 6 asks by id.
        return DeleteTopicsRequest(
            topics=[DeleteTopicState(name=None, topic_id=topic_id)] if version >= 6 else [],
            topic_names=[] if version >= 6 else [name],
            timeout_ms=5000,
        )


def create_topics(name: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)])


def metadata(stage: Stage, version: int) -> MetadataRequest:
    by_name = MetadataRequestTopic(name=stage.topic)
    if version < 12:
        return MetadataRequest(topics=[by_name])
    return MetadataRequest(topics=[by_name, MetadataRequestTopic(name=None, topic_id=stage.topic_id)])


def list_offsets(stage: Stage, version: int) -> ListOffsetsRequest:
    partition = ListOffsetsPartition(partition_index=0, timestamp=RECORDS[1].timestamp_ms)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=stage.topic, partitions=[partition])])


def alter_configs_request(stage: Stage, version: int) -> Request:
    api = alter_configs
    config = api.AlterableConfig(name="retention.ms", value="-1")
    resource = api.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=stage.topic, configs=[config])
    return api.AlterConfigsRequest(resources=[resource])


def incremental_alter_configs_request(stage: Stage, version: int) -> Request:
    api = incremental_alter_configs
    config = api.AlterableConfig(name="segment.bytes", config_operation=0, value=str(1_000_000 + version))
    resource = api.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=stage.topic, configs=[config])
    return api.IncrementalAlterConfigsRequest(resources=[resource])


def describe_configs(stage: Stage, version: int) -> Request:
    topic = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=stage.topic, configuration_keys=None)
    broker = DescribeConfigsResource(resource_type=4, resource_name=str(stage.broker_id), configuration_keys=None)
    return DescribeConfigsRequest(resources=[topic, broker], include_synonyms=True, include_documentation=version >= 3)


def offset_for_leader_epoch(stage: Stage, version: int) -> Request:
    partition = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=stage.topic, partitions=[partition])])


def delete_records(stage: Stage, version: int) -> Request:
    partition = DeleteRecordsPartition(partition_index=0, offset=version)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=stage.topic, partitions=[partition])], timeout_ms=5000)


def alter_replica_log_dirs(stage: Stage, version: int) -> Request:
    """Asks for the directory the partition is in already."""
    described: Any = stage.client.call(
        DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=stage.topic, partitions=[0])]), 4
    )
    (path,) = [result.log_dir for result in described.results if result.topics]
    topic = AlterReplicaLogDirTopic(name=stage.topic, partitions=[0])
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])])


REQUESTS: dict[int, Callable[[Stage, int], Request]] = {
    ApiKey.PRODUCE: Stage.produce,
    ApiKey.FETCH: Stage.fetch,
    ApiKey.LIST_OFFSETS: list_offsets,
    ApiKey.METADATA: metadata,
    ApiKey.API_VERSIONS: lambda s, v: ApiVersionsRequest(client_software_name="tests", client_software_version="1.0"),
    ApiKey.CREATE_TOPICS: lambda s, v: create_topics(f"{s.topic}-{v}"),
    ApiKey.DELETE_TOPICS: Stage.delete_topic,
    ApiKey.DELETE_RECORDS: delete_records,
    ApiKey.INIT_PRODUCER_ID: lambda s, v: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
    ApiKey.DESCRIBE_CONFIGS: describe_configs,
    ApiKey.ALTER_CONFIGS: alter_configs_request,
    ApiKey.DESCRIBE_LOG_DIRS: lambda s, v: DescribeLogDirsRequest(
        topics=[DescribableLogDirTopic(topic=s.topic, partitions=[0])]
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: alter_replica_log_dirs,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda s, v: AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name=s.topic, partitions=[ReassignablePartition(partition_index=0, replicas=[s.broker_id])]
            )
        ]
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda s, v: ListPartitionReassignmentsRequest(topics=None),
    ApiKey.ELECT_LEADERS: lambda s, v: ElectLeadersRequest(topic_partitions=[]),
    ApiKey.CREATE_PARTITIONS: lambda s, v: CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=s.topic, count=2 + v, assignments=None)], timeout_ms=5000
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs_request,
    ApiKey.DESCRIBE_CLUSTER: lambda s, v: DescribeClusterRequest(include_cluster_authorized_operations=True),
    ApiKey.DESCRIBE_PRODUCERS: lambda s, v: describe_producers.DescribeProducersRequest(
        topics=[describe_producers.TopicRequest(name=s.topic, partition_indexes=[0])]
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: lambda s, v: describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=[describe_topic_partitions.TopicRequest(name=s.topic)]
    ),
}


def check_produce(stage: Stage, response: Any) -> None:
    partition = response.responses[0].partition_responses[0]
    assert partition.base_offset % len(RECORDS) == 0 and partition.base_offset > 0


def check_fetch(stage: Stage, response: Any) -> None:
    data = bytes(response.responses[0].partitions[0].records)
    read = [(r.key, r.value, list(r.headers), r.timestamp) for r in read_records(data, read_header(data))]
    assert read == [(r.key, r.value, list(r.headers), r.timestamp_ms) for r in RECORDS]


def check_list_offsets(stage: Stage, response: Any) -> None:
    found = response.topics[0].partitions[0]
    assert (found.offset, found.timestamp) == (1, RECORDS[1].timestamp_ms)


def check_metadata(stage: Stage, response: Any) -> None:
    for topic in response.topics:
        assert topic.name == stage.topic
        assert topic.topic_id in (NIL_UUID, stage.topic_id)
        assert [(p.partition_index, p.leader_id) for p in topic.partitions] == [(0, stage.broker_id)]


def check_log_dirs(stage: Stage, response: Any) -> None:
    sizes = [p.partition_size for d in response.results for t in d.topics for p in t.partitions]
    assert sizes == [len(build_batch(RECORDS))]


def check_configs(stage: Stage, response: Any) -> None:
    of_topic, of_broker = response.results
    assert {"retention.ms", "cleanup.policy", "max.message.bytes"} <= {config.name for config in of_topic.configs}
    assert {"log.dirs", "num.partitions"} <= {config.name for config in of_broker.configs}


def check_leader_epoch(stage: Stage, response: Any) -> None:
    assert response.topics[0].partitions[0].end_offset == len(RECORDS)


CHECKS: dict[int, Callable[[Stage, Any], None]] = {
    ApiKey.PRODUCE: check_produce,
    ApiKey.FETCH: check_fetch,
    ApiKey.LIST_OFFSETS: check_list_offsets,
    ApiKey.METADATA: check_metadata,
    ApiKey.DESCRIBE_LOG_DIRS: check_log_dirs,
    ApiKey.DESCRIBE_CONFIGS: check_configs,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: check_leader_epoch,
}


def errors_in(value: object) -> Iterator[ErrorCode]:
    """Every error code of a response that is not 0, however deep it lies."""
    if isinstance(value, list):
        for item in value:
            yield from errors_in(item)
    elif isinstance(value, Struct):
        for field in value.FIELDS:
            inner = getattr(value, field.name)
            if field.name.endswith("error_code") and inner != 0:
                yield ErrorCode(inner)
            yield from errors_in(inner)


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.port) as raw:
        yield raw


def versions_of(client: RawClient, api_key: int) -> range:
    versions = advertised(client)
    assert api_key in versions, f"{ApiKey(api_key).name} is not served any more"
    return versions[api_key]


def advertised(client: RawClient) -> dict[int, range]:
    response = client.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
    assert isinstance(response, ApiVersionsResponse)
    return {api.api_key: range(api.min_version, api.max_version + 1) for api in response.api_keys}


def test_every_advertised_api_has_a_request_here(client: RawClient) -> None:
    untested = {ApiKey(key).name for key in advertised(client)} - {
        ApiKey(key).name for key in [*REQUESTS, *COORDINATED]
    }
    assert untested == set(), "a new API needs a request in REQUESTS or COORDINATED"


@pytest.mark.parametrize("api_key", REQUESTS, ids=[ApiKey(key).name.lower() for key in REQUESTS])
def test_every_version_is_answered(broker: BrokerProcess, client: RawClient, new_topic: str, api_key: int) -> None:
    stage = Stage(client, new_topic)
    for version in versions_of(client, api_key):
        request = REQUESTS[api_key](stage, version)
        if (api_key, version) in ADVERTISED_BUT_CLOSED:
            with RawClient(broker.port) as other, pytest.raises(ConnectionClosedError):
                other.call(ProduceRequest(acks=1), version)
            continue
        response: Response = client.call(request, version)
        assert list(errors_in(response)) == [], f"version {version}: {response}"
        if api_key in CHECKS:
            CHECKS[api_key](stage, response)


@pytest.mark.parametrize("api_key", COORDINATED, ids=[ApiKey(key).name.lower() for key in COORDINATED])
def test_every_version_is_answered_by_a_coordinator(client: RawClient, new_topic: str, api_key: int) -> None:
    stage = Stage(client, new_topic)
    for key_type in CoordinatorType:
        # As clients do: looking for the coordinator is what makes the broker create the topic behind it.
        assert call_until_ready(client, FindCoordinatorRequest(key=new_topic, key_type=key_type), 3)[1] == set()
    asked = COORDINATED[api_key]
    for version in versions_of(client, api_key):
        response, errors = call_until_ready(client, asked.request(stage.topic, version), version)
        assert errors == {asked.error(version)} - {ErrorCode.NONE}, f"version {version}: {response}"


def call_until_ready(client: RawClient, request: Request, version: int) -> tuple[Response, set[ErrorCode]]:
    """Asks again while the coordinator is loading; returns the reply and all error codes in it."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        response = client.call(request, version)
        errors = set(errors_in(response))
        if not errors & LOADING or time.monotonic() > deadline:
            return response, errors


@pytest.mark.parametrize("api_key", [key for key in [*REQUESTS, *COORDINATED] if key != ApiKey.API_VERSIONS])
def test_a_version_beyond_the_advertised_ones_closes_the_connection(
    broker: BrokerProcess, client: RawClient, api_key: int
) -> None:
    versions = versions_of(client, api_key)
    for version in (versions[0] - 1, versions[-1] + 1):
        with RawClient(broker.port) as other:
            header = b"".join(n.to_bytes(2, "big", signed=True) for n in (api_key, version)) + b"\0\0\0\1\xff\xff\0"
            other.send_bytes(len(header).to_bytes(4, "big") + header)
            assert other.is_closed_by_broker()


@pytest.mark.parametrize("version", range(4, 18))
def test_an_empty_fetch_holds_an_empty_set_of_records(client: RawClient, new_topic: str, version: int) -> None:
    """Not a null one: librdkafka cannot read it."""
    stage = Stage(client, new_topic)
    request = stage.fetch(version)
    for offset, code in ((len(RECORDS), 0), (len(RECORDS) + 1, 1)):
        request.topics[0].partitions[0].fetch_offset = offset
        response = client.call(request, version)
        assert isinstance(response, FetchResponse)
        partition = response.responses[0].partitions[0]
        assert partition.error_code == code
        assert partition.records is not None and len(partition.records) == 0


def test_a_duplicate_batch_gets_the_first_ones_offset(client: RawClient, new_topic: str) -> None:
    stage = Stage(client, new_topic)
    identity: Any = client.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)

    def send(sequence: int) -> tuple[int, int]:
        records = build_batch(
            RECORDS, producer_id=identity.producer_id, producer_epoch=identity.producer_epoch, base_sequence=sequence
        )
        request = stage.produce(9)
        request.topic_data[0].partition_data[0].records = records
        response = client.call(request, 9)
        assert isinstance(response, ProduceResponse)
        partition = response.responses[0].partition_responses[0]
        return partition.error_code, partition.base_offset

    assert [send(3 * i) for i in range(5)] == [(0, 3 + 3 * i) for i in range(5)]
    assert [send(3 * i) for i in range(5)] == [(0, 3 + 3 * i) for i in range(5)]
    out_of_order = 45
    assert send(21)[0] == out_of_order
    assert send(15) == (0, 18)
