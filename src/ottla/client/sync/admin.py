"""The admin client for threads: the calls of `ottla.client.aio.Admin`, with an event loop in a thread behind them."""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

from ottla.base.types import TopicPartition
from ottla.client.aio.admin import HANGING_AFTER_MS
from ottla.client.aio.admin import Admin as AsyncAdmin
from ottla.client.core.admin_outcomes import Outcomes
from ottla.client.core.admin_topics import TopicKey
from ottla.client.core.admin_types import (
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigValue,
    CreatedTopic,
    FencedProducer,
    GroupDescription,
    GroupListing,
    HangingTransaction,
    LogDirDescription,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ProducerDescription,
    TopicDescription,
    TopicListing,
    TopicPartitionReplica,
    TransactionDescription,
    TransactionListing,
)
from ottla.client.core.cursors import OffsetAndMetadata
from ottla.client.core.metadata import BrokerAddress
from ottla.client.core.offset_requests import OffsetAndTimestamp
from ottla.client.core.producer_transaction import PreparedTransaction
from ottla.client.errors import ClientClosedError, ForkedError
from ottla.client.sync.loop_thread import LoopThread

T = TypeVar("T")


class Admin:
    """Looks after topics, settings, groups, offsets and transactions; any thread may use it. Use it with `with`, or
    call `close`.

    Settings have Kafka's names in a mapping (`{"bootstrap.servers": "localhost:9092"}`) or are keywords
    (`bootstrap_servers="localhost:9092"`). A call about several things returns `Outcomes`, a result or an error for
    each; other calls raise. `timeout_ms` is for one call, in place of `default.api.timeout.ms`.
    """

    def __init__(self, config: Mapping[str, object] | None = None, **settings: object) -> None:
        self._inner = AsyncAdmin(config, **settings)
        self.settings = self._inner.settings
        self._is_forked = False
        self._is_closed = False
        self._thread = LoopThread("ottla-admin", self._forked)
        try:
            self._thread.call(self._inner.start())
        except BaseException:
            self._is_closed = True
            self._thread.stop()
            raise

    def _forked(self) -> None:
        self._is_forked = True

    # Life

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections. Closing twice is harmless."""
        if self._is_closed or self._is_forked:
            return
        self._is_closed = True
        try:
            self._thread.call(self._inner.close())
        finally:
            self._thread.stop()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        if self._is_forked or self._is_closed:
            work.close()
            if self._is_forked:
                raise ForkedError("this admin client was made before the process forked; make a new one in the child")
            raise ClientClosedError("this admin client is closed; make another one")
        return self._thread.call(work)

    # Topics

    def list_topics(self, *, include_internal: bool = False, timeout_ms: int | None = None) -> dict[str, TopicListing]:
        """Every topic, sorted by name."""
        return self._call(self._inner.list_topics(include_internal=include_internal, timeout_ms=timeout_ms))

    def describe_topics(
        self, topics: Iterable[TopicKey] | None = None, *, timeout_ms: int | None = None
    ) -> Outcomes[TopicKey, TopicDescription]:
        """Partitions and replicas of topics, which may be named by their ids; of all topics if none are named."""
        return self._call(self._inner.describe_topics(topics, timeout_ms=timeout_ms))

    def create_topics(
        self, topics: Iterable[NewTopic | str], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[str, CreatedTopic]:
        """A topic given as a name gets the brokers' numbers of partitions and replicas."""
        return self._call(self._inner.create_topics(topics, validate_only=validate_only, timeout_ms=timeout_ms))

    def delete_topics(self, topics: Iterable[TopicKey], *, timeout_ms: int | None = None) -> Outcomes[TopicKey, None]:
        """Topics by their names or ids."""
        return self._call(self._inner.delete_topics(topics, timeout_ms=timeout_ms))

    def create_partitions(
        self,
        totals: Mapping[str, NewPartitions | int],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, None]:
        """Makes topics grow to as many partitions as given."""
        return self._call(self._inner.create_partitions(totals, validate_only=validate_only, timeout_ms=timeout_ms))

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

    # Groups

    def list_groups(
        self, *, states: Collection[str] = (), types: Collection[str] = (), timeout_ms: int | None = None
    ) -> list[GroupListing]:
        """All groups, or those in some states (`Stable`, `Empty`, …) or of some types (`classic`, `consumer`)."""
        return self._call(self._inner.list_groups(states=states, types=types, timeout_ms=timeout_ms))

    def describe_groups(
        self, group_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> Outcomes[str, GroupDescription]:
        """State and members of groups of both protocols."""
        return self._call(self._inner.describe_groups(group_ids, timeout_ms=timeout_ms))

    def delete_groups(self, group_ids: Iterable[str], *, timeout_ms: int | None = None) -> Outcomes[str, None]:
        """Deletes groups without members, and their offsets."""
        return self._call(self._inner.delete_groups(group_ids, timeout_ms=timeout_ms))

    def remove_members(
        self,
        group_id: str,
        member_ids: Iterable[str] | None = None,
        *,
        instance_ids: Iterable[str] = (),
        reason: str | None = None,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, None]:
        """Takes members out of a classic group, by member id or by `group.instance.id`; all if none are named."""
        return self._call(
            self._inner.remove_members(
                group_id, member_ids, instance_ids=instance_ids, reason=reason, timeout_ms=timeout_ms
            )
        )

    # Offsets of groups

    def list_group_offsets(
        self,
        groups: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
        *,
        require_stable: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Committed offsets of groups: all, or those of the partitions that are named for a group.

        With `require_stable` offsets that an open transaction may still change are waited for.
        """
        return self._call(self._inner.list_group_offsets(groups, require_stable=require_stable, timeout_ms=timeout_ms))

    def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        timeout_ms: int | None = None,
    ) -> Outcomes[TopicPartition, None]:
        """Sets where a group without members goes on reading."""
        return self._call(self._inner.alter_group_offsets(group_id, offsets, timeout_ms=timeout_ms))

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> Outcomes[TopicPartition, None]:
        """Forgets where a group was in topics it does not read now."""
        return self._call(self._inner.delete_group_offsets(group_id, partitions, timeout_ms=timeout_ms))

    # Partitions

    def list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec | int],
        *,
        read_committed: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[TopicPartition, OffsetAndTimestamp]:
        """Offsets of places (`OffsetSpec`) or of times in milliseconds; -1 if no record is that young.

        With `read_committed` the latest offset is that before the first open transaction.
        """
        return self._call(self._inner.list_offsets(specs, read_committed=read_committed, timeout_ms=timeout_ms))

    def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> Outcomes[TopicPartition, int]:
        """Deletes the records before an offset (-1: all there are); gives the offset the partition now begins at."""
        return self._call(self._inner.delete_records(before, timeout_ms=timeout_ms))

    # Producers and transactions

    def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> Outcomes[TopicPartition, list[ProducerDescription]]:
        """The idempotent producers that leaders of partitions remember."""
        return self._call(self._inner.describe_producers(partitions, timeout_ms=timeout_ms))

    def list_transactions(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        min_duration_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> list[TransactionListing]:
        """All transactional ids, or those in some states, of some producers, or with transactions open for long."""
        return self._call(
            self._inner.list_transactions(
                states=states, producer_ids=producer_ids, min_duration_ms=min_duration_ms, timeout_ms=timeout_ms
            )
        )

    def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> Outcomes[str, TransactionDescription]:
        return self._call(self._inner.describe_transactions(transactional_ids, timeout_ms=timeout_ms))

    def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> Outcomes[str, FencedProducer]:
        """Aborts what producers have open, and shuts them out: they find themselves fenced."""
        return self._call(self._inner.fence_producers(transactional_ids, timeout_ms=timeout_ms))

    def end_transactions(
        self, transactions: Iterable[PreparedTransaction], *, committed: bool, timeout_ms: int | None = None
    ) -> Outcomes[str, None]:
        """Commits or aborts transactions that producers have prepared, wherever these are. Asking twice is harmless.

        The errors, by transactional id: PRODUCER_FENCED or INVALID_PRODUCER_EPOCH if another producer has taken over or
        the time was up, and INVALID_TXN_STATE if the transaction has been ended the other way.
        """
        return self._call(self._inner.end_transactions(transactions, committed=committed, timeout_ms=timeout_ms))

    def find_hanging_transactions(
        self,
        partitions: Iterable[TopicPartition],
        *,
        min_age_ms: int = HANGING_AFTER_MS,
        timeout_ms: int | None = None,
    ) -> list[HangingTransaction]:
        """Transactions open in these partitions that no coordinator will end; nothing is written for `min_age_ms`."""
        return self._call(
            self._inner.find_hanging_transactions(partitions, min_age_ms=min_age_ms, timeout_ms=timeout_ms)
        )

    def abort_transaction(self, hanging: HangingTransaction, *, timeout_ms: int | None = None) -> None:
        """Ends a transaction in one partition behind its coordinator's back. For hanging ones only."""
        return self._call(self._inner.abort_transaction(hanging, timeout_ms=timeout_ms))
