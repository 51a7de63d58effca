"""Which records of a consumer may be worked on now, which are done with, and up to where that can be committed.

Pure decisions: the shells run the handlers, tell the outcome, and bring the time and the randomness along. Two rules
hold whatever the outcomes and their order. A partition is never committed past a record that is not done with. Records
of one lane (a key, or a whole partition) are worked on one after the other, in the order of their offsets; a record
that waits to be tried again keeps its lane.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Iterable
from enum import Enum
from itertools import count
from typing import Literal, NamedTuple, TypeAlias

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.client.core.consumer.record import ConsumerRecord
from ottla.client.core.settings import backoff_ms

RawRecord: TypeAlias = ConsumerRecord[bytes | None, bytes | None]
Ordering: TypeAlias = Literal["key", "partition", "unordered"]
ORDERINGS: tuple[Ordering, ...] = ("key", "partition", "unordered")


class Retries(NamedTuple):
    """How often a failed record is tried again, and after which pauses: they double from the first to the longest.

    `jitter` is the part of a pause that is left to chance, so that what failed together is not tried again together.
    """

    times: int = 3
    first_pause_ms: int = 200
    longest_pause_ms: int = 30_000
    jitter: float = 0.5

    def checked(self) -> Retries:
        if self.times < 0 or self.first_pause_ms < 0 or self.longest_pause_ms < self.first_pause_ms:
            raise ValueError(f"retries must not be negative, nor the longest pause shorter than the first: {self}")
        if not 0.0 <= self.jitter <= 1.0:
            raise ValueError(f"the jitter of retries is a part of the pause, from 0 to 1, but was {self.jitter}")
        return self

    def pause_ms(self, failures: int, fraction: float) -> int:
        """Before the next try, after so many failures; `fraction` (0 to 1) is chance."""
        pause_ms = backoff_ms(failures, self.first_pause_ms, self.longest_pause_ms)
        return int(pause_ms * (1 - self.jitter * fraction))


class Progress(Enum):
    QUEUED = "waits for others of its lane, or for a free worker"
    RUNNING = "is being worked on"
    POSTPONED = "waits to be tried again"
    DONE = "will not be looked at again"


class Work:
    """One record on its way through the handler."""

    __slots__ = ("_claim", "failure", "failures", "lane", "progress", "record", "waits")

    def __init__(self, record: RawRecord, lane: Hashable, claim: _Claim) -> None:
        self.record = record
        self.lane = lane
        self.failures = 0
        self.waits = 0
        """How often it could not be tried yet, which says nothing against it."""
        self.failure: BaseException | None = None
        """Why it has been given up; it is still to be sent to the dead letters."""
        self.progress = Progress.QUEUED
        self._claim = claim

    @property
    def is_dropped(self) -> bool:
        """Whether the partition has gone meanwhile: the outcome is of no more interest."""
        return self._claim.is_over


class _Claim:
    """A partition from when it came to when it goes. If it comes again, that is another claim."""

    __slots__ = ("committed_offset", "finished", "is_over", "start_below", "topic_partition", "unfinished")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.unfinished: deque[Work] = deque()
        """In the order of offsets. Done ones stay as long as an earlier one is not done."""
        self.finished: OffsetAndMetadata | None = None
        self.committed_offset = -1
        self.start_below: int | None = None
        """Once the partition is about to go, nothing from this offset on is started."""
        self.is_over = False

    def may_start(self, work: Work) -> bool:
        return self.start_below is None or work.record.offset < self.start_below

    def give_up_from(self, work: Work) -> None:
        """The record will not be tried again before the partition goes, so that later ones cannot be committed."""
        if self.start_below is not None:
            self.start_below = min(self.start_below, work.record.offset)

    def settle(self) -> None:
        while self.unfinished and self.unfinished[0].progress is Progress.DONE:
            record = self.unfinished.popleft().record
            self.finished = OffsetAndMetadata(record.offset + 1, "", record.leader_epoch)


class WorkPlan:
    """`concurrency` handlers may run at once; a partition with `queued_max` records that are not settled is paused."""

    def __init__(self, *, ordering: Ordering, concurrency: int, queued_max: int, retries: Retries) -> None:
        if ordering not in ORDERINGS:
            raise ValueError(f"the ordering is one of {', '.join(ORDERINGS)}, but was {ordering!r}")
        if concurrency < 1 or queued_max < 1:
            raise ValueError(
                f"at least one record must be worked on and queued, but {concurrency} and {queued_max} were given"
            )
        self.running = 0
        self._ordering = ordering
        self._concurrency = concurrency
        self._queued_max = queued_max
        self._retries = retries.checked()
        self._claims: dict[TopicPartition, _Claim] = {}
        self._lanes: dict[Hashable, deque[Work]] = {}
        self._ready: deque[Work] = deque()
        self._postponed: list[tuple[int, int, Work]] = []
        self._numbers = count()
        self._paused: set[_Claim] = set()

    # What there is to do

    def add(self, records: Iterable[RawRecord]) -> None:
        """Takes records in, of each partition in the order of their offsets."""
        for record in records:
            partition = record.topic_partition
            claim = self._claims.get(partition)
            if claim is None:
                claim = self._claims[partition] = _Claim(partition)
            work = Work(record, self._lane_of(record, claim), claim)
            claim.unfinished.append(work)
            lane = self._lanes.setdefault(work.lane, deque())
            lane.append(work)
            if len(lane) == 1:
                self._ready.append(work)

    def _lane_of(self, record: RawRecord, claim: _Claim) -> Hashable:
        """A lane belongs to a claim: what is left running of an earlier one must not hold up the new one's."""
        if self._ordering == "partition":
            return claim
        # Producers spread records without a key over partitions at will, so that there is no order to keep.
        if self._ordering == "unordered" or record.key is None:
            return (claim, record.offset, None)
        return (claim, record.key)

    def start_next(self, now_ms: int) -> Work | None:
        """The next record to work on, if one may be and a worker is free. It counts as running."""
        while self._postponed and self._postponed[0][0] <= now_ms:
            self._ready.append(heapq.heappop(self._postponed)[2])
        while self._ready and self.running < self._concurrency:
            work = self._ready.popleft()
            if work._claim.may_start(work):
                work.progress = Progress.RUNNING
                self.running += 1
                return work
        return None

    def next_due_ms(self) -> int | None:
        """When the next postponed record may be tried again."""
        while self._postponed and not self._postponed[0][2]._claim.may_start(self._postponed[0][2]):
            heapq.heappop(self._postponed)
        return self._postponed[0][0] if self._postponed else None

    # Outcomes

    def finish(self, work: Work) -> None:
        """The handler is done with it, or the dead letters have it."""
        self._stop(work)
        if work.is_dropped:
            return
        work.progress = Progress.DONE
        lane = self._lanes[work.lane]
        lane.popleft()
        if lane:
            self._ready.append(lane[0])
        else:
            del self._lanes[work.lane]
        work._claim.settle()

    def fail(self, work: Work, error: BaseException, now_ms: int, fraction: float, *, is_final: bool = False) -> bool:
        """True if it shall be tried again later; otherwise it is given up, and still counts as running."""
        work.failures += 1
        if is_final or work.failures > self._retries.times:
            work.failure = error
            return False
        self.postpone(work, now_ms, fraction)
        return True

    def postpone(self, work: Work, now_ms: int, fraction: float) -> None:
        self._put_off(work, now_ms + self._retries.pause_ms(work.failures, fraction))

    def wait(self, work: Work, now_ms: int, fraction: float) -> None:
        """Something is missing that will be there again: it is tried until then, and no attempt is used up by that."""
        work.waits += 1
        self._put_off(work, now_ms + self._retries.pause_ms(work.waits, fraction))

    def _put_off(self, work: Work, due_ms: int) -> None:
        self._stop(work)
        if not work.is_dropped:
            work.progress = Progress.POSTPONED
            work._claim.give_up_from(work)
            heapq.heappush(self._postponed, (due_ms, next(self._numbers), work))

    def abandon(self, work: Work) -> None:
        """Nothing came of it, and nobody will try again: it is never committed past."""
        self._stop(work)

    def _stop(self, work: Work) -> None:
        if work.progress is not Progress.RUNNING:
            raise ValueError(f"{work.record!r} is not being worked on: it {work.progress.value}")
        self.running -= 1
        work.progress = Progress.QUEUED

    # Commits

    def committable(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where each partition has come further than was committed: the lowest offset that is not done with."""
        chosen = self._claims if partitions is None else partitions
        return {
            partition: claim.finished
            for partition in chosen
            if (claim := self._claims.get(partition)) is not None
            and claim.finished is not None
            and claim.finished.offset > claim.committed_offset
        }

    def committed(self, offsets: Iterable[tuple[TopicPartition, OffsetAndMetadata]]) -> None:
        for partition, offset in offsets:
            claim = self._claims.get(partition)
            if claim is not None:
                claim.committed_offset = max(claim.committed_offset, offset.offset)

    # Partitions that go

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        """Starts nothing of these partitions any more, except what fills a gap before something done or running.

        Records that are done after a gap could not be committed, and the next owner would process them once more.
        """
        for claim in self._held(partitions):
            begun = [work for work in claim.unfinished if work.progress in (Progress.RUNNING, Progress.DONE)]
            claim.start_below = begun[-1].record.offset if begun else 0
            for work in claim.unfinished:
                if work.progress is Progress.POSTPONED:
                    claim.give_up_from(work)

    def is_settled(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether nothing of partitions that are held is running or about to be."""
        return not any(
            work.progress is Progress.RUNNING or (work.progress is Progress.QUEUED and claim.may_start(work))
            for claim in self._held(partitions)
            for work in claim.unfinished
        )

    def running_of(self, partitions: Iterable[TopicPartition]) -> list[Work]:
        return [
            work for claim in self._held(partitions) for work in claim.unfinished if work.progress is Progress.RUNNING
        ]

    def _held(self, partitions: Iterable[TopicPartition]) -> list[_Claim]:
        return [claim for claim in map(self._claims.get, partitions) if claim is not None]

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """The partitions are gone: whatever becomes of their records changes nothing here."""
        for partition in partitions:
            claim = self._claims.pop(partition, None)
            if claim is not None:
                claim.is_over = True
                claim.start_below = 0
                self._paused.discard(claim)
                for work in claim.unfinished:
                    self._lanes.pop(work.lane, None)

    # Back-pressure

    def to_pause(self) -> list[TopicPartition]:
        """Partitions of which enough is here; each is named once."""
        full = [
            claim
            for claim in self._claims.values()
            if len(claim.unfinished) >= self._queued_max and claim not in self._paused
        ]
        self._paused.update(full)
        return [claim.topic_partition for claim in full]

    def to_resume(self) -> list[TopicPartition]:
        """Paused partitions of which half has been settled; each is named once."""
        drained = [claim for claim in self._paused if len(claim.unfinished) * 2 <= self._queued_max]
        self._paused.difference_update(drained)
        return [claim.topic_partition for claim in drained]
