"""Every change of a PostgreSQL database as a Spark source, by logical decoding from a replication slot.

An offset is the end of a commit: a micro-batch holds whole transactions. The slot is only looked at, and moves on when
Spark has committed a batch; until then the same offsets give the same rows in the same order.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any, NamedTuple

import psycopg
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

from ottla.spark.connect.change_rows import ChangeDecoder, ChangeRow, key_json, row_json
from ottla.spark.connect.database import DatabaseError
from ottla.spark.connect.pgoutput import format_lsn, parse_lsn
from ottla.spark.connect.postgresql import connect
from ottla.spark.connect.replication_slot import ChangesLostError, PublishedTable, ReplicationSlot

CHANGES_FORMAT = "ottla_changes"
_BATCH_ROWS = 5000
_IDLE_WAIT_S = 0.2
MARK_AFTER_BYTES = 16 * 1024 * 1024
"""The log of tables that are not followed may grow this much before the slot moves past it: it keeps the log alive."""

CHANGE_SCHEMA = StructType(
    [
        StructField("op", StringType()),
        StructField("schema", StringType()),
        StructField("table", StringType()),
        StructField("key", StringType()),
        StructField("before", StringType()),
        StructField("after", StringType()),
        StructField("lsn", LongType()),
        StructField("seq", IntegerType()),
        StructField("xid", LongType()),
        StructField("committed_at", TimestampType()),
    ]
)


class ChangeOptions(NamedTuple):
    url: str
    slot: str
    publication: str
    tables: tuple[str, ...] = ()
    """What the publication holds if it has to be made; nothing named stands for all tables."""
    snapshot: bool = True
    """Whether the rows that are there at the first start come before the changes."""
    poll_interval_ms: int = 500
    max_changes: int = 100_000
    """Of a micro-batch, about: transactions stay whole."""

    @classmethod
    def parse(cls, options: dict[str, str]) -> ChangeOptions:
        return cls(
            url=options["url"],
            slot=options["slot"],
            publication=options["publication"],
            tables=tuple(json.loads(options.get("tables", "[]"))),
            snapshot=options.get("snapshot", "true") == "true",
            poll_interval_ms=int(options.get("pollintervalms", "500")),
            max_changes=int(options.get("maxchanges", "100000")),
        )

    def spark_options(self) -> dict[str, str]:
        return {
            "url": self.url,
            "slot": self.slot,
            "publication": self.publication,
            "tables": json.dumps(self.tables),
            "snapshot": str(self.snapshot).lower(),
            "pollIntervalMs": str(self.poll_interval_ms),
            "maxChanges": str(self.max_changes),
        }


class ChangePosition(NamedTuple):
    lsn: int
    snapshot_pending: bool

    def to_json(self) -> dict[str, Any]:
        return {"lsn": format_lsn(self.lsn), "snapshot": "pending" if self.snapshot_pending else "done"}

    @classmethod
    def from_json(cls, offset: dict[str, Any]) -> ChangePosition:
        try:
            return cls(parse_lsn(offset["lsn"]), offset["snapshot"] == "pending")
        except KeyError:
            raise DatabaseError(
                f"{offset} is no position in a log: this checkpoint is that of another source"
            ) from None


class PostgresChangeSource(DataSource):
    """`format("ottla_changes")`: to be registered with `spark.dataSource.register`."""

    @classmethod
    def name(cls) -> str:
        return CHANGES_FORMAT

    def schema(self) -> StructType:
        return CHANGE_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return ChangeStreamReader(ChangeOptions.parse({name.lower(): text for name, text in self.options.items()}))


class LogPartition(InputPartition):
    """Transactions after `start_lsn`, up to the one whose commit ends at `end_lsn`."""

    def __init__(self, start_lsn: int, end_lsn: int) -> None:
        super().__init__((start_lsn, end_lsn))
        self.start_lsn = start_lsn
        self.end_lsn = end_lsn


class SnapshotPartition(InputPartition):
    """The rows of one table, as they are when it is read."""

    def __init__(self, table: PublishedTable, lsn: int) -> None:
        super().__init__((table, lsn))
        self.table = table
        self.lsn = lsn


class ChangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ChangeOptions) -> None:
        self._options = options
        self._opened: ReplicationSlot | None = None
        self._looked_s: float | None = None
        self._mark_lsn: int | None = None
        self._final_lsn: int | None = None

    # In the process that lives as long as the query

    def _slot(self) -> ReplicationSlot:
        if self._opened is None:
            self._opened = _open(self._options)
        return self._opened

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The first start makes the slot. One that is there already is gone on with: it may have been made on purpose,
        or by a start that did not come as far as its first batch."""
        slot = self._slot()
        # The publication comes first: decoding looks it up as of each change.
        if not slot.has_publication():
            slot.create_publication(self._options.tables)
        state = slot.state()
        if state is None:
            slot.create()
            state = slot.state()
        assert state is not None
        return ChangePosition(state.confirmed_lsn, self._options.snapshot).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._final_lsn = self._slot().flushed_lsn()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begun = ChangePosition.from_json(start)
        if begun.snapshot_pending:
            return ChangePosition(begun.lsn, False).to_json()
        if not self._is_time_to_look():
            return start
        try:
            end_lsn = self._next_end(begun.lsn)
        except psycopg.OperationalError:
            # The server was restarted or the connection cut; a second failure is the query's.
            self._opened = None
            end_lsn = self._next_end(begun.lsn)
        self._looked_s = None if end_lsn != begun.lsn else time.monotonic()
        return ChangePosition(end_lsn, False).to_json()

    def _is_time_to_look(self) -> bool:
        """Waits a little if not: Spark asks again at once."""
        if self._looked_s is None or self._final_lsn is not None:
            return True
        left_s = self._looked_s + self._options.poll_interval_ms / 1000 - time.monotonic()
        if left_s > 0:
            time.sleep(min(left_s, _IDLE_WAIT_S))
        return left_s <= _IDLE_WAIT_S

    def _next_end(self, start_lsn: int) -> int:
        slot = self._slot()
        self._check_nothing_lost(slot, start_lsn)
        flushed_lsn = slot.flushed_lsn()
        max_changes = self._options.max_changes
        while True:
            count, end_lsn = slot.last_commit_end(self._final_lsn, max_changes)
            if end_lsn is not None and end_lsn > start_lsn:
                return end_lsn
            if count < max_changes:
                return self._end_without_changes(slot, start_lsn, flushed_lsn)
            # The slot still sends the last batch, and it fills the whole peek.
            max_changes *= 2

    def _end_without_changes(self, slot: ReplicationSlot, start_lsn: int, flushed_lsn: int) -> int:
        """Moves over a log that holds nothing for us, to a mark of our own: only there no commit can be cut in two."""
        if self._mark_lsn is not None and start_lsn < self._mark_lsn <= flushed_lsn:
            return self._mark_lsn
        if self._final_lsn is None and flushed_lsn - start_lsn > MARK_AFTER_BYTES:
            self._mark_lsn = slot.write_mark()
        return start_lsn

    def _check_nothing_lost(self, slot: ReplicationSlot, start_lsn: int) -> None:
        state = slot.state()
        name = self._options.slot
        advice = "remove the checkpoint to start over with a new snapshot"
        if state is None:
            raise ChangesLostError(
                f"the replication slot {name} is gone, and with it changes since {start_lsn}: {advice}"
            )
        if state.wal_status == "lost":
            raise ChangesLostError(f"the server has removed log that the slot {name} needed: drop it, {advice}")
        if state.confirmed_lsn > start_lsn:
            raise ChangesLostError(
                f"the replication slot {name} is at {format_lsn(state.confirmed_lsn)}, past the checkpoint's "
                f"{format_lsn(start_lsn)}: somebody else has read from it; {advice}"
            )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begun, ended = ChangePosition.from_json(start), ChangePosition.from_json(end)
        if begun.snapshot_pending and not ended.snapshot_pending:
            return [SnapshotPartition(table, begun.lsn) for table in self._slot().tables()]
        # One task: a slot has one reader, and transactions have an order.
        return [LogPartition(begun.lsn, ended.lsn)]

    def commit(self, end: dict[str, Any]) -> None:
        self._slot().advance(ChangePosition.from_json(end).lsn)

    # In a task

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        slot = _open(self._options)
        if isinstance(partition, SnapshotPartition):
            return _batches(_snapshot_rows(slot, partition.table, partition.lsn))
        assert isinstance(partition, LogPartition)
        return _batches(_change_rows(slot, partition))


def _open(options: ChangeOptions) -> ReplicationSlot:
    return ReplicationSlot(connect(options.url, autocommit=True), options.slot, options.publication)


def _change_rows(slot: ReplicationSlot, partition: LogPartition) -> Iterator[ChangeRow]:
    decoder = ChangeDecoder(partition.start_lsn, slot.primary_keys())
    for message in slot.messages(partition.end_lsn):
        yield from decoder.feed(message)


def _snapshot_rows(slot: ReplicationSlot, table: PublishedTable, lsn: int) -> Iterator[ChangeRow]:
    relation = table.relation
    now = datetime.now(UTC)
    for seq, cells in enumerate(slot.rows(table)):
        key, after = key_json(relation, cells), row_json(relation, cells)
        yield ChangeRow("snapshot", relation.schema, relation.table, key, None, after, lsn, seq, None, now)


def _batches(rows: Iterable[ChangeRow]) -> Iterator[pa.RecordBatch]:
    schema = to_arrow_schema(CHANGE_SCHEMA, timezone="UTC")
    remaining = iter(rows)
    while some := list(islice(remaining, _BATCH_ROWS)):
        columns = [pa.array(values, kind) for values, kind in zip(zip(*some, strict=True), schema.types, strict=True)]
        yield pa.record_batch(columns, schema=schema)
