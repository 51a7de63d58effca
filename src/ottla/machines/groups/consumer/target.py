"""What a KIP-848 group should look like: the topics it reads, the assignor it uses, the target of each member.

Functions of the group's durable state (and, for the topics, of the cluster's), so that any coordinator that has loaded
the same records arrives at the same answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ottla.base.errors import KafkaError
from ottla.base.types import TopicPartition
from ottla.machines.assignors import SERVER_ASSIGNORS
from ottla.machines.assignors.types import AssignorMember
from ottla.machines.cluster.topic_names import INTERNAL_TOPICS
from ottla.machines.groups.config import TopicView
from ottla.machines.groups.consumer.member import Partitions, Subscription
from ottla.machines.groups.consumer.pattern import TopicPattern, compile_topic_pattern
from ottla.machines.groups.consumer.records import SubscribedTopic
from ottla.machines.groups.consumer.state import ConsumerGroupState


def is_subscribed(subscription: Subscription, topic: str) -> bool:
    """A pattern never takes in internal topics: a group that reads the log of its own commits would never rest."""
    if topic in subscription.topic_names:
        return True
    pattern = _stored_pattern(subscription.topic_regex)
    return pattern is not None and topic not in INTERNAL_TOPICS and pattern.matches(topic)


def _stored_pattern(regex: str | None) -> TopicPattern | None:
    """A pattern that another version took and this one cannot read subscribes to nothing: the group goes on."""
    try:
        return None if regex is None else compile_topic_pattern(regex)
    except KafkaError:
        return None


def subscribed_topics(state: ConsumerGroupState, view: TopicView) -> dict[str, SubscribedTopic]:
    """The topics the members want that exist now."""
    wanted = {name for member in state.members.values() for name in member.subscription.topic_names}
    regexes = {member.subscription.topic_regex for member in state.members.values()}
    patterns = [pattern for regex in regexes if (pattern := _stored_pattern(regex)) is not None]
    if patterns:
        wanted.update(
            name
            for name in view.names()
            if name not in wanted and name not in INTERNAL_TOPICS and any(p.matches(name) for p in patterns)
        )
    topics = {}
    for name in sorted(wanted):
        topic_id, partition_count = view.topic_id(name), view.partition_count(name)
        if topic_id is not None and partition_count is not None:
            topics[name] = SubscribedTopic(topic_id, partition_count)
    return topics


def chosen_assignor(state: ConsumerGroupState, configured: Sequence[str]) -> str:
    """The one most members ask for, of those that are configured; the first of these if there is no winner."""
    votes = Counter(member.subscription.server_assignor for member in state.members.values())
    return max(configured, key=lambda name: votes[name])


def compute_targets(state: ConsumerGroupState, assignor: str) -> dict[str, Partitions]:
    names = {topic.topic_id: name for name, topic in state.topics.items()}
    by_regex = {
        regex: frozenset(name for name in state.topics if is_subscribed(Subscription(topic_regex=regex), name))
        for regex in {member.subscription.topic_regex for member in state.members.values()}
    }
    members = [
        AssignorMember(
            member_id,
            member.subscription.topic_names | by_regex[member.subscription.topic_regex],
            owned=frozenset(
                TopicPartition(names[topic_id], index)
                for topic_id, index in state.target_of(member_id)
                if topic_id in names
            ),
            rack=member.subscription.rack_id,
            instance_id=member.subscription.instance_id,
        )
        for member_id, member in state.members.items()
    ]
    counts = {name: topic.partition_count for name, topic in state.topics.items()}
    assignment = SERVER_ASSIGNORS[assignor].assign(members, counts)
    return {
        member_id: frozenset((state.topics[topic].topic_id, index) for topic, index in partitions)
        for member_id, partitions in assignment.items()
    }
