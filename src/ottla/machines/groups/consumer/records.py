"""The stored records of a KIP-848 group, from and to the values the group works with. Decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.base.types import Uuid
from ottla.machines.coordinator import CoordinatorRecord
from ottla.machines.groups.consumer.member import (
    ClassicMetadata,
    CurrentAssignment,
    MemberState,
    Partitions,
    Subscription,
)
from ottla.wire.stored import consumer_offsets as stored

# Key versions, which say what a record is.
_GROUP, _PARTITIONS, _MEMBER, _TARGET, _TARGET_MEMBER, _CURRENT = range(3, 9)


class SubscribedTopic(NamedTuple):
    """A topic as it was when the group's target was last thought over."""

    topic_id: Uuid
    partition_count: int


def group_epoch(group_id: str, epoch: int | None) -> CoordinatorRecord:
    """In these functions, None makes the tombstone."""
    value = None if epoch is None else stored.ConsumerGroupMetadataValue(epoch=epoch)
    return CoordinatorRecord(stored.ConsumerGroupMetadataKey(group_id=group_id), _GROUP, value)


def subscribed_topics(group_id: str, topics: Mapping[str, SubscribedTopic] | None) -> CoordinatorRecord:
    value = None
    if topics is not None:
        value = stored.ConsumerGroupPartitionMetadataValue(
            topics=[
                stored.TopicMetadata(topic_id=topic.topic_id, topic_name=name, num_partitions=topic.partition_count)
                for name, topic in sorted(topics.items())
            ]
        )
    return CoordinatorRecord(stored.ConsumerGroupPartitionMetadataKey(group_id=group_id), _PARTITIONS, value)


def member_subscription(group_id: str, member_id: str, subscription: Subscription | None) -> CoordinatorRecord:
    value = None
    if subscription is not None:
        value = stored.ConsumerGroupMemberMetadataValue(
            instance_id=subscription.instance_id,
            rack_id=subscription.rack_id,
            client_id=subscription.client_id,
            client_host=subscription.client_host,
            subscribed_topic_names=sorted(subscription.topic_names),
            subscribed_topic_regex=subscription.topic_regex,
            rebalance_timeout_ms=subscription.rebalance_timeout_ms,
            server_assignor=subscription.server_assignor,
            classic_member_metadata=_stored_classic(subscription.classic),
        )
    key = stored.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
    return CoordinatorRecord(key, _MEMBER, value)


def target_epoch(group_id: str, epoch: int | None) -> CoordinatorRecord:
    value = None if epoch is None else stored.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch)
    return CoordinatorRecord(stored.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), _TARGET, value)


def member_target(group_id: str, member_id: str, target: Partitions | None) -> CoordinatorRecord:
    value = None
    if target is not None:
        value = stored.ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                stored.TargetTopicPartitions(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in by_topic(target)
            ]
        )
    key = stored.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return CoordinatorRecord(key, _TARGET_MEMBER, value)


def current_assignment(group_id: str, member_id: str, current: CurrentAssignment | None) -> CoordinatorRecord:
    value = None
    if current is not None:
        value = stored.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=current.epoch,
            previous_member_epoch=current.previous_epoch,
            state=int(current.state),
            assigned_partitions=_stored(current.assigned),
            partitions_pending_revocation=_stored(current.pending_revocation),
        )
    key = stored.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return CoordinatorRecord(key, _CURRENT, value)


def by_topic(partitions: Partitions) -> list[tuple[Uuid, list[int]]]:
    """Sorted, as messages and records list them."""
    topics: dict[Uuid, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        topics.setdefault(topic_id, []).append(partition)
    return list(topics.items())


def read_topics(value: stored.ConsumerGroupPartitionMetadataValue) -> dict[str, SubscribedTopic]:
    return {topic.topic_name: SubscribedTopic(topic.topic_id, topic.num_partitions) for topic in value.topics}


def read_subscription(value: stored.ConsumerGroupMemberMetadataValue) -> Subscription:
    return Subscription(
        topic_names=frozenset(value.subscribed_topic_names),
        topic_regex=value.subscribed_topic_regex or None,
        server_assignor=value.server_assignor,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        classic=_read_classic(value.classic_member_metadata),
    )


def read_target(value: stored.ConsumerGroupTargetAssignmentMemberValue) -> Partitions:
    return frozenset((topic.topic_id, index) for topic in value.topic_partitions for index in topic.partitions)


def read_current(value: stored.ConsumerGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
    try:
        state = MemberState(value.state)
    except ValueError:
        # A state of a newer version. This one is thought over at each heartbeat, so the member cannot get stuck in it.
        state = MemberState.UNRELEASED
    return CurrentAssignment(
        value.member_epoch,
        value.previous_member_epoch,
        state,
        _read(value.assigned_partitions),
        _read(value.partitions_pending_revocation),
    )


def _stored_classic(classic: ClassicMetadata | None) -> stored.ClassicMemberMetadata | None:
    if classic is None:
        return None
    return stored.ClassicMemberMetadata(
        session_timeout_ms=classic.session_timeout_ms,
        supported_protocols=[stored.ClassicProtocol(name=name, metadata=data) for name, data in classic.protocols],
    )


def _read_classic(value: stored.ClassicMemberMetadata | None) -> ClassicMetadata | None:
    if value is None:
        return None
    protocols = tuple((protocol.name, protocol.metadata) for protocol in value.supported_protocols)
    return ClassicMetadata(value.session_timeout_ms, protocols)


def _stored(partitions: Partitions) -> list[stored.CurrentTopicPartitions]:
    return [
        stored.CurrentTopicPartitions(topic_id=topic_id, partitions=indexes)
        for topic_id, indexes in by_topic(partitions)
    ]


def _read(topics: list[stored.CurrentTopicPartitions]) -> Partitions:
    return frozenset((topic.topic_id, index) for topic in topics for index in topic.partitions)
