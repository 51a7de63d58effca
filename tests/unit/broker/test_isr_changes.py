"""A leader asks for another in-sync set: what it says, and what becomes of each answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition, Uuid
from ottla.broker.replication import isr_changes
from ottla.broker.replication.isr_changes import IsrChanges
from ottla.machines.replication.isr import ProposeIsr
from ottla.wire.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    AlterPartitionResponseTopic,
)
from tests.waiting import run_async, until

T_ID, U_ID = Uuid(bytes(15) + b"\x01"), Uuid(bytes(15) + b"\x02")


class Leader:
    def __init__(self) -> None:
        self.leader_epoch = 4
        self.isr = frozenset({1, 2})
        self.told: list[object] = []

    def isr_confirmed(self, isr: list[int], partition_epoch: int) -> None:
        self.isr = frozenset(isr)
        self.told.append((sorted(isr), partition_epoch))

    def isr_refused(self) -> None:
        self.told.append("refused")


def partition(topic: str = "t", index: int = 0, topic_id: Uuid = T_ID) -> Any:
    return SimpleNamespace(tp=TopicPartition(topic, index), topic_id=topic_id, leader=Leader())


def proposal(*isr: int, leader_epoch: int = 4) -> ProposeIsr:
    return ProposeIsr(isr=isr, leader_epoch=leader_epoch, partition_epoch=9, broker_epochs={2: 20, 3: 30})


class World:
    """A controller that answers what a test says; if that is nothing, as it was asked."""

    def __init__(self) -> None:
        self.asked: list[AlterPartitionRequest] = []
        self.answers: list[AlterPartitionResponse | Exception] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.changed: list[TopicPartition] = []
        self.tasks: list[asyncio.Future[None]] = []
        self.changes = IsrChanges(
            1,
            self._ask,
            SimpleNamespace(spawn=lambda work: self.tasks.append(asyncio.ensure_future(work))),  # type: ignore[arg-type]
            broker_epoch=lambda: 10,
            on_changed=lambda partition: self.changed.append(partition.tp),
        )

    async def _ask(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        self.asked.append(request)
        await self.may_answer.wait()
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        return AlterPartitionResponse(
            topics=[
                AlterPartitionResponseTopic(
                    topic_id=topic.topic_id,
                    partitions=[
                        answered(
                            asked.partition_index,
                            isr=[member.broker_id for member in asked.new_isr_with_epochs],
                            partition_epoch=asked.partition_epoch + 1,
                        )
                        for asked in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    async def settled(self) -> None:
        await asyncio.gather(*self.tasks)


def answered(index: int = 0, **fields: Any) -> AlterPartitionResponsePartition:
    return AlterPartitionResponsePartition(partition_index=index, **{"leader_epoch": 4, **fields})


def answer(*partitions: AlterPartitionResponsePartition, **fields: Any) -> AlterPartitionResponse:
    topics = [AlterPartitionResponseTopic(topic_id=T_ID, partitions=list(partitions))]
    return AlterPartitionResponse(topics=topics, **fields)


def in_world(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        await scenario(World())

    run_async(run())


def test_a_set_is_asked_for_with_the_epochs_of_its_brokers() -> None:
    async def scenario(world: World) -> None:
        held = partition()
        world.changes.propose(held, proposal(1, 2, 3))
        await world.settled()
        (request,) = world.asked
        assert (request.broker_id, request.broker_epoch) == (1, 10)
        (topic,) = request.topics
        (asked,) = topic.partitions
        assert (topic.topic_id, asked.partition_index, asked.leader_epoch, asked.partition_epoch) == (T_ID, 0, 4, 9)
        assert [(m.broker_id, m.broker_epoch) for m in asked.new_isr_with_epochs] == [(1, 10), (2, 20), (3, 30)]
        assert held.leader.told == [([1, 2, 3], 10)] and world.changed == [held.tp]

    in_world(scenario)


def test_one_request_at_a_time_with_all_that_waits() -> None:
    async def scenario(world: World) -> None:
        first, second, third = partition(), partition(index=1), partition("u", topic_id=U_ID)
        world.may_answer.clear()
        world.changes.propose(first, proposal(1))
        await until(lambda: len(world.asked) == 1)
        for each in (first, second, third):
            world.changes.propose(each, proposal(1, 2))
        assert len(world.tasks) == 1
        world.may_answer.set()
        await world.settled()
        assert len(world.asked) == 2
        assert [(t.topic_id, len(t.partitions)) for t in world.asked[1].topics] == [(T_ID, 2), (U_ID, 1)]
        assert first.leader.told == [([1], 10), ([1, 2], 10)]
        assert second.leader.told == third.leader.told == [([1, 2], 10)]
        world.changes.propose(first, proposal(1))
        await world.settled()
        assert len(world.asked) == 3, "and again when there is something new"

    in_world(scenario)


@pytest.mark.parametrize(
    "failure",
    [
        KafkaError("away", code=ErrorCode.NETWORK_EXCEPTION),
        OSError("refused"),
        AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH),
    ],
)
def test_a_controller_that_cannot_be_asked_is_asked_again(monkeypatch: pytest.MonkeyPatch, failure: Any) -> None:
    monkeypatch.setattr(isr_changes, "RETRY_MS", 20)

    async def scenario(world: World) -> None:
        stays, newer, resigned, leads_anew = (partition(index=index) for index in range(4))
        world.answers = [failure]
        for each in (stays, newer, resigned, leads_anew):
            world.changes.propose(each, proposal(1, 2, 3))
        await until(lambda: len(world.asked) == 1 and not world.answers)
        await asyncio.sleep(0)
        world.changes.propose(newer, proposal(1))
        resigned.leader = None
        leads_anew.leader.leader_epoch = 5
        await world.settled()
        assert [p.partition_index for p in world.asked[1].topics[0].partitions] == [0, 1]
        assert stays.leader.told == [([1, 2, 3], 10)]
        assert newer.leader.told == [([1], 10)], "the last word counts"

    in_world(scenario)


@pytest.mark.parametrize(
    ("response", "told", "is_changed"),
    [
        (answer(answered(isr=[1], partition_epoch=12)), [([1], 12)], True),
        (answer(answered(error_code=ErrorCode.INVALID_UPDATE_VERSION)), ["refused"], True),
        (answer(answered(5, isr=[1])), ["refused"], True),
        (answer(answered(isr=[1], leader_epoch=5)), [], False),
        (answer(answered(error_code=ErrorCode.FENCED_LEADER_EPOCH, leader_epoch=5)), ["refused"], True),
    ],
    ids=["confirmed", "refused", "no answer", "more was decided", "refused in another epoch"],
)
def test_what_becomes_of_an_answer(response: AlterPartitionResponse, told: list[object], is_changed: bool) -> None:
    async def scenario(world: World) -> None:
        held = partition()
        world.answers = [response]
        world.changes.propose(held, proposal(1, 2, 3))
        await world.settled()
        assert held.leader.told == told and bool(world.changed) is is_changed

    in_world(scenario)


@pytest.mark.parametrize("leads_again", [True, False])
def test_an_answer_for_a_role_that_is_over_changes_nothing(leads_again: bool) -> None:
    async def scenario(world: World) -> None:
        held = partition()
        world.may_answer.clear()
        world.changes.propose(held, proposal(1, 2, 3))
        await until(lambda: bool(world.asked))
        leader = held.leader
        if leads_again:
            leader.leader_epoch = 5
        else:
            held.leader = None
        world.may_answer.set()
        await world.settled()
        assert leader.told == [] and world.changed == []

    in_world(scenario)
