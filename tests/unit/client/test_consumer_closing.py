"""How a consumer is closed: what it waits for, for how long, and what is logged if that was not enough."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from types import SimpleNamespace
from typing import Any

import pytest

from ottla import aio
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.client.aio.consumer import consumer as consumer_module
from ottla.client.aio.group.runner import RebalanceStep
from ottla.client.core.group.rebalance import Change
from ottla.client.errors import ClientClosedError, ClientError
from tests.log_lines import lines_of
from tests.unit.client import loop_time
from tests.unit.client.loop_time import now_s

FIRST = TopicPartition("t", 0)


def made() -> Any:
    return aio.Consumer(bootstrap_servers="x:1", group_id="g")


class Scene:
    """A consumer whose group and commits are played by the test."""

    def __init__(self, *, uses_group: bool = True) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.step: RebalanceStep | None = None
        self.unsubscribing_s = self.committing_s = self.leaving_s = 0.0
        self.refusal: Exception | None = None
        self.consumer = made()
        self.consumer._is_started = True
        self.engine = self.consumer._engine
        self.engine._loop = asyncio.get_running_loop()
        if uses_group:
            self.engine.subscription.subscribe(["t"])
        else:
            self.engine.subscription.assign([FIRST])
        self.consumer._group = SimpleNamespace(
            steps=[],
            wait_unsubscribed=self._wait_unsubscribed,
            step_before_leaving=lambda: self.step,
            leave=self._leave,
            is_leaving=False,
            unsubscribed=lambda: self.calls.append(("unsubscribed",)),
            unsubscribed_after=self._unsubscribed_after,
        )
        self.consumer._commits = SimpleNamespace(begin_last=self._begin_last, wait_ended=self._wait_ended)
        self.consumer._polls = SimpleNamespace(tell_listener=self._tell, listener=None)

    async def _wait_unsubscribed(self, timeout_s: float) -> None:
        self.calls.append(("unsubscribing", round(timeout_s, 3)))
        await asyncio.sleep(self.unsubscribing_s)

    def _begin_last(self, timeout_ms: int, partitions: Collection[TopicPartition] | None = None) -> None:
        self.calls.append(("commit", timeout_ms, partitions))

    async def _wait_ended(self, timeout_s: float) -> bool:
        self.calls.append(("committing", round(timeout_s, 3)))
        await asyncio.sleep(min(self.committing_s, timeout_s))
        return self.committing_s <= timeout_s

    async def _tell(self, step: RebalanceStep, listener: object = None) -> None:
        self.calls.append(("told", step.change, step.partitions))

    async def _leave(self) -> None:
        self.calls.append(("leave", now_s()))
        if self.refusal is not None:
            raise self.refusal
        await asyncio.sleep(self.leaving_s)

    def _unsubscribed_after(self, last_words: Any) -> None:
        self.calls.append(("unsubscribed after",))
        last_words.close()


def run(scenario: Callable[[], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_module, "time", SimpleNamespace(monotonic=lambda: asyncio.get_running_loop().time()))
    loop_time.run(scenario)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = lines_of(caplog, consumer_module.__name__)
    assert all(line.levelno == logging.WARNING for line in lines)
    return [line.getMessage() for line in lines]


def test_half_a_minute_is_for_everything_together(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        here = Scene()
        here.step = RebalanceStep(Change.REVOKED, [FIRST])
        here.unsubscribing_s, here.committing_s, here.leaving_s = 4.5, 10.0, 99.0
        await here.consumer.close()
        assert here.calls == [
            ("unsubscribing", 30.0),
            ("commit", 25_500, {FIRST}),
            ("committing", 25.5),
            ("told", Change.REVOKED, {FIRST}),
            ("leave", 14.5),
        ]
        assert now_s() == 30.0 and here.engine.is_closed
        here.calls.clear()
        await here.consumer.close()
        assert here.calls == []

    run(scenario, monkeypatch)
    assert told(caplog) == ["the consumer left its group without an answer: the time for closing is over"]


def test_with_no_time_left_the_coordinator_is_still_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        here = Scene()
        here.unsubscribing_s, here.committing_s, here.leaving_s = 0.75, 10.0, 5.0
        await here.consumer.close(2.0)
        assert here.calls == [("unsubscribing", 2.0), ("committing", 1.25), ("leave", 2.0)]
        assert now_s() == 2.0 and here.engine.is_closed

    run(scenario, monkeypatch)
    assert told(caplog) == [
        "the consumer is closed before all commits are done, which took longer than 1.2 s",
        "the consumer left its group without an answer: the time for closing is over",
    ]


def test_who_cannot_say_good_bye_is_closed_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        here = Scene()
        here.refusal = KafkaError("away", code=ErrorCode.NETWORK_EXCEPTION)
        await here.consumer.close()
        assert here.engine.is_closed
        broken = Scene()
        broken.refusal = ZeroDivisionError()
        with pytest.raises(ZeroDivisionError):
            await broken.consumer.close()
        assert broken.engine.is_closed

    run(scenario, monkeypatch)
    assert told(caplog) == ["the consumer left its group without saying so: NETWORK_EXCEPTION: away"]


@pytest.mark.parametrize("why", ["not started", "failed"])
def test_one_that_has_nothing_to_tell_only_leaves(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        here = Scene()
        here.step = RebalanceStep(Change.REVOKED, [FIRST])
        if why == "failed":
            here.engine.failure = ClientError("it is over")
        else:
            here.consumer._is_started = False
        await here.consumer.close()
        assert here.calls == [("leave", 0.0)] and here.engine.is_closed

    run(scenario, monkeypatch)


def test_whoever_waits_for_the_end_no_longer_has_it_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        here = Scene()
        here.unsubscribing_s, here.leaving_s = 20.0, 20.0
        closing = asyncio.ensure_future(here.consumer.close())
        await asyncio.sleep(3)
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled() and here.engine.is_closed and now_s() == 3.0
        assert here.calls == [("unsubscribing", 30.0), ("leave", 3.0)]

    run(scenario, monkeypatch)
    assert told(caplog) == ["the consumer left its group without an answer: the time for closing is over"]


@pytest.mark.parametrize(
    ("uses_group", "change", "commits"),
    [
        (False, None, [("commit", 30_000, None)]),
        (True, None, []),
        (True, Change.LOST, []),
        (True, Change.REVOKED, [("commit", 30_000, {FIRST})]),
    ],
)
def test_what_is_committed_at_the_end(
    uses_group: bool, change: Change | None, commits: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        here = Scene(uses_group=uses_group)
        here.step = None if change is None else RebalanceStep(change, [FIRST])
        await here.consumer.close()
        assert [call for call in here.calls if call[0] == "commit"] == commits
        # A call takes as long as others do.
        again = Scene(uses_group=uses_group)
        again.step = None if change is None else RebalanceStep(change, [FIRST])
        again.consumer.unsubscribe()
        longer = [(name, 60_000, partitions) for name, _, partitions in commits]
        assert again.calls == [*longer, ("unsubscribed",)]
        assert again.consumer.assignment == frozenset() and again.consumer.subscription == frozenset()
        await again.engine.close()
        with pytest.raises(ClientClosedError):
            again.consumer.unsubscribe()

    run(scenario, monkeypatch)


@pytest.mark.parametrize("has_step", [True, False])
def test_a_listener_has_the_last_word(has_step: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        here = Scene()
        here.step = RebalanceStep(Change.LOST, [FIRST]) if has_step else None
        here.consumer._polls.listener = object()
        here.consumer.unsubscribe()
        assert here.calls == ([("unsubscribed after",)] if has_step else [("unsubscribed",)])
        assert here.consumer._polls.listener is None and here.consumer.subscription == frozenset()

    run(scenario, monkeypatch)


def test_listeners_that_are_being_told_are_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        here = Scene()
        step = RebalanceStep(Change.REVOKED, [FIRST])
        telling: Any = asyncio.ensure_future(asyncio.sleep(60))
        step.telling = telling
        here.consumer._group.steps.append(step)
        await here.consumer.close()
        await asyncio.sleep(0)
        assert telling.cancelled() and now_s() == 0.0

    run(scenario, monkeypatch)


# Polls


def test_a_poll_waits_as_long_as_it_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        here = Scene()
        given: list[tuple[float, int]] = []
        steps: list[Any] = [RebalanceStep(Change.ASSIGNED, [FIRST]), ["record"]]

        async def next_records(timeout_s: float, wanted: int) -> Any:
            given.append((round(timeout_s, 3), wanted))
            await asyncio.sleep(1)
            return steps.pop(0)

        async def tell(step: RebalanceStep) -> None:
            here.calls.append(("told", step.change))
            await asyncio.sleep(2)

        polls = here.consumer._polls
        polls.next_records, polls.tell_listener_in_poll, polls.begin = next_records, tell, lambda: False
        assert await here.consumer.poll(5.0) == ["record"]
        assert given == [(5.0, 500), (2.0, 500)] and here.calls == [("told", Change.ASSIGNED)]
        steps.append([])
        assert await here.consumer.poll(max_records=7) == []
        assert given[2] == (0.0, 7)
        assert not here.consumer._is_polling

    run(scenario, monkeypatch)
