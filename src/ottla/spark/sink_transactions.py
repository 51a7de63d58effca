"""Exactly once: tasks prepare transactions, the driver commits them, and a batch that comes again is recognised.

Knows brokers, and nothing of Spark. Names: a *sink* is a query's writing, with a name that stays the same over
restarts; a *run* is the query from one start to its end; tasks are numbered from 0 in every batch.

A task takes over the transactional id `<sink>-<task>`, which shuts out whoever used it before and aborts what that one
left open. If the marker says that this task of this batch is committed, its rows are dropped. Otherwise they are
written in a transaction together with a new marker, which stays open. The marker is the offset of the consumer group
`<sink>-<task>`: the number of the last batch that the task has committed.

The driver, when all tasks are done, notes a plan (the group `<sink>`: the batch, how many tasks it has, the run), and
then commits all transactions. A crash can come at any moment; Spark then runs the same batch again, with the same rows
in each task, or it has noted in its checkpoint that the batch is done:

- Before the first commit: nothing is visible, all transactions are aborted by their successors, the batch is written
  once more.
- Between two commits: tasks that are committed find their markers and drop their rows, the others write.
- After the last commit, before Spark's own note: all tasks find their markers.
- After Spark's note: the batch does not come again.
- The driver only seems dead, and commits later than its successor's tasks begin: its transactions have been aborted and
  their epochs are outdated, so the broker refuses. Was it earlier, then its commit is whole when the successor's
  InitProducerId returns, and the marker is read after that.
- A worker outlives its driver and goes on writing: the same epochs shut it out, or nobody commits what it wrote.
- A batch is given up while its tasks are at work: the driver notes the time (the group `<sink>-end`), and then shuts
  out all tasks there are. One that takes over its id later finds the note, and stops.
- Time runs out for a transaction: the commit is refused, the query fails and starts again.

All of this needs the same rows in the same task when a batch comes again. The source sees to that (the checkpoint holds
the offsets of every batch), as long as nobody changes the number of tasks: the plan is there to refuse such a batch.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.base.errors import ErrorCode, OttlaError
from ottla.base.types import TopicPartition
from ottla.client import sync
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.client.core.producer.transaction import PreparedTransaction
from ottla.client.errors import ClientError
from ottla.spark.connections import FAIL_FAST, admin_for
from ottla.spark.sink_rows import Rows

if TYPE_CHECKING:
    from ottla.client.sync import Admin, Producer

log = logging.getLogger(__name__)

_GONE = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
_QUERY_ID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_NOTED_AT = TopicPartition("__consumer_offsets", 0)
"""A note needs a partition that exists, and when a batch is given up nobody may know yet where its rows went."""


class LayoutChangedError(OttlaError):
    """A batch that is committed in part has come again with another number of tasks."""


class SinkFencedError(OttlaError):
    """The transactions of a batch are not ours any more: another run has taken over, their time was up, or the batch
    was given up."""


class Batch(NamedTuple):
    """One batch of one run of a sink, as all of its tasks know it."""

    sink: str
    run: str
    number: int
    planned_ms: int
    """By the clock of the driver, before there were any tasks."""


class TaskResult(NamedTuple):
    """What a task tells the driver. A task without rows has neither `topic` nor `transaction`, one that has dropped
    its rows no `transaction`."""

    row_count: int
    topic: str | None = None
    transaction: PreparedTransaction | None = None


class Plan(NamedTuple):
    """What the driver was about to commit when it last was."""

    batch_number: int
    task_count: int
    run: str


def write_task(
    producer_settings: Mapping[str, str],
    admin_settings: Mapping[str, str],
    batch: Batch,
    task: int,
    rows: Rows,
) -> TaskResult:
    """Writes the rows of a task into a transaction that it leaves open, unless they are committed already."""
    if rows.are_none:
        return TaskResult(0)
    topic = rows.first_topic
    name = f"{batch.sink}-{task}"
    with sync.Producer({**FAIL_FAST, **producer_settings, "transactional.id": name}) as producer:
        producer.init_transactions()
        _check_wanted(admin_settings, batch.sink, batch.planned_ms)
        if _marker(admin_settings, name) >= batch.number:
            return TaskResult(rows.drain(), topic)
        return _prepare(producer, name, TopicPartition(topic, 0), batch.number, rows)


def write_task_once(
    producer_settings: Mapping[str, str],
    admin_settings: Mapping[str, str],
    job: str,
    planned_ms: int,
    task: int,
    rows: Rows,
) -> TaskResult:
    """The same for a job that never comes again: nothing to recognise, so no marker."""
    if rows.are_none:
        return TaskResult(0)
    topic = rows.first_topic
    name = f"{job}-{task}"
    with sync.Producer({**FAIL_FAST, **producer_settings, "transactional.id": name}) as producer:
        producer.init_transactions()
        _check_wanted(admin_settings, job, planned_ms)
        return _prepare(producer, name, TopicPartition(topic, 0), None, rows)


def _prepare(producer: Producer, name: str, marked: TopicPartition, batch_number: int | None, rows: Rows) -> TaskResult:
    """Whatever goes wrong in here, the producer aborts the transaction when it is closed: nobody else knows it yet."""
    producer.begin_transaction()
    count = rows.send(producer)
    if batch_number is not None:
        producer.send_offsets({marked: batch_number}, name)
    return TaskResult(count, marked.topic, producer.prepare_transaction())


def commit_batch(admin_settings: Mapping[str, str], batch: Batch, results: Sequence[TaskResult]) -> None:
    """Commits what the tasks have prepared. LayoutChangedError if the batch was begun with other tasks than these."""
    topics = [result.topic for result in results if result.topic is not None]
    if not topics:
        return
    prepared = [result.transaction for result in results if result.transaction is not None]
    admin = admin_for(admin_settings)
    plan = _read_plan(admin, batch.sink)
    if plan is not None:
        _check_plan(plan, batch, len(results))
    if prepared and (plan is None or plan.run != batch.run):
        _check_ownership(admin, prepared)
        # Tasks that the last run had and this one has not: nobody else would end their transactions before their
        # time is up, and readers would wait for that.
        own = {transaction.transactional_id for transaction in prepared}
        _shut_out(admin, lambda name: name not in own and _is_task_of(batch.sink, name), states=["Ongoing"])
    _write_plan(admin, batch.sink, topics[0], Plan(batch.number, len(results), batch.run))
    if prepared:
        commit_prepared(admin, prepared)


def commit_prepared(admin: Admin, prepared: Iterable[PreparedTransaction]) -> None:
    errors = admin.end_transactions(prepared, committed=True).errors
    for name, error in errors.items():
        raise _fenced(name) if error.code in _GONE else error


def _check_ownership(admin: Admin, prepared: Iterable[PreparedTransaction]) -> None:
    """A driver that was believed to be dead, and replaced, must find that out before it clears up after others."""
    by_name = {transaction.transactional_id: transaction for transaction in prepared}
    for name, found in admin.describe_transactions(by_name).results.items():
        if (found.producer_id, found.producer_epoch) != by_name[name][1:]:
            raise _fenced(name)


def _fenced(name: str) -> SinkFencedError:
    return SinkFencedError(
        f"the transaction of {name} cannot be committed, because it was aborted: either the batch took longer than "
        "kafka.transaction.timeout.ms, or this query runs a second time from the same checkpoint"
    )


def abort_batch(admin_settings: Mapping[str, str], sink: str | None, results: Sequence[TaskResult | None]) -> None:
    """Ends what is still open of a batch that has failed. What was ended before stays as it is.

    A task that was stopped has no result, and may have left a transaction open all the same: the last word of its
    worker was not heard. It goes by its name, if the name of the sink is known.
    """
    prepared = [result.transaction for result in results if result is not None and result.transaction is not None]
    unheard = {f"{sink}-{task}" for task, result in enumerate(results) if result is None and sink is not None}
    if not prepared and not unheard:
        return
    admin = admin_for(admin_settings)
    errors = admin.end_transactions(prepared, committed=False).errors
    for name, error in errors.items():
        if error.code not in _GONE:
            log.warning("the transaction of %s is left to its successor or to time: %s", name, error)
    if unheard:
        assert sink is not None
        _note_end(admin, sink)
        # One that has taken over its id and has not written yet would open its transaction after this.
        _shut_out(admin, unheard.__contains__, states=())


def _end_group(sink: str) -> str:
    return f"{sink}-end"


def _note_end(admin: Admin, sink: str) -> None:
    """Tasks that were planned before this moment shall begin no more."""
    try:
        admin.alter_group_offsets(_end_group(sink), {_NOTED_AT: int(time.time() * 1000)}).check()
    except ClientError as e:
        log.warning("tasks of %s that are about to begin cannot be stopped: %s", sink, e)


def _check_wanted(admin_settings: Mapping[str, str], sink: str, planned_ms: int) -> None:
    """SinkFencedError if the batch that was planned then has been given up. After the id is taken over, not before:
    who is not shut out by `abort_batch` sees its note."""
    found = admin_for(admin_settings).list_group_offsets([_end_group(sink)])[_end_group(sink)]
    if _NOTED_AT in found and found[_NOTED_AT].offset >= planned_ms:
        raise SinkFencedError(f"the batch of {sink} was given up before this task of it had begun to write")


def _marker(admin_settings: Mapping[str, str], name: str) -> int:
    """The last batch that a task has committed; -1 if there is none.

    A group has one offset for each topic that the first row of a batch ever went to: the highest is the last.
    """
    offsets = admin_for(admin_settings).list_group_offsets([name], require_stable=True)[name]
    return max((found.offset for found in offsets.values()), default=-1)


def _read_plan(admin: Admin, sink: str) -> Plan | None:
    offsets = admin.list_group_offsets([sink])[sink]
    if not offsets:
        return None
    latest = max(offsets.values(), key=lambda found: found.offset)
    try:
        noted = json.loads(latest.metadata or "")
        return Plan(latest.offset, int(noted["tasks"]), str(noted["run"]))
    except (ValueError, KeyError, TypeError):
        raise SinkFencedError(
            f"the consumer group {sink} is in use by something else than this sink: choose another sinkId"
        ) from None


def _write_plan(admin: Admin, sink: str, topic: str, plan: Plan) -> None:
    metadata = json.dumps({"tasks": plan.task_count, "run": plan.run})
    noted = OffsetAndMetadata(plan.batch_number, metadata=metadata)
    admin.alter_group_offsets(sink, {TopicPartition(topic, 0): noted}).check()


def _check_plan(plan: Plan, batch: Batch, task_count: int) -> None:
    if plan.batch_number > batch.number:
        raise SinkFencedError(
            f"batch {plan.batch_number} of {batch.sink} has been written, and now batch {batch.number} comes: either "
            "this query runs a second time from the same checkpoint, or an older checkpoint was put in its place"
        )
    if plan.batch_number == batch.number and plan.run == batch.run:
        raise SinkFencedError(
            f"batch {batch.number} of {batch.sink} has been written already: each write inside foreachBatch needs a "
            "sinkId of its own"
        )
    if plan.batch_number == batch.number and plan.task_count != task_count:
        raise LayoutChangedError(
            f"batch {batch.number} of {batch.sink} may be committed in part: it had {plan.task_count} tasks then, and "
            f"has {task_count} now, so that nobody can tell which rows are missing. Run the query with the earlier "
            "settings (minPartitions, maxRecordsPerPartition, spark.sql.shuffle.partitions) until this batch is done, "
            "and change them afterwards"
        )


def forget_batches(admin: Admin, sink: str, committed: int, *, keep_plan: bool) -> None:
    """Deletes the groups of a sink that nobody writes to at the moment, unless it has begun to commit a batch after
    `committed`: the markers of such a batch are needed when it comes again."""
    plan = _read_plan(admin, sink)
    if plan is not None and plan.batch_number > committed:
        return
    names = [listed.group_id for listed in admin.list_groups()]
    unneeded = [name for name in names if name == _end_group(sink) or _is_task_of(sink, name)]
    if not keep_plan and sink in names:
        unneeded.append(sink)
    for name, error in (admin.delete_groups(unneeded).errors if unneeded else {}).items():
        log.info("the group %s stays: %s", name, error)


def abort_open(admin: Admin, sink: str) -> None:
    """Ends what a sink that nobody writes to any more has left open: readers would wait for it."""
    _shut_out(admin, lambda name: _is_task_of(sink, name), states=["Ongoing"])


def end_left_over(admin: Admin, sink_id: str) -> None:
    """Aborts what other queries of this sink have left open: nobody goes on from their checkpoints any more. Readers
    would wait for the end of these transactions, and not be shown what was committed after they had begun."""
    task_of_any_query = re.compile(rf"{re.escape(sink_id)}-{_QUERY_ID}-\d+")
    _shut_out(admin, lambda name: task_of_any_query.fullmatch(name) is not None, states=["Ongoing"])


def _shut_out(admin: Admin, is_meant: Callable[[str], bool], *, states: Sequence[str]) -> None:
    """Aborts what is open under the ids that are meant and in one of the states, and shuts out whoever uses them."""
    try:
        listed = admin.list_transactions(states=states)
    except ClientError as e:
        log.warning("open transactions, if there are any, are left to time: %s", e)
        return
    found = [entry.transactional_id for entry in listed if is_meant(entry.transactional_id)]
    for name, error in (admin.fence_producers(found).errors if found else {}).items():
        log.warning("the transaction of %s is left to time: %s", name, error)


def _is_task_of(sink: str, transactional_id: str) -> bool:
    return transactional_id.startswith(f"{sink}-") and transactional_id.removeprefix(f"{sink}-").isdecimal()
