"""What a broker answers to what it is told: replicas deleted or not, roles that it cannot take, newer controllers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import Endpoint, TopicPartition, Uuid
from ottla.broker.controller import outgoing as module
from ottla.broker.controller.outgoing import Outgoing
from ottla.machines.cluster.decision import DeleteReplicas, Message, TellMetadata, TellRoles
from ottla.machines.cluster.requests import Sender
from ottla.machines.cluster.state import ClusterState, LiveBroker, WritePartition, WriteTopic
from ottla.wire.apis.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from ottla.wire.apis.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from ottla.wire.apis.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from ottla.wire.message import Request, Response
from tests.waiting import run_async, until

E = ErrorCode
T0, T1, D2, D3 = (TopicPartition("t", index) for index in range(4))
T_ID, OTHER_ID = Uuid(bytes(range(16))), Uuid(bytes(16))
BROKER = 1


class World:
    """A controller's queue for broker 1, whose answers the test has chosen; what is not chosen is fine."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.state.brokers = {BROKER: LiveBroker(5, ((Endpoint("PLAINTEXT", "host", 9092), "PLAINTEXT"),), None)}
        self.state.note(WriteTopic("t", T_ID, {0: (1,), 1: (1,), 2: (2,), 3: (2,)}), 0)
        for tp in (T0, T1):
            self.state.note(WritePartition(tp, BROKER, 0, (BROKER,), -1), 0)
        for tp in (D2, D3):
            self.state.note(WritePartition(tp, 2, 0, (2,), -1), 0)
        self.sent: list[Request] = []
        self.answers: dict[type[Request], list[Response | Exception]] = {}
        self.deleted: list[tuple[int, tuple[TopicPartition, ...]]] = []
        self.failed: list[tuple[int, tuple[TopicPartition, ...]]] = []
        self.stale = 0
        self.meanwhile: list[Message] = []
        """What is to be told, too, while the next request is on its way."""
        self.outgoing = Outgoing(
            self,
            Sender(9, 3),
            lambda: self.state,
            on_deleted=lambda *told: self.deleted.append(told),
            on_failed=lambda *told: self.failed.append(told),
            on_stale=self._on_stale,
            retry_ms=1,
        )

    def _on_stale(self) -> None:
        self.stale += 1

    async def send(self, broker_id: int, request: Request) -> Response:
        assert broker_id == BROKER
        self.sent.append(request)
        meanwhile, self.meanwhile = self.meanwhile, []
        self.outgoing.tell(meanwhile)
        answers = self.answers.get(type(request))
        if answers:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        default: dict[type[Request], type[Response]] = {
            LeaderAndIsrRequest: LeaderAndIsrResponse,
            UpdateMetadataRequest: UpdateMetadataResponse,
            StopReplicaRequest: StopReplicaResponse,
        }
        return default[type(request)]()

    async def tell(self, *messages: Message) -> None:
        self.outgoing.tell(messages)
        await self.outgoing.delivered([BROKER])

    def partitions(self, place: int) -> list[tuple[int, bool]]:
        """Of a request for roles: the partitions, each with whether it is new."""
        request: Any = self.sent[place]
        return [
            (state.partition_index, state.is_new) for topic in request.topic_states for state in topic.partition_states
        ]


def in_world(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        world = World()
        try:
            await scenario(world)
        finally:
            world.outgoing.close()

    run_async(run())


def refused_roles(*errors: tuple[Uuid, int, ErrorCode]) -> LeaderAndIsrResponse:
    return LeaderAndIsrResponse(
        topics=[
            LeaderAndIsrTopicError(
                topic_id=topic_id,
                partition_errors=[LeaderAndIsrPartitionError(partition_index=index, error_code=code)],
            )
            for topic_id, index, code in errors
        ]
    )


@pytest.mark.parametrize(
    ("errors", "failed", "words"),
    [
        ([(T_ID, 0, E.NONE)], [], []),
        ([(T_ID, 0, E.STALE_CONTROLLER_EPOCH)], [], []),
        ([(T_ID, 1, E.KAFKA_STORAGE_ERROR)], [T1], ["t-1: KAFKA_STORAGE_ERROR"]),
        ([(T_ID, 0, E.INCONSISTENT_TOPIC_ID)], [], ["t-0: INCONSISTENT_TOPIC_ID"]),
        ([(OTHER_ID, 0, E.KAFKA_STORAGE_ERROR)], [], ["an unknown topic-0: KAFKA_STORAGE_ERROR"]),
        (
            [(T_ID, 0, E.KAFKA_STORAGE_ERROR), (T_ID, 1, E.KAFKA_STORAGE_ERROR)],
            [T0, T1],
            ["t-0: KAFKA_STORAGE_ERROR", "t-1: KAFKA_STORAGE_ERROR"],
        ),
    ],
)
def test_replicas_that_cannot_be_used_are_reported(
    caplog: pytest.LogCaptureFixture,
    errors: list[tuple[Uuid, int, ErrorCode]],
    failed: list[TopicPartition],
    words: list[str],
) -> None:
    async def scenario(world: World) -> None:
        world.answers[LeaderAndIsrRequest] = [refused_roles(*errors)]
        await world.tell(TellRoles(BROKER, (T0, T1)))
        assert world.failed == ([(BROKER, tuple(failed))] if failed else [])

    with caplog.at_level(logging.WARNING):
        in_world(scenario)
    assert [record.getMessage() for record in caplog.records] == [
        f"broker 1 cannot take its role for {each}" for each in words
    ]


def test_replicas_that_were_deleted_are_reported_and_those_that_were_not_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        errors = [
            StopReplicaPartitionError(topic_name="t", partition_index=index, error_code=code)
            for index, code in ((2, E.NONE), (3, E.KAFKA_STORAGE_ERROR))
        ]
        world.answers[StopReplicaRequest] = [StopReplicaResponse(partition_errors=errors)]
        await world.tell(DeleteReplicas(BROKER, (D2, D3)))
        assert world.deleted == [(BROKER, (D2,))]
        await world.tell(DeleteReplicas(BROKER, (D3,)))
        assert world.deleted[1:] == [(BROKER, (D3,))]

    in_world(scenario)
    assert [record.getMessage() for record in caplog.records] == [
        "broker 1 cannot delete its replica of t-3: KAFKA_STORAGE_ERROR"
    ]


EVERYTHING = (
    TellMetadata(BROKER, (), comes_first=True),
    TellRoles(BROKER, (T0,)),
    TellMetadata(BROKER, (T0,)),
    DeleteReplicas(BROKER, (D3,)),
)
KINDS: list[type[Request]] = [UpdateMetadataRequest, LeaderAndIsrRequest, UpdateMetadataRequest, StopReplicaRequest]


@pytest.mark.parametrize("broken", range(4))
@pytest.mark.parametrize("failure", [OSError("gone"), KafkaError(code=E.NETWORK_EXCEPTION), ZeroDivisionError()])
def test_what_could_not_be_sent_is_sent_again_and_nothing_else(broken: int, failure: Exception) -> None:
    async def scenario(world: World) -> None:
        fine = [UpdateMetadataResponse()] if broken == 2 else []
        world.answers[KINDS[broken]] = [*fine, failure]
        await world.tell(*EVERYTHING)
        assert [type(request) for request in world.sent] == [*KINDS[: broken + 1], *KINDS[broken:]]
        again: Any = world.sent[broken + 1]
        before: Any = world.sent[broken]
        assert again.topic_states == before.topic_states
        assert world.deleted == [(BROKER, (D3,))]

    in_world(scenario)


def test_what_comes_meanwhile_goes_with_what_is_sent_again() -> None:
    async def scenario(world: World) -> None:
        world.answers[LeaderAndIsrRequest] = [OSError("gone")]
        world.meanwhile = [TellRoles(BROKER, (T0, T1))]
        await world.tell(TellRoles(BROKER, (T0,), are_new=True))
        assert [world.partitions(place) for place in (0, 1)] == [[(0, True)], [(0, True), (1, False)]]
        await world.tell(TellRoles(BROKER, (T0,)))
        assert world.partitions(2) == [(0, False)], "it has heard of it"

    in_world(scenario)


@pytest.mark.parametrize(
    ("code", "is_stale"),
    [(E.STALE_CONTROLLER_EPOCH, True), (E.STALE_BROKER_EPOCH, False), (E.UNKNOWN_SERVER_ERROR, False)],
)
def test_a_broker_that_knows_a_newer_controller_is_told_nothing_more(code: ErrorCode, is_stale: bool) -> None:
    async def scenario(world: World) -> None:
        world.answers[LeaderAndIsrRequest] = [LeaderAndIsrResponse(error_code=code)]
        world.outgoing.tell(EVERYTHING[1:])
        await until(lambda: world.stale > 0 if is_stale else bool(world.deleted))
        assert [type(request) for request in world.sent[:2]] == [
            LeaderAndIsrRequest,
            *([] if is_stale else [LeaderAndIsrRequest]),
        ]
        assert world.stale == is_stale

    in_world(scenario)


def test_partitions_of_deleted_topics_have_no_roles_to_be_told_of() -> None:
    async def scenario(world: World) -> None:
        gone = TopicPartition("gone", 0)
        await world.tell(TellRoles(BROKER, (gone,)))
        assert world.sent == []

    in_world(scenario)


def test_pauses_have_a_limit(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(module, "RETRY_MAX_MS", 3)

    async def scenario(world: World) -> None:
        world.answers[LeaderAndIsrRequest] = [OSError("gone")] * 4
        await world.tell(TellRoles(BROKER, (T0,)))

    in_world(scenario)
    assert [record.getMessage().split("next try in ")[1] for record in caplog.records] == [
        f"{pause_ms} ms: gone" for pause_ms in (1, 2, 3, 3)
    ]


def test_pauses_are_short_at_first_and_never_long() -> None:
    assert (module.RETRY_MS, module.RETRY_MAX_MS) == (100, 10_000)


def test_who_waits_for_a_queue_that_is_closed_waits_no_more() -> None:
    async def scenario(world: World) -> None:
        world.answers[LeaderAndIsrRequest] = [OSError("gone")] * 1000
        waiting = asyncio.ensure_future(world.tell(TellRoles(BROKER, (T0,))))
        await until(lambda: len(world.sent) > 1)
        assert not waiting.done()
        world.outgoing.close()
        await waiting
        sent = len(world.sent)
        await asyncio.sleep(0.005)
        assert len(world.sent) == sent
        await world.tell(TellMetadata(BROKER, (T0,)))
        assert len(world.sent) == sent + 1, "if it comes back it is another one"

    in_world(scenario)
