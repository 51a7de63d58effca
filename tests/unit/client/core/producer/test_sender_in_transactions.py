"""What a sender does with batches of a transaction: which may go out, and what is told of those that fail."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.producer.batch import Batch
from ottla.client.core.producer.batch_sender import BatchSender
from ottla.client.core.producer.results import PartitionResult
from ottla.client.errors import (
    ClientError,
    DeliveryTimeoutError,
    ProducerFencedError,
    TransactionAbortedError,
)
from tests.unit.client.core.producer.model_broker import TOPIC, World
from tests.unit.client.core.producer.test_batch_sender import filled

PLACE = TopicPartition(TOPIC, 0)


class Transaction(World):
    """One that notes which partitions were asked about and which errors it was told."""

    def __init__(self, partitions: int = 1, **settings: Any) -> None:
        super().__init__(partitions, **{"batch.size": 0, "linger.ms": 0, "transactional.id": "x", **settings})
        self.added = {TopicPartition(TOPIC, number) for number in range(partitions)}
        self.asked: list[TopicPartition] = []
        self.told: list[ClientError] = []
        self.sender = BatchSender(
            self.settings,
            self.accumulator,
            self.metadata,
            may_write=self.may_write,
            on_transaction_error=self.told.append,
        )
        self.sender.set_producer(7, 0)

    def may_write(self, place: TopicPartition) -> bool:
        self.asked.append(place)
        return place in self.added

    def batches(self) -> list[Batch]:
        return [batch for batch, _, _ in self.receipts]


def begun(count: int = 0) -> Transaction:
    """The first record is stored, and so many wait for their answers."""
    world = Transaction()
    world.send()
    world.pump()
    world.handle(0)
    world.reply(0)
    for _ in range(count):
        world.send()
    world.pump()
    return world


@pytest.mark.parametrize(
    ("settings", "needs"),
    [({}, True), ({"transactional.id": "x"}, False), ({"enable.idempotence": False}, False)],
)
def test_who_is_in_no_transaction_asks_for_a_producer_id_of_its_own(settings: dict[str, Any], needs: bool) -> None:
    world = World(**{"batch.size": 0, "linger.ms": 0, **settings})
    world.sender = BatchSender(world.settings, world.accumulator, world.metadata)
    assert world.sender.needs_producer_id is needs
    world.send()
    assert bool(world.sender.drain(world.now_ms)) is not world.settings.idempotent, "nothing is sent without one"
    world.sender.set_producer(0, 0)
    assert not world.sender.needs_producer_id
    if world.settings.idempotent:
        ((batch,),) = [call.batches for call in world.sender.drain(world.now_ms)]
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (0, 0, 0)


def test_nothing_goes_to_a_partition_before_it_was_added() -> None:
    world = Transaction(2)
    world.added = {TopicPartition(TOPIC, 1)}
    world.send(0)
    world.send(1)
    world.pump()
    (request,) = world.connections[0]
    assert list(request.payloads) == [TopicPartition(TOPIC, 1)]
    assert set(world.asked) == {PLACE, TopicPartition(TOPIC, 1)}
    world.added.add(PLACE)
    world.heal()
    world.check_exactly_once()


@pytest.mark.parametrize(
    ("code", "is_fatal"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False),
        (ErrorCode.INVALID_RECORD, False),
        (ErrorCode.PRODUCER_FENCED, True),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, False),
        (ErrorCode.UNKNOWN_PRODUCER_ID, False),
    ],
)
def test_the_transaction_is_told_of_a_batch_that_is_refused(code: ErrorCode, is_fatal: bool) -> None:
    world = begun(2)
    world.handle(0, code)
    world.handle(0)
    world.reply(0)
    first, second = world.batches()[1:]
    assert world.told == [first.error] and first.error is not None
    assert first.error.code is code
    assert (first.error.fatal, first.error.requires_abort) == (is_fatal, not is_fatal)
    assert world.sender.fatal_error is None, "what becomes of the others is for the transaction to say"
    assert not second.done and world.sender.producer_epoch == 0


def test_a_batch_behind_one_that_is_to_be_sent_again_is_only_out_of_order() -> None:
    world = begun(2)
    world.handle(0, ErrorCode.NOT_ENOUGH_REPLICAS)
    world.handle(0)
    while world.reply(0):
        pass
    assert world.told == [] and not any(batch.done for batch in world.batches()[1:])
    world.heal()
    world.check_exactly_once()
    assert world.sender.producer_epoch == 0


def test_the_record_a_batch_was_refused_for_is_the_reason_that_is_told() -> None:
    world = Transaction(**{"batch.size": 1000})
    for _ in range(2):
        world.send()
    world.sender.flushing = 1
    world.pump()
    (request,) = world.connections[0]
    refused = PartitionResult(ErrorCode.INVALID_RECORD, message="bad", record_errors=((1, "no key"),))
    request.reply = dict.fromkeys(request.payloads, refused)
    world.reply(0)
    (batch,) = world.done
    assert world.told == [batch.error_of(1)] and "no key" in world.told[0].message
    for index in range(2):
        error = batch.error_of(index)
        assert error is not None and error.requires_abort


def test_batches_that_fail_while_the_transaction_is_aborted_are_not_sent_again() -> None:
    world = begun(3)
    reason = TransactionAbortedError("aborted")
    world.sender.giving_up = reason
    world.handle(0)
    world.handle(0, ErrorCode.NOT_ENOUGH_REPLICAS)
    while world.reply(0):
        pass
    stored, failed, waiting = world.batches()[1:]
    assert stored.done and stored.error is None, "what is stored is stored"
    assert failed.error is reason and not waiting.done
    assert world.told == [reason]
    world.disconnect(0)
    assert waiting.error is reason and world.told == [reason, reason]
    assert world.accumulator.free_bytes == world.accumulator.buffer_memory


def test_without_a_transaction_nobody_is_told_of_what_is_given_up() -> None:
    world = filled(1)
    reason = ClientError("closing")
    world.sender.giving_up = reason
    world.handle(0, ErrorCode.NOT_ENOUGH_REPLICAS)
    world.reply(0)
    assert world.receipts[1][0].error is reason


@pytest.mark.parametrize("is_in_flight", [True, False])
def test_a_batch_that_is_too_late_aborts_its_transaction(is_in_flight: bool) -> None:
    world = begun()
    world.send()
    if is_in_flight:
        world.pump()
    late_ms = world.receipts[1][0].deadline_ms
    assert world.sender.expire(late_ms - 1) == []
    (batch,) = world.sender.expire(late_ms)
    assert isinstance(batch.error, DeliveryTimeoutError) and batch.error.requires_abort
    assert world.told == [batch.error]
    assert ("may have been stored" in batch.error.message) is is_in_flight
    if is_in_flight:
        world.handle(0, ErrorCode.PRODUCER_FENCED)
        world.reply(0)
        assert len(world.told) == 1, "its reply does not matter any more"


def test_of_a_batch_that_is_too_late_without_a_transaction_only_its_owner_is_told() -> None:
    world = filled(1)
    batch = world.receipts[1][0]
    assert world.sender.expire(batch.deadline_ms) == [batch]
    assert batch.error is not None and not batch.error.requires_abort


@pytest.mark.parametrize("only_unsent", [True, False])
def test_what_is_on_its_way_may_be_waited_for(only_unsent: bool) -> None:
    world = begun(7)
    in_flight = [batch for batch in world.batches()[1:] if batch.attempts]
    unsent = [batch for batch in world.batches()[1:] if not batch.attempts]
    assert (len(in_flight), len(unsent)) == (5, 2)
    error = ClientError("closed")
    done = world.sender.fail_all(error, only_unsent=only_unsent)
    assert done == (unsent if only_unsent else unsent + in_flight)
    assert {batch.error for batch in done} == {error}
    while world.handle(0):
        pass
    while world.reply(0):
        pass
    assert all((batch.error is None) is only_unsent for batch in in_flight)
    assert not world.accumulator.incomplete


def test_by_default_everything_fails_together() -> None:
    world = begun(7)
    assert len(world.sender.fail_all(ProducerFencedError())) == 7


def test_a_broker_that_has_forgotten_the_producer_is_sent_everything_under_a_new_epoch() -> None:
    world = filled(3)
    world.logs[0].producers.clear()
    for _ in range(3):
        world.handle(0, ErrorCode.UNKNOWN_PRODUCER_ID)
    while world.reply(0):
        pass
    assert not any(batch.done for batch, _, _ in world.receipts[1:])
    world.heal()
    world.check_exactly_once()
    assert world.sender.producer_epoch == 1
    assert [batch.base_sequence for batch, _, _ in world.receipts] == [0, 0, 1, 2]


@pytest.mark.parametrize("code", [ErrorCode.INVALID_RECORD, ErrorCode.PRODUCER_FENCED])
def test_where_nobody_wants_to_be_told_a_fatal_error_ends_everything_all_the_same(code: ErrorCode) -> None:
    world = World(**{"batch.size": 0, "linger.ms": 0, "transactional.id": "x"})
    world.sender.set_producer(7, 0)
    world.send()
    world.send()
    world.pump()
    world.handle(0, code)
    world.reply(0)
    first, second = (batch for batch, _, _ in world.receipts)
    assert first.error is not None and first.error.code is code
    is_fatal = code is ErrorCode.PRODUCER_FENCED
    assert world.sender.fatal_error is (first.error if is_fatal else None) and second.done is is_fatal
