"""Adding to and ending transactions, with and without a new epoch each time, and what late requests can do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.base.errors import ErrorCode
from ottla.machines.transactions.states import State
from ottla.machines.transactions.transaction import LAST_CLIENT_EPOCH, MAX_EPOCH, Producer
from tests.unit.machines.transactions.driver import (
    COORDINATOR_EPOCH,
    NEW_END,
    OFFSETS,
    P0,
    P1,
    P2,
    START_MS,
    Coordinator,
    granted_to,
    reloaded,
)

NONE = ErrorCode.NONE
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
WRONG_STATE = ErrorCode.INVALID_TXN_STATE
NO_MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.fixture
def c() -> Coordinator:
    return Coordinator()


# -- partitions --------------------------------------------------------------------------------------------------------


def test_the_first_partition_starts_the_clock_and_later_ones_do_not(c: Coordinator) -> None:
    producer = c.begin(P0)
    c.pass_time(50)
    assert c.add(producer, P0, P1).error_code is NONE
    assert c.add_offsets(producer).error_code is NONE
    assert c.transaction().partitions == {P0, P1, OFFSETS}
    assert (c.transaction().started_ms, c.transaction().updated_ms) == (START_MS, START_MS + 50)


def test_what_is_in_the_transaction_already_is_not_written_again(c: Coordinator) -> None:
    producer = c.begin(P0, P1)
    written = len(c.log)
    assert c.add(producer, P1).error_code is NONE
    assert c.add(producer).error_code is NONE
    assert len(c.log) == written


def test_adding_nothing_begins_nothing(c: Coordinator) -> None:
    producer = granted_to(c.init())
    assert c.add(producer).error_code is NONE
    assert c.state() is State.EMPTY


@pytest.mark.parametrize(("version", "code"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, FENCED)])
def test_old_clients_get_the_code_they_know(c: Coordinator, version: int, code: ErrorCode) -> None:
    producer_id, epoch = c.begin(P0)
    late = (producer_id, epoch - 1)
    assert c.add(late, P1, version=version).error_code is code
    assert c.add_offsets(late, version=version).error_code is code
    assert c.end(late, commit=True, version=version).error_code is code


def test_an_unknown_id_says_what_may_have_happened_and_what_to_do(c: Coordinator) -> None:
    for answer in (c.add((1, 0), P0), c.add_offsets((1, 0)), c.end((1, 0), commit=True)):
        assert answer.error_code is NO_MAPPING
        assert "transactional.id.expiration.ms" in (answer.message or "")
        assert "a new one" in (answer.message or "")
    assert c.verify((1, 0)) is NO_MAPPING


def test_another_producer_id_does_not_belong_to_the_transactional_id(c: Coordinator) -> None:
    producer_id, epoch = c.begin(P0)
    stranger = (producer_id + 1, epoch)
    assert c.add(stranger, P1).error_code is NO_MAPPING
    assert c.end(stranger, commit=True).error_code is NO_MAPPING
    assert c.end(stranger, commit=True, version=NEW_END).error_code is NO_MAPPING
    assert c.verify(stranger) is NO_MAPPING


# -- ends that keep the epoch ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_markers_go_to_every_partition_that_was_added(c: Coordinator, commit: bool) -> None:
    producer = c.begin(P1, P0)
    c.add_offsets(producer)
    answer = c.end(producer, commit=commit)
    assert answer.error_code is NONE
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
    assert c.end(producer, commit=commit).error_code is BUSY

    order = c.write_markers()
    assert order[:6] == ("t", *producer, commit, COORDINATOR_EPOCH, (OFFSETS, P0, P1))
    assert c.state() is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
    assert c.transaction().partitions == frozenset()
    assert c.end(producer, commit=commit).error_code is NONE
    assert c.end(producer, commit=not commit).error_code is WRONG_STATE


def test_the_next_transaction_owes_nothing_to_the_last(c: Coordinator) -> None:
    producer = c.begin(P0)
    c.end(producer, commit=True)
    c.write_markers()
    c.pass_time(10)
    c.add(producer, P1)
    assert c.transaction().started_ms == START_MS + 10
    c.end(producer, commit=False)
    assert c.write_markers().partitions == (P1,)


def test_a_report_of_old_markers_does_not_complete_the_next_transaction(c: Coordinator) -> None:
    producer = c.begin(P0)
    c.end(producer, commit=True)
    old = c.write_markers()
    c.add(producer, P1)
    c.end(producer, commit=False)
    c.report(old)
    assert c.state() is State.PREPARE_ABORT
    c.write_markers()
    assert c.state() is State.COMPLETE_ABORT


# -- ends that raise the epoch (KIP-890, part 2) -----------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_every_end_raises_the_epoch_and_the_markers_carry_it(c: Coordinator, commit: bool) -> None:
    producer = c.begin(P0)
    bumped = granted_to(c.end(producer, commit=commit, version=NEW_END))
    assert bumped == (producer[0], producer[1] + 1)
    assert c.write_markers().producer_epoch == bumped[1]
    assert c.add(producer, P0, version=5).error_code is FENCED
    assert c.add(bumped, P0, version=5).error_code is NONE


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_that_is_asked_for_again_is_recognised(c: Coordinator, commit: bool) -> None:
    producer = c.begin(P0)
    bumped = granted_to(c.end(producer, commit=commit, version=NEW_END))
    assert c.end(producer, commit=commit, version=NEW_END).error_code is BUSY
    assert c.end(producer, commit=not commit, version=NEW_END).error_code is WRONG_STATE
    c.write_markers()
    assert granted_to(c.end(producer, commit=commit, version=NEW_END)) == bumped
    assert c.end(producer, commit=not commit, version=NEW_END).error_code is WRONG_STATE
    assert c.producer() == bumped


def test_it_is_recognised_after_a_reload_too(c: Coordinator) -> None:
    producer = c.begin(P0)
    bumped = granted_to(c.end(producer, commit=True, version=NEW_END))
    c.shard = reloaded(c.log)
    assert c.end(producer, commit=True, version=NEW_END).error_code is BUSY
    c.orders.clear()
    c.run(c.shard.loaded(c.now_ms))
    c.write_markers()
    c.shard = reloaded(c.log)
    assert granted_to(c.end(producer, commit=True, version=NEW_END)) == bumped


def test_an_abort_with_nothing_added_still_raises_the_epoch(c: Coordinator) -> None:
    producer = granted_to(c.init())
    bumped = granted_to(c.end(producer, commit=False, version=NEW_END))
    assert bumped[1] == producer[1] + 1
    assert c.orders == []
    assert c.state() is State.COMPLETE_ABORT
    assert granted_to(c.end(producer, commit=False, version=NEW_END)) == bumped
    again = granted_to(c.end(bumped, commit=False, version=NEW_END))
    assert again[1] == bumped[1] + 1
    assert c.end(again, commit=True, version=NEW_END).error_code is WRONG_STATE


def test_the_producer_whose_transaction_ran_out_of_time_is_not_taken_for_one_that_asks_again(c: Coordinator) -> None:
    producer = c.begin(P0)
    c.pass_time(10**6)
    c.run(c.shard.abort_timed_out(c.now_ms))
    c.write_markers()
    for commit in (True, False):
        assert c.end(producer, commit=commit, version=NEW_END).error_code is FENCED


def at_last_epoch(c: Coordinator) -> tuple[int, int]:
    c.begin(P0)
    open_now = c.transaction()
    c.put(replace(open_now, producer=Producer(open_now.producer.producer_id, LAST_CLIENT_EPOCH)))
    return c.producer()


def test_when_the_epochs_run_out_the_producer_id_changes_with_the_markers(c: Coordinator) -> None:
    old = at_last_epoch(c)
    assert c.shard.needs_producer_id("t")
    fresh = granted_to(c.end(old, commit=True, version=NEW_END))
    assert fresh[0] != old[0]
    assert fresh[1] == 0
    assert c.producer() == (old[0], MAX_EPOCH)
    assert not c.shard.needs_producer_id("t")
    assert c.end(old, commit=True, version=NEW_END).error_code is BUSY

    order = c.write_markers()
    assert (order.producer_id, order.producer_epoch) == (old[0], MAX_EPOCH)
    assert c.producer() == fresh
    assert c.transaction().previous_producer_id == old[0]
    assert granted_to(c.end(old, commit=True, version=NEW_END)) == fresh
    assert c.end(old, commit=False, version=NEW_END).error_code is WRONG_STATE
    assert c.init(producer=old).error_code is NONE
    assert c.add(fresh, P1, version=5).error_code is NONE
    assert c.end(old, commit=True, version=NEW_END).error_code is NO_MAPPING


def test_without_a_new_producer_id_at_hand_the_client_is_told_to_try_again(c: Coordinator) -> None:
    old = at_last_epoch(c)
    answer = c.end(old, commit=True, version=NEW_END, offer_producer_id=False)
    assert answer.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert c.state() is State.ONGOING
    assert c.end(old, commit=True, version=NEW_END).error_code is NONE


def test_no_new_producer_id_is_needed_before_the_epochs_run_out(c: Coordinator) -> None:
    producer = c.begin(P0)
    assert not c.shard.needs_producer_id("t")
    assert not c.shard.needs_producer_id("unknown")
    bumped = granted_to(c.end(producer, commit=True, version=NEW_END, offer_producer_id=False))
    assert bumped == (producer[0], producer[1] + 1)


# -- what comes late ---------------------------------------------------------------------------------------------------


def test_a_late_produce_of_an_aborted_transaction_is_not_let_into_the_next(c: Coordinator) -> None:
    producer = c.begin(P0)
    assert c.verify(producer, P0) is NONE
    c.end(producer, commit=False)
    assert c.verify(producer, P0) is BUSY
    c.write_markers()
    assert c.verify(producer, P0) is ErrorCode.TRANSACTION_ABORTABLE
    c.add(producer, P1)
    assert c.verify(producer, P0) is ErrorCode.TRANSACTION_ABORTABLE
    assert c.verify(producer, P1) is NONE


def test_with_raised_epochs_it_is_fenced_even_for_a_partition_of_the_next(c: Coordinator) -> None:
    producer = c.begin(P0)
    bumped = granted_to(c.end(producer, commit=False, version=NEW_END))
    c.write_markers()
    c.add(bumped, P0, version=5)
    assert c.verify(producer, P0) is FENCED
    assert c.verify(bumped, P0) is NONE


@pytest.mark.parametrize("late_commit", [True, False])
def test_a_late_duplicate_of_an_end_never_ends_a_later_transaction(c: Coordinator, late_commit: bool) -> None:
    producer = c.begin(P0)
    bumped = granted_to(c.end(producer, commit=True, version=NEW_END))
    c.write_markers()
    c.add(bumped, P1, version=5)
    before = c.transaction()
    assert c.end(producer, commit=late_commit, version=NEW_END).error_code is FENCED
    assert c.transaction() == before
    assert c.orders == []


def test_a_write_to_a_partition_that_was_never_added_is_not_let_in(c: Coordinator) -> None:
    producer = granted_to(c.init())
    assert c.verify(producer, P0) is ErrorCode.TRANSACTION_ABORTABLE
    c.add(producer, P1)
    codes = c.shard.verify_partitions("t", *producer, [P0, P1, P2])
    assert codes == {P0: ErrorCode.TRANSACTION_ABORTABLE, P1: NONE, P2: ErrorCode.TRANSACTION_ABORTABLE}


def test_a_verification_changes_nothing(c: Coordinator) -> None:
    producer = c.begin(P0)
    before = c.transaction()
    written = len(c.log)
    for who in (producer, (producer[0], 9), (1, 1)):
        c.verify(who, P2)
    assert c.transaction() == before
    assert len(c.log) == written
