"""A member of a classic group between two joins: when it beats, what it hears, when it leaves. Hours pass at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.client.aio.group import classic
from ottla.client.aio.group.classic import ClassicGroup
from ottla.client.core.consumer.cursors import Cursors
from ottla.client.core.consumer.options import ConsumerSettings
from ottla.client.core.consumer.subscription import Subscription
from ottla.client.core.group.classic_member import PollTimer
from ottla.client.core.group.rebalance import Change
from ottla.client.core.metadata import MetadataCache
from ottla.client.errors import ClientError
from ottla.wire.apis.heartbeat import HeartbeatRequest
from ottla.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from ottla.wire.apis.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.apis.sync_group import SyncGroupRequest
from tests.log_lines import lines_of
from tests.unit.client.loop_time import run

E = ErrorCode
FIRST, SECOND, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class Scene:
    """A member of generation 3 that holds two partitions, and a coordinator that the test plays."""

    def __init__(self, **settings: object) -> None:
        self.asked: list[tuple[float, object]] = []
        self.timeouts_ms: dict[type[object], int | None] = {}
        self.answers: dict[type[object], list[Any]] = {}
        """Codes, errors or responses by request; without any, all is fine."""
        self.on_ask: Callable[[], object] = lambda: None
        self.done: list[str] = []
        self.steps: list[tuple[Change, set[TopicPartition]]] = []
        self.refusals: list[KafkaError] = []
        self.leave_version = 5
        cursors, subscription = Cursors(), Subscription()
        cursors.replace([FIRST, SECOND])
        subscription.subscribe(["t"])
        link = SimpleNamespace(connection_to=self._connection_to, request=self._tell)
        self.engine: Any = SimpleNamespace(
            now_ms=self.now_ms,
            cursors=cursors,
            subscription=subscription,
            metadata=MetadataCache(),
            link=link,
            group_link=link,
            group_topics=frozenset({"left over"}),
            coordinator=SimpleNamespace(
                node_id=self._node_id,
                forget=lambda: self.done.append("forgotten"),
                lose=lambda: self.done.append("lost"),
            ),
            spawn=lambda work: asyncio.get_running_loop().create_task(work),
            wait_for_metadata=self._learn,
        )
        given = {"bootstrap.servers": "x:1", "group.id": "g", "partition.assignment.strategy": "range", **settings}
        parsed = ConsumerSettings.parse(given)
        runner: Any = SimpleNamespace(
            engine=self.engine,
            settings=parsed,
            poll_timer=PollTimer(parsed.max_poll_interval_ms, self.now_ms()),
            step=self._step,
            partitions_lost=self._partitions_lost,
            refused=self._refused,
        )
        self.timer: PollTimer = runner.poll_timer
        self.group = ClassicGroup(runner, ())
        self.group._must_join = False
        self.group._joined_topics = frozenset({"t"})
        self.member = self.group._member
        self.member.member_id, self.member.generation = "m", 3

    def now_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)

    async def _node_id(self) -> int:
        return 7

    async def _learn(self) -> None:
        self.done.append("learnt")

    async def _step(self, change: Change, partitions: Collection[TopicPartition]) -> None:
        self.steps.append((change, set(partitions)))

    def _partitions_lost(self) -> frozenset[TopicPartition]:
        self.done.append("partitions lost")
        return frozenset({SECOND})

    async def _refused(self, error: KafkaError) -> None:
        self.refusals.append(error)
        await asyncio.sleep(10)

    async def _connection_to(self, node_id: int) -> Any:
        assert node_id == 7
        return SimpleNamespace(request=self._ask, version_for=lambda kind: self.leave_version)

    async def _tell(self, node_id: int, request: Any, response_class: Any) -> Any:
        assert node_id == 7
        return await self._ask(request, response_class)

    async def _ask(self, request: Any, response_class: Any, *, timeout_ms: int | None = None) -> Any:
        self.asked.append((self.now_ms() / 1000, request))
        self.timeouts_ms[type(request)] = timeout_ms
        self.on_ask()
        answers = self.answers.get(type(request))
        answer = answers.pop(0) if answers else 0
        if isinstance(answer, KafkaError):
            raise answer
        return answer if isinstance(answer, response_class) else response_class(error_code=answer)

    def times_s(self, kind: type[object]) -> list[float]:
        return [at_s for at_s, request in self.asked if isinstance(request, kind)]

    async def beats_for(self, seconds: float) -> None:
        beating = asyncio.ensure_future(self.group._keep_beating())
        await asyncio.sleep(seconds)
        beating.cancel()
        await asyncio.wait([beating])


BEAT = HeartbeatRequest(group_id="g", generation_id=3, member_id="m", group_instance_id=None)


@pytest.mark.parametrize(("settings", "interval_s"), [({}, 3.0), ({"heartbeat.interval.ms": 700}, 0.7)])
def test_a_member_beats_at_its_interval(settings: dict[str, object], interval_s: float) -> None:
    async def scenario() -> None:
        here = Scene(**settings)
        await here.beats_for(5 * interval_s - 0.01)
        assert [request for _, request in here.asked] == [BEAT] * 5
        assert here.times_s(HeartbeatRequest) == pytest.approx([number * interval_s for number in range(5)])
        assert here.timeouts_ms == {HeartbeatRequest: 30_000}
        assert not here.group._must_join and here.done == []

    run(scenario)


def test_nobody_beats_who_joins_or_is_no_member() -> None:
    async def scenario() -> None:
        here = Scene()
        beating = asyncio.ensure_future(here.group._keep_beating())
        here.group.is_joining = True
        await asyncio.sleep(10.01)
        assert here.asked == []
        here.group.is_joining = False
        await asyncio.sleep(0.02)
        assert len(here.asked) == 1, "soon after it has joined"
        here.member.forget()
        await asyncio.sleep(10)
        assert len(here.asked) == 1
        beating.cancel()

    run(scenario)


@pytest.mark.parametrize("instance_id", [None, "i"])
def test_who_does_not_poll_leaves_in_time(instance_id: str | None, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        own: dict[str, object] = {} if instance_id is None else {"group.instance.id": instance_id}
        here = Scene(**{"heartbeat.interval.ms": 7000, **own})
        await asyncio.sleep(1)
        here.timer.begin(here.now_ms())
        await here.beats_for(1000)
        assert max(here.times_s(HeartbeatRequest)) > 990, "whoever waits in a poll does poll"
        here.timer.end(here.now_ms())
        here.asked.clear()
        await here.beats_for(400)
        # Since 1001 s, for max.poll.interval.ms; the last beat is not the last chance to look.
        assert max(here.times_s(HeartbeatRequest)) < 1301
        goodbye = MemberIdentity(member_id="m", reason="poll was not called for max.poll.interval.ms")
        left = [] if instance_id else [(1301.0, LeaveGroupRequest(group_id="g", members=[goodbye]))]
        assert [(at_s, one) for at_s, one in here.asked if isinstance(one, LeaveGroupRequest)] == left
        assert not here.member.is_member and here.member.member_id == ""
        assert here.group._must_join and here.group._is_lost and here.group._changed.is_set()
        assert here.done == ["partitions lost"]

    run(scenario)
    assert [(line.levelno, line.getMessage()) for line in lines_of(caplog, classic.__name__)] == [
        (logging.WARNING, "poll was not called for 300000 ms (max.poll.interval.ms): leaving the group")
    ]


@pytest.mark.parametrize(
    ("code", "joins", "done", "member"),
    [
        (E.NONE, False, [], ("m", 3)),
        (E.COORDINATOR_LOAD_IN_PROGRESS, False, [], ("m", 3)),
        (E.NOT_COORDINATOR, False, ["forgotten"], ("m", 3)),
        (E.COORDINATOR_NOT_AVAILABLE, False, ["forgotten"], ("m", 3)),
        (E.REBALANCE_IN_PROGRESS, True, [], ("m", 3)),
        (E.ILLEGAL_GENERATION, True, ["partitions lost"], ("m", -1)),
        (E.UNKNOWN_MEMBER_ID, True, ["partitions lost"], ("", -1)),
    ],
)
@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize("is_late", [False, True])
def test_what_a_heartbeat_is_told(
    code: ErrorCode, joins: bool, done: list[str], member: tuple[str, int], holds: bool, is_late: bool
) -> None:
    async def scenario() -> None:
        here = Scene()
        here.answers = {HeartbeatRequest: [code]}
        if not holds:
            here.engine.cursors.replace([])
        if is_late:
            here.on_ask = lambda: setattr(here.group, "is_joining", True)
        await here.group._beat()
        if is_late:
            assert (here.group._must_join, here.done) == (False, []), "the answer to the join will say what is so"
            return
        assert (here.group._must_join, here.group._changed.is_set(), here.done) == (joins, joins, done)
        assert (here.member.member_id, here.member.generation) == member
        assert here.group._is_lost is (holds and member[1] == -1)

    run(scenario)


@pytest.mark.parametrize("code", [E.NETWORK_EXCEPTION, E.REQUEST_TIMED_OUT, E.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_coordinator_that_does_not_answer_is_looked_for_again_after_a_pause(code: ErrorCode) -> None:
    async def scenario() -> None:
        here = Scene(**{"retry.backoff.ms": 250})
        failures = [KafkaError("away", code=code)] * 2
        here.answers = {HeartbeatRequest: [*failures]}
        await here.beats_for(7.0)
        # The interval goes on meanwhile.
        assert here.times_s(HeartbeatRequest) == [0.0, 3.0, 6.0]
        assert here.done == ["lost"] * 2 and here.refusals == []

    run(scenario)


def test_pauses_after_a_search_that_failed_are_those_of_the_settings() -> None:
    async def scenario() -> None:
        here = Scene(**{"retry.backoff.ms": 250})
        searched_s: list[float] = []

        async def search() -> int:
            searched_s.append(here.now_ms() / 1000)
            here.member._next_heartbeat_ms = 0
            raise KafkaError("nobody", code=E.COORDINATOR_NOT_AVAILABLE)

        here.engine.coordinator.node_id = search
        await here.beats_for(0.9)
        assert searched_s == [0.0, 0.25, 0.5, 0.75]

    run(scenario)


def test_a_heartbeat_that_is_refused_is_for_a_poll_to_tell() -> None:
    async def scenario() -> None:
        here = Scene()
        refusal = ClientError("not you", code=E.GROUP_AUTHORIZATION_FAILED)
        here.answers = {HeartbeatRequest: [refusal]}
        await here.beats_for(9.0)
        assert here.refusals == [refusal] and here.done == []
        assert here.times_s(HeartbeatRequest) == [0.0], "not before it was told"

    run(scenario)


# When to join


def test_a_member_waits_for_a_cause_to_join() -> None:
    async def scenario() -> None:
        here = Scene()
        waiting = asyncio.ensure_future(here.group._wait_until_joining())
        await asyncio.sleep(1000)
        assert not waiting.done()
        here.timer.touch(here.now_ms())
        here.group._rejoin()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert waiting.done()

    run(scenario)


@pytest.mark.parametrize(
    ("topics", "held", "is_lost", "joins"),
    [
        (["t"], [], False, True),
        ([], [FIRST], False, True),
        ([], [], False, False),
        ([], [], True, True),
    ],
)
def test_who_has_nothing_to_read_or_to_give_up_does_not_join(
    topics: list[str], held: list[TopicPartition], is_lost: bool, joins: bool
) -> None:
    async def scenario() -> None:
        here = Scene()
        if not topics:
            here.engine.subscription.unsubscribe()
        here.engine.cursors.replace(held)
        here.group._must_join, here.group._is_lost = True, is_lost
        waiting = asyncio.ensure_future(here.group._wait_until_joining())
        await asyncio.sleep(20)
        assert waiting.done() is joins
        waiting.cancel()

    run(scenario)


def test_who_has_stopped_polling_joins_soon_after_polling_again() -> None:
    async def scenario() -> None:
        here = Scene()
        here.group._must_join = True
        await asyncio.sleep(300)
        waiting = asyncio.ensure_future(here.group._wait_until_joining())
        await asyncio.sleep(60.05)
        assert not waiting.done()
        here.timer.touch(here.now_ms())
        await asyncio.sleep(0.06)
        assert waiting.done()

    run(scenario)


@pytest.mark.parametrize(("strategy", "given_up"), [("range", {FIRST, SECOND, OTHER}), ("cooperative-sticky", {OTHER})])
def test_what_is_given_up_before_joining(strategy: str, given_up: set[TopicPartition]) -> None:
    async def scenario() -> None:
        here = Scene(**{"partition.assignment.strategy": strategy})
        here.engine.cursors.replace([FIRST, SECOND, OTHER])
        await here.group._give_up_before_joining()
        assert here.steps == [(Change.REVOKED, given_up)]
        assert here.done == [] and not here.group._must_join

    run(scenario)


@pytest.mark.parametrize("is_lost_before", [True, False])
def test_what_was_lost_is_told_as_lost(is_lost_before: bool) -> None:
    async def scenario() -> None:
        here = Scene()
        here.group._is_lost = is_lost_before

        async def lose(change: Change, partitions: Collection[TopicPartition]) -> None:
            here.steps.append((change, set(partitions)))
            here.group._is_lost = True

        here.group._runner.step = lose  # type: ignore[method-assign]
        await here.group._give_up_before_joining()
        revoked = [] if is_lost_before else [(Change.REVOKED, {FIRST, SECOND})]
        assert here.steps == [*revoked, (Change.LOST, {SECOND})]
        assert here.group._must_join and not here.group._is_lost
        assert here.done == ["partitions lost"]

    run(scenario)


# Joining


def joined(request: JoinGroupRequest, leader: str = "m") -> JoinGroupResponse:
    member = JoinGroupResponseMember(member_id="m", metadata=request.protocols[0].metadata)
    return JoinGroupResponse(
        generation_id=4, protocol_type="consumer", protocol_name="range", leader=leader, member_id="m", members=[member]
    )


@pytest.mark.parametrize("is_leader", [True, False])
def test_a_join_is_followed_by_a_sync(is_leader: bool) -> None:
    async def scenario() -> None:
        here = Scene(**{"max.poll.interval.ms": 20_000, "session.timeout.ms": 6000})
        here.group._must_join = True
        here.group._granted = frozenset({OTHER})
        assert here.group.held() == {FIRST, SECOND, OTHER}
        asked = here.member.join_request(["t"], [FIRST, SECOND])
        here.answers = {JoinGroupRequest: [joined(asked, "m" if is_leader else "somebody else")]}
        held_s: list[frozenset[TopicPartition]] = []
        here.on_ask = lambda: held_s.append(here.group.held())
        assert await here.group._join() == []
        first, second = (request for _, request in here.asked)
        assert first == asked
        assert isinstance(second, SyncGroupRequest) and (second.generation_id, second.member_id) == (4, "m")
        assert [one.member_id for one in second.assignments] == (["m"] if is_leader else [])
        assert held_s == [{FIRST, SECOND, OTHER}, {FIRST, SECOND}], "the new generation has not given it yet"
        assert here.timeouts_ms == {JoinGroupRequest: 25_000, SyncGroupRequest: 25_000}
        assert here.engine.group_topics == (frozenset({"t"}) if is_leader else frozenset())
        assert here.done == (["learnt"] if is_leader else [])
        assert here.group._counted == ({"t": 0} if is_leader else {})
        assert not here.group._must_join and not here.group.is_joining and here.group._changed.is_set()
        assert here.group._joined_topics == {"t"}

    run(scenario)


@pytest.mark.parametrize("kind", [JoinGroupRequest, SyncGroupRequest])
@pytest.mark.parametrize(
    ("code", "may_pass"),
    [
        (E.NETWORK_EXCEPTION, True),
        (E.REQUEST_TIMED_OUT, True),
        (E.NOT_LEADER_OR_FOLLOWER, True),
        (E.GROUP_AUTHORIZATION_FAILED, False),
    ],
)
def test_a_join_that_fails_is_begun_again_or_refused(kind: type[object], code: ErrorCode, may_pass: bool) -> None:
    async def scenario() -> None:
        here = Scene(**{"retry.backoff.ms": 250})
        asked = here.member.join_request(["t"], [FIRST, SECOND])
        here.answers = {JoinGroupRequest: [joined(asked)]}
        here.answers[kind] = [KafkaError("no", code=code)]
        if may_pass:
            assert await here.group._join() is None
            assert here.now_ms() == 250 and "forgotten" in here.done
            assert here.group._must_join
        else:
            with pytest.raises(KafkaError, match="no"):
                await here.group._join()
            assert "forgotten" not in here.done
        assert not here.group.is_joining and here.group._changed.is_set()

    run(scenario)


def test_a_refused_join_is_tried_again_when_it_was_told() -> None:
    async def scenario() -> None:
        here = Scene()
        here.group._must_join = True
        refusal = ClientError("not you", code=E.GROUP_AUTHORIZATION_FAILED)
        here.answers = {JoinGroupRequest: [refusal, refusal, refusal]}
        running = asyncio.ensure_future(here.group.run())
        await asyncio.sleep(15)
        assert here.times_s(JoinGroupRequest) == [0.0, 10.0]
        assert here.refusals == [refusal] * 2
        running.cancel()
        await asyncio.wait([running])
        asked = len(here.asked)
        await asyncio.sleep(60)
        assert len(here.asked) == asked, "nobody beats any more"
        assert here.engine.group_topics == frozenset()

    run(scenario)


# Leaving


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (2, LeaveGroupRequest(group_id="g", member_id="m")),
        (3, LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m", reason="why")])),
    ],
)
def test_who_leaves_is_no_member_at_once_and_says_so_then(version: int, expected: LeaveGroupRequest) -> None:
    async def scenario() -> None:
        here = Scene()
        here.leave_version = version
        farewell = here.group.leave("why")
        assert not here.member.is_member and here.group._must_join and here.asked == []
        await farewell
        assert [request for _, request in here.asked] == [expected]
        await here.group.leave("again")
        assert len(here.asked) == 1, "nobody is there to leave"

    run(scenario)
