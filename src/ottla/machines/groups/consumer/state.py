"""The durable state of a KIP-848 group: exactly what its records say, and nothing changes it but `replay`.

Decisions work on a `Draft`: each record they add is replayed on a copy at once, so that a decision's later steps see
what its earlier ones decided, by the same code that will apply them for good.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any

from ottla.machines.coordinator import CoordinatorRecord, Decision
from ottla.machines.groups.consumer import records
from ottla.machines.groups.consumer.member import (
    NO_PARTITIONS,
    ConsumerMember,
    CurrentAssignment,
    IdPartition,
    Partitions,
    Subscription,
)
from ottla.machines.groups.consumer.records import SubscribedTopic
from ottla.machines.groups.notes import listed
from ottla.wire.message import StoredRecord
from ottla.wire.stored import consumer_offsets as stored


class ConsumerGroupPhase(Enum):
    """The value is the text that ConsumerGroupDescribe and ListGroups show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroupState:
    def __init__(self) -> None:
        self.exists = False
        """False before the first record and after the tombstone of the group itself."""
        self.epoch = 0
        self.target_epoch = 0
        self.topics: dict[str, SubscribedTopic] = {}
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Partitions] = {}
        self._holders: dict[IdPartition, str] = {}
        self._static_ids: dict[str, str] = {}

    def copy(self) -> ConsumerGroupState:
        """Independent of this one: the dictionaries are copied, and what they hold never changes."""
        other = ConsumerGroupState()
        for name, value in vars(self).items():
            setattr(other, name, value.copy() if isinstance(value, dict) else value)
        return other

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConsumerGroupState) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    @property
    def phase(self) -> ConsumerGroupPhase:
        if not self.exists:
            return ConsumerGroupPhase.DEAD
        if not self.members:
            return ConsumerGroupPhase.EMPTY
        if self.target_epoch < self.epoch:
            return ConsumerGroupPhase.ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return ConsumerGroupPhase.STABLE
        return ConsumerGroupPhase.RECONCILING

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        member_id = self._static_ids.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def target_of(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NO_PARTITIONS)

    def is_held_by_another(self, partition: IdPartition, member_id: str) -> bool:
        return self._holders.get(partition, member_id) != member_id

    def replay(self, key: StoredRecord, value: StoredRecord | None) -> None:
        apply = _REPLAY.get(type(key))
        if apply is None:
            raise TypeError(f"{type(key).__name__} is not the key of a KIP-848 group's record")
        apply(self, key, value)

    def _replay_group(
        self, key: stored.ConsumerGroupMetadataKey, value: stored.ConsumerGroupMetadataValue | None
    ) -> None:
        self.exists = value is not None
        self.epoch = 0 if value is None else value.epoch

    def _replay_topics(
        self, key: stored.ConsumerGroupPartitionMetadataKey, value: stored.ConsumerGroupPartitionMetadataValue | None
    ) -> None:
        self.topics = {} if value is None else records.read_topics(value)

    def _replay_member(
        self, key: stored.ConsumerGroupMemberMetadataKey, value: stored.ConsumerGroupMemberMetadataValue | None
    ) -> None:
        # Compaction may have left this record behind the member's newer ones, or in front of its tombstones' place.
        member = self.members.get(key.member_id)
        if member is not None:
            self._forget_instance(member)
        if value is None:
            if member is not None:
                self._set_current(member, CurrentAssignment())
                del self.members[key.member_id]
            return
        subscription = records.read_subscription(value)
        member = ConsumerMember(key.member_id) if member is None else member
        self.members[key.member_id] = replace(member, subscription=subscription)
        if subscription.instance_id is not None:
            self._static_ids[subscription.instance_id] = key.member_id

    def _replay_target_epoch(
        self,
        key: stored.ConsumerGroupTargetAssignmentMetadataKey,
        value: stored.ConsumerGroupTargetAssignmentMetadataValue | None,
    ) -> None:
        self.target_epoch = 0 if value is None else value.assignment_epoch

    def _replay_target(
        self,
        key: stored.ConsumerGroupTargetAssignmentMemberKey,
        value: stored.ConsumerGroupTargetAssignmentMemberValue | None,
    ) -> None:
        if value is None:
            self.targets.pop(key.member_id, None)
        else:
            self.targets[key.member_id] = records.read_target(value)

    def _replay_current(
        self,
        key: stored.ConsumerGroupCurrentMemberAssignmentKey,
        value: stored.ConsumerGroupCurrentMemberAssignmentValue | None,
    ) -> None:
        member = self.members.get(key.member_id)
        if value is not None:
            self._set_current(member or ConsumerMember(key.member_id), records.read_current(value))
        elif member is not None:
            self._set_current(member, CurrentAssignment())

    def _set_current(self, member: ConsumerMember, current: CurrentAssignment) -> None:
        for partition in member.current.held - current.held:
            # A newer holder's record may stand before this one in a compacted log.
            if self._holders.get(partition) == member.member_id:
                del self._holders[partition]
        for partition in current.held:
            self._holders[partition] = member.member_id
        self.members[member.member_id] = replace(member, current=current)

    def _forget_instance(self, member: ConsumerMember) -> None:
        instance_id = member.subscription.instance_id
        if instance_id is not None and self._static_ids.get(instance_id) == member.member_id:
            del self._static_ids[instance_id]


# The keys tell which value comes with them, which the type system cannot follow.
_REPLAY: dict[type[StoredRecord], Callable[[ConsumerGroupState, Any, Any], None]] = {
    stored.ConsumerGroupMetadataKey: ConsumerGroupState._replay_group,
    stored.ConsumerGroupPartitionMetadataKey: ConsumerGroupState._replay_topics,
    stored.ConsumerGroupMemberMetadataKey: ConsumerGroupState._replay_member,
    stored.ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroupState._replay_target_epoch,
    stored.ConsumerGroupTargetAssignmentMemberKey: ConsumerGroupState._replay_target,
    stored.ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroupState._replay_current,
}


class Draft:
    """The records of one decision in the making, and the state as it will be after them."""

    def __init__(self, group_id: str, state: ConsumerGroupState) -> None:
        self.group_id = group_id
        self.state = state
        self.records: list[CoordinatorRecord] = []
        self.notes: list[str] = []

    def decision(self) -> Decision:
        """To write the records, and to say what there is to say of them."""
        return Decision(self.records, notes=self.notes)

    def next_epoch(self, reason: str) -> None:
        self.put_epoch(self.state.epoch + 1)
        members = listed(sorted(self.state.members)) if self.state.members else "no members"
        self.notes.append(f"group {self.group_id}: epoch {self.state.epoch} with {members}, because {reason}")

    def put_epoch(self, epoch: int) -> None:
        self._add(records.group_epoch(self.group_id, epoch))

    def put_topics(self, topics: dict[str, SubscribedTopic]) -> None:
        self._add(records.subscribed_topics(self.group_id, topics))

    def put_subscription(self, member_id: str, subscription: Subscription) -> None:
        self._add(records.member_subscription(self.group_id, member_id, subscription))

    def put_target_epoch(self, epoch: int) -> None:
        self._add(records.target_epoch(self.group_id, epoch))

    def put_target(self, member_id: str, target: Partitions) -> None:
        self._add(records.member_target(self.group_id, member_id, target))

    def put_current(self, member_id: str, current: CurrentAssignment) -> None:
        self._add(records.current_assignment(self.group_id, member_id, current))

    def remove_member(self, member_id: str) -> None:
        self._add(records.current_assignment(self.group_id, member_id, None))
        self._add(records.member_target(self.group_id, member_id, None))
        self._add(records.member_subscription(self.group_id, member_id, None))

    def remove_group(self) -> None:
        """With all its members, in Kafka's order."""
        member_ids = sorted(self.state.members)
        for member_id in member_ids:
            self._add(records.current_assignment(self.group_id, member_id, None))
        for member_id in member_ids:
            self._add(records.member_target(self.group_id, member_id, None))
        self._add(records.target_epoch(self.group_id, None))
        for member_id in member_ids:
            self._add(records.member_subscription(self.group_id, member_id, None))
        self._add(records.subscribed_topics(self.group_id, None))
        self._add(records.group_epoch(self.group_id, None))

    def _add(self, record: CoordinatorRecord) -> None:
        if not self.records:
            self.state = self.state.copy()
        self.records.append(record)
        self.state.replay(record.key, record.value)
