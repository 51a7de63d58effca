"""Calls about settings and log directories, without a broker."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.admin.configs import (
    alter_configs_call,
    alter_replica_log_dirs_call,
    broker_of,
    describe_configs_call,
    describe_log_dirs_call,
    incremental_alter_configs_call,
)
from ottla.client.core.admin.types import (
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ReplicaInfo,
    ResourceType,
    TopicPartitionReplica,
)
from ottla.client.errors import ClientError
from ottla.wire.apis import alter_configs, alter_replica_log_dirs, describe_configs, describe_log_dirs

TOPIC, BROKER = ConfigResource(ResourceType.TOPIC, "t"), ConfigResource(ResourceType.BROKER, "1")


@pytest.mark.parametrize(
    ("version", "synonyms", "documentation"), [(0, False, False), (1, True, False), (2, True, False), (3, True, True)]
)
def test_settings_are_asked_for_in_any_version(version: int, synonyms: bool, documentation: bool) -> None:
    call = describe_configs_call(["a"], include_synonyms=True, include_documentation=True)
    request = call.build([TOPIC, BROKER], version)
    assert [(r.resource_type, r.resource_name, r.configuration_keys) for r in request.resources] == [
        (2, "t", ["a"]),
        (4, "1", ["a"]),
    ]
    assert (request.include_synonyms, request.include_documentation) == (synonyms, documentation)
    bare = describe_configs_call(None, include_synonyms=False, include_documentation=False).build([TOPIC], version)
    assert (bare.include_synonyms, bare.include_documentation) == (False, False)
    assert bare.resources[0].configuration_keys is None


def test_settings_as_they_are() -> None:
    entry = describe_configs.DescribeConfigsResourceResult
    synonym = describe_configs.DescribeConfigsSynonym(name="c", value="2", source=5)
    result = describe_configs.DescribeConfigsResult(
        resource_type=2,
        resource_name="t",
        configs=[
            entry(name="b", value="1", config_source=1, is_sensitive=True, synonyms=[synonym], documentation="why"),
            entry(name="a", value=None, config_source=-1, is_default=True, read_only=True, documentation=None),
            entry(name="c", value="", config_source=99, documentation=None),
        ],
    )
    refused = describe_configs.DescribeConfigsResult(
        resource_type=4, resource_name="1", error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    )
    call = describe_configs_call(None, include_synonyms=True, include_documentation=True)
    answers = call.read(describe_configs.DescribeConfigsResponse(results=[result, refused]))
    found = answers[TOPIC]
    assert list(found.values()) == [
        ConfigEntry("a", None, ConfigSource.DEFAULT, True, False, (), None),
        ConfigEntry(
            "b",
            "1",
            ConfigSource.TOPIC,
            False,
            True,
            (ConfigSynonym("c", "2", ConfigSource.DEFAULT),),
            "why",
        ),
        ConfigEntry("c", "", ConfigSource.UNKNOWN, False, False, (), None),
    ]
    assert list(found) == ["a", "b", "c"]
    assert isinstance(answers[BROKER], ClientError)


def test_settings_are_changed() -> None:
    changes = [
        ConfigChange("a", True),
        ConfigChange("b", None, ConfigOperation.DELETE),
        ConfigChange("c", "x,y", ConfigOperation.APPEND),
        ConfigChange("d", 1.5, ConfigOperation.SUBTRACT),
    ]
    request = incremental_alter_configs_call({TOPIC: changes}, validate_only=True).build([TOPIC], 1)
    assert request.validate_only is True
    assert [(c.name, c.value, c.config_operation) for c in request.resources[0].configs] == [
        ("a", "true", 0),
        ("b", None, 1),
        ("c", "x,y", 2),
        ("d", "1.5", 3),
    ]
    whole = alter_configs_call({TOPIC: {"a": 1, "b": None}}, validate_only=False)
    replaced = whole.build([TOPIC], 1)
    assert replaced.validate_only is False
    assert [(c.name, c.value) for c in replaced.resources[0].configs] == [("a", "1"), ("b", None)]
    answer = alter_configs.AlterConfigsResourceResponse
    answers = whole.read(
        alter_configs.AlterConfigsResponse(
            responses=[
                answer(resource_type=2, resource_name="t"),
                answer(resource_type=4, resource_name="1", error_code=ErrorCode.INVALID_CONFIG, error_message="bad"),
            ]
        )
    )
    assert answers[TOPIC] is None
    assert isinstance(answers[BROKER], ClientError) and "bad" in str(answers[BROKER])


@pytest.mark.parametrize(
    ("resource", "broker"),
    [
        (BROKER, 1),
        (ConfigResource(ResourceType.BROKER_LOGGER, "12"), 12),
        (ConfigResource(ResourceType.BROKER, ""), None),
        (ConfigResource(ResourceType.TOPIC, "5"), None),
        (ConfigResource(ResourceType.GROUP, "5"), None),
    ],
)
def test_a_broker_is_asked_about_itself(resource: ConfigResource, broker: int | None) -> None:
    assert broker_of(resource) == broker


def test_log_dirs() -> None:
    t0, t1 = TopicPartition("t", 0), TopicPartition("t", 1)
    call = describe_log_dirs_call(3, [t0, t1])
    assert [(t.topic, t.partitions) for t in call.build([3], 4).topics] == [("t", [0, 1])]
    assert describe_log_dirs_call(3, None).build([3], 4).topics is None
    wire = describe_log_dirs
    replicas = [
        wire.DescribeLogDirsPartition(partition_index=0, partition_size=10, offset_lag=2, is_future_key=True),
        wire.DescribeLogDirsPartition(partition_index=1, partition_size=20),
    ]
    topic = wire.DescribeLogDirsTopic(name="t", partitions=replicas)
    results = [
        wire.DescribeLogDirsResult(log_dir="/a", topics=[topic], total_bytes=0, usable_bytes=0),
        wire.DescribeLogDirsResult(
            log_dir="/b", error_code=ErrorCode.KAFKA_STORAGE_ERROR, total_bytes=-1, usable_bytes=-1
        ),
    ]
    found = call.read(wire.DescribeLogDirsResponse(results=results))[3]
    good, bad = found["/a"], found["/b"]
    assert (good.path, good.error, good.total_bytes, good.usable_bytes) == ("/a", None, 0, 0)
    assert good.replicas == {t0: ReplicaInfo(10, 2, True), t1: ReplicaInfo(20, 0, False)}
    assert bad.error is not None and bad.error.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (bad.total_bytes, bad.usable_bytes, bad.replicas) == (None, None, {})
    refused = call.read(wire.DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    assert isinstance(refused[3], ClientError)


def test_replicas_are_moved_between_dirs() -> None:
    replicas = [TopicPartitionReplica("t", index, 3) for index in range(3)]
    call = alter_replica_log_dirs_call(3, {replicas[0]: "/a", replicas[1]: "/b", replicas[2]: "/a"})
    request = call.build(replicas, 2)
    assert [(d.path, [(t.name, t.partitions) for t in d.topics]) for d in request.dirs] == [
        ("/a", [("t", [0, 2])]),
        ("/b", [("t", [1])]),
    ]
    wire = alter_replica_log_dirs
    entries = [
        wire.AlterReplicaLogDirPartitionResult(partition_index=0),
        wire.AlterReplicaLogDirPartitionResult(partition_index=1, error_code=ErrorCode.LOG_DIR_NOT_FOUND),
    ]
    topic = wire.AlterReplicaLogDirTopicResult(topic_name="t", partitions=entries)
    answers = call.read(wire.AlterReplicaLogDirsResponse(results=[topic]))
    assert answers[replicas[0]] is None
    assert isinstance(answers[replicas[1]], ClientError)
