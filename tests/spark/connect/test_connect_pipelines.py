"""Files, tables and changes as parts of one pipeline: what goes in comes out, the same and once."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ottla
from ottla.spark.pipeline import Pipeline, SpecError
from tests.broker_process import BrokerProcess
from tests.spark.mariadb import MariadbProcess
from tests.spark.postgres import PostgresProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

CHANGE_DDL = (
    "op STRING, schema STRING, `table` STRING, key STRING, before STRING, after STRING, lsn BIGINT, seq INT, "
    "xid BIGINT, committed_at TIMESTAMP"
)
LETTER_DDL = "id INT, text STRING"
ORDERS = (
    "CREATE TABLE {} (id int PRIMARY KEY, name text NOT NULL, amount numeric(30,10), big text, tags text[], doc jsonb)"
)


class Everything:
    """Two pipelines with a part of every kind: one into topics, one out of them."""

    def __init__(
        self, server: PostgresProcess, mariadb: MariadbProcess, broker: BrokerProcess, topic: str, directory: Path
    ) -> None:
        self.server = server
        self.mariadb = mariadb
        self.directory = directory
        self.letters = directory / "letters"
        self.letters.mkdir()
        with server.connect() as connection:
            connection.execute(ORDERS.format("orders").encode())
            connection.execute(ORDERS.format("orders_mirror").encode())
            connection.execute("ALTER TABLE orders ALTER big SET STORAGE EXTERNAL")
            connection.execute("CREATE TABLE events (id bigserial, text text, at timestamptz DEFAULT now())")
        with ottla.Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topics([ottla.NewTopic(f"{topic}-{name}", 3) for name in ("changes", "letters")]).check()
        kafka = {"bootstrap.servers": broker.bootstrap}
        self.inward = Pipeline("inward", kafka=kafka, directory=directory, checkpoint=str(directory / "inward"))
        self.outward = Pipeline("outward", kafka=kafka, directory=directory, checkpoint=str(directory / "outward"))
        self._declare_changes(f"{topic}-changes")
        self._declare_files(f"{topic}-letters")
        self._declare_table()
        self._declare_mysql()

    def _declare_changes(self, topic: str) -> None:
        """Every change of a table, through a topic, into another table."""
        url = self.server.url
        self.inward.source("changed", kind="changes", url=url, slot="everything", tables=["public.orders"])
        self.inward.view("change_records", sql="SELECT key, to_json(struct(*)) AS value FROM changed")
        self.inward.sink("change_topic", kind="topic", topic=topic)
        self.inward.flow("change_records", "change_topic")
        self.outward.source("changes", kind="topic", topic=topic, format="json", schema=CHANGE_DDL)
        self.outward.sink("mirror", kind="database", url=url, table="orders_mirror", mode="changes", keys=["id"])
        self.outward.flow("changes", "mirror")

    def _declare_files(self, topic: str) -> None:
        """Files, through a topic, into files."""
        self.inward.source("letters", kind="files", path="letters", format="json", schema=LETTER_DDL)
        self.inward.sink("letter_topic", kind="topic", topic=topic, format="json")
        self.inward.flow("letters", "letter_topic")
        self.outward.source("letters", kind="topic", topic=topic, format="json", schema=LETTER_DDL)
        self.outward.view("with_part", sql="SELECT *, id % 2 AS part FROM letters")
        self.outward.sink("archive", kind="files", path="archive", format="parquet", partition_by=["part"])
        self.outward.flow("with_part", "archive")

    def _declare_table(self) -> None:
        """A growing table into another database."""
        url = self.server.url
        self.inward.source("events", kind="table", url=url, table="events", incrementing="id", timestamp="at")
        self.inward.sink("events_copy", kind="database", url="sqlite:copy.db", table="events", create=True)
        self.inward.flow("events", "events_copy")

    def _declare_mysql(self) -> None:
        """A growing table of MySQL, joined with one that stands, into a third."""
        url = self.mariadb.url
        self.mariadb.rows("CREATE TABLE sales (id bigint AUTO_INCREMENT PRIMARY KEY, shop int, price decimal(8,2))")
        self.mariadb.rows("CREATE TABLE shops (id int PRIMARY KEY, city varchar(20))")
        self.mariadb.rows("INSERT INTO shops VALUES (0, 'Oslo'), (1, 'Malmö')")
        self.inward.source("sales", kind="table", url=url, table="sales", incrementing="id")
        self.inward.table("shops", kind="table", url=url, table="shops")
        self.inward.view("sold", sql="SELECT s.id, city, price FROM sales s JOIN shops ON shops.id = s.shop")
        self.inward.sink("sold", kind="database", url=url, table="sold", mode="upsert", keys=["id"], create=True)
        self.inward.flow("sold", "sold")

    def sell(self, count: int) -> None:
        self.mariadb.rows(f"INSERT INTO sales (shop, price) SELECT seq % 2, seq / 4 FROM seq_1_to_{count}")

    def run(self, spark: SparkSession) -> None:
        self.inward.run(spark, once=True)
        self.outward.run(spark, once=True)

    def add_letters(self, name: str, ids: range) -> None:
        lines = [json.dumps({"id": i, "text": f"letter {i}"}) + "\n" for i in ids]
        (self.letters / f"{name}.json").write_text("".join(lines))

    def rows(self, query: str) -> list[tuple[object, ...]]:
        with self.server.connect() as connection:
            return connection.execute(query.encode()).fetchall()

    def run_sql(self, *statements: str) -> None:
        with self.server.connect() as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def check_outputs(self, spark: SparkSession, letters: int, events: int) -> None:
        # As text, where a NaN is the same as another.
        mirror = self.rows("SELECT mirror::text FROM orders_mirror AS mirror ORDER BY id")
        assert mirror == self.rows("SELECT orders::text FROM orders ORDER BY id")
        assert mirror
        written = spark.read.parquet(str(self.directory / "archive")).select("id", "text", "part").collect()
        assert sorted(map(tuple, written)) == [(i, f"letter {i}", i % 2) for i in range(letters)]
        with sqlite3.connect(self.directory / "copy.db") as connection:
            copied = connection.execute("SELECT id, text FROM events ORDER BY id").fetchall()
        assert copied == self.rows("SELECT id, text FROM events ORDER BY id")
        assert len(copied) == events
        sold = self.mariadb.rows("SELECT id, city, price FROM sold ORDER BY id")
        query = "SELECT sales.id, city, price FROM sales JOIN shops ON shops.id = shop ORDER BY sales.id"
        assert sold == self.mariadb.rows(query)
        assert len(sold) == events


@pytest.mark.timeout(600)
def test_every_part_from_end_to_end(
    spark: SparkSession,
    spark_broker: BrokerProcess,
    postgres: PostgresProcess,
    mariadb: MariadbProcess,
    new_topic: str,
    tmp_path: Path,
) -> None:
    place = Everything(postgres, mariadb, spark_broker, new_topic, tmp_path)
    place.sell(300)
    place.run_sql(
        "INSERT INTO orders SELECT i, 'name ' || i, i / 7.0, repeat('x', i * 40), '{a,\"b c\"}', "
        "jsonb_build_object('n', i) FROM generate_series(1, 200) i",
        "INSERT INTO events (text) SELECT 'event ' || i FROM generate_series(1, 300) i",
    )
    place.add_letters("one", range(100))
    place.run(spark)
    place.check_outputs(spark, letters=100, events=300)

    place.run_sql(
        "UPDATE orders SET amount = amount + 1, doc = NULL WHERE id % 3 = 0",
        "UPDATE orders SET id = id + 1000 WHERE id % 10 = 1",
        "DELETE FROM orders WHERE id % 4 = 0",
        "INSERT INTO orders VALUES (4, 'again', -0.5, NULL, NULL, '[1.50]'), (5000, 'new', 'NaN', '', '{}', '{}')",
        "BEGIN; DELETE FROM orders WHERE id = 5; INSERT INTO orders (id, name) VALUES (5, 'in one go'); COMMIT",
        "INSERT INTO events (text) VALUES ('one more')",
    )
    place.add_letters("two", range(100, 150))
    place.sell(1)
    place.run(spark)
    place.check_outputs(spark, letters=150, events=301)


@pytest.mark.parametrize(
    ("part", "options", "words"),
    [
        ("source", {"kind": "files", "path": "nowhere", "format": "text"}, "no directory"),
        ("source", {"kind": "files", "path": ".", "format": "xml"}, "'format' cannot be 'xml'"),
        ("source", {"kind": "files", "path": ".", "format": "csv"}, "needs a 'schema'"),
        ("source", {"kind": "files", "path": ".", "format": "text", "schema": "a INT"}, "has no schema"),
        ("source", {"kind": "table", "url": "sqlite:x.db", "table": "t"}, "read from PostgreSQL"),
        ("source", {"kind": "table", "url": "URL", "table": "absent", "incrementing": "id"}, "no table absent"),
        ("source", {"kind": "table", "url": "URL", "table": "shapes", "incrementing": "idd"}, "no column 'idd'"),
        ("source", {"kind": "table", "url": "URL", "table": "shapes", "incrementing": "name"}, "must be bigint"),
        (
            "source",
            {"kind": "table", "url": "URL", "table": "shapes", "delay": "1 s"},
            "name the column in 'timestamp'",
        ),
        ("source", {"kind": "table", "url": "URL", "table": "shapes"}, "say what the table grows by"),
        (
            "source",
            {"kind": "table", "url": "mysql://u:secret@127.0.0.1:1/d", "table": "t"},
            "no connection to mysql://u@",
        ),
        ("source", {"kind": "changes", "url": "URL", "slot": "Ä"}, "no name for a slot"),
        ("source", {"kind": "changes", "url": "URL", "slot": "s"}, "no publication 's'"),
        ("source", {"kind": "changes", "url": "URL", "slot": "s", "tables": ["absent"]}, "no table absent"),
        ("source", {"kind": "changes", "url": "postgresql://u:secret@127.0.0.1:1/d", "slot": "s"}, "no connection"),
        ("sink", {"kind": "files", "path": "out", "format": "text"}, "one column of text"),
        ("sink", {"kind": "files", "path": "out", "format": "csv", "partition_by": ["day"]}, "no column day"),
        ("sink", {"kind": "database", "url": "oracle://h/d", "table": "t"}, "no database that is known"),
        ("sink", {"kind": "database", "url": "mysql://u:secret@h/d?tls=1", "table": "t"}, "no option tls"),
        ("sink", {"kind": "database", "url": "URL", "table": "absent"}, "no table absent"),
        ("sink", {"kind": "database", "url": "URL", "table": "shapes"}, "no column 'text'"),
        ("sink", {"kind": "database", "url": "URL", "table": "t", "mode": "upsert"}, "needs keys"),
        ("sink", {"kind": "database", "url": "sqlite:new.db", "table": "t"}, "no database"),
        ("sink", {"kind": "database", "url": "URL", "table": "t", "tabel": "t"}, "Did you mean 'table'"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    spark: SparkSession,
    postgres: PostgresProcess,
    tmp_path: Path,
    part: str,
    options: dict[str, object],
    words: str,
) -> None:
    with postgres.connect() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS shapes (id int PRIMARY KEY, name text)")
    (tmp_path / "in").mkdir()
    options = {key: postgres.url if value == "URL" else value for key, value in options.items()}
    pipeline = Pipeline("refused", directory=tmp_path, checkpoint=str(tmp_path / "checkpoints"))
    with pytest.raises(SpecError) as caught:
        if part == "source":
            pipeline.source("in", **options)
            pipeline.sink("out", kind="console")
        else:
            pipeline.source("in", kind="files", path="in", format="json", schema=LETTER_DDL)
            pipeline.sink("out", **options)
        pipeline.flow("in", "out")
        pipeline.check(spark)
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)
    assert Path(__file__).name in str(caught.value)
    assert not (tmp_path / "new.db").exists()
