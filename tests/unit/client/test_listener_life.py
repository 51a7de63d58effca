"""When a listener starts again and how long it waits before that, in a loop where hours pass at once."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from ottla.base.errors import ErrorCode, KafkaError, OttlaError
from ottla.base.types import TopicPartition
from ottla.client.app import listening
from ottla.client.app.listening import Listener
from ottla.client.core.outages import Outages
from ottla.client.errors import ClientError, ListenerError, ProcessingError
from tests.log_lines import lines_of, messages_of
from tests.unit.client.loop_time import run

AWAY = KafkaError("away", code=ErrorCode.NETWORK_EXCEPTION)
FINAL = ProcessingError("nowhere to put it", topic_partition=TopicPartition("there", 0), offset=0)


class Consumer:
    """Fails after as many seconds as the test's plan says, and runs until it is stopped when that is at its end."""

    plan: ClassVar[list[tuple[float, BaseException]]]
    start_failures: ClassVar[list[BaseException | None]]
    made: ClassVar[list[Consumer]]
    start_takes_s: ClassVar[float]

    def __init__(self, topics: Any, handler: Any, settings: Any, *, producer: Any, **options: Any) -> None:
        self.given = (topics, settings, producer, options)
        self.handler = handler
        self.made_s = asyncio.get_running_loop().time()
        self.outages: object = None
        self.has_run = False
        self.closed = 0
        self._stopped = asyncio.Event()
        self.made.append(self)

    def _share_outages(self, outages: object) -> None:
        self.outages = outages

    async def start(self) -> Consumer:
        await asyncio.sleep(self.start_takes_s)
        if self.start_failures and (failure := self.start_failures.pop(0)) is not None:
            raise failure
        return self

    async def partitions_of(self, topic: str) -> int:
        return {"there": 1}.get(topic, 0)

    async def run(self) -> None:
        self.has_run = True
        if self.plan:
            after_s, failure = self.plan.pop(0)
            await asyncio.sleep(after_s)
            raise failure
        await self._stopped.wait()

    def stop(self) -> None:
        self._stopped.set()

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture(autouse=True)
def consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "ParallelConsumer", Consumer)
    for name, value in (("plan", []), ("start_failures", []), ("made", []), ("start_takes_s", 0.0)):
        monkeypatch.setattr(Consumer, name, value, raising=False)


async def listen(value: bytes) -> None: ...


def listener(*topics: str, function: Callable[..., object] = listen) -> Listener:
    return Listener("orders", function, topics or ("there",), {"group.id": "g"}, {"concurrency": 3})


PRODUCER: Any = object()


async def started(*topics: str, outages: Outages | None = None, requires_topics: bool = False) -> Listener:
    made = listener(*topics)
    await made.start(PRODUCER, outages or Outages("app"), requires_topics=requires_topics)
    return made


def test_a_consumer_is_made_of_what_the_listener_was_given() -> None:
    async def scenario() -> None:
        outages = Outages("app")
        made = await started("there", "gone", outages=outages)
        (consumer,) = Consumer.made
        assert consumer.given == (("there", "gone"), {"group.id": "g"}, PRODUCER, {"concurrency": 3})
        assert consumer.outages is outages
        assert made._task is not None and made._task.get_name() == "orders"
        await made.stop()
        assert consumer.has_run is False and consumer.closed == 1, "it was stopped before it began"

    run(scenario)


def test_pauses_double_up_to_half_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    Consumer.plan = [(0.0, AWAY)] * 9

    async def scenario() -> None:
        made = await started()
        await asyncio.sleep(500)
        await made.stop()
        assert [consumer.made_s for consumer in Consumer.made] == [0, 0.5, 1.5, 3.5, 7.5, 15.5, 31.5, 61.5, 91.5, 121.5]
        assert [consumer.closed for consumer in Consumer.made] == [1] * 10
        assert made.failure is None

    run(scenario)
    pauses_ms = [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]
    assert messages_of(caplog, listening.__name__) == [
        f"the listener orders starts again in {pause_ms} ms: NETWORK_EXCEPTION: away" for pause_ms in pauses_ms
    ]
    assert {record.levelno for record in lines_of(caplog, listening.__name__)} == {logging.ERROR}


@pytest.mark.parametrize(("lasted_s", "next_pause_s"), [(29.0, 2.0), (30.0, 2.0), (30.5, 0.5), (3600.0, 0.5)])
def test_who_has_run_for_more_than_half_a_minute_is_back_soon(lasted_s: float, next_pause_s: float) -> None:
    Consumer.plan = [(0.0, AWAY), (0.0, AWAY), (lasted_s, AWAY)]

    async def scenario() -> None:
        made = await started()
        await asyncio.sleep(10_000)
        third, fourth = Consumer.made[2:]
        assert fourth.made_s - third.made_s - lasted_s == next_pause_s
        await made.stop()

    run(scenario)


def test_a_consumer_that_cannot_start_is_made_again_and_closed() -> None:
    Consumer.plan = [(0.0, AWAY)]
    Consumer.start_failures = [None, AWAY, AWAY]

    async def scenario() -> None:
        made = await started()
        await asyncio.sleep(100)
        assert [consumer.made_s for consumer in Consumer.made] == [0, 0.5, 1.5, 3.5]
        assert [(consumer.has_run, consumer.closed) for consumer in Consumer.made] == [
            (True, 1),
            (False, 1),
            (False, 1),
            (True, 0),
        ]
        await made.stop()

    run(scenario)


def test_the_first_start_fails_for_whoever_asked_for_it() -> None:
    Consumer.start_failures = [AWAY]

    async def scenario() -> None:
        with pytest.raises(KafkaError, match="away"):
            await started()
        assert [consumer.closed for consumer in Consumer.made] == [1]

    run(scenario)


def test_a_stop_ends_the_pause() -> None:
    Consumer.plan = [(0.0, AWAY)] * 9

    async def scenario() -> None:
        made = await started()
        await asyncio.sleep(40)
        count = len(Consumer.made)
        await made.stop()
        assert asyncio.get_running_loop().time() == 40
        await asyncio.sleep(500)
        assert len(Consumer.made) == count

    run(scenario)


def test_a_stop_while_a_consumer_starts_keeps_it_from_running() -> None:
    Consumer.plan = [(0.0, AWAY)]

    async def scenario() -> None:
        made = await started()
        Consumer.start_takes_s = 5.0
        await asyncio.sleep(1)
        await made.stop()
        assert asyncio.get_running_loop().time() == 5.5
        assert [(consumer.has_run, consumer.closed) for consumer in Consumer.made] == [(True, 1), (False, 1)]

    run(scenario)


@pytest.mark.parametrize(
    ("failure", "is_last"),
    [
        (FINAL, True),
        (ClientError("fenced", fatal=True), True),
        (ClientError("not now"), False),
        (AWAY, False),
        (OttlaError("something else"), False),
    ],
)
def test_only_what_cannot_pass_is_the_end(failure: OttlaError, is_last: bool, caplog: pytest.LogCaptureFixture) -> None:
    Consumer.plan = [(0.0, failure)]

    async def scenario() -> None:
        made = await started()
        await asyncio.sleep(100)
        assert made.failure is (failure if is_last else None)
        assert len(Consumer.made) == (1 if is_last else 2)
        await made.stop()
        assert [consumer.closed for consumer in Consumer.made] == [1] * len(Consumer.made)
        await made.start(PRODUCER, Outages("app"), requires_topics=False)
        assert made.failure is None
        await asyncio.sleep(1)
        assert Consumer.made[-1].has_run
        await made.stop()

    run(scenario)
    (told,) = messages_of(caplog, listening.__name__)
    again = f"the listener orders starts again in 500 ms: {failure}"
    assert told == (f"the listener orders has ended: {failure}" if is_last else again)


def test_every_topic_that_is_missing_is_named() -> None:
    async def scenario() -> None:
        with pytest.raises(ListenerError) as refused:
            await started("gone", "there", "lost", requires_topics=True)
        assert refused.value.message == (
            "orders listens to gone, lost, which does not exist; create it, or start the application without"
            " require_topics"
        )
        pattern = Listener("orders", listen, re.compile("gone"), {}, {})
        await pattern.start(PRODUCER, Outages("app"), requires_topics=True)
        await pattern.stop()
        await (await started("there", requires_topics=True)).stop()

    run(scenario)


def test_a_listener_that_was_refused_is_closed_by_a_stop() -> None:
    async def scenario() -> None:
        made = listener("gone")
        with pytest.raises(ListenerError):
            await made.start(PRODUCER, Outages("app"), requires_topics=True)
        (consumer,) = Consumer.made
        assert consumer.closed == 0
        await made.stop()
        await made.stop()
        assert (consumer.has_run, consumer.closed) == (False, 1)

    run(scenario)


@pytest.mark.parametrize(
    ("error", "told"),
    [(ZeroDivisionError("a defect"), 1), (SystemExit(3), 0), (KeyboardInterrupt(), 0), (None, 0)],
)
def test_a_defect_is_told_of_and_an_exit_is_not(
    error: BaseException | None, told: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        ended: Any = asyncio.get_running_loop().create_future()
        if error is None:
            ended.cancel()
        else:
            ended.set_exception(error)
        listener()._ended(ended)

    run(scenario)
    records = lines_of(caplog, listening.__name__)
    assert [record.getMessage() for record in records] == ["the listener orders has ended"] * told
    assert [record.exc_info and record.exc_info[1] for record in records] == [error] * told


def test_what_no_listener_can_be_is_refused_before_it_starts() -> None:
    def strange(value): ...  # type: ignore[no-untyped-def]

    with pytest.raises(ListenerError, match="annotate value"):
        listener(function=strange).check()
    listener().check()


def test_a_coroutine_is_waited_for_and_what_a_function_returns_is_passed_on() -> None:
    called: list[str] = []

    async def slowly(value: str) -> None:
        await asyncio.sleep(1)
        called.append(value)

    def at_once(value: str) -> Any:
        return [value]

    class Record:
        value = b"v"

    async def scenario() -> None:
        for function in (slowly, at_once):
            made = listener(function=function)
            await made.start(PRODUCER, Outages("app"), requires_topics=False)
            await made.stop()
        first, second = (consumer.handler for consumer in Consumer.made)
        assert asyncio.iscoroutinefunction(first) and not asyncio.iscoroutinefunction(second)
        assert await first(Record()) is None and called == ["v"]
        assert second(Record()) == ["v"]

    run(scenario)
