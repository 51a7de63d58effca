"""What is known of a flow at one moment, for whoever shows it; and the adding up that leads to it.

Pure. Rows read, written and bad are counted apart, and lag is the distance to where topics end now.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from ottla.spark.offsets import NEW_PARTITION_START, Offsets, ranges_between
from ottla.spark.pipeline.flows.row_rate import RowRate
from ottla.spark.progress import QueryProgress


class Rows(NamedTuple):
    read: int = 0
    written: int = 0
    bad: int = 0
    """Records that could not be read, and were left out or set aside."""

    def __add__(self, other: object) -> Rows:
        if not isinstance(other, Rows):
            return NotImplemented
        return Rows(self.read + other.read, self.written + other.written, self.bad + other.bad)


class Batch(NamedTuple):
    """A batch that is done."""

    batch_id: int
    rows: Rows
    duration_ms: int


class BatchAtWork(NamedTuple):
    """A batch that has not come to its end."""

    batch_id: int
    elapsed_ms: int
    tasks_done: int
    tasks: int
    """Of the stages Spark has planned so far; 0 as long as it has planned none."""


class EndOffsets(NamedTuple):
    """Where the topics of a flow end, for a reader of its isolation."""

    asked_ms: int
    """The moment before they were asked for."""
    offsets: Offsets


class FlowReport(NamedTuple):
    last: Batch | None
    at_work: BatchAtWork | None
    rows: Rows
    """Since the flow was started."""
    batches: int
    rows_per_second: float
    lag: int | None
    """Records between the end of the last batch and the end of the topics; None without topics, or before an answer."""
    ends: EndOffsets | None
    position: Offsets
    """The next offset of each partition that the flow reads."""
    state_rows: int
    watermark: str | None

    def age_ms(self, now_ms: int) -> int:
        """How long ago the lag was true."""
        return 0 if self.ends is None else max(now_ms - self.ends.asked_ms, 0)


class FlowMeter:
    """Adds up the batches of one flow, over restarts of its query. Not for several threads at once."""

    def __init__(self, *, sets_bad_aside: bool) -> None:
        self._sets_bad_aside = sets_bad_aside
        self._position: Offsets = {}
        self._ends: EndOffsets | None = None
        self._rate = RowRate()
        self._rows = Rows()
        self._batches = 0
        self._last: Batch | None = None
        self.next_batch_id = 0
        self._state_rows = 0
        self._watermark: str | None = None

    def begin_at(self, position: Offsets, batch_id: int) -> None:
        """Where a query starts."""
        self._position = position
        self.next_batch_id = batch_id

    def note_ends(self, ends: EndOffsets) -> None:
        self._ends = ends

    def ends_age_ms(self, now_ms: int) -> float:
        return inf if self._ends is None else now_ms - self._ends.asked_ms

    def add(self, progress: QueryProgress) -> None:
        rows = self._count(progress)
        if progress.end_offsets:
            self._position = progress.end_offsets
        self._rows += rows
        self._batches += 1
        self._last = Batch(progress.batch_id, rows, progress.duration_ms)
        self.next_batch_id = progress.batch_id + 1
        self._rate.add(
            rows.read, begin_ms=progress.started_ms, end_ms=progress.started_ms + max(progress.duration_ms, 1)
        )
        self._state_rows, self._watermark = progress.state_rows, progress.watermark

    def _count(self, progress: QueryProgress) -> Rows:
        read = progress.input_rows
        if progress.reads_only_topics and self._position:
            # Spark counts a row each time it is read. A sink that computes a batch twice has not read it twice.
            read = min(read, sum(one.size for one in ranges_between(self._position, progress.end_offsets)))
        bad = progress.written_rows if self._sets_bad_aside else progress.bad_rows
        return Rows(read, progress.written_rows, bad)

    def report(self, now_ms: int, at_work: BatchAtWork | None = None) -> FlowReport:
        return FlowReport(
            self._last,
            at_work,
            self._rows,
            self._batches,
            self._rate.per_second(now_ms),
            self._lag(),
            self._ends,
            self._position,
            self._state_rows,
            self._watermark,
        )

    def _lag(self) -> int | None:
        """Ends that were asked for before a batch was done may lie before its own: then nothing is known to be left."""
        if self._ends is None or not self._position:
            return None
        position = self._position
        return sum(max(end - position.get(one, NEW_PARTITION_START), 0) for one, end in self._ends.offsets.items())
