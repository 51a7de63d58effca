"""Calls about settings, about brokers and their log directories, and about which of them have and lead partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ottla.base.errors import KafkaError
from ottla.base.types import TopicPartition
from ottla.client.aio.admin.calls import AdminCalls
from ottla.client.core.admin import configs as admin_configs
from ottla.client.core.admin import replicas as admin_replicas
from ottla.client.core.admin.arguments import as_list
from ottla.client.core.admin.outcomes import Outcomes, admin_error
from ottla.client.core.admin.types import (
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigValue,
    ElectionType,
    LogDirDescription,
    PartitionReassignment,
    TopicPartitionReplica,
)
from ottla.client.core.metadata import BrokerAddress
from ottla.client.errors import ClientError


class ClusterCalls(AdminCalls):
    # Settings

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        keys: Sequence[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[ConfigResource, dict[str, ConfigEntry]]:
        names = None if keys is None else as_list(keys, "keys")
        call = admin_configs.describe_configs_call(
            names, include_synonyms=include_synonyms, include_documentation=include_documentation
        )
        return await self._caller.placed(
            lambda _: call, as_list(resources, "resources"), admin_configs.broker_of, timeout_ms
        )

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[ConfigChange]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[ConfigResource, None]:
        """Changes the settings that are named, and no others."""
        wanted = {resource: as_list(entries, "the changes") for resource, entries in changes.items()}
        call = admin_configs.incremental_alter_configs_call(wanted, validate_only=validate_only)
        return await self._caller.placed(lambda _: call, wanted, admin_configs.broker_of, timeout_ms)

    async def alter_configs(
        self,
        settings: Mapping[ConfigResource, Mapping[str, ConfigValue | None]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[ConfigResource, None]:
        """Replaces all settings of each resource: whatever is not named goes back to its default."""
        call = admin_configs.alter_configs_call(settings, validate_only=validate_only)
        return await self._caller.placed(lambda _: call, settings, admin_configs.broker_of, timeout_ms)

    # Cluster and log directories

    async def describe_cluster(self, *, timeout_ms: int | None = None) -> ClusterDescription:
        """The cluster's id, its brokers, and which of them is the controller."""
        # Metadata says the same as DescribeCluster, and every broker knows it.
        await self._caller.learn_brokers(timeout_ms)
        known = self._caller.metadata
        return ClusterDescription(known.cluster_id, known.controller_id, dict(sorted(known.brokers.items())))

    async def api_versions(self) -> Outcomes[BrokerAddress, dict[int, range]]:
        """The versions of each API, by its key, that each broker speaks."""
        answers: dict[BrokerAddress, dict[int, range] | ClientError] = {}
        for node_id, broker in (await self.describe_cluster()).brokers.items():
            try:
                answers[broker] = (await self._caller.link.connection_to(node_id)).api_versions
            except KafkaError as e:
                answers[broker] = admin_error(e.code, e.message)
        return Outcomes(answers, what="api_versions")

    async def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        timeout_ms: int | None = None,
    ) -> Outcomes[int, dict[str, LogDirDescription]]:
        """The log directories of brokers by their paths; of all brokers and partitions if none are named."""
        chosen = None if partitions is None else as_list(partitions, "partitions")
        nodes = None if brokers is None else as_list(brokers, "brokers")
        return await self._caller.brokers(
            lambda node: admin_configs.describe_log_dirs_call(node, chosen), nodes, timeout_ms
        )

    async def alter_replica_log_dirs(
        self, moves: Mapping[TopicPartitionReplica, str], *, timeout_ms: int | None = None
    ) -> Outcomes[TopicPartitionReplica, None]:
        """Has replicas copied to other log directories of their brokers. `describe_log_dirs` shows how far they are."""
        return await self._caller.placed(
            lambda node: admin_configs.alter_replica_log_dirs_call(-1 if node is None else node, moves),
            moves,
            lambda replica: replica.node_id,
            timeout_ms,
        )

    # Replicas and leaders

    async def alter_partition_reassignments(
        self, replicas: Mapping[TopicPartition, Iterable[int] | None], *, timeout_ms: int | None = None
    ) -> Outcomes[TopicPartition, None]:
        """Has partitions moved to other brokers, the preferred leader first; None cancels what is under way.

        It has begun when this returns; `list_partition_reassignments` shows what has not ended.
        """
        wanted = admin_replicas.reassignments_to_make(replicas)
        call = admin_replicas.alter_partition_reassignments_call(wanted, timeout_ms=self._request_ms)
        return await self._caller.controller(call, wanted, timeout_ms)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The reassignments that are under way: all, or those of some partitions."""
        chosen = None if partitions is None else as_list(partitions, "partitions")
        call = admin_replicas.list_partition_reassignments_call(chosen, timeout_ms=self._request_ms)
        key = admin_replicas.REASSIGNMENTS
        return (await self._caller.controller(call, [key], timeout_ms))[key]

    async def elect_leaders(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        kind: ElectionType = ElectionType.PREFERRED,
        timeout_ms: int | None = None,
    ) -> Outcomes[TopicPartition, None]:
        """Has leaders elected: of some partitions, or wherever it is needed.

        A partition that is named and led as it should be has the error ELECTION_NOT_NEEDED.
        """
        sought = ElectionType(kind)
        if partitions is not None:
            wanted = [TopicPartition(*partition) for partition in as_list(partitions, "partitions")]
            call = admin_replicas.elect_leaders_call(sought, timeout_ms=self._request_ms)
            return await self._caller.controller(call, wanted, timeout_ms)
        everywhere = admin_replicas.elect_all_leaders_call(sought, timeout_ms=self._request_ms)
        outcomes = await self._caller.controller(everywhere, [admin_replicas.ALL_PARTITIONS], timeout_ms)
        return Outcomes(outcomes[admin_replicas.ALL_PARTITIONS], what=everywhere.name)
