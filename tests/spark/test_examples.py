"""The worked examples, each run for real: records in by a foreign client, the pipeline once, results out."""

from __future__ import annotations

import json
import shutil
import sqlite3
import uuid
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from confluent_kafka import Consumer, Producer, TopicPartition

from ottla import Admin, NewTopic
from ottla import Producer as OttlaProducer
from ottla.spark.pipeline import Pipeline
from tests.broker_process import BrokerProcess
from tests.spark.postgres import PostgresProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

EXAMPLES = Path(__file__).parents[2] / "examples"
MINUTE = "2026-03-01T12:{:02d}:{:02d}Z"


class Example:
    """A copy of one example's directory, and the broker it runs against."""

    def __init__(self, name: str, directory: Path, broker: BrokerProcess, spark: SparkSession) -> None:
        self.directory = directory / name
        shutil.copytree(EXAMPLES / name, self.directory)
        self._broker = broker
        self._spark = spark

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    def topics(self, **partitions: int) -> None:
        with Admin(bootstrap_servers=self._broker.bootstrap) as admin:
            admin.create_topics([NewTopic(name.replace("__", "."), count) for name, count in partitions.items()])

    def feed(self, topic: str, values: Iterable[dict[str, Any] | bytes], key: str | None = None) -> None:
        producer = Producer({"bootstrap.servers": self._broker.bootstrap})
        for value in values:
            as_bytes = value if isinstance(value, bytes) else json.dumps(value).encode()
            record_key = value[key] if key is not None and isinstance(value, dict) else None
            producer.produce(topic, key=record_key, value=as_bytes)
        assert producer.flush(30) == 0

    def leave_out(self, line: str) -> None:
        """Of its pipeline."""
        path = self.directory / "pipeline.yaml"
        before, found, after = path.read_text().partition(f"{line}\n")
        assert found
        path.write_text(before + after)

    def run(self, *overrides: tuple[str, str]) -> None:
        pipeline = Pipeline.from_file(
            self.directory / "pipeline.yaml", [("kafka.bootstrap.servers", self._broker.bootstrap), *overrides]
        )
        pipeline.run(self._spark, once=True)

    def read(self, topic: str) -> list[dict[str, Any]]:
        """All committed records of a topic, as objects, by a client that is not ours."""
        return [json.loads(value) for value in self.read_bytes(topic)]

    def read_bytes(self, topic: str) -> list[bytes]:
        consumer = Consumer(
            {
                "bootstrap.servers": self._broker.bootstrap,
                "group.id": "checker",  # wanted by the client, though nothing joins it: that would take three seconds
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
            }
        )
        metadata = consumer.list_topics(topic, timeout=10).topics[topic]
        waiting = set(metadata.partitions)
        values: list[bytes] = []
        consumer.assign([TopicPartition(topic, partition) for partition in waiting])
        while waiting:
            message = consumer.poll(20)
            assert message is not None, f"{topic} could not be read to its end"
            if message.error():
                waiting.discard(message.partition())
            else:
                values.append(message.value())
        consumer.close()
        return values

    def rows(self, database: str, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.directory / database)) as connection:
            return connection.execute(query).fetchall()


@pytest.fixture
def example(
    request: pytest.FixtureRequest, tmp_path: Path, spark_broker: BrokerProcess, spark: SparkSession
) -> Example:
    return Example(request.param, tmp_path, spark_broker, spark)


def uses(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("example", [name], indirect=True, ids=[name])


@uses("operational_metrics")
def test_operational_metrics(example: Example) -> None:
    example.topics(metrics__samples=2)
    samples = [
        {"host": host, "metric": "cpu", "value": value, "at": MINUTE.format(0, second)}
        for host, second, value in [("a", 1, 50.0), ("a", 9, 70.0), ("b", 5, 99.0), ("a", 12, 10.0), ("b", 59, 20.0)]
    ]
    example.feed("metrics.samples", [*samples, b"{nonsense"])
    example.run()
    windows = {(row["host"], row["since"][:19]): row for row in example.read("metrics.per-host")}
    assert {at: (row["samples"], row["mean"], row["peak"]) for at, row in windows.items()} == {
        ("a", "2026-03-01T12:00:00"): (2, 60.0, 70.0),
        ("a", "2026-03-01T12:00:10"): (1, 10.0, 10.0),
        ("b", "2026-03-01T12:00:00"): (1, 99.0, 99.0),
    }, "all but the window that may still get samples"
    assert [row["host"] for row in example.read("metrics.alarms")] == ["b"]
    assert example.read_bytes("metrics.unreadable") == [b"{nonsense"]
    assert example.rows("metrics.db", "SELECT host, samples FROM host_metrics ORDER BY host, since") == [
        ("a", 2),
        ("a", 1),
        ("b", 1),
        ("b", 1),
    ]


@uses("messaging")
def test_messaging(example: Example) -> None:
    example.topics(messages__outbox=2)
    outbox = [
        {"id": "1", "sender": "shop", "recipient": "ann@example.org", "channel": "email", "body": "hello"},
        {"id": "2", "sender": "shop", "recipient": "+49 30-1234", "channel": "text", "body": "x" * 500},
        {"id": "3", "sender": "bank", "recipient": "nobody", "channel": "email", "body": "?"},
        {"id": "4", "sender": "bank", "recipient": "bob", "channel": "pigeon", "body": "coo"},
        {"id": "5", "sender": "bank", "recipient": "bob", "body": "lost"},
    ]
    example.feed("messages.outbox", [*outbox, b"[]"])
    example.run()
    assert [row["id"] for row in example.read("messages.email")] == ["1"]
    (text,) = example.read("messages.text")
    assert (text["recipient"], len(text["body"])) == ("+49301234", 160)
    assert {row["id"]: row["reason"] for row in example.read("messages.returned")} == {
        "3": "no address for email: nobody",
        "4": "no such channel: pigeon",
        "5": "no such channel: none",
    }
    assert example.read_bytes("messages.unreadable") == [b"[]"]


@uses("activity_tracking")
def test_activity_tracking(example: Example) -> None:
    example.topics(**{"activity__page-views": 3})
    views = [("ann", "/", 0), ("ann", "/books", 5), ("bob", "/", 7), ("ann", "/cart", 20)]
    later = [("ann", "/", 1), ("bob", "/books", 59)]
    records = [{"user": user, "page": page, "at": MINUTE.format(minute, 0)} for user, page, minute in views]
    records += [
        {"user": user, "page": page, "at": MINUTE.format(minute, 0).replace("T12", "T13")}
        for user, page, minute in later
    ]
    example.feed("activity.page-views", records, key="user")
    example.run()
    visits = example.read("activity.visits")
    assert sorted((row["user"], row["pages"], row["entry"], row["exit"]) for row in visits) == [
        ("ann", 1, "/", "/"),
        ("ann", 3, "/", "/cart"),
        ("bob", 1, "/", "/"),
    ], "the last visit has not ended"
    assert example.rows("activity.db", "SELECT page, views, readers FROM popular_pages ORDER BY page") == [
        ("/", 3, 2),
        ("/books", 2, 2),
        ("/cart", 1, 1),
    ]


@uses("stream_processing")
def test_stream_processing(example: Example) -> None:
    example.topics(orders__raw=2, catalogue__products=1)
    example.feed(
        "catalogue.products",
        [
            {"sku": "A1", "name": "apple", "category": "fruit"},
            {"sku": "B2", "name": "bread", "category": "bakery"},
            {"sku": "A1", "name": "red apple", "category": "fruit"},
        ],
        key="sku",
    )
    order = {"id": "1", "sku": " a1 ", "amount": "3,50", "currency": "eur", "at": MINUTE.format(0, 0)}
    orders = [
        order,
        {**order, "id": "2", "sku": "B2", "amount": "2.00", "currency": None},
        {**order, "id": " 1"},
        {**order, "id": "3", "sku": "Z9", "amount": "1"},
        {**order, "id": "4", "amount": "free"},
    ]
    example.feed("orders.raw", [*orders, orders[1], b"\xff"])
    example.run()
    found = sorted(example.read("orders.enriched"), key=lambda row: row["id"])
    assert [(row["id"], row["sku"], row["name"], row["amount"], row["currency"]) for row in found] == [
        ("1", "A1", "red apple", 3.5, "EUR"),
        ("2", "B2", "bread", 2.0, "EUR"),
        ("3", "Z9", None, 1.0, "EUR"),
    ]
    assert [row["id"] for row in example.read("orders.doubtful")] == ["4"]
    assert example.read_bytes("orders.unreadable") == [b"\xff"]


@uses("event_sourcing")
def test_event_sourcing(example: Example) -> None:
    example.topics(accounts__events=2)
    first = [("ann", "opened", None), ("ann", "deposited", 100), ("bob", "deposited", 5), ("bob", "opened", None)]
    second = [("ann", "withdrawn", 30), ("bob", "withdrawn", 1), ("ann", "withdrawn", 71), ("bob", "closed", None)]
    for events in (first, second):
        records = [{"account": account, "type": kind, "amount": amount} for account, kind, amount in events]
        example.feed("accounts.events", records, key="account")
        example.run()
    query = "SELECT account, version, balance, is_open FROM balances ORDER BY account"
    balances = example.rows("accounts.db", query)
    assert balances == [("ann", 3, 70, 1), ("bob", 2, 0, 0)]
    refused = [row for row in example.read("accounts.answers") if not row["is_accepted"]]
    assert sorted((row["account"], row["event"], row["reason"]) for row in refused) == [
        ("ann", "withdrawn", "too little is left"),
        ("bob", "deposited", "it is not open"),
        ("bob", "withdrawn", "too little is left"),
    ]
    # From the events alone, the same again.
    example.leave_out("  answers: {from: answers, to: answers}")
    example.run(("checkpoint", "rebuilt"), ("sinks.balances.url", "sqlite:rebuilt.db"))
    assert example.rows("rebuilt.db", query) == balances


@pytest.mark.timeout(600)
@uses("state_backup")
def test_state_backup(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint is lost twice: after a good end, and after a run that left a transaction open."""
    compacted = {"cleanup.policy": "compact"}
    with Admin(bootstrap_servers=example.bootstrap) as admin:
        names = ["wallet.payments", "wallet.receipts", "wallet.balances"]
        admin.create_topics([NewTopic(name, 2, configs=compacted if "bal" in name else {}) for name in names]).check()

    def pay(*payments: tuple[str, int]) -> None:
        records = [{"wallet": wallet, "amount": amount} for wallet, amount in payments]
        example.feed("wallet.payments", records, key="wallet")

    pay(("ann", 10), ("bob", 5), ("ann", -3))
    example.run()
    pay(("ann", 100), ("cy", 1))
    with OttlaProducer(
        bootstrap_servers=example.bootstrap,
        transactional_id=f"state-backup-balances-{uuid.uuid4()}-0",
        transaction_timeout_ms=600_000,
    ) as killed:
        killed.init_transactions()
        killed.begin_transaction()
        never_committed = json.dumps({"balance": 1000, "payments": 9, "up_to": {}}).encode()
        for partition in range(2):
            killed.send("wallet.balances", never_committed, key=b"dan", partition=partition).result()
        example.run()
        shutil.rmtree(example.directory / "checkpoints")
        pay(("bob", 2))
        example.run()  # from the earliest payment on
    shutil.rmtree(example.directory / "checkpoints")
    pay(("ann", 1), ("dan", 4))
    monkeypatch.setenv("START", "group:ottla-pipeline-state-backup-balances")
    example.run()
    receipts = [(row["wallet"], row["number"], row["balance"]) for row in example.read("wallet.receipts")]
    assert sorted(receipts) == [
        ("ann", 1, 10),
        ("ann", 2, 7),
        ("ann", 3, 107),
        ("ann", 4, 108),
        ("bob", 1, 5),
        ("bob", 2, 7),
        ("cy", 1, 1),
        ("dan", 1, 4),
    ]


@uses("log_collection")
def test_log_collection(example: Example, spark: SparkSession) -> None:
    incoming = example.directory / "incoming"
    incoming.mkdir()
    (incoming / "web.log").write_text("2026-03-01 12:00:00 INFO up\n2026-03-01 12:00:01 ERROR no disk\n\n")
    (incoming / "db.log").write_text("2026-03-02T08:00:00 WARN slow\n  at line 7\n")
    example.run()
    lines = [(row["file"], row["level"], row["message"]) for row in example.read("logs.lines")]
    assert sorted(lines) == [
        ("db.log", "UNKNOWN", "  at line 7"),
        ("db.log", "WARN", "2026-03-02T08:00:00 WARN slow"),
        ("web.log", "ERROR", "2026-03-01 12:00:01 ERROR no disk"),
        ("web.log", "INFO", "2026-03-01 12:00:00 INFO up"),
    ]
    assert [row["message"] for row in example.read("logs.errors")] == ["2026-03-01 12:00:01 ERROR no disk"]
    archive = spark.read.parquet(str(example.directory / "archive")).groupBy("day").count().collect()
    assert {str(row["day"]): row["count"] for row in archive} == {"2026-03-01": 2, "2026-03-02": 1, "undated": 1}


@uses("commit_log")
def test_commit_log(example: Example, postgres: PostgresProcess) -> None:
    with postgres.connect() as source:
        source.execute("CREATE TABLE customers (id bigint PRIMARY KEY, name text, city text)")
        source.execute("INSERT INTO customers VALUES (1, 'ann', 'Oslo'), (2, 'bob', 'Rome')")
        with closing(sqlite3.connect(example.directory / "replica.db")) as replica:
            replica.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, city TEXT)")
        there = ("sources.changes.url", postgres.url)
        example.run(there)
        query = "SELECT id, name, city FROM customers ORDER BY id"
        assert example.rows("replica.db", query) == [(1, "ann", "Oslo"), (2, "bob", "Rome")]
        source.execute("UPDATE customers SET city = 'Bern' WHERE id = 1")
        source.execute("DELETE FROM customers WHERE id = 2")
        source.execute("INSERT INTO customers VALUES (3, 'cy', NULL)")
        example.run(there)
        assert example.rows("replica.db", query) == source.execute(query).fetchall()
    assert [row["op"] for row in example.read("customers.changes")][2:] == ["update", "delete", "insert"]
