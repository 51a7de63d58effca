"""The groups of one shard with their offsets: which exist, of what kind, and how the log brings them back.

A group exists while the log says so (a group record, or any offset), or while somebody is about to join it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.machines.coordinator import CoordinatorRecord, Decision, ReplayContext, Token
from ottla.machines.groups.classic.group import ClassicGroup
from ottla.machines.groups.classic.states import GroupState
from ottla.machines.groups.config import GroupConfig, TopicView
from ottla.machines.groups.consumer.group import ConsumerGroup
from ottla.machines.groups.consumer.state import Draft
from ottla.machines.groups.migration import downgrade
from ottla.machines.groups.offset_requests import AgeRule, expired
from ottla.machines.groups.offsets import (
    NO_PRODUCER,
    CommittedOffset,
    OffsetStore,
    PartitionKey,
    committed_offset,
    offset_record,
)
from ottla.wire.message import StoredRecord
from ottla.wire.stored import consumer_offsets as stored

Group = ClassicGroup | ConsumerGroup


class GroupTable:
    def __init__(self, config: GroupConfig, topics: TopicView) -> None:
        self.offsets = OffsetStore()
        self._config = config
        self._topics = topics
        self._groups: dict[str, Group] = {}

    def __iter__(self) -> Iterator[Group]:
        """By group id. The table may change meanwhile."""
        return iter([group for _, group in sorted(self._groups.items())])

    def get(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    def put(self, group: Group) -> None:
        """Also over a group of the other kind, whose tombstones are on their way."""
        self._groups[group.group_id] = group

    def new_consumer_group(self, group_id: str) -> ConsumerGroup:
        """Not in the table yet."""
        return ConsumerGroup(group_id, self._config, self._topics, self._downgrade)

    def _downgrade(self, draft: Draft, leaving_id: str | None, now_ms: int) -> Decision | None:
        if not downgrade.is_due(draft.state, leaving_id, self._config):
            return None
        group, decision = downgrade.downgrade(draft, leaving_id, self._config, self._topics, now_ms)
        self.put(group)
        return decision

    def forget_if_nothing_left(self, group_id: str) -> None:
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup) and group.has_nothing and not self.offsets.has_any(group_id):
            self._drop(group)

    def remove(self, group: Group) -> list[CoordinatorRecord]:
        """What takes an empty group and all its offsets out of the log."""
        records = self.offsets.tombstones(group.group_id) + group.tombstones()
        if isinstance(group, ClassicGroup):
            group.issued_ids.clear()
            self.forget_if_nothing_left(group.group_id)
        return records

    def expire(self, group: Group, now_ms: int) -> list[CoordinatorRecord]:
        """Tombstones of offsets that are too old, and of a group that has neither members nor offsets left."""
        group_id = group.group_id
        old = expired(self.offsets, group_id, _age_rule(group), self._config.offsets_retention_ms, now_ms)
        records = [offset_record(group_id, partition, None) for partition in old]
        keeps_some = len(old) < len(self.offsets.of_group(group_id)) or self.offsets.pending_of_group(group_id)
        if group.is_empty and not keeps_some and not (isinstance(group, ClassicGroup) and group.issued_ids):
            records += group.tombstones()
            self.forget_if_nothing_left(group_id)
        return records

    def close(self) -> list[Token]:
        tokens: list[Token] = []
        for group in self:
            if isinstance(group, ClassicGroup):
                tokens += group.parked()
                group.move_to(GroupState.DEAD)
        return tokens

    def replay(self, key: StoredRecord, value: StoredRecord | None, context: ReplayContext) -> None:
        match key, value:
            case stored.OffsetCommitKey(), None:
                self.offsets.forget(key.group, (key.topic, key.partition))
                self.forget_if_nothing_left(key.group)
            case stored.OffsetCommitKey(), stored.OffsetCommitValue():
                committed = committed_offset(value, context.offset)
                self.replay_offset(key.group, (key.topic, key.partition), committed, context.producer_id)
            case stored.GroupMetadataKey(), None | stored.GroupMetadataValue():
                self._replay_classic(key.group, value)
            case _:
                self._replay_consumer(key, value)

    def replay_offset(
        self, group_id: str, partition: PartitionKey, committed: CommittedOffset, producer_id: int = NO_PRODUCER
    ) -> None:
        self.offsets.put(group_id, partition, committed, producer_id)
        if group_id not in self._groups:
            self._groups[group_id] = ClassicGroup(group_id, self._config)

    def _replay_classic(self, group_id: str, value: stored.GroupMetadataValue | None) -> None:
        group = self._groups.get(group_id)
        if value is None:
            # If the group has become one of the other kind, the tombstone is part of that change.
            if isinstance(group, ClassicGroup):
                self._drop(group)
            return
        if not isinstance(group, ClassicGroup):
            group = ClassicGroup(group_id, self._config)
            self._groups[group_id] = group
        group.replay(value)

    def _replay_consumer(self, key: StoredRecord, value: StoredRecord | None) -> None:
        group_id: str = key.group_id  # type: ignore[attr-defined]  # all keys of KIP-848 groups have it
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if value is None:
                return
            group = self.new_consumer_group(group_id)
            self._groups[group_id] = group
        group.replay(key, value)
        if isinstance(key, stored.ConsumerGroupMetadataKey) and value is None:
            self._drop(group)

    def _drop(self, group: Group) -> None:
        """Offsets may outlive their group; they then belong to one without members."""
        group_id = group.group_id
        del self._groups[group_id]
        if isinstance(group, ClassicGroup):
            group.move_to(GroupState.DEAD)
        if self.offsets.has_any(group_id):
            self._groups[group_id] = ClassicGroup(group_id, self._config)


def _age_rule(group: Group) -> AgeRule:
    if isinstance(group, ClassicGroup):
        return group.offset_age_starts_ms

    def since_commit(topic: str, commit_timestamp_ms: int) -> int | None:
        return None if group.is_subscribed_to(topic) else commit_timestamp_ms

    return since_commit
