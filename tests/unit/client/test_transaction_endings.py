"""Transactions that are not just committed: calls that are broken off, what is left when a producer is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.client.aio.producer import transactions
from ottla.client.core.producer.transaction import TransactionState
from ottla.errors import ClientClosedError, ClientError, TransactionAbortedError, TransactionStateError
from ottla.wire.apis.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.apis.find_coordinator import FindCoordinatorRequest
from ottla.wire.apis.init_producer_id import InitProducerIdRequest
from ottla.wire.apis.produce import ProduceRequest
from ottla.wire.apis.txn_offset_commit import TxnOffsetCommitRequest
from ottla.wire.message import Request, Response
from tests.log_lines import messages_of
from tests.waiting import run_async, until

from .test_transaction_answers import MEMBER, OFFSETS, TOPIC, E, World, world


class Held:
    """Holds back the answers to a kind of request until they may come."""

    def __init__(self, here: World, kind: type[Request], answer: Callable[[], Response]) -> None:
        self.here, self.kind = here, kind
        self.may_answer = asyncio.Event()
        self._answer = answer
        here.broker.on(kind, self._later)

    async def _later(self, request: Request) -> Response:
        await self.may_answer.wait()
        return self._answer()

    async def breaks_off(self, call: Callable[[], Awaitable[object]]) -> None:
        """The call is cancelled as soon as the request has been seen."""
        before = self.here.count(self.kind)
        task = asyncio.ensure_future(call())
        await until(lambda: self.here.count(self.kind) > before)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        self.may_answer.set()


def state_of(here: World) -> TransactionState:
    transaction = here.producer._started()[0].transaction
    assert transaction is not None
    return transaction.state


@pytest.mark.parametrize(
    ("committed", "state"),
    [(True, TransactionState.COMMIT_UNSURE), (False, TransactionState.ABORT_UNFINISHED)],
)
def test_an_end_that_nobody_waited_for_can_be_called_for_again(committed: bool, state: TransactionState) -> None:
    async def scenario() -> None:
        async with world() as here:
            producer = await here.begun()
            end = producer.commit_transaction if committed else producer.abort_transaction
            other = producer.abort_transaction if committed else producer.commit_transaction
            await (await producer.send(TOPIC, b"x", partition=0))
            await Held(here, EndTxnRequest, EndTxnResponse).breaks_off(end)
            assert state_of(here) is state
            with pytest.raises(TransactionStateError):
                await other()
            await end()
            assert state_of(here) is TransactionState.READY
            assert [request.committed for request in here.broker.asked(EndTxnRequest)] == [committed] * 2
            await producer.begin_transaction()

    run_async(scenario())


def test_a_commit_that_was_broken_off_before_it_was_asked_for_can_be_aborted() -> None:
    async def scenario() -> None:
        async with world() as here:
            producer = await here.begun()
            held = Held(here, ProduceRequest, lambda: pytest.fail("it is too late for an answer"))
            await producer.send(TOPIC, b"x", partition=0)
            before = here.count(ProduceRequest)
            committing = asyncio.ensure_future(producer.commit_transaction())
            await until(lambda: here.count(ProduceRequest) > before)
            assert not committing.done() and here.count(EndTxnRequest) == 0, "first everything has to be stored"
            committing.cancel()
            await asyncio.wait([committing])
            assert state_of(here) is TransactionState.IN_TRANSACTION and not held.may_answer.is_set()
            await producer.close(timeout=0)

    run_async(scenario())


def test_offsets_that_nobody_waited_for_make_the_transaction_one_to_abort() -> None:
    async def scenario() -> None:
        async with world() as here:
            producer = await here.begun()
            held = Held(here, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse)
            await held.breaks_off(lambda: producer.send_offsets(OFFSETS, MEMBER))
            with pytest.raises(ClientError, match="was broken off") as refused:
                await producer.commit_transaction()
            assert refused.value.requires_abort and refused.value.code is E.TRANSACTION_ABORTABLE
            asked = here.count(AddOffsetsToTxnRequest)
            await producer.abort_transaction()
            assert here.count(AddOffsetsToTxnRequest) == asked + 1, "the coordinator may not have heard of the group"
            assert [request.group_id for request in here.broker.asked(AddOffsetsToTxnRequest)] == ["group"] * 2
            (end,) = here.broker.asked(EndTxnRequest)
            assert end.committed is False
            await producer.begin_transaction()
            await producer.abort_transaction()
            assert here.count(AddOffsetsToTxnRequest) == asked + 1, "that was of another transaction"

    run_async(scenario())


@pytest.mark.parametrize("kind", [AddOffsetsToTxnRequest, TxnOffsetCommitRequest])
def test_offsets_that_took_too_long_keep_the_transaction_from_being_committed(kind: type[Request]) -> None:
    async def scenario() -> None:
        async with world(**{"max.block.ms": 100}) as here:
            producer = await here.begun()
            here.codes[kind] = [E.COORDINATOR_LOAD_IN_PROGRESS] * 100_000
            calls: list[Callable[[], Awaitable[None]]] = [
                lambda: producer.send_offsets(OFFSETS, "group"),
                producer.commit_transaction,
            ]
            for call in calls:
                with pytest.raises(ClientError, match=r"send_offsets\(\) was not done") as late:
                    await call()
                assert late.value.requires_abort
            here.codes.clear()
            await producer.abort_transaction()
            assert state_of(here) is TransactionState.READY

    run_async(scenario())


def test_an_abort_drops_what_was_not_sent_and_takes_a_new_epoch_for_what_may_have_been() -> None:
    async def scenario() -> None:
        async with world(**{"linger.ms": 60_000}) as here:
            producer = await here.begun()
            unsent = await producer.send(TOPIC, b"x", partition=0)
            await producer.abort_transaction()
            with pytest.raises(TransactionAbortedError, match="before the record was sent"):
                await unsent
            assert here.count(ProduceRequest) == here.count(EndTxnRequest) == 0
            assert here.count(InitProducerIdRequest) == 1, "no number was used"
            await producer.begin_transaction()
            here.added = [[E.TOPIC_AUTHORIZATION_FAILED] * 2]
            await producer.send(TOPIC, b"x", partition=0)
            with pytest.raises(ClientError) as refused:
                await producer.commit_transaction()
            assert refused.value.requires_abort
            await producer.abort_transaction()
            last = here.broker.asked(InitProducerIdRequest)[-1]
            assert (last.producer_id, last.producer_epoch) == (7, 0)
            await producer.begin_transaction()
            sent = await producer.send(TOPIC, b"y", partition=1)
            await producer.commit_transaction()
            assert (await sent).partition == 1, "what is sent after an abort is not given up"

    run_async(scenario())


def test_each_transaction_tells_of_its_own_partitions() -> None:
    async def scenario() -> None:
        async with world() as here:
            await here.producer.init_transactions()
            for partition in (0, 1, 1):
                await here.producer.begin_transaction()
                for _ in range(2):
                    await (await here.producer.send(TOPIC, b"x", partition=partition))
                await here.producer.commit_transaction()
            told = [
                [(topic.name, topic.partitions) for topic in request.v3_and_below_topics]
                for request in here.broker.requests
                if hasattr(request, "v3_and_below_topics")
            ]
            assert told == [[(TOPIC, [partition])] for partition in (0, 1, 1)]
            keys = [request.coordinator_keys for request in here.broker.asked(FindCoordinatorRequest)]
            assert keys == [["tx"]], "who it is was asked once"

    run_async(scenario())


async def committed_in_vain(here: World) -> None:
    producer = await here.begun()
    await (await producer.send(TOPIC, b"x", partition=0))
    await Held(here, EndTxnRequest, EndTxnResponse).breaks_off(producer.commit_transaction)


async def prepared(here: World) -> None:
    producer = await here.begun()
    future = await producer.send(TOPIC, b"x", partition=0)
    transaction = await producer.prepare_transaction()
    assert future.done() and (await future).partition == 0, "what was sent before is stored"
    assert (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch) == ("tx", 7, 0)


async def begun(here: World) -> None:
    await (await (await here.begun()).send(TOPIC, b"x", partition=0))


async def idle(here: World) -> None:
    await begun(here)
    await here.producer.commit_transaction()


@pytest.mark.parametrize(
    ("prepare", "ends"),
    [
        (begun, [False]),
        (committed_in_vain, [True, True]),
        (prepared, []),
        (idle, [True]),
        (lambda here: here.producer.init_transactions(), []),
        (lambda here: asyncio.sleep(0), []),
    ],
    ids=["begun", "commit unsure", "prepared", "ready", "initialized", "new"],
)
def test_closing_ends_what_is_open_and_leaves_what_is_prepared(
    prepare: Callable[[World], Awaitable[None]], ends: list[bool]
) -> None:
    async def scenario() -> None:
        async with world() as here:
            await prepare(here)
            await here.producer.close()
            assert [request.committed for request in here.broker.asked(EndTxnRequest)] == ends

    run_async(scenario())


def test_what_cannot_be_ended_by_closing_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with world() as here:
            await begun(here)
            here.codes[EndTxnRequest] = [E.INVALID_TXN_STATE]
            await here.producer.close()

    run_async(scenario())
    told = messages_of(caplog, transactions.__name__)
    assert len(told) == 1 and told[0].startswith("the open transaction of tx could not be ended: INVALID_TXN_STATE")


def test_a_call_under_way_when_the_producer_is_closed_says_so() -> None:
    async def scenario() -> None:
        async with world() as here:
            await begun(here)
            held = Held(here, EndTxnRequest, EndTxnResponse)
            committing = asyncio.ensure_future(here.producer.commit_transaction())
            await until(lambda: here.count(EndTxnRequest) == 1)
            await here.producer.close(timeout=0)
            with pytest.raises(ClientClosedError, match="was closed while this call waited"):
                await committing
            held.may_answer.set()

    run_async(scenario())


@pytest.mark.parametrize(
    ("code", "is_fatal"),
    [(E.TRANSACTION_ABORTABLE, False), (E.UNKNOWN_PRODUCER_ID, False), (E.INVALID_TXN_STATE, True)],
)
def test_a_refused_commit_has_not_taken_place_or_nobody_knows(code: ErrorCode, is_fatal: bool) -> None:
    async def scenario() -> None:
        async with world() as here:
            await begun(here)
            here.codes[EndTxnRequest] = [code]
            with pytest.raises(ClientError) as refused:
                await here.producer.commit_transaction()
            assert (refused.value.fatal, refused.value.requires_abort) == (is_fatal, not is_fatal)
            expected = TransactionState.FATAL_ERROR if is_fatal else TransactionState.ABORTABLE_ERROR
            assert state_of(here) is expected

    run_async(scenario())


def test_an_abort_that_is_refused_leaves_nothing_to_go_on_with() -> None:
    async def scenario() -> None:
        async with world() as here:
            await begun(here)
            here.codes[EndTxnRequest] = [E.TRANSACTION_ABORTABLE]
            with pytest.raises(ClientError) as refused:
                await here.producer.abort_transaction()
            assert refused.value.fatal and state_of(here) is TransactionState.FATAL_ERROR

    run_async(scenario())


def test_blocks_initialize_once_and_end_what_they_began() -> None:
    async def scenario() -> None:
        async with world() as here:
            producer = here.producer
            for _ in range(2):
                async with producer.transaction() as same:
                    assert same is producer
                    await producer.send(TOPIC, b"x", partition=0)
            assert here.count(InitProducerIdRequest) == 1
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await (await producer.send(TOPIC, b"x", partition=0))
                    raise ZeroDivisionError
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.abort_transaction()
                    raise ZeroDivisionError
            ends: list[Any] = [request.committed for request in here.broker.asked(EndTxnRequest)]
            assert ends == [True, True, False]

    run_async(scenario())
