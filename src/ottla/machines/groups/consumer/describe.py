"""A KIP-848 group as ConsumerGroupDescribe shows it."""

from __future__ import annotations

from ottla.machines.groups.config import TopicView
from ottla.machines.groups.consumer.member import ConsumerMember, Partitions
from ottla.machines.groups.consumer.records import by_topic
from ottla.machines.groups.consumer.state import ConsumerGroupState
from ottla.wire.apis.consumer_group_describe import (
    DescribedAssignment,
    DescribedGroup,
    DescribedMember,
    DescribedTopicPartitions,
)

CLASSIC_MEMBER_TYPE = 0
CONSUMER_MEMBER_TYPE = 1


def describe_group(group_id: str, state: ConsumerGroupState, assignor: str, topics: TopicView) -> DescribedGroup:
    return DescribedGroup(
        group_id=group_id,
        group_state=state.phase.value,
        group_epoch=state.epoch,
        assignment_epoch=state.target_epoch,
        assignor_name=assignor,
        members=[
            _member(member, state.target_of(member_id), topics) for member_id, member in sorted(state.members.items())
        ],
    )


def _member(member: ConsumerMember, target: Partitions, topics: TopicView) -> DescribedMember:
    subscription = member.subscription
    return DescribedMember(
        member_id=member.member_id,
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        member_epoch=member.current.epoch,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=sorted(subscription.topic_names),
        subscribed_topic_regex=subscription.topic_regex,
        assignment=_assignment(member.current.assigned, topics),
        target_assignment=_assignment(target, topics),
        member_type=CLASSIC_MEMBER_TYPE if member.is_classic else CONSUMER_MEMBER_TYPE,
    )


def _assignment(partitions: Partitions, topics: TopicView) -> DescribedAssignment:
    """Partitions of a topic that was deleted meanwhile have no name to show them under, and are left out."""
    return DescribedAssignment(
        topic_partitions=[
            DescribedTopicPartitions(topic_id=topic_id, topic_name=name, partitions=indexes)
            for topic_id, indexes in by_topic(partitions)
            if (name := topics.name_of(topic_id)) is not None
        ]
    )
