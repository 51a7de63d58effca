"""A topic as a sink: what is written with which options, what is made before, and what is put away. No Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

import ottla
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.spark.pipeline.parts import FlowContext, MovedFlow
from ottla.spark.pipeline.problems import Place, SpecError
from ottla.spark.pipeline.section import Section
from ottla.spark.pipeline.spark_parts import ConsoleSink, SparkSink, SparkSource
from ottla.spark.pipeline.topic_sink import TopicSink
from ottla.spark.pipeline.topics import create_topic, find_missing_topics
from ottla.spark.sink_rows import Rows
from ottla.spark.sink_transactions import Batch, write_task
from ottla.testing import EmbeddedBroker

QUERY = "0f8fad5b-d9cb-469f-a165-70867728950e"
NOWHERE = "127.0.0.1:1"
FLOW = FlowContext("shop", "totals", "/state", "shop-totals", "append")


class Frame:
    """Notes what it is written with, and plays each batch that is asked for."""

    def __init__(self, *columns: StructField) -> None:
        self.schema = StructType(list(columns or (StructField("value", BinaryType()),)))
        self.told: dict[str, Any] = {}
        self.calls: list[Any] = []

    @property
    def columns(self) -> list[str]:
        return self.schema.fieldNames()

    @property
    def writeStream(self) -> Frame:
        return self

    write = writeStream

    def format(self, name: str) -> Frame:
        self.told["format"] = name
        return self

    def options(self, **options: str) -> Frame:
        self.told |= options
        return self

    def mode(self, name: str) -> Frame:
        self.told["mode"] = name
        return self

    def save(self) -> None:
        self.calls.append("save")

    def foreachBatch(self, write: Any) -> Frame:
        self.told["each"] = write
        return self

    def persist(self) -> Frame:
        self.calls.append("persist")
        return self

    def unpersist(self) -> None:
        self.calls.append("unpersist")

    def count(self) -> int:
        return 3

    def show(self, rows: int, *, truncate: bool) -> None:
        self.calls.append((rows, truncate))
        if rows == 7:
            raise ValueError("not shown")


def sink(servers: str = NOWHERE, **options: Any) -> TopicSink:
    values = {"topic": "t", "format": "raw", "kafka": {"bootstrap.servers": servers}, **options}
    return TopicSink.from_section(section({name: value for name, value in values.items() if value is not None}))


def section(values: Mapping[str, object]) -> Section:
    return Section.of(values, Place("p.yaml", 3), "sink results")


def written(part: TopicSink, frame: Any, flow: FlowContext = FLOW) -> dict[str, Any]:
    part.writer(frame, flow=flow)
    told: dict[str, Any] = frame.told
    return told


def test_rows_are_written_with_the_options_of_the_sink() -> None:
    own = {"format": "ottla", "kafka.bootstrap.servers": NOWHERE}
    assert written(sink(), Frame()) == {**own, "sinkId": "shop-totals", "topic": "t"}
    several = written(
        sink(topic=None, topics=["a", "b"]), Frame(*(StructField(one, StringType()) for one in ("topic", "value")))
    )
    assert several == {**own, "sinkId": "shop-totals"}
    chosen = written(sink(options={"sinkId": "mine"}, delivery="at-least-once"), Frame())
    assert chosen == {**own, "sinkId": "mine", "deliveryGuarantee": "at-least-once", "topic": "t"}


def test_in_the_mode_update_each_batch_is_written_as_a_job() -> None:
    told = written(sink(), Frame(), FLOW._replace(mode="update"))
    assert "format" not in told
    batch = Frame()
    told["each"](batch, 5)
    assert batch.told == {
        "format": "ottla",
        "kafka.bootstrap.servers": NOWHERE,
        "sinkId": "shop-totals",
        "topic": "t",
        "deliveryGuarantee": "exactly-once",
        "mode": "append",
    }
    assert batch.calls == ["save"]
    lax = written(sink(delivery="at-least-once"), Frame(), FLOW._replace(mode="update"))
    lax["each"](batch, 6)
    assert batch.told["deliveryGuarantee"] == "at-least-once"


@pytest.mark.parametrize(
    ("options", "columns", "told"),
    [
        ({"kafka": {"bootstrap.servers": NOWHERE, "linger.ms": "x"}}, {}, "linger.ms"),
        ({"options": {"sinkid": " "}}, {}, "sinkId must not be empty"),
        ({}, {"n": LongType()}, "flow totals: the required column value is missing; the rows have: n. With 'for"),
        ({"key": "who"}, {"whom": StringType()}, "the rows have no column 'who'. Did you mean 'whom'?"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_told_before_anything_starts(
    options: dict[str, Any], columns: dict[str, Any], told: str
) -> None:
    frame: Any = Frame(*(StructField(name, kind) for name, kind in columns.items()))
    with pytest.raises(SpecError, match="sink results: ") as refusal:
        sink(**options).writer(frame, flow=FLOW)
    assert told in str(refusal.value)


# In the cluster


def test_topics_have_to_be_there_or_are_made(cluster: EmbeddedBroker, admin: ottla.Admin) -> None:
    servers, there = cluster.bootstrap_servers, cluster.new_topic("there")
    new = f"{there}-new"
    (missing,) = sink(servers, topic=new).check()
    assert missing[1].startswith(f"sink results: there is no topic {new!r}. Did you mean {there!r}?")
    assert sink(servers, topic=there).check() == []
    made = sink(servers, topic=new, create_partitions=3)
    assert made.check() == []
    for _ in range(2):
        made.prepare()
        assert len(admin.describe_topics([new])[new].partitions) == 3
    sink(servers, topic=f"{there}-other").prepare()
    assert f"{there}-other" not in admin.list_topics()
    (unreachable,) = sink(NOWHERE, topic=there, create_partitions=1).check()
    assert unreachable[1].endswith(". Is a broker running?")


def test_what_is_internal_is_there_too_and_what_cannot_be_made_is_an_error(cluster: EmbeddedBroker) -> None:
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    create_topic(options, ottla.NewTopic(cluster.new_topic(), 1))
    with pytest.raises(KafkaError) as refusal:
        create_topic(options, ottla.NewTopic("not/a/name", 1))
    assert refusal.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    with ottla.Producer({**_settings(cluster), "transactional.id": "of-a-test"}) as producer:
        producer.init_transactions()
    assert find_missing_topics(options, ["__transaction_state"]) == []


def _settings(cluster: EmbeddedBroker) -> dict[str, str]:
    return {"bootstrap.servers": cluster.bootstrap_servers}


@pytest.mark.parametrize("own_id", [None, "mine"])
def test_what_is_left_open_and_remembered_is_put_away(
    cluster: EmbeddedBroker, admin: ottla.Admin, own_id: str | None
) -> None:
    topic, settings = cluster.new_topic(), _settings(cluster)
    given = f"of-{topic}"
    sink_id = given if own_id is None else f"{own_id}-{topic}"
    part = sink(settings["bootstrap.servers"], topic=topic, options=None if own_id is None else {"sinkId": sink_id})
    batch = Batch(f"{sink_id}-{QUERY}", "run", 0, 5)

    def open_ones() -> int:
        return sum(topic in one.transactional_id for one in admin.list_transactions(states=["Ongoing"]))

    moved = MovedFlow(given, QUERY, "new", ())
    ends: list[Callable[[], None]] = [lambda: part.flow_moved(moved), lambda: part.end_left_over(given)]
    for end in ends:
        write_task(settings, settings, batch, 0, Rows([pa.record_batch({"value": ["v"]})], topic))
        assert open_ones() == 1
        end()
        assert open_ones() == 0
    for group in (batch.sink, f"{batch.sink}-0"):
        noted = ottla.OffsetAndMetadata(3, metadata='{"tasks": 1, "run": "r"}')
        admin.alter_group_offsets(group, {TopicPartition(topic, 0): noted}).check()
    for committed, keep_plan, left in ((2, False, 2), (3, True, 1), (3, False, 0)):
        part.forget_batches(given, QUERY, committed, keep_plan=keep_plan)
        assert sum(topic in one.group_id for one in admin.list_groups()) == left
    assert part.obstacle_to_move() is None and part.rewritten_rows.startswith(f"{topic} keeps what was written")


# Spark's own formats


def test_a_format_of_sparks_own_is_written_and_read_with_its_options() -> None:
    part = SparkSink.from_section(section({"format": "delta", "options": {"path": "/x"}}))
    frame: Any = Frame()
    part.writer(frame, flow=FLOW)
    assert frame.told == {"format": "delta", "path": "/x"}
    assert part.obstacle_to_move() is None and part.rewritten_rows.endswith("up to the format delta")
    for kind, is_free in (("parquet", False), ("orc", False), ("delta", True)):
        far = SparkSink.from_section(section({"format": kind, "options": {"path": "s3://b/x"}}))
        assert (far.obstacle_to_move() is None) is is_free


@pytest.mark.parametrize("schema", [None, "id BIGINT"])
def test_a_table_of_sparks_own_is_read_with_its_options(schema: str | None) -> None:
    told: dict[str, Any] = {}

    class Reader:
        def __getattr__(self, name: str) -> Any:
            def tell(*values: object, **options: object) -> Any:
                told[name] = values or options
                return self if name != "load" else "rows"

            return tell

    spark: Any = type("Session", (), {"read": Reader()})
    values = {"format": "csv", "options": {"header": "true"}, **({} if schema is None else {"schema": schema})}
    rows: Any = SparkSource.from_section(section(values)).load_table(spark)
    assert rows == "rows"
    shown = {} if schema is None else {"schema": (schema,)}
    assert told == {"format": ("csv",), "options": {"header": "true"}, **shown, "load": {}}


@pytest.mark.parametrize(
    ("options", "calls"),
    [
        ({}, ["persist", (20, False), "unpersist"]),
        ({"rows": 5, "truncate": True}, ["persist", (5, True), "unpersist"]),
        ({"rows": 7}, ["persist", (7, False), "unpersist"]),
    ],
)
def test_the_terminal_shows_each_batch(
    options: dict[str, object], calls: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    frame: Any = Frame()
    ConsoleSink.from_section(section(options)).writer(frame, flow=FLOW)
    batch = Frame()
    try:
        frame.told["each"](batch, 4)
    except ValueError:
        assert options == {"rows": 7}
    assert batch.calls == calls
    assert capsys.readouterr().out == "totals, batch 4: 3 rows\n"
