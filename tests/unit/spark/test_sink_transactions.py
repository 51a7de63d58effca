"""What the driver makes of the answers to its commits, aborts and questions, broker by broker error."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.admin.outcomes import Outcomes, admin_error
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.client.core.producer.transaction import PreparedTransaction
from ottla.client.errors import ClientError
from ottla.spark import sink_transactions
from ottla.spark.sink_transactions import (
    Batch,
    LayoutChangedError,
    SinkFencedError,
    TaskResult,
    abort_batch,
    commit_batch,
    commit_prepared,
    end_left_over,
)
from tests.log_lines import lines_of

GONE = [
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
]
"""What a broker says of a transaction that somebody else, or time, has ended."""
TROUBLE = [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
BATCH = Batch("sink", "run-1", 7, planned_ms=1000)


class Described:
    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch


class Listed:
    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id


class ScriptedAdmin:
    """Answers as it is told, and notes what it was asked for."""

    def __init__(self) -> None:
        self.offsets: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        self.end_errors: dict[str, ErrorCode] = {}
        self.described: dict[str, Described] = {}
        self.listed: list[str] | ErrorCode = []
        self.fence_errors: dict[str, ErrorCode] = {}
        self.asked: list[tuple[Any, ...]] = []

    def end_transactions(self, prepared: Iterable[PreparedTransaction], *, committed: bool) -> Outcomes[str, None]:
        names = [transaction.transactional_id for transaction in prepared]
        self.asked.append(("end", names, committed))
        return outcomes(names, self.end_errors)

    def describe_transactions(self, names: Iterable[str]) -> Outcomes[str, Any]:
        return Outcomes({name: self.described[name] for name in names if name in self.described}, what="describe")

    def list_transactions(self, *, states: Sequence[str]) -> list[Listed]:
        if isinstance(self.listed, ErrorCode):
            raise admin_error(self.listed)
        self.asked.append(("list", tuple(states)))
        return [Listed(name) for name in self.listed]

    def fence_producers(self, names: Sequence[str]) -> Outcomes[str, None]:
        self.asked.append(("fence", list(names)))
        return outcomes(names, self.fence_errors)

    def list_group_offsets(self, groups: Sequence[str]) -> Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]:
        return {group: self.offsets.get(group, {}) for group in groups}

    def alter_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> Outcomes[TopicPartition, None]:
        self.asked.append(("note", group))
        for partition, offset in offsets.items():
            noted = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
            self.offsets.setdefault(group, {})[partition] = noted
        return outcomes(offsets, {})

    def plan(self, number: int, tasks: int, run: str) -> None:
        metadata = json.dumps({"tasks": tasks, "run": run})
        self.offsets["sink"] = {TopicPartition("t", 0): OffsetAndMetadata(number, metadata=metadata)}


def outcomes(names: Iterable[Any], errors: Mapping[Any, ErrorCode]) -> Outcomes[Any, None]:
    settled = {name: admin_error(errors[name]) if name in errors else None for name in names}
    return Outcomes(settled, what="a call")


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> ScriptedAdmin:
    made = ScriptedAdmin()
    monkeypatch.setattr(sink_transactions, "admin_for", lambda settings: made)
    return made


def prepared(task: int, producer_id: int = 1, epoch: int = 0) -> PreparedTransaction:
    return PreparedTransaction(f"sink-{task}", producer_id, epoch)


def results(*tasks: int) -> list[TaskResult]:
    return [TaskResult(1, "t", prepared(task)) for task in tasks]


def own_transactions(admin: ScriptedAdmin, *tasks: int) -> None:
    admin.described = {f"sink-{task}": Described(1, 0) for task in tasks}


# Committing


@pytest.mark.parametrize("code", GONE)
def test_a_transaction_that_somebody_else_has_ended_fences_the_sink(admin: ScriptedAdmin, code: ErrorCode) -> None:
    admin.end_errors = {"sink-1": code}
    with pytest.raises(SinkFencedError, match=r"sink-1 cannot be committed.*transaction\.timeout\.ms"):
        commit_prepared(admin, [prepared(0), prepared(1)])  # type: ignore[arg-type]


@pytest.mark.parametrize("code", TROUBLE)
def test_any_other_refusal_is_what_it_is(admin: ScriptedAdmin, code: ErrorCode) -> None:
    admin.end_errors = {"sink-0": code}
    with pytest.raises(ClientError) as raised:
        commit_prepared(admin, [prepared(0)])  # type: ignore[arg-type]
    assert raised.value.code is code


def test_the_plan_is_noted_before_anything_is_committed(admin: ScriptedAdmin) -> None:
    own_transactions(admin, 0, 1)
    commit_batch({}, BATCH, results(0, 1))
    assert admin.asked == [("list", ("Ongoing",)), ("note", "sink"), ("end", ["sink-0", "sink-1"], True)]
    noted = admin.offsets["sink"][TopicPartition("t", 0)]
    assert noted.offset == 7 and json.loads(noted.metadata) == {"tasks": 2, "run": "run-1"}


def test_a_batch_without_rows_asks_nobody(admin: ScriptedAdmin) -> None:
    commit_batch({}, BATCH, [TaskResult(0), TaskResult(0)])
    assert admin.asked == []


def test_a_batch_that_was_committed_before_is_only_noted(admin: ScriptedAdmin) -> None:
    commit_batch({}, BATCH, [TaskResult(3, "t")])
    assert admin.asked == [("note", "sink")]


def test_a_driver_that_was_replaced_clears_up_after_nobody(admin: ScriptedAdmin) -> None:
    admin.described = {"sink-0": Described(1, 5)}
    admin.listed = ["sink-4"]
    with pytest.raises(SinkFencedError, match="sink-0"):
        commit_batch({}, BATCH, results(0))
    assert admin.asked == []


def test_tasks_that_only_the_last_run_had_are_shut_out(admin: ScriptedAdmin) -> None:
    own_transactions(admin, 0)
    admin.plan(6, 3, "run-0")
    admin.listed = ["sink-0", "sink-1", "sink-2", "sink-x", "sinks-1", "other-1"]
    commit_batch({}, BATCH, results(0))
    assert ("fence", ["sink-1", "sink-2"]) in admin.asked


def test_the_same_run_looks_for_leftovers_once(admin: ScriptedAdmin) -> None:
    admin.plan(6, 1, "run-1")
    commit_batch({}, BATCH, results(0))
    assert [name for name, *_ in admin.asked] == ["note", "end"]


@pytest.mark.parametrize(
    ("noted", "error", "told"),
    [
        ((8, 1, "run-0"), SinkFencedError, "batch 8 of sink has been written, and now batch 7 comes"),
        ((7, 1, "run-1"), SinkFencedError, "has been written already"),
        ((7, 2, "run-0"), LayoutChangedError, "had 2 tasks then, and has 1 now"),
    ],
)
def test_a_batch_that_does_not_follow_the_plan(
    admin: ScriptedAdmin, noted: tuple[int, int, str], error: type[Exception], told: str
) -> None:
    admin.plan(*noted)
    with pytest.raises(error, match=told):
        commit_batch({}, BATCH, results(0))
    assert admin.asked == []


def test_a_batch_that_comes_again_with_the_same_tasks_is_committed(admin: ScriptedAdmin) -> None:
    own_transactions(admin, 0)
    admin.plan(7, 1, "run-0")
    commit_batch({}, BATCH, results(0))
    assert admin.asked[-1] == ("end", ["sink-0"], True)


def test_a_group_of_somebody_else_is_left_alone(admin: ScriptedAdmin) -> None:
    admin.offsets["sink"] = {TopicPartition("t", 0): OffsetAndMetadata(3, metadata="mine")}
    with pytest.raises(SinkFencedError, match="choose another sinkId"):
        commit_batch({}, BATCH, results(0))


class Asked:
    """An admin client that answers with these offsets of any group, and notes how it was asked."""

    def __init__(self, *offsets: int) -> None:
        self._offsets = offsets
        self.asked: list[tuple[object, ...]] = []

    def list_group_offsets(self, groups: Sequence[str], **how: bool) -> dict[str, dict[TopicPartition, Any]]:
        self.asked.append((*groups, how))
        return {group: {TopicPartition(f"t{at}", 0): OffsetAndMetadata(at) for at in self._offsets} for group in groups}


@pytest.mark.parametrize(("offsets", "marker"), [((), -1), ((0,), 0), ((3, 9, 5), 9)])
def test_the_marker_of_a_task_is_read_once_its_transactions_are_over(
    monkeypatch: pytest.MonkeyPatch, offsets: tuple[int, ...], marker: int
) -> None:
    admin = Asked(*offsets)
    monkeypatch.setattr(sink_transactions, "admin_for", lambda settings: admin)
    assert sink_transactions._marker({}, "sink-3") == marker
    assert admin.asked == [("sink-3", {"require_stable": True})]


def test_the_latest_plan_is_the_one_that_counts(admin: ScriptedAdmin) -> None:
    """A group has one for each topic that the first row of a batch ever went to."""
    for topic, number in (("a", 3), ("b", 9), ("c", 5)):
        metadata = json.dumps({"tasks": 1, "run": "run-0"})
        admin.offsets.setdefault("sink", {})[TopicPartition(topic, 0)] = OffsetAndMetadata(number, metadata=metadata)
    with pytest.raises(SinkFencedError, match="batch 9 of sink has been written, and now batch 7 comes"):
        commit_batch({}, BATCH, results(0))


@pytest.mark.parametrize(
    "metadata", ["", "mine", "[]", "5", "{}", '{"tasks": 1}', '{"run": "r"}', '{"tasks": "x", "run": "r"}']
)
def test_what_is_no_plan(admin: ScriptedAdmin, metadata: str) -> None:
    admin.offsets["sink"] = {TopicPartition("t", 0): OffsetAndMetadata(3, metadata=metadata)}
    with pytest.raises(SinkFencedError, match="the consumer group sink is in use by something else than this sink"):
        commit_batch({}, BATCH, results(0))
    assert admin.asked == []


@pytest.mark.parametrize(("producer_id", "epoch"), [(1, 1), (2, 0)])
def test_another_producer_or_epoch_is_another_owner(admin: ScriptedAdmin, producer_id: int, epoch: int) -> None:
    admin.described = {"sink-0": Described(1, 0), "sink-1": Described(producer_id, epoch)}
    with pytest.raises(SinkFencedError, match="the transaction of sink-1 cannot be committed"):
        commit_batch({}, BATCH, results(0, 1))
    assert admin.asked == []


# Giving up


@pytest.mark.parametrize("code", GONE)
def test_what_was_ended_before_needs_no_word(
    admin: ScriptedAdmin, code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    admin.end_errors = {"sink-0": code}
    abort_batch({}, "sink", results(0))
    assert admin.asked == [("end", ["sink-0"], False)]
    assert lines_of(caplog, sink_transactions.__name__) == []


@pytest.mark.parametrize("code", TROUBLE)
def test_what_could_not_be_aborted_is_told(
    admin: ScriptedAdmin, code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    admin.end_errors = {"sink-0": code}
    abort_batch({}, "sink", results(0, 1))
    assert [record.levelno for record in lines_of(caplog, sink_transactions.__name__)] == [logging.WARNING]
    assert "the transaction of sink-0 is left to its successor or to time" in caplog.text


def test_tasks_without_a_result_are_noted_and_then_shut_out(admin: ScriptedAdmin) -> None:
    admin.listed = ["sink-0", "sink-1", "sink-2"]
    abort_batch({}, "sink", [results(0)[0], None, None])
    assert admin.asked == [
        ("end", ["sink-0"], False),
        ("note", "sink-end"),
        ("list", ()),
        ("fence", ["sink-1", "sink-2"]),
    ]


def test_tasks_of_a_sink_without_a_name_are_left_to_time(admin: ScriptedAdmin) -> None:
    abort_batch({}, None, [None, TaskResult(0)])
    assert admin.asked == []


def test_that_nobody_can_be_shut_out_is_told(admin: ScriptedAdmin, caplog: pytest.LogCaptureFixture) -> None:
    admin.listed = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    abort_batch({}, "sink", [None])
    assert "are left to time" in caplog.text
    caplog.clear()
    admin.listed = ["sink-0"]
    admin.fence_errors = {"sink-0": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    abort_batch({}, "sink", [None])
    assert "the transaction of sink-0 is left to time" in caplog.text


def test_what_a_query_with_a_lost_checkpoint_has_left_open_is_ended(admin: ScriptedAdmin) -> None:
    lost, other = "0f8fad5b-d9cb-469f-a165-70867728950e", "7c9e6679-7425-40de-944b-e07fc1f90ae7"
    left = [f"shop-totals-{lost}-0", f"shop-totals-{other}-12"]
    admin.listed = [*left, f"shop-{lost}-0", f"shop-totals-{lost}", "shop-totals-0", f"my-shop-totals-{lost}-0"]
    end_left_over(admin, "shop-totals")  # type: ignore[arg-type]
    assert admin.asked == [("list", ("Ongoing",)), ("fence", left)]
