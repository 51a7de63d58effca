# Written by `make generate` from src/ottla/client/aio/admin/cluster_calls.py: change that instead.

"""Calls about settings, about brokers and their log directories, and about which of them have and lead partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ottla.base.types import TopicPartition
from ottla.client.core.admin.outcomes import Outcomes
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
from ottla.client.sync.admin.calls import AdminCalls


class ClusterCalls(AdminCalls):
    # Settings

    def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        keys: Sequence[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[ConfigResource, dict[str, ConfigEntry]]:
        return self._call(
            self._inner.describe_configs(
                resources,
                keys=keys,
                include_synonyms=include_synonyms,
                include_documentation=include_documentation,
                timeout_ms=timeout_ms,
            )
        )

    def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[ConfigChange]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[ConfigResource, None]:
        """Changes the settings that are named, and no others."""
        return self._call(
            self._inner.incremental_alter_configs(changes, validate_only=validate_only, timeout_ms=timeout_ms)
        )

    def alter_configs(
        self,
        settings: Mapping[ConfigResource, Mapping[str, ConfigValue | None]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[ConfigResource, None]:
        """Replaces all settings of each resource: whatever is not named goes back to its default."""
        return self._call(self._inner.alter_configs(settings, validate_only=validate_only, timeout_ms=timeout_ms))

    # Cluster and log directories

    def describe_cluster(self, *, timeout_ms: int | None = None) -> ClusterDescription:
        """The cluster's id, its brokers, and which of them is the controller."""
        return self._call(self._inner.describe_cluster(timeout_ms=timeout_ms))

    def api_versions(self) -> Outcomes[BrokerAddress, dict[int, range]]:
        """The versions of each API, by its key, that each broker speaks."""
        return self._call(self._inner.api_versions())

    def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        timeout_ms: int | None = None,
    ) -> Outcomes[int, dict[str, LogDirDescription]]:
        """The log directories of brokers by their paths; of all brokers and partitions if none are named."""
        return self._call(self._inner.describe_log_dirs(brokers, partitions=partitions, timeout_ms=timeout_ms))

    def alter_replica_log_dirs(
        self, moves: Mapping[TopicPartitionReplica, str], *, timeout_ms: int | None = None
    ) -> Outcomes[TopicPartitionReplica, None]:
        """Has replicas copied to other log directories of their brokers. `describe_log_dirs` shows how far they are."""
        return self._call(self._inner.alter_replica_log_dirs(moves, timeout_ms=timeout_ms))

    # Replicas and leaders

    def alter_partition_reassignments(
        self, replicas: Mapping[TopicPartition, Iterable[int] | None], *, timeout_ms: int | None = None
    ) -> Outcomes[TopicPartition, None]:
        """Has partitions moved to other brokers, the preferred leader first; None cancels what is under way.

        It has begun when this returns; `list_partition_reassignments` shows what has not ended.
        """
        return self._call(self._inner.alter_partition_reassignments(replicas, timeout_ms=timeout_ms))

    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The reassignments that are under way: all, or those of some partitions."""
        return self._call(self._inner.list_partition_reassignments(partitions, timeout_ms=timeout_ms))

    def elect_leaders(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        kind: ElectionType = ElectionType.PREFERRED,
        timeout_ms: int | None = None,
    ) -> Outcomes[TopicPartition, None]:
        """Has leaders elected: of some partitions, or wherever it is needed.

        A partition that is named and led as it should be has the error ELECTION_NOT_NEEDED.
        """
        return self._call(self._inner.elect_leaders(partitions, kind=kind, timeout_ms=timeout_ms))
