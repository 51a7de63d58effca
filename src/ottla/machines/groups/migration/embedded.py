"""The consumers' own protocol inside JoinGroup and SyncGroup, in the words of KIP-848: topic ids instead of names."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.machines.groups.classic.members import Protocols
from ottla.machines.groups.config import TopicView
from ottla.machines.groups.consumer.member import Partitions
from ottla.machines.groups.consumer.records import by_topic
from ottla.wire.message import stored_version
from ottla.wire.stored.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopic,
)


def read_subscription(protocols: Protocols) -> ConsumerProtocolSubscription:
    """A consumer says the same with each protocol it names. Raises DecodeError on what is not a subscription."""
    return ConsumerProtocolSubscription.decode_versioned(protocols[0][1])


def read_assignment(assignment: bytes, topics: TopicView) -> Partitions:
    """Empty bytes stand for no partitions: a member that came too late for its leader's assignment has these."""
    if not assignment:
        return frozenset()
    return partitions_of(ConsumerProtocolAssignment.decode_versioned(assignment).assigned_partitions, topics)


def partitions_of(listed: Iterable[ConsumerProtocolTopic], topics: TopicView) -> Partitions:
    """Topics that are gone are left out: nobody can be given their partitions."""
    return frozenset(
        (topic_id, index)
        for topic in listed
        if (topic_id := topics.topic_id(topic.topic)) is not None
        for index in topic.partitions
    )


def write_assignment(partitions: Partitions, topics: TopicView, metadata: bytes) -> bytes:
    """In the version that the member speaks, as its own metadata tells."""
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolTopic(topic=name, partitions=indexes)
            for topic_id, indexes in by_topic(partitions)
            if (name := topics.name_of(topic_id)) is not None
        ]
    )
    return assignment.encode_versioned(min(stored_version(metadata), ConsumerProtocolAssignment.VERSIONS[-1]))
