"""What producers give for what they are handed, many values and tables too, against a broker in this process."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import ottla
from ottla import TopicPartition, aio
from ottla.base.errors import ErrorCode
from ottla.client.core.producer.encoded_batch import SentRows
from ottla.client.sync.producer.send_futures import SendFuture
from ottla.errors import ClientClosedError, ClientError, SerializationError, TransactionStateError
from ottla.testing import EmbeddedBroker
from tests.waiting import PATIENCE_S, join, run_async

VALUES = [b"value-%d" % number for number in range(25)]
SMALL: dict[str, Any] = {"batch_size": 100, "linger_ms": 0}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    return broker.new_topic("sent")


def stored(broker: EmbeddedBroker, topic: str, **settings: Any) -> list[bytes | None]:
    """Values in their order; of several partitions, one after the other."""
    with ottla.Consumer(bootstrap_servers=broker.bootstrap_servers, **settings) as consumer:
        partitions = [TopicPartition(topic, info.partition) for info in consumer.partitions_for(topic)]
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        found: list[Any] = []
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            found += consumer.poll(PATIENCE_S)
        return [record.value for record in sorted(found, key=lambda record: (record.partition, record.offset))]


# For threads


@pytest.mark.parametrize("settings", [{}, SMALL, {"buffer_memory": 300, **SMALL}])
def test_many_values_are_stored_in_their_order(broker: EmbeddedBroker, topic: str, settings: Any) -> None:
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers, **settings) as producer:
        futures = producer.send_many(topic, iter(VALUES))
        assert len(futures) == len(VALUES)
        assert [metadata.offset for metadata in futures.result(PATIENCE_S)] == list(range(len(VALUES)))
        assert futures.done() and futures[-1].done()
        assert [future.result().offset for future in futures[3:6]] == [3, 4, 5]
        assert len(producer.send_many(topic, [])) == 0
    assert stored(broker, topic) == VALUES


def test_many_values_of_any_kind_are_sent_one_by_one(broker: EmbeddedBroker, topic: str) -> None:
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers, value_serializer=str.encode) as producer:
        outcomes = producer.send_many(topic, ["a", None, "c"]).result(PATIENCE_S)
        assert [metadata.offset for metadata in outcomes] == [0, 1, 2]
        with pytest.raises(SerializationError, match="several values"):
            producer.send_many(topic, 5)  # type: ignore[arg-type]
    assert stored(broker, topic) == [b"a", None, b"c"]


def test_waiting_in_vain_says_nothing_about_the_record(broker: EmbeddedBroker, topic: str) -> None:
    pa = pytest.importorskip("pyarrow")
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        one, many = producer.send(topic, b"one"), producer.send_many(topic, [b"two", b"three"])
        assert not (one.done() or many.done())
        for wait in (one.result, one.exception, many.result):
            with pytest.raises(TimeoutError, match=r"within 0\.\d+ s"):
                wait(0.01)
        producer.flush(PATIENCE_S)
        assert one.result(0).offset == 0 and one.exception(0) is None
        assert [metadata.offset for metadata in many.result(0)] == [1, 2]
        broker.pause()
        try:
            table = producer.send_arrow(topic, pa.table({"value": [b"four"]}))
            assert not table.done()
            for wait_for_all in (table.result, table.exception):
                with pytest.raises(TimeoutError):
                    wait_for_all(0.01)
        finally:
            broker.resume()
        assert table.result(PATIENCE_S) == {(topic, 0): SentRows(1, 3, 3)}
        assert table.exception() is None and table.done()


def test_callbacks_are_called_once_whether_they_come_early_or_late(broker: EmbeddedBroker, topic: str) -> None:
    called: list[tuple[str, SendFuture, bool]] = []
    told = threading.Event()

    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        future = producer.send(topic, b"v")

        def early(settled: SendFuture) -> None:
            called.append(("early", settled, threading.current_thread() is threading.main_thread()))
            told.set()

        future.add_done_callback(early)
        assert called == []
        producer.flush(PATIENCE_S)
        assert told.wait(PATIENCE_S)
        future.add_done_callback(lambda settled: called.append(("late", settled, True)))
        # Somebody else who tells of the batch once more.
        for waiter in future._batch.announce():
            waiter()
    assert called == [("early", future, False), ("late", future, True)]


def test_every_way_to_wait_tells_why_a_record_was_not_stored(broker: EmbeddedBroker) -> None:
    pa = pytest.importorskip("pyarrow")
    topic = broker.new_topic("narrow", config={"max.message.bytes": 200})
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        one, many = producer.send(topic, bytes(300)), producer.send_many(topic, [bytes(301)] * 2)
        table = producer.send_arrow(topic, pa.table({"value": [bytes(302)]}))
        for future in (one, many[0], many[1], table):
            error = future.exception(PATIENCE_S)
            assert error is not None and error.code is ErrorCode.MESSAGE_TOO_LARGE
            assert future.exception() is not error, "everybody gets one of his own"
            with pytest.raises(ClientError) as raised:
                future.result()
            assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE
        with pytest.raises(ClientError):
            many.result()


def test_a_table_goes_out_in_parts_and_each_partition_says_what_it_got(broker: EmbeddedBroker) -> None:
    pa = pytest.importorskip("pyarrow")
    topic = broker.new_topic("table", partitions=2)
    table = pa.table({"value": VALUES, "partition": pa.array([n % 2 for n in range(len(VALUES))], pa.int32())})
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers, max_block_ms=200) as producer:
        for again in range(2):
            sent = producer.send_arrow(topic, table, partition_column="partition").result(PATIENCE_S)
            assert sent == {
                (topic, 0): SentRows(13, 13 * again, 13 * again + 12),
                (topic, 1): SentRows(12, 12 * again, 12 * again + 11),
            }
        with pytest.raises(ClientError, match="no partition 7"):
            producer.send_arrow(
                topic, pa.table({"value": [b"v"], "partition": [7]}), partition_column="partition"
            ).result(PATIENCE_S)
    assert stored(broker, topic) == [*VALUES[0::2] * 2, *VALUES[1::2] * 2]


def test_what_a_topic_is_made_of(broker: EmbeddedBroker) -> None:
    topic = broker.new_topic("parts", partitions=3)
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        assert producer.partitions_for(topic) == [0, 1, 2]
    with pytest.raises(ClientClosedError):
        producer.partitions_for(topic)


def test_many_threads_wait_for_memory_and_all_get_some(broker: EmbeddedBroker, topic: str) -> None:
    settings: dict[str, Any] = {"buffer_memory": 400, "batch_size": 200}
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers, **settings) as producer:
        producer.partitions_for(topic)
        lost: list[Exception] = []

        def send(name: bytes) -> None:
            try:
                for number in range(20):
                    producer.send(topic, name + b"-%d" % number, key=name)
            except Exception as e:
                lost.append(e)

        threads = [threading.Thread(target=send, args=(b"%d" % number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        join(*threads)
        producer.flush(PATIENCE_S)
        assert lost == [] and producer._accumulator.waiting == 0
    found = stored(broker, topic)
    for number in range(4):
        own = [value for value in found if value is not None and value.startswith(b"%d-" % number)]
        assert own == [b"%d-%d" % (number, index) for index in range(20)]


def test_transactions_are_blocks(broker: EmbeddedBroker, topic: str) -> None:
    settings: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers, "transactional_id": topic}
    with ottla.Producer(**settings) as producer:
        with producer.transaction() as same:
            assert same is producer
            producer.send(topic, b"first")
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send(topic, b"dropped")
            producer.flush(PATIENCE_S)
            raise ZeroDivisionError
        with producer.transaction():
            producer.send(topic, b"second")
        with pytest.raises(TransactionStateError, match="begin_transaction"):
            producer.send(topic, b"outside")
    assert stored(broker, topic, isolation_level="read_committed") == [b"first", b"second"]
    assert stored(broker, topic) == [b"first", b"dropped", b"second"]


def test_without_a_transactional_id_there_are_no_transactions(broker: EmbeddedBroker) -> None:
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for call in (producer.init_transactions, producer.begin_transaction, producer.abort_transaction):
            with pytest.raises(TransactionStateError, match=r"transactional\.id"):
                call()


# For asyncio


@pytest.mark.parametrize("settings", [{}, SMALL, {"buffer_memory": 300, **SMALL}])
def test_many_values_are_stored_in_their_order_by_a_task(broker: EmbeddedBroker, topic: str, settings: Any) -> None:
    async def scenario() -> None:
        async with aio.Producer(bootstrap_servers=broker.bootstrap_servers, **settings) as producer:
            futures = await producer.send_many(topic, iter(VALUES))
            assert len(futures) == len(VALUES)
            assert [metadata.offset for metadata in await futures] == list(range(len(VALUES)))
            assert (await futures[4]).offset == 4
            assert len(await producer.send_many(topic, [])) == 0
            assert (await producer.send_and_wait(topic, b"last", b"key")).offset == len(VALUES)
            assert await producer.partitions_for(topic) == [0]

    run_async(scenario())
    assert stored(broker, topic) == [*VALUES, b"last"]


def test_many_values_of_any_kind_are_sent_one_by_one_by_a_task(broker: EmbeddedBroker, topic: str) -> None:
    async def scenario() -> None:
        settings: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
        async with aio.Producer(**settings, value_serializer=str.encode) as producer:
            outcomes = await (await producer.send_many(topic, ["a", None, "c"]))
            assert [metadata.offset for metadata in outcomes] == [0, 1, 2]

    run_async(scenario())
    assert stored(broker, topic) == [b"a", None, b"c"]


def test_a_table_is_sent_by_a_task(broker: EmbeddedBroker, topic: str) -> None:
    pa = pytest.importorskip("pyarrow")

    async def scenario() -> None:
        async with aio.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            sent = await producer.send_arrow(topic, pa.table({"value": VALUES}))
            assert await sent == {(topic, 0): SentRows(25, 0, 24)} and sent.done()

    run_async(scenario())
    assert stored(broker, topic) == VALUES


def test_transactions_of_tasks_are_blocks(broker: EmbeddedBroker, topic: str) -> None:
    async def scenario() -> None:
        settings: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers, "transactional_id": topic}
        async with aio.Producer(**settings) as producer:
            async with producer.transaction() as same:
                assert same is producer
                await producer.send(topic, b"first")
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"dropped")
                    raise ZeroDivisionError
            async with producer.transaction():
                await producer.send(topic, b"second")
                await producer.send_offsets({TopicPartition(topic, 0): 2}, "readers")
            await producer.begin_transaction()
            await producer.send(topic, b"third")
            prepared = await producer.prepare_transaction()
            assert prepared.transactional_id == topic and prepared.producer_id >= 0
            with pytest.raises(TransactionStateError):
                await producer.send(topic, b"outside")
            await producer.commit_transaction()

    run_async(scenario())
    assert stored(broker, topic, isolation_level="read_committed") == [b"first", b"second", b"third"]
    with ottla.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        offsets = admin.list_group_offsets(["readers"])["readers"]
        assert {partition: found.offset for partition, found in offsets.items()} == {(topic, 0): 2}


def test_a_producer_that_is_not_started_or_is_closed_says_so(broker: EmbeddedBroker, topic: str) -> None:
    async def scenario() -> None:
        producer: Any = aio.Producer(bootstrap_servers=broker.bootstrap_servers)
        calls: list[Any] = [
            lambda: producer.send(topic, b"v"),
            lambda: producer.send_many(topic, [b"v"]),
            lambda: producer.flush(),
            lambda: producer.partitions_for(topic),
            lambda: producer.begin_transaction(),
        ]
        for call in calls:
            with pytest.raises(ClientClosedError, match=r"call start\(\)"):
                await call()
        await producer.start()
        with pytest.raises(ClientClosedError, match="only once"):
            await producer.start()
        future = await producer.send(topic, b"v")
        with pytest.raises(TransactionStateError, match=r"transactional\.id"):
            await producer.begin_transaction()
        await producer.close()
        await producer.close()
        assert (await future).offset == 0, "closing sends what is left"
        for call in calls:
            with pytest.raises(ClientClosedError, match="is closed"):
                await call()
        unused: Any = aio.Producer(bootstrap_servers=broker.bootstrap_servers)
        await unused.close()
        with pytest.raises(ClientClosedError, match="only once"):
            await unused.start()

    run_async(scenario())


@pytest.mark.parametrize("has_time", [True, False])
def test_a_loop_that_ends_sends_what_a_producer_holds_or_says_that_it_is_lost(
    broker: EmbeddedBroker, topic: str, has_time: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        producer = await aio.Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000).start()
        for number in range(3):
            await producer.send(topic, b"%d" % number)
        if not has_time:
            producer._engine.flush = _late  # type: ignore[method-assign, union-attr]

    run_async(scenario())
    assert stored(broker, topic) == ([b"0", b"1", b"2"] if has_time else [])
    lost = [record.getMessage() for record in caplog.records if "records not sent" in record.msg]
    assert lost == (
        [] if has_time else ["records not sent, because the event loop ended before the producer was closed: 3"]
    )


async def _late() -> None:
    await asyncio.sleep(0)
    raise TimeoutError


def test_records_have_the_time_at_which_they_were_given(broker: EmbeddedBroker, topic: str) -> None:
    async def send() -> None:
        async with aio.Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0) as producer:
            for value in VALUES[:5]:
                await (await producer.send(topic, value))
            await producer.send_and_wait(topic, VALUES[5], b"key")

    before_ms = int(time.time() * 1000)
    run_async(send())
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0) as producer:
        for value in VALUES[6:9]:
            producer.send(topic, value).result(PATIENCE_S)
    after_ms = int(time.time() * 1000)
    with ottla.Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        found: list[int] = []
        while len(found) < 9:
            found += [record.timestamp for record in consumer.poll(PATIENCE_S)]
    assert before_ms <= min(found) and max(found) <= after_ms
