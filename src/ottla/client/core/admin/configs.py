"""Settings and log directories: what is asked of brokers, and what their answers say. Sends nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ottla.base.types import TopicPartition
from ottla.client.core.admin.arguments import config_text
from ottla.client.core.admin.outcomes import Call, admin_error, known, outcome
from ottla.client.core.admin.types import (
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ConfigValue,
    LogDirDescription,
    ReplicaInfo,
    ResourceType,
    TopicPartitionReplica,
)
from ottla.client.core.consumer.offset_requests import by_topic
from ottla.client.errors import ClientError
from ottla.wire.apis import alter_configs, incremental_alter_configs
from ottla.wire.apis.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from ottla.wire.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from ottla.wire.apis.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)

_FIRST_SOURCES = 1
_FIRST_DOCUMENTATION = 3

# Settings


def describe_configs_call(
    keys: Sequence[str] | None, *, include_synonyms: bool, include_documentation: bool
) -> Call[ConfigResource, dict[str, ConfigEntry]]:
    def build(resources: Sequence[ConfigResource], version: int) -> DescribeConfigsRequest:
        return DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configuration_keys=None if keys is None else list(keys),
                )
                for resource in resources
            ],
            include_synonyms=include_synonyms and version >= _FIRST_SOURCES,
            include_documentation=include_documentation and version >= _FIRST_DOCUMENTATION,
        )

    return Call("describe_configs", DescribeConfigsRequest, DescribeConfigsResponse, build, _read_configs)


def _read_configs(response: DescribeConfigsResponse) -> dict[ConfigResource, dict[str, ConfigEntry] | ClientError]:
    answers: dict[ConfigResource, dict[str, ConfigEntry] | ClientError] = {}
    for answer in response.results:
        resource = ConfigResource(ResourceType(answer.resource_type), answer.resource_name)
        entries = {entry.name: _entry(entry) for entry in sorted(answer.configs, key=lambda entry: entry.name)}
        answers[resource] = outcome(answer.error_code, entries, answer.error_message, where=resource)
    return answers


def _entry(entry: DescribeConfigsResourceResult) -> ConfigEntry:
    source = known(ConfigSource, entry.config_source)
    if entry.is_default:
        # All that version 0 says of where a value comes from.
        source = ConfigSource.DEFAULT
    return ConfigEntry(
        entry.name,
        entry.value,
        source,
        entry.read_only,
        entry.is_sensitive,
        tuple(
            ConfigSynonym(synonym.name, synonym.value, known(ConfigSource, synonym.source))
            for synonym in entry.synonyms
        ),
        entry.documentation,
    )


def incremental_alter_configs_call(
    changes: Mapping[ConfigResource, Sequence[ConfigChange]], *, validate_only: bool
) -> Call[ConfigResource, None]:
    wire = incremental_alter_configs

    def build(
        resources: Sequence[ConfigResource], version: int
    ) -> incremental_alter_configs.IncrementalAlterConfigsRequest:
        return wire.IncrementalAlterConfigsRequest(
            resources=[
                wire.AlterConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configs=[
                        wire.AlterableConfig(
                            name=change.name, value=config_text(change.value), config_operation=change.operation
                        )
                        for change in changes[resource]
                    ],
                )
                for resource in resources
            ],
            validate_only=validate_only,
        )

    return Call(
        "incremental_alter_configs",
        wire.IncrementalAlterConfigsRequest,
        wire.IncrementalAlterConfigsResponse,
        build,
        _read_altered,
    )


def alter_configs_call(
    settings: Mapping[ConfigResource, Mapping[str, ConfigValue | None]], *, validate_only: bool
) -> Call[ConfigResource, None]:
    wire = alter_configs

    def build(resources: Sequence[ConfigResource], version: int) -> alter_configs.AlterConfigsRequest:
        return wire.AlterConfigsRequest(
            resources=[
                wire.AlterConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configs=[
                        wire.AlterableConfig(name=name, value=config_text(value))
                        for name, value in settings[resource].items()
                    ],
                )
                for resource in resources
            ],
            validate_only=validate_only,
        )

    return Call("alter_configs", wire.AlterConfigsRequest, wire.AlterConfigsResponse, build, _read_altered)


def _read_altered(
    response: alter_configs.AlterConfigsResponse | incremental_alter_configs.IncrementalAlterConfigsResponse,
) -> dict[ConfigResource, ClientError | None]:
    answers: dict[ConfigResource, ClientError | None] = {}
    for answer in response.responses:
        resource = ConfigResource(ResourceType(answer.resource_type), answer.resource_name)
        answers[resource] = outcome(answer.error_code, None, answer.error_message, where=resource)
    return answers


def broker_of(resource: ConfigResource) -> int | None:
    """The broker that has to be asked about a resource; None if any will do."""
    if resource.type not in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) or not resource.name.isdecimal():
        return None
    return int(resource.name)


# Log directories


def describe_log_dirs_call(
    node_id: int, partitions: Iterable[TopicPartition] | None
) -> Call[int, dict[str, LogDirDescription]]:
    chosen = None if partitions is None else by_topic(partitions)

    def build(nodes: Sequence[int], version: int) -> DescribeLogDirsRequest:
        return DescribeLogDirsRequest(
            topics=None
            if chosen is None
            else [DescribableLogDirTopic(topic=topic, partitions=indexes) for topic, indexes in chosen.items()]
        )

    def read(response: DescribeLogDirsResponse) -> dict[int, dict[str, LogDirDescription] | ClientError]:
        dirs = {entry.log_dir: _log_dir(entry) for entry in response.results}
        return {node_id: outcome(response.error_code, dirs, where=f"broker {node_id}")}

    return Call("describe_log_dirs", DescribeLogDirsRequest, DescribeLogDirsResponse, build, read)


def _log_dir(entry: DescribeLogDirsResult) -> LogDirDescription:
    return LogDirDescription(
        entry.log_dir,
        admin_error(entry.error_code, where=entry.log_dir) if entry.error_code else None,
        entry.total_bytes if entry.total_bytes >= 0 else None,
        entry.usable_bytes if entry.usable_bytes >= 0 else None,
        {
            TopicPartition(topic.name, replica.partition_index): ReplicaInfo(
                replica.partition_size, replica.offset_lag, replica.is_future_key
            )
            for topic in entry.topics
            for replica in topic.partitions
        },
    )


def alter_replica_log_dirs_call(
    node_id: int, moves: Mapping[TopicPartitionReplica, str]
) -> Call[TopicPartitionReplica, None]:
    def build(replicas: Sequence[TopicPartitionReplica], version: int) -> AlterReplicaLogDirsRequest:
        dirs: dict[str, list[TopicPartition]] = {}
        for replica in replicas:
            dirs.setdefault(moves[replica], []).append(TopicPartition(replica.topic, replica.partition))
        return AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path=path,
                    topics=[
                        AlterReplicaLogDirTopic(name=topic, partitions=indexes)
                        for topic, indexes in by_topic(partitions).items()
                    ],
                )
                for path, partitions in dirs.items()
            ]
        )

    def read(response: AlterReplicaLogDirsResponse) -> dict[TopicPartitionReplica, ClientError | None]:
        answers: dict[TopicPartitionReplica, ClientError | None] = {}
        for topic in response.results:
            for answer in topic.partitions:
                replica = TopicPartitionReplica(topic.topic_name, answer.partition_index, node_id)
                answers[replica] = outcome(answer.error_code, None, where=replica)
        return answers

    return Call("alter_replica_log_dirs", AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse, build, read)
