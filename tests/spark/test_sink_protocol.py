"""Exactly once, without Spark: whatever crashes at whatever moment, every row is there once, and only once.

The real tasks and the real driver's part against a real broker. What Spark does is played: a batch comes again, with
the same rows in each task, until its end is noted.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ottla
from ottla.client.core.producer.transaction import PreparedTransaction
from ottla.spark import sink_transactions
from ottla.spark.sink_rows import Rows
from ottla.spark.sink_transactions import (
    Batch,
    LayoutChangedError,
    SinkFencedError,
    TaskResult,
    abort_batch,
    commit_batch,
    write_task,
    write_task_once,
)
from tests.broker_process import BrokerProcess
from tests.interop.transactions.readers import read_all

PARTITIONS = (0, 1)
ROWS_PER_TASK = 5


class CrashError(Exception):
    pass


@pytest.fixture(scope="module")
def admin(spark_broker: BrokerProcess) -> Iterator[ottla.Admin]:
    with ottla.Admin(bootstrap_servers=spark_broker.bootstrap) as admin:
        yield admin


@dataclass
class Query:
    """One sink and the topic it writes to, run by run."""

    admin: ottla.Admin
    bootstrap: str
    topic: str = field(default_factory=lambda: f"sink-{uuid.uuid4()}")
    run: str = "run-1"
    planned_ms: int = field(default_factory=lambda: now_ms())

    def __post_init__(self) -> None:
        self.admin.create_topics([ottla.NewTopic(self.topic, len(PARTITIONS))]).check()
        self.client = {"bootstrap.servers": self.bootstrap}
        self.sink = f"of-{self.topic}"

    def restart(self) -> None:
        self.run = str(uuid.uuid4())
        # Spark takes longer: the last run never ends in the millisecond in which the next is planned.
        time.sleep(0.002)
        self.planned_ms = now_ms()

    def batch(self, number: int) -> Batch:
        return Batch(self.sink, self.run, number, self.planned_ms)

    def write(self, number: int, task: int, rows: list[str] | None = None) -> TaskResult:
        values = rows_of(number, task) if rows is None else rows
        tables = [pa.record_batch({"value": values[start : start + 2]}) for start in range(0, len(values), 2)]
        return write_task(self.client, self.client, self.batch(number), task, Rows(tables, self.topic))

    def commit(self, number: int, results: list[TaskResult]) -> None:
        commit_batch(self.client, self.batch(number), results)

    def visible(self) -> Counter[str]:
        found = read_all(self.bootstrap, self.topic, PARTITIONS)
        return Counter(value.decode() for records in found.values() for _, value in records)

    def nothing_is_open(self) -> bool:
        ends = [ottla.TopicPartition(self.topic, partition) for partition in PARTITIONS]
        latest = dict.fromkeys(ends, ottla.OffsetSpec.LATEST)
        return dict(self.admin.list_offsets(latest)) == dict(self.admin.list_offsets(latest, read_committed=True))


def now_ms() -> int:
    return int(time.time() * 1000)


def rows_of(number: int, task: int) -> list[str]:
    return [f"{number}/{task}/{row}" for row in range(ROWS_PER_TASK)]


def all_rows(batches: int, tasks: int) -> Counter[str]:
    return Counter(row for number in range(batches) for task in range(tasks) for row in rows_of(number, task))


@pytest.fixture
def query(admin: ottla.Admin, spark_broker: BrokerProcess) -> Query:
    return Query(admin, spark_broker.bootstrap)


# Every crash there is. A script says for each attempt at a batch where it ends; the last one goes through.

crashes = st.one_of(
    st.tuples(st.just("tasks"), st.integers(0, 2)),
    st.tuples(st.just("commit"), st.integers(0, 3)),
    st.tuples(st.just("failed commit"), st.integers(0, 3)),
    st.tuples(st.just("retry"), st.integers(0, 2)),
    st.tuples(st.just("abort"), st.integers(0, 2)),
)
scripts = st.lists(st.lists(crashes, max_size=2), min_size=1, max_size=3)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=scripts, late=st.booleans())
def test_every_row_is_there_once_after_any_crashes(
    admin: ottla.Admin, spark_broker: BrokerProcess, script: list[list[tuple[str, int]]], late: bool
) -> None:
    query = Query(admin, spark_broker.bootstrap)
    zombies: list[tuple[Batch, list[TaskResult]]] = []
    for number, attempts in enumerate(script):
        for kind, place in attempts:
            results = attempt(query, number, kind, place)
            zombies.append((query.batch(number), results))
            query.restart()
        results = [query.write(number, task) for task in range(3)]
        if late:
            # Drivers that were believed to be dead find their tasks done, and go on.
            for batch, prepared in zombies:
                if any(result.transaction for result in prepared):
                    with pytest.raises(SinkFencedError):
                        commit_batch(query.client, batch, prepared)
        query.commit(number, results)
    assert query.visible() == all_rows(len(script), 3)
    assert query.nothing_is_open()


def attempt(query: Query, number: int, kind: str, place: int) -> list[TaskResult]:
    """One try at a batch that ends before it is through; what its driver could still try to commit."""
    if kind == "tasks":
        for task in range(place):
            query.write(number, task)
        return []
    results = [query.write(number, task) for task in range(3)]
    if kind == "retry":
        results[place] = query.write(number, place)
        return results
    if kind == "abort":
        abort_batch(query.client, query.sink, [None if task == place else found for task, found in enumerate(results)])
        return results
    with pytest.MonkeyPatch.context() as patch:
        ended = sink_transactions.commit_prepared

        def crash(admin: ottla.Admin, prepared: list[PreparedTransaction]) -> None:
            ended(admin, prepared[:place])
            raise CrashError

        patch.setattr(sink_transactions, "commit_prepared", crash)
        if any(result.transaction for result in results):
            with pytest.raises(CrashError):
                query.commit(number, results)
    if kind == "failed commit":
        abort_batch(query.client, query.sink, results)  # Spark asks for it, whatever has been committed by then
    return results


def test_a_batch_that_was_committed_is_dropped_when_it_comes_again(query: Query) -> None:
    query.commit(0, [query.write(0, task) for task in range(2)])
    query.restart()
    again = [query.write(0, task) for task in range(2)]
    assert again == [TaskResult(ROWS_PER_TASK, query.topic)] * 2
    query.commit(0, again)
    assert query.visible() == all_rows(1, 2)


def test_a_task_that_is_tried_again_replaces_the_first_try(query: Query) -> None:
    first = query.write(0, 0)
    second = query.write(0, 0)
    with pytest.raises(SinkFencedError, match=r"transaction.timeout.ms, or this query runs a second time"):
        query.commit(0, [first])
    query.restart()
    query.commit(0, [second])
    assert query.visible() == all_rows(1, 1)


def test_a_transaction_whose_time_is_up_is_not_committed(tmp_path: Path) -> None:
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "50"}
    broker = BrokerProcess(tmp_path / "data", settings).start()
    try:
        with ottla.Admin(bootstrap_servers=broker.bootstrap) as admin:
            query = Query(admin, broker.bootstrap)
            patience = query.client
            # Long enough that on a busy machine, too, the rows are written before it is over.
            query.client = {**patience, "transaction.timeout.ms": "2000"}
            rows = Rows([pa.record_batch({"value": rows_of(0, 0)})], query.topic)
            result = write_task(query.client, patience, query.batch(0), 0, rows)
            name = f"{query.sink}-0"
            deadline_s = time.monotonic() + 30
            while admin.describe_transactions([name])[name].state == "Ongoing":
                assert time.monotonic() < deadline_s, "the transaction is still open"
                time.sleep(0.02)
            query.client = patience
            with pytest.raises(SinkFencedError, match=r"took longer than kafka\.transaction\.timeout\.ms"):
                query.commit(0, [result])
            query.restart()
            query.commit(0, [query.write(0, 0)])
            assert query.visible() == all_rows(1, 1)
    finally:
        broker.kill()


def test_tasks_without_rows_take_no_part(query: Query) -> None:
    results = [query.write(0, 0, []), query.write(0, 1), query.write(0, 2, [])]
    assert [result.transaction is None for result in results] == [True, False, True]
    query.commit(0, results)
    query.commit(1, [query.write(1, task, []) for task in range(3)])
    assert query.visible() == Counter(rows_of(0, 1))


@pytest.mark.parametrize(("before", "after"), [(3, 2), (2, 3)])
def test_a_batch_committed_in_part_is_refused_with_other_tasks(query: Query, before: int, after: int) -> None:
    attempt_results = [query.write(0, task) for task in range(before)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sink_transactions, "commit_prepared", lambda *_: None)
        query.commit(0, attempt_results)
    prepared = [result.transaction for result in attempt_results if result.transaction is not None]
    query.admin.end_transactions(prepared[-1:], committed=True).check()
    query.restart()
    changed = [query.write(0, task) for task in range(after)]
    with pytest.raises(LayoutChangedError, match=rf"it had {before} tasks then, and has {after} now.*minPartitions"):
        query.commit(0, changed)
    abort_batch(query.client, query.sink, changed)
    # With the earlier settings it goes on, and after that the number may change.
    query.restart()
    query.commit(0, [query.write(0, task) for task in range(before)])
    query.commit(1, [query.write(1, task) for task in range(after)])
    expected = all_rows(1, before) + Counter(row for task in range(after) for row in rows_of(1, task))
    assert query.visible() == expected


def test_a_dropped_batch_with_fewer_tasks_is_refused_as_well(query: Query) -> None:
    """Its tasks find their markers, and those that are missing now would never be written."""
    results = [query.write(0, task) for task in range(3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sink_transactions, "commit_prepared", lambda *_: None)
        query.commit(0, results)
    query.admin.end_transactions([results[0].transaction], committed=True).check()  # type: ignore[list-item]
    query.restart()
    with pytest.raises(LayoutChangedError):
        query.commit(0, [query.write(0, 0)])


def test_transactions_of_tasks_that_are_no_more_do_not_keep_readers_waiting(query: Query) -> None:
    for task in range(4):
        query.write(0, task)
    query.restart()
    query.commit(0, [query.write(0, task) for task in range(2)])
    assert query.nothing_is_open()
    assert query.visible() == all_rows(1, 2)


def test_after_an_abort_nothing_is_visible_and_nothing_open(query: Query) -> None:
    results: list[TaskResult | None] = [query.write(0, task) for task in range(3)]
    results[1] = None  # its last word was not heard
    abort_batch(query.client, query.sink, results)
    assert query.visible() == Counter()
    assert query.nothing_is_open()


def test_a_stopped_task_cannot_open_its_transaction_after_the_abort(query: Query) -> None:
    """Its worker does not know yet that it was stopped, has its transactional id, and has written nothing."""
    found = sink_transactions._marker

    def stopped_meanwhile(settings: Mapping[str, str], name: str) -> int:
        abort_batch(query.client, query.sink, [None])
        return found(settings, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sink_transactions, "_marker", stopped_meanwhile)
        with pytest.raises(ottla.errors.ClientError):
            query.write(0, 0)
    assert query.nothing_is_open()
    assert query.visible() == Counter()


@pytest.mark.parametrize("knows_its_batch", [True, False])
def test_a_task_that_begins_after_the_abort_writes_nothing(query: Query, knows_its_batch: bool) -> None:
    """Its worker was slow, or had to wait for a processor. Killed later, it would leave its transaction open."""
    abort_batch(query.client, query.sink, [None, None])
    with pytest.raises(SinkFencedError, match=f"{query.sink} was given up before this task"):
        if knows_its_batch:
            query.write(0, 1)
        else:
            rows = Rows([pa.record_batch({"value": ["a"]})], query.topic)
            write_task_once(query.client, query.client, query.sink, query.planned_ms, 1, rows)
    assert query.nothing_is_open()
    query.restart()
    query.commit(0, [query.write(0, task) for task in range(2)])
    assert query.visible() == all_rows(1, 2)


def test_a_driver_that_was_replaced_does_not_harm_its_successor(query: Query) -> None:
    """It finds tasks of a later batch at work that it knows nothing of, and must not take them for leftovers."""
    late = [query.write(0, 0, []), query.write(0, 1)]
    old = query.batch(0)
    query.restart()
    query.commit(0, [query.write(0, 0, []), query.write(0, 1)])
    results = [query.write(1, task) for task in range(2)]
    with pytest.raises(SinkFencedError):
        commit_batch(query.client, old, late)
    query.commit(1, results)
    assert query.visible() == Counter([*rows_of(0, 1), *rows_of(1, 0), *rows_of(1, 1)])


def test_a_task_that_fails_aborts_what_it_has_written(query: Query) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": ["a", "b"]})
        raise CrashError

    with pytest.raises(CrashError):
        write_task(query.client, query.client, query.batch(0), 0, Rows(broken(), query.topic))
    assert query.nothing_is_open()
    assert query.visible() == Counter()


def test_a_batch_behind_the_last_one_is_refused(query: Query) -> None:
    query.commit(5, [query.write(5, 0)])
    query.restart()
    with pytest.raises(SinkFencedError, match=r"batch 5 of .* has been written, and now batch 3 comes"):
        query.commit(3, [query.write(3, 0), query.write(3, 1)])


def test_rows_for_several_topics_share_a_transaction_and_its_marker(query: Query, new_topic: str) -> None:
    query.admin.create_topics([ottla.NewTopic(new_topic, 1)]).check()

    def write(number: int, topics: list[str]) -> TaskResult:
        rows = pa.record_batch({"value": [f"{number}/{index}" for index in range(len(topics))], "topic": topics})
        return write_task(query.client, query.client, query.batch(number), 0, Rows([rows], None))

    for number, topics in enumerate(([new_topic, query.topic], [query.topic, new_topic])):
        query.commit(number, [write(number, topics)])
    again = write(1, [query.topic, new_topic])
    assert again.transaction is None
    assert query.visible() == Counter(["0/1", "1/0"])
    assert [value for _, value in read_all(query.bootstrap, new_topic)[0]] == [b"0/0", b"1/1"]


def test_another_use_of_the_sinks_group_is_noticed(query: Query) -> None:
    query.admin.alter_group_offsets(query.sink, {ottla.TopicPartition(query.topic, 0): 7}).check()
    with pytest.raises(SinkFencedError, match="choose another sinkId"):
        query.commit(0, [query.write(0, 0)])


def test_the_rows_of_a_batch_come_in_their_order(query: Query) -> None:
    values = [str(number) for number in range(1000)]
    ones = pa.array([1] * 7, pa.int32())
    tables = [
        pa.record_batch({"value": part, "partition": ones.slice(0, len(part))})
        for part in (values[start : start + 7] for start in range(0, 1000, 7))
    ]
    result = write_task(query.client, query.client, query.batch(0), 0, Rows(tables, query.topic))
    assert result.row_count == 1000
    query.commit(0, [result])
    assert [value.decode() for _, value in read_all(query.bootstrap, query.topic, (1,))[1]] == values
