"""What one broker keeps across restarts, and how it treats topics, settings and directories."""

from __future__ import annotations

import time
from pathlib import Path

from ottla.base.errors import ErrorCode
from ottla.wire.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.wire.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.apis.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from ottla.wire.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.wire.apis.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.wire.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.broker_process import BrokerProcess
from tests.integration.calls import batch, create_topic, fetch_one, list_offset, produce
from tests.raw_client import RawClient

TOPIC, BROKER = 2, 4


def metadata(client: RawClient, *names: str) -> MetadataResponse:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=n) for n in names], allow_auto_topic_creation=False)
    response = client.call(request, 12)
    assert isinstance(response, MetadataResponse)
    return response


def config_of(client: RawClient, kind: int, name: str, key: str) -> tuple[str | None, int]:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[key])
    response = client.call(DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4)
    assert isinstance(response, DescribeConfigsResponse) and response.results[0].error_code == 0, response
    (entry,) = response.results[0].configs
    return entry.value, entry.config_source


def alter(client: RawClient, kind: int, name: str, key: str, value: str | None, operation: int = 0) -> int:
    resource = AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[AlterableConfig(name=key, config_operation=operation, value=value)],
    )
    response = client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert isinstance(response, IncrementalAlterConfigsResponse)
    return response.responses[0].error_code


def test_everything_is_there_after_a_restart_under_a_new_leader_epoch(own_broker: BrokerProcess) -> None:
    own_broker.start()
    with RawClient(own_broker.port) as client:
        topic_id = create_topic(client, "kept", 2, retention_ms="12345")
        produce(client, "kept", batch(b"a", b"b"))
        before = metadata(client, "kept")
        first_id = client.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4)
    assert own_broker.stop() == 0
    own_broker.start()
    with RawClient(own_broker.port) as client:
        after = metadata(client, "kept")
        assert after.cluster_id == before.cluster_id
        assert after.brokers[0].node_id == before.brokers[0].node_id == after.controller_id
        assert after.topics[0].topic_id == topic_id
        assert [p.leader_epoch for p in after.topics[0].partitions] == [1, 1]
        assert config_of(client, TOPIC, "kept", "retention.ms") == ("12345", 1)
        assert fetch_one(client, "kept", 0).high_watermark == 2
        assert list_offset(client, "kept", -1).leader_epoch == 1
        second_id = client.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4)
        assert isinstance(first_id, InitProducerIdResponse) and isinstance(second_id, InitProducerIdResponse)
        assert second_id.producer_id > first_id.producer_id
    assert not own_broker.tracebacks()


def test_a_deleted_topic_is_gone_and_its_name_is_free(own_broker: BrokerProcess) -> None:
    own_broker.overrides["log.segment.delete.delay.ms"] = "200"
    own_broker.start()
    with RawClient(own_broker.port) as client:
        first = create_topic(client, "again")
        produce(client, "again", batch(b"old"))
        response = client.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="again")]), 6)
        assert isinstance(response, DeleteTopicsResponse)
        assert (response.responses[0].error_code, response.responses[0].topic_id) == (0, first)
        assert metadata(client, "again").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        second = create_topic(client, "again")
        assert second != first
        assert fetch_one(client, "again", 0).high_watermark == 0
        by_id = client.call(DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=first)]), 6)
        assert isinstance(by_id, DeleteTopicsResponse)
        assert by_id.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        deadline = time.monotonic() + 20
        while any(own_broker.data_dir.glob("*-delete")):
            assert time.monotonic() < deadline, "the deleted directory is still there"
            time.sleep(0.05)


def test_topics_grow_and_never_shrink(own_broker: BrokerProcess) -> None:
    own_broker.start()

    def grow(client: RawClient, count: int, *, validate_only: bool = False) -> tuple[int, str | None]:
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="grows", count=count, assignments=None)],
            timeout_ms=5000,
            validate_only=validate_only,
        )
        response = client.call(request, 3)
        assert isinstance(response, CreatePartitionsResponse)
        return response.results[0].error_code, response.results[0].error_message

    with RawClient(own_broker.port) as client:
        create_topic(client, "grows", 2)
        assert grow(client, 5, validate_only=True) == (0, None)
        assert len(metadata(client, "grows").topics[0].partitions) == 2
        assert grow(client, 5) == (0, None)
        assert sorted(p.partition_index for p in metadata(client, "grows").topics[0].partitions) == [0, 1, 2, 3, 4]
        assert produce(client, "grows", batch(b"v"), partition=4).error_code == 0
        code, message = grow(client, 3)
        assert code == ErrorCode.INVALID_PARTITIONS
        assert message == "The topic grows currently has 5 partition(s); 3 would not be an increase."
        assert grow(client, 5)[0] == ErrorCode.INVALID_PARTITIONS


def test_an_explicit_assignment_is_taken_or_refused(own_broker: BrokerProcess) -> None:
    own_broker.overrides["broker.id"] = "7"
    own_broker.start()

    def create(client: RawClient, name: str, assignment: dict[int, list[int]], partitions: int = -1) -> int:
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=p, broker_ids=b) for p, b in assignment.items()],
        )
        response = client.call(CreateTopicsRequest(topics=[topic]), 7)
        assert isinstance(response, CreateTopicsResponse)
        return response.topics[0].error_code

    with RawClient(own_broker.port) as client:
        assert create(client, "by-hand", {0: [7], 1: [7]}) == 0
        assert metadata(client, "by-hand").topics[0].partitions[1].replica_nodes == [7]
        assert create(client, "gap", {0: [7], 2: [7]}) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert create(client, "dead", {0: [8]}) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert create(client, "both", {0: [7]}, partitions=1) == ErrorCode.INVALID_REQUEST


def test_settings_change_while_the_broker_runs(own_broker: BrokerProcess) -> None:
    own_broker.overrides["broker.id"] = "3"
    own_broker.start()
    with RawClient(own_broker.port) as client:
        create_topic(client, "tuned")
        assert config_of(client, TOPIC, "tuned", "max.message.bytes") == ("1048588", 5)
        assert alter(client, BROKER, "", "message.max.bytes", "500") == 0
        assert config_of(client, TOPIC, "tuned", "max.message.bytes") == ("500", 3)
        assert produce(client, "tuned", batch(b"x" * 600)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert alter(client, TOPIC, "tuned", "max.message.bytes", "5000") == 0
        assert produce(client, "tuned", batch(b"x" * 600)).error_code == 0
        assert alter(client, TOPIC, "tuned", "max.message.bytes", "none") == ErrorCode.INVALID_CONFIG
        assert alter(client, BROKER, "3", "log.dirs", "elsewhere") != 0
        assert alter(client, TOPIC, "tuned", "max.message.bytes", None, operation=1) == 0
        assert produce(client, "tuned", batch(b"x" * 600)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    own_broker.stop()
    own_broker.start()
    with RawClient(own_broker.port) as client:
        assert config_of(client, TOPIC, "tuned", "max.message.bytes") == ("500", 3)


def test_partitions_are_spread_over_several_directories(own_broker: BrokerProcess, tmp_path: Path) -> None:
    directories = [tmp_path / "one", tmp_path / "two", tmp_path / "three"]
    own_broker.overrides["log.dirs"] = ",".join(map(str, directories))
    own_broker.start()
    with RawClient(own_broker.port) as client:
        create_topic(client, "spread", 6)
        produce(client, "spread", batch(b"v" * 1000), partition=5)
        response = client.call(DescribeLogDirsRequest(topics=None), 4)
        assert isinstance(response, DescribeLogDirsResponse)
        assert [d.log_dir for d in response.results] == [str(path) for path in directories]
        assert all(len(d.topics[0].partitions) == 2 for d in response.results)
        sizes = [p.partition_size for d in response.results for p in d.topics[0].partitions if p.partition_index == 5]
        assert sizes[0] > 1000
        assert all(d.total_bytes > d.usable_bytes > 0 for d in response.results)


def test_a_directory_that_fails_at_start_takes_its_partitions_along_but_is_not_replaced_by_empty_logs(
    own_broker: BrokerProcess, tmp_path: Path
) -> None:
    directories = [tmp_path / "one", tmp_path / "two"]
    own_broker.overrides["log.dirs"] = ",".join(map(str, directories))
    own_broker.start()
    with RawClient(own_broker.port) as client:
        create_topic(client, "halves", 2)
        for partition in (0, 1):
            produce(client, "halves", batch(b"kept"), partition=partition)
    own_broker.stop()
    lost = next(index for index in (0, 1) if (directories[1] / f"halves-{index}").exists())
    log_file = directories[1] / f"halves-{lost}" / f"{0:020d}.log"
    log_file.rename(tmp_path / "aside")
    log_file.mkdir()  # What cannot be opened as a file makes the whole directory fail.
    own_broker.start()
    with RawClient(own_broker.port) as client:
        produced = {index: produce(client, "halves", batch(b"more"), partition=index) for index in (0, 1)}
        assert produced[lost].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert produced[1 - lost].base_offset == 1
        described = client.call(DescribeLogDirsRequest(topics=None), 4)
        assert isinstance(described, DescribeLogDirsResponse)
        assert [d.error_code for d in described.results] == [0, ErrorCode.KAFKA_STORAGE_ERROR]
    own_broker.stop()
    assert not (directories[0] / f"halves-{lost}").exists()
    log_file.rmdir()
    (tmp_path / "aside").rename(log_file)
    own_broker.start()
    with RawClient(own_broker.port) as client:
        assert produce(client, "halves", batch(b"again"), partition=lost).base_offset == 1
