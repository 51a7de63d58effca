"""Pipelines on a real Spark against a real broker: one file with every kind of view; what remembers runs twice."""

from __future__ import annotations

import textwrap
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ottla.spark.pipeline import Pipeline
from ottla.spark.pipeline.frames import Frames
from tests.broker_process import BrokerProcess
from tests.spark.pipelines import Recorder, Topics

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

START = datetime(2026, 1, 1, tzinfo=UTC)
USERS = [{"user": "ann", "city": "Oslo"}, {"user": "bob", "city": "Rome"}]
POISON = [b"no json", b'{"id": "x"}', b'{"id": 1} and more', b"\xff\xfe", b"", b'{"user": "ann"}', b"[1, 2]"]

DESCRIPTION = """\
name: everything
checkpoint: state
kafka:
  bootstrap.servers: {bootstrap}
spark:
  conf:
    spark.sql.shuffle.partitions: 2
    spark.sql.streaming.stateStore.providerClass:
      org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider
sources:
  events:
    kind: topic
    topic: {prefix}-events
    format: json
    schema: id BIGINT NOT NULL, user STRING NOT NULL, amount BIGINT, at TIMESTAMP
    metadata: [partition, offset]
    dead_letter: {prefix}-dead
    dead_letter_partitions: 1
  payments:
    kind: topic
    topic: {prefix}-payments
    format: json
    schema: event BIGINT, paid_at TIMESTAMP
tables:
  users:
    kind: topic
    topic: {prefix}-users
    format: json
    schema: user STRING, city STRING
views:
  per_minute:                     # before the view it is made from: the order is free
    sql: |
      SELECT date_format(window.start, 'HH:mm') AS minute, count(*) AS n
      FROM timed
      GROUP BY window(at, '1 minute')
  timed:
    sql: SELECT * FROM events
    watermark: {{column: at, delay: 10 seconds}}
  timed_payments:
    sql: SELECT * FROM payments
    watermark: {{column: paid_at, delay: 10 seconds}}
  paid:
    sql: |
      SELECT e.id, e.amount
      FROM timed e JOIN timed_payments p
        ON e.id = p.event AND p.paid_at BETWEEN e.at AND e.at + INTERVAL 1 HOUR
  with_city:
    sql: SELECT e.id, u.city FROM events e JOIN users u ON e.user = u.user
  unique_events:
    sql: SELECT id, at FROM events
    watermark: {{column: at, delay: 1 hour}}
    deduplicate: [id]
  totals:
    python: views.py:totals
  tasks:
    sql: SELECT _partition AS topic_partition, spark_partition_id() AS task, _offset AS position FROM events
sinks:
  windows: {{kind: topic, topic: "{prefix}-windows", format: json, key: minute, create_partitions: 1}}
  joined: {{kind: topic, topic: "{prefix}-joined", format: json, create_partitions: 1}}
  cities: {{kind: topic, topic: "{prefix}-cities", format: json, create_partitions: 1}}
  unique: {{kind: topic, topic: "{prefix}-unique", format: json, create_partitions: 1}}
  totals: {{kind: topic, topic: "{prefix}-totals", format: json, key: user, create_partitions: 1}}
  tasks: {{kind: topic, topic: "{prefix}-tasks", format: json, create_partitions: 1}}
flows:
  windows: {{from: per_minute, to: windows}}
  unique: {{from: unique_events, to: unique}}
  totals: {{from: totals, to: totals, mode: update}}
"""
ONCE = """\
  joined: {from: paid, to: joined}
  cities: {from: with_city, to: cities}
  tasks: {from: tasks, to: tasks}
"""
"""More flows, of the first run only."""
TWICE_FLOWS = ("windows", "unique", "totals", "events-dead-letters")
ONCE_FLOWS = ("joined", "cities", "tasks")

VIEWS = '''\
import pandas
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import LongType, StructField, StructType


class Total(StatefulProcessor):
    """Remembers the sum of each user's amounts."""

    def init(self, handle):
        self._total = handle.getValueState("total", StructType([StructField("value", LongType())]))

    def handleInputRows(self, key, rows, timer_values):
        before = self._total.get()[0] if self._total.exists() else 0
        total = before + sum(int(frame["amount"].sum()) for frame in rows)
        self._total.update((total,))
        yield pandas.DataFrame({"user": [key[0]], "total": [total]})

    def close(self):
        pass


def totals(events):
    return events.groupBy("user").transformWithStateInPandas(
        Total(), outputStructType="user STRING, total BIGINT", outputMode="Update", timeMode="None"
    )
'''


def event(number: int, seconds: float) -> dict[str, Any]:
    at = START + timedelta(seconds=seconds)
    return {"id": number, "user": "ann" if number % 3 else "bob", "amount": number, "at": at.isoformat()}


class Everything:
    """The pipeline after its first run (over 120 events of two minutes, each tenth of them twice, a payment for every
    second one, and poison), and a second one of the flows that remember (over events of later minutes, and one that is
    late)."""

    def __init__(self, spark: Any, topics: Topics, directory: Path) -> None:
        self.topics = topics
        (directory / "views.py").write_text(VIEWS)
        path = directory / "everything.yaml"
        description = DESCRIPTION.format(bootstrap=topics.bootstrap, prefix=topics.prefix)
        path.write_text(description + ONCE)
        topics.create(events=3, payments=1, users=1)
        topics.send("users", USERS)
        self.events = [event(number, number) for number in range(120)]
        doubles = self.events[::10]
        payments = [
            {"event": number, "paid_at": (START + timedelta(seconds=number + 5)).isoformat()}
            for number in range(0, 120, 2)
        ]
        topics.send("events", self.events + doubles, key="id")
        topics.send("events", POISON)
        topics.send("payments", payments)
        self.first = Recorder()
        Pipeline.from_file(path).run(spark, once=True, observer=self.first)
        self.after_first = {short: topics.values(short) for short in ("windows", "totals", "unique")}
        self.sent_first = self.events + doubles
        self.first_ends = self.ends()
        self.later = [event(1000, 300), event(1001, 301), event(1002, 2)]
        topics.send("events", self.later, key="id")
        path.write_text(description)
        self.second = Recorder()
        Pipeline.from_file(path).run(spark, once=True, observer=self.second)
        self.sent = self.sent_first + self.later

    def ends(self) -> dict[int, int]:
        """Of the partitions of the events."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import AdminClient, OffsetSpec

        admin = AdminClient({"bootstrap.servers": self.topics.bootstrap})
        specs = {TopicPartition(self.topics.name("events"), partition): OffsetSpec.latest() for partition in range(3)}
        return {at.partition: future.result().offset for at, future in admin.list_offsets(specs).items()}


@pytest.fixture(scope="session")
def everything(spark: Any, spark_broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Everything:
    topics = Topics(spark_broker.bootstrap, "everything")
    return Everything(spark, topics, tmp_path_factory.mktemp("everything"))


class TestViews:
    def test_windows_are_told_when_the_watermark_has_passed(self, everything: Everything) -> None:
        assert everything.after_first["windows"] == [{"minute": "00:00", "n": 66}]
        # The second run closes the second minute; the late event of the first minute is not counted any more.
        assert everything.topics.values("windows") == [{"minute": "00:00", "n": 66}, {"minute": "00:01", "n": 66}]

    def test_two_streams_are_joined(self, everything: Everything) -> None:
        expected = Counter(sent["id"] for sent in everything.sent_first if sent["id"] % 2 == 0)
        assert Counter(row["id"] for row in everything.topics.values("joined")) == expected

    def test_a_stream_is_joined_with_a_table(self, everything: Everything) -> None:
        cities = {row["user"]: row["city"] for row in USERS}
        expected = Counter((sent["id"], cities[sent["user"]]) for sent in everything.sent_first)
        assert Counter((row["id"], row["city"]) for row in everything.topics.values("cities")) == expected

    def test_doubles_are_left_out(self, everything: Everything) -> None:
        expected = {sent["id"] for sent in everything.sent}
        assert sorted(row["id"] for row in everything.topics.values("unique")) == sorted(expected)

    def test_a_function_remembers(self, everything: Everything) -> None:
        def sums(events: list[dict[str, Any]]) -> dict[str, int]:
            found: Counter[str] = Counter()
            for sent in events:
                found[sent["user"]] += sent["amount"]
            return dict(found)

        assert {row["user"]: row["total"] for row in everything.after_first["totals"]} == sums(everything.sent_first)
        last = {row["user"]: row["total"] for row in everything.topics.values("totals")}
        assert last == sums(everything.sent)

    def test_one_task_for_each_partition(self, everything: Everything) -> None:
        rows = everything.topics.values("tasks")
        tasks: dict[int, set[int]] = {}
        for row in rows:
            tasks.setdefault(row["topic_partition"], set()).add(row["task"])
        assert all(len(found) == 1 for found in tasks.values())
        assert len(tasks) == 3


class TestDeadLetters:
    def test_exactly_what_was_injected(self, everything: Everything) -> None:
        letters = everything.topics.records("dead")
        assert Counter(letter.value for letter in letters) == Counter(POISON)

    def test_they_tell_where_they_were_and_why(self, everything: Everything) -> None:
        letters = {letter.value: dict(letter.headers) for letter in everything.topics.records("dead")}
        named = letters[b'{"user": "ann"}']
        assert named["ottla.dead-letter.error"] == b"the column id is missing"
        assert named["ottla.dead-letter.topic"] == everything.topics.name("events").encode()
        origin = (int(named["ottla.dead-letter.partition"] or b""), int(named["ottla.dead-letter.offset"] or b""))
        places = {(found.partition, found.offset): found.value for found in everything.topics.records("events")}
        assert places[origin] == b'{"user": "ann"}'
        assert letters[b"\xff\xfe"]["ottla.dead-letter.error"] == b"the value is not UTF-8 text"


class TestProgress:
    def test_every_flow_is_a_group_at_the_end_of_its_topics(self, everything: Everything) -> None:
        from confluent_kafka import ConsumerGroupTopicPartitions
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": everything.topics.bootstrap})
        last_ends = everything.ends()
        assert last_ends != everything.first_ends
        for flows, ends in (ONCE_FLOWS, everything.first_ends), (TWICE_FLOWS, last_ends):
            for flow in flows:
                group = ConsumerGroupTopicPartitions(f"ottla-pipeline-everything-{flow}")
                (future,) = admin.list_consumer_group_offsets([group]).values()
                committed = future.result().topic_partitions
                found = {at.partition: at.offset for at in committed if at.topic == everything.topics.name("events")}
                assert found == ends, flow

    def test_flows_begin_and_end(self, everything: Everything) -> None:
        for flow in (*ONCE_FLOWS, *TWICE_FLOWS):
            assert everything.first.of(flow) == ["started", "ended"]
        for flow in TWICE_FLOWS:
            assert everything.second.of(flow) == ["started", "ended"]
        assert everything.first.rows["tasks"] == 132 + len(POISON)
        assert everything.second.rows["unique"] == 3


class TestPython:
    def test_the_same_from_python(self, spark: Any, everything: Everything, tmp_path: Path) -> None:
        topics = everything.topics
        pipeline = Pipeline(
            "from-python", directory=tmp_path, checkpoint="state", kafka={"bootstrap.servers": topics.bootstrap}
        )
        pipeline.source(
            "events",
            kind="topic",
            topic=topics.name("events"),
            format="json",
            schema="id BIGINT, amount BIGINT",
            bad_records="skip",
        )

        @pipeline.view
        def big(events):  # type: ignore[no-untyped-def]
            return events.where("amount >= 1000")

        pipeline.view("ids", sql="SELECT id FROM big")
        pipeline.sink("out", kind="topic", topic=topics.name("python"), format="json", create_partitions=1)
        pipeline.flow("ids", "out")
        pipeline.run(spark, once=True)
        assert sorted(row["id"] for row in topics.values("python")) == [1000, 1001, 1002]


def test_a_pipeline_that_reads_its_own_topics_goes_round_until_nothing_is_left(
    spark: Any, spark_broker: BrokerProcess, tmp_path: Path
) -> None:
    topics = Topics(spark_broker.bootstrap, "chain")
    topics.create(a=1, b=1, c=1)
    topics.send("a", [{"n": n} for n in range(10)])
    path = tmp_path / "chain.yaml"
    path.write_text(
        textwrap.dedent(f"""\
        name: chain
        kafka: {{bootstrap.servers: "{topics.bootstrap}"}}
        sources:
          second: {{kind: topic, topic: {topics.name("b")}}}
          first: {{kind: topic, topic: {topics.name("a")}}}
        views:
          values_b: {{sql: SELECT value FROM second}}
          values_a: {{sql: SELECT value FROM first}}
        sinks:
          b: {{kind: topic, topic: {topics.name("b")}}}
          c: {{kind: topic, topic: {topics.name("c")}}}
        flows:
          last: {{from: values_b, to: c}}
          first: {{from: values_a, to: b}}
        """)
    )
    Pipeline.from_file(path).run(spark, once=True)
    assert sorted(row["n"] for row in topics.values("c")) == list(range(10))


def test_flows_over_one_view_have_plans_of_their_own(spark: Any, spark_broker: BrokerProcess) -> None:
    """Spark notes things in the parts of a plan while queries run."""
    pipeline = Pipeline("apart", kafka={"bootstrap.servers": spark_broker.bootstrap})
    pipeline.source("events", kind="topic", topic="apart", format="json", schema="id BIGINT")
    pipeline.view("many", sql="SELECT * FROM events").view("few", sql="SELECT id FROM Many WHERE id < 3")
    pipeline.view("other", sql="SELECT id + 1 AS id FROM many")
    pipeline.sink("out", kind="console").flow("many", "out", name="a").flow("few", "out", name="b")
    pipeline.flow("other", "out", name="c")
    model = pipeline.model()
    frames = Frames(model, spark.newSession())
    frames.build()
    frames.separate_flows()
    leaves = [frames.origin(flow)._jdf.queryExecution().analyzed().collectLeaves() for flow in model.flows.values()]
    assert [found.size() for found in leaves] == [1, 1, 1]
    identities = {spark._jvm.System.identityHashCode(found.apply(0)) for found in leaves}
    assert len(identities) == 3
