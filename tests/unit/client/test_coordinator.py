"""On whose behalf a consumer commits, and what it makes of a coordinator that moves, is silent or cannot be reached."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.client.aio.consumer.coordinator import Coordinator
from ottla.client.core.consumer.offset_requests import Membership
from ottla.errors import ClientError, CommitFailedError, RebalanceInProgressError
from ottla.wire.apis.offset_commit import OffsetCommitRequest
from ottla.wire.apis.offset_fetch import OffsetFetchRequest
from tests.waiting import PATIENCE_S, run_async, until

from .test_commit_answers import E, World, world
from .test_silent_broker import FIRST, SECOND, TOPIC

EARLIER = Membership("group", member_id="m", generation=3)
LATER = Membership("group", member_id="m", generation=4)
OTHER = Membership("group", member_id="n", generation=4)
NOBODY = Membership("group")


class Scene(World):
    """A consumer that is a member, with a coordinator that finds it as it is told to."""

    coordinator: Coordinator
    membership = EARLIER

    def meanwhile(self, membership: Membership, code: int) -> None:
        """The first commit is answered with this, when the member is another one already."""

        def answer(_: object) -> Any:
            first, self.membership = self.membership is EARLIER, membership
            return self._committed(code if first else E.NONE)

        self.broker.on(OffsetCommitRequest, answer)

    @property
    def generations(self) -> list[tuple[str, int]]:
        return [
            (asked.member_id, asked.generation_id_or_member_epoch) for asked in self.broker.asked(OffsetCommitRequest)
        ]


@asynccontextmanager
async def scene(*, uses_group: bool = True, **settings: object) -> AsyncIterator[Scene]:
    async with world(**settings) as here:
        here.__class__ = Scene
        assert isinstance(here, Scene)
        engine = here.consumer._engine
        here.coordinator = engine.coordinator
        here.coordinator.membership = lambda: here.membership
        here.coordinator.held = lambda: frozenset({FIRST})
        here.coordinator.is_joining = lambda: False
        if uses_group:
            engine.subscription.subscribe([TOPIC])
        yield here
        here.coordinator.membership = lambda: NOBODY


@pytest.mark.parametrize(
    ("code", "membership", "is_joining", "kind"),
    [
        (E.STALE_MEMBER_EPOCH, LATER, False, None),
        (E.STALE_MEMBER_EPOCH, EARLIER, False, CommitFailedError),
        (E.ILLEGAL_GENERATION, LATER, False, RebalanceInProgressError),
        (E.ILLEGAL_GENERATION, EARLIER, True, RebalanceInProgressError),
        (E.ILLEGAL_GENERATION, EARLIER, False, CommitFailedError),
        (E.ILLEGAL_GENERATION, OTHER, True, CommitFailedError),
        (E.UNKNOWN_MEMBER_ID, LATER, True, CommitFailedError),
        (E.REBALANCE_IN_PROGRESS, EARLIER, False, RebalanceInProgressError),
    ],
)
def test_a_commit_of_a_member_that_has_become_another_one_on_the_way(
    code: ErrorCode, membership: Membership, is_joining: bool, kind: type[ClientError] | None
) -> None:
    async def scenario() -> None:
        async with scene() as here:
            here.meanwhile(membership, code)
            here.coordinator.is_joining = lambda: is_joining
            committing = here.consumer.commit({FIRST: 5}, timeout=PATIENCE_S)
            if kind is None:
                await committing
                assert here.generations == [("m", 3), ("m", 4)]
                return
            with pytest.raises(CommitFailedError) as failed:
                await committing
            assert type(failed.value) is kind and here.generations == [("m", 3)]
            expected = E.REBALANCE_IN_PROGRESS if kind is RebalanceInProgressError else code
            assert failed.value.code is expected

    run_async(scenario())


def test_who_shares_partitions_commits_as_a_member_and_only_what_it_holds() -> None:
    async def scenario() -> None:
        async with scene() as here:
            with pytest.raises(CommitFailedError, match=f"does not hold {SECOND} now"):
                await here.consumer.commit({FIRST: 5, SECOND: 6})
            here.membership = NOBODY
            with pytest.raises(CommitFailedError, match="not in its group now"):
                await here.consumer.commit({FIRST: 5})
            assert here.generations == []
            here.membership, here.codes = EARLIER, [E.NONE]
            await here.consumer.commit({FIRST: 5})
            await here.consumer.commit({})
            assert here.generations == [("m", 3)], "nothing is nothing to ask for"
        async with scene(uses_group=False) as here:
            here.membership, here.codes = NOBODY, [E.NONE]
            await here.consumer.commit({SECOND: 5})
            assert here.generations == [("", -1)]

    run_async(scenario())


async def _moves(here: Scene) -> None:
    # A broker that has gone from the cluster coordinates nothing any more.
    here.coordinator._node_id = 9


async def _is_forgotten(here: Scene) -> None:
    here.coordinator.forget()


async def _breaks_off(here: Scene) -> None:
    """A call that is given up: maybe no answer would ever have come."""
    here.broker.on(OffsetCommitRequest, _never)
    before = len(here.generations)
    committing = asyncio.create_task(here.consumer.commit({FIRST: 5}))
    await until(lambda: len(here.generations) > before)
    committing.cancel()
    await asyncio.wait([committing])
    here.consumer._engine.link.hang_up()


async def _hangs_up(here: Scene) -> None:
    here.broker.on(OffsetCommitRequest, _never)
    before = len(here.generations)
    committing = asyncio.create_task(here.consumer.commit({FIRST: 5}, timeout=PATIENCE_S))
    await until(lambda: len(here.generations) > before)
    here.broker.on(OffsetCommitRequest, lambda _: here._committed(E.NONE))
    here.consumer._engine.link.hang_up()
    await committing


async def _never(_: object) -> Any:
    await asyncio.Event().wait()


@pytest.mark.parametrize("change", [_moves, _is_forgotten, _breaks_off, _hangs_up])
def test_it_is_looked_for_again_when_it_may_be_another_one(change: Callable[[Scene], Any]) -> None:
    async def scenario() -> None:
        async with scene() as here:
            here.codes = [E.NONE]
            await here.consumer.commit({FIRST: 5})
            assert here.searches == 1
            await change(here)
            here.broker.on(OffsetCommitRequest, lambda _: here._committed(E.NONE))
            await here.consumer.commit({FIRST: 6}, timeout=PATIENCE_S)
            assert here.searches == 2

    run_async(scenario())


def test_who_waits_for_a_coordinator_that_is_lost_asks_the_next_one() -> None:
    async def scenario() -> None:
        async with scene() as here:
            here.broker.on(OffsetCommitRequest, _never)
            committing = asyncio.create_task(here.consumer.commit({FIRST: 5}, timeout=PATIENCE_S))
            await until(lambda: bool(here.broker.asked(OffsetCommitRequest)))
            here.broker.on(OffsetCommitRequest, lambda _: here._committed(E.NONE))
            here.consumer._engine.link.hang_up()
            here.coordinator.lose()
            await committing
            assert here.searches == 2
            here.coordinator.lose()
            here.broker.on(OffsetFetchRequest, lambda _: here._fetched(E.NONE))
            assert (await here.consumer.committed([FIRST]))[FIRST] is not None
            assert here.searches == 3

    run_async(scenario())


def test_the_time_of_a_question_that_is_lost_is_over_at_once() -> None:
    async def scenario() -> None:
        async with scene() as here:
            here.broker.on(OffsetFetchRequest, _never)
            asking = [asyncio.create_task(here.coordinator.ask_committed([FIRST])) for _ in range(2)]
            await until(lambda: len(here.broker.asked(OffsetFetchRequest)) == 1)
            here.coordinator.lose()
            for task in asking:
                with pytest.raises(Exception, match="does not answer any more") as lost:
                    await task
                assert getattr(lost.value, "code", None) is E.NETWORK_EXCEPTION

    run_async(scenario())
