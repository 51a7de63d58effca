"""How far the next micro-batch of changes goes, and when a position is of no more use. A slot in memory, no server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from tests.unit.spark.sleeping_clock import SleepingClock

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from ottla.spark.connect import change_source
from ottla.spark.connect.change_source import (
    CHANGE_SCHEMA,
    MARK_AFTER_BYTES,
    ChangeOptions,
    ChangePosition,
    ChangeStreamReader,
    LogPartition,
    PostgresChangeSource,
    SnapshotPartition,
)
from ottla.spark.connect.database import DatabaseError
from ottla.spark.connect.pgoutput import Begin, Column, Delete, Insert, Relation
from ottla.spark.connect.replication_slot import ChangesLostError, PublishedTable, SlotState

OPTIONS = ChangeOptions("postgresql://h/db", "s", "p", max_changes=10, poll_interval_ms=0)
TABLE = PublishedTable(
    Relation(1, "public", "t", "d", (Column("id", 23, is_key=True), Column("name", 25, is_key=False))), None
)


class Slot:
    """Of a server whose log holds commits of one change each, ending where `commits` say."""

    def __init__(self, *commits: int) -> None:
        self.commits = list(commits)
        self.confirmed_lsn = 100
        self.wal_status = "reserved"
        self.flushed = 100
        self.marks: list[int] = []
        self.peeks: list[tuple[int | None, int]] = []
        self.is_gone = False
        self.published: list[Sequence[str]] = []
        self.made = 0
        self.broken = 0

    def state(self) -> SlotState | None:
        return None if self.is_gone else SlotState(self.confirmed_lsn, self.wal_status)

    def has_publication(self) -> bool:
        return bool(self.published)

    def create_publication(self, tables: Sequence[str]) -> None:
        assert not self.made, "decoding looks the publication up as of each change"
        self.published.append(tables)

    def create(self) -> None:
        self.made += 1
        self.is_gone = False

    def flushed_lsn(self) -> int:
        return self.flushed

    def write_mark(self) -> int:
        self.marks.append(self.flushed + 50)
        return self.marks[-1]

    def last_commit_end(self, upto_lsn: int | None, max_changes: int) -> tuple[int, int | None]:
        self.peeks.append((upto_lsn, max_changes))
        if self.broken:
            self.broken -= 1
            raise psycopg.OperationalError("the connection is cut")
        seen = [end for end in self.commits if upto_lsn is None or end <= upto_lsn][:max_changes]
        return len(seen), max(seen, default=None)

    def advance(self, lsn: int) -> None:
        self.confirmed_lsn = lsn

    def tables(self) -> list[PublishedTable]:
        return [TABLE]

    def rows(self, table: PublishedTable) -> list[tuple[str | None, ...]]:
        assert table is TABLE
        return [("1", "a"), ("2", None)]


@pytest.fixture
def slot(monkeypatch: pytest.MonkeyPatch) -> Slot:
    made = Slot()
    monkeypatch.setattr(change_source, "_open", lambda options: made)
    return made


def at(lsn: int, *, pending: bool = False) -> dict[str, Any]:
    return ChangePosition(lsn, pending).to_json()


def end_after(reader: ChangeStreamReader, lsn: int) -> int:
    found = ChangePosition.from_json(reader.latestOffset(at(lsn), ReadAllAvailable()))
    assert not found.snapshot_pending
    return found.lsn


def test_options_survive_the_way_through_spark() -> None:
    changed = ChangeOptions("u", "s", "p", ("a", "b"), False, 7, 9)
    for options in (OPTIONS, changed, ChangeOptions("u", "s", "p")):
        source = PostgresChangeSource(options.spark_options())
        assert ChangeOptions.parse({name.lower(): text for name, text in source.options.items()}) == options
    assert ChangeOptions.parse({"url": "u", "slot": "s", "publication": "p"}) == ChangeOptions("u", "s", "p")


def test_a_position_is_what_it_was_and_that_of_another_source_is_refused() -> None:
    for position in (ChangePosition(1 << 33, True), ChangePosition(5, False)):
        assert ChangePosition.from_json(position.to_json()) == position
    with pytest.raises(DatabaseError, match="that of another source"):
        ChangePosition.from_json({"t": {"0": 1}})


def test_the_first_start_makes_what_is_missing(slot: Slot) -> None:
    slot.is_gone = True
    reader = ChangeStreamReader(OPTIONS._replace(tables=("t",)))
    assert reader.initialOffset() == at(100, pending=True)
    assert (slot.published, slot.made) == ([("t",)], 1)
    # A slot and a publication that are there are gone on with.
    assert ChangeStreamReader(OPTIONS._replace(snapshot=False)).initialOffset() == at(100)
    assert (slot.published, slot.made) == ([("t",)], 1)


def test_the_rows_that_are_there_come_first_and_then_changes(slot: Slot) -> None:
    reader = ChangeStreamReader(OPTIONS)
    slot.commits = [200]
    assert reader.latestOffset(at(100, pending=True), ReadAllAvailable()) == at(100)
    (snapshot,) = reader.partitions(at(100, pending=True), at(100))
    assert isinstance(snapshot, SnapshotPartition) and (snapshot.table, snapshot.lsn) == (TABLE, 100)
    (log,) = reader.partitions(at(100), at(200))
    assert isinstance(log, LogPartition) and (log.start_lsn, log.end_lsn) == (100, 200)
    (still_pending,) = reader.partitions(at(100, pending=True), at(100, pending=True))
    assert isinstance(still_pending, LogPartition)
    (rows,) = (batch.to_pylist() for batch in reader.read(snapshot))
    assert [(row["op"], row["key"], row["after"], row["lsn"], row["seq"]) for row in rows] == [
        ("snapshot", '{"id":1}', '{"id":1,"name":"a"}', 100, 0),
        ("snapshot", '{"id":2}', '{"id":2,"name":null}', 100, 1),
    ]
    assert all(row["before"] is None and row["xid"] is None and row["committed_at"] for row in rows)
    assert list(rows[0]) == CHANGE_SCHEMA.names


def test_a_batch_ends_with_a_commit(slot: Slot) -> None:
    reader = ChangeStreamReader(OPTIONS)
    slot.commits = [150, 160]
    assert end_after(reader, 100) == 160
    reader.commit(at(160))
    assert slot.confirmed_lsn == 160
    assert end_after(reader, 160) == 160, "nothing new"


def test_what_the_slot_still_sends_does_not_hide_what_is_new(slot: Slot) -> None:
    reader = ChangeStreamReader(OPTIONS)
    slot.commits = [100 + number for number in range(1, 32)]
    # Ten changes fill a peek, and all of them are of the batch before.
    assert end_after(reader, 110) == 120
    assert [count for _, count in slot.peeks] == [10, 20]
    assert end_after(reader, 131) == 131
    assert [count for _, count in slot.peeks][2:] == [10, 20, 40]


def test_log_without_changes_is_passed_over_at_a_mark(slot: Slot) -> None:
    reader = ChangeStreamReader(OPTIONS)
    slot.flushed = 100 + MARK_AFTER_BYTES
    assert (end_after(reader, 100), slot.marks) == (100, []), "not worth a mark yet"
    slot.flushed += 1
    assert end_after(reader, 100) == 100
    (mark,) = slot.marks
    slot.flushed = mark - 1
    assert end_after(reader, 100) == 100, "the mark is not in what can be decoded yet"
    slot.marks.clear()
    reader._mark_lsn = mark
    slot.flushed = mark
    assert (end_after(reader, 100), slot.marks) == (mark, [])
    assert end_after(reader, mark) == mark, "a mark moves nothing twice"


def test_who_reads_what_is_there_goes_no_further_and_leaves_no_mark(slot: Slot) -> None:
    reader = ChangeStreamReader(OPTIONS._replace(poll_interval_ms=3_600_000))
    slot.flushed = 155
    reader.prepareForTriggerAvailableNow()
    slot.commits = [150, 160]
    assert end_after(reader, 100) == 150
    assert end_after(reader, 150) == 150, "asked again at once, though nothing had come"
    slot.flushed = 10 * MARK_AFTER_BYTES
    assert (end_after(reader, 150), slot.marks) == (150, [])


def test_an_idle_database_is_looked_at_only_now_and_then(slot: Slot) -> None:
    reader = ChangeStreamReader(OPTIONS._replace(poll_interval_ms=3_600_000))
    assert end_after(reader, 100) == 100
    slot.commits = [150]
    assert (end_after(reader, 100), len(slot.peeks)) == (100, 1)
    busy = ChangeStreamReader(OPTIONS._replace(poll_interval_ms=3_600_000))
    assert end_after(busy, 100) == 150
    slot.commits = [150, 160]
    assert end_after(busy, 150) == 160, "where changes come, it is looked at once more"


def test_a_cut_connection_is_opened_once_more(slot: Slot) -> None:
    reader = ChangeStreamReader(OPTIONS)
    slot.commits = [150]
    slot.broken = 1
    assert end_after(reader, 100) == 150
    slot.broken = 2
    with pytest.raises(psycopg.OperationalError):
        end_after(reader, 100)


def test_changes_that_are_lost_end_the_query(slot: Slot) -> None:
    slot.commits = [150]
    reader = ChangeStreamReader(OPTIONS)
    slot.confirmed_lsn = 101
    with pytest.raises(ChangesLostError, match="somebody else has read from it"):
        end_after(reader, 100)
    slot.confirmed_lsn = 99
    assert end_after(reader, 100) == 150
    slot.wal_status = "lost"
    with pytest.raises(ChangesLostError, match="the server has removed log"):
        end_after(reader, 100)
    slot.is_gone = True
    with pytest.raises(ChangesLostError, match="the replication slot s is gone"):
        end_after(reader, 100)


def test_rows_are_handed_over_in_batches(monkeypatch: pytest.MonkeyPatch, slot: Slot) -> None:
    monkeypatch.setattr(change_source, "_BATCH_ROWS", 1)
    batches = list(ChangeStreamReader(OPTIONS).read(SnapshotPartition(TABLE, 7)))
    assert [batch.num_rows for batch in batches] == [1, 1]


@pytest.mark.parametrize(
    ("interval_ms", "sleeps"),
    [
        (0, []),
        (125, [0.125]),
        (250, [0.25]),
        (500, [0.25, 0.25]),
        (625, [0.25, 0.25, 0.125]),
    ],
)
def test_how_long_an_idle_database_is_left_alone(
    slot: Slot, monkeypatch: pytest.MonkeyPatch, interval_ms: int, sleeps: list[float]
) -> None:
    clock = SleepingClock()
    monkeypatch.setattr(change_source, "time", clock)
    monkeypatch.setattr(change_source, "_IDLE_WAIT_S", 0.25)
    reader = ChangeStreamReader(OPTIONS._replace(poll_interval_ms=interval_ms))
    assert end_after(reader, 100) == 100
    assert (len(slot.peeks), clock.sleeps) == (1, []), "the first look is at once"
    slot.commits = [150]
    while end_after(reader, 100) == 100:
        assert len(slot.peeks) == 1
    assert (len(slot.peeks), clock.sleeps) == (2, sleeps)
    assert end_after(reader, 150) == 150
    assert clock.sleeps == sleeps, "where changes came it is looked again at once"
    clock.now_s += 3600
    assert end_after(reader, 150) == 150
    assert clock.sleeps == sleeps, "it was long enough ago"


def test_rows_of_changes_have_these_columns() -> None:
    assert CHANGE_SCHEMA.simpleString() == (
        "struct<op:string,schema:string,table:string,key:string,before:string,after:string,lsn:bigint,seq:int,"
        "xid:bigint,committed_at:timestamp>"
    )
    assert PostgresChangeSource.name() == "ottla_changes"
    source = PostgresChangeSource(OPTIONS.spark_options())
    assert source.schema() == CHANGE_SCHEMA
    reader: Any = source.streamReader(CHANGE_SCHEMA)
    assert type(reader) is ChangeStreamReader and reader._options == OPTIONS
    assert type(reader.getDefaultReadLimit()) is ReadAllAvailable


def test_what_a_source_is_told_by_its_options() -> None:
    assert OPTIONS.spark_options() == {
        "url": "postgresql://h/db",
        "slot": "s",
        "publication": "p",
        "tables": "[]",
        "snapshot": "true",
        "pollIntervalMs": "0",
        "maxChanges": "10",
    }
    assert ChangeOptions("u", "s", "p") == ChangeOptions("u", "s", "p", (), True, 500, 100_000)
    assert ChangeOptions.parse({"url": "u", "slot": "s", "publication": "p", "snapshot": "no"}).snapshot is False


def test_how_far_the_log_may_grow_and_how_many_rows_a_batch_has(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MARK_AFTER_BYTES == 16_777_216
    monkeypatch.setattr(slot, "rows", lambda table: [("1", "a")] * 5_001)
    batches = ChangeStreamReader(OPTIONS).read(SnapshotPartition(TABLE, 7))
    assert [batch.num_rows for batch in batches] == [5_000, 1]


def test_positions_as_they_stand_in_a_checkpoint() -> None:
    assert ChangePosition(0x1_0000_0010, True).to_json() == {"lsn": "1/10", "snapshot": "pending"}
    assert ChangePosition(5, False).to_json() == {"lsn": "0/5", "snapshot": "done"}
    for offset in ({"lsn": "0/1"}, {"snapshot": "done"}, {}):
        with pytest.raises(DatabaseError, match="is no position in a log: this checkpoint is that of another source"):
            ChangePosition.from_json(offset)


def test_rows_of_a_snapshot_and_of_the_log(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def messages(upto_lsn: int) -> list[Any]:
        asked.append(upto_lsn)
        noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
        early, late = (Begin(lsn, noon, 7) for lsn in (90, 140))
        return [TABLE.relation, early, Insert(1, ("0", "x")), late, Insert(1, ("1", "a")), Delete(1, ("1", None), None)]

    slot.messages = messages  # type: ignore[attr-defined]
    slot.primary_keys = dict  # type: ignore[attr-defined]
    reader = ChangeStreamReader(OPTIONS)
    (batch,) = reader.read(LogPartition(100, 150))
    common = {
        "schema": "public",
        "table": "t",
        "key": '{"id":1}',
        "before": None,
        "lsn": 140,
        "xid": 7,
        "committed_at": datetime(2026, 1, 2, 12, tzinfo=UTC),
    }
    assert asked == [150]
    assert batch.to_pylist() == [
        {"op": "insert", "after": '{"id":1,"name":"a"}', "seq": 0, **common},
        {"op": "delete", "after": None, "seq": 1, **common},
    ]
    (snapshot,) = reader.read(SnapshotPartition(TABLE, 9))
    row = snapshot.to_pylist()[0]
    assert datetime(2026, 1, 1, tzinfo=UTC) < row.pop("committed_at")
    assert row == {
        "op": "snapshot",
        "schema": "public",
        "table": "t",
        "key": '{"id":1}',
        "before": None,
        "after": '{"id":1,"name":"a"}',
        "lsn": 9,
        "seq": 0,
        "xid": None,
    }
