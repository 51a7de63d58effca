"""Deadlines, expiry, timers, and a coordinator that takes over what another one left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.base.errors import DecodeError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.machines.coordinator import ReplayContext
from ottla.machines.transactions.record_types import parse_record
from ottla.machines.transactions.shard import ABORT_TIMER, EXPIRY_TIMER, TransactionConfig
from ottla.machines.transactions.states import State
from ottla.wire.stored.consumer_offsets import OffsetCommitKey
from ottla.wire.stored.transaction_state import TransactionLogKey, TransactionLogValue
from tests.unit.machines.transactions.driver import (
    COORDINATOR_EPOCH,
    NEW_END,
    P0,
    P1,
    TIMEOUT_MS,
    Coordinator,
    granted_to,
    reloaded,
)

NOWHERE = ReplayContext(0, -1, -1, 0)


@pytest.fixture
def c() -> Coordinator:
    return Coordinator()


def test_a_transaction_is_aborted_only_after_its_time(c: Coordinator) -> None:
    producer = c.begin(P0)
    c.pass_time(TIMEOUT_MS)
    c.run(c.shard.abort_timed_out(c.now_ms))
    assert c.state() is State.ONGOING
    c.pass_time(1)
    c.run(c.shard.abort_timed_out(c.now_ms))
    assert c.state() is State.PREPARE_ABORT

    order = c.write_markers()
    assert (order.producer_id, order.producer_epoch, order.commit) == (producer[0], producer[1] + 1, False)
    answer = c.end(producer, commit=True)
    assert answer.error_code is ErrorCode.PRODUCER_FENCED
    assert "ran out of time" in (answer.message or "")


def test_each_transaction_has_its_own_time_out(c: Coordinator) -> None:
    quick = granted_to(c.init("quick", timeout_ms=10))
    slow = granted_to(c.init("slow", timeout_ms=1000))
    c.add(quick, P0, name="quick")
    c.add(slow, P0, name="slow")
    c.pass_time(500)
    c.run(c.shard.abort_timed_out(c.now_ms))
    assert c.state("quick") is State.PREPARE_ABORT
    assert c.state("slow") is State.ONGOING


def test_an_idle_id_expires_and_its_producer_is_told_so() -> None:
    c = Coordinator(TransactionConfig(transactional_id_expiration_ms=5000))
    producer = c.begin(P0)
    c.end(producer, commit=True)
    c.write_markers()
    c.pass_time(4999)
    c.run(c.shard.expire_ids(c.now_ms))
    assert c.state() is State.COMPLETE_COMMIT
    c.pass_time(1)
    c.run(c.shard.expire_ids(c.now_ms))
    assert c.shard.transactions == {}
    assert c.log[-1].encode() == (b"\x00\x00\x00\x01t", None)

    answer = c.add(producer, P0)
    assert answer.error_code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert "expired after 5000 ms" in (answer.message or "")
    fresh = granted_to(c.init())
    assert fresh[0] != producer[0]
    assert fresh[1] == 0


def test_timers_keep_themselves_going(c: Coordinator) -> None:
    c.run(c.shard.loaded(c.now_ms))
    assert c.timers == {ABORT_TIMER: 10_000, EXPIRY_TIMER: 3_600_000}
    c.begin(P0)
    c.timers.clear()
    c.pass_time(TIMEOUT_MS + 1)
    c.run(c.shard.timer_fired(ABORT_TIMER, c.now_ms))
    assert c.state() is State.PREPARE_ABORT
    assert c.timers == {ABORT_TIMER: 0}
    c.run(c.shard.timer_fired(ABORT_TIMER, c.now_ms))
    assert c.timers == {ABORT_TIMER: 10_000}
    c.run(c.shard.timer_fired(EXPIRY_TIMER, c.now_ms))
    assert c.timers == {ABORT_TIMER: 10_000, EXPIRY_TIMER: 3_600_000}
    c.run(c.shard.timer_fired(("somebody else's",), c.now_ms))
    assert c.last_decision.timers == []


@pytest.mark.parametrize("kind", ["abort", "expire"])
def test_what_does_not_fit_one_batch_comes_with_the_next(c: Coordinator, kind: str) -> None:
    name_length = 500
    c.begin(*(TopicPartition("t" * 200, index) for index in range(50)))
    sample = c.transaction()
    for index in range(400):
        name = f"{index:0{name_length}}"
        c.put(replace(sample, transactional_id=name, state=State.ONGOING if kind == "abort" else State.EMPTY))
    c.pass_time(c.shard.config.transactional_id_expiration_ms)
    rounds = 0
    while True:
        decision = c.shard.abort_timed_out(c.now_ms) if kind == "abort" else c.shard.expire_ids(c.now_ms)
        size = sum(len(part) for record in decision.records for part in record.encode() if part is not None)
        assert size < 512 * 1024
        c.run(decision)
        if not decision.records:
            break
        rounds += 1
    assert rounds > 1
    left = {transaction.state for transaction in c.shard.transactions.values()}
    assert left == ({State.PREPARE_ABORT} if kind == "abort" else {State.ONGOING})


# -- loading -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_a_new_coordinator_finishes_what_was_prepared(c: Coordinator, commit: bool) -> None:
    producer = c.begin(P0, P1)
    bumped = granted_to(c.end(producer, commit=commit, version=NEW_END))
    c.orders.clear()
    c.shard = reloaded(c.log)
    c.run(c.shard.loaded(c.now_ms))
    (order,) = c.orders
    assert order[:6] == ("t", *bumped, commit, COORDINATOR_EPOCH + 1, (P0, P1))
    c.write_markers()
    assert c.state() is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)


def test_what_was_prepared_without_partitions_is_complete(c: Coordinator) -> None:
    c.begin(P0)
    c.put(replace(c.transaction(), state=State.PREPARE_COMMIT, partitions=frozenset()))
    c.run(c.shard.loaded(c.now_ms))
    assert c.orders == []
    assert c.state() is State.COMPLETE_COMMIT


def test_a_stored_fence_becomes_an_abort(c: Coordinator) -> None:
    c.begin(P0)
    c.put(replace(c.transaction(), state=State.PREPARE_EPOCH_FENCE))
    c.run(c.shard.loaded(c.now_ms))
    assert c.write_markers().partitions == (P0,)
    assert c.state() is State.COMPLETE_ABORT


def test_open_transactions_stay_open_and_keep_their_start(c: Coordinator) -> None:
    producer = c.begin(P0)
    c.pass_time(TIMEOUT_MS - 5)
    c.shard = reloaded(c.log)
    c.run(c.shard.loaded(c.now_ms))
    assert c.verify(producer, P0) is ErrorCode.NONE
    c.pass_time(6)
    c.run(c.shard.abort_timed_out(c.now_ms))
    assert c.state() is State.PREPARE_ABORT


def test_a_dead_id_is_gone(c: Coordinator) -> None:
    c.init()
    c.put(replace(c.transaction(), state=State.DEAD))
    assert c.shard.transactions == {}


def test_nobody_waits_in_a_shard_that_is_unloaded(c: Coordinator) -> None:
    producer = c.begin(P0)
    assert c.shard.unload() == []
    assert c.add(producer, P0).error_code is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_records_of_another_log_are_a_fault(c: Coordinator) -> None:
    with pytest.raises(TypeError, match="OffsetCommitKey"):
        c.shard.replay(OffsetCommitKey(group="g", topic="t", partition=0), None, NOWHERE)
    with pytest.raises(TypeError, match="TransactionLogKey"):
        c.shard.replay(TransactionLogKey(transactional_id="t"), TransactionLogKey(transactional_id="t"), NOWHERE)


def test_a_status_nobody_knows_is_refused(c: Coordinator) -> None:
    with pytest.raises(DecodeError, match="status 8"):
        c.shard.replay(TransactionLogKey(transactional_id="t"), TransactionLogValue(transaction_status=8), NOWHERE)


def test_keys_of_a_newer_kind_are_left_out_and_broken_ones_are_refused() -> None:
    assert parse_record(b"\x00\x07whatever", b"") is None
    with pytest.raises(DecodeError):
        parse_record(b"\x00\x00\x00\x09t", None)
    with pytest.raises(DecodeError):
        parse_record(b"\x00\x00\x00\x01t", b"\x00\x00\x01")
    with pytest.raises(DecodeError):
        parse_record(b"\x00\x00\x00\x01t", b"\x00\x63" + bytes(60))


def test_what_the_log_says_of_fenced_producers(c: Coordinator) -> None:
    producer_id, epoch = c.begin(P0)
    c.pass_time(TIMEOUT_MS + 1)
    c.run(c.shard.abort_timed_out(c.now_ms))
    assert c.last_decision.notes == [
        f"transactional id t: producer {producer_id} of epoch {epoch} is fenced and its transaction aborted, which was "
        f"open for more than {TIMEOUT_MS} ms"
    ]
    c.write_markers()
    c.init()
    assert c.last_decision.notes == [
        f"transactional id t: a new producer takes over from producer {producer_id} of epoch {epoch + 1}; producers "
        "before it are fenced"
    ]
    c.init(name="another")
    assert c.last_decision.notes == []


def test_an_id_that_expires_leaves_nothing_behind() -> None:
    c = Coordinator(TransactionConfig(transactional_id_expiration_ms=5000))
    granted_to(c.init("t", granted_to(c.init())))
    assert set(c.shard._exchanges) == {"t"}
    c.pass_time(5000)
    c.run(c.shard.expire_ids(c.now_ms))
    assert (c.shard.transactions, c.shard._exchanges, c.shard._orders) == ({}, {}, {})


def test_a_shard_that_is_unloaded_keeps_nothing() -> None:
    c = Coordinator()
    producer = granted_to(c.init("t", granted_to(c.init())))
    c.add(producer, P0)
    c.end(producer, commit=True)
    assert set(c.shard.transactions) == set(c.shard._exchanges) == set(c.shard._orders) == {"t"}
    assert c.shard.unload() == []
    assert (c.shard.transactions, c.shard._exchanges, c.shard._orders) == ({}, {}, {})
