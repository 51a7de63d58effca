"""A parallel consumer around a consumer played by a test: what is retried, told, committed, paused and given up."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.client.aio.processing.parallel import ParallelConsumer
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.client.core.consumer.record import make_record_class
from ottla.client.core.processing.parallel import RawRecord, Retries
from ottla.client.errors import ClientClosedError, ClientError, ProcessingError, SerializationError
from ottla.client.serdes.registry import SchemaRegistryError
from ottla.records.batch import TimestampType
from tests.waiting import run_async, until

AT_ONCE = Retries(2, 1, 1)
PARTITION = TopicPartition("t", 0)


def records(*values: bytes, partition: int = 0, first_offset: int = 0) -> list[RawRecord]:
    """Each with its value for a key."""
    made = make_record_class("t", partition, TimestampType.CREATE_TIME, 7)
    return [made(first_offset + number, 1000, value, value, ()) for number, value in enumerate(values)]


class Source:
    """The consumer inside: hands out what a test has given it."""

    def __init__(self) -> None:
        self.settings = SimpleNamespace(auto_commit_interval_ms=0)
        self.given: list[RawRecord] = []
        self.commits: list[Mapping[TopicPartition, OffsetAndMetadata]] = []
        self.refusals: list[ClientError] = []
        self.paused: list[set[TopicPartition]] = []
        self.resumed: list[set[TopicPartition]] = []
        self.is_closed = False

    async def poll(self, timeout: float) -> list[RawRecord]:
        if self.is_closed:
            raise ClientClosedError("closed")
        await asyncio.sleep(0.001)
        given, self.given = self.given, []
        return given

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout: float) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        self.commits.append(offsets)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self.paused.append(set(partitions))

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self.resumed.append(set(partitions))

    async def close(self) -> None:
        self.is_closed = True

    @property
    def committed(self) -> dict[TopicPartition, int]:
        return {partition: at.offset for commit in self.commits for partition, at in commit.items()}


class Letters:
    """Takes dead letters, unless there is something against it."""

    def __init__(self) -> None:
        self.taken: list[tuple[bytes, str, int]] = []
        self.answers: list[str | ProcessingError | None] = []

    async def take(self, record: RawRecord, failure: BaseException, *, attempts: int) -> str | None:
        answer = self.answers.pop(0) if self.answers else "dead"
        if isinstance(answer, ProcessingError):
            raise answer
        if answer is not None:
            assert record.value is not None
            self.taken.append((record.value, repr(failure), attempts))
        return answer

    async def close(self) -> None: ...


class Running:
    def __init__(self, handler: Callable[[Any], object], **options: Any) -> None:
        options = {"retries": AT_ONCE, "drain_timeout": 0.01, **options}
        self.consumer: ParallelConsumer[Any, Any] = ParallelConsumer(
            ["t"], handler, bootstrap_servers="x:1", group_id="g", **options
        )
        self.source, self.letters = Source(), Letters()
        self.consumer._consumer = self.source  # type: ignore[assignment]
        self.consumer._dead_letters = self.letters  # type: ignore[assignment]


@asynccontextmanager
async def running(handler: Callable[[Any], object], *given: RawRecord, **options: Any) -> AsyncIterator[Running]:
    made = Running(handler, **options)
    made.source.given.extend(given)
    task = asyncio.create_task(made.consumer.run())
    try:
        yield made
    finally:
        await made.consumer.close()
        await task


class Handler:
    """Notes what it is given, and fails as a test says."""

    def __init__(self, *failures: Exception) -> None:
        self.seen: list[Any] = []
        self.failures = list(failures)

    async def __call__(self, record: RawRecord) -> None:
        self.seen.append(record.value)
        if self.failures:
            raise self.failures.pop(0)


def test_what_is_done_is_committed_once() -> None:
    async def test() -> None:
        handler = Handler()
        async with running(handler, *records(b"a", b"b", b"c")) as made:
            await until(lambda: made.source.committed == {PARTITION: 3})
            assert sorted(handler.seen) == [b"a", b"b", b"c"]
            commits = len(made.source.commits)
            await asyncio.sleep(0.02)
            assert len(made.source.commits) == commits, "there is nothing new"
        assert made.letters.taken == []

    run_async(test())


def test_commits_wait_for_their_interval_and_for_the_end() -> None:
    async def test() -> None:
        handler = Handler()
        made = Running(handler)
        made.source.settings.auto_commit_interval_ms = 3_600_000
        task = asyncio.create_task(made.consumer.run())
        await asyncio.sleep(0.01)
        made.source.given.extend(records(b"a"))
        await until(lambda: handler.seen == [b"a"])
        await asyncio.sleep(0.02)
        assert made.source.commits == []
        await made.consumer._let_go([PARTITION])
        assert made.source.committed == {PARTITION: 1}, "whoever gets the partition must not do it again"
        await made.consumer.close()
        await task

    run_async(test())


def test_another_attempt_is_told_of_the_first_time_only(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        handler = Handler(ValueError("one"), ValueError("two"))
        async with running(handler, *records(b"a")) as made:
            await until(lambda: made.source.committed == {PARTITION: 1})
        assert handler.seen == [b"a"] * 3 and made.letters.taken == []

    with caplog.at_level(logging.DEBUG, "ottla"):
        run_async(test())
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert told == [
        ("WARNING", "t-0@0: attempt 1 failed, and there will be another: ValueError: one"),
        ("DEBUG", "t-0@0: attempt 2 failed, and there will be another: ValueError: two"),
    ]


def test_what_keeps_failing_is_put_aside_and_is_done_with_then(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        handler = Handler(*(ValueError(f"{number}") for number in range(3)))
        async with running(handler, *records(b"a", b"b"), concurrency=1, ordering="partition") as made:
            await until(lambda: made.source.committed == {PARTITION: 2})
        assert handler.seen == [b"a", b"a", b"a", b"b"]
        assert made.letters.taken == [(b"a", "ValueError('2')", 3)]

    run_async(test())
    (told,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "after 3 attempts" in told.getMessage()
    assert told.exc_info is not None, "where it comes from is told the first time"


def test_an_error_that_is_not_to_be_tried_again_is_not() -> None:
    async def test() -> None:
        handler = Handler(KeyError("final"))
        async with running(handler, *records(b"a"), no_retry=(LookupError,)) as made:
            await until(lambda: bool(made.source.commits))
        assert handler.seen == [b"a"] and made.letters.taken == [(b"a", "KeyError('final')", 1)]

    run_async(test())


def test_dead_letters_that_cannot_be_written_now_are_tried_again_without_the_handler() -> None:
    async def test() -> None:
        handler = Handler(KeyError("final"))
        made = Running(handler, no_retry=(LookupError,))
        made.letters.answers = [None, None]
        made.source.given.extend(records(b"a"))
        task = asyncio.create_task(made.consumer.run())
        await until(lambda: made.source.committed == {PARTITION: 1})
        assert handler.seen == [b"a"] and len(made.letters.taken) == 1
        await made.consumer.close()
        await task

    run_async(test())


def test_what_can_be_put_nowhere_ends_the_consumer() -> None:
    async def test() -> None:
        handler = Handler(KeyError("final"))
        made = Running(handler, no_retry=(LookupError,))
        made.letters.answers = [ProcessingError("nowhere", topic_partition=PARTITION, offset=0)]
        made.source.given.extend(records(b"a", b"b"))
        with pytest.raises(ProcessingError, match="nowhere"):
            await made.consumer.run()
        assert made.source.committed.get(PARTITION, 0) == 0
        await made.consumer.close()

    run_async(test())


def test_records_that_cannot_be_read_yet_use_up_no_attempt() -> None:
    failures = [SchemaRegistryError("away") for _ in range(5)]

    def read(data: bytes) -> str:
        if failures:
            raise failures.pop()
        return data.decode()

    async def test() -> None:
        handler = Handler()
        async with running(handler, *records(b"a"), value_deserializer=read) as made:
            await until(lambda: made.source.committed == {PARTITION: 1})
        assert handler.seen == ["a"] and made.letters.taken == []

    run_async(test())


def test_records_that_cannot_be_read_at_all_are_put_aside_at_once() -> None:
    def read(data: bytes) -> str:
        raise SerializationError("no text")

    async def test() -> None:
        handler = Handler()
        async with running(handler, *records(b"a"), value_deserializer=read) as made:
            await until(lambda: made.source.committed == {PARTITION: 1})
        assert handler.seen == []
        ((value, failure, attempts),) = made.letters.taken
        assert (value, attempts) == (b"a", 1) and "DeserializationError" in failure

    run_async(test())


def test_keys_and_values_are_read() -> None:
    async def test() -> None:
        seen: list[tuple[object, object]] = []

        async def handler(record: Any) -> None:
            seen.append((record.key, record.value))

        async with running(handler, *records(b"7"), key_deserializer=bytes.decode, value_deserializer=int) as made:
            await until(lambda: made.source.committed == {PARTITION: 1})
        assert seen == [("7", 7)]

    run_async(test())


def test_commits_that_fail_are_told_of_once_until_one_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        made = Running(Handler())
        made.source.refusals = [ClientError("away") for _ in range(3)]
        made.source.given.extend(records(b"a"))
        task = asyncio.create_task(made.consumer.run())
        await until(lambda: made.source.committed == {PARTITION: 1})
        made.source.refusals = [ClientError("away again")]
        made.source.given.extend(records(b"b", first_offset=1))
        await until(lambda: made.source.committed == {PARTITION: 2})
        await made.consumer.close()
        await task

    with caplog.at_level(logging.DEBUG, "ottla"):
        run_async(test())
    told = [(r.levelname, r.getMessage().rpartition(": ")[2]) for r in caplog.records if "not committed" in r.msg]
    assert told == [("WARNING", "away"), ("DEBUG", "away"), ("DEBUG", "away"), ("WARNING", "away again")]


def test_a_commit_that_can_never_succeed_ends_the_consumer() -> None:
    async def test() -> None:
        made = Running(Handler())
        made.source.refusals = [ClientError("fenced", fatal=True)]
        made.source.given.extend(records(b"a"))
        with pytest.raises(ClientError, match="fenced"):
            await made.consumer.run()
        await made.consumer.close()

    run_async(test())


def test_a_partition_with_too_much_in_the_works_is_paused_until_that_is_done() -> None:
    async def test() -> None:
        may_go_on = asyncio.Event()

        async def handler(record: RawRecord) -> None:
            await may_go_on.wait()

        async with running(handler, *records(b"a", b"b", b"c"), queued_max=2) as made:
            await until(lambda: made.source.paused == [{PARTITION}])
            assert made.source.resumed == []
            may_go_on.set()
            await until(lambda: made.source.resumed == [{PARTITION}])

    run_async(test())


def test_a_partition_that_goes_waits_for_its_handlers_and_is_committed() -> None:
    async def test() -> None:
        may_go_on = asyncio.Event()
        seen: list[bytes | None] = []

        async def handler(record: RawRecord) -> None:
            seen.append(record.value)
            await may_go_on.wait()

        given = records(b"a", b"b", b"c")
        async with running(handler, *given, concurrency=1, drain_timeout=60.0) as made:
            await until(lambda: seen == [b"a"])
            going = asyncio.create_task(made.consumer._let_go([PARTITION]))
            await asyncio.sleep(0.01)
            assert not going.done()
            may_go_on.set()
            await going
            assert made.source.committed == {PARTITION: 1}
            assert seen == [b"a"], "nothing more of it is begun"

    run_async(test())


@pytest.mark.parametrize("is_lost", [True, False])
def test_handlers_that_take_too_long_are_cancelled_and_named(caplog: pytest.LogCaptureFixture, is_lost: bool) -> None:
    async def test() -> None:
        begun: list[bytes | None] = []
        cancelled: list[bytes | None] = []

        async def handler(record: RawRecord) -> None:
            begun.append(record.value)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(record.value)
                raise

        async with running(handler, *records(b"a", b"b", b"c"), concurrency=2) as made:
            await until(lambda: len(begun) == 2)
            await (made.consumer._lose if is_lost else made.consumer._let_go)([PARTITION])
            assert sorted(cancelled, key=str) == [b"a", b"b"]
            assert made.source.commits == [] and made.letters.taken == []
            await until(lambda: not made.consumer._tasks)

    run_async(test())
    (told,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told.endswith("t-0@0, t-0@1"), "what was never begun is not named"


def test_a_handler_that_is_cancelled_from_elsewhere_has_failed() -> None:
    async def test() -> None:
        async def handler(record: RawRecord) -> None:
            raise asyncio.CancelledError

        async with running(handler, *records(b"a")) as made:
            await until(lambda: made.source.committed == {PARTITION: 1})
        ((_, _, attempts),) = made.letters.taken
        assert attempts == 3

    run_async(test())


def test_functions_run_in_threads_and_what_they_return_is_waited_for() -> None:
    async def test() -> None:
        done: list[str] = []
        threads: set[threading.Thread] = set()

        async def finish(value: bytes) -> None:
            assert threading.current_thread() is threading.main_thread()
            await asyncio.sleep(0)
            done.append(value.decode())

        def handler(record: Any) -> object:
            threads.add(threading.current_thread())
            return finish(record.value)

        async with running(handler, *records(b"a", b"b")) as made:
            await until(lambda: made.source.committed == {PARTITION: 2})
        assert sorted(done) == ["a", "b"]
        assert threads and threading.main_thread() not in threads, "the loop goes on meanwhile"

    run_async(test())


def test_life() -> None:
    async def test() -> None:
        made = Running(Handler())
        task = asyncio.create_task(made.consumer.run())
        await asyncio.sleep(0)
        with pytest.raises(ClientError, match="running already"):
            await made.consumer.run()
        made.consumer.stop()
        await task
        with pytest.raises(ClientClosedError, match="was stopped"):
            await made.consumer.run()
        await made.consumer.close()
        await made.consumer.close()
        with pytest.raises(ClientClosedError, match="is closed"):
            await made.consumer.run()

    run_async(test())


def test_a_consumer_that_closes_by_itself_is_an_error_of_run() -> None:
    async def test() -> None:
        made = Running(Handler())
        made.source.is_closed = True
        with pytest.raises(ClientClosedError, match="closed"):
            await made.consumer.run()

    run_async(test())


@pytest.mark.parametrize("end", [SystemExit(3), KeyboardInterrupt()])
def test_a_handler_that_ends_the_process_ends_run(end: BaseException) -> None:
    async def test() -> None:
        async def handler(record: RawRecord) -> None:
            raise end

        made = Running(handler)
        made.source.given.extend(records(b"a"))
        try:
            await made.consumer.run()
        except (SystemExit, KeyboardInterrupt) as e:
            assert e is end
        else:
            raise AssertionError("nothing was raised")
        assert made.source.commits == [] and made.letters.taken == []
        await made.consumer.close()

    run_async(test())
