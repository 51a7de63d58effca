"""How far streaming queries are: Spark's reports as plain values, and a query's position as a consumer group's offsets.

The group is for those who watch: any lag tool sees the query. What the query itself goes by is its checkpoint.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.streaming.listener import StreamingQueryListener

from ottla.spark.group_commits import GroupCommits
from ottla.spark.offsets import Offsets, from_json

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

BAD_ROWS = "ottla.bad-rows."
WRITTEN_ROWS = "ottla.written-rows"
_LAST_REPORT_TIMEOUT_S = 10.0


class QueryProgress(NamedTuple):
    """One report of a query: what its last trigger did."""

    query_id: str
    run_id: str
    name: str | None
    batch_id: int
    started_ms: int
    duration_ms: int
    input_rows: int
    """As often as they were read: a sink may compute a batch more than once."""
    written_rows: int
    bad_rows: int
    state_rows: int
    watermark: str | None
    end_offsets: Offsets
    """The next offset of each partition, in the topics among its sources."""
    reads_only_topics: bool

    @classmethod
    def parse(cls, text: str) -> QueryProgress:
        """From Spark's own JSON."""
        report: dict[str, Any] = json.loads(text)
        ends = [parse_offsets(source.get("endOffset")) for source in report.get("sources", ())]
        end_offsets: Offsets = {}
        for end in ends:
            end_offsets |= end or {}
        observed = {
            name: int(found["rows"])
            for name, found in (report.get("observedMetrics") or {}).items()
            if name.startswith((BAD_ROWS, WRITTEN_ROWS))
        }
        written = (report.get("sink") or {}).get("numOutputRows", -1)
        return cls(
            report["id"],
            report["runId"],
            report.get("name"),
            report["batchId"],
            _to_ms(report["timestamp"]),
            report.get("batchDuration", 0),
            report.get("numInputRows", 0),
            written if written >= 0 else observed.get(WRITTEN_ROWS, 0),
            sum(rows for name, rows in observed.items() if name.startswith(BAD_ROWS)),
            sum(operator.get("numRowsTotal", 0) for operator in report.get("stateOperators", ())),
            (report.get("eventTime") or {}).get("watermark"),
            end_offsets,
            bool(ends) and None not in ends,
        )


def _to_ms(timestamp: str) -> int:
    return round(datetime.fromisoformat(timestamp).timestamp() * 1000)


def observe_bad(rows: DataFrame, is_bad: Column, *, source: str) -> DataFrame:
    """Has a query count the bad records of one of its sources, for its reports."""
    from pyspark.sql import functions as f

    return rows.observe(f"{BAD_ROWS}{source}", f.count_if(is_bad).alias("rows"))


def observe_written(rows: DataFrame) -> DataFrame:
    """The same for rows on their way into a sink that does not tell Spark how many it has written."""
    from pyspark.sql import functions as f

    return rows.observe(WRITTEN_ROWS, f.count(f.lit(1)).alias("rows"))


def parse_offsets(found: object) -> Offsets | None:
    """The offsets of a source that reads topics, `{"topic": {"0": 5}}`; None for any other source's position."""
    if isinstance(found, str):
        try:
            found = json.loads(found)
        except ValueError:
            return None
    if not isinstance(found, dict) or not found:
        return None
    for partitions in found.values():
        if not isinstance(partitions, dict):
            return None
        if not all(str(one).isdecimal() and isinstance(offset, int) for one, offset in partitions.items()):
            return None
    return from_json(found)


class LagTracker(StreamingQueryListener):
    """Commits the position of every query of a session, the last batch included. `close` ends that."""

    def __init__(
        self, spark: SparkSession, commits: GroupCommits, group_id_of: Callable[[QueryProgress], str | None]
    ) -> None:
        self._spark = spark
        self._commits = commits
        self._group_id_of = group_id_of
        self._changed = threading.Condition()
        self._runs: set[str] = set()
        """Those that have started and of whose end nothing was heard."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        with self._changed:
            self._runs.add(str(event.runId))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = QueryProgress.parse(event.progress.json)
        group_id = self._group_id_of(progress)
        if group_id is not None and progress.end_offsets:
            self._commits.put(group_id, progress.end_offsets)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        with self._changed:
            self._runs.discard(str(event.runId))
            self._changed.notify_all()

    def close(self) -> None:
        """Waits for the last reports of queries that have ended: Spark hands them out some time after the end."""
        active = {str(query.runId) for query in self._spark.streams.active}
        with self._changed:
            self._changed.wait_for(lambda: self._runs <= active, _LAST_REPORT_TIMEOUT_S)
        self._spark.streams.removeListener(self)
        self._commits.close()


def track_lag(
    spark: SparkSession,
    settings: Mapping[str, str],
    *,
    group_id: str | Callable[[QueryProgress], str | None] | None = None,
) -> LagTracker:
    """From now on every streaming query of this session that reads topics shows as a consumer group.

    `settings` are a client's, with `bootstrap.servers`. The group is `ottla-spark-<name of the query, or its id>`,
    unless `group_id` names one for all or gives one for each query (None: that query is not tracked).
    """
    chosen: Callable[[QueryProgress], str | None]
    if group_id is None:
        chosen = _default_group_id
    else:
        fixed = group_id
        chosen = (lambda progress: fixed) if isinstance(fixed, str) else fixed
    tracker = LagTracker(spark, GroupCommits(lambda group_id, topic: settings), chosen)
    spark.streams.addListener(tracker)
    return tracker


def _default_group_id(progress: QueryProgress) -> str:
    return f"ottla-spark-{progress.name or progress.query_id}"
