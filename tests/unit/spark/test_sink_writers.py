"""The writers that Spark asks for: which one it gets, and what becomes of a batch that is committed or given up.

What Spark tells a task is played; rows go to a real broker.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from pyspark import TaskContext
from pyspark.sql.types import StringType, StructField, StructType

import ottla
from ottla.base.errors import InvalidConfigError, OttlaError
from ottla.base.types import TopicPartition
from ottla.client.sync import Consumer
from ottla.spark import sink
from ottla.spark.sink import (
    PlainBatchWriter,
    PlainStreamWriter,
    TransactionalBatchWriter,
    TransactionalStreamWriter,
    batch_writer,
    query_id_of,
    stream_writer,
)
from ottla.spark.sink_transactions import Batch, SinkFencedError, TaskResult
from ottla.testing import EmbeddedBroker

QUERY = "0f8fad5b-d9cb-469f-a165-70867728950e"
SCHEMA = StructType([StructField("value", StringType())])
IN_BATCH_5 = {"sql.streaming.queryId": QUERY, "streaming.sql.batchId": "5", "spark.jobGroup.id": "run-1"}


class Context:
    """What Spark tells the task that runs at the moment."""

    def __init__(self) -> None:
        self.task = 0
        self.properties: Mapping[str, str] = IN_BATCH_5

    def partitionId(self) -> int:
        return self.task

    def getLocalProperty(self, name: str) -> str | None:
        return self.properties.get(name)


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Context:
    made = Context()
    monkeypatch.setattr(TaskContext, "get", lambda: made)
    return made


@pytest.fixture(autouse=True)
def _imports_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the process of the tests shall have its objects set aside."""
    monkeypatch.setattr(sink, "set_imports_aside", lambda: None)


class World:
    def __init__(self, cluster: EmbeddedBroker, admin: ottla.Admin) -> None:
        self.servers = cluster.bootstrap_servers
        self.admin = admin
        self.topic = cluster.new_topic()
        self.sink_id = f"id-{self.topic}"

    def options(self, **more: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.servers, "topic": self.topic, "sinkId": self.sink_id, **more}

    def stream(self, **more: str) -> Any:
        return stream_writer(self.options(**more), SCHEMA, False)

    def batch(self, **more: str) -> Any:
        return batch_writer(self.options(deliveryGuarantee="exactly-once", **more), SCHEMA, False)

    def values(self) -> list[str]:
        settings = {"bootstrap.servers": self.servers, "isolation.level": "read_committed"}
        place, found = TopicPartition(self.topic, 0), list[str]()
        with Consumer({**settings, "auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([place])
            end = consumer.end_offsets([place])[place]
            while consumer.position(place) < end:
                found += [(record.value or b"").decode() for record in consumer.poll(0.1)]
        return found

    def open(self) -> list[str]:
        """Without what they all begin with."""
        listed = self.admin.list_transactions(states=["Ongoing"])
        names = [one.transactional_id for one in listed if one.transactional_id.startswith(self.sink_id)]
        return sorted(name.removeprefix(f"{self.sink_id}-") for name in names)

    def groups(self) -> list[str]:
        names = [one.group_id for one in self.admin.list_groups() if one.group_id.startswith(self.sink_id)]
        return sorted(name.removeprefix(f"{self.sink_id}-") for name in names)


@pytest.fixture
def world(cluster: EmbeddedBroker, admin: ottla.Admin) -> World:
    return World(cluster, admin)


def rows(*values: str) -> Iterator[pa.RecordBatch]:
    return iter([pa.record_batch({"value": list(values)})])


# Which writer


@pytest.mark.parametrize(
    ("delivery", "batch_kind", "stream_kind"),
    [
        (None, PlainBatchWriter, TransactionalStreamWriter),
        ("at-least-once", PlainBatchWriter, PlainStreamWriter),
        ("exactly-once", TransactionalBatchWriter, TransactionalStreamWriter),
    ],
)
def test_how_rows_are_delivered_decides_who_writes_them(
    delivery: str | None, batch_kind: type, stream_kind: type
) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "sinkId": "s"}
    if delivery is not None:
        options["deliveryGuarantee"] = delivery
    assert type(batch_writer(options, SCHEMA, False)) is batch_kind
    for overwrite in (False, True):
        assert type(stream_writer(options, SCHEMA, overwrite)) is stream_kind
    with pytest.raises(InvalidConfigError, match="a topic cannot be overwritten") as refusal:
        batch_writer(options, SCHEMA, True)
    assert refusal.value.key == "mode"


# At least once


def test_rows_of_a_plain_writer_are_there_at_once(world: World) -> None:
    for number, writer in enumerate(
        (
            batch_writer(world.options(deliveryGuarantee="at-least-once"), SCHEMA, False),
            world.stream(deliveryGuarantee="at-least-once"),
        )
    ):
        message = writer.write(rows("a", "b"))
        assert message.result.row_count == 2 and message.batch is None
        assert world.values() == ["a", "b"] * (number + 1)
        assert writer.write(iter([])).result == TaskResult(0)


# A job


def test_a_job_is_seen_as_a_whole(world: World, context: Context) -> None:
    context.properties = {}
    writer = world.batch()
    messages = []
    for task in range(2):
        context.task = task
        messages.append(writer.write(rows(f"of {task}")))
    assert all(message.batch is None for message in messages)
    ends = [name.rpartition("-") for name in world.open()]
    assert [end for _, _, end in ends] == ["0", "1"]
    assert len({job for job, _, _ in ends}) == 1 and len(ends[0][0]) == len(QUERY)
    assert world.values() == []
    writer.commit([messages[0], None, messages[1]])
    assert world.values() == ["of 0", "of 1"]
    assert world.groups() == []
    writer.commit([])


def test_two_jobs_of_one_sink_do_not_shut_each_other_out(world: World, context: Context) -> None:
    context.properties = {}
    first, second = world.batch(), world.batch()
    messages = [one.write(rows(value)) for one, value in ((first, "a"), (second, "b"))]
    for one, message in zip((first, second), messages, strict=True):
        one.commit([message])
    assert world.values() == ["a", "b"]


def test_a_job_that_is_given_up_leaves_nothing_open(world: World, context: Context) -> None:
    context.properties = {}
    writer = world.batch()
    message = writer.write(rows("a"))
    context.task = 1
    writer.write(rows("unheard of"))
    writer.abort([message, None])
    assert world.open() == [] and world.values() == []
    assert [name.rpartition("-")[2] for name in world.groups()] == ["end"]
    with pytest.raises(SinkFencedError, match="was given up before"):
        writer.write(rows("late"))


# Inside foreachBatch


def test_a_job_inside_a_micro_batch_is_part_of_the_stream(world: World, context: Context) -> None:
    writer = world.batch()
    message = writer.write(rows("a"))
    assert message.batch[:3] == Batch(f"{world.sink_id}-{QUERY}", "run-1", 5, 0)[:3]
    writer.commit([message])
    assert world.values() == ["a"] and world.groups() == [QUERY, f"{QUERY}-0"]
    again = world.batch()
    assert again.write(rows("a")).result == TaskResult(1, world.topic)


def test_a_job_inside_a_micro_batch_needs_a_name(world: World, context: Context) -> None:
    options = {name: text for name, text in world.options(deliveryGuarantee="exactly-once").items() if name != "sinkId"}
    with pytest.raises(InvalidConfigError, match="needs the option sinkId") as refusal:
        batch_writer(options, SCHEMA, False).write(rows("a"))
    assert refusal.value.key == "sinkId"


def test_a_job_inside_a_micro_batch_that_is_given_up(world: World, context: Context) -> None:
    writer = world.batch()
    messages = [writer.write(rows("a"))]
    writer.abort([*messages, None])
    assert world.open() == []
    assert world.groups() == [f"{QUERY}-end"]


# A stream


def test_a_micro_batch_is_seen_as_a_whole(world: World, context: Context) -> None:
    messages = []
    for task in range(2):
        context.task = task
        messages.append(world.stream().write(rows(f"of {task}")))
    assert world.open() == [f"{QUERY}-0", f"{QUERY}-1"] and world.values() == []
    world.stream().commit([messages[0], None, messages[1]], 5)
    assert world.values() == ["of 0", "of 1"]
    assert world.groups() == [QUERY, f"{QUERY}-0", f"{QUERY}-1"]
    noted = world.admin.list_group_offsets([f"{world.sink_id}-{QUERY}"])[f"{world.sink_id}-{QUERY}"]
    assert {one: (at.offset, json.loads(at.metadata)) for one, at in noted.items()} == {
        TopicPartition(world.topic, 0): (5, {"tasks": 2, "run": "run-1"})
    }
    world.stream().commit([None], 6)


def test_a_task_of_a_query_without_a_run_is_one_all_the_same(world: World, context: Context) -> None:
    context.properties = {name: text for name, text in IN_BATCH_5.items() if name != "spark.jobGroup.id"}
    message = world.stream().write(rows("a"))
    assert message.batch[:3] == (f"{world.sink_id}-{QUERY}", "", 5)
    world.stream().abort([message], 5)
    assert world.open() == []


@pytest.mark.parametrize("missing", ["sql.streaming.queryId", "streaming.sql.batchId"])
def test_a_task_that_is_in_no_micro_batch_writes_nothing(world: World, context: Context, missing: str) -> None:
    context.properties = {name: text for name, text in IN_BATCH_5.items() if name != missing}
    with pytest.raises(OttlaError, match="not part of a micro-batch"):
        world.stream().write(rows("a"))
    assert world.batch().write(rows("a")).batch is None


def test_rows_are_written_by_tasks_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: None)
    for writer in (world.stream(), world.batch()):
        with pytest.raises(OttlaError, match="only be written by a task of Spark"):
            writer.write(rows("a"))


def test_a_micro_batch_that_is_given_up_shuts_out_tasks_that_were_not_heard_of(world: World, context: Context) -> None:
    messages = [world.stream().write(rows("a"))]
    context.task = 1
    world.stream().write(rows("unheard of"))
    world.stream().abort([*messages, None], 5)
    assert world.open() == [] and world.groups() == [f"{QUERY}-end"]


@pytest.mark.parametrize("is_known", [True, False])
def test_one_of_which_no_task_was_heard_goes_by_the_query_of_its_checkpoint(
    world: World, context: Context, tmp_path: Path, is_known: bool
) -> None:
    world.stream().write(rows("unheard of"))
    if is_known:
        (tmp_path / "metadata").write_text(json.dumps({"id": QUERY}))
    world.stream(checkpointLocation=str(tmp_path)).abort([None], 5)
    assert world.open() == ([] if is_known else [f"{QUERY}-0"])
    world.stream().abort([None], 5)
    assert (f"{QUERY}-end" in world.groups()) is is_known


@pytest.mark.parametrize("prefix", ["", "file:"])
@pytest.mark.parametrize(
    ("content", "found"),
    [(json.dumps({"id": QUERY}), QUERY), ("{}", None), ("[]", None), ("{", None), ('{"id": 5}', "5"), (None, None)],
)
def test_the_query_of_a_checkpoint(tmp_path: Path, prefix: str, content: str | None, found: str | None) -> None:
    if content is not None:
        (tmp_path / "metadata").write_text(content)
    assert query_id_of(f"{prefix}{tmp_path}") == found
