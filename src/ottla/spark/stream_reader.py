"""A streaming query's reader: says how far each micro-batch goes, and which tasks read it.

Spark keeps one of these in a process of its own for as long as the query runs, and makes another for its tasks. Which
offsets a micro-batch covers is decided once and then written down by Spark; from there on it is pure.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ottla.base.types import Uuid
from ottla.spark.data_loss import report_loss
from ottla.spark.offsets import (
    OffsetJson,
    Offsets,
    from_json,
    gathered,
    is_placed,
    lag,
    losses,
    ranges_between,
    split,
    take,
    to_json,
)
from ottla.spark.options import SourceOptions
from ottla.spark.range_reader import RangePartition, RangeReader
from ottla.spark.source_schema import SourceColumns
from ottla.spark.topic_offsets import Logs, TopicOffsets

_IDLE_WAIT_S = 0.1
"""Spark asks again after 10 ms if there is nothing new; waiting here spares it and the brokers most of that."""
_IDLE_PAUSE_S = 0.02


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    task_rows = 1000
    """A task costs about as much as reading this many rows, so one reads the small ranges of several partitions."""

    def __init__(self, options: SourceOptions, columns: SourceColumns) -> None:
        self._options = options
        self._ranges = RangeReader.of(options, columns)
        self._topics = TopicOffsets(options)
        self._topic_ids: dict[str, Uuid] = {}
        self._latest: Offsets | None = None
        self._final: Offsets | None = None
        """Where a query that only wants what is available now has to stop."""
        self._triggered_s: float | None = None
        self._initial: Offsets | None = None
        self._has_begun = False

    # Offsets, in the process that lives as long as the query

    def initialOffset(self) -> OffsetJson:  # noqa: N802
        """Where a query without a checkpoint starts. Spark asks more than once, and logs grow meanwhile."""
        if self._initial is None:
            logs = self._topics.first_logs()
            self._take_note(logs)
            self._initial = self._topics.starting(logs)
        return to_json(self._initial)

    def _begins_empty(self, start: Offsets) -> bool:
        """Whether this is the first micro-batch of a query that starts at the end of what there is.

        Spark writes down where a micro-batch ends, and asks anew where the first one starts if it has to be run again;
        the end of the log is another place by then. So the first one holds nothing, and all others have both ends
        written down.
        """
        return start == self._initial and self._options.starts_at_the_end

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        logs = self._topics.logs()
        self._take_note(logs)
        self._final = logs.latest

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> OffsetJson:  # noqa: N802
        begun = from_json(start)
        if not self._has_begun:
            self._has_begun = True
            if self._begins_empty(begun):
                return to_json(begun)
        deadline_s = time.monotonic() + _IDLE_WAIT_S
        while True:
            end = self._next_end(begun, limit)
            if end != begun or self._final is not None or time.monotonic() > deadline_s:
                return to_json(end)
            time.sleep(_IDLE_PAUSE_S)

    def _next_end(self, start: Offsets, limit: ReadLimit) -> Offsets:
        logs = self._topics.logs()
        made_anew = self._take_note(logs)
        start = self._begins_in(start, logs)
        latest = logs.latest if self._final is None else _capped(logs.latest, self._final, start)
        lost = losses(start, logs.earliest, logs.latest)
        report_loss(lost or made_anew, fail=self._options.fail_on_data_loss)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = take(start, logs.earliest, latest, most)
        return start if self._should_wait(start, end, limit) else end

    def _begins_in(self, start: Offsets, logs: Logs) -> Offsets:
        """Where the next micro-batch begins in these logs."""
        return start

    def _take_note(self, logs: Logs) -> list[str]:
        """Remembers the ids of topics; tells of those that have become others."""
        made_anew = [
            f"the topic {name} was deleted and made anew"
            for name, topic_id in sorted(logs.topic_ids.items())
            if self._topic_ids.get(name, topic_id) != topic_id
        ]
        self._topic_ids.update(logs.topic_ids)
        self._latest = logs.latest
        return made_anew

    def _should_wait(self, start: Offsets, end: Offsets, limit: ReadLimit) -> bool:
        """Whether there is too little for a micro-batch, and it has not waited too long yet."""
        fewest = self._options.min_offsets_per_trigger
        now_s = time.monotonic()
        if fewest is not None and not isinstance(limit, ReadAllAvailable) and self._final is None:
            waited_ms = self._options.max_trigger_delay_ms
            if self._triggered_s is not None:
                waited_ms = int((now_s - self._triggered_s) * 1000)
            if lag(start, end) < fewest and waited_ms < self._options.max_trigger_delay_ms:
                return True
        self._triggered_s = now_s
        return False

    def reportLatestOffset(self) -> OffsetJson | None:  # noqa: N802
        return None if self._latest is None else to_json(self._latest)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the checkpoint remembers, and brokers delete by their own rules."""

    # Tasks

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if is_placed(end):
            return []
        begun, ended = from_json(start), from_json(end)
        if self._begins_empty(begun) and all(ended[one] <= begun.get(one, 0) for one in ended):
            return []
        if self._options.fail_on_data_loss:
            gone = [f"{one} is gone, and was read up to offset {begun[one]}" for one in sorted(set(begun) - set(ended))]
            shorter = [
                f"{one} was read up to offset {begun[one]} and now ends at {ended[one]}"
                for one in sorted(set(begun) & set(ended))
                if begun[one] > ended[one]
            ]
            report_loss([*gone, *shorter], fail=True)
        ranges = ranges_between(begun, ended)
        fewest, most = self._options.min_partitions, self._options.max_records_per_partition
        # Who says how many tasks there should be gets them.
        rows_min = self.task_rows if fewest is None and most is None else 1
        return [RangePartition(pieces) for pieces in gathered(split(ranges, fewest, most), rows_min)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._ranges.read(partition)


def _capped(latest: Offsets, final: Offsets, start: Offsets) -> Offsets:
    """Ends up to the goal of a query; where it is there already, or beyond from before a restart, it stays."""
    return {
        one: min(offset, max(final.get(one, 0), start.get(one, 0)))
        for one, offset in latest.items()
        if one in final or one in start
    }
