"""A table as a target: what a database is asked about it, and in which transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from pyspark.sql.types import StringType, StructField, StructType

from ottla.spark.connect.batch_progress import Progress
from ottla.spark.connect.column_types import TableColumn, TableSchemaError
from ottla.spark.connect.database_sink import DatabaseSink
from ottla.spark.connect.database_target import Target
from ottla.spark.pipeline.problems import Place
from ottla.spark.pipeline.section import Section


class Database:
    """Has a table of three columns, with `id` as its key; notes what it is asked."""

    shown_url = "db:"

    def __init__(self, obstacle: str | None = None, *, exists: bool = True) -> None:
        self._obstacle = obstacle
        self._exists = exists
        self.asked: list[tuple[Sequence[str], Sequence[str]]] = []
        self.read_only: list[bool] = []
        self.noted: list[object] = []

    def exists(self) -> bool:
        return self._exists

    @contextmanager
    def transaction(self, *, read_only: bool = False) -> Iterator[Any]:
        self.read_only.append(read_only)
        yield self

    def columns(self, table: str) -> list[TableColumn] | None:
        return [TableColumn(name, False) for name in ("id", "name", "note")] if table == "t" else None

    def unique_keys(self, table: str) -> list[frozenset[str]]:
        return [frozenset({"id"})]

    def obstacle(self, table: str, names: Sequence[str], keys: Sequence[str]) -> str | None:
        self.asked.append((names, keys))
        return self._obstacle

    def claim(self, sink: str) -> None:
        self.noted.append(f"claimed {sink}")

    def save_progress(self, sink: str, progress: Progress) -> None:
        self.noted.append((sink, progress))


def frame_of(*names: str) -> StructType:
    return StructType([StructField(name, StringType()) for name in names])


CHANGES = ("op", "key", "before", "after")


@pytest.mark.parametrize(
    ("mode", "schema", "asked"),
    [
        ("append", frame_of("id", "name"), (["id", "name"], ())),
        ("append", None, (["id", "name", "note"], ())),
        ("replace", frame_of("id", "name"), (["id", "name"], ())),
        ("upsert", frame_of("id", "name"), (["id", "name"], ("id",))),
        ("upsert", None, (["id", "name", "note"], ("id",))),
        ("changes", frame_of(*CHANGES), (["id", "name", "note"], ("id",))),
    ],
)
def test_what_may_stand_in_the_way_of_these_columns(mode: str, schema: StructType | None, asked: Any) -> None:
    database: Any = Database()
    Target(database, "t", mode, ("id",)).check(schema)
    assert database.asked == [asked]
    assert database.read_only == [True], "nothing is changed by looking"
    blocked: Any = Database("another index")
    with pytest.raises(TableSchemaError, match="another index"):
        Target(blocked, "t", mode, ("id",)).check(schema)


def test_of_a_table_that_is_not_there_nothing_is_asked() -> None:
    database: Any = Database("never asked")
    Target(database, "new", create=True).check(frame_of("id"))
    assert database.asked == []


def sink(database: Any, **options: Any) -> DatabaseSink:
    section = Section.of({"url": "sqlite:x"}, Place("p.yaml", 3), "sink out")
    return DatabaseSink(section, Target(database, "t", **options))


@pytest.mark.parametrize(
    ("mode", "words"),
    [("append", "added a second time"), ("replace", "t is written anew"), ("upsert", "written over the rows of t")],
)
def test_what_becomes_of_rows_that_come_again(mode: str, words: str) -> None:
    assert words in sink(Database(), mode=mode).rewritten_rows


def test_a_flow_that_was_moved_begins_with_a_batch_of_the_new_query() -> None:
    database: Any = Database()
    moved: Any = SimpleNamespace(sink_id="s", new_query_id="q-2", old_query_id="q-1", sources=("offsets",))
    sink(database).flow_moved(moved)
    assert database.noted == ["claimed s", ("s", Progress("q-2", -1, ("offsets",)))]
    assert database.read_only == [False]


def test_whether_a_flow_can_be_moved_is_asked_of_the_database() -> None:
    database: Any = Database()
    assert sink(database).obstacle_to_move() is None
    assert database.read_only == [True]


def test_a_database_that_is_not_there_is_not_made() -> None:
    database: Any = Database(exists=False)
    assert sink(database).obstacle_to_move() is None
    sink(database).flow_moved(SimpleNamespace(sink_id="s"))  # type: ignore[arg-type]
    assert (database.read_only, database.noted) == ([], [])


def test_a_target_that_is_told_nothing() -> None:
    database: Any = Database()
    target = Target(database, "t")
    assert (target.mode, target.keys, target.create, target.accept_new_checkpoint) == ("append", (), False, False)
    assert (target.staging, target.staging_rows) == ("auto", 50_000)


@pytest.mark.parametrize(
    ("mode", "options", "schema", "output_mode", "words"),
    [
        ("merge", {}, None, None, "there is no mode 'merge': it is one of append, upsert, changes, replace"),
        (
            "append",
            {},
            None,
            "complete",
            "mode append cannot take the rows of a flow in mode complete: use upsert or replace",
        ),
        ("append", {}, None, "update", "mode append cannot take the rows of a flow in mode update: use upsert"),
        (
            "replace",
            {},
            None,
            "append",
            "mode replace cannot take the rows of a flow in mode append: use append or upsert or changes",
        ),
        (
            "changes",
            {"keys": ("id",)},
            None,
            "complete",
            "mode changes cannot take the rows of a flow in mode complete: use upsert or replace",
        ),
        ("upsert", {}, None, None, "mode upsert needs keys: the columns that identify a row"),
        ("changes", {}, None, None, "mode changes needs keys: the columns that identify a row"),
        (
            "changes",
            {"keys": ("id",), "create": True},
            None,
            None,
            "a table cannot be created from changes: they do not tell the types of its columns",
        ),
        (
            "changes",
            {"keys": ("id",)},
            frame_of("key", "after"),
            None,
            "changes come in the columns op, key, before, after, but op, before is missing",
        ),
        ("append", {"keys": ("x",)}, frame_of("id"), None, "the key column 'x' is missing; there is id"),
        ("append", {"keys": ("x",)}, None, None, "the key column 'x' is missing; there is id, name, note"),
        ("upsert", {"keys": ("name",)}, None, None, "table t needs a primary key or a unique index on exactly name"),
        (
            "changes",
            {"keys": ("id", "name")},
            None,
            None,
            "table t needs a primary key or a unique index on exactly id, name",
        ),
        ("append", {"table": "u"}, None, None, "there is no table u in db:; set create: true to make it"),
        ("append", {}, frame_of("age"), "append", "table t has no column 'age'; it has 'id', 'name', 'note'"),
        ("append", {"keys": ("name",)}, None, "append", None),
        ("replace", {"keys": ("name",)}, frame_of("name"), "complete", None),
        ("append", {"create": True}, frame_of("id"), "append", None),
        ("changes", {"keys": ("id",)}, frame_of(*CHANGES, "lsn"), "append", None),
        *(("upsert", {"keys": ("id",)}, frame_of("id"), mode, None) for mode in ("append", "update", "complete")),
    ],
)
def test_what_a_target_takes(
    mode: str, options: dict[str, Any], schema: StructType | None, output_mode: str | None, words: str | None
) -> None:
    target = Target(**{"database": Database(), "table": "t", "mode": mode, **options})
    if words is None:
        target.check(schema, output_mode)
        return
    with pytest.raises(TableSchemaError) as refusal:
        target.check(schema, output_mode)
    assert str(refusal.value) == words


def test_a_database_that_is_not_there_has_to_be_asked_for() -> None:
    database: Any = Database(exists=False)
    with pytest.raises(TableSchemaError) as refusal:
        Target(database, "t").check()
    assert str(refusal.value) == "there is no database db:; set create: true to make it"
    Target(database, "t", create=True).check(frame_of("id"), "append")
    assert database.read_only == []
