"""A growing table is read in windows: every row once and in order, whatever the windows. SQLite plays the server."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.spark.sleeping_clock import SleepingClock

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ottla.spark.connect import table_source
from ottla.spark.connect.sql import STANDARD
from ottla.spark.connect.table_follower import TableFollower, TableOptions, _utc_text
from ottla.spark.connect.table_source import DatabaseTableSource, TableReader, TableStreamReader, WindowPartition
from ottla.spark.connect.table_window import Condition, Order, Position, TablePositionError

BY_NUMBER, BY_TIME, BY_BOTH = Order("id", None), Order(None, "at"), Order("id", "at")
ORDERS = {"number": BY_NUMBER, "time": BY_TIME, "both": BY_BOTH}
FUTURE = "9999"


class Column:
    def __init__(self, name: str, spark_type: Any) -> None:
        self.name, self.kind, self.spark_type, self.expression = name, "", spark_type, f'"{name}"'


class Server:
    """A table t (id, at) whose times are texts of microseconds."""

    dialect = STANDARD
    number_kinds = moment_kinds = ("any",)

    def __init__(self, rows: Sequence[tuple[int | None, str | None]]) -> None:
        self._connection = sqlite3.connect(":memory:")
        self._connection.execute("CREATE TABLE t (id INTEGER, at TEXT)")
        self.insert(*rows)
        self.busy = 0
        self.noted = 0
        self.delays: list[int] = []

    def insert(self, *rows: tuple[int | None, str | None]) -> None:
        self._connection.executemany("INSERT INTO t VALUES (?, ?)", rows)

    def columns(self, table: str) -> list[Any]:
        return [Column("id", LongType()), Column("at", StringType())]

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        found = self._connection.execute(query.replace("%s", "?"), tuple(parameters))
        names = [column[0] for column in found.description]
        return [
            tuple(datetime.fromisoformat(cell) if name == "at" else cell for name, cell in zip(names, row, strict=True))
            for row in found.fetchall()
        ]

    def fetch(self, query: str, parameters: Sequence[object], schema: StructType) -> Iterator[pa.RecordBatch]:
        rows = self._connection.execute(query.replace("%s", "?"), tuple(parameters)).fetchall()
        yield pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows])

    def is_older(self, table: str, column: str, delay_ms: int) -> Condition:
        self.delays.append(delay_ms)
        return Condition('"at" < %s', (FUTURE,))

    def writers(self) -> object:
        self.noted += 1
        return self.busy

    def are_done(self, writers: object) -> bool:
        return not self.busy

    def close(self) -> None: ...


def moment(number: int) -> str:
    return (datetime(2026, 1, 1) + timedelta(microseconds=number)).isoformat(timespec="microseconds")


def options_of(order: Order, **others: Any) -> TableOptions:
    return TableOptions("postgresql://h/d", "t", order, **others)


SCHEMA = StructType([StructField("id", LongType()), StructField("at", StringType())])


@pytest.fixture
def reader_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(server: Server, options: TableOptions) -> TableStreamReader:
        monkeypatch.setattr(table_source, "open_table_server", lambda url: server)
        return TableStreamReader(options, SCHEMA)

    return make


def read(reader: Any, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, str]]:
    (partition,) = reader.partitions(start, end)
    return [(row["id"], row["at"]) for batch in reader.read(partition) for row in batch.to_pylist()]


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@settings(max_examples=40)
@given(
    times=st.lists(st.integers(0, 5), max_size=12),
    max_rows=st.integers(1, 5),
    first=st.integers(0, 12),
)
def test_every_row_comes_once_and_in_order(order: Order, times: list[int], max_rows: int, first: int) -> None:
    rows = [(number, moment(time)) for number, time in enumerate(times)]
    if order.timestamp is not None:
        rows.sort(key=lambda row: row[1])
    server = Server(rows[:first])
    follower = TableFollower(options_of(order, max_rows=max_rows), server)  # type: ignore[arg-type]
    at, windows = Position(), []
    for added in (
        [],
        [row for row in rows[first:] if order is BY_NUMBER or not rows[:first] or row[1] > rows[first - 1][1]],
    ):
        server.insert(*added)
        while (end := follower.settled_end(at, max_rows)) is not None and end != at:
            condition = order.after(at, STANDARD).also(order.up_to(end, STANDARD))
            by = STANDARD.quoted_list(order.columns)
            query = f'SELECT "id" FROM "t" WHERE {condition.text} ORDER BY {by}'
            windows.append([row[0] for row in server.rows(query, condition.parameters)])
            assert at.is_before(end) and not end.is_before(at)
            at = end
        assert end == at
    everything = sorted(server.rows('SELECT "id", "at" FROM "t"'), key=lambda row: (row[1], row[0]))
    read_numbers = [number for window in windows for number in window]
    if order is BY_TIME:
        assert sorted(read_numbers) == sorted(row[0] for row in everything), "rows of one moment stay together"
    else:
        assert read_numbers == [row[0] for row in (sorted(everything) if order is BY_NUMBER else everything)]
        assert all(len(window) <= max_rows for window in windows)


def test_rows_without_a_place_and_rows_of_the_future_are_left_alone() -> None:
    server = Server([(1, moment(1)), (None, moment(2)), (3, "9999-01-01T00:00:00.000000")])
    assert TableFollower(options_of(BY_NUMBER), server).settled_end(Position(), None) == Position(3)  # type: ignore[arg-type]
    assert server.delays == []
    both = TableFollower(options_of(BY_BOTH, delay_ms=70), server)  # type: ignore[arg-type]
    assert both.settled_end(Position(), None) == Position(1, f"{moment(1)}+00:00")
    assert server.delays == [70]


def test_a_window_waits_for_those_who_were_writing_when_its_end_was_seen() -> None:
    server = Server([(5, moment(5))])
    follower = TableFollower(options_of(BY_NUMBER), server)  # type: ignore[arg-type]
    server.busy = 1
    assert follower.settled_end(Position(), 10) is None
    server.insert((4, moment(4)), (6, moment(6)))
    assert follower.settled_end(Position(), 10) is None
    server.busy = 0
    assert follower.settled_end(Position(), 10) == Position(5), "the end stays where it was"
    assert server.noted == 1
    assert follower.settled_end(Position(5), 10) == Position(6)
    careless = TableFollower(options_of(BY_NUMBER, wait_for_writers=False), server)  # type: ignore[arg-type]
    server.busy = 1
    assert careless.settled_end(Position(), 10) == Position(6)


def test_a_micro_batch_goes_as_far_as_allowed(reader_of: Any) -> None:
    server = Server([(number, moment(number)) for number in range(5)])
    reader = reader_of(server, options_of(BY_NUMBER, max_rows=3, poll_interval_ms=0))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert [row[0] for row in read(reader, start, end)] == [0, 1, 2]
    again = reader.latestOffset(end, ReadAllAvailable())
    assert [row[0] for row in read(reader, end, again)] == [3, 4]
    assert reader.latestOffset(again, ReadAllAvailable()) == again
    assert read(reader, again, again) == []


def test_who_reads_what_is_there_stops_at_what_was_there(reader_of: Any) -> None:
    server = Server([(number, moment(number)) for number in range(5)])
    reader = reader_of(server, options_of(BY_NUMBER, max_rows=3))
    reader.prepareForTriggerAvailableNow()
    server.insert((5, moment(5)))
    ends = [reader.initialOffset()]
    for _ in range(4):
        ends.append(reader.latestOffset(ends[-1], ReadAllAvailable()))
    assert [Position.from_json(end).incrementing for end in ends] == [None, 2, 4, 4, 4]
    empty = reader_of(Server([]), options_of(BY_NUMBER))
    empty.prepareForTriggerAvailableNow()
    assert empty.latestOffset(empty.initialOffset(), ReadAllAvailable()) == empty.initialOffset()


def test_an_idle_table_is_looked_at_only_now_and_then(reader_of: Any) -> None:
    server = Server([(1, moment(1))])
    reader = reader_of(server, options_of(BY_NUMBER, poll_interval_ms=3_600_000))
    at = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert Position.from_json(at) == Position(1)
    assert reader.latestOffset(at, ReadAllAvailable()) == at
    server.insert((2, moment(2)))
    assert reader.latestOffset(at, ReadAllAvailable()) == at, "it is not time yet"
    reader._looked_s -= 3_600
    assert Position.from_json(reader.latestOffset(at, ReadAllAvailable())) == Position(2)


def test_the_table_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server([(2, moment(2)), (1, moment(1)), (None, None)])
    monkeypatch.setattr(table_source, "open_table_server", lambda url: server)
    source = DatabaseTableSource(options_of(Order(None, None)).spark_options())
    assert source.schema() == SCHEMA
    reader = source.reader(SCHEMA)
    assert isinstance(reader, TableReader)
    rows = [row for batch in reader.read(WindowPartition(Position(), Position())) for row in batch.to_pylist()]
    assert [row["id"] for row in rows] == [2, 1, None]
    only = StructType([StructField("at", StringType())])
    rows = [
        row for batch in source.reader(only).read(WindowPartition(Position(), Position())) for row in batch.to_pylist()
    ]
    assert list(rows[0]) == ["at"]


def test_options_survive_the_way_through_spark() -> None:
    for options in (
        options_of(BY_BOTH),
        options_of(BY_NUMBER, delay_ms=1, poll_interval_ms=2, max_rows=3, wait_for_writers=False),
    ):
        assert TableOptions.parse({name.lower(): text for name, text in options.spark_options().items()}) == options
    assert TableOptions.parse({"url": "u", "table": "t"}) == TableOptions("u", "t", Order(None, None))


def test_a_position_of_another_source_or_of_other_columns_is_refused() -> None:
    assert Position.from_json(Position(3, "x").to_json()) == Position(3, "x")
    with pytest.raises(TablePositionError, match="that of another source"):
        Position.from_json({"lsn": "0/1"})
    for order, position in ((BY_BOTH, Position(3)), (BY_BOTH, Position(None, "x"))):
        for condition in (order.after, order.up_to):
            with pytest.raises(TablePositionError, match="by other columns"):
                condition(position, STANDARD)


def test_times_are_compared_in_utc() -> None:
    noon = datetime(2026, 1, 1, 12)
    assert _utc_text(noon) == _utc_text(noon.replace(tzinfo=UTC)) == "2026-01-01T12:00:00.000000+00:00"
    assert _utc_text(noon.replace(tzinfo=timezone(timedelta(hours=2)))) == "2026-01-01T10:00:00.000000+00:00"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SleepingClock:
    made = SleepingClock()
    monkeypatch.setattr(table_source, "time", made)
    monkeypatch.setattr(table_source, "_IDLE_WAIT_S", 0.25)
    return made


@pytest.mark.parametrize(
    ("interval_ms", "sleeps"),
    [(0, []), (125, [0.125]), (250, [0.25]), (500, [0.25, 0.25]), (625, [0.25, 0.25, 0.125])],
)
def test_how_long_an_idle_table_is_left_alone(
    reader_of: Any, clock: SleepingClock, interval_ms: int, sleeps: list[float]
) -> None:
    server = Server([])
    reader = reader_of(server, options_of(BY_NUMBER, poll_interval_ms=interval_ms))
    start = Position().to_json()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert (server.noted, clock.sleeps) == (0, [])
    server.insert((1, moment(1)))
    while (end := reader.latestOffset(start, ReadAllAvailable())) == start:
        assert server.noted == 0
    assert (Position.from_json(end), clock.sleeps) == (Position(1), sleeps)
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    clock.now_s += 3600
    server.insert((2, moment(2)))
    assert Position.from_json(reader.latestOffset(end, ReadAllAvailable())) == Position(2)
    assert clock.sleeps == sleeps


def test_who_reads_what_is_there_waits_for_those_who_write(reader_of: Any, clock: SleepingClock) -> None:
    server = Server([(1, moment(1))])
    server.busy = 1
    reader = reader_of(server, options_of(BY_NUMBER))
    sleep = clock.sleep

    def slept(seconds: float) -> None:
        sleep(seconds)
        server.busy = len(clock.sleeps) < 3

    clock.sleep = slept  # type: ignore[method-assign]
    reader.prepareForTriggerAvailableNow()
    assert clock.sleeps == [0.25] * 3
    assert Position.from_json(reader.latestOffset(Position().to_json(), ReadAllAvailable())) == Position(1)


def test_what_a_table_source_is_told_by_its_options() -> None:
    assert options_of(BY_BOTH, delay_ms=7).spark_options() == {
        "url": "postgresql://h/d",
        "table": "t",
        "delayMs": "7",
        "pollIntervalMs": "1000",
        "maxRows": "100000",
        "waitForWriters": "true",
        "incrementing": "id",
        "timestamp": "at",
    }
    assert options_of(BY_NUMBER) == TableOptions("postgresql://h/d", "t", BY_NUMBER, 0, 1000, 100_000, True)
    assert TableOptions.parse({"url": "u", "table": "t", "waitforwriters": "no"}).wait_for_writers is False
    assert set(options_of(Order(None, None)).spark_options()).isdisjoint({"incrementing", "timestamp"})


POSITIONS = (
    [Position(), Position(0), Position(3), Position(4)],
    [
        Position(),
        Position(None, "2026-01-01T00:00:00.000000+00:00"),
        Position(0, "2026-01-01T00:00:00.000000+00:00"),
        Position(9, "2026-01-01T00:00:00.000000+00:00"),
        Position(1, "2026-01-01T00:00:00.000001+00:00"),
    ],
)


@pytest.mark.parametrize("ordered", POSITIONS)
def test_which_position_is_before_which(ordered: list[Position]) -> None:
    for number, first in enumerate(ordered):
        for other, second in enumerate(ordered):
            assert first.is_before(second) is (number < other)
        assert Position.from_json(first.to_json()) == first
    assert Position(3, "x").to_json() == {"incrementing": 3, "timestamp": "x"}


@pytest.mark.parametrize(
    ("order", "position", "after", "up_to"),
    [
        (BY_NUMBER, Position(), ('"id" IS NOT NULL', ()), ("FALSE", ())),
        (BY_BOTH, Position(), ('"at" IS NOT NULL AND "id" IS NOT NULL', ()), ("FALSE", ())),
        (BY_NUMBER, Position(0), ('"id" > %s', (0,)), ('"id" <= %s', (0,))),
        (
            BY_TIME,
            Position(None, "2026-01-01T00:00:00.000000+00:00"),
            ('"at" > %s', ("2026-01-01T00:00:00.000000",)),
            ('"at" <= %s', ("2026-01-01T00:00:00.000000",)),
        ),
        (
            BY_BOTH,
            Position(7, "x+00:00"),
            ('"at" >= %s AND ("at" > %s OR "id" > %s)', ("x", "x", 7)),
            ('"at" <= %s AND ("at" < %s OR "id" <= %s)', ("x", "x", 7)),
        ),
    ],
)
def test_conditions_for_rows_after_and_up_to_a_position(
    order: Order, position: Position, after: tuple[str, Any], up_to: tuple[str, Any]
) -> None:
    assert order.after(position, STANDARD) == Condition(*after)
    assert order.up_to(position, STANDARD) == Condition(*up_to)
    both = order.after(position, STANDARD).also(order.up_to(position, STANDARD))
    assert both == Condition(f"({after[0]}) AND ({up_to[0]})", (*after[1], *up_to[1]))
