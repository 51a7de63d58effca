"""Records in the works at once: order, commits, retries, dead letters and rebalances, in both shells."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextvars import ContextVar
from itertools import pairwise
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

import ottla
from ottla import ConsumerRecord, TopicPartition
from ottla.client.core.consumer.record import make_record_class
from ottla.errors import ClientError, ErrorCode, InvalidConfigError, ProcessingError, RecordTooLargeError
from ottla.records.batch import TimestampType
from ottla.testing import ApiKey, EmbeddedBroker
from tests.broker_process import BrokerProcess
from tests.client.conftest import KAFKA, QUICK_GROUPS
from tests.client.consumer_shells import make_topic
from tests.client.parallel_members import PATIENCE_S, Members, eventually
from tests.kafka_process import KafkaProcess
from tests.waiting import run_async

# A broker deletes records that are old by their own account, also while a test reads them.
NOW_MS = int(time.time() * 1000)
NO_PAUSE = ottla.Retries(2, 1, 1)


@pytest.fixture(scope="module")
def quick_broker(
    request: pytest.FixtureRequest, broker_kind: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess | KafkaProcess]:
    if broker_kind == KAFKA:
        yield request.getfixturevalue("kafka_broker")
        return
    process = BrokerProcess(tmp_path_factory.mktemp("parallel"), dict(QUICK_GROUPS)).start()
    yield process
    assert process.stop() == 0, "\n".join(process.log_lines)
    assert process.tracebacks() == []


@pytest.fixture(params=["sync", "aio"])
def members(
    request: pytest.FixtureRequest, quick_broker: BrokerProcess | KafkaProcess, new_topic: str
) -> Iterator[Members]:
    made = Members(request.param, quick_broker.bootstrap, make_topic(quick_broker.bootstrap, new_topic, 1))
    yield made
    made.close()


def write(members: Members, count: int, *, keys: int = 1, topic: str | None = None, partitions: int = 1) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": members.bootstrap, "linger.ms": 1})
    for number in range(count):
        producer.produce(
            topic or members.topic,
            b"%d" % number,
            key=b"key-%d" % (number % keys),
            partition=number % keys % partitions,
            headers=[("n", b"%d" % number)],
            timestamp=NOW_MS + number,
        )
    assert producer.flush(PATIENCE_S) == 0


class Seen:
    """What handlers were given, in the order in which they began."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.values: list[int] = []
        self.by_key: dict[bytes, list[int]] = defaultdict(list)
        self.running: Counter[bytes] = Counter()
        self.overlaps: set[bytes] = set()

    def __call__(self, record: ConsumerRecord[Any, Any]) -> None:
        with self.lock:
            self.running[record.key] += 1
            if self.running[record.key] > 1:
                self.overlaps.add(record.key)
            self.values.append(int(record.value))
            self.by_key[record.key].append(int(record.value))
        with self.lock:
            self.running[record.key] -= 1


def test_keys_stay_in_order_and_everything_is_committed(members: Members) -> None:
    write(members, 500, keys=7)
    seen = Seen()
    member = members(seen, concurrency=6)
    eventually(lambda: len(seen.values) == 500, "all records")
    eventually(lambda: members.committed() == 500, "the periodic commit")
    member.stop()
    assert seen.overlaps == set()
    assert all(values == sorted(values) for values in seen.by_key.values())
    assert len(seen.by_key) == 7

    write(members, 3)
    again = Seen()
    second = members(again)
    eventually(lambda: len(again.values) >= 3, "what is new")
    second.stop()
    assert again.values == [0, 1, 2]
    assert members.committed() == 503, "closing commits"


def test_keys_are_worked_on_at_once(members: Members) -> None:
    meeting = threading.Barrier(4)

    def handle(record: ConsumerRecord[Any, Any]) -> None:
        meeting.wait(PATIENCE_S)

    write(members, 8, keys=4)
    members(handle, concurrency=4, retries=0)
    eventually(lambda: members.committed() == 8, "four keys met twice")


def test_partition_order_is_one_at_a_time(members: Members) -> None:
    running, most, done = 0, 0, []
    lock = threading.Lock()

    def handle(record: ConsumerRecord[Any, Any]) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        with lock:
            running -= 1
            done.append(record.offset)

    write(members, 50, keys=10)
    members(handle, ordering="partition", concurrency=4)
    eventually(lambda: len(done) == 50, "all records")
    assert most == 1
    assert done == list(range(50))


def test_commits_keep_to_their_interval(members: Members) -> None:
    seen = Seen()
    member = members(seen, auto_commit_interval_ms=3_600_000)
    for count in (1, 2, 3):  # a turn of its loop each, at which it might commit
        write(members, 1)
        eventually(lambda count=count: len(seen.values) == count, "the record")  # type: ignore[misc]
    assert members.committed() == -1
    member.stop()
    assert members.committed() == 3, "closing commits"


def test_nothing_is_committed_past_what_is_not_done(members: Members) -> None:
    blocked, release, done = threading.Event(), threading.Event(), []

    def handle(record: ConsumerRecord[Any, Any]) -> None:
        if record.offset == 3:
            blocked.set()
            assert release.wait(PATIENCE_S)
        done.append(record.offset)

    write(members, 20, keys=20)
    members(handle, concurrency=4)
    assert blocked.wait(PATIENCE_S)
    eventually(lambda: len(done) == 19, "the others")
    eventually(lambda: members.committed() == 3, "the records before it")
    release.set()
    eventually(lambda: members.committed() == 20, "all")


def test_too_much_in_the_works_is_not_fetched(members: Members) -> None:
    release = threading.Event()

    def handle(record: ConsumerRecord[Any, Any]) -> None:
        assert release.wait(PATIENCE_S)

    write(members, 300, keys=300)
    member = members(handle, concurrency=2, queued_max=10, max_poll_records=5)
    inner = getattr(member.consumer, "_inner", member.consumer)
    eventually(lambda: bool(inner._consumer.paused), "a pause")
    (claim,) = inner._plan._claims.values()
    assert len(claim.unfinished) < 15
    assert member.consumer.assignment
    release.set()
    eventually(lambda: members.committed() == 300, "all, after going on")


# Failures


def dead_letters(members: Members, topic: str, count: int) -> list[Any]:
    settings = {"bootstrap.servers": members.bootstrap, "group.id": f"dead-{topic}", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings)
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        return [consumer.poll(PATIENCE_S) for _ in range(count)]
    finally:
        consumer.close()


def test_a_failure_that_passes_is_tried_again_in_its_order(members: Members) -> None:
    order, failures = [], Counter[int]()

    def handle(record: ConsumerRecord[Any, Any]) -> None:
        if record.offset == 1 and failures[1] < 2:
            failures[1] += 1
            raise ConnectionError("a moment, please")
        order.append(record.offset)

    write(members, 4, keys=1)
    members(handle, retries=NO_PAUSE)
    eventually(lambda: members.committed() == 4, "all")
    assert order == [0, 1, 2, 3]


def test_a_pattern_does_not_match_its_own_dead_letters(members: Members) -> None:
    dead = make_topic(members.bootstrap, f"{members.topic}.dlt")
    other = make_topic(members.bootstrap, f"{members.topic}.other")
    topics: list[str] = []

    def handle(record: ConsumerRecord[Any, Any]) -> None:
        topics.append(record.topic)
        raise LookupError("no such customer")

    write(members, 2)
    member = members(handle, topics=re.compile(f"^{members.topic}"), retries=0)
    assert len(dead_letters(members, dead, 2)) == 2
    write(members, 1, topic=other)
    eventually(lambda: topics.count(other) == 1, "a topic that is like it, but not for dead letters")
    assert member.consumer.assignment == {TopicPartition(members.topic, 0), TopicPartition(other, 0)}
    assert topics.count(members.topic) == 2
    assert dead not in topics


def test_what_keeps_failing_goes_to_the_dead_letters(members: Members) -> None:
    dead = make_topic(members.bootstrap, f"{members.topic}.dlt")
    tries, done = Counter[int](), []

    def handle(record: ConsumerRecord[Any, Any]) -> None:
        tries[record.offset] += 1
        if record.offset in (1, 2):
            raise LookupError("no such customer")
        done.append(record.offset)

    write(members, 5, keys=5)
    members(handle, retries=NO_PAUSE, no_retry=(KeyError,))
    eventually(lambda: members.committed() == 5, "all but two, and past those")
    assert sorted(done) == [0, 3, 4]
    assert tries == {0: 1, 1: 3, 2: 3, 3: 1, 4: 1}
    letters = sorted(dead_letters(members, dead, 2), key=lambda letter: letter.key())
    for number, letter in enumerate(letters, start=1):
        assert (letter.key(), letter.value()) == (b"key-%d" % number, b"%d" % number)
        assert letter.timestamp()[1] == NOW_MS + number
        headers = dict(letter.headers())
        assert headers.pop("n") == b"%d" % number
        assert headers == {
            "ottla.dead-letter.topic": members.topic.encode(),
            "ottla.dead-letter.partition": b"0",
            "ottla.dead-letter.offset": b"%d" % number,
            "ottla.dead-letter.timestamp": b"%d" % (NOW_MS + number),
            "ottla.dead-letter.group": members.group_id.encode(),
            "ottla.dead-letter.exception": b"builtins.LookupError",
            "ottla.dead-letter.message": b"no such customer",
            "ottla.dead-letter.attempts": b"3",
        }


def test_a_coroutine_behind_a_function_is_part_of_the_attempt(
    quick_broker: BrokerProcess | KafkaProcess, new_topic: str
) -> None:
    topic = make_topic(quick_broker.bootstrap, new_topic, 1)
    members = Members("aio", quick_broker.bootstrap, topic)
    failures = [LookupError("no such customer")]
    seen: list[tuple[int, str]] = []
    traced = ContextVar("traced", default="")

    async def handle(record: ConsumerRecord[Any, Any]) -> None:
        await asyncio.sleep(0)
        if failures:
            raise failures.pop()
        seen.append((record.offset, traced.get()))

    def trace(record: ConsumerRecord[Any, Any]) -> Awaitable[None]:
        traced.set("yes")
        return handle(record)

    async def test() -> None:
        servers = {"bootstrap.servers": members.bootstrap, "group.id": members.group_id}
        async with (
            asyncio.timeout(PATIENCE_S),
            ottla.aio.ParallelConsumer(
                [topic], trace, servers, auto_offset_reset="earliest", retries=NO_PAUSE
            ) as consumer,
        ):
            running = asyncio.create_task(consumer.run())
            while len(seen) < 2:
                await asyncio.sleep(0.01)
            consumer.stop()
            await running

    write(members, 2)
    run_async(test())
    assert seen == [(0, "yes"), (1, "yes")]
    assert members.committed() == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [("coroutine", b"use ottla.aio.ParallelConsumer"), ("generator", b"a generator, of which nothing has run")],
)
def test_what_a_function_leaves_undone_is_a_failure(
    quick_broker: BrokerProcess | KafkaProcess, new_topic: str, make: str, message: bytes
) -> None:
    members = Members("sync", quick_broker.bootstrap, make_topic(quick_broker.bootstrap, new_topic, 1))
    dead = make_topic(members.bootstrap, f"{new_topic}.dlt")

    async def handle_later(record: ConsumerRecord[Any, Any]) -> None: ...

    async def yields(record: ConsumerRecord[Any, Any]) -> AsyncIterator[None]:
        yield

    handler = handle_later if make == "coroutine" else yields
    try:
        write(members, 1)
        members(lambda record: handler(record), retries=0)
        (letter,) = dead_letters(members, dead, 1)
        assert message in dict(letter.headers())["ottla.dead-letter.message"]
    finally:
        members.close()


@pytest.mark.parametrize("error", [asyncio.CancelledError, concurrent.futures.CancelledError])
def test_what_a_handler_waited_for_and_was_cancelled_is_a_failure(members: Members, error: type[BaseException]) -> None:
    dead = make_topic(members.bootstrap, f"{members.topic}.dlt")
    tries = Counter[int]()

    def handle(record: ConsumerRecord[Any, Any]) -> None:
        tries[record.offset] += 1
        if record.offset == 1:
            raise error

    write(members, 3)
    members(handle, retries=NO_PAUSE)
    eventually(lambda: members.committed() == 3, "all, and past what failed")
    assert tries == {0: 1, 1: 3, 2: 1}
    (letter,) = dead_letters(members, dead, 1)
    assert letter.value() == b"1"
    assert dict(letter.headers())["ottla.dead-letter.exception"] == b"asyncio.exceptions.CancelledError"


class Odd(BaseException): ...


@pytest.mark.parametrize("kind", ["sync", "aio-threads", "aio"])
def test_whatever_a_handler_raises_is_a_failure(
    quick_broker: BrokerProcess | KafkaProcess, new_topic: str, kind: str
) -> None:
    members = Members(kind, quick_broker.bootstrap, make_topic(quick_broker.bootstrap, new_topic, 1))
    dead = make_topic(members.bootstrap, f"{new_topic}.dlt")
    errors = [StopIteration, StopAsyncIteration, GeneratorExit, Odd]
    tries = Counter[int]()

    def handle(record: ConsumerRecord[Any, Any]) -> None:
        tries[record.offset] += 1
        if record.offset < len(errors):
            raise errors[record.offset]

    async def handle_later(record: ConsumerRecord[Any, Any]) -> None:
        handle(record)

    try:
        write(members, 5)
        members(handle_later if kind == "aio" else handle, retries=ottla.Retries(1, 1, 1))
        eventually(lambda: members.committed() == 5, "all, and past what failed")
        assert tries == {0: 2, 1: 2, 2: 2, 3: 2, 4: 1}
        headers = [dict(letter.headers()) for letter in dead_letters(members, dead, 4)]
        assert b"StopIteration" in headers[0]["ottla.dead-letter.message"]
        names = [found["ottla.dead-letter.exception"].decode().rpartition(".")[2] for found in headers]
        assert names == ["RuntimeError", *(error.__name__ for error in errors[1:])]
    finally:
        members.close()


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("kind", ["sync", "aio-threads", "aio", "behind-a-function"])
def test_a_handler_that_exits_ends_the_consumer(
    quick_broker: BrokerProcess | KafkaProcess,
    new_topic: str,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    error: type[BaseException],
) -> None:
    topic = make_topic(quick_broker.bootstrap, new_topic, 2)
    members = Members("aio-threads" if kind == "behind-a-function" else kind, quick_broker.bootstrap, topic)
    begun, found, done = threading.Event(), threading.Event(), []

    def handle(record: ConsumerRecord[Any, Any]) -> None:
        if record.value == b"1":
            begun.set()
            assert found.wait(PATIENCE_S)
            eventually(lambda: inner()._idle.is_set(), "run has raised")
        if record.value == b"2":
            assert begun.wait(PATIENCE_S)
            raise error("cannot go on")
        done.append(record.value)

    async def handle_later(record: ConsumerRecord[Any, Any]) -> None:
        await asyncio.to_thread(handle, record)

    def inner() -> Any:
        return getattr(member.consumer, "_inner", member.consumer)

    try:
        write(members, 6, keys=2, partitions=2)
        member = members((lambda record: handle_later(record)) if kind == "behind-a-function" else handle)
        found.set()
        failure = member.wait_for_failure()
        assert isinstance(failure, error)
        assert failure.args == ("cannot go on",)
        assert sorted(done) == [b"0", b"1"]
        assert (members.committed(0), members.committed(1)) == (1, 1)
    finally:
        members.close()
    gc.collect()
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


def test_a_task_of_a_handler_that_somebody_cancelled_is_a_failure(
    quick_broker: BrokerProcess | KafkaProcess, new_topic: str
) -> None:
    members = Members("aio", quick_broker.bootstrap, make_topic(quick_broker.bootstrap, new_topic, 1))
    order: list[int] = []
    culprits = [0, 1]

    async def handle(record: ConsumerRecord[Any, Any]) -> None:
        if record.offset == 1 and culprits:
            if culprits.pop():
                waiting = asyncio.ensure_future(asyncio.sleep(3600))
                waiting.cancel()
                await waiting
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(3600)
        order.append(record.offset)

    try:
        write(members, 3)
        members(handle, retries=NO_PAUSE)
        eventually(lambda: members.committed() == 3, "all")
        assert order == [0, 1, 2]
    finally:
        members.close()


def test_what_cannot_be_read_or_retried_is_put_aside_at_once(members: Members) -> None:
    dead = make_topic(members.bootstrap, f"dead-of-{members.topic}")
    seen = []

    def number(data: bytes | None) -> int:
        found = int(data or b"")
        if found == 1:
            raise ValueError("one is not a number")
        return found

    def handle(record: ConsumerRecord[bytes, int]) -> None:
        seen.append(record.value)
        if record.value == 2:
            raise KeyError("gone")

    write(members, 4, keys=4)
    members(handle, value_deserializer=number, dead_letter="dead-of-{topic}", no_retry=(LookupError,))
    eventually(lambda: members.committed() == 4, "all")
    assert sorted(seen) == [0, 2, 3]
    letters = {letter.value(): dict(letter.headers()) for letter in dead_letters(members, dead, 2)}
    assert letters[b"1"]["ottla.dead-letter.exception"] == b"ottla.client.errors.DeserializationError"
    assert b"one is not a number" in letters[b"1"]["ottla.dead-letter.message"]
    assert letters[b"2"]["ottla.dead-letter.attempts"] == b"1"


@pytest.mark.parametrize(("bytes_left", "expected"), [(0, []), (500, ["topic", "partition", "offset"])])
def test_the_largest_record_there_can_be_becomes_a_dead_letter(
    members: Members, bytes_left: int, expected: list[str]
) -> None:
    dead = make_topic(members.bootstrap, f"{members.topic}.dlt")
    largest = 1_048_588 - 72  # message.max.bytes, without what a batch needs besides the value
    handled: list[int] = []

    def handle(record: ConsumerRecord[Any, Any]) -> None:
        if record.offset == 0:
            raise LookupError("x" * 2000)
        handled.append(record.offset)

    with ottla.Producer(bootstrap_servers=members.bootstrap, max_request_size=2_000_000) as producer:
        with pytest.raises(RecordTooLargeError):
            producer.send(members.topic, bytes(largest + 1)).result(PATIENCE_S)
        producer.send(members.topic, bytes(largest - bytes_left)).result(PATIENCE_S)
        producer.send(members.topic, b"next").result(PATIENCE_S)
    members(handle, retries=0)
    eventually(lambda: members.committed() == 2, "both")
    assert handled == [1]
    (letter,) = dead_letters(members, dead, 1)
    assert len(letter.value()) == largest - bytes_left
    assert [name for name, _ in letter.headers() or []] == [f"ottla.dead-letter.{name}" for name in expected]


@pytest.mark.parametrize("kind", ["sync", "aio"])
def test_a_record_beyond_a_producers_limit_becomes_a_dead_letter(new_topic: str, kind: str) -> None:
    config = {"max.message.bytes": 5_000_000}
    with EmbeddedBroker() as broker:
        broker.create_topic(new_topic, config=config)
        broker.create_topic(f"{new_topic}.dlt", config=config)
        members = Members(kind, broker.bootstrap_servers, new_topic)

        def handle(record: ConsumerRecord[Any, Any]) -> None:
            raise LookupError("no such customer")

        with ottla.Producer(bootstrap_servers=members.bootstrap, max_request_size=5_000_000) as producer:
            producer.send(new_topic, bytes(2_000_000)).result(PATIENCE_S)
        try:
            members(handle, retries=0)
            (letter,) = dead_letters(members, f"{new_topic}.dlt", 1)
            assert len(letter.value()) == 2_000_000
            assert dict(letter.headers())["ottla.dead-letter.message"] == b"no such customer"
            eventually(lambda: members.committed() == 1, "past it")
        finally:
            members.close()


def test_a_topic_that_is_too_small_for_a_dead_letter(new_topic: str) -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic(new_topic)
        broker.create_topic(f"{new_topic}.dlt", config={"max.message.bytes": 1000})
        members = Members("sync", broker.bootstrap_servers, new_topic)

        def handle(record: ConsumerRecord[Any, Any]) -> None:
            raise LookupError("no such customer")

        with ottla.Producer(bootstrap_servers=members.bootstrap) as producer:
            producer.send(new_topic, bytes(2000)).result(PATIENCE_S)
        try:
            failure = members(handle, retries=0).wait_for_failure()
            assert isinstance(failure, ProcessingError)
            assert "Give that topic a max.message.bytes" in failure.message
        finally:
            members.close()


def test_what_cannot_be_read_yet_is_waited_for(members: Members) -> None:
    tries, seen = Counter[bytes](), []

    def number(data: bytes | None) -> int:
        assert data is not None
        tries[data] += 1
        if tries[data] < 5:
            raise ClientError("the registry is away", code=ErrorCode.NETWORK_EXCEPTION)
        return int(data)

    def handle(record: ConsumerRecord[bytes, int]) -> None:
        seen.append(record.value)

    write(members, 3, keys=3)
    members(handle, value_deserializer=number, retries=ottla.Retries(0, 1, 1), dead_letter=None)
    eventually(lambda: members.committed() == 3, "all")
    assert sorted(seen) == [0, 1, 2]
    assert set(tries.values()) == {5}


@pytest.mark.parametrize(
    ("dead_letter", "message"), [(None, "no dead-letter topic"), ("not/{topic}", "could not be sent")]
)
def test_without_dead_letters_processing_stops_before_the_record(
    members: Members, dead_letter: str | None, message: str
) -> None:
    def handle(record: ConsumerRecord[Any, Any]) -> None:
        if record.offset == 2:
            raise LookupError("no such customer")

    write(members, 5)
    failure = members(handle, retries=NO_PAUSE, dead_letter=dead_letter).wait_for_failure()
    assert isinstance(failure, ProcessingError)
    assert message in failure.message
    assert failure.offset == 2
    assert members.committed() == 2


def test_dead_letters_wait_for_their_topic(new_topic: str) -> None:
    async def handle(record: ConsumerRecord[Any, Any]) -> None:
        raise LookupError("no such customer")

    async def test(broker: EmbeddedBroker) -> None:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        async with (
            ottla.aio.Producer(servers, max_block_ms=100) as producer,
            ottla.aio.ParallelConsumer(
                [new_topic], handle, servers, group_id="g", auto_offset_reset="earliest", retries=0, producer=producer
            ) as consumer,
            ottla.aio.Consumer(servers) as reader,
            asyncio.timeout(PATIENCE_S),
        ):
            await producer.send_and_wait(new_topic, b"hello")
            running = asyncio.create_task(consumer.run())
            while consumer._plan.next_due_ms() is None:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(broker.create_topic, f"{new_topic}.dlt")
            reader.assign([(f"{new_topic}.dlt", 0)])
            reader.seek_to_beginning()
            assert [letter.value for letter in await reader.poll(PATIENCE_S)] == [b"hello"]
            consumer.stop()
            await running

    with EmbeddedBroker(config={"auto.create.topics.enable": False}) as broker:
        broker.create_topic(new_topic)
        run_async(test(broker))


@pytest.mark.parametrize("owner", ["consumer", "app"])
def test_a_dead_letter_that_does_not_arrive_holds_up_no_closing(new_topic: str, owner: str) -> None:
    """Long before delivery.timeout.ms is over: its record has been given up, and will be processed again."""

    async def handle(record: ConsumerRecord[Any, Any]) -> None:
        raise LookupError("no such customer")

    async def test(broker: EmbeddedBroker) -> None:
        settings: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers, "auto_offset_reset": "earliest"}
        options: dict[str, Any] = {"group_id": "g", "retries": 0, "drain_timeout": 0.1}
        async with asyncio.timeout(PATIENCE_S):
            if owner == "app":
                app = ottla.App(**settings)
                app.listener(new_topic, **options)(handle)
                async with app:
                    await asyncio.to_thread(fault.wait, PATIENCE_S)
            else:
                async with ottla.aio.ParallelConsumer([new_topic], handle, **settings, **options) as consumer:
                    running = asyncio.create_task(consumer.run())
                    await asyncio.to_thread(fault.wait, PATIENCE_S)
                    consumer.stop()
                    await running

    with EmbeddedBroker() as broker:
        broker.create_topic(new_topic)
        with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send(new_topic, b"hello").result(PATIENCE_S)
        fault = broker.faults.drop(ApiKey.PRODUCE)
        run_async(test(broker))


# Rebalances


@pytest.mark.parametrize("protocol", ["classic", "cooperative", "consumer"])
def test_members_come_and_go_and_each_record_is_processed_once(
    quick_broker: BrokerProcess | KafkaProcess, new_topic: str, members: Members, protocol: str
) -> None:
    members.topic = make_topic(quick_broker.bootstrap, f"{new_topic}-shared", 4)
    settings: dict[str, Any] = {
        "classic": {},
        "cooperative": {"partition_assignment_strategy": "cooperative-sticky"},
        "consumer": {"group_protocol": "consumer", "session_timeout_ms": None, "heartbeat_interval_ms": None},
    }[protocol]
    lock = threading.Lock()
    counts: Counter[int] = Counter()
    held = threading.Event()

    def handle(record: ConsumerRecord[Any, Any]) -> None:
        held.wait(0.002)
        with lock:
            counts[int(record.value)] += 1

    options = {**settings, "concurrency": 4, "max_poll_records": 50}
    write(members, 1000, keys=40, partitions=4)
    first = members(handle, **options)
    eventually(lambda: len(counts) > 50, "a start")
    second = members(handle, **options)
    eventually(lambda: len(first.consumer.assignment) == 2 == len(second.consumer.assignment), "sharing")
    write(members, 1000, keys=40, partitions=4)
    first.stop()
    eventually(lambda: len(second.consumer.assignment) == 4, "one left")
    eventually(lambda: sum(counts.values()) >= 2000, "all records")
    second.stop()
    assert counts == dict.fromkeys(range(1000), 2)
    assert [members.committed(partition) for partition in range(4)] == [500, 500, 500, 500]


def test_a_member_that_is_thrown_out_comes_back_and_loses_nothing(members: Members) -> None:
    seen: Counter[int] = Counter()
    pause = threading.Event()

    def handle(record: ConsumerRecord[Any, Any]) -> None:
        pause.wait(0.002)
        seen[record.offset] += 1

    write(members, 1000, keys=20)
    member = members(handle, concurrency=4)
    eventually(lambda: len(seen) > 50, "a start")
    with ottla.Admin(bootstrap_servers=members.bootstrap) as admin:
        admin.remove_members(members.group_id).check()
    eventually(lambda: members.committed() == 1000, "everything, by the same member")
    assert set(seen) == set(range(1000))
    assert member.failure is None


def test_a_handler_that_takes_too_long_loses_its_partition(
    quick_broker: BrokerProcess | KafkaProcess, new_topic: str
) -> None:
    members = Members("aio", quick_broker.bootstrap, make_topic(quick_broker.bootstrap, new_topic, 2))
    cancelled: list[int] = []
    done: list[tuple[int, int]] = []
    begun = threading.Event()

    async def forever(record: ConsumerRecord[Any, Any]) -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(record.partition)
            raise

    async def quick(record: ConsumerRecord[Any, Any]) -> None:
        done.append((record.partition, record.offset))

    try:
        write(members, 20, keys=2, partitions=2)
        first = members(forever, drain_timeout=0.1)
        assert begun.wait(PATIENCE_S)
        members(quick)
        eventually(lambda: len(done) >= 10, "the partition that went over")
        assert done == [(done[0][0], offset) for offset in range(10)], "from its start, for nothing was committed"
        assert first.failure is None
        first.stop()
        eventually(lambda: len(done) == 20, "the other partition, once the first has left")
        assert set(cancelled) == {0, 1}
    finally:
        members.close()


def test_a_handler_that_is_cancelled_before_it_began_frees_its_worker() -> None:
    made = make_record_class("t", 0, TimestampType.CREATE_TIME, None)

    async def handle(record: ConsumerRecord[Any, Any]) -> None:
        raise AssertionError("nobody may begin")

    async def test() -> None:
        consumer = ottla.aio.ParallelConsumer(["t"], handle, bootstrap_servers="127.0.0.1:1", group_id="g")
        consumer._plan.add([made(offset, 0, b"%d" % offset, b"", ()) for offset in range(5)])
        consumer._start_ready()
        assert consumer._plan.running == 5
        await consumer._lose([TopicPartition("t", 0)])
        assert (consumer._plan.running, consumer._tasks) == (0, {})

    run_async(test())


MEMBER = """
import os, sys, time, ottla
from tests.client.parallel_members import QUICK

def handle(record):
    time.sleep(0.001)
    os.write(1, f"{record.partition}:{record.offset}:{record.key.decode()}\\n".encode())

with ottla.ParallelConsumer(
    [sys.argv[2]], handle, bootstrap_servers=sys.argv[1], group_id=sys.argv[3], concurrency=4,
    auto_offset_reset="earliest", **{**QUICK, "session_timeout_ms": 1000},
) as consumer:
    consumer.run()
"""


def test_a_killed_member_loses_nothing(quick_broker: BrokerProcess | KafkaProcess, new_topic: str) -> None:
    members = Members("sync", quick_broker.bootstrap, make_topic(quick_broker.bootstrap, new_topic, 4))
    write(members, 4000, keys=40, partitions=4)
    command = [sys.executable, "-c", MEMBER, members.bootstrap, members.topic, members.group_id]
    root = Path(__file__).parents[2]
    processes = [
        subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}
        )
        for _ in range(2)
    ]
    lines: list[list[str]] = [[], []]

    def read(number: int) -> None:
        output = processes[number].stdout
        assert output is not None
        lines[number].extend(line.strip() for line in output)

    readers = [threading.Thread(target=read, args=(number,), daemon=True) for number in range(2)]
    try:
        for reader in readers:
            reader.start()
        eventually(lambda: all(len(found) > 0 for found in lines) and sum(map(len, lines)) > 500, "both at work")
        processes[0].send_signal(signal.SIGKILL)
        processes[0].wait(PATIENCE_S)
        everything = {(partition, offset) for partition in range(4) for offset in range(1000)}
        eventually(lambda: processed(lines) >= everything, "what the dead one left is processed")
        eventually(lambda: [members.committed(partition) for partition in range(4)] == [1000] * 4, "the commits")
    finally:
        for process in processes:
            process.kill()
            process.wait(PATIENCE_S)
        for reader in readers:
            reader.join(PATIENCE_S)
    for found in lines:
        keys: dict[str, list[int]] = defaultdict(list)
        for partition, offset, key in (line.split(":") for line in found if line.count(":") == 2):
            assert partition
            keys[key].append(int(offset))
        assert all(is_in_order(offsets) for offsets in keys.values())


def processed(lines: list[list[str]]) -> set[tuple[int, int]]:
    whole = [line.split(":") for found in lines for line in list(found) if line.count(":") == 2]
    return {(int(partition), int(offset)) for partition, offset, _ in whole}


def is_in_order(offsets: list[int]) -> bool:
    """A key is read on from offset to offset; it starts over only where a partition has come once more."""
    drops = sum(later <= earlier for earlier, later in pairwise(offsets))
    return drops <= 2


HANGING = """
import sys, threading, ottla

def handle(record):
    if record.offset == 1:
        consumer.stop()
        threading.Event().wait()

with ottla.ParallelConsumer(
    [sys.argv[2]], handle, bootstrap_servers=sys.argv[1], group_id="g", auto_offset_reset="earliest", drain_timeout=0.1
) as consumer:
    consumer.run()
print("closed")
"""


def test_a_handler_that_hangs_is_named_and_does_not_keep_the_process_alive(
    quick_broker: BrokerProcess | KafkaProcess, new_topic: str
) -> None:
    members = Members("sync", quick_broker.bootstrap, make_topic(quick_broker.bootstrap, new_topic, 1))
    write(members, 3, keys=3)
    command = [sys.executable, "-c", HANGING, members.bootstrap, members.topic]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert ended.stdout == "closed\n"
    assert f"still being handled, and given up for somebody to process again: {new_topic}-0@1\n" in ended.stderr


# What cannot be


def test_settings_that_cannot_be() -> None:
    def handle(record: ConsumerRecord[Any, Any]) -> None: ...

    async def handle_later(record: ConsumerRecord[Any, Any]) -> None: ...

    async def yields(record: ConsumerRecord[Any, Any]) -> AsyncIterator[None]:
        yield

    class Later:
        async def __call__(self, record: ConsumerRecord[Any, Any]) -> None: ...

    for made in (ottla.ParallelConsumer, ottla.aio.ParallelConsumer):
        with pytest.raises(InvalidConfigError, match=r"group\.id is needed"):
            made(["t"], handle, bootstrap_servers="127.0.0.1:1")
        with pytest.raises(InvalidConfigError, match=r"enable\.auto\.commit cannot be on"):
            made(["t"], handle, bootstrap_servers="127.0.0.1:1", group_id="g", enable_auto_commit=True)
        with pytest.raises(InvalidConfigError, match=r"group\.idd"):
            made(["t"], handle, bootstrap_servers="127.0.0.1:1", group_id="g", group_idd="g")
        with pytest.raises(ValueError, match="dead-letter topic"):
            made(["t"], handle, bootstrap_servers="127.0.0.1:1", group_id="g", dead_letter="{topic}")
        with pytest.raises(TypeError, match="a generator function, which does not run"):
            made(["t"], yields, bootstrap_servers="127.0.0.1:1", group_id="g")
    with pytest.raises(TypeError, match=r"a producer can be given to ottla\.aio\.ParallelConsumer only"):
        ottla.ParallelConsumer(["t"], handle, bootstrap_servers="127.0.0.1:1", group_id="g", producer=None)
    for handler in (handle_later, Later()):
        with pytest.raises(TypeError, match=r"use ottla\.aio\.ParallelConsumer"):
            ottla.ParallelConsumer(["t"], handler, bootstrap_servers="127.0.0.1:1", group_id="g")


def test_a_cluster_that_is_not_there(members: Members) -> None:
    with pytest.raises(ottla.errors.ClusterUnreachableError, match=r"Check bootstrap\.servers"):
        members(lambda record: None, bootstrap_servers="127.0.0.1:1", bootstrap_fail_fast=True)


def test_use_after_closing(members: Members) -> None:
    member = members(lambda record: None)
    member.stop()
    with pytest.raises(ottla.errors.ClientClosedError):
        if members.kind == "aio":
            asyncio.run(member.consumer.run())
        else:
            member.consumer.run()


@pytest.mark.parametrize("kind", ["sync", "aio"])
def test_a_consumer_that_was_stopped_does_not_run_again(
    quick_broker: BrokerProcess | KafkaProcess, new_topic: str, kind: str
) -> None:
    topic = make_topic(quick_broker.bootstrap, new_topic)
    settings: dict[str, Any] = {"bootstrap_servers": quick_broker.bootstrap, "group_id": "g"}

    async def test() -> None:
        async with ottla.aio.ParallelConsumer([topic], lambda record: None, **settings) as consumer:
            consumer.stop()
            await consumer.run()
            with pytest.raises(ottla.errors.ClientClosedError, match="was stopped; make another one"):
                await consumer.run()

    if kind == "aio":
        run_async(test())
        return
    with ottla.ParallelConsumer([topic], lambda record: None, **settings) as consumer:
        consumer.stop()
        consumer.run()
        with pytest.raises(ottla.errors.ClientClosedError, match="was stopped; make another one"):
            consumer.run()


@pytest.mark.parametrize("kind", ["sync", "aio"])
def test_run_returns_when_somebody_else_closes(
    quick_broker: BrokerProcess | KafkaProcess, new_topic: str, kind: str
) -> None:
    topic = make_topic(quick_broker.bootstrap, new_topic)
    settings: dict[str, Any] = {"bootstrap_servers": quick_broker.bootstrap, "group_id": new_topic}

    async def test() -> None:
        consumer = await ottla.aio.ParallelConsumer([topic], lambda record: None, **settings).start()
        running = asyncio.create_task(consumer.run())
        async with asyncio.timeout(PATIENCE_S):
            while not consumer.assignment:
                await asyncio.sleep(0.01)
            await consumer.close()
            await running

    if kind == "aio":
        run_async(test())
        return
    consumer = ottla.ParallelConsumer([topic], lambda record: None, **settings)
    with concurrent.futures.ThreadPoolExecutor() as threads:
        running = threads.submit(consumer.run)
        eventually(lambda: bool(consumer.assignment), "the group is joined")
        consumer.close()
        running.result(PATIENCE_S)
