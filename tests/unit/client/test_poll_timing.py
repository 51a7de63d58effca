"""What a poll waits for and how long, step by step, in a loop where time passes at once."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.client.aio.consumer import polls as polls_module
from ottla.client.aio.consumer.polls import Polls
from ottla.client.aio.group.runner import RebalanceStep
from ottla.client.core.group.rebalance import Change
from ottla.client.errors import ClientClosedError, ClientError
from tests.log_lines import messages_of
from tests.unit.client.loop_time import now_s, run

FIRST = TopicPartition("t", 0)


class Timer:
    """Notes who polls when."""

    def __init__(self) -> None:
        self.depth = 0
        self.times: list[float] = []

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1
        self.times.append(now_s())


def polls_of(*parts: Any) -> Any:
    return Polls(*parts)


class Scene:
    """Everything around a poll: what was fetched, what the group does, and which commits are due."""

    def __init__(self, **settings: int) -> None:
        self.fetched: list[Any] = []
        self.taken = 0
        self.awaited: Any = None
        self.timer = Timer()
        self.steps: list[RebalanceStep] = []
        self.before: list[RebalanceStep] = []
        self.looked_at_commits_s: list[float] = []
        self.commit_due_s = 1e9
        self.begun: list[tuple[int, frozenset[TopicPartition]]] = []
        self.commit_takes_s: float | None = 1.0
        self.news = asyncio.Event()
        self.waits_s: list[float] = []
        self.refusals: list[ClientError] = []
        self.engine: Any = SimpleNamespace(
            settings=SimpleNamespace(**{"api_timeout_ms": 60_000, "max_poll_interval_ms": 300_000, **settings}),
            failure=None,
            check_open=lambda: None,
            take_refusal=lambda: self.refusals.pop(0) if self.refusals else None,
            handout=SimpleNamespace(has_records=lambda: bool(self.fetched), claim=self._claim),
            take=self._take,
            taken=self._was_taken,
            convert=SimpleNamespace(awaited=None),
            spawn=lambda work: asyncio.get_running_loop().create_task(work),
            notify=self.news.set,
            wait_for_news=self._wait_for_news,
        )
        group: Any = SimpleNamespace(
            steps=self.steps, polling=lambda: self.timer, before_step=self.before.append, poll_timer=None
        )
        commits: Any = SimpleNamespace(
            begin_if_due=lambda: self.looked_at_commits_s.append(now_s()),
            due_s=lambda: max(0.0, self.commit_due_s - now_s()),
            begin_last=self._begin_last,
        )
        self.interceptors: list[Any] = []
        self.polls = polls_of(self.engine, group, commits, self.interceptors)

    def _take(self, records_max: int) -> list[Any]:
        taken, self.fetched = self.fetched[:records_max], self.fetched[records_max:]
        return [record for record in taken if record != "hidden"]

    def _claim(self, bytes_max: int) -> list[Any]:
        return self._take(bytes_max)

    def _was_taken(self) -> None:
        self.taken += 1

    async def _wait_for_news(self, timeout_s: float) -> None:
        self.waits_s.append(round(timeout_s, 3))
        try:
            async with asyncio.timeout(max(0.0, timeout_s)):
                await self.news.wait()
        except TimeoutError:
            return
        self.news.clear()

    def _begin_last(self, timeout_ms: int, partitions: Collection[TopicPartition]) -> Any:
        self.begun.append((timeout_ms, frozenset(partitions)))
        if self.commit_takes_s is None:
            return None
        return asyncio.ensure_future(asyncio.sleep(self.commit_takes_s))

    def later(self, after_s: float, *records: Any) -> None:
        def come() -> None:
            self.fetched += records
            self.news.set()

        asyncio.get_running_loop().call_later(after_s, come)


def test_a_poll_returns_what_comes_or_nothing_when_its_time_is_up() -> None:
    async def scenario() -> None:
        here = Scene()
        here.later(2.0, "a", "b", "c")
        assert await here.polls.next_records(10.0, 2) == ["a", "b"] and now_s() == 2.0
        assert await here.polls.next_records(10.0, 2) == ["c"] and now_s() == 2.0
        assert await here.polls.next_records(3.0, 2) == [] and now_s() == 5.0
        assert await here.polls.next_records(0.0, 2) == [] and now_s() == 5.0
        assert await here.polls.next_records(-1.0, 2) == [] and now_s() == 5.0
        assert here.timer.depth == 0

    run(scenario)


def test_what_is_hidden_is_no_reason_to_return() -> None:
    async def scenario() -> None:
        here = Scene()
        here.later(1.0, "hidden")
        here.later(2.0, "a")
        assert await here.polls.next_records(10.0, 9) == ["a"] and now_s() == 2.0
        here.later(1.0, "hidden")
        assert await here.polls.next_records(3.0, 9) == [] and now_s() == 5.0

    run(scenario)


def test_whoever_decodes_columns_gets_what_was_fetched() -> None:
    async def scenario() -> None:
        here = Scene()
        here.later(1.0, "a", "b")
        assert await here.polls.next_claim(10.0, 99) == ["a", "b"] and now_s() == 1.0
        assert here.taken == 1
        assert await here.polls.next_claim(2.0, 99) == [] and now_s() == 3.0
        step = RebalanceStep(Change.ASSIGNED, [FIRST])
        here.steps.append(step)
        here.fetched.append("c")
        assert await here.polls.next_claim(2.0, 99) is step and here.fetched == ["c"]

    run(scenario)


def test_a_poll_that_waits_looks_after_commits_but_not_all_the_time() -> None:
    async def scenario() -> None:
        here = Scene()
        here.commit_due_s = 1.0
        await here.polls.next_records(1.12, 1)
        # Until the next commit is due, and then every 50 ms: its interval may be 0.
        assert here.waits_s == pytest.approx([1.0, 0.05, 0.05, 0.02])
        assert here.looked_at_commits_s == pytest.approx([0.0, 1.0, 1.05, 1.1, 1.12])

    run(scenario)


@pytest.mark.parametrize("change", [Change.ASSIGNED, Change.LOST])
def test_a_step_comes_before_records_and_stays_until_it_is_finished(change: Change) -> None:
    async def scenario() -> None:
        here = Scene()
        step = RebalanceStep(change, [FIRST])
        here.steps.append(step)
        here.fetched.append("a")
        for _ in range(2):
            assert await here.polls.next_records(10.0, 1) is step
        assert here.before == [step, step] and here.begun == [] and here.fetched == ["a"] and now_s() == 0.0
        here.steps.clear()
        assert await here.polls.next_records(10.0, 1) == ["a"]

    run(scenario)


@pytest.mark.parametrize(
    ("settings", "timeout_ms"),
    [({}, 60_000), ({"api_timeout_ms": 7000}, 7000), ({"max_poll_interval_ms": 5000}, 5000)],
)
def test_what_is_revoked_is_committed_before_the_listener_is_told(settings: dict[str, int], timeout_ms: int) -> None:
    async def scenario() -> None:
        here = Scene(**settings)
        step = RebalanceStep(Change.REVOKED, [FIRST])
        here.steps.append(step)
        here.fetched.append("a")
        assert await here.polls.next_records(0.4, 1) == [] and now_s() == 0.4
        assert here.before == [] and here.fetched == ["a"], "nothing more of it may be read"
        assert await here.polls.next_records(10.0, 1) is step and now_s() == 1.0
        assert here.before == [step]
        assert here.begun == [(timeout_ms, frozenset({FIRST}))], "once"

    run(scenario)


def test_with_nothing_to_commit_the_listener_is_told_at_once() -> None:
    async def scenario() -> None:
        here = Scene()
        here.commit_takes_s = None
        step = RebalanceStep(Change.REVOKED, [FIRST])
        here.steps.append(step)
        assert await here.polls.next_records(0.0, 1) is step and here.before == [step]

    run(scenario)


def test_what_ends_a_poll_ends_it_at_once_and_in_this_order() -> None:
    async def scenario() -> None:
        here = Scene()
        here.fetched.append("a")
        here.steps.append(RebalanceStep(Change.ASSIGNED, [FIRST]))
        here.refusals.append(ClientError("not you"))

        def closed() -> None:
            raise ClientClosedError("closed")

        here.engine.check_open, opened = closed, here.engine.check_open
        here.engine.failure = ClientError("it is over")
        with pytest.raises(ClientError, match="it is over"):
            await here.polls.next_records(10.0, 1)
        here.engine.failure = None
        with pytest.raises(ClientClosedError):
            await here.polls.next_records(10.0, 1)
        here.engine.check_open = opened
        with pytest.raises(ClientError, match="not you"):
            await here.polls.next_claim(10.0, 1)
        assert await here.polls.next_records(10.0, 1) is here.steps[0]
        assert now_s() == 0.0 and here.timer.depth == 0 and len(here.timer.times) == 4

    run(scenario)


def test_a_deserializer_that_asks_somebody_is_run_once_and_waited_for() -> None:
    async def scenario() -> None:
        here = Scene()
        ran: list[float] = []
        awaited = SimpleNamespace(is_begun=False, is_done=False, run=lambda: ran.append(now_s()))
        here.engine.convert.awaited = awaited
        here.fetched.append("hidden")
        assert await here.polls.next_records(4.0, 1) == [] and now_s() == 4.0
        assert ran == [0.0] and awaited.is_begun and here.taken >= 1
        assert 4.0 in here.waits_s, "the poll waits for it"

    run(scenario)


class Chain:
    def __init__(self, name: str, error: Exception | None = None) -> None:
        self.name, self.error = name, error

    def on_consume(self, records: list[Any]) -> list[Any]:
        records.append(self.name)
        if self.error is not None:
            raise self.error
        return records


def test_interceptors_pass_records_on_and_one_that_fails_is_passed_by(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        here = Scene()
        here.interceptors += [Chain("x"), Chain("y", ZeroDivisionError()), Chain("z")]
        here.fetched.append("a")
        assert await here.polls.next_records(1.0, 1) == ["a", "x", "z"]
        assert await here.polls.next_records(1.0, 1) == [], "nothing is nothing to intercept"

    run(scenario)
    (told,) = messages_of(caplog, polls_module.__name__)
    assert told.startswith("the interceptor <") and told.endswith("> failed, and the records pass it by")


# Listeners


class Listener:
    def __init__(self) -> None:
        self.called: list[tuple[str, frozenset[TopicPartition]]] = []

    def on_assigned(self, partitions: frozenset[TopicPartition]) -> str:
        self.called.append(("assigned", partitions))
        return "assigned"

    def on_revoked(self, partitions: frozenset[TopicPartition]) -> str:
        self.called.append(("revoked", partitions))
        return "revoked"

    def on_lost(self, partitions: frozenset[TopicPartition]) -> str:
        self.called.append(("lost", partitions))
        return "lost"


@pytest.mark.parametrize(
    ("change", "partitions", "called"),
    [
        (Change.ASSIGNED, [FIRST], "assigned"),
        (Change.ASSIGNED, [], "assigned"),
        (Change.REVOKED, [FIRST], "revoked"),
        (Change.REVOKED, [], None),
        (Change.LOST, [FIRST], "lost"),
        (Change.LOST, [], None),
    ],
)
def test_what_a_listener_is_told(change: Change, partitions: list[TopicPartition], called: str | None) -> None:
    async def scenario() -> None:
        here = Scene()
        own: Any = Listener()
        other: Any = Listener()
        here.polls.listener = own
        step = RebalanceStep(change, partitions)
        assert here.polls.call_listener(step) == called and step.is_told
        assert own.called == ([] if called is None else [(called, frozenset(partitions))])
        assert here.polls.call_listener(step, other) == called and len(other.called) == len(own.called)
        finished: list[bool] = []
        step = RebalanceStep(change, partitions, lambda: finished.append(True))
        await here.polls.tell_listener(step)
        assert finished == [True]
        here.polls.listener = None
        assert here.polls.call_listener(RebalanceStep(change, partitions)) is None

    run(scenario)
