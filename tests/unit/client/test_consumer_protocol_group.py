"""A member of a KIP-848 group, turn by turn: when it beats, what it gives up and takes, and how it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition, Uuid
from ottla.client.aio.group.consumer import ConsumerProtocolGroup
from ottla.client.core.consumer.options import ConsumerSettings
from ottla.client.core.group.classic_member import PollTimer
from ottla.client.core.group.rebalance import Change
from ottla.wire.apis.consumer_group_heartbeat import (
    AssignedTopicPartitions,
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.waiting import run_async, until

T_ID, U_ID = Uuid(bytes(15) + b"\x01"), Uuid(bytes(15) + b"\x02")
INTERVAL_MS = 3000


def t(*numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("t", number) for number in numbers)


class World:
    """A member and its surroundings: a clock, a coordinator that answers what it is told, and an application."""

    def __init__(self) -> None:
        self.now_ms = 1000
        self.asked: list[ConsumerGroupHeartbeatRequest] = []
        self.answers: list[ConsumerGroupHeartbeatResponse] = []
        self.steps: list[tuple[Change, frozenset[TopicPartition]]] = []
        self.coordinator_calls: list[str] = []
        self.updates = 0
        self.may_step = asyncio.Event()
        self.may_step.set()
        self.topics = {"t": SimpleNamespace(topic_id=T_ID)}
        settings = ConsumerSettings.parse({"bootstrap.servers": "x:1", "group.id": "g", "max.poll.interval.ms": 60_000})
        self.timer = PollTimer(60_000, 1000)
        self.engine = SimpleNamespace(
            now_ms=lambda: self.now_ms,
            subscription=SimpleNamespace(topics=frozenset({"t"})),
            metadata=SimpleNamespace(topics=self.topics, request_update=self._update),
            coordinator=SimpleNamespace(
                node_id=self._node_id,
                forget=lambda: self.coordinator_calls.append("forget"),
                lose=lambda: self.coordinator_calls.append("lose"),
            ),
            group_link=SimpleNamespace(request=self._request),
            spawn=asyncio.ensure_future,
            wake=lambda: None,
        )
        runner: Any = SimpleNamespace(
            engine=self.engine,
            settings=settings,
            poll_timer=self.timer,
            step=self._step,
            partitions_lost=lambda: t(0),
        )
        self.group = ConsumerProtocolGroup(runner)

    def _update(self) -> None:
        self.updates += 1

    async def _node_id(self) -> int:
        return 7

    async def _request(
        self, node_id: int, request: ConsumerGroupHeartbeatRequest, kind: object
    ) -> ConsumerGroupHeartbeatResponse:
        assert node_id == 7
        self.asked.append(request)
        if self.answers:
            return self.answers.pop(0)
        return ConsumerGroupHeartbeatResponse(member_epoch=request.member_epoch, heartbeat_interval_ms=INTERVAL_MS)

    async def _step(self, change: Change, partitions: Collection[TopicPartition]) -> None:
        self.steps.append((change, frozenset(partitions)))
        await self.may_step.wait()

    def will_assign(self, *numbers: int, epoch: int = 5, topic_id: Uuid = T_ID) -> None:
        assigned = [AssignedTopicPartitions(topic_id=topic_id, partitions=list(numbers))]
        self.answers.append(
            ConsumerGroupHeartbeatResponse(
                member_id="m",
                member_epoch=epoch,
                heartbeat_interval_ms=INTERVAL_MS,
                assignment=Assignment(topic_partitions=assigned),
            )
        )

    async def turn(self) -> None:
        await self.group._turn()
        await self.settled()

    async def settled(self) -> None:
        reconciling = self.group._reconciling
        if reconciling is not None and self.may_step.is_set():
            await reconciling

    async def join(self, *numbers: int) -> None:
        self.will_assign(*numbers)
        await self.turn()
        self.steps.clear()


def in_world(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        await scenario(World())

    run_async(run())


def test_a_member_joins_takes_what_it_is_given_and_says_so_at_once() -> None:
    async def scenario(world: World) -> None:
        world.will_assign(0, 1)
        await world.turn()
        assert world.asked[0].member_epoch == 0
        assert world.steps == [(Change.ASSIGNED, t(0, 1))] and world.group.held() == t(0, 1)
        assert world.group.membership().member_id == "m"
        await world.turn()
        (owned,) = world.asked[1].topic_partitions or []
        assert (owned.topic_id, owned.partitions) == (T_ID, [0, 1])
        await world.turn()
        assert len(world.asked) == 2, "there is nothing new to tell"
        world.now_ms += INTERVAL_MS - 1
        await world.turn()
        assert len(world.asked) == 2
        world.now_ms += 1
        await world.turn()
        assert len(world.asked) == 3
        assert world.steps == [(Change.ASSIGNED, t(0, 1))], "once"

    in_world(scenario)


def test_a_member_gives_up_before_it_takes() -> None:
    async def scenario(world: World) -> None:
        await world.join(0, 1)
        world.will_assign(1, 2)
        await world.turn()
        assert world.steps == [(Change.REVOKED, t(0)), (Change.ASSIGNED, t(2))]
        assert world.group.held() == t(1, 2)

    in_world(scenario)


def test_what_has_changed_while_it_gave_up_is_taken_into_account() -> None:
    async def scenario(world: World) -> None:
        await world.join(0, 1)
        world.may_step.clear()
        world.will_assign(1, 2)
        await world.turn()
        await until(lambda: world.steps == [(Change.REVOKED, t(0))])
        assert world.group.held() == t(0, 1), "until the application has let go of it"
        world.will_assign(1, 3)
        world.now_ms += INTERVAL_MS
        await world.turn()
        assert len(world.steps) == 1, "one thing after another"
        world.may_step.set()
        await world.settled()
        assert world.group.held() == t(1)
        await world.turn()
        assert world.steps[1:] == [(Change.ASSIGNED, t(3))]

    in_world(scenario)


def test_a_topic_whose_name_is_not_known_is_asked_for_and_waited_for() -> None:
    async def scenario(world: World) -> None:
        world.will_assign(0, topic_id=U_ID)
        await world.turn()
        assert world.updates == 1 and world.steps == []
        world.topics["u"] = SimpleNamespace(topic_id=U_ID)
        await world.turn()
        assert world.steps == [(Change.ASSIGNED, frozenset({TopicPartition("u", 0)}))]

    in_world(scenario)


@pytest.mark.parametrize(
    ("code", "calls", "is_lost"),
    [
        (ErrorCode.NOT_COORDINATOR, ["forget"], False),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [], False),
        (ErrorCode.UNKNOWN_MEMBER_ID, [], True),
        (ErrorCode.FENCED_MEMBER_EPOCH, [], True),
    ],
)
def test_what_the_coordinator_may_answer(code: ErrorCode, calls: list[str], is_lost: bool) -> None:
    async def scenario(world: World) -> None:
        await world.join(0)
        world.answers = [ConsumerGroupHeartbeatResponse(error_code=code)]
        await world.turn()
        assert world.coordinator_calls == calls
        assert world.group.held() == (frozenset() if is_lost else t(0))
        assert world.steps == ([(Change.LOST, t(0))] if is_lost else [])
        assert world.group._member.is_member is not is_lost

    in_world(scenario)


def test_who_has_lost_everything_joins_again_when_the_application_knows() -> None:
    async def scenario(world: World) -> None:
        await world.join(0)
        world.may_step.clear()
        world.answers = [ConsumerGroupHeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH)]
        await world.turn()
        asked = len(world.asked)
        for _ in range(3):
            world.now_ms += INTERVAL_MS
            await world.turn()
        assert len(world.asked) == asked, "as a member it could commit what is no longer its own"
        world.may_step.set()
        await world.settled()
        world.will_assign(0, epoch=8)
        await world.turn()
        assert world.asked[-1].member_epoch == 0 and world.group.held() == t(0)

    in_world(scenario)


def test_who_does_not_poll_leaves_and_joins_when_it_polls_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        await world.join(0)
        world.now_ms = 61_000
        await world.turn()
        assert world.asked[-1].member_epoch == -1 and world.steps == [(Change.LOST, t(0))]
        asked = len(world.asked)
        await world.turn()
        assert len(world.asked) == asked
        world.timer.touch(world.now_ms)
        world.will_assign(0)
        await world.turn()
        assert world.asked[-1].member_epoch == 0 and world.group.held() == t(0)

    in_world(scenario)
    assert ["max.poll.interval.ms" in message for message in caplog.messages] == [True]


def test_nobody_joins_without_topics_but_a_member_says_that_it_has_none_left() -> None:
    async def scenario(world: World) -> None:
        world.engine.subscription.topics = frozenset()
        await world.turn()
        assert world.asked == []
        world.engine.subscription.topics = frozenset({"t"})
        await world.join(0)
        world.engine.subscription.topics = frozenset()
        await world.turn()
        assert world.asked[-1].subscribed_topic_names == []

    in_world(scenario)


def test_leaving_is_told_if_the_coordinator_may_know_the_member() -> None:
    async def scenario(world: World) -> None:
        await world.group.leave("never joined")
        assert world.asked == []
        await world.join(0)
        await world.group.leave("closed")
        assert (world.asked[-1].member_epoch, world.asked[-1].member_id) == (-1, "m")
        assert world.group.held() == frozenset() and not world.group._member.is_member

    in_world(scenario)


@pytest.mark.parametrize(
    ("topics", "is_member", "expired", "gives_up", "pause_s"),
    [
        ((), False, False, False, 60.0),
        (("t",), True, True, False, 0.1),
        (("t",), False, False, True, 1.0),
        (("t",), True, False, False, 0.5),
        ((), True, False, False, 0.5),
    ],
)
def test_how_long_it_rests(
    monkeypatch: pytest.MonkeyPatch,
    topics: tuple[str, ...],
    is_member: bool,
    expired: bool,
    gives_up: bool,
    pause_s: float,
) -> None:
    """A next heartbeat is due in half a second."""
    rested: list[float] = []

    def timeout(seconds: float) -> asyncio.Timeout:
        rested.append(seconds)
        return asyncio.Timeout(None)

    async def scenario(world: World) -> None:
        group: Any = world.group
        world.engine.subscription.topics = frozenset(topics)
        group._member = SimpleNamespace(is_member=is_member, heartbeat_due_ms=lambda topics, owned: world.now_ms + 500)
        if expired:
            world.now_ms = 70_000
        if gives_up:
            group._reconciling = asyncio.ensure_future(asyncio.Event().wait())
        group._changed.set()
        with monkeypatch.context() as patch:
            # In that module alone: loops of other threads have time-outs, too.
            own = SimpleNamespace(**{**vars(asyncio), "timeout": timeout})
            patch.setattr("ottla.client.aio.group.consumer.asyncio", own)
            await group._pause()
        if gives_up:
            group._reconciling.cancel()

    in_world(scenario)
    assert rested == [pause_s]
