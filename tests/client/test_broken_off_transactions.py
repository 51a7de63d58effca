"""Calls of a transaction that do not come to their end: lost replies, a coordinator that is away, cancelled waiting."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import ottla
from ottla.base.types import TopicPartition
from ottla.client.core.producer.transaction import TransactionState
from ottla.client.errors import (
    ClientClosedError,
    ClientError,
    DeliveryTimeoutError,
    TransactionAbortedError,
    TransactionStateError,
)
from ottla.testing import ApiKey, EmbeddedBroker, ErrorCode, Fault
from tests.client.consumer_shells import PATIENCE_S
from tests.client.producers import AioClient, SyncClient, values_of

Client = type[SyncClient] | type[AioClient]

pytestmark = pytest.mark.parametrize("client", [SyncClient, AioClient], ids=lambda kind: kind.name)

# Long enough for a busy machine to do in it what is to succeed, and short enough to wait for what is not.
QUICK: dict[str, object] = {
    "max.block.ms": 1000,
    "request.timeout.ms": 300,
    "retry.backoff.ms": 5,
    "retry.backoff.max.ms": 20,
    "reconnect.backoff.ms": 5,
    "reconnect.backoff.max.ms": 20,
}


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def own(shared: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    yield shared
    shared.faults.clear()


def settings_of(own: EmbeddedBroker, topic: str, **others: object) -> dict[str, object]:
    return {**QUICK, "bootstrap.servers": own.bootstrap_servers, "transactional.id": f"tx-{topic}", **others}


def state_of(producer: SyncClient | AioClient) -> TransactionState:
    engine = producer.producer._engine
    assert engine is not None and engine.transaction is not None
    return engine.transaction.state


def says_again(error: ClientError, call: str) -> None:
    """Says of itself what the state allows: the same call, and nothing else."""
    assert (error.retriable, error.requires_abort, error.fatal) == (True, False, False)
    assert call in error.message and "max.block.ms" in error.message


def test_a_commit_whose_reply_is_lost_can_only_be_committed(
    client: Client, own: EmbeddedBroker, new_topic: str
) -> None:
    own.create_topic(new_topic)
    with client(settings_of(own, new_topic)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(new_topic, b"once")
        lost = own.faults.drop(ApiKey.END_TXN, applied=True, times=None)
        with pytest.raises(ClientError, match=r"commit_transaction\(\) has to be called again") as raised:
            producer.commit_transaction()
        says_again(raised.value, "commit_transaction()")
        for call in (producer.abort_transaction, producer.begin_transaction, lambda: producer.send(new_topic, b"")):
            with pytest.raises(TransactionStateError, match=r"commit_transaction\(\) was broken off and must be"):
                call()
        with pytest.raises(ClientError, match="may be committed or not"):
            producer.commit_transaction()
        lost.cancel()
        producer.commit_transaction()
        with producer.transaction():
            producer.send(new_topic, b"next")
    assert values_of(own.bootstrap_servers, new_topic, committed=True) == [b"once", b"next"]


def test_a_block_does_not_abort_what_may_be_committed(client: Client, own: EmbeddedBroker, new_topic: str) -> None:
    own.create_topic(new_topic)
    with client(settings_of(own, new_topic)) as producer:
        with pytest.raises(ClientError, match=r"commit_transaction\(\) has to be called again"), producer.transaction():
            producer.send(new_topic, b"once")
            lost = own.faults.drop(ApiKey.END_TXN, applied=True, times=None)
        lost.cancel()
        producer.commit_transaction()
        assert state_of(producer) is TransactionState.READY
    assert values_of(own.bootstrap_servers, new_topic, committed=True) == [b"once"]


def test_close_finishes_a_commit_that_was_broken_off(client: Client, own: EmbeddedBroker, new_topic: str) -> None:
    own.create_topic(new_topic)
    with client(settings_of(own, new_topic)) as producer:
        with pytest.raises(ClientError, match="called again"), producer.transaction():
            producer.send(new_topic, b"once")
            refused = own.faults.error(ApiKey.END_TXN, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=None)
        refused.cancel()
    assert values_of(own.bootstrap_servers, new_topic, committed=True) == [b"once"]


def test_a_commit_that_was_not_asked_for_yet_can_be_aborted(
    client: Client, own: EmbeddedBroker, new_topic: str
) -> None:
    own.create_topic(new_topic)
    with client(settings_of(own, new_topic)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.partitions_for(new_topic)
        held_up = own.faults.drop(ApiKey.ADD_PARTITIONS_TO_TXN, applied=True, times=None)
        producer.send(new_topic, b"dropped")
        with pytest.raises(ClientError, match="nothing was committed") as raised:
            producer.commit_transaction()
        says_again(raised.value, "commit_transaction()")
        assert state_of(producer) is TransactionState.IN_TRANSACTION
        held_up.cancel()
        producer.abort_transaction()
        with producer.transaction():
            producer.send(new_topic, b"kept")
    assert values_of(own.bootstrap_servers, new_topic, committed=True) == [b"kept"]


def test_an_abort_can_be_repeated(client: Client, own: EmbeddedBroker, new_topic: str) -> None:
    own.create_topic(new_topic)
    with client(settings_of(own, new_topic)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(new_topic, b"aborted").result(10)
        lost = own.faults.drop(ApiKey.END_TXN, applied=True, times=None)
        for _ in range(2):
            with pytest.raises(ClientError, match=r"abort_transaction\(\) was not done") as raised:
                producer.abort_transaction()
            says_again(raised.value, "abort_transaction()")
        with pytest.raises(TransactionStateError, match=r"abort_transaction\(\) was broken off"):
            producer.begin_transaction()
        lost.cancel()
        producer.abort_transaction()
        with producer.transaction():
            producer.send(new_topic, b"kept")
    assert values_of(own.bootstrap_servers, new_topic, committed=True) == [b"kept"]


def test_an_abort_of_which_only_the_new_epoch_is_missing(client: Client, own: EmbeddedBroker, new_topic: str) -> None:
    own.create_topic(new_topic)
    with client(settings_of(own, new_topic)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        own.faults.error(ApiKey.PRODUCE, ErrorCode.INVALID_RECORD)
        with pytest.raises(ClientError) as raised:
            producer.send(new_topic, b"refused").result(10)
        assert raised.value.requires_abort
        lost = own.faults.drop(ApiKey.INIT_PRODUCER_ID, applied=True, times=None)
        with pytest.raises(ClientError, match=r"abort_transaction\(\) was not done"):
            producer.abort_transaction()
        lost.cancel()
        producer.abort_transaction()
        with producer.transaction():
            producer.send(new_topic, b"kept")
    assert values_of(own.bootstrap_servers, new_topic, committed=True) == [b"kept"]


def test_the_next_transaction_does_not_miss_what_an_abort_has_lost(
    client: Client, own: EmbeddedBroker, new_topic: str
) -> None:
    own.create_topic(new_topic)
    with client(settings_of(own, new_topic, **{"max.block.ms": 10_000, "linger.ms": 0})) as producer:
        with producer.transaction():
            producer.send(new_topic, b"first")
        producer.begin_transaction()
        producer.send(new_topic, b"aborted").result(10)
        unanswered = own.faults.drop(ApiKey.PRODUCE)
        dropped = producer.send(new_topic, b"lost")
        if isinstance(producer, AioClient):
            producer.runner.run(_until(unanswered))
        unanswered.wait()
        producer.abort_transaction()
        with pytest.raises(TransactionAbortedError):
            dropped.result(10)
        with producer.transaction():
            producer.send(new_topic, b"next")
    assert values_of(own.bootstrap_servers, new_topic, committed=True) == [b"first", b"next"]


def test_an_abort_waits_until_it_is_known_whether_there_is_anything_to_abort(
    client: Client, own: EmbeddedBroker, new_topic: str
) -> None:
    own.create_topic(new_topic)
    with client(settings_of(own, new_topic)) as producer:
        producer.init_transactions()
        producer.partitions_for(new_topic)
        producer.begin_transaction()
        late = own.faults.delay(ApiKey.ADD_PARTITIONS_TO_TXN, 30)
        dropped = producer.send(new_topic, b"dropped")
        if isinstance(producer, AioClient):
            producer.runner.run(_until(late))
        late.wait()
        producer.abort_transaction()
        with pytest.raises(TransactionAbortedError):
            dropped.result(10)
        with ottla.Admin(bootstrap_servers=own.bootstrap_servers) as admin:
            (described,) = admin.describe_transactions([f"tx-{new_topic}"]).values()
        assert described.state == "CompleteAbort"


async def _until(fault: Fault) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not fault.is_used_up:
            await asyncio.sleep(0.001)


def break_off(producer: SyncClient | AioClient, fault: Fault, call: str, *arguments: Any) -> None:
    """By Ctrl-C, or by cancelling the task, while the request that meets the fault is under way."""
    if isinstance(producer, AioClient):
        work = getattr(producer.producer, call)(*arguments)

        async def cancel() -> None:
            task = asyncio.create_task(work)
            await _until(fault)
            task.cancel()
            await task

        with pytest.raises(asyncio.CancelledError):
            producer.runner.run(cancel())
        return

    def press() -> None:
        fault.wait()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    pressing = threading.Thread(target=press)
    pressing.start()
    with pytest.raises(KeyboardInterrupt):
        getattr(producer, call)(*arguments)
    pressing.join(PATIENCE_S)


@pytest.mark.parametrize("call", ["commit_transaction", "abort_transaction"])
def test_an_end_that_nobody_waits_for_can_be_called_again(
    client: Client, own: EmbeddedBroker, new_topic: str, call: str
) -> None:
    own.create_topic(new_topic)
    with client(settings_of(own, new_topic, **{"max.block.ms": 10_000})) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(new_topic, b"0").result(10)
        break_off(producer, own.faults.drop(ApiKey.END_TXN, applied=True), call)
        other = "abort_transaction" if call == "commit_transaction" else "commit_transaction"
        with pytest.raises(TransactionStateError, match=rf"{call}\(\) was broken off and must be called again"):
            getattr(producer, other)()
        getattr(producer, call)()
        with producer.transaction():
            producer.send(new_topic, b"1")
    kept = [b"0", b"1"] if call == "commit_transaction" else [b"1"]
    assert values_of(own.bootstrap_servers, new_topic, committed=True) == kept


def test_offsets_that_nobody_waits_for_are_aborted(client: Client, own: EmbeddedBroker, new_topic: str) -> None:
    own.create_topic(new_topic)
    with client(settings_of(own, new_topic, **{"max.block.ms": 10_000})) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        lost = own.faults.drop(ApiKey.ADD_OFFSETS_TO_TXN, applied=True)
        break_off(producer, lost, "send_offsets", {TopicPartition(new_topic, 0): 1}, "g")
        error = _error_of(producer.commit_transaction)
        assert error.requires_abort and "send_offsets() was broken off" in error.message
        producer.abort_transaction()
        with producer.transaction():
            producer.send(new_topic, b"kept")
    assert values_of(own.bootstrap_servers, new_topic, committed=True) == [b"kept"]


@pytest.mark.parametrize("api", [ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT])
@pytest.mark.parametrize("applied", [False, True])
def test_offsets_that_may_be_part_of_a_transaction_are_aborted(
    client: Client, own: EmbeddedBroker, new_topic: str, api: ApiKey, applied: bool
) -> None:
    own.create_topic(new_topic)
    with client(settings_of(own, new_topic)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        lost = own.faults.drop(api, applied=applied, times=None)
        with pytest.raises(ClientError, match="abort the transaction") as raised:
            producer.send_offsets({TopicPartition(new_topic, 0): 1}, f"g-{new_topic}")
        lost.cancel()
        for error in (raised.value, _error_of(producer.commit_transaction)):
            assert (error.retriable, error.requires_abort, error.fatal) == (False, True, False)
            assert "send_offsets" in error.message
        producer.abort_transaction()
        with producer.transaction():
            producer.send(new_topic, b"kept")
    assert values_of(own.bootstrap_servers, new_topic, committed=True) == [b"kept"]


def _error_of(call: Any) -> ClientError:
    with pytest.raises(ClientError) as raised:
        call()
    return raised.value


@pytest.mark.parametrize("call", ["init_transactions", "send_offsets", "commit_transaction", "abort_transaction"])
def test_no_call_takes_longer_than_it_may(client: Client, own: EmbeddedBroker, new_topic: str, call: str) -> None:
    """However long a request may take: here it would be longer than the test."""
    own.create_topic(new_topic)
    api = {"init_transactions": ApiKey.INIT_PRODUCER_ID, "send_offsets": ApiKey.ADD_OFFSETS_TO_TXN}
    arguments = ({TopicPartition(new_topic, 0): 1}, "g") if call == "send_offsets" else ()
    settings = settings_of(own, new_topic, **{"request.timeout.ms": 60_000, "max.block.ms": 100})
    with client(settings) as producer:
        if call != "init_transactions":
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(new_topic, b"0").result(10)
        with own.faults.drop(api.get(call, ApiKey.END_TXN), times=None):
            with pytest.raises(ClientError, match=rf"{call}\(\) was not done within max.block.ms, 100 ms") as raised:
                getattr(producer, call)(*arguments)
            assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
            producer.close(0)


def test_a_timeout_that_the_broker_refuses_is_the_end(client: Client, own: EmbeddedBroker, new_topic: str) -> None:
    with client(settings_of(own, new_topic, **{"transaction.timeout.ms": 10**9})) as producer:
        for _ in range(2):
            error = _error_of(producer.init_transactions)
            assert error.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT
            assert (error.retriable, error.requires_abort, error.fatal) == (False, False, True)


def test_dropped_records_say_what_went_wrong(client: Client, own: EmbeddedBroker, new_topic: str) -> None:
    own.create_topic(new_topic)
    with client(settings_of(own, new_topic, **{"linger.ms": 0})) as producer:
        producer.init_transactions()
        producer.partitions_for(new_topic)
        producer.begin_transaction()
        own.faults.error(ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        error = _error_of(lambda: producer.send(new_topic, b"dropped").result(10))
        assert error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED and error.requires_abort
        producer.abort_transaction()


def test_when_one_record_is_too_late_the_others_need_not_wait(
    client: Client, own: EmbeddedBroker, new_topic: str
) -> None:
    own.create_topic(new_topic, partitions=2)
    quick = {"linger.ms": 0, "delivery.timeout.ms": 1000, "max.block.ms": 10_000}
    with client(settings_of(own, new_topic, **quick)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for partition in range(2):
            producer.send(new_topic, b"", partition=partition).result(10)
            own.take_leader_away(new_topic, partition)
        early = producer.send(new_topic, b"", partition=0)
        if isinstance(producer, AioClient):
            producer.runner.run(asyncio.sleep(0.8))
        else:
            time.sleep(0.8)
        late = producer.send(new_topic, b"", partition=1)
        for future in (early, late):
            # The later one has not failed because of its own time, which would name the other partition.
            with pytest.raises(DeliveryTimeoutError, match=f"{new_topic}-0"):
                future.result(10)
        for partition in range(2):
            own.elect_leader(new_topic, partition)
        producer.abort_transaction()


def test_an_outage_is_told_as_it_is(client: Client, new_topic: str) -> None:
    with EmbeddedBroker() as away:
        away.create_topic(new_topic)
        with client(settings_of(away, new_topic)) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(new_topic, b"0").result(10)
            away.stop()
            error = _error_of(lambda: producer.send_offsets({TopicPartition(new_topic, 0): 1}, "g"))
            assert "connection refused" in error.message and error.requires_abort
            for call in (producer.commit_transaction, lambda: producer.send(new_topic, b"1")):
                again = _error_of(call)
                assert again.message == error.message and again is not error
            producer.close(0)


@pytest.mark.parametrize("how", ["close", "close twice"])
def test_close_aborts_an_open_transaction(client: Client, own: EmbeddedBroker, new_topic: str, how: str) -> None:
    own.create_topic(new_topic)
    with client(settings_of(own, new_topic, **{"linger.ms": 60_000, "delivery.timeout.ms": 90_000})) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(new_topic, b"stored")
        producer.flush()
        lingering = producer.send(new_topic, b"lingering")
        producer.close()
        assert lingering.done()
        if how == "close twice":
            producer.close()
    with ottla.Producer(bootstrap_servers=own.bootstrap_servers) as other:
        other.send(new_topic, b"after").result(10)
    assert values_of(own.bootstrap_servers, new_topic, committed=True) == [b"after"]


def test_close_leaves_a_prepared_transaction_to_others(client: Client, own: EmbeddedBroker, new_topic: str) -> None:
    own.create_topic(new_topic)
    with client(settings_of(own, new_topic)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(new_topic, b"prepared")
        producer.prepare_transaction()
    with ottla.Admin(bootstrap_servers=own.bootstrap_servers) as admin:
        (described,) = admin.describe_transactions([f"tx-{new_topic}"]).values()
    assert described.state == "Ongoing"


def test_close_takes_no_longer_for_a_transaction(client: Client, own: EmbeddedBroker, new_topic: str) -> None:
    own.create_topic(new_topic)
    with client(settings_of(own, new_topic, **{"max.block.ms": 60_000})) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(new_topic, b"stored").result(10)
        with own.faults.error(ApiKey.END_TXN, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=None):
            closing = threading.Thread(target=producer.close, args=(0.05,))
            closing.start()
            closing.join(10)
            assert not closing.is_alive()


def test_what_is_closed_meanwhile_is_not_prepared(client: Client, own: EmbeddedBroker, new_topic: str) -> None:
    own.create_topic(new_topic)
    producer = client(settings_of(own, new_topic))
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(new_topic, b"").result(10)
    unanswered = own.faults.drop(ApiKey.PRODUCE, times=None)
    producer.send(new_topic, b"lost")
    if isinstance(producer, AioClient):
        aio_producer = producer.producer

        async def prepare() -> None:
            preparing = asyncio.create_task(aio_producer.prepare_transaction())
            while not unanswered.hits:
                await asyncio.sleep(0.001)
            await aio_producer.close(timeout=0)
            await preparing

        with producer.runner, pytest.raises(ClientClosedError):
            producer.runner.run(prepare())
        return
    told: list[Exception | None] = []

    def prepare_in_thread() -> None:
        try:
            producer.prepare_transaction()
        except ClientError as e:
            told.append(e)

    thread = threading.Thread(target=prepare_in_thread)
    thread.start()
    while not unanswered.hits:
        time.sleep(0.001)
    producer.close(timeout=0)
    thread.join(10)
    assert [type(error) for error in told] == [ClientClosedError]
