"""Commits that nobody has asked for: when they are due, what failures do to that, and whom they are told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ottla import TopicPartition
from ottla.base.clock import ManualClock
from ottla.client.aio.consumer import commits
from ottla.client.aio.consumer.commits import Commits
from ottla.client.aio.consumer.engine import NEVER_MS
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.errors import ClientClosedError, ClientError
from ottla.wire.apis.offset_commit import OffsetCommitRequest
from tests.log_lines import lines_of
from tests.waiting import PATIENCE_S, run_async, until

from .test_commit_answers import E, World, world
from .test_silent_broker import FIRST

INTERVAL_MS = 5000


class Scene(World):
    """With a clock that the test owns, and a partition of which 5 records are read and nothing is fetched."""

    clock: ManualClock
    commits: Commits

    @property
    def count(self) -> int:
        return len(self.broker.asked(OffsetCommitRequest))

    def in_ms(self) -> int:
        """When the next commit is due."""
        return self.commits.due_ms - self.clock.monotonic_ms()

    async def commit_if_due(self, *codes: int) -> None:
        """And waits until it is done."""
        self.codes = list(codes)
        self.commits.begin_if_due()
        assert await self.commits.wait_ended(PATIENCE_S)
        assert self.codes == []


@asynccontextmanager
async def scene(**settings: Any) -> AsyncIterator[Scene]:
    own = {"enable.auto.commit": True, "auto.commit.interval.ms": INTERVAL_MS}
    async with world(**{**own, "retry.backoff.ms": 10, "retry.backoff.max.ms": 30, **settings}) as here:
        here.__class__ = Scene
        assert isinstance(here, Scene)
        here.clock = here.consumer._engine.clock = ManualClock()  # type: ignore[assignment]
        here.clock.advance(1_000_000)
        here.commits = here.consumer._commits
        here.commits.start()
        yield here
        here.codes = [0] * 10


def assign(here: Scene) -> None:
    here.consumer.assign([FIRST])
    here.consumer.pause([FIRST])
    here.consumer.seek(FIRST, 5)


def test_a_commit_is_due_when_its_interval_is_over() -> None:
    async def scenario() -> None:
        async with scene() as here:
            assign(here)
            assert here.in_ms() == INTERVAL_MS and here.commits.due_s() == INTERVAL_MS / 1000
            here.clock.advance(INTERVAL_MS - 1)
            await here.commit_if_due()
            assert here.count == 0 and here.commits.due_s() == 0.001
            here.clock.advance(1)
            assert here.commits.due_s() == 0
            await here.commit_if_due(0)
            assert here.count == 1 and here.in_ms() == INTERVAL_MS
            here.clock.advance(INTERVAL_MS + 7)
            assert here.commits.due_s() == 0, "it is late"

    run_async(scenario())


def test_with_nothing_to_commit_the_next_interval_begins() -> None:
    async def scenario() -> None:
        async with scene() as here:
            here.clock.advance(INTERVAL_MS)
            await here.commit_if_due()
            assert here.count == 0 and here.in_ms() == INTERVAL_MS

    run_async(scenario())


def test_there_is_one_at_a_time() -> None:
    async def scenario() -> None:
        async with scene() as here:
            assign(here)
            here.clock.advance(INTERVAL_MS)
            here.codes = [0, 0]
            here.commits.begin_if_due()
            assert here.commits.due_ms == NEVER_MS
            here.clock.advance(INTERVAL_MS)
            here.commits.begin_if_due()
            assert await here.commits.wait_ended(PATIENCE_S)
            assert here.count == 1 and here.in_ms() == 0, "the interval counts from when it was due"

    run_async(scenario())


def test_what_may_pass_is_tried_again_soon_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with scene() as here:
            assign(here)
            here.clock.advance(INTERVAL_MS)
            pauses = []
            for _ in range(4):
                await here.commit_if_due(E.COORDINATOR_LOAD_IN_PROGRESS)
                assert here.consumer._engine._news.is_set(), "a poll that waits has to look again"
                here.consumer._engine._news.clear()
                pauses.append(here.in_ms())
                here.clock.advance(here.in_ms())
            assert pauses == [10, 20, 30, 30]
            await here.commit_if_due(0)
            assert here.in_ms() == INTERVAL_MS
            here.clock.advance(INTERVAL_MS)
            await here.commit_if_due(E.COORDINATOR_LOAD_IN_PROGRESS)
            assert here.in_ms() == 10, "a success ends the row of failures"

    with caplog.at_level("DEBUG", "ottla.client.aio.consumer.commits"):
        run_async(scenario())
    told = [record.levelname for record in caplog.records if "offsets were not committed" in record.msg]
    assert told == ["WARNING", "DEBUG", "DEBUG", "DEBUG", "WARNING"]


def test_what_does_not_pass_waits_for_the_next_interval() -> None:
    async def scenario() -> None:
        async with scene() as here:
            assign(here)
            here.clock.advance(INTERVAL_MS)
            await here.commit_if_due(E.GROUP_AUTHORIZATION_FAILED)
            assert here.in_ms() == INTERVAL_MS

    run_async(scenario())


@pytest.mark.parametrize("is_automatic", [True, False])
def test_partitions_that_go_are_committed_if_that_is_automatic(is_automatic: bool) -> None:
    async def scenario() -> None:
        async with scene(**{"enable.auto.commit": is_automatic}) as here:
            assert (here.commits.due_ms == NEVER_MS) is not is_automatic
            assert here.commits.begin_last(1000) is None, "there is nothing yet"
            here.codes = [0, 0]
            assign(here)
            task = here.commits.begin_last(1000)
            assert (task is not None) is is_automatic
            assert here.commits.begin_last(1000, [TopicPartition("other", 0)]) is None
            here.consumer.assign([])
            assert await here.commits.wait_ended(PATIENCE_S)
            assert here.count == (2 if is_automatic else 0)

    run_async(scenario())


def test_whoever_waits_for_commits_has_so_much_time() -> None:
    async def scenario() -> None:
        async with scene() as here:
            assert await here.commits.wait_ended(0), "there are none"
            assign(here)
            may_answer = asyncio.Event()
            answer = here.broker.answers[OffsetCommitRequest.API_KEY]

            async def slowly(request: Any) -> Any:
                await may_answer.wait()
                return answer(request)

            here.broker.on(OffsetCommitRequest, slowly)
            here.codes = [0]
            here.commits.begin_of([FIRST])
            assert not await here.commits.wait_ended(0)
            await until(lambda: here.count == 1)
            assert not await here.commits.wait_ended(0.01)
            may_answer.set()
            assert await here.commits.wait_ended(PATIENCE_S)

    run_async(scenario())


class Interceptor:
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.told: list[Mapping[TopicPartition, OffsetAndMetadata]] = []

    def on_consume(self, records: list[Any]) -> list[Any]:
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.told.append(offsets)
        if self.error is not None:
            raise self.error


def test_interceptors_hear_of_what_was_committed_and_callbacks_of_everything(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with scene() as here:
            chain = Interceptor(ZeroDivisionError("one of them")), Interceptor()
            here.commits._interceptors = chain
            told: list[ClientError | None] = []

            def callback(offsets: object, error: ClientError | None) -> None:
                told.append(error)
                raise ZeroDivisionError("the callback")

            here.codes = [0, E.GROUP_AUTHORIZATION_FAILED]
            for offset in (3, 4):
                here.consumer.commit_async({FIRST: offset}, callback)
            assert await here.commits.wait_ended(PATIENCE_S)
            assert told[0] is None and told[1] is not None and told[1].code is E.GROUP_AUTHORIZATION_FAILED
            for interceptor in chain:
                assert interceptor.told == [{FIRST: OffsetAndMetadata(3)}]

    run_async(scenario())
    told = [record.getMessage().partition(" <")[0] for record in lines_of(caplog, commits.__name__)]
    assert told == ["the interceptor", "the callback of a commit failed", "the callback of a commit failed"]


def test_commits_take_turns_and_a_commit_that_is_in_the_way_is_named() -> None:
    async def scenario() -> None:
        async with scene() as here:
            await here.commits._turns.acquire()
            with pytest.raises(ClientError, match="earlier commits were not done within 10 ms") as late:
                await here.consumer.commit({FIRST: 1}, timeout=0.01)
            assert late.value.code is E.REQUEST_TIMED_OUT and here.count == 0
            waiting = asyncio.create_task(here.consumer.commit({FIRST: 2}))
            await until(lambda: bool(here.commits._pending))
            here.codes = [0]
            here.commits._turns.release()
            await waiting
            assert here.count == 1 and not here.commits._turns.locked()

    run_async(scenario())


def test_offsets_that_no_request_has_room_for_are_refused() -> None:
    async def scenario() -> None:
        async with scene() as here:
            with pytest.raises(ClientError, match="these offsets cannot be committed") as refused:
                await here.consumer.commit({FIRST: 2**63})
            assert refused.value.code is E.INVALID_REQUEST
            here.codes = [0]
            await here.consumer.commit({FIRST: 1})

    run_async(scenario())


@pytest.mark.parametrize("who", ["the caller", "the consumer"])
def test_a_commit_under_way_when_it_is_broken_off(who: str) -> None:
    async def scenario() -> None:
        async with scene() as here:

            async def never(_: object) -> Any:
                await asyncio.Event().wait()

            here.broker.on(OffsetCommitRequest, never)
            committing = asyncio.create_task(here.consumer.commit({FIRST: 1}))
            told: list[ClientError | None] = []
            await until(lambda: here.count == 1)
            if who == "the caller":
                committing.cancel()
                await asyncio.wait([committing])
                assert committing.cancelled()
                assert await here.commits.wait_ended(PATIENCE_S), "nobody goes on with it"
            else:
                here.consumer.commit_async({FIRST: 2}, lambda _, error: told.append(error))
                await asyncio.sleep(0)
                await here.consumer._engine.close()
                with pytest.raises(ClientClosedError, match="before this commit was done"):
                    await committing
                assert [type(error) for error in told] == [ClientClosedError]

    run_async(scenario())
