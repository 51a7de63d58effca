"""A member of a KIP-848 group as plain values: what it asked for, and how far it has come towards its target."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TypeAlias

from ottla.base.types import Uuid
from ottla.machines.groups.classic.members import Protocols
from ottla.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

JOIN_EPOCH = 0
STATIC_LEAVE_EPOCH = -2
"""A static member that left with this epoch keeps its partitions until its session runs out."""

IdPartition: TypeAlias = tuple[Uuid, int]
Partitions: TypeAlias = frozenset[IdPartition]
"""Partitions by topic id: a topic that was deleted and made again is another topic."""

NO_PARTITIONS: Partitions = frozenset()


class MemberState(IntEnum):
    """The values are those of the stored record."""

    STABLE = 0
    UNREVOKED = 1
    """It has been told to give partitions up and has not confirmed that yet. Its epoch stands still."""
    UNRELEASED = 2
    """It has the target's epoch, and waits for partitions that others still hold."""


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """What is known besides of a member that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: Protocols


@dataclass(frozen=True, slots=True)
class Subscription:
    """What the member said of itself, in its own heartbeats or joins."""

    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = None
    server_assignor: str | None = None
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    classic: ClassicMetadata | None = None
    """None for a member that speaks the protocol of KIP-848."""

    def updated(self, request: ConsumerGroupHeartbeatRequest, client_id: str, client_host: str) -> Subscription:
        """A field that the request leaves out is unchanged. An empty regular expression unsubscribes from it."""
        names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
        timeout_ms = request.rebalance_timeout_ms
        return Subscription(
            topic_names=self.topic_names if names is None else frozenset(names),
            topic_regex=self.topic_regex if regex is None else regex or None,
            server_assignor=self.server_assignor if request.server_assignor is None else request.server_assignor,
            instance_id=self.instance_id if request.instance_id is None else request.instance_id,
            rack_id=self.rack_id if request.rack_id is None else request.rack_id,
            client_id=client_id,
            client_host=client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        )

    def wants_other_topics_than(self, other: Subscription) -> bool:
        return self.topic_names != other.topic_names or self.topic_regex != other.topic_regex


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """What the member was told to hold. Nobody else may be given `assigned` or `pending_revocation`."""

    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    pending_revocation: Partitions = NO_PARTITIONS

    @property
    def held(self) -> Partitions:
        return self.assigned | self.pending_revocation

    def left_for_a_while(self) -> CurrentAssignment:
        return replace(self, epoch=STATIC_LEAVE_EPOCH, state=MemberState.STABLE, pending_revocation=NO_PARTITIONS)

    def back_again(self) -> CurrentAssignment:
        """The place of a static member, for whoever comes back to it: the epochs start over."""
        return CurrentAssignment(assigned=self.assigned)


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    member_id: str
    subscription: Subscription = Subscription()
    current: CurrentAssignment = CurrentAssignment()

    @property
    def is_classic(self) -> bool:
        return self.subscription.classic is not None

    @property
    def has_left_for_a_while(self) -> bool:
        return self.current.epoch == STATIC_LEAVE_EPOCH

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.current.state is MemberState.STABLE and self.current.epoch == target_epoch
