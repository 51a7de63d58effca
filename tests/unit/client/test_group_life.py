"""A consumer in its group from the outside: when it begins, when it leaves, and what a refusal does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, InvalidConfigError, KafkaError
from ottla.base.types import NIL_UUID, TopicPartition
from ottla.client.aio.consumer.engine import ConsumerEngine
from ottla.client.aio.group import consumer as consumer_protocol
from ottla.client.aio.group import runner as runner_module
from ottla.client.aio.group.classic import ClassicGroup
from ottla.client.aio.group.consumer import ConsumerProtocolGroup
from ottla.client.aio.group.runner import GroupRunner
from ottla.client.core.consumer.offset_requests import Membership
from ottla.client.core.consumer.options import ConsumerSettings
from ottla.client.core.group.classic_member import PollTimer
from ottla.client.core.metadata import PartitionLeader, TopicMetadata
from ottla.client.errors import ClientError, FencedInstanceError
from tests.log_lines import lines_of
from tests.unit.client.loop_time import now_s, run

E = ErrorCode
FIRST = TopicPartition("t", 0)


class Protocol:
    """Notes what becomes of it."""

    is_joining = True

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.farewell_s = 0.0
        self.refusal: KafkaError | None = None

    async def run(self) -> None:
        self.calls.append(f"begun at {now_s()}")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.calls.append(f"ended at {now_s()}")
            raise

    def leave(self, reason: str) -> Coroutine[Any, Any, None]:
        self.calls.append(reason)
        return self._say_good_bye()

    async def _say_good_bye(self) -> None:
        await asyncio.sleep(self.farewell_s)
        if self.refusal is not None:
            raise self.refusal
        self.calls.append(f"left at {now_s()}")

    def membership(self) -> Membership:
        return Membership("g", 3, "m")

    def held(self) -> frozenset[TopicPartition]:
        return frozenset({FIRST})

    def subscription_changed(self) -> None:
        self.calls.append("subscription changed")

    def metadata_changed(self) -> None:
        self.calls.append("metadata changed")


def group_of(**settings: Any) -> tuple[Any, Protocol]:
    given = {"bootstrap.servers": "x:1", "group.id": "g", **settings}
    engine = ConsumerEngine(ConsumerSettings.parse(given))
    engine._loop = asyncio.get_running_loop()
    group: Any = GroupRunner(engine, ())
    protocol = Protocol()
    group._protocol = protocol
    return group, protocol


def test_a_group_is_joined_once_it_is_started_and_subscribed() -> None:
    async def scenario() -> None:
        group, protocol = group_of()
        group.engine.subscription.subscribe(["t"])
        group.subscription_changed()
        await asyncio.sleep(1)
        assert protocol.calls == ["subscription changed"]
        group.start()
        group.subscription_changed()
        await asyncio.sleep(1)
        assert protocol.calls[1:] == ["subscription changed", "begun at 1.0"]
        group.unsubscribed()
        await asyncio.sleep(1)
        assert protocol.calls[3:] == ["the consumer has unsubscribed", "ended at 2.0", "left at 2.0"]
        by_hand, unused = group_of()
        by_hand.engine.subscription.assign([FIRST])
        by_hand.start()
        by_hand.unsubscribed()
        await by_hand.leave()
        assert not any(call.startswith("begun") for call in unused.calls)

    run(scenario)


def test_whoever_leaves_has_said_good_bye_to_the_last_subscription_before() -> None:
    async def scenario() -> None:
        group, protocol = group_of()
        group.engine.subscription.subscribe(["t"])
        group.start()
        protocol.farewell_s = 5.0
        group.unsubscribed()
        await asyncio.sleep(1)
        await group.leave()
        assert protocol.calls[-3:] == ["left at 5.0", "the consumer is being closed", "left at 10.0"]

    run(scenario)


def test_last_words_are_heard_before_another_group_is_joined() -> None:
    async def scenario() -> None:
        group, protocol = group_of()
        group.engine.subscription.subscribe(["t"])
        group.start()
        await asyncio.sleep(1)
        assert group.membership() == Membership("g", 3, "m")
        group.engine.subscription.unsubscribe()
        assert group.membership() == Membership("g"), "positions of its own are nobody's"
        group.unsubscribed_after(asyncio.sleep(10))
        assert group.is_leaving and group.membership() == Membership("g", 3, "m")
        group.engine.subscription.subscribe(["u"])
        group.subscription_changed()
        waited = asyncio.ensure_future(group.wait_unsubscribed(4.0))
        await waited
        assert now_s() == 5.0 and group.is_leaving
        await group.wait_unsubscribed(60.0)
        assert now_s() == 11.0 and not group.is_leaving
        await asyncio.sleep(1)
        begun = [call for call in protocol.calls if not call.startswith("subscription")]
        assert begun[:3] == ["begun at 0.0", "ended at 1.0", "the consumer has unsubscribed"]
        assert sorted(begun[3:]) == ["begun at 11.0", "left at 11.0"]

    run(scenario)


def test_nobody_joins_again_whose_consumer_was_closed_meanwhile() -> None:
    async def scenario() -> None:
        group, protocol = group_of()
        group.engine.subscription.subscribe(["t"])
        group.start()
        group.unsubscribed_after(asyncio.sleep(10))
        group.engine.is_closed = True
        await asyncio.sleep(20)
        assert protocol.calls == [] and not group.is_leaving

    run(scenario)


def test_a_farewell_that_fails_is_worth_a_line(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        group, protocol = group_of()
        group.start()
        protocol.refusal = KafkaError("away", code=E.NETWORK_EXCEPTION)
        group.unsubscribed()
        await asyncio.sleep(1)
        assert group.engine.failure is None
        with pytest.raises(KafkaError, match="away"):
            await group.leave()

    with caplog.at_level(logging.INFO, runner_module.__name__):
        run(scenario)
    told = [(line.levelname, line.getMessage()) for line in lines_of(caplog, runner_module.__name__)]
    assert told == [("INFO", "the group was left without saying so: NETWORK_EXCEPTION: away")]


@pytest.mark.parametrize(
    ("error", "is_raised"),
    [
        (FencedInstanceError("fenced"), True),
        (ClientError("over", fatal=True), True),
        (KafkaError("not you", code=E.GROUP_AUTHORIZATION_FAILED), False),
    ],
)
def test_a_refusal_waits_for_a_poll_and_a_pause_unless_it_is_the_end(error: KafkaError, is_raised: bool) -> None:
    async def scenario() -> None:
        group, _ = group_of(**{"retry.backoff.ms": 250})
        refusing = asyncio.ensure_future(group.refused(error))
        await asyncio.sleep(2)
        if is_raised:
            assert refusing.exception() is error
            return
        told = group.engine.take_refusal()
        assert (told.code, told.message) == (error.code, error.message)
        await refusing
        assert now_s() == 2.25

    run(scenario)


def test_what_a_pattern_matches_is_a_new_subscription() -> None:
    async def scenario() -> None:
        group, protocol = group_of()
        matched: list[tuple[list[tuple[str, bool]], bool]] = []
        answers = [True, False]

        def match(existing: Any, *, exclude_internal: bool) -> bool:
            matched.append((sorted(existing), exclude_internal))
            return answers.pop(0)

        def topic(name: str, *, count: int = 1, code: int = 0, is_internal: bool = False) -> TopicMetadata:
            leaders = {number: PartitionLeader(1, 0) for number in range(count)}
            return TopicMetadata(name, NIL_UUID, is_internal, leaders, (), code)

        group.engine.subscription.subscribe(["t"])
        group.engine.subscription.match = match
        known = [
            topic("a"),
            topic("empty", count=0),
            topic("refused", code=E.TOPIC_AUTHORIZATION_FAILED),
            topic("own", is_internal=True),
        ]
        group.engine.metadata.topics = {one.name: one for one in known}
        group._metadata_changed()
        assert protocol.calls == ["subscription changed", "metadata changed"]
        group._metadata_changed()
        assert protocol.calls[2:] == ["metadata changed"]
        assert matched == [([("a", False), ("own", True)], True)] * 2

    run(scenario)


def test_which_protocol_is_spoken() -> None:
    async def scenario() -> None:
        def made(assignors: Any = (), **settings: Any) -> Any:
            engine = ConsumerEngine(ConsumerSettings.parse({"bootstrap.servers": "x:1", **settings}))
            return GroupRunner(engine, assignors)

        assert made()._protocol is None and made().held() == frozenset() and made().is_joining() is False
        assert isinstance(made(**{"group.id": "g"})._protocol, ClassicGroup)
        new: Any = {"group.id": "g", "group.protocol": "consumer"}
        assert isinstance(made(**new)._protocol, ConsumerProtocolGroup)
        with pytest.raises(InvalidConfigError, match=r"assignors are of no use with group\.protocol=consumer"):
            made([object()], **new)
        group, _ = group_of()
        assert group.held() == {FIRST} and group.is_joining() is True
        assert isinstance(group.poll_timer, PollTimer) and group.poll_timer.max_poll_interval_ms == 300_000

    run(scenario)


# KIP-848


@pytest.mark.parametrize(
    ("error", "is_refused"),
    [
        (KafkaError("away", code=E.NETWORK_EXCEPTION), False),
        (KafkaError("loading", code=E.COORDINATOR_LOAD_IN_PROGRESS), False),
        (KafkaError("not you", code=E.GROUP_AUTHORIZATION_FAILED), True),
    ],
)
def test_a_turn_that_fails_is_followed_by_another_after_a_pause(error: KafkaError, is_refused: bool) -> None:
    async def scenario() -> None:
        calls: list[tuple[float, str]] = []

        async def refused(given: KafkaError) -> None:
            assert given is error
            calls.append((now_s(), "refused"))

        engine = SimpleNamespace(
            now_ms=lambda: round(asyncio.get_running_loop().time() * 1000),
            subscription=SimpleNamespace(topics=frozenset({"t"})),
            coordinator=SimpleNamespace(lose=lambda: calls.append((now_s(), "lost"))),
        )
        settings = ConsumerSettings.parse({"bootstrap.servers": "x:1", "group.id": "g", "retry.backoff.ms": 250})
        runner: Any = SimpleNamespace(
            engine=engine, settings=settings, poll_timer=PollTimer(300_000, 0), refused=refused
        )
        group: Any = ConsumerProtocolGroup(runner)
        turns: list[float] = []

        async def turn() -> None:
            turns.append(now_s())
            raise error

        group._turn = turn
        running = asyncio.ensure_future(group.run())
        await asyncio.sleep(0.6)
        running.cancel()
        assert turns == [0.0, 0.25, 0.5]
        expected = ["refused", "lost"] if is_refused else ["lost"]
        assert calls == [(at_s, word) for at_s in turns for word in expected]

    run(scenario)


@pytest.mark.parametrize("reason", ["closed", "unsubscribed"])
def test_why_a_group_is_left_is_in_the_log_of_who_wants_to_know(reason: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        asked: list[object] = []

        async def ask(node_id: int, request: object) -> None:
            asked.append((node_id, request))

        async def node_id() -> int:
            return 7

        engine = SimpleNamespace(coordinator=SimpleNamespace(node_id=node_id))
        settings = ConsumerSettings.parse({"bootstrap.servers": "x:1", "group.id": "g"})
        group: Any = ConsumerProtocolGroup(SimpleNamespace(engine=engine, settings=settings))  # type: ignore[arg-type]
        group._ask = ask
        await group._say_good_bye(None, reason)
        assert asked == []
        await group._say_good_bye("request", reason)
        assert asked == [(7, "request")]

    with caplog.at_level(logging.DEBUG, consumer_protocol.__name__):
        run(scenario)
    assert [line.getMessage() for line in lines_of(caplog, consumer_protocol.__name__)] == [
        f"leaving the group: {reason}"
    ]
