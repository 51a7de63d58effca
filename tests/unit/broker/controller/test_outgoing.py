"""One broker's queue: who waits for what, and what travels together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.base.types import Endpoint, TopicPartition, Uuid
from ottla.broker.controller.outgoing import Outgoing
from ottla.machines.cluster.decision import TellMetadata, TellRoles
from ottla.machines.cluster.requests import Sender
from ottla.machines.cluster.state import ClusterState, LiveBroker, WritePartition, WriteTopic
from ottla.wire.apis import response_class
from ottla.wire.apis.leader_and_isr import LeaderAndIsrRequest
from ottla.wire.apis.update_metadata import UpdateMetadataRequest
from ottla.wire.message import Request, Response

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
DEADLINE_S = 20


class SteppedLink:
    """Every request waits until the test lets it go."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Request, asyncio.Event]] = []
        self.fails = 0
        """So many requests, before one waits."""

    async def send(self, broker_id: int, request: Request) -> Response:
        if self.fails:
            self.fails -= 1
            raise OSError("refused")
        go = asyncio.Event()
        self.waiting.append((request, go))
        await go.wait()
        return response_class(request.API_KEY)()

    async def let_go(self) -> Request:
        while not self.waiting:
            await asyncio.sleep(0)
        request, go = self.waiting.pop(0)
        go.set()
        for _ in range(5):
            await asyncio.sleep(0)
        return request


def run(scenario: Callable[[Outgoing, SteppedLink], Awaitable[None]]) -> None:
    async def start() -> None:
        state = ClusterState()
        state.brokers = {1: LiveBroker(5, ((Endpoint("PLAINTEXT", "host", 9092), "PLAINTEXT"),), None)}
        state.note(WriteTopic("t", Uuid(bytes(16)), {0: (1,), 1: (1,)}), 0)
        for tp in (T0, T1):
            state.note(WritePartition(tp, 1, 0, (1,), -1), 0)
        link = SteppedLink()
        outgoing = Outgoing(
            link,
            Sender(1, 1),
            lambda: state,
            on_deleted=lambda *_: None,
            on_failed=lambda *_: None,
            on_stale=lambda: None,
            retry_ms=1,
        )
        try:
            await asyncio.wait_for(scenario(outgoing, link), DEADLINE_S)
        finally:
            outgoing.close()

    asyncio.run(start())


def partitions_of(request: Request) -> set[int]:
    assert isinstance(request, LeaderAndIsrRequest)
    return {state.partition_index for topic in request.topic_states for state in topic.partition_states}


def test_who_waits_waits_for_what_was_said_until_then_and_not_for_more() -> None:
    async def scenario(outgoing: Outgoing, link: SteppedLink) -> None:
        await outgoing.delivered([1])
        outgoing.tell([TellRoles(1, (T0,))])
        first = asyncio.ensure_future(outgoing.delivered([1]))
        while not link.waiting:
            await asyncio.sleep(0)
        outgoing.tell([TellRoles(1, (T1,))])
        second = asyncio.ensure_future(outgoing.delivered([1]))
        assert partitions_of(await link.let_go()) == {0}
        assert first.done() and not second.done()
        assert partitions_of(await link.let_go()) == {1}
        assert second.done()

    run(scenario)


def test_what_piles_up_travels_together() -> None:
    async def scenario(outgoing: Outgoing, link: SteppedLink) -> None:
        outgoing.tell([TellRoles(1, (T0,)), TellMetadata(1, (T0,)), TellRoles(1, (T0, T1)), TellMetadata(1, (T1,))])
        everything = asyncio.ensure_future(outgoing.delivered([1]))
        assert partitions_of(await link.let_go()) == {0, 1}
        assert not everything.done()
        await link.let_go()
        assert everything.done() and not link.waiting

    run(scenario)


def test_an_introduction_comes_before_roles_and_metadata_after() -> None:
    async def scenario(outgoing: Outgoing, link: SteppedLink) -> None:
        outgoing.tell([TellRoles(1, (T0,)), TellMetadata(1, (T0,)), TellMetadata(1, (), comes_first=True)])
        told = [await link.let_go() for _ in range(3)]
        assert [type(each) for each in told] == [UpdateMetadataRequest, LeaderAndIsrRequest, UpdateMetadataRequest]
        assert isinstance(told[0], UpdateMetadataRequest) and isinstance(told[2], UpdateMetadataRequest)
        assert [len(told[0].topic_states), len(told[2].topic_states)] == [0, 1]
        assert not link.waiting

    run(scenario)


def test_what_is_added_while_another_thing_is_sent_may_travel_at_once_and_is_not_waited_for_longer() -> None:
    async def scenario(outgoing: Outgoing, link: SteppedLink) -> None:
        outgoing.tell([TellMetadata(1, (), comes_first=True)])
        while not link.waiting:
            await asyncio.sleep(0)
        outgoing.tell([TellRoles(1, (T0,)), TellMetadata(1, (T0,))])
        waiting = asyncio.ensure_future(outgoing.delivered([1]))
        for _ in range(3):
            assert not waiting.done()
            await link.let_go()
        assert waiting.done() and not link.waiting

    run(scenario)


def test_a_broker_out_of_reach_is_tried_again_after_longer_and_longer_pauses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(outgoing: Outgoing, link: SteppedLink) -> None:
        for fails in (4, 1):
            link.fails = fails
            outgoing.tell([TellRoles(1, (T0,))])
            await link.let_go()
            while link.waiting:
                await link.let_go()

    run(scenario)
    pauses_ms = [1, 2, 4, 8, 1]
    assert [record.getMessage() for record in caplog.records] == [
        f"broker 1 cannot be told of changes, next try in {pause_ms} ms: refused" for pause_ms in pauses_ms
    ]


def test_nobody_waits_for_a_broker_that_is_gone() -> None:
    async def scenario(outgoing: Outgoing, link: SteppedLink) -> None:
        outgoing.tell([TellRoles(1, (T0,))])
        waiting = asyncio.ensure_future(outgoing.delivered([1, 2]))
        await asyncio.sleep(0)
        assert not waiting.done()
        outgoing.drop(1)
        await waiting
        await outgoing.delivered([1])

    run(scenario)
