"""What members of a group say happened to them, and the laws that must hold of it whatever the order of events was.

Times are of the machine's monotonic clock, which processes share, so events of other processes can be laid between
those of this one.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable
from typing import Literal, NamedTuple, Protocol, TypeAlias

Partition: TypeAlias = tuple[str, int]
Kind: TypeAlias = Literal["assigned", "revoked", "gone"]


class Event(NamedTuple):
    at_s: float
    member: str
    kind: Kind
    partitions: frozenset[Partition] = frozenset()


class Sink(Protocol):
    """Where a member reports. `revoked` comes before the member lets others have the partitions."""

    def assigned(self, partitions: Iterable[Partition]) -> None: ...

    def revoked(self, partitions: Iterable[Partition]) -> None: ...

    def consumed(self, partition: Partition, offset: int, value: bytes) -> None: ...

    def failed(self, error: str) -> None:
        """A call of the client's was refused; some refusals are part of a rebalance."""


class Ledger:
    """All events of one group. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._values: dict[Partition, dict[int, bytes]] = {}
        self._reads: Counter[tuple[Partition, int]] = Counter()
        self.errors: list[str] = []

    def sink(self, member: str) -> MemberSink:
        return MemberSink(self, member)

    def add(self, event: Event) -> None:
        with self._lock:
            self._events.append(event)

    def add_record(self, partition: Partition, offset: int, value: bytes) -> None:
        with self._lock:
            self._reads[partition, offset] += 1
            known = self._values.setdefault(partition, {}).setdefault(offset, value)
        if known != value:
            self.errors.append(f"{partition} has both {known!r} and {value!r} at offset {offset}")

    def gone(self, member: str) -> None:
        """The member has left, or cannot do anything any more."""
        self.add(Event(time.monotonic(), member, "gone"))

    def events(self, member: str | None = None) -> list[Event]:
        with self._lock:
            events = list(self._events)
        return sorted(event for event in events if member in (None, event.member))

    def consumed(self) -> dict[Partition, list[bytes]]:
        """What was read of each partition, by offset, each record once."""
        with self._lock:
            return {partition: [found[at] for at in sorted(found)] for partition, found in self._values.items()}

    def read_again(self) -> list[tuple[Partition, int]]:
        """Partition and offset of the records that were read more than once."""
        with self._lock:
            return sorted(place for place, times in self._reads.items() if times > 1)

    def owners(self) -> dict[Partition, str]:
        """Who has which partition now. Raises if any partition ever had two owners."""
        owners: dict[Partition, str] = {}
        for event in self.events():
            if event.kind == "assigned":
                for partition in event.partitions:
                    owner = owners.get(partition)
                    assert owner is None, f"{partition} went to {event.member} while {owner} had it"
                    owners[partition] = event.member
            else:
                lost = event.partitions if event.kind == "revoked" else set(owners)
                for partition in lost:
                    if owners.get(partition) == event.member:
                        del owners[partition]
        return owners

    def shares(self) -> dict[str, set[Partition]]:
        shares: dict[str, set[Partition]] = {}
        for partition, member in self.owners().items():
            shares.setdefault(member, set()).add(partition)
        return shares


class MemberSink:
    def __init__(self, ledger: Ledger, member: str) -> None:
        self._ledger = ledger
        self._member = member

    def assigned(self, partitions: Iterable[Partition]) -> None:
        self._ledger.add(Event(time.monotonic(), self._member, "assigned", frozenset(partitions)))

    def revoked(self, partitions: Iterable[Partition]) -> None:
        self._ledger.add(Event(time.monotonic(), self._member, "revoked", frozenset(partitions)))

    def consumed(self, partition: Partition, offset: int, value: bytes) -> None:
        self._ledger.add_record(partition, offset, value)

    def failed(self, error: str) -> None:
        self._ledger.errors.append(f"{self._member}: {error}")
