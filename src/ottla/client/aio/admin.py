"""The admin client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Self

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.client.aio.admin_caller import AdminCaller, unanswered
from ottla.client.aio.cluster_link import GROUP, TRANSACTION
from ottla.client.core import admin_configs, admin_groups, admin_partitions, admin_topics
from ottla.client.core.admin_arguments import as_list
from ottla.client.core.admin_options import AdminSettings
from ottla.client.core.admin_outcomes import Call, Outcomes, admin_error
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
from ottla.client.core.offset_requests import OffsetAndTimestamp, offsets_to_commit
from ottla.client.core.producer_transaction import PreparedTransaction
from ottla.client.core.settings import merge_settings
from ottla.client.errors import ClientError
from ottla.wire.apis.metadata import MetadataResponseTopic

HANGING_AFTER_MS = 15 * 60 * 1000
"""Longer than any transaction may take by default (`transaction.max.timeout.ms`)."""


class Admin:
    """Looks after topics, settings, groups, offsets and transactions. Use it with `async with`, or `start` and `close`.

    Settings have Kafka's names in a mapping (`{"bootstrap.servers": "localhost:9092"}`) or are keywords
    (`bootstrap_servers="localhost:9092"`). A call about several things returns `Outcomes`, a result or an error for
    each; other calls raise. `timeout_ms` is for one call, in place of `default.api.timeout.ms`.
    """

    def __init__(self, config: Mapping[str, object] | None = None, **settings: object) -> None:
        self.settings = AdminSettings.parse(merge_settings(config, settings))
        self._caller = AdminCaller(self.settings)

    # Life

    async def start(self) -> Self:
        """Finds the cluster; `async with` calls this."""
        self._caller.check_open()
        try:
            await self._caller.start()
        except BaseException:
            self._caller.close()
            raise
        return self

    async def close(self) -> None:
        """Closes the connections. Closing twice is harmless."""
        self._caller.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    # Topics

    async def list_topics(
        self, *, include_internal: bool = False, timeout_ms: int | None = None
    ) -> dict[str, TopicListing]:
        """Every topic, sorted by name."""
        listed = [
            TopicListing(topic.name or "", topic.topic_id, topic.is_internal)
            for topic in await self._all_topics(timeout_ms)
        ]
        return {topic.name: topic for topic in sorted(listed) if include_internal or not topic.is_internal}

    async def describe_topics(
        self, topics: Iterable[TopicKey] | None = None, *, timeout_ms: int | None = None
    ) -> Outcomes[TopicKey, TopicDescription]:
        """Partitions and replicas of topics, which may be named by their ids; of all topics if none are named."""
        if topics is None:
            described = sorted(map(admin_topics.topic_description, await self._all_topics(timeout_ms)))
            return Outcomes({topic.name: topic for topic in described}, what="describe_topics")
        asked = as_list(topics, "topics")
        return await self._caller.any_broker(admin_topics.describe_topics_call(asked), asked, timeout_ms)

    async def _all_topics(self, timeout_ms: int | None) -> list[MetadataResponseTopic]:
        call = admin_topics.all_topics_call()
        outcomes = await self._caller.any_broker(call, [admin_topics.ALL_TOPICS], timeout_ms)
        return outcomes[admin_topics.ALL_TOPICS]

    async def create_topics(
        self, topics: Iterable[NewTopic | str], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[str, CreatedTopic]:
        """A topic given as a name gets the brokers' numbers of partitions and replicas."""
        new = [NewTopic(topic) if isinstance(topic, str) else topic for topic in as_list(topics, "topics")]
        call = admin_topics.create_topics_call(new, validate_only=validate_only, timeout_ms=self._request_ms)
        return await self._caller.controller(call, [topic.name for topic in new], timeout_ms)

    async def delete_topics(
        self, topics: Iterable[TopicKey], *, timeout_ms: int | None = None
    ) -> Outcomes[TopicKey, None]:
        """Topics by their names or ids."""
        asked = as_list(topics, "topics")
        call = admin_topics.delete_topics_call(asked, timeout_ms=self._request_ms)
        return await self._caller.controller(call, asked, timeout_ms)

    async def create_partitions(
        self,
        totals: Mapping[str, NewPartitions | int],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, None]:
        """Makes topics grow to as many partitions as given."""
        wanted = {name: NewPartitions(new) if isinstance(new, int) else new for name, new in totals.items()}
        call = admin_topics.create_partitions_call(wanted, validate_only=validate_only, timeout_ms=self._request_ms)
        return await self._caller.controller(call, wanted, timeout_ms)

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

    # Groups

    async def list_groups(
        self, *, states: Collection[str] = (), types: Collection[str] = (), timeout_ms: int | None = None
    ) -> list[GroupListing]:
        """All groups, or those in some states (`Stable`, `Empty`, …) or of some types (`classic`, `consumer`)."""
        wanted = as_list(states, "states"), as_list(types, "types")
        outcomes = await self._caller.brokers(
            lambda node: admin_groups.list_groups_call(node, *wanted), None, timeout_ms
        )
        return sorted({group for groups in outcomes.check().values() for group in groups})

    async def describe_groups(
        self, group_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> Outcomes[str, GroupDescription]:
        """State and members of groups of both protocols."""
        wanted = as_list(group_ids, "group_ids")

        async def describe(group_id: str) -> GroupDescription | ClientError:
            answer = await self._ask_group(group_id, admin_groups.describe_consumer_groups_call())
            if isinstance(answer, ClientError) and answer.code in admin_groups.NOT_A_CONSUMER_GROUP:
                answer = await self._ask_group(group_id, admin_groups.describe_classic_groups_call())
            return answer

        async def ask(pending: list[str]) -> dict[str, GroupDescription | ClientError]:
            return dict(zip(pending, await asyncio.gather(*map(describe, pending)), strict=True))

        return await self._caller.settle(wanted, ask, "describe_groups", timeout_ms)

    async def _ask_group(self, group_id: str, call: Call[str, GroupDescription]) -> GroupDescription | ClientError:
        answers = await self._caller.ask_coordinator(GROUP, group_id, call, [group_id])
        return answers.get(group_id, unanswered(group_id))

    async def delete_groups(self, group_ids: Iterable[str], *, timeout_ms: int | None = None) -> Outcomes[str, None]:
        """Deletes groups without members, and their offsets."""
        call = admin_groups.delete_groups_call()
        return await self._caller.coordinators(GROUP, lambda _: call, as_list(group_ids, "group_ids"), timeout_ms)

    async def remove_members(
        self,
        group_id: str,
        member_ids: Iterable[str] | None = None,
        *,
        instance_ids: Iterable[str] = (),
        reason: str | None = None,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, None]:
        """Takes members out of a classic group, by member id or by `group.instance.id`; all if none are named."""
        instances = set(as_list(instance_ids, "instance_ids"))
        members = set(as_list(member_ids or (), "member_ids"))
        if member_ids is None and not instances:
            described = (await self.describe_groups([group_id], timeout_ms=timeout_ms))[group_id]
            instances = {member.instance_id for member in described.members if member.instance_id is not None}
            members = {member.member_id for member in described.members if member.instance_id is None}
        call = admin_groups.remove_members_call(group_id, instances, reason)
        wanted = [*sorted(members), *sorted(instances)]
        outcomes = await self._caller.coordinator(GROUP, group_id, call, wanted, timeout_ms)
        if not any(error.code is ErrorCode.UNKNOWN_MEMBER_ID for error in outcomes.errors.values()):
            return outcomes
        groups = await self.describe_groups([group_id], timeout_ms=timeout_ms)
        return admin_groups.explain_strangers(outcomes, groups.results.get(group_id))

    # Offsets of groups

    async def list_group_offsets(
        self,
        groups: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
        *,
        require_stable: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Committed offsets of groups: all, or those of the partitions that are named for a group.

        With `require_stable` offsets that an open transaction may still change are waited for.
        """
        named = groups if isinstance(groups, Mapping) else dict.fromkeys(as_list(groups, "groups"))
        wanted = {
            group: None if chosen is None else as_list(chosen, "the partitions of a group")
            for group, chosen in named.items()
        }
        return await self._caller.coordinators(
            GROUP,
            lambda group: admin_groups.list_group_offsets_call(group, wanted.get(group), require_stable=require_stable),
            wanted,
            timeout_ms,
        )

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        timeout_ms: int | None = None,
    ) -> Outcomes[TopicPartition, None]:
        """Sets where a group without members goes on reading."""
        commits = offsets_to_commit(offsets)
        call = admin_groups.alter_group_offsets_call(group_id, commits)
        return await self._caller.coordinator(GROUP, group_id, call, commits, timeout_ms)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> Outcomes[TopicPartition, None]:
        """Forgets where a group was in topics it does not read now."""
        call = admin_groups.delete_group_offsets_call(group_id)
        wanted = [TopicPartition(*partition) for partition in as_list(partitions, "partitions")]
        return await self._caller.coordinator(GROUP, group_id, call, wanted, timeout_ms)

    # Partitions

    async def list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec | int],
        *,
        read_committed: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[TopicPartition, OffsetAndTimestamp]:
        """Offsets of places (`OffsetSpec`) or of times in milliseconds; -1 if no record is that young.

        With `read_committed` the latest offset is that before the first open transaction.
        """
        wanted = {TopicPartition(*partition): int(spec) for partition, spec in specs.items()}
        call = admin_partitions.list_offsets_call(wanted, read_committed=read_committed)
        return await self._caller.leaders(call, wanted, timeout_ms)

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> Outcomes[TopicPartition, int]:
        """Deletes the records before an offset (-1: all there are); gives the offset the partition now begins at."""
        wanted = {TopicPartition(*partition): offset for partition, offset in before.items()}
        call = admin_partitions.delete_records_call(wanted, timeout_ms=self._request_ms)
        return await self._caller.leaders(call, wanted, timeout_ms)

    # Producers and transactions

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> Outcomes[TopicPartition, list[ProducerDescription]]:
        """The idempotent producers that leaders of partitions remember."""
        wanted = as_list(partitions, "partitions")
        return await self._caller.leaders(admin_partitions.describe_producers_call(), wanted, timeout_ms)

    async def list_transactions(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        min_duration_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> list[TransactionListing]:
        """All transactional ids, or those in some states, of some producers, or with transactions open for long."""
        wanted = as_list(states, "states"), as_list(producer_ids, "producer_ids")
        outcomes = await self._caller.brokers(
            lambda node: admin_partitions.list_transactions_call(node, *wanted, min_duration_ms),
            None,
            timeout_ms,
        )
        return sorted({entry for entries in outcomes.check().values() for entry in entries})

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> Outcomes[str, TransactionDescription]:
        call = admin_partitions.describe_transactions_call()
        wanted = as_list(transactional_ids, "transactional_ids")
        return await self._caller.coordinators(TRANSACTION, lambda _: call, wanted, timeout_ms)

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> Outcomes[str, FencedProducer]:
        """Aborts what producers have open, and shuts them out: they find themselves fenced."""
        wanted = as_list(transactional_ids, "transactional_ids")
        return await self._caller.coordinators(TRANSACTION, admin_partitions.fence_producer_call, wanted, timeout_ms)

    async def end_transactions(
        self, transactions: Iterable[PreparedTransaction], *, committed: bool, timeout_ms: int | None = None
    ) -> Outcomes[str, None]:
        """Commits or aborts transactions that producers have prepared, wherever these are. Asking twice is harmless.

        The errors, by transactional id: PRODUCER_FENCED or INVALID_PRODUCER_EPOCH if another producer has taken over or
        the time was up, and INVALID_TXN_STATE if the transaction has been ended the other way.
        """
        by_id = {transaction.transactional_id: transaction for transaction in as_list(transactions, "transactions")}
        return await self._caller.coordinators(
            TRANSACTION,
            lambda found: admin_partitions.end_transaction_call(found, by_id, committed=committed),
            by_id,
            timeout_ms,
        )

    async def find_hanging_transactions(
        self,
        partitions: Iterable[TopicPartition],
        *,
        min_age_ms: int = HANGING_AFTER_MS,
        timeout_ms: int | None = None,
    ) -> list[HangingTransaction]:
        """Transactions open in these partitions that no coordinator will end; nothing is written for `min_age_ms`."""
        producers = (await self.describe_producers(partitions, timeout_ms=timeout_ms)).check()
        open_in = {
            partition: [producer for producer in found if producer.txn_start_offset is not None]
            for partition, found in producers.items()
        }
        ids = {producer.producer_id for found in open_in.values() for producer in found}
        if not ids:
            return []
        listed = await self.list_transactions(producer_ids=ids, timeout_ms=timeout_ms)
        described = await self.describe_transactions(
            [entry.transactional_id for entry in listed], timeout_ms=timeout_ms
        )
        for error in described.errors.values():
            # An id that has expired since it was listed has no transaction.
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise error
        return admin_partitions.hanging(
            open_in, described.results.values(), older_than_ms=self._caller.clock.wall_ms() - min_age_ms
        )

    async def abort_transaction(self, hanging: HangingTransaction, *, timeout_ms: int | None = None) -> None:
        """Ends a transaction in one partition behind its coordinator's back. For hanging ones only."""
        call = admin_partitions.abort_call(hanging.partition, hanging.producer)
        (await self._caller.leaders(call, [hanging.partition], timeout_ms)).check()

    @property
    def _request_ms(self) -> int:
        """How long a broker may wait until a change is made everywhere."""
        return self.settings.client.request_timeout_ms
