"""InitProducerId: who gets which producer id and epoch, who is recognised (KIP-360) and who is shut out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.base.errors import ErrorCode
from ottla.machines.transactions.shard import TransactionConfig
from ottla.machines.transactions.states import State
from ottla.machines.transactions.transaction import LAST_CLIENT_EPOCH, MAX_EPOCH, Producer
from ottla.wire.apis.init_producer_id import InitProducerIdRequest
from tests.unit.machines.transactions.driver import NEW_END, P0, TIMEOUT_MS, Coordinator, granted_to, reloaded

FENCED = ErrorCode.PRODUCER_FENCED
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.fixture
def c() -> Coordinator:
    return Coordinator()


def with_epoch(c: Coordinator, epoch: int) -> tuple[int, int]:
    """An idle id whose producer has come to this epoch."""
    c.init()
    idle = c.transaction()
    c.put(replace(idle, producer=Producer(idle.producer.producer_id, epoch)))
    return c.producer()


def test_a_new_id_begins_at_epoch_0(c: Coordinator) -> None:
    assert granted_to(c.init("a")) == (1001, 0)
    assert granted_to(c.init("b")) == (1002, 0)
    assert c.state("a") is State.EMPTY


def test_each_new_producer_takes_the_next_epoch_and_fences_the_last(c: Coordinator) -> None:
    first = granted_to(c.init())
    second = granted_to(c.init())
    assert second == (first[0], first[1] + 1)
    assert c.add(first, P0).error_code is FENCED
    assert c.add(second, P0).error_code is ErrorCode.NONE


def test_without_a_transactional_id_there_is_nothing_to_keep(c: Coordinator) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-5)
    decision = c.shard.init_producer_id(request, "token", version=5, now_ms=c.now_ms, new_producer_id=77)
    assert decision.records == []
    assert granted_to(decision.effects[0].response) == (77, 0)


def test_an_empty_id_is_refused(c: Coordinator) -> None:
    assert c.init("").error_code is ErrorCode.INVALID_REQUEST
    assert c.add((1, 0), P0, name="").error_code is ErrorCode.INVALID_REQUEST
    assert c.end((1, 0), commit=True, name="").error_code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("timeout_ms", [0, -1, 901])
def test_time_outs_outside_the_limits_are_refused(timeout_ms: int) -> None:
    c = Coordinator(TransactionConfig(max_timeout_ms=900))
    answer = c.init(timeout_ms=timeout_ms)
    assert answer.error_code is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert "transaction.max.timeout.ms" in (answer.message or "")
    assert c.log == []
    assert c.init(timeout_ms=900).error_code is ErrorCode.NONE


@pytest.mark.parametrize("producer", [(5, -1), (-1, 5), (-2, -2)])
def test_half_a_producer_is_refused(c: Coordinator, producer: tuple[int, int]) -> None:
    assert c.init(producer=producer).error_code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("version", "code"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, FENCED)])
def test_old_clients_get_the_code_they_know(c: Coordinator, version: int, code: ErrorCode) -> None:
    c.init()
    c.init()
    assert c.init(producer=(1001, 0), version=version).error_code is code


def test_an_open_transaction_is_aborted_first(c: Coordinator) -> None:
    old = c.begin(P0)
    assert c.init().error_code is BUSY
    assert c.state() is State.PREPARE_ABORT
    assert c.end(old, commit=True).error_code is FENCED
    assert c.init().error_code is BUSY

    order = c.write_markers()
    assert (order.producer_id, order.producer_epoch, order.commit, order.partitions) == (
        old[0],
        old[1] + 1,
        False,
        (P0,),
    )
    assert granted_to(c.init()) == (old[0], old[1] + 2)


# -- KIP-360: a producer goes on after an error -----------------------------------------------------------------------


def test_a_producer_recovers_with_a_new_epoch(c: Coordinator) -> None:
    producer = granted_to(c.init())
    assert granted_to(c.init(producer=producer)) == (producer[0], producer[1] + 1)


def test_asking_again_after_a_lost_answer_gives_the_same_epoch(c: Coordinator) -> None:
    producer = granted_to(c.init())
    recovered = granted_to(c.init(producer=producer))
    assert granted_to(c.init(producer=producer)) == recovered
    assert granted_to(c.init(producer=producer)) == recovered
    assert c.add(recovered, P0).error_code is ErrorCode.NONE


def test_a_replaced_producer_cannot_recover(c: Coordinator) -> None:
    zombie = granted_to(c.init())
    granted_to(c.init())
    assert c.init(producer=zombie).error_code is FENCED


def test_a_producer_that_recovered_and_was_then_replaced_cannot_ask_again(c: Coordinator) -> None:
    producer = granted_to(c.init())
    recovered = granted_to(c.init(producer=producer))
    granted_to(c.init())
    assert c.init(producer=producer).error_code is FENCED
    assert c.init(producer=recovered).error_code is FENCED


def test_another_producer_id_or_an_epoch_of_the_future_is_fenced(c: Coordinator) -> None:
    producer_id, epoch = granted_to(c.init())
    assert c.init(producer=(producer_id + 500, epoch)).error_code is FENCED
    assert c.init(producer=(producer_id, epoch + 1)).error_code is FENCED


def test_recovery_in_the_middle_of_a_transaction_aborts_it_and_goes_on(c: Coordinator) -> None:
    producer = c.begin(P0)
    assert c.init(producer=producer).error_code is BUSY
    assert c.init(producer=producer).error_code is BUSY
    assert not c.write_markers().commit
    recovered = granted_to(c.init(producer=producer))
    assert recovered == (producer[0], producer[1] + 1)
    assert c.add(recovered, P0).error_code is ErrorCode.NONE


def test_a_late_duplicate_does_not_abort_what_was_begun_since(c: Coordinator) -> None:
    producer = granted_to(c.init())
    recovered = granted_to(c.init(producer=producer))
    c.add(recovered, P0)
    before = c.transaction()
    assert c.init(producer=producer).error_code is FENCED
    assert c.transaction() == before
    assert c.end(recovered, commit=True).error_code is ErrorCode.NONE


def test_an_id_that_is_not_known_begins_anew_whoever_asks(c: Coordinator) -> None:
    assert granted_to(c.init(producer=(55, 3))) == (1001, 0)


def test_a_transaction_that_ran_out_of_time_cannot_be_recovered(c: Coordinator) -> None:
    producer = c.begin(P0)
    c.pass_time(TIMEOUT_MS + 1)
    c.run(c.shard.abort_timed_out(c.now_ms))
    c.write_markers()
    assert c.init(producer=producer).error_code is FENCED


def test_after_an_end_that_raised_the_epoch_either_epoch_may_recover(c: Coordinator) -> None:
    producer = c.begin(P0)
    bumped = granted_to(c.end(producer, commit=True, version=NEW_END))
    assert c.init(producer=producer).error_code is BUSY
    c.write_markers()
    assert granted_to(c.init(producer=producer)) == bumped
    assert granted_to(c.init(producer=bumped)) == (bumped[0], bumped[1] + 1)
    assert c.init(producer=(producer[0], 7)).error_code is FENCED


# -- epochs run out ----------------------------------------------------------------------------------------------------


def test_the_last_epoch_is_given_out_and_then_the_producer_id_changes(c: Coordinator) -> None:
    producer_id, _ = with_epoch(c, LAST_CLIENT_EPOCH - 1)
    assert LAST_CLIENT_EPOCH == 32766
    assert granted_to(c.init()) == (producer_id, LAST_CLIENT_EPOCH)
    fresh = granted_to(c.init())
    assert fresh[0] != producer_id
    assert fresh[1] == 0
    assert c.transaction().previous_producer_id == producer_id
    assert c.add((producer_id, LAST_CLIENT_EPOCH), P0).error_code is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_recovery_from_the_last_epoch_gives_a_new_id_and_can_be_asked_for_again(c: Coordinator) -> None:
    producer = with_epoch(c, LAST_CLIENT_EPOCH)
    fresh = granted_to(c.init(producer=producer))
    assert fresh[0] != producer[0]
    assert fresh[1] == 0
    assert granted_to(c.init(producer=producer)) == fresh


def test_recovery_into_the_last_epoch_can_be_asked_for_again(c: Coordinator) -> None:
    producer = with_epoch(c, LAST_CLIENT_EPOCH - 1)
    last = granted_to(c.init(producer=producer))
    assert last == (producer[0], LAST_CLIENT_EPOCH)
    assert granted_to(c.init(producer=producer)) == last


def test_a_zombie_of_the_old_id_cannot_recover_after_a_change_it_did_not_ask_for(c: Coordinator) -> None:
    zombie = with_epoch(c, LAST_CLIENT_EPOCH)
    granted_to(c.init())
    assert c.init(producer=zombie).error_code is FENCED


def test_a_transaction_of_the_last_epoch_can_still_be_fenced(c: Coordinator) -> None:
    producer = with_epoch(c, LAST_CLIENT_EPOCH)
    c.add(producer, P0)
    assert c.init(producer=producer).error_code is BUSY
    assert c.write_markers().producer_epoch == MAX_EPOCH
    fresh = granted_to(c.init(producer=producer))
    assert fresh[0] != producer[0]
    assert fresh[1] == 0
    assert granted_to(c.init(producer=producer)) == fresh


def test_after_a_reload_a_client_that_asks_again_is_fenced_and_the_current_one_is_not(c: Coordinator) -> None:
    producer = granted_to(c.init())
    recovered = granted_to(c.init(producer=producer))
    c.shard = reloaded(c.log)
    assert c.init(producer=producer).error_code is FENCED
    assert granted_to(c.init(producer=recovered)) == (recovered[0], recovered[1] + 1)
