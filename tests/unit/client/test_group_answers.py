"""A consumer in a group, for each answer its coordinator may give: what it holds, loses, and asks for next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ottla import TopicPartition, aio
from ottla.base.errors import ErrorCode
from ottla.client.core.group.protocol import decode_assignment, encode_assignment
from ottla.client.core.group.rebalance import RebalanceListener
from ottla.errors import ClientError, FencedInstanceError
from ottla.wire.apis.consumer_group_heartbeat import (
    AssignedTopicPartitions,
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.wire.apis.fetch import FetchRequest, FetchResponse
from ottla.wire.apis.find_coordinator import FindCoordinatorRequest
from ottla.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from ottla.wire.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.wire.apis.list_offsets import ListOffsetsRequest
from ottla.wire.apis.metadata import MetadataRequest
from ottla.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup
from ottla.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.wire.message import Request
from tests.waiting import run_async

from .scripted_broker import ScriptedBroker
from .test_silent_broker import FIRST, SECOND, TOPIC, TOPIC_ID, found, from_the_beginning, leaders

E = ErrorCode
BOTH = frozenset({FIRST, SECOND})


class Told(RebalanceListener):
    def __init__(self) -> None:
        self.events: list[tuple[str, frozenset[TopicPartition]]] = []

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.events.append(("assigned", frozenset(partitions)))

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.events.append(("revoked", frozenset(partitions)))

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.events.append(("lost", frozenset(partitions)))

    @property
    def words(self) -> list[str]:
        return [word for word, _ in self.events]


class World:
    """A coordinator that lets one member lead the group, and answers with these codes before it does."""

    consumer: aio.Consumer[Any, Any]

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        self.told = Told()
        self.codes: dict[type[Request], list[int]] = {}
        self.generation = 0
        self.epoch = 0
        self.target: list[int] | None = [0, 1]
        broker.on(MetadataRequest, lambda _: broker.metadata(topics=[leaders((1, 0), (1, 0))]))
        broker.on(FindCoordinatorRequest, lambda _: found(broker))
        broker.on(JoinGroupRequest, self._joined)
        broker.on(SyncGroupRequest, self._synced)
        broker.on(HeartbeatRequest, lambda _: HeartbeatResponse(error_code=self._code(HeartbeatRequest)))
        broker.on(LeaveGroupRequest, lambda _: LeaveGroupResponse())
        broker.on(ConsumerGroupHeartbeatRequest, self._beaten)
        broker.on(OffsetFetchRequest, self._nothing_committed)
        broker.on(ListOffsetsRequest, from_the_beginning)
        broker.on(FetchRequest, self._nothing)

    def _code(self, kind: type[Request]) -> int:
        codes = self.codes.get(kind)
        return codes.pop(0) if codes else 0

    def _joined(self, request: JoinGroupRequest) -> JoinGroupResponse:
        code = self._code(JoinGroupRequest)
        member_id = request.member_id or "given"
        if code:
            return JoinGroupResponse(error_code=code, member_id="required" if code == E.MEMBER_ID_REQUIRED else "")
        self.generation += 1
        member = JoinGroupResponseMember(
            member_id=member_id, group_instance_id=request.group_instance_id, metadata=request.protocols[0].metadata
        )
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=request.protocols[0].name,
            leader=member_id,
            member_id=member_id,
            members=[member],
        )

    def _synced(self, request: SyncGroupRequest) -> SyncGroupResponse:
        code = self._code(SyncGroupRequest)
        if code:
            return SyncGroupResponse(error_code=code)
        (own,) = request.assignments
        assert own.member_id == request.member_id
        return SyncGroupResponse(assignment=encode_assignment(decode_assignment(own.assignment)[0], None))

    def _beaten(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        code = self._code(ConsumerGroupHeartbeatRequest)
        if code:
            return ConsumerGroupHeartbeatResponse(error_code=code)
        assignment = None
        if request.member_epoch == 0:
            self.epoch += 1
        if self.target is not None:
            entries = [AssignedTopicPartitions(topic_id=TOPIC_ID, partitions=self.target)]
            assignment = Assignment(topic_partitions=entries if self.target else [])
        return ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=self.epoch, heartbeat_interval_ms=10, assignment=assignment
        )

    def _nothing_committed(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="group")])

    async def _nothing(self, _: object) -> FetchResponse:
        await asyncio.sleep(0.02)
        return FetchResponse()

    async def poll_until(self, *words: str) -> None:
        async with asyncio.timeout(20):
            while self.told.words != list(words):
                assert self.told.words == list(words)[: len(self.told.words)]
                await self.consumer.poll(0.01)

    def asked(self, kind: type[Request]) -> list[Any]:
        return self.broker.asked(kind)

    @property
    def searches(self) -> int:
        return len(self.asked(FindCoordinatorRequest))


@asynccontextmanager
async def world(codes: dict[type[Request], list[ErrorCode]] | None = None, **settings: object) -> AsyncIterator[World]:
    async with ScriptedBroker() as broker:
        here = World(broker)
        here.codes = {kind: [*listed] for kind, listed in (codes or {}).items()}
        own = {
            "bootstrap.servers": broker.address,
            "group.id": "group",
            "retry.backoff.ms": 1,
            "heartbeat.interval.ms": 10,
            "session.timeout.ms": 6000,
            "partition.assignment.strategy": "range",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        chosen = {name: value for name, value in {**own, **settings}.items() if value is not None}
        async with aio.Consumer(chosen) as here.consumer:
            here.consumer.subscribe([TOPIC], listener=here.told)
            yield here


@pytest.mark.parametrize(
    ("kind", "code", "joins", "searches"),
    [
        (JoinGroupRequest, E.MEMBER_ID_REQUIRED, ["", "required"], 1),
        (JoinGroupRequest, E.COORDINATOR_LOAD_IN_PROGRESS, ["", ""], 1),
        (JoinGroupRequest, E.REBALANCE_IN_PROGRESS, ["", ""], 1),
        (JoinGroupRequest, E.NOT_COORDINATOR, ["", ""], 2),
        (JoinGroupRequest, E.COORDINATOR_NOT_AVAILABLE, ["", ""], 2),
        (JoinGroupRequest, E.UNKNOWN_MEMBER_ID, ["", ""], 1),
        (SyncGroupRequest, E.COORDINATOR_LOAD_IN_PROGRESS, ["", "given"], 1),
        (SyncGroupRequest, E.REBALANCE_IN_PROGRESS, ["", "given"], 1),
        (SyncGroupRequest, E.ILLEGAL_GENERATION, ["", "given"], 1),
        (SyncGroupRequest, E.NOT_COORDINATOR, ["", "given"], 2),
        (SyncGroupRequest, E.UNKNOWN_MEMBER_ID, ["", ""], 1),
    ],
)
def test_joining_goes_on_until_there_is_an_assignment(
    kind: type[Request], code: ErrorCode, joins: list[str], searches: int
) -> None:
    async def scenario() -> None:
        async with world({kind: [code]}) as here:
            await here.poll_until("assigned")
            assert here.told.events == [("assigned", BOTH)]
            assert here.consumer.assignment == BOTH
            assert [one.member_id for one in here.asked(JoinGroupRequest)] == joins
            assert here.searches == searches
            (join, *_) = here.asked(JoinGroupRequest)
            assert (join.group_id, join.session_timeout_ms, join.rebalance_timeout_ms) == ("group", 6000, 300_000)

    run_async(scenario())


@pytest.mark.parametrize(
    ("code", "words", "member_id"),
    [
        (E.REBALANCE_IN_PROGRESS, ("assigned", "revoked", "assigned"), "given"),
        (E.ILLEGAL_GENERATION, ("assigned", "lost", "assigned"), "given"),
        (E.UNKNOWN_MEMBER_ID, ("assigned", "lost", "assigned"), ""),
    ],
)
def test_a_heartbeat_may_say_that_the_group_goes_on(code: ErrorCode, words: tuple[str, ...], member_id: str) -> None:
    async def scenario() -> None:
        async with world() as here:
            await here.poll_until("assigned")
            here.codes[HeartbeatRequest] = [code]
            await here.poll_until(*words)
            assert [partitions for _, partitions in here.told.events] == [BOTH] * 3
            assert [one.member_id for one in here.asked(JoinGroupRequest)] == ["", member_id]
            beat = here.asked(HeartbeatRequest)[0]
            assert (beat.group_id, beat.member_id, beat.generation_id) == ("group", "given", 1)

    run_async(scenario())


@pytest.mark.parametrize(
    ("code", "searches"),
    [(E.NOT_COORDINATOR, 2), (E.COORDINATOR_NOT_AVAILABLE, 2), (E.COORDINATOR_LOAD_IN_PROGRESS, 1)],
)
def test_a_heartbeat_that_says_nothing_about_the_member_changes_nothing(code: ErrorCode, searches: int) -> None:
    async def scenario() -> None:
        async with world() as here:
            await here.poll_until("assigned")
            here.codes[HeartbeatRequest] = [code]
            beaten = len(here.asked(HeartbeatRequest))
            async with asyncio.timeout(20):
                while len(here.asked(HeartbeatRequest)) < beaten + 3:
                    await here.consumer.poll(0.01)
            assert here.told.words == ["assigned"]
            assert (len(here.asked(JoinGroupRequest)), here.searches) == (1, searches)

    run_async(scenario())


@pytest.mark.parametrize(
    ("protocol", "kind"),
    [
        ("classic", JoinGroupRequest),
        ("classic", SyncGroupRequest),
        ("classic", HeartbeatRequest),
        ("consumer", ConsumerGroupHeartbeatRequest),
    ],
)
def test_a_refusal_is_told_by_a_poll_and_whoever_polls_on_has_it_asked_again(
    protocol: str, kind: type[Request]
) -> None:
    async def scenario() -> None:
        async with world(
            {kind: [E.GROUP_AUTHORIZATION_FAILED]}, **{"group.protocol": protocol, **NOT_FOR[protocol]}
        ) as here:
            with pytest.raises(ClientError) as refusal:
                async with asyncio.timeout(20):
                    while True:
                        await here.consumer.poll(0.01)
            assert refusal.value.code is E.GROUP_AUTHORIZATION_FAILED and not refusal.value.fatal
            async with asyncio.timeout(20):
                while here.consumer.assignment != BOTH:
                    await here.consumer.poll(0.01)

    run_async(scenario())


NOT_FOR: dict[str, dict[str, object]] = {
    "classic": {},
    "consumer": {"session.timeout.ms": None, "heartbeat.interval.ms": None, "partition.assignment.strategy": None},
}
"""Settings that only the classic protocol knows."""


@pytest.mark.parametrize(
    ("protocol", "kind", "code"),
    [
        ("classic", JoinGroupRequest, E.FENCED_INSTANCE_ID),
        ("classic", HeartbeatRequest, E.FENCED_INSTANCE_ID),
        ("consumer", ConsumerGroupHeartbeatRequest, E.FENCED_INSTANCE_ID),
        ("consumer", ConsumerGroupHeartbeatRequest, E.UNRELEASED_INSTANCE_ID),
    ],
)
def test_a_fenced_instance_is_of_no_more_use(protocol: str, kind: type[Request], code: ErrorCode) -> None:
    async def scenario() -> None:
        settings = {"group.protocol": protocol, "group.instance.id": "i", **NOT_FOR[protocol]}
        async with world({kind: [code]}, **settings) as here:
            for _ in range(2):
                with pytest.raises(FencedInstanceError) as refusal:
                    async with asyncio.timeout(20):
                        while True:
                            await here.consumer.poll(0.01)
                assert refusal.value.fatal

    run_async(scenario())


@pytest.mark.parametrize("instance_id", [None, "i"])
def test_who_closes_says_good_bye_unless_expected_back(instance_id: str | None) -> None:
    async def scenario() -> None:
        async with world(**{"group.instance.id": instance_id} if instance_id else {}) as here:
            await here.poll_until("assigned")
        assert here.told.words == ["assigned", "revoked"]
        left = [(one.group_id, [member.member_id for member in one.members]) for one in here.asked(LeaveGroupRequest)]
        assert left == ([] if instance_id else [("group", ["given"])])

    run_async(scenario())


# KIP-848


@asynccontextmanager
async def new_world(**settings: object) -> AsyncIterator[World]:
    async with world(**{"group.protocol": "consumer", **NOT_FOR["consumer"], **settings}) as here:
        yield here


@pytest.mark.parametrize(
    ("code", "words", "searches"),
    [
        (E.UNKNOWN_MEMBER_ID, ("assigned", "lost", "assigned"), 1),
        (E.FENCED_MEMBER_EPOCH, ("assigned", "lost", "assigned"), 1),
        (E.NOT_COORDINATOR, ("assigned",), 2),
        (E.COORDINATOR_NOT_AVAILABLE, ("assigned",), 2),
        (E.COORDINATOR_LOAD_IN_PROGRESS, ("assigned",), 1),
    ],
)
def test_what_a_heartbeat_may_say(code: ErrorCode, words: tuple[str, ...], searches: int) -> None:
    async def scenario() -> None:
        async with new_world() as here:
            await here.poll_until("assigned")
            here.codes[ConsumerGroupHeartbeatRequest] = [code]
            async with asyncio.timeout(20):
                while here.codes[ConsumerGroupHeartbeatRequest]:
                    await here.consumer.poll(0.01)
            await here.poll_until(*words)
            beats = len(here.asked(ConsumerGroupHeartbeatRequest))
            async with asyncio.timeout(20):
                while len(here.asked(ConsumerGroupHeartbeatRequest)) < beats + 2:
                    await here.consumer.poll(0.01)
            assert (here.told.words, here.searches) == ([*words], searches)
            joins = [one for one in here.asked(ConsumerGroupHeartbeatRequest) if one.member_epoch == 0]
            assert len(joins) == (2 if "lost" in words else 1)
            assert len({one.member_id for one in joins}) == 1, "it stays who it was"

    run_async(scenario())


def test_a_member_gives_up_first_and_takes_then() -> None:
    async def scenario() -> None:
        async with new_world() as here:
            await here.poll_until("assigned")
            here.target = [1]
            await here.poll_until("assigned", "revoked")
            assert here.told.events[-1] == ("revoked", frozenset({FIRST}))
            async with asyncio.timeout(20):
                while [one.partitions for one in _owned(here)] != [[1]]:
                    await here.consumer.poll(0.01)
            here.target = [0, 1]
            await here.poll_until("assigned", "revoked", "assigned")
            assert here.told.events[-1] == ("assigned", frozenset({FIRST}))
        last = here.asked(ConsumerGroupHeartbeatRequest)[-1]
        assert last.member_epoch == -1, "it says good-bye"
        assert here.told.events[-1] == ("revoked", BOTH)

    run_async(scenario())


def _owned(here: World) -> list[Any]:
    """What the coordinator was told last that the member holds."""
    told = [
        one.topic_partitions for one in here.asked(ConsumerGroupHeartbeatRequest) if one.topic_partitions is not None
    ]
    return told[-1] if told else []
