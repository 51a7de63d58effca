"""When a parallel consumer polls, commits, tries again and gives up, in a loop where hours pass at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, InvalidConfigError
from ottla.base.types import TopicPartition
from ottla.client.aio.processing import parallel
from ottla.client.aio.processing.parallel import ParallelConsumer, _consumer_settings
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.client.core.outages import Outages
from ottla.client.core.processing.parallel import RawRecord, Retries
from ottla.client.errors import (
    ClientClosedError,
    ClientError,
    DeserializationError,
    ProcessingError,
    SerializationError,
)
from ottla.client.serdes.registry import SchemaRegistryError
from tests.log_lines import lines_of
from tests.unit.client.loop_time import now_s, run

from .test_parallel_consumer import PARTITION, Letters, Source, records

OTHER = TopicPartition("t", 1)


class TimedSource(Source):
    """Notes when it is asked for what, and for how long."""

    def __init__(self) -> None:
        super().__init__()
        self.polls: list[float] = []
        self.poll_timeouts_s: set[float] = set()
        self.commit_timeouts_s: set[float] = set()
        self.committed_s: list[tuple[float, dict[TopicPartition, int]]] = []

    async def poll(self, timeout: float) -> list[RawRecord]:
        self.polls.append(now_s())
        self.poll_timeouts_s.add(timeout)
        if not self.given and not self.is_closed:
            await asyncio.sleep(timeout)
        if self.is_closed:
            raise ClientClosedError("closed")
        given, self.given = self.given, []
        return given

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout: float) -> None:
        self.commit_timeouts_s.add(timeout)
        await super().commit(offsets, timeout=timeout)
        self.committed_s.append((now_s(), {partition: at.offset for partition, at in offsets.items()}))


class Running:
    def __init__(self, handler: Callable[[Any], object], **options: Any) -> None:
        self.consumer: ParallelConsumer[Any, Any] = ParallelConsumer(
            ["t"], handler, bootstrap_servers="x:1", group_id="g", **options
        )
        self.source, self.letters = TimedSource(), Letters()
        self.source.settings = SimpleNamespace(auto_commit_interval_ms=5000)
        self.consumer._consumer = self.source  # type: ignore[assignment]
        self.consumer._dead_letters = self.letters  # type: ignore[assignment]
        self.task: asyncio.Task[None] | None = None

    def give(self, *values: bytes, partition: int = 0, first_offset: int = 0) -> None:
        self.source.given.extend(records(*values, partition=partition, first_offset=first_offset))

    def begin(self) -> asyncio.Task[None]:
        self.task = asyncio.get_running_loop().create_task(self.consumer.run())
        return self.task


@asynccontextmanager
async def running(handler: Callable[[Any], object], *values: bytes, **options: Any) -> Any:
    made = Running(handler, **options)
    made.give(*values)
    task = made.begin()
    yield made
    await made.consumer.close()
    await task


@pytest.fixture(autouse=True)
def no_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses are as long as they may be."""
    monkeypatch.setattr(parallel, "random", SimpleNamespace(random=lambda: 0.0))


class Failing:
    """Notes when it is given what, and fails as often as a test says."""

    def __init__(self, times: int = 1000, error: Exception | None = None, takes_s: float = 0.0) -> None:
        self.times = times
        self.error = error or ValueError("broken")
        self.takes_s = takes_s
        self.seen: list[tuple[float, Any]] = []

    async def __call__(self, record: Any) -> None:
        # A retry is due at a whole millisecond, up to one before its pause is over.
        self.seen.append((round(now_s(), 2), record.value))
        await asyncio.sleep(self.takes_s)
        if len(self.seen) <= self.times:
            raise self.error


def works(takes_s: float = 0.0) -> Failing:
    return Failing(0, takes_s=takes_s)


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(line.levelname, line.getMessage()) for line in lines_of(caplog, parallel.__name__)]


def test_it_polls_again_and_again_and_commits_at_its_interval() -> None:
    async def scenario() -> None:
        async with running(works()) as made:
            await asyncio.sleep(0.95)
            assert made.source.polls == [n / 10 for n in range(10)] and made.source.poll_timeouts_s == {0.1}
            made.give(b"a", b"b")
            await asyncio.sleep(4)
            assert made.source.committed_s == []
            await asyncio.sleep(1)
            ((at_s, offsets),) = made.source.committed_s
            assert 5.0 <= at_s <= 5.2 and offsets == {PARTITION: 2}
            made.give(b"c", first_offset=2)
            await asyncio.sleep(4)
            assert len(made.source.committed_s) == 1
            await asyncio.sleep(1.5)
            assert made.source.committed_s[1][1] == {PARTITION: 3}
            await asyncio.sleep(60)
            assert len(made.source.committed_s) == 2 and made.source.commit_timeouts_s == {10.0}

    run(scenario)


@pytest.mark.parametrize(
    ("options", "tries_s", "dead"),
    [
        ({}, [0, 0.2, 0.6, 1.4], 4),
        ({"retries": 1}, [0, 0.2], 2),
        ({"retries": 0}, [0], 1),
        ({"retries": Retries(4, 1000, 2000)}, [0, 1, 3, 5, 7], 5),
        ({"no_retry": (KeyError, ValueError)}, [0], 1),
        ({"no_retry": (KeyError,)}, [0, 0.2, 0.6, 1.4], 4),
    ],
)
def test_what_fails_is_tried_again_when_its_pause_is_over(
    options: dict[str, Any], tries_s: list[float], dead: int
) -> None:
    async def scenario() -> None:
        handler = Failing()
        async with running(handler, b"a", **options) as made:
            await asyncio.sleep(20)
            assert [at_s for at_s, _ in handler.seen] == tries_s
            assert made.letters.taken == [(b"a", "ValueError('broken')", dead)]
            assert made.source.committed == {PARTITION: 1}
            assert made.consumer._timer is None and made.consumer._timer_due_ms is None

    run(scenario)


def test_each_record_is_tried_again_at_its_own_time() -> None:
    async def scenario() -> None:
        handler = Failing()
        async with running(handler, b"a", retries=Retries(1, 2000, 2000)) as made:
            await asyncio.sleep(0.95)
            made.give(b"b", first_offset=1)
            await asyncio.sleep(5)
            assert handler.seen == [(0.0, b"a"), (1.0, b"b"), (2.0, b"a"), (3.0, b"b")]

    run(scenario)


def test_not_more_than_allowed_run_at_once() -> None:
    async def scenario() -> None:
        handler = works(takes_s=1.0)
        async with running(handler, b"a", b"b", b"c", b"d", b"e", concurrency=2):
            await asyncio.sleep(10)
        assert [at_s for at_s, _ in handler.seen] == [0, 0, 1, 1, 2]
        handler = works(takes_s=1.0)
        values = [b"%d" % number for number in range(20)]
        begun_s = now_s()
        async with running(handler, *values):
            await asyncio.sleep(10)
        assert [at_s - begun_s for at_s, _ in handler.seen] == [0] * 16 + [1] * 4, "sixteen, if nothing is said"

    run(scenario)


@pytest.mark.parametrize(("ordering", "ends_s"), [("key", [0, 1, 0]), ("partition", [0, 1, 2]), ("unordered", [0] * 3)])
def test_what_is_kept_in_order(ordering: Any, ends_s: list[float]) -> None:
    async def scenario() -> None:
        handler = works(takes_s=1.0)
        async with running(handler, b"a", b"a", b"b", ordering=ordering):
            await asyncio.sleep(10)
        assert sorted(handler.seen, key=lambda one: one[1]) == sorted(
            zip(ends_s, [b"a", b"a", b"b"], strict=True), key=lambda one: one[1]
        )

    run(scenario)


@pytest.mark.parametrize(("options", "drained_s"), [({}, 30.0), ({"drain_timeout": 7.0}, 7.0)])
def test_partitions_that_go_wait_for_handlers_as_long_as_they_may(
    options: dict[str, Any], drained_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with running(works(takes_s=1000), b"a", b"b", **options) as made:
            made.give(b"c", partition=1)
            await asyncio.sleep(1)
            await made.consumer._let_go([PARTITION])
            assert now_s() == 1 + drained_s
            assert [work.record.value for work in made.consumer._tasks] == [b"c"]
            await made.consumer._let_go([])
            await made.consumer._lose([TopicPartition("strange", 3)])
            assert now_s() == 1 + drained_s and made.source.commits == []
            await made.consumer._lose([OTHER])
            assert now_s() == 1 + drained_s and not made.consumer._tasks

    run(scenario)
    words = "still being handled, and given up for somebody to process again: "
    assert told(caplog) == [("WARNING", f"{words}t-0@0, t-0@1"), ("WARNING", f"{words}t-1@0")]


def test_a_handler_that_ignores_being_cancelled_is_waited_for_a_second() -> None:
    async def scenario() -> None:
        ended: list[float] = []

        async def stubborn(record: Any) -> None:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                await asyncio.sleep(50)
                ended.append(now_s())

        async with running(stubborn, b"a") as made:
            await asyncio.sleep(3)
            await made.consumer._lose([PARTITION])
            assert now_s() == 4.0
            await asyncio.sleep(60)
            assert ended == [53.0] and made.source.commits == [], "what it does then is nobody's"

    run(scenario)


def test_closing_waits_a_second_for_run_to_return() -> None:
    async def scenario() -> None:
        made = Running(works())

        async def hang(timeout: float) -> list[RawRecord]:
            await asyncio.sleep(3)
            raise ClientClosedError("closed")

        made.source.poll = hang  # type: ignore[method-assign]
        task = made.begin()
        await asyncio.sleep(1)
        await made.consumer.close()
        assert now_s() == 2.0 and not task.done()
        await task
        again = Running(works())
        await again.consumer.close()
        assert now_s() == 3.0, "nobody is in there"

    run(scenario)


def test_a_stop_before_the_first_run_is_obeyed() -> None:
    async def scenario() -> None:
        made = Running(works())
        made.consumer.stop()
        await made.consumer.run()
        assert made.source.polls == []
        with pytest.raises(ClientClosedError, match="this consumer was stopped; make another one"):
            await made.consumer.run()
        await made.consumer.close()

    run(scenario)


def test_a_run_that_failed_may_be_begun_again() -> None:
    async def scenario() -> None:
        made = Running(works())
        made.give(b"a")
        made.source.refusals = [ClientError("fenced", fatal=True)]
        made.source.settings.auto_commit_interval_ms = 0
        with pytest.raises(ClientError, match="fenced"):
            await made.consumer.run()
        task = made.begin()
        await asyncio.sleep(1)
        assert made.source.committed == {PARTITION: 1}
        made.consumer.stop()
        await task
        await made.consumer.close()

    run(scenario)


def test_pauses_and_resumptions_are_told_to_the_consumer() -> None:
    async def scenario() -> None:
        async with running(works(takes_s=1.0), b"a", b"b", b"c", b"d", queued_max=4, concurrency=1) as made:
            await asyncio.sleep(0.5)
            assert made.source.paused == [{PARTITION}]
            await asyncio.sleep(1)
            assert made.source.resumed == []
            await asyncio.sleep(1)
            assert made.source.resumed == [{PARTITION}], "when half of it is done"

    run(scenario)


# What goes wrong


@pytest.mark.parametrize("debug", [True, False])
def test_where_a_failure_comes_from_is_told_once_for_each_kind(caplog: pytest.LogCaptureFixture, debug: bool) -> None:
    async def scenario() -> None:
        async with running(Failing(), b"a", b"b", retries=0):
            await asyncio.sleep(1)

    with caplog.at_level(logging.DEBUG if debug else logging.INFO, parallel.__name__):
        run(scenario)
    lines = [line for line in lines_of(caplog, parallel.__name__) if line.levelno == logging.ERROR]
    assert [line.getMessage() for line in lines] == [
        f"t-0@{offset} failed, and went to the dead-letter topic dead after 1 attempt: ValueError: broken"
        for offset in (0, 1)
    ]
    assert [line.exc_info is not None and line.exc_info[0] is ValueError for line in lines] == [True, debug]


def test_what_can_be_put_nowhere_is_told_with_its_origin(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        made = Running(Failing(), retries=0, concurrency=1)
        made.letters.answers = [ProcessingError("nowhere", topic_partition=PARTITION, offset=0)]
        made.give(b"a", b"b", b"c")
        with pytest.raises(ProcessingError, match="nowhere"):
            await made.consumer.run()
        await asyncio.sleep(10)
        assert len(made.letters.taken) == 0 and made.source.commits == []
        await made.consumer.close()

    run(scenario)
    (line,) = lines_of(caplog, parallel.__name__)
    assert (line.levelname, line.getMessage()) == ("ERROR", "t-0: nowhere")
    assert line.exc_info is not None and line.exc_info[0] is ValueError


def test_dead_letters_that_cannot_be_sent_are_tried_again_as_failures_are() -> None:
    async def scenario() -> None:
        handler = Failing()
        taken_s: list[float] = []
        made = Running(handler, retries=Retries(1, 1000, 8000))

        async def take(record: RawRecord, failure: BaseException, *, attempts: int) -> str | None:
            assert (repr(failure), attempts) == ("ValueError('broken')", 2)
            taken_s.append(now_s())
            return "dead" if len(taken_s) == 3 else None

        made.letters.take = take  # type: ignore[method-assign]
        made.give(b"a")
        made.begin()
        await asyncio.sleep(30)
        # After two failures the pause is that of two.
        assert [at_s for at_s, _ in handler.seen] == [0.0, 1.0] and taken_s == [1.0, 3.0, 5.0]
        assert made.source.committed == {PARTITION: 1}
        await made.consumer.close()

    run(scenario)


def test_a_mistake_of_ours_ends_the_consumer_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        made = Running(Failing(), retries=0)

        async def take(*_: object, **__: object) -> str | None:
            raise ZeroDivisionError("by zero")

        made.letters.take = take  # type: ignore[method-assign]
        made.give(b"a")
        with pytest.raises(ClientError) as failed:
            await made.consumer.run()
        words = "the consumer met an error it did not expect: ZeroDivisionError('by zero')"
        assert failed.value.fatal and failed.value.message == words
        await made.consumer.close()

    run(scenario)
    (line,) = lines_of(caplog, parallel.__name__)
    assert (line.levelname, line.getMessage()) == ("ERROR", "the consumer met an error it did not expect")
    assert line.exc_info is not None and line.exc_info[0] is ZeroDivisionError


def test_the_first_failure_is_that_of_run_and_nothing_is_begun_after_it(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        made = Running(Failing(error=ValueError("broken"), takes_s=0.05), retries=0, concurrency=2)
        errors = [ProcessingError(f"number {n}", topic_partition=PARTITION, offset=n) for n in range(2)]
        made.letters.answers = [*errors]
        made.give(b"a", b"b", b"c")
        with pytest.raises(ProcessingError, match="number 0"):
            await made.consumer.run()
        await asyncio.sleep(10)
        assert not made.consumer._tasks and made.letters.taken == []
        await made.consumer.close()

    run(scenario)


def test_a_handler_that_is_cancelled_has_failed_and_its_letter_is_for_another_task() -> None:
    async def scenario() -> None:
        seen: list[float] = []

        async def handler(record: Any) -> None:
            seen.append(now_s())
            raise asyncio.CancelledError

        async with running(handler, b"a", retries=Retries(1, 1000, 1000)) as made:
            await asyncio.sleep(10)
            assert seen == [0.0, 1.0]
            ((value, failure, attempts),) = made.letters.taken
            assert (value, attempts) == (b"a", 2) and "CancelledError" in failure
            assert made.source.committed == {PARTITION: 1}

    run(scenario)


def test_what_a_handler_has_returned_is_waited_for() -> None:
    async def scenario() -> None:
        done: list[float] = []

        class Handler:
            async def __call__(self, record: Any) -> Any:
                return self.finish()

            async def finish(self) -> None:
                await asyncio.sleep(2)
                done.append(now_s())

        handler = Handler()

        async def coroutine(record: Any) -> None:
            await (await handler(record))

        async with running(coroutine, b"a") as made:
            await asyncio.sleep(10)
            assert done == [2.0] and made.source.committed == {PARTITION: 1}

    run(scenario)


# Reading


class Reader:
    """A deserializer that asks somebody about some values."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.asked: list[tuple[str, bytes | None]] = []

    def waits_to_deserialize(self, topic: str, data: bytes | None) -> bool:
        self.asked.append((topic, data))
        return data == b"slow"

    def deserialize(self, topic: str, data: bytes | None) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return f"{topic}:{(data or b'').decode()}"


@pytest.mark.parametrize("part", ["key", "value"])
def test_a_deserializer_that_waits_does_not_hold_up_the_loop(part: str) -> None:
    async def scenario() -> None:
        reader = Reader()
        seen: list[tuple[str, str]] = []

        async def handler(record: Any) -> None:
            seen.append((record.key, record.value))

        in_threads: list[object] = []
        loop: Any = asyncio.get_running_loop()
        on_the_spot = loop.run_in_executor

        def in_thread(executor: object, function: Callable[[], object], *arguments: object) -> Any:
            in_threads.append(function)
            return on_the_spot(executor, function, *arguments)

        loop.run_in_executor = in_thread
        options: dict[str, Any] = {f"{part}_deserializer": reader}
        async with running(handler, b"fast", b"slow", ordering="partition", **options):
            await asyncio.sleep(1)
        own = [f"t:{value}" for value in ("fast", "slow")]
        raw = [b"fast", b"slow"]
        assert seen == list(zip(own, raw, strict=True) if part == "key" else zip(raw, own, strict=True))
        assert reader.asked == [("t", b"fast"), ("t", b"slow")] and len(in_threads) == 1

    run(scenario)


def test_what_cannot_be_read_yet_is_waited_for_with_pauses_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        reader = Reader(*[SchemaRegistryError("away") for _ in range(5)])
        handler = works()
        async with running(handler, b"a", value_deserializer=reader, retries=Retries(0, 1000, 4000)) as made:
            await asyncio.sleep(60)
            assert handler.seen == [(1.0 + 2 + 4 + 4 + 4, "t:a")]
            assert made.letters.taken == [] and made.source.committed == {PARTITION: 1}

    run(scenario)
    assert {(level, line.partition(": ")[0]) for level, line in told(caplog)} == {
        ("WARNING", "t-0@0 cannot be read yet")
    }
    assert len(told(caplog)) == 5 and told(caplog)[0][1].endswith("away")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SerializationError("no text"), DeserializationError),
        (ClientError("not for you", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED), ClientError),
    ],
)
def test_what_can_never_be_read_is_put_aside(error: ClientError, kind: type[ClientError]) -> None:
    async def scenario() -> None:
        handler = works()
        failures: list[BaseException] = []
        made = Running(handler, value_deserializer=Reader(*[error] * 9), retries=1)

        async def take(record: RawRecord, failure: BaseException, *, attempts: int) -> str | None:
            failures.append(failure)
            return "dead"

        made.letters.take = take  # type: ignore[method-assign]
        made.give(b"a")
        made.begin()
        await asyncio.sleep(10)
        (found,) = failures
        assert type(found) is kind and handler.seen == []
        if isinstance(found, DeserializationError):
            assert (found.topic_partition, found.offset) == (PARTITION, 0) and "no text" in found.message
        await made.consumer.close()

    run(scenario)


# Settings


@pytest.mark.parametrize(
    ("settings", "name", "words"),
    [
        ({}, "group.id", "group.id is needed: the group's offsets say what has been processed"),
        ({"group.id": None}, "group.id", "group.id is needed: the group's offsets say what has been processed"),
        (
            {"group.id": "g", "enable.auto.commit": True},
            "enable.auto.commit",
            "enable.auto.commit cannot be on: it would commit records that are not processed yet. Leave it out",
        ),
        (
            {"group.id": "g", "enable.auto.commit": "true"},
            "enable.auto.commit",
            "enable.auto.commit cannot be on: it would commit records that are not processed yet. Leave it out",
        ),
    ],
)
def test_what_cannot_be_set(settings: dict[str, object], name: str, words: str) -> None:
    with pytest.raises(InvalidConfigError) as refused:
        _consumer_settings(settings)
    assert words in str(refused.value)
    assert name in str(refused.value)


@pytest.mark.parametrize("given", [{}, {"enable.auto.commit": None}, {"enable.auto.commit": False}])
def test_commits_are_never_left_to_the_consumer(given: dict[str, object]) -> None:
    settings = {"group.id": "g", "max.poll.records": 7, **given}
    assert _consumer_settings(settings) == {"group.id": "g", "max.poll.records": 7, "enable.auto.commit": False}


def test_an_application_speaks_for_all_connections() -> None:
    async def scenario() -> None:
        made: ParallelConsumer[Any, Any] = ParallelConsumer(["t"], works(), bootstrap_servers="x:1", group_id="g")
        outages = Outages("app")
        made._share_outages(outages)
        engine = made._consumer._engine
        assert engine.link.outages is engine.fetch_link.outages is engine.group_link.outages is outages

    run(scenario)
