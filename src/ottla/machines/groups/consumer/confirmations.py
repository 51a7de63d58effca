"""Which heartbeats prove that a member has given up what it was told to (KIP-848). Soft state of one group.

What a member lists counts only if it has read our last reply: one that missed it may be taking up, this moment, a
partition which that reply took away, and does not list it yet. There are two signs that it has read the reply. Its
heartbeat is not a full one, for a client that misses a reply says everything again. Or the heartbeat came over the
connection that took the reply: a reply is lost only with its connection, and a client has one heartbeat in flight. So
a member that sends nothing but full heartbeats confirms with its next one, unless it had to connect again.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.machines.groups.consumer.member import ConsumerMember, CurrentAssignment, MemberState, Partitions
from ottla.machines.groups.consumer.requests import is_full, owned_partitions
from ottla.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

Connection = object
"""Stands for a client's connection; only its identity counts."""


class _LastHeartbeat(NamedTuple):
    connection: Connection
    owned: Partitions | None
    """What the member last listed since it was told to give something up; None if it has not listed anything."""


class Confirmations:
    def __init__(self) -> None:
        self._last: dict[str, _LastHeartbeat] = {}
        """Of the members that have something to give up."""

    def owned_by_now(
        self, member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, connection: Connection
    ) -> Partitions | None:
        """What the member holds after it has read our last reply; None if that cannot be told from this heartbeat."""
        if member.current.state is not MemberState.UNREVOKED:
            return owned_partitions(request)
        last = self._last.get(member.member_id)
        if is_full(request) and (last is None or last.connection is not connection):
            return None
        return self._last_listed(member.member_id, request)

    def answered(
        self,
        member_id: str,
        current: CurrentAssignment,
        request: ConsumerGroupHeartbeatRequest,
        connection: Connection,
    ) -> None:
        """The reply to `request`, which tells the member to hold what `current` says, goes out on `connection`."""
        if current.state is MemberState.UNREVOKED:
            self._last[member_id] = _LastHeartbeat(connection, self._last_listed(member_id, request))
        else:
            self.forget(member_id)

    def forget(self, member_id: str) -> None:
        self._last.pop(member_id, None)

    def _last_listed(self, member_id: str, request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
        owned = owned_partitions(request)
        if owned is None and member_id in self._last:
            return self._last[member_id].owned
        return owned
