"""Batches into a database exactly once: SQLite is real, frames are Arrow batches, and a checkpoint is what is said."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ottla.spark.connect import batch_writer
from ottla.spark.connect.batch_progress import BEFORE_ANY_BATCH, BatchRefusedError, Progress
from ottla.spark.connect.batch_writer import BatchWriter
from ottla.spark.connect.database import DatabaseError, Filled
from ottla.spark.connect.database_sink import DatabaseSink
from ottla.spark.connect.database_target import Target
from ottla.spark.connect.sqlite import SqliteDatabase
from ottla.spark.pipeline.parts import MovedFlow
from ottla.spark.pipeline.problems import Place, SpecError
from ottla.spark.pipeline.section import Section

SCHEMA = StructType([StructField("id", LongType()), StructField("name", StringType())])


class Frame:
    """Rows of a batch; `dropped` says that they were computed and thrown away."""

    def __init__(self, *rows: dict[str, object]) -> None:
        self.rows = list(rows)
        self.columns = list(rows[0]) if rows else SCHEMA.names
        self.schema = SCHEMA
        self.sparkSession = None
        self.dropped = 0
        self.ordered: tuple[str, ...] = ()

    @property
    def write(self) -> Any:
        def save() -> None:
            self.dropped += 1

        assert self is not None
        return SimpleNamespace(
            format=lambda kind: SimpleNamespace(
                mode=lambda mode: SimpleNamespace(save=save if kind == "noop" else None)
            )
        )

    def orderBy(self, *names: str) -> Frame:
        self.ordered = names
        self.rows.sort(key=lambda row: [row[name] for name in names])  # type: ignore[return-value, arg-type]
        return self

    def select(self, *names: str) -> Frame:
        return Frame(*({name: row[name] for name in names} for row in self.rows))


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def batches(frame: Frame) -> Iterator[pa.RecordBatch]:
        for row in frame.rows:
            yield pa.RecordBatch.from_pylist([row])

    monkeypatch.setattr(batch_writer, "arrow_batches", batches)
    monkeypatch.setattr(
        batch_writer,
        "batch_progress",
        lambda spark, checkpoint, batch_id: Progress(checkpoint, batch_id, (f"to {batch_id}",)),
    )


@pytest.fixture
def database(tmp_path: Path) -> SqliteDatabase:
    made = SqliteDatabase(tmp_path / "x.db")
    with made.transaction() as session:
        session.run("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)")
    return made


def rows_of(database: SqliteDatabase, table: str = "t") -> list[tuple[object, ...]]:
    with sqlite3.connect(database.path) as connection:
        found = connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()
    connection.close()
    return found


def row(number: int, name: str = "a") -> dict[str, object]:
    return {"id": number, "name": name}


def test_a_batch_that_comes_again_is_dropped_but_computed(database: SqliteDatabase) -> None:
    writer = BatchWriter(Target(database, "t"), "sink", "query")
    first, again, second = Frame(row(1), row(2)), Frame(row(1), row(2)), Frame(row(3))
    writer(first, 0)  # type: ignore[arg-type]
    BatchWriter(Target(database, "t"), "sink", "query")(again, 0)  # type: ignore[arg-type]
    writer(second, 1)  # type: ignore[arg-type]
    assert rows_of(database) == [(1, "a"), (2, "a"), (3, "a")]
    assert [frame.dropped for frame in (first, again, second)] == [0, 1, 0]
    with pytest.raises(BatchRefusedError):
        writer(Frame(row(9)), 5)  # type: ignore[arg-type]
    assert len(rows_of(database)) == 3


def test_another_checkpoint_is_refused_unless_accepted(database: SqliteDatabase) -> None:
    BatchWriter(Target(database, "t"), "sink", "query")(Frame(row(1)), 4)  # type: ignore[arg-type]
    with pytest.raises(BatchRefusedError, match="another checkpoint"):
        BatchWriter(Target(database, "t"), "sink", "other")(Frame(row(2)), 0)  # type: ignore[arg-type]
    BatchWriter(Target(database, "t"), "another-sink", "other")(Frame(row(2)), 0)  # type: ignore[arg-type]
    BatchWriter(Target(database, "t", accept_new_checkpoint=True), "sink", "other")(Frame(row(3)), 0)  # type: ignore[arg-type]
    assert [number for number, _ in rows_of(database)] == [1, 2, 3]


def test_modes_of_writing(database: SqliteDatabase) -> None:
    BatchWriter(Target(database, "t"), "a", "q")(Frame(row(1), row(2)), 0)  # type: ignore[arg-type]
    BatchWriter(Target(database, "t", "upsert", ("id",)), "u", "q")(Frame(row(2, "b"), row(3)), 0)  # type: ignore[arg-type]
    assert rows_of(database) == [(1, "a"), (2, "b"), (3, "a")]
    BatchWriter(Target(database, "t", "replace"), "r", "q")(Frame(row(7)), 0)  # type: ignore[arg-type]
    assert rows_of(database) == [(7, "a")]
    with pytest.raises(DatabaseError):
        BatchWriter(Target(database, "t"), "a", "q")(Frame(row(8), row(7)), 1)  # type: ignore[arg-type]
    assert rows_of(database) == [(7, "a")], "all or nothing"


def change(op: str, number: int, name: str | None, seq: int) -> dict[str, object]:
    after = None if name is None else f'{{"id":{number},"name":"{name}"}}'
    return {"op": op, "key": f'{{"id":{number}}}', "before": None, "after": after, "lsn": 1, "seq": seq}


def test_changes_are_applied_in_their_order(database: SqliteDatabase) -> None:
    target = Target(database, "t", "changes", ("id",))
    frame = Frame(
        change("update", 1, "b", 2),
        change("insert", 1, "a", 1),
        change("insert", 2, "c", 3),
        change("delete", 2, None, 4),
    )
    BatchWriter(target, "c", "q")(frame, 0)  # type: ignore[arg-type]
    assert frame.ordered == ("lsn", "seq")
    assert rows_of(database) == [(1, "b")]
    with pytest.raises(DatabaseError, match=r"there is no table gone in .* any more"):
        BatchWriter(Target(database, "gone", "changes", ("id",)), "d", "q")(Frame(change("insert", 1, "a", 1)), 0)  # type: ignore[arg-type]


def test_a_table_is_made_if_asked_for(database: SqliteDatabase) -> None:
    BatchWriter(Target(database, "new", create=True, keys=("id",)), "n", "q")(Frame(row(1)), 0)  # type: ignore[arg-type]
    assert rows_of(database, "new") == [(1, "a")]
    with pytest.raises(DatabaseError):
        BatchWriter(Target(database, "absent"), "m", "q")(Frame(row(1)), 0)  # type: ignore[arg-type]


class Staging:
    """Stages rows in memory, as tasks would in a table."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.keys: Sequence[str] | None = None

    def clean(self) -> None:
        self.steps.append("clean")

    def fill(self, frame: Frame, table: str) -> Filled:
        self.steps.append("fill")
        self._rows = frame.rows
        return Filled("staging", ((0, 0),), len(frame.rows))

    def take_over(self, session: Any, filled: Filled, table: str, names: Sequence[str], keys: Sequence[str]) -> None:
        self.steps.append("take over")
        self.keys = keys
        session.append(table, names, [pa.RecordBatch.from_pylist(self._rows)])

    def drop(self, filled: Filled) -> None:
        self.steps.append("drop")


class Staged(SqliteDatabase):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.made = Staging()

    def staging(self, sink: str) -> Any:
        return self.made


@pytest.mark.parametrize(
    ("options", "sizes", "steps"),
    [
        ({"staging_rows": 2}, [2], ["clean"]),
        ({"staging_rows": 2}, [3], ["clean", "fill", "take over", "drop"]),
        ({"staging_rows": 2}, [3, 1], ["clean", *["fill", "take over", "drop"] * 2]),
        ({"staging": "always"}, [1], ["clean", "fill", "take over", "drop"]),
        ({"staging": "never", "staging_rows": 2}, [3], []),
        ({"mode": "replace", "staging": "always"}, [3], []),
        ({"mode": "upsert", "keys": ("id",), "staging": "always"}, [3], ["clean", "fill", "take over", "drop"]),
    ],
)
def test_tasks_write_big_batches(
    database: SqliteDatabase, options: dict[str, Any], sizes: list[int], steps: list[str]
) -> None:
    staged = Staged(database.path)
    writer = BatchWriter(Target(staged, "t", **options), "sink", "q")
    count = 0
    for batch_id, size in enumerate(sizes):
        writer(Frame(*(row(count + number) for number in range(size))), batch_id)  # type: ignore[arg-type]
        count += size
    assert staged.made.steps == steps
    assert [number for number, _ in rows_of(staged)] == list(range(count))
    if "take over" in steps:
        assert staged.made.keys == options.get("keys", ())
        again = Frame(row(0))
        writer(again, len(sizes) - 1)  # type: ignore[arg-type]
        assert (staged.made.steps, again.dropped) == (steps, 1), "nothing is staged for a batch that is there"


@pytest.mark.parametrize(("other_query", "is_refused"), [("q", False), ("other", True)])
def test_a_batch_that_another_driver_has_written_meanwhile_is_not_taken_over(
    database: SqliteDatabase, other_query: str, is_refused: bool
) -> None:
    staged = Staged(database.path)
    fill = staged.made.fill

    def fill_slowly(frame: Frame, table: str) -> Filled:
        BatchWriter(Target(database, "t"), "sink", other_query)(Frame(row(1, "theirs")), 0)  # type: ignore[arg-type]
        return fill(frame, table)

    staged.made.fill = fill_slowly  # type: ignore[method-assign]
    frame = Frame(row(1, "ours"))
    writer = BatchWriter(Target(staged, "t", staging="always"), "sink", "q")
    if is_refused:
        with pytest.raises(BatchRefusedError, match="another checkpoint"):
            writer(frame, 0)  # type: ignore[arg-type]
    else:
        writer(frame, 0)  # type: ignore[arg-type]
    assert staged.made.steps == ["clean", "fill", *([] if is_refused else ["drop"])]
    assert (rows_of(database), frame.dropped) == ([(1, "theirs")], 0)


def sink(tmp_path: Path, **values: object) -> DatabaseSink:
    given = {"url": "sqlite:x.db", "table": "t", **values}
    return DatabaseSink.from_section(Section.of(given, Place("p.yaml", 1), "sink s", directory=tmp_path))


def test_what_a_sink_is_without_being_told(tmp_path: Path, database: SqliteDatabase) -> None:
    target = sink(tmp_path).target
    assert (target.mode, target.keys, target.create, target.staging) == ("append", (), False, "auto")
    assert (target.staging_rows, target.accept_new_checkpoint) == (50_000, False)
    assert sink(tmp_path, on_new_checkpoint="accept").target.accept_new_checkpoint
    assert sink(tmp_path).check() == []
    assert "needs keys" in str(sink(tmp_path, mode="upsert").check())
    with pytest.raises(SpecError, match="is no database that is known here"):
        sink(tmp_path, url="oracle:x")
    with pytest.raises(SpecError, match="table t has no column 'age'"):
        frame: Any = SimpleNamespace(schema=StructType([StructField("age", LongType())]))
        flow: Any = SimpleNamespace(mode="append", sink_id="s", checkpoint="c")
        sink(tmp_path).writer(frame, flow=flow)


@pytest.mark.parametrize(
    ("options", "words"),
    [({}, "a second time"), ({"mode": "replace"}, "is written anew"), ({"mode": "upsert", "keys": "id"}, "their keys")],
)
def test_what_becomes_of_rows_that_are_written_again(tmp_path: Path, options: dict[str, object], words: str) -> None:
    assert words in sink(tmp_path, **options).rewritten_rows


def test_a_flow_that_has_moved_goes_on_under_its_new_query(tmp_path: Path, database: SqliteDatabase) -> None:
    moved = MovedFlow("sink", "old", "new", ("to 3",))
    writer = BatchWriter(Target(database, "t"), "sink", "old")
    writer(Frame(row(1)), 3)  # type: ignore[arg-type]
    sink(tmp_path).flow_moved(moved)
    with database.transaction(read_only=True) as session:
        assert session.progress("sink") == Progress("new", BEFORE_ANY_BATCH, ("to 3",))
    BatchWriter(Target(database, "t"), "sink", "new")(Frame(row(2)), 0)  # type: ignore[arg-type]
    with pytest.raises(BatchRefusedError):
        writer(Frame(row(9)), 4)  # type: ignore[arg-type]
    sink(tmp_path, url="sqlite:absent.db").flow_moved(moved)
    assert not (tmp_path / "absent.db").exists()
