"""A partition's leader: what its followers hold, who is in sync, and how far the partition is committed.

The high watermark is the lowest log end offset in the maximal in-sync set (see `isr`) and never goes back while this
leader leads. The machine knows offsets and times only; whoever owns the log tells it what was appended and fetched, and
takes the new high watermark from it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Protocol

from ottla.base.types import Uuid
from ottla.machines.replication.isr import Committed, IsrState, PendingGrowth, PendingShrink, ProposeIsr

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1
NEVER_MS = -(1 << 62)


PartitionKey = tuple[str | Uuid, int]


class FollowerSession(Protocol):
    """What a follower fetches with: it is told what happens to its partitions, and looks at no others."""

    heard_at_ms: int
    """When its last request came, which spoke for all of its partitions."""

    def note(self, key: PartitionKey) -> None: ...

    def moved(self, key: PartitionKey) -> None: ...


@dataclass(slots=True)
class FollowerPosition:
    """What the leader knows of one follower, from its fetches in this leader epoch."""

    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    caught_up_at_ms: int = NEVER_MS
    """The last time it had all that the leader had then."""
    broker_epoch: int = UNKNOWN_EPOCH
    """Of the registration under which it has fetched."""
    _fetched_at_ms: int = NEVER_MS
    _leader_end_at_fetch: int = UNKNOWN_OFFSET
    watch: FollowerSession | None = None
    """The session it fetches this partition with, if it has one. While the partition is idle its requests do not name
    it, and are fetches of it nevertheless."""
    key: PartitionKey = ("", 0)
    """What the partition is called there."""

    def fetched(self, offset: int, log_start_offset: int, leader_end_offset: int, now_ms: int) -> None:
        """It asks for `offset`, so it has all before. Under a steady load it never has everything: having what was
        there at its last fetch means that it was caught up at that time."""
        if offset >= leader_end_offset:
            self.caught_up_at_ms = max(self.caught_up_at_ms, now_ms)
        elif offset >= self._leader_end_at_fetch:
            self.caught_up_at_ms = max(self.caught_up_at_ms, self._fetched_at_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self._fetched_at_ms = now_ms
        self._leader_end_at_fetch = leader_end_offset

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_ms_max: int) -> bool:
        return self.log_end_offset == leader_end_offset or now_ms - self.caught_up_at_ms <= lag_ms_max


class PartitionLeader:
    def __init__(
        self,
        *,
        local_id: int,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Iterable[int],
        isr: Iterable[int],
        log_end_offset: int,
        high_watermark: int,
        min_insync_replicas: int,
        now_ms: int,
        adding: Iterable[int] = (),
    ) -> None:
        self.local_id = local_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.epoch_start_offset = log_end_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = high_watermark
        self.min_insync_replicas = min_insync_replicas
        self.followers: dict[int, FollowerPosition] = {}
        self._state: IsrState = Committed(frozenset(isr))
        self._adding = frozenset(adding)
        """Replicas that a reassignment brings. Until it is done nobody counts on them (KIP-455)."""
        self._joining_soon: set[int] = set()
        """Followers that are not in sync by the controller's word but have caught up: the high watermark waits for
        them, or under a steady load it would always be ahead of them and they could never join."""
        # Derived from the above by `_refresh`, because every append asks for it.
        self.has_enough_replicas: bool
        """Whether an acks=all write may be accepted now."""
        self.commits_alone: bool
        """Whether what the leader appends is committed at once, because nobody else is in sync and nobody must be."""
        self._awaited: list[FollowerPosition]
        self._set_replicas(replicas, now_ms)
        self._refresh()

    @property
    def isr(self) -> frozenset[int]:
        """As the controller has agreed to."""
        return self._state.isr

    @property
    def is_changing_isr(self) -> bool:
        return not isinstance(self._state, Committed)

    # What happens

    def appended(self, log_end_offset: int) -> int:
        """The leader's own log has grown; returns the high watermark."""
        for follower in self.followers.values():
            watch = follower.watch
            if watch is not None and follower.log_end_offset == self.log_end_offset:
                # Until now it had everything, and its session has said so with every request.
                follower.caught_up_at_ms = max(follower.caught_up_at_ms, watch.heard_at_ms)
        self.log_end_offset = log_end_offset
        return self._advance()

    def is_outdated(self, replica: int, broker_epoch: int) -> bool:
        """Whether a fetch comes from an earlier life of a follower that has fetched since (KIP-903)."""
        return UNKNOWN_EPOCH < broker_epoch < self.followers[replica].broker_epoch

    def follower_fetched(
        self,
        replica: int,
        offset: int,
        log_start_offset: int,
        *,
        now_ms: int,
        lag_ms_max: int,
        broker_epoch: int = UNKNOWN_EPOCH,
    ) -> ProposeIsr | None:
        """A follower has everything below `offset`. The caller has made sure that it is one of this partition's."""
        follower = self.followers[replica]
        follower.broker_epoch = broker_epoch
        follower.fetched(offset, log_start_offset, self.log_end_offset, now_ms)
        if (
            replica not in self._state.maximal
            and replica not in self._joining_soon
            and follower.is_caught_up(self.log_end_offset, now_ms, lag_ms_max)
        ):
            self._joining_soon.add(replica)
            self._refresh()
        self._advance()
        if isinstance(self._state, Committed) and self._may_join(replica, follower):
            self._become(PendingGrowth(self._state.isr, frozenset({replica})))
            return self._proposal(self._state.maximal)
        return None

    @property
    def is_level(self) -> bool:
        """Whether every follower has all there is, so that none can have fallen behind. True of most partitions at most
        times: it has to be quick."""
        end_offset = self.log_end_offset
        return all(follower.log_end_offset == end_offset for follower in self.followers.values())

    def check_lag(self, now_ms: int, lag_ms_max: int) -> ProposeIsr | None:
        """To be asked about twice per `lag_ms_max`: who has fallen behind is no longer waited for."""

        def has_fallen_behind(replica: int) -> bool:
            return not self.followers[replica].is_caught_up(self.log_end_offset, now_ms, lag_ms_max)

        slow = {replica for replica in self._joining_soon if has_fallen_behind(replica)}
        if slow:
            self._joining_soon -= slow
            self._refresh()
        if not isinstance(self._state, Committed):
            return None
        isr = self._state.isr
        leaving = frozenset(replica for replica in isr & self.followers.keys() if has_fallen_behind(replica))
        if not leaving:
            return None
        self._become(PendingShrink(isr, leaving))
        return self._proposal(isr - leaving)

    def isr_confirmed(self, isr: Iterable[int], partition_epoch: int) -> int:
        """The controller has agreed, or has decided by itself; returns the high watermark. An older word is ignored."""
        if partition_epoch > self.partition_epoch:
            self.partition_epoch = partition_epoch
            self._become(Committed(frozenset(isr)))
        return self.high_watermark

    def isr_refused(self) -> None:
        """The controller said no: the set is what it was before."""
        self._become(Committed(self._state.isr))

    def set_min_insync_replicas(self, count: int) -> int:
        self.min_insync_replicas = count
        self._refresh()
        return self.high_watermark

    def low_watermark(self, log_start_offset: int, live: Container[int]) -> int:
        """Below it no replica on a `live` broker holds records any more (KIP-107): the lowest start of their logs, of
        which the leader's is `log_start_offset`. -1 while one of them has not been heard of."""
        starts = (position.log_start_offset for replica, position in self.followers.items() if replica in live)
        return min((log_start_offset, *starts))

    # Followers that wait

    def note_for_followers(self) -> None:
        """There is something to tell them with their next reply."""
        for follower in self.followers.values():
            if follower.watch is not None:
                follower.watch.note(follower.key)

    def wake_followers(self) -> None:
        for follower in self.followers.values():
            if follower.watch is not None:
                follower.watch.moved(follower.key)

    # What follows

    def _set_replicas(self, replicas: Iterable[int], now_ms: int) -> None:
        for replica in sorted(set(replicas) | self._state.isr):
            if replica != self.local_id:
                # Who is in sync is given the time to be heard of; nothing new is committed before.
                since_ms = now_ms if replica in self._state.isr else NEVER_MS
                self.followers[replica] = FollowerPosition(caught_up_at_ms=since_ms)

    def _may_join(self, replica: int, follower: FollowerPosition) -> bool:
        """It has all that is committed, and all that was before this leader: older epochs cannot diverge any more."""
        return (
            replica not in self._state.isr
            and follower.log_end_offset >= self.high_watermark
            and follower.log_end_offset >= self.epoch_start_offset
        )

    def _proposal(self, isr: Iterable[int]) -> ProposeIsr:
        members = sorted(isr)
        epochs = {replica: self.followers[replica].broker_epoch for replica in members if replica in self.followers}
        return ProposeIsr(tuple(members), self.leader_epoch, self.partition_epoch, epochs)

    def _become(self, state: IsrState) -> None:
        self._state = state
        self._refresh()

    def _refresh(self) -> None:
        isr, maximal = self._state.isr, self._state.maximal
        self._joining_soon = (self._joining_soon - maximal) & self.followers.keys()
        awaited = maximal | self._joining_soon
        self._awaited = [position for replica, position in self.followers.items() if replica in awaited]
        # A partition cannot have more copies than it has replicas, so more are not asked for.
        counted = 1 + len(self.followers.keys() - self._adding)
        self.has_enough_replicas = len(isr) >= min(self.min_insync_replicas, counted)
        self.commits_alone = self.has_enough_replicas and not self._awaited and self.local_id in isr
        self._advance()

    def _advance(self) -> int:
        # Below min.insync.replicas nothing is newly committed: what one survivor holds may be lost with it (KIP-966).
        if self.has_enough_replicas:
            committed = self.log_end_offset
            for follower in self._awaited:
                if follower.log_end_offset < committed:
                    committed = follower.log_end_offset
            if committed > self.high_watermark:
                self.high_watermark = committed
        return self.high_watermark
