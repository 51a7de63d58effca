"""The members of a classic group: who they are, which protocols they share, which instance id belongs to whom.

Knows nothing of states, timers or requests that wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

Protocols = tuple[tuple[str, bytes], ...]
"""(protocol name, the member's metadata for it), in the member's order of preference."""


@dataclass(slots=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = True
    """Until its first rebalance completes; see GroupConfig.new_member_join_timeout_ms."""

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""


class Members:
    """In the order they were added. Adding and removing keeps the count of who supports which protocol."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._by_instance: dict[str, str] = {}
        self._supporters: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> Member:
        return self._members[member_id]

    def get(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def id_of_instance(self, instance_id: str) -> str | None:
        return self._by_instance.get(instance_id)

    def add(self, member: Member) -> None:
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._by_instance[member.instance_id] = member.member_id
        self._count(member.protocols, 1)

    def remove(self, member_id: str) -> Member:
        member = self._members.pop(member_id)
        if member.instance_id is not None and self._by_instance.get(member.instance_id) == member_id:
            del self._by_instance[member.instance_id]
        self._count(member.protocols, -1)
        return member

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)

    def rename(self, old_id: str, new_id: str) -> Member:
        """Gives a member another id; it keeps its place in the order."""
        member = self._members[old_id]
        member.member_id = new_id
        self._members = {new_id if key == old_id else key: value for key, value in self._members.items()}
        if member.instance_id is not None:
            self._by_instance[member.instance_id] = new_id
        return member

    def retain(self, member_ids: Iterable[str]) -> None:
        """Keeps only these, in this order."""
        kept = {member_id: self._members[member_id] for member_id in member_ids if member_id in self._members}
        for member_id in [key for key in self._members if key not in kept]:
            self.remove(member_id)
        self._members = kept

    def rebalance_timeout_ms_max(self) -> int:
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def have_in_common(self, protocols: Protocols) -> bool:
        """Whether every member supports at least one of `protocols`, the same one."""
        return any(self._supporters[name] == len(self._members) for name, _ in protocols)

    def vote(self) -> str | None:
        """The protocol most members like best of those all support; on a tie the one the earliest member likes."""
        votes: Counter[str] = Counter()
        for member in self:
            for name, _ in member.protocols:
                if self._supporters[name] == len(self._members):
                    votes[name] += 1
                    break
        return votes.most_common(1)[0][0] if votes else None

    def _count(self, protocols: Protocols, change: int) -> None:
        # A protocol that is listed twice still has one supporter.
        for name in dict(protocols):
            self._supporters[name] += change
            if not self._supporters[name]:
                del self._supporters[name]
