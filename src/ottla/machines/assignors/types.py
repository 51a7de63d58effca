"""What every partition assignor is given and what it gives back. Nothing here knows how an assignor decides.

An assignor is a pure function: the same members and counts give the same assignment, whatever order they came in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from ottla.base.types import TopicPartition

NO_GENERATION = -1
"""The generation of a member that has never been given an assignment."""


@dataclass(frozen=True, slots=True)
class AssignorMember:
    """One member as an assignor sees it."""

    member_id: str
    topics: frozenset[str]
    owned: frozenset[TopicPartition] = frozenset()
    """What the member holds now, by its own word (classic groups) or by the last target (KIP-848)."""
    generation: int = NO_GENERATION
    """The generation `owned` dates from; of two members that claim one partition the newer is believed."""
    rack: str | None = None
    instance_id: str | None = None


Assignment: TypeAlias = dict[str, list[TopicPartition]]
"""Sorted partitions by member id. Every member has an entry, if only an empty one."""


class Assignor(Protocol):
    @property
    def name(self) -> str: ...

    def assign(self, members: Sequence[AssignorMember], partition_counts: Mapping[str, int]) -> Assignment:
        """Gives each partition of each subscribed topic to a subscriber.

        A topic that is missing in `partition_counts` does not exist, and is assigned to nobody.
        """
        ...


def in_order(members: Iterable[AssignorMember]) -> list[AssignorMember]:
    """Members as Kafka ranks them: static ones first, by instance id, so that a restart keeps their place (KIP-345)."""
    return sorted(members, key=lambda m: (m.instance_id is None, m.instance_id or m.member_id, m.member_id))


def subscribers_by_topic(
    members: Iterable[AssignorMember], partition_counts: Mapping[str, int]
) -> dict[str, list[AssignorMember]]:
    """The existing topics somebody subscribes to, sorted by name, with their subscribers in the order given."""
    by_topic: dict[str, list[AssignorMember]] = {}
    for member in members:
        for topic in member.topics:
            if topic in partition_counts:
                by_topic.setdefault(topic, []).append(member)
    return dict(sorted(by_topic.items()))
