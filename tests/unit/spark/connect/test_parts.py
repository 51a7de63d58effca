"""The parts of a pipeline that read from and write to elsewhere: what their sections may say, and what is wrong."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from ottla.spark.connect.change_source import ChangeOptions
from ottla.spark.connect.changes import ChangesSource
from ottla.spark.connect.column_types import TableSchemaError
from ottla.spark.connect.database import DatabaseError, open_database
from ottla.spark.connect.database_target import Target
from ottla.spark.connect.files import FilesSink, FilesSource
from ottla.spark.connect.sqlite import SqliteDatabase
from ottla.spark.connect.table_follower import TableOptions
from ottla.spark.connect.table_server import open_table_server
from ottla.spark.connect.table_window import Order
from ottla.spark.connect.tables import TableSource
from ottla.spark.pipeline.problems import Place, SpecError
from ottla.spark.pipeline.section import Section


def section(**values: object) -> Section:
    return Section.of(values, Place("pipeline.yaml", 3), "part x", directory=Path("/pipelines"))


def refused(make: Any, **values: object) -> str:
    with pytest.raises(SpecError) as error:
        make(section(**values))
    (problem,) = error.value.problems
    return problem.message.removeprefix("part x: ")


CHANGES = {"url": "postgresql://h/d", "slot": "s_1"}
TABLE = {"url": "postgresql://h/d", "table": "t"}


def test_what_a_changes_source_is_without_being_told() -> None:
    made = ChangesSource.from_section(section(**CHANGES))
    assert made.options == ChangeOptions("postgresql://h/d", "s_1", "s_1", (), True, 500, 100_000)
    told = {"publication": "p", "tables": ["a", "b"], "snapshot": False, "poll_interval": "2 s", "max_changes": 1}
    made = ChangesSource.from_section(section(**{**CHANGES, "url": "postgres://h/d"}, **told))
    assert made.options == ChangeOptions("postgres://h/d", "s_1", "p", ("a", "b"), False, 2000, 1)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"url": "mysql://h/d"}, "changes are read from PostgreSQL"),
        ({"slot": "Big"}, "'Big' is no name for a slot"),
        ({"slot": "s" * 64}, "is no name for a slot"),
        ({"max_changes": 0}, "'max_changes' must be at least 1"),
        ({"tabels": "a"}, "there is no option 'tabels'"),
    ],
)
def test_what_a_changes_source_cannot_be(values: dict[str, object], words: str) -> None:
    assert words in refused(ChangesSource.from_section, **{**CHANGES, **values})
    ChangesSource.from_section(section(**{**CHANGES, "slot": "s" * 63}))


def test_what_a_table_source_is_without_being_told() -> None:
    made = TableSource.from_section(section(**TABLE))
    assert made.options == TableOptions("postgresql://h/d", "t", Order(None, None), 0, 1000, 100_000, True)
    told = {"incrementing": "id", "timestamp": "at", "delay": "3 s", "poll_interval": "1 ms", "max_rows": 1}
    made = TableSource.from_section(section(**TABLE, **told, wait_for_writers=False))
    assert made.options == TableOptions("postgresql://h/d", "t", Order("id", "at"), 3000, 1, 1, False)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"url": "sqlite:x"}, "tables are read from PostgreSQL and MySQL"),
        ({"max_rows": 0}, "'max_rows' must be at least 1"),
        ({"delay": "1 s"}, "name the column in 'timestamp'"),
        ({"delay": "1 s", "incrementing": "id"}, "name the column in 'timestamp'"),
        ({"order": "id"}, "there is no option 'order'"),
    ],
)
def test_what_a_table_source_cannot_be(values: dict[str, object], words: str) -> None:
    assert words in refused(TableSource.from_section, **{**TABLE, **values})


def test_a_table_that_is_followed_says_what_it_grows_by() -> None:
    with pytest.raises(SpecError, match="say what the table grows by"):
        TableSource.from_section(section(**TABLE)).load(SimpleNamespace())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("sqlite:x.db", "SqliteDatabase"),
        ("sqlite:///x.db", "SqliteDatabase"),
        ("postgresql://h/d", "PostgresDatabase"),
        ("postgres://h/d", "PostgresDatabase"),
        ("mysql://u@h/d", "MysqlDatabase"),
        ("mariadb://u@h/d", "MysqlDatabase"),
    ],
)
def test_an_address_says_which_database_it_is(url: str, kind: str) -> None:
    made = open_database(url, directory=Path("/there"))
    assert type(made).__name__ == kind
    if isinstance(made, SqliteDatabase):
        assert made.path == Path("/there/x.db")
    else:
        assert made.exists(), "that of a server is not made by who uses it"


@pytest.mark.parametrize("url", ["sqlite:", "sqlite:///", "oracle:x", "postgresql", "mysql", "x.db"])
def test_an_address_of_nothing_known(url: str) -> None:
    with pytest.raises(DatabaseError, match="is no database that is known here: write sqlite:path"):
        open_database(url)


def test_which_servers_have_tables_to_follow() -> None:
    kinds = [
        type(open_table_server(f"{scheme}://u@h/d")).__name__
        for scheme in ("postgresql", "postgres", "mysql", "mariadb")
    ]
    assert kinds == ["PostgresTableServer", "PostgresTableServer", "MysqlTableServer", "MysqlTableServer"]


FILES = {"path": "in", "format": "json", "schema": "id bigint"}


def test_files(tmp_path: Path) -> None:
    made = FilesSource.from_section(section(**FILES))
    assert (made.path, made.format, made.schema, made.file_column, made.options) == (
        "/pipelines/in",
        "json",
        "id bigint",
        False,
        {},
    )
    assert [problem.message for problem in made.check()] == ["part x: there is no directory /pipelines/in"]
    made = FilesSource.from_section(section(**FILES, max_files=3, pattern="*.json", options={"multiLine": True}))
    assert made.options == {"maxFilesPerTrigger": "3", "pathGlobFilter": "*.json", "multiLine": "true"}
    assert FilesSource.from_section(section(path="s3://b/in", format="text")).check() == []
    assert FilesSource.from_section(section(path=str(tmp_path), format="text")).check() == []
    assert "needs a 'schema'" in refused(FilesSource.from_section, path="in", format="json")
    assert "format text has no schema" in refused(FilesSource.from_section, path="in", format="text", schema="a int")
    assert "there is no option 'maxfiles'" in refused(FilesSource.from_section, **FILES, maxfiles=3)


class Frame:
    """The columns of a frame, and how it is written."""

    def __init__(self, **columns: Any) -> None:
        self.schema = StructType([StructField(name, kind) for name, kind in columns.items()])
        self.columns = self.schema.names
        self.told: list[tuple[object, ...]] = []

    @property
    def writeStream(self) -> Frame:
        return self

    def __getattr__(self, name: str) -> Any:
        def tell(*values: object, **named: object) -> Frame:
            self.told.append((name, *values, *named.items()))
            return self

        return tell


def test_files_to_write(tmp_path: Path) -> None:
    flow: Any = SimpleNamespace(mode="append", name="f")
    sink = FilesSink.from_section(section(path="out", format="csv", partition_by="day", options={"header": True}))
    frame = Frame(day=StringType(), n=IntegerType())
    assert sink.writer(frame, flow=flow) is frame  # type: ignore[arg-type, comparison-overlap]
    assert frame.told == [
        ("format", "csv"),
        ("options", ("header", "true")),
        ("option", "path", "/pipelines/out"),
        ("partitionBy", "day"),
    ]
    text = FilesSink.from_section(section(path=str(tmp_path), format="text"))
    lines = Frame(value=StringType())
    text.writer(lines, flow=flow)  # type: ignore[arg-type]
    assert ("partitionBy",) not in lines.told
    for writer, wrong, mode, words in (
        (sink, frame, "update", "files can only be added to"),
        (sink, Frame(n=IntegerType()), "append", "there is no column day; there is n"),
        (text, Frame(n=IntegerType()), "append", "takes one column of text"),
        (text, Frame(a=StringType(), b=StringType()), "append", "takes one column of text"),
    ):
        with pytest.raises(SpecError, match=words):
            writer.writer(wrong, flow=SimpleNamespace(mode=mode, name="f"))  # type: ignore[arg-type]
    assert "there is no option 'formt'" in refused(FilesSink.from_section, path="out", format="text", formt="json")
    assert text.check() == []
    assert sink.check() == []
    (tmp_path / "file").touch()
    taken = FilesSink.from_section(section(path=str(tmp_path / "file"), format="text"))
    assert [problem.message for problem in taken.check()] == [f"part x: {tmp_path / 'file'} is a file, not a directory"]
    assert FilesSink.from_section(section(path="s3://b/out", format="text")).check() == []


def test_a_directory_that_spark_keeps_a_list_in_cannot_get_another_query(tmp_path: Path) -> None:
    sink = FilesSink.from_section(section(path=str(tmp_path), format="text"))
    assert sink.obstacle_to_move() is None
    (tmp_path / "_spark_metadata").mkdir()
    told = sink.obstacle_to_move()
    assert told is not None and f"the files in {tmp_path} are listed by batch" in told
    elsewhere = FilesSink.from_section(section(path="s3://b/out", format="text"))
    assert elsewhere.obstacle_to_move() is not None, "nobody can see whether there is a list"


CHANGED = StructType([StructField(name, StringType()) for name in ("op", "key", "before", "after")])


def frame_of(*names: str) -> StructType:
    return StructType([StructField(name, StringType()) for name in names])


@pytest.mark.parametrize(
    ("options", "schema", "output_mode", "words"),
    [
        ({"mode": "merge"}, None, None, "there is no mode 'merge'"),
        ({}, None, "update", "mode append cannot take the rows of a flow in mode update: use upsert"),
        ({"mode": "replace"}, None, "append", "use append or upsert or changes"),
        ({"mode": "upsert"}, None, None, "mode upsert needs keys"),
        ({"mode": "changes"}, None, None, "mode changes needs keys"),
        ({"mode": "changes", "keys": ("id",), "create": True}, None, None, "cannot be created from changes"),
        ({"mode": "changes", "keys": ("id",)}, frame_of("op", "key"), None, "but before, after is missing"),
        ({"mode": "upsert", "keys": ("no",)}, frame_of("id"), None, "the key column 'no' is missing; there is id"),
        ({"mode": "upsert", "keys": ("name",)}, frame_of("id", "name"), None, "a unique index on exactly name"),
        (
            {"mode": "upsert", "keys": ("id", "name")},
            frame_of("id", "name"),
            None,
            "a unique index on exactly id, name",
        ),
        ({}, frame_of("id", "age"), None, "table t has no column 'age'; it has 'id', 'name'"),
        ({}, frame_of("id"), None, "table t insists on a value for 'name'"),
        ({"table": "u"}, None, None, "there is no table u in .*set create: true"),
        ({}, frame_of("id", "name"), "append", None),
        ({"table": "u", "create": True}, frame_of("id"), None, None),
        ({"mode": "upsert", "keys": ("id",)}, frame_of("id", "name"), "update", None),
        ({"mode": "upsert", "keys": ("id",)}, frame_of("id", "name"), "complete", None),
        ({"mode": "changes", "keys": ("id",)}, CHANGED, "append", None),
        ({"mode": "replace"}, frame_of("id", "name"), "complete", None),
    ],
)
def test_whether_rows_fit_into_a_table(
    tmp_path: Path, options: dict[str, Any], schema: StructType | None, output_mode: str | None, words: str | None
) -> None:
    database = SqliteDatabase(tmp_path / "x.db")
    with database.transaction() as session:
        session.run("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")
    target = Target(**{"database": database, "table": "t", **options})
    if words is None:
        target.check(schema, output_mode)
    else:
        with pytest.raises(TableSchemaError, match=words):
            target.check(schema, output_mode)


def test_a_database_that_is_not_there_is_made_only_if_asked_for(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "x.db")
    with pytest.raises(TableSchemaError, match=r"there is no database .*x\.db; set create: true"):
        Target(database, "t").check()
    Target(database, "t", create=True).check()
    assert not database.exists()


class Reader:
    """Notes what Spark would be told to read."""

    def __init__(self) -> None:
        self.told: dict[str, object] = {}

    def format(self, name: str) -> Reader:
        self.told["format"] = name
        return self

    def options(self, **options: str) -> Reader:
        self.told["options"] = options
        return self

    def schema(self, schema: str) -> Reader:
        self.told["schema"] = schema
        return self

    def load(self, path: str) -> dict[str, object]:
        return {**self.told, "path": path}


@pytest.mark.parametrize("told", [{"format": "text"}, {"format": "json", "schema": "a INT"}])
@pytest.mark.parametrize("is_stream", [True, False])
def test_files_are_read_as_the_section_says(told: dict[str, str], is_stream: bool) -> None:
    """As a stream or as a table; lines of text need no schema."""
    made = FilesSource.from_section(section(path="/data", options={"pathGlobFilter": "x*"}, **told))
    spark: Any = SimpleNamespace(**{"readStream" if is_stream else "read": Reader()})
    read: Any = made.load(spark) if is_stream else made.load_table(spark)
    assert read == {"options": {"pathGlobFilter": "x*"}, "path": "/data", **told}
