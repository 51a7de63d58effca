"""What the members of a classic group tell each other through the coordinator: subscriptions, assignments, assignors.

The bytes are those every other Kafka client writes, so that members of all kinds can share a group.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.base.errors import DecodeError, InvalidConfigError
from ottla.base.types import TopicPartition
from ottla.client.core.consumer.offset_requests import by_topic
from ottla.machines.assignors import CLIENT_ASSIGNORS
from ottla.machines.assignors.types import NO_GENERATION, Assignor, AssignorMember
from ottla.wire.stored.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopic,
)

PROTOCOL_TYPE = "consumer"
_SUBSCRIPTION_VERSION = 3
_ASSIGNMENT_VERSION = 1
_GENERATION = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class GroupMemberInfo(AssignorMember):
    """A member as the group's leader sees it."""

    user_data: bytes | None = None


class GroupAssignor:
    """Derive from this to share out partitions by rules of your own; every member of the group needs the same."""

    name: str = ""
    is_cooperative: bool = False
    """Whether members keep reading what they hold during a rebalance. `assign` must then never give a partition to a
    member while another holds it (KIP-429)."""

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """What this member wants the group's leader to know."""
        return None

    def assign(
        self, members: Sequence[GroupMemberInfo], partition_counts: Mapping[str, int]
    ) -> Mapping[str, Collection[TopicPartition]]:
        """Run by the leader: partitions by member id."""
        raise NotImplementedError

    def assignment_data(self, member_id: str) -> bytes | None:
        """Run by the leader after `assign`: what goes to a member along with its partitions."""
        return None

    def on_assignment(self, partitions: Collection[TopicPartition], user_data: bytes | None, generation: int) -> None:
        """Run by every member with what it was given."""


class BuiltInAssignor(GroupAssignor):
    def __init__(self, assignor: Assignor) -> None:
        self.name = assignor.name
        self.is_cooperative = assignor.name == "cooperative-sticky"
        self._assignor = assignor
        self._last: tuple[Collection[TopicPartition], int] = ((), NO_GENERATION)

    def user_data(self, topics: Collection[str]) -> bytes | None:
        # Members of an eager group give everything up before they join, so stickiness needs this memory (KIP-54).
        partitions, generation = self._last
        if self.name == "sticky":
            return _sticky_data(partitions, generation)
        return _GENERATION.pack(generation) if self.is_cooperative else None

    def assign(
        self, members: Sequence[GroupMemberInfo], partition_counts: Mapping[str, int]
    ) -> Mapping[str, Collection[TopicPartition]]:
        remembered = [_with_sticky_memory(member) for member in members] if self.name == "sticky" else members
        return self._assignor.assign(remembered, partition_counts)

    def on_assignment(self, partitions: Collection[TopicPartition], user_data: bytes | None, generation: int) -> None:
        self._last = (tuple(partitions), generation)


def choose_assignors(names: Iterable[str], own: Sequence[GroupAssignor]) -> list[GroupAssignor]:
    """Assignors by name, in that order; your own ones go by their names too, or first if they are not named."""
    given = {assignor.name: assignor for assignor in own}
    if "" in given:
        raise InvalidConfigError("partition.assignment.strategy", "an assignor needs a name")
    chosen: dict[str, GroupAssignor] = {}
    named = list(names)
    for name in [*(name for name in given if name not in named), *named]:
        if name in given:
            chosen[name] = given[name]
        elif name in CLIENT_ASSIGNORS:
            chosen[name] = BuiltInAssignor(CLIENT_ASSIGNORS[name])
        else:
            raise InvalidConfigError(
                "partition.assignment.strategy",
                f"no assignor is called {name!r}; known: {', '.join(sorted({*CLIENT_ASSIGNORS, *given}))}",
            )
    return list(chosen.values())


# Bytes


def encode_subscription(
    topics: Iterable[str],
    owned: Iterable[TopicPartition],
    generation: int,
    *,
    user_data: bytes | None = None,
    rack: str | None = None,
) -> bytes:
    return ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=user_data,
        owned_partitions=_topics(owned),
        generation_id=generation,
        rack_id=rack,
    ).encode_versioned(_SUBSCRIPTION_VERSION)


def decode_member(member_id: str, instance_id: str | None, metadata: bytes) -> GroupMemberInfo:
    found = ConsumerProtocolSubscription.decode_versioned(metadata)
    generation = found.generation_id
    if generation == NO_GENERATION and found.user_data is not None and len(found.user_data) == _GENERATION.size:
        # Before version 2 cooperative members said in their user data which generation their claims are of.
        (generation,) = _GENERATION.unpack(found.user_data)
    return GroupMemberInfo(
        member_id,
        frozenset(found.topics),
        frozenset(_partitions(found.owned_partitions)),
        generation,
        found.rack_id,
        instance_id,
        found.user_data,
    )


def encode_assignment(partitions: Iterable[TopicPartition], user_data: bytes | None = None) -> bytes:
    return ConsumerProtocolAssignment(assigned_partitions=_topics(partitions), user_data=user_data).encode_versioned(
        _ASSIGNMENT_VERSION
    )


def decode_assignment(data: bytes) -> tuple[list[TopicPartition], bytes | None]:
    """Nothing at all is what a member gets that the leader did not know of."""
    if not data:
        return [], None
    found = ConsumerProtocolAssignment.decode_versioned(data)
    return _partitions(found.assigned_partitions), found.user_data


def _topics(partitions: Iterable[TopicPartition]) -> list[ConsumerProtocolTopic]:
    return [
        ConsumerProtocolTopic(topic=topic, partitions=indexes)
        for topic, indexes in by_topic(sorted(partitions)).items()
    ]


def _partitions(topics: Iterable[ConsumerProtocolTopic]) -> list[TopicPartition]:
    return [TopicPartition(entry.topic, index) for entry in topics for index in entry.partitions]


def _sticky_data(partitions: Iterable[TopicPartition], generation: int) -> bytes:
    # The same fields as an assignment, without a version in front, and the generation behind.
    entries = ConsumerProtocolAssignment(assigned_partitions=_topics(partitions)).encode(0)
    no_user_data = _GENERATION.size
    return entries[:-no_user_data] + _GENERATION.pack(generation)


def _with_sticky_memory(member: GroupMemberInfo) -> AssignorMember:
    if member.user_data is None:
        return member
    try:
        padded = member.user_data[: -_GENERATION.size] + _GENERATION.pack(-1)
        remembered = _partitions(ConsumerProtocolAssignment.decode(padded, 0)[0].assigned_partitions)
        (generation,) = _GENERATION.unpack(member.user_data[-_GENERATION.size :])
    except (DecodeError, struct.error):
        # Somebody else's memory in a form we do not know only costs stickiness.
        return member
    return AssignorMember(
        member.member_id, member.topics, frozenset(remembered), generation, member.rack, member.instance_id
    )
