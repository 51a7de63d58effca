"""The producer's engine without a broker: when it looks at what is due, what ends its tasks, and who is told then."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import nullcontext
from typing import Any

import pytest

from ottla.base.clock import ManualClock
from ottla.base.errors import ErrorCode, KafkaError, OttlaError
from ottla.client.aio.producer import engine as engine_module
from ottla.client.aio.producer.engine import ProducerEngine, _is_passing, wait_done
from ottla.client.core.outages import Outages
from ottla.client.core.producer.batch import Batch
from ottla.client.core.producer.options import ProducerSettings
from ottla.client.errors import ClientClosedError, ClientError, MetadataTimeoutError
from ottla.wire.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.log_lines import lines_of
from tests.unit.client.loop_time import run

E = ErrorCode


class Clock(ManualClock):
    """That of the loop."""

    def monotonic_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)


class Engine(ProducerEngine):
    """Counts its looks, and does nothing in them unless a test says so."""

    def __init__(self, *, looks: Any = False, **settings: Any) -> None:
        self.freed = 0
        self.asked: list[list[str]] = []
        self.answers: list[Any] = []
        given = ProducerSettings.parse({"bootstrap.servers": "x:1", "retry.backoff.ms": 100, **settings})
        super().__init__(given, lock=nullcontext(), on_memory=self._freed)
        self.clock = Clock()  # type: ignore[assignment]
        self.looked_s: list[float] = []
        self._really_looks = looks
        self.sender.set_producer(7, 0)
        self.link.ask_metadata = self._ask_metadata  # type: ignore[method-assign, assignment]

    def _freed(self) -> None:
        self.freed += 1

    def _look(self) -> None:
        self.looked_s.append(asyncio.get_running_loop().time())
        if self._really_looks:
            super()._look()

    async def _ask_metadata(self, topics: list[str], *, create_missing: bool) -> MetadataResponse:
        assert create_missing
        self.asked.append(topics)
        answer = self.answers.pop(0) if self.answers else MetadataResponse()
        if isinstance(answer, OttlaError):
            raise answer
        assert isinstance(answer, MetadataResponse)
        return answer


async def rounds(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def batch(*values: bytes) -> Batch:
    made = Batch("t", 0, (0,), opened_ms=0, deadline_ms=1)
    for value in values or (b"v",):
        made.add((None, value, (), 0), 20)
    return made


# Looks


def test_however_often_it_is_woken_it_looks_once() -> None:
    async def scenario() -> None:
        engine = Engine()
        for expected in (1, 2):
            for _ in range(3):
                engine.wake()
            await rounds()
            assert len(engine.looked_s) == expected
        for expected in (3, 4):
            for _ in range(3):
                engine.wake_from_thread()
            await rounds()
            assert len(engine.looked_s) == expected
        engine.close()
        engine.wake()
        engine.wake_from_thread()
        await rounds()
        assert len(engine.looked_s) == 4 and not engine._pump_scheduled

    run(scenario)


def test_a_thread_that_comes_after_the_end_of_the_loop_is_not_held_up() -> None:
    async def scenario() -> None:
        engine = Engine()
        engine._loop = asyncio.SelectorEventLoop()
        engine._loop.close()
        engine.wake_from_thread()

    run(scenario)


def test_what_is_due_next_sets_the_timer() -> None:
    async def scenario() -> None:
        engine = Engine(looks=True)
        pumped: list[float] = []
        engine.on_pump = lambda: pumped.append(asyncio.get_running_loop().time())
        engine.answers = [KafkaError("away", code=E.NETWORK_EXCEPTION)] * 2
        engine.wake()
        await asyncio.sleep(0.99)
        # At once, and after 100 and 200 ms; an answer that tells of nothing is no failure.
        assert len(engine.asked) == 3 and engine.metadata_error is None
        assert set(pumped) == set(engine.looked_s)
        assert sorted(set(pumped)) == pytest.approx([0.0, 0.1, 0.3])
        await asyncio.sleep(299)
        assert len(engine.asked) == 3
        await asyncio.sleep(1)
        assert len(engine.asked) == 4, "metadata.max.age.ms"
        engine.close()
        await asyncio.sleep(1000)
        assert len(engine.asked) == 4

    run(scenario)


def test_why_metadata_could_not_be_had_is_kept_until_they_can() -> None:
    async def scenario() -> None:
        engine = Engine(looks=True)
        engine.answers = [KafkaError("away", code=E.NETWORK_EXCEPTION), OttlaError("nonsense"), MetadataResponse()]
        engine.metadata.use("t", 0)
        engine.metadata.use("s", 0)
        changed = engine._metadata_changed
        engine.wake()
        await rounds(9)
        assert changed.done() and not engine._metadata_changed.done() and not engine._refreshing
        told: list[Any] = []

        def look() -> None:
            error = engine.metadata_error
            told.append((error and error.code, engine.why_waiting()))

        look()
        await asyncio.sleep(0.11)
        look()
        await asyncio.sleep(0.25)
        look()
        assert told == [(E.NETWORK_EXCEPTION, "away"), (E.UNKNOWN_SERVER_ERROR, "nonsense"), (None, "")]
        assert engine.asked == [["s", "t"]] * 3
        engine.close()

    run(scenario)


# Tasks


def test_a_task_is_kept_until_it_ends_and_cancelled_by_closing() -> None:
    async def scenario() -> None:
        engine = Engine()
        cancelled: list[str] = []
        engine.spawn(asyncio.sleep(5))
        hanging, own = asyncio.Event(), asyncio.Event()

        async def hang(event: asyncio.Event) -> None:
            await event.wait()

        engine.spawn(hang(hanging))
        engine.spawn(hang(own), on_cancel=lambda: cancelled.append("own"))
        await asyncio.sleep(6)
        assert len(engine._tasks) == 2
        engine._refreshing = engine._asking_producer_id = True
        for task in list(engine._tasks):
            task.cancel()
        await rounds()
        assert cancelled == ["own"] and not engine._refreshing and not engine._asking_producer_id
        assert len(engine.looked_s) == 1, "what was broken off is begun again"
        engine.spawn(hang(own), on_cancel=lambda: cancelled.append("closed"))
        engine.close()
        await engine.wait_ended()
        await rounds()
        assert cancelled == ["own"] and not engine._tasks

    run(scenario)


@pytest.mark.parametrize("how", ["in a task", "in a look", "in an answer"])
def test_a_mistake_breaks_the_producer_once_and_for_all(how: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        engine = Engine()

        def fail(*_: object) -> Any:
            raise ZeroDivisionError("by zero")

        async def failing() -> None:
            fail()

        waiting = engine._metadata_changed
        if how == "in a task":
            engine.spawn(failing())
        elif how == "in a look":
            engine._look = fail  # type: ignore[method-assign]
            engine.wake()
        else:
            engine._failed = fail  # type: ignore[method-assign, assignment]
            engine._told(None, KafkaError("no"))  # type: ignore[arg-type]
        await rounds()
        error = engine.sender.fatal_error
        assert error is not None and error.fatal
        assert error.message == "the producer has failed (ZeroDivisionError: by zero); close it and open another"
        assert waiting.done() and engine.freed == 1
        looks = len(engine.looked_s)
        engine.wake()
        await rounds()
        assert len(engine.looked_s) == looks, "there is nothing more to do"

    run(scenario)
    (line,) = lines_of(caplog, engine_module.__name__)
    assert (line.levelno, line.getMessage()) == (logging.ERROR, "the producer has failed")
    assert line.exc_info is not None and isinstance(line.exc_info[1], ZeroDivisionError)


def test_answers_that_come_after_the_end_are_nobodys() -> None:
    async def scenario() -> None:
        engine = Engine()
        engine.close()
        engine._failed = pytest.fail  # type: ignore[method-assign, assignment]
        engine._told(None, KafkaError("no"))  # type: ignore[arg-type]
        assert engine.sender.fatal_error is None

    run(scenario)


# Limits


def test_a_limit_is_the_end_of_its_block() -> None:
    async def scenario() -> None:
        engine = Engine()
        async with engine.limit(1000):
            await asyncio.sleep(0.9)
        with pytest.raises(TimeoutError):
            async with engine.limit(1000):
                await asyncio.sleep(1.1)
        assert asyncio.get_running_loop().time() == 1.9 and not engine._limits

        async def wait() -> None:
            async with engine.limit(60_000):
                await asyncio.Event().wait()

        waiting = [asyncio.ensure_future(wait()) for _ in range(2)]
        await rounds()
        engine.close()
        for one in waiting:
            with pytest.raises(ClientClosedError, match="the producer was closed while this call waited"):
                await one
        assert asyncio.get_running_loop().time() == 1.9
        with pytest.raises(ClientClosedError):
            await wait()

    run(scenario)


# Who is told


def test_those_who_wait_for_batches_are_told_after_callbacks_and_all_of_them(caplog: pytest.LogCaptureFixture) -> None:
    told: list[object] = []

    def fail(*_: object) -> None:
        told.append("failed")
        raise ZeroDivisionError

    def leave() -> None:
        told.append("left")
        raise SystemExit(3)

    async def scenario() -> None:
        engine = Engine()
        first, second = batch(b"a", b"b"), batch(b"c")
        first.callbacks.append((1, lambda metadata, error: told.append((metadata and metadata.offset, error))))
        first.callbacks.append((0, fail))
        first.add_waiter(lambda: told.append("first"))
        second.add_waiter(leave)
        second.add_waiter(lambda: told.append("second"))
        first.succeed(40)
        second.succeed(50)
        engine.finish([])
        engine.finish([first, second])
        assert told == [(41, None), "failed", "first", "left", "second"]
        assert engine.freed == 0, "nobody waits for memory"
        engine.accumulator.waiting = 1
        engine.finish([])
        assert engine.freed == 0
        engine.finish([first])
        assert engine.freed == 1
        ((handle, _),) = engine._loop._ready  # type: ignore[attr-defined]
        with pytest.raises(SystemExit) as left:
            handle._callback(*handle._args)
        assert left.value.code == 3, "it leaves through the loop, when all have been told"
        handle.cancel()

    run(scenario)
    lines = lines_of(caplog, engine_module.__name__)
    assert {line.getMessage() for line in lines} == {"a delivery callback failed"}


def test_a_batch_is_waited_for_until_it_is_done() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        one = batch()
        waiting = [asyncio.ensure_future(wait_done(one, loop)) for _ in range(2)]
        await rounds()
        waiting[0].cancel()
        await rounds()
        one.fail(ClientError("no"))
        for tell in one.announce():
            tell()
        await waiting[1]
        await wait_done(one, loop)

    run(scenario)


@pytest.mark.parametrize("is_given_up", [True, False])
def test_a_flush_hurries_what_there_is_and_waits_for_nothing_else(is_given_up: bool) -> None:
    async def scenario() -> None:
        engine = Engine()
        await engine.flush()
        await rounds()
        assert engine.sender.flushing == 0
        before, after = batch(), batch()
        engine.accumulator.incomplete[before] = None
        looks = len(engine.looked_s)
        flushing = asyncio.ensure_future(engine.flush())
        await rounds()
        assert engine.sender.flushing == 1 and len(engine.looked_s) == looks + 1
        engine.accumulator.incomplete[after] = None
        if is_given_up:
            flushing.cancel()
        else:
            before.succeed(0)
            engine.finish([before])
        await asyncio.wait([flushing])
        assert flushing.cancelled() is is_given_up and engine.sender.flushing == 0

    run(scenario)


# Topics


def known(partitions: int, code: int = 0) -> MetadataResponse:
    entries = [MetadataResponsePartition(partition_index=n, leader_id=1, leader_epoch=0) for n in range(partitions)]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="h", port=1)],
        topics=[MetadataResponseTopic(name="t", error_code=code, partitions=entries)],
    )


def test_a_topic_is_waited_for_from_when_it_was_asked_for() -> None:
    async def scenario() -> None:
        engine = Engine(looks=True)
        engine.answers = [known(0, E.LEADER_NOT_AVAILABLE)] * 100
        await asyncio.sleep(1)
        for asked_ms, until_s in ((None, 1.5), (1200, 1.7), (1000, 1.7)):
            with pytest.raises(MetadataTimeoutError, match="nothing could be learnt within 500 ms"):
                await engine.topic("t", 500, asked_ms=asked_ms)
            assert asyncio.get_running_loop().time() == pytest.approx(until_s)
        engine.answers = [known(2)]
        found = await engine.topic("t", 60_000)
        assert found.partition_count == 2
        engine.close()

    run(scenario)


@pytest.mark.parametrize(
    ("code", "passes"),
    [
        (E.LEADER_NOT_AVAILABLE, True),
        (E.UNKNOWN_TOPIC_OR_PARTITION, True),
        (E.NETWORK_EXCEPTION, True),
        (E.TOPIC_AUTHORIZATION_FAILED, False),
        (E.INVALID_TOPIC_EXCEPTION, False),
        (E.UNKNOWN_SERVER_ERROR, False),
        (31_999, False),
    ],
)
def test_which_errors_of_topics_pass(code: int, passes: bool) -> None:
    assert _is_passing(code) is passes


def test_a_topic_is_not_waited_for_by_one_that_is_closed_or_has_failed() -> None:
    async def scenario() -> None:
        engine = Engine()
        engine.take_no_more()
        with pytest.raises(ClientClosedError, match="was closed while this call waited"):
            await engine.topic("t", 1000)
        engine.metadata.update(known(1), 0)
        assert (await engine.topic("t", 1000)).name == "t", "what is known may still be sent"
        failed = Engine()
        waiting = asyncio.ensure_future(failed.topic("t", 1000))
        await rounds()
        failed._fail_for_good(ClientError("fenced"))
        with pytest.raises(ClientError, match="fenced") as refused:
            await waiting
        assert refused.value.fatal and refused.value is not failed.sender.fatal_error, "a copy for everybody"
        assert failed.freed == 1

    run(scenario)


def test_an_engine_is_made_from_the_settings() -> None:
    async def scenario() -> None:
        outages = Outages("shared")
        settings = ProducerSettings.parse({"bootstrap.servers": "x:1"})
        engine = ProducerEngine(settings, lock=threading.Lock(), on_memory=lambda: None, outages=outages)
        assert engine.link.outages is outages and engine.link.client_id == "ottla-producer"
        assert engine.transaction is None
        transactional = Engine(**{"transactional.id": "x", "client.id": "me"})
        assert transactional.transaction is not None and transactional.link.client_id == "me"
        transactional.sender.fatal_error = None
        transactional._fail_for_good(ClientError("over"))
        assert transactional.transaction.gives_up_records is not None

    run(scenario)
