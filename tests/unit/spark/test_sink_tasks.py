"""What tasks write into transactions, what they drop, and what is put away after them: a broker, and no Spark."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pytest

import ottla
from ottla.base.types import TopicPartition
from ottla.client.errors import ProducerFencedError
from ottla.client.sync import Consumer
from ottla.spark.sink_options import SinkSchemaError
from ottla.spark.sink_rows import Rows
from ottla.spark.sink_transactions import (
    Batch,
    SinkFencedError,
    TaskResult,
    abort_batch,
    abort_open,
    commit_batch,
    commit_prepared,
    end_left_over,
    forget_batches,
    write_task,
    write_task_once,
)
from ottla.testing import EmbeddedBroker

PLANNED_MS = 5_000
END = TopicPartition("__consumer_offsets", 0)


@dataclass
class Sink:
    """A sink of its own, and what can be read of it."""

    settings: dict[str, str]
    admin: ottla.Admin
    topic: str
    name: str

    def batch(self, number: int) -> Batch:
        return Batch(self.name, "run-1", number, PLANNED_MS)

    def write(self, number: int, task: int = 0, *values: str) -> TaskResult:
        rows = Rows([pa.record_batch({"value": list(values or ("a", "b"))})], self.topic)
        return write_task(self.settings, self.settings, self.batch(number), task, rows)

    def values(self) -> list[str]:
        return read(self.settings, self.topic)

    def open(self) -> list[str]:
        listed = self.admin.list_transactions(states=["Ongoing", "PrepareCommit"])
        return sorted(one.transactional_id for one in listed if one.transactional_id.startswith(self.name))

    def groups(self) -> list[str]:
        return sorted(one.group_id for one in self.admin.list_groups() if one.group_id.startswith(self.name))

    def given_up_at(self, time_ms: int) -> None:
        self.admin.alter_group_offsets(f"{self.name}-end", {END: time_ms}).check()


def read(settings: dict[str, str], topic: str) -> list[str]:
    own = {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    found: list[str] = []
    with Consumer({**settings, **own}) as consumer:
        partitions = consumer.partitions_for(topic)
        assert partitions
        places = [TopicPartition(topic, one.partition) for one in partitions]
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        while any(consumer.position(one) < ends[one] for one in places):
            found += [(record.value or b"").decode() for record in consumer.poll(0.1)]
    return found


@pytest.fixture
def sink(cluster: EmbeddedBroker, admin: ottla.Admin) -> Sink:
    topic = cluster.new_topic()
    return Sink({"bootstrap.servers": cluster.bootstrap_servers}, admin, topic, f"sink-of-{topic}")


# A task


def test_what_a_task_writes_is_seen_when_the_driver_commits(sink: Sink) -> None:
    result = sink.write(0, 3)
    assert (result.row_count, result.topic) == (2, sink.topic)
    assert result.transaction is not None and result.transaction.transactional_id == f"{sink.name}-3"
    assert sink.values() == [] and sink.open() == [f"{sink.name}-3"]
    commit_batch(sink.settings, sink.batch(0), [result])
    assert sink.values() == ["a", "b"] and sink.open() == []
    marker = sink.admin.list_group_offsets([f"{sink.name}-3"])[f"{sink.name}-3"]
    assert {one: found.offset for one, found in marker.items()} == {TopicPartition(sink.topic, 0): 0}


def test_a_batch_that_comes_again_is_dropped_and_the_next_is_written(sink: Sink) -> None:
    commit_batch(sink.settings, sink.batch(4), [sink.write(4)])
    for number in (3, 4):
        assert sink.write(number) == TaskResult(2, sink.topic)
    assert sink.open() == []
    commit_batch(sink.settings, sink.batch(5), [sink.write(5, 0, "c")])
    assert sink.values() == ["a", "b", "c"]


def test_the_last_of_several_markers_counts(sink: Sink, cluster: EmbeddedBroker) -> None:
    markers = {TopicPartition(cluster.new_topic(), 0): 7, TopicPartition(sink.topic, 0): 2}
    sink.admin.alter_group_offsets(f"{sink.name}-0", markers).check()
    assert sink.write(7).transaction is None
    assert sink.write(8).transaction is not None
    abort_open(sink.admin, sink.name)


def test_a_task_that_comes_again_shuts_out_its_first_try(sink: Sink) -> None:
    first, second = sink.write(0), sink.write(0)
    with pytest.raises(SinkFencedError, match=f"{sink.name}-0 cannot be committed"):
        commit_prepared(sink.admin, [one.transaction for one in (first,) if one.transaction is not None])
    commit_batch(sink.settings, sink.batch(0), [second])
    assert sink.values() == ["a", "b"]


def test_a_task_without_rows_connects_to_nobody() -> None:
    nowhere = {"bootstrap.servers": "127.0.0.1:1"}
    empty = [pa.record_batch({"value": pa.array([], pa.string())})]
    for batches in (empty, []):
        assert write_task(nowhere, nowhere, Batch("s", "r", 0, 0), 0, Rows(batches, "t")) == TaskResult(0)
        assert write_task_once(nowhere, nowhere, "job", 0, 0, Rows(batches, "t")) == TaskResult(0)


@pytest.mark.parametrize(("given_up_ms", "is_wanted"), [(PLANNED_MS - 1, True), (PLANNED_MS, False)])
def test_a_task_of_a_batch_that_was_given_up_does_not_begin(sink: Sink, given_up_ms: int, is_wanted: bool) -> None:
    sink.given_up_at(given_up_ms)
    if is_wanted:
        assert sink.write(0).transaction is not None
        abort_open(sink.admin, sink.name)
        return
    rows = [pa.record_batch({"value": ["a"]})]
    with pytest.raises(SinkFencedError, match=f"the batch of {sink.name} was given up before"):
        sink.write(0)
    with pytest.raises(SinkFencedError, match=f"the batch of {sink.name} was given up before"):
        write_task_once(sink.settings, sink.settings, sink.name, PLANNED_MS, 0, Rows(rows, sink.topic))
    assert sink.open() == []


def test_a_task_that_begins_after_its_batch_was_given_up_is_not_seen(sink: Sink) -> None:
    """By the time that `abort_batch` notes itself."""
    abort_batch(sink.settings, sink.name, [None])
    noted = sink.admin.list_group_offsets([f"{sink.name}-end"])[f"{sink.name}-end"][END].offset
    assert noted > 1_700_000_000_000
    with pytest.raises(SinkFencedError):
        sink.write(0)


def test_a_job_leaves_no_marker(sink: Sink) -> None:
    rows = [pa.record_batch({"value": ["a", "b"]}), pa.record_batch({"value": ["c"]})]
    result = write_task_once(sink.settings, sink.settings, sink.name, PLANNED_MS, 2, Rows(rows, sink.topic))
    assert (result.row_count, result.topic) == (3, sink.topic)
    assert result.transaction is not None and result.transaction.transactional_id == f"{sink.name}-2"
    commit_prepared(sink.admin, [result.transaction])
    assert sorted(sink.values()) == ["a", "b", "c"]
    assert sink.groups() == []


def test_a_task_that_takes_over_aborts_what_was_left_open(sink: Sink) -> None:
    lost = ottla.Producer({**sink.settings, "transactional.id": f"{sink.name}-0"})
    lost.init_transactions()
    lost.begin_transaction()
    lost.send(sink.topic, b"lost").result()
    commit_batch(sink.settings, sink.batch(0), [sink.write(0)])
    assert sink.values() == ["a", "b"]
    with pytest.raises(ProducerFencedError):
        lost.commit_transaction()
    lost.close()


# After a query


def test_open_transactions_of_a_sink_are_ended_and_no_others(sink: Sink) -> None:
    other = Sink(sink.settings, sink.admin, sink.topic, f"{sink.name}-x")
    for one, task in ((sink, 0), (sink, 1), (other, 0)):
        one.write(0, task)
    abort_open(sink.admin, sink.name)
    assert sink.open() == [f"{other.name}-0"]
    abort_open(sink.admin, other.name)
    assert sink.values() == []


def test_what_other_queries_of_a_sink_have_left_open_is_ended(sink: Sink) -> None:
    lost = Sink(sink.settings, sink.admin, sink.topic, f"{sink.name}-0f8fad5b-d9cb-469f-a165-70867728950e")
    lost.write(0)
    sink.write(0)
    end_left_over(sink.admin, sink.name)
    assert sink.open() == [f"{sink.name}-0"]
    abort_open(sink.admin, sink.name)


@pytest.mark.parametrize(
    ("committed", "keep_plan", "kept"),
    [
        (6, False, ["", "-0", "-1", "-end", "-x"]),
        (7, True, ["", "-x"]),
        (7, False, ["-x"]),
        (8, False, ["-x"]),
    ],
)
def test_markers_are_put_away_once_their_batch_is_done(
    sink: Sink, committed: int, keep_plan: bool, kept: Sequence[str]
) -> None:
    sink.given_up_at(PLANNED_MS - 1)
    sink.admin.alter_group_offsets(f"{sink.name}-x", {END: 0}).check()
    commit_batch(sink.settings, sink.batch(7), [sink.write(7, 0), sink.write(7, 1)])
    forget_batches(sink.admin, sink.name, committed, keep_plan=keep_plan)
    assert sink.groups() == [sink.name + end for end in kept]


def test_markers_without_a_plan_are_put_away(sink: Sink) -> None:
    forget_batches(sink.admin, sink.name, 0, keep_plan=False)
    sink.admin.alter_group_offsets(f"{sink.name}-12", {END: 0}).check()
    forget_batches(sink.admin, sink.name, 0, keep_plan=False)
    assert sink.groups() == []


def test_a_group_that_cannot_be_put_away_is_told(sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ottla.spark.sink_transactions")
    with Consumer({**sink.settings, "group.id": f"{sink.name}-0"}) as member:
        member.subscribe([sink.topic])
        while not member.assignment:
            member.poll(0.05)
        forget_batches(sink.admin, sink.name, 0, keep_plan=False)
        assert f"the group {sink.name}-0 stays" in caplog.text


# Rows


class Future:
    def __init__(self, is_done: bool, error: Exception | None = None) -> None:
        self._is_done, self._error = is_done, error
        self.waits = 0

    def done(self) -> bool:
        return self._is_done

    def result(self) -> dict[TopicPartition, object]:
        self.waits += 1
        if self._error is not None:
            raise self._error
        return {}


class ScriptedProducer:
    def __init__(self, *futures: Future) -> None:
        self._futures = iter(futures)
        self.sent: list[tuple[str | None, int, str | None]] = []

    def send_arrow(self, topic: str | None, batch: pa.RecordBatch, *, partition_column: str | None) -> Future:
        self.sent.append((topic, batch.num_rows, partition_column))
        return next(self._futures)


def batch_of(rows: int, **columns: list[object]) -> pa.RecordBatch:
    return pa.record_batch({"value": ["v"] * rows, **columns})


def test_rows_are_sent_batch_by_batch_and_each_is_waited_for_once() -> None:
    futures = [Future(True), Future(False), Future(True)]
    producer = ScriptedProducer(*futures)
    rows = Rows([batch_of(0), batch_of(2), batch_of(0), batch_of(1), batch_of(3)], "t")
    assert not rows.are_none and rows.first_topic == "t"
    assert rows.send(producer) == 6  # type: ignore[arg-type]
    assert producer.sent == [("t", 2, None), ("t", 1, None), ("t", 3, None)]
    assert [future.waits for future in futures] == [1, 1, 1]


def test_a_batch_that_is_stored_is_settled_before_the_next_is_asked_for() -> None:
    """So that an error is found early, and what is noted of batches does not pile up."""
    settled = Future(True)

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch_of(1)
        yield batch_of(1)
        assert settled.waits == 1
        yield batch_of(1)

    assert Rows(batches(), "t").send(ScriptedProducer(settled, Future(False), Future(True))) == 3  # type: ignore[arg-type]


@pytest.mark.parametrize("is_done", [True, False])
def test_an_error_of_any_batch_is_raised(is_done: bool) -> None:
    producer = ScriptedProducer(Future(True), Future(is_done, OSError("lost")), Future(True))
    with pytest.raises(OSError, match="lost"):
        Rows([batch_of(1), batch_of(1), batch_of(1)], "t").send(producer)  # type: ignore[arg-type]


def test_rows_that_name_their_topics_and_partitions() -> None:
    producer = ScriptedProducer(Future(True))
    rows = Rows([batch_of(2, topic=["b", "a"], partition=[0, 1])], None)
    assert rows.first_topic == "b"
    assert rows.send(producer) == 2  # type: ignore[arg-type]
    assert producer.sent == [(None, 2, "partition")]


def test_a_row_without_a_topic_is_refused_wherever_it_is() -> None:
    with pytest.raises(SinkSchemaError, match="its column topic is null"):
        assert Rows([batch_of(2, topic=["a", None])], None).first_topic
    later = Rows([batch_of(1, topic=["a"]), batch_of(2, topic=[None, "a"])], None)
    assert later.first_topic == "a"
    with pytest.raises(SinkSchemaError, match="its column topic is null"):
        later.send(ScriptedProducer(Future(True), Future(True)))  # type: ignore[arg-type]


def test_rows_that_are_drained_are_counted() -> None:
    rows = Rows([batch_of(2), batch_of(0), batch_of(3)], "t")
    assert rows.drain() == 5
    assert rows.are_none and rows.drain() == 0
