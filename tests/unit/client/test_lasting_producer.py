"""A producer that is replaced when it has failed for good: at once, then after pauses, and not for ever."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from ottla.client.aio.producer import lasting_producer
from ottla.client.aio.producer.lasting_producer import LastingProducer
from ottla.client.errors import ClientClosedError
from tests.log_lines import lines_of


class StubProducer:
    def __init__(self) -> None:
        self._has_failed = False
        self.closed_with: list[float | None] = []

    async def start(self) -> StubProducer:
        await asyncio.sleep(0)
        return self

    async def close(self, timeout: float | None = None) -> None:
        self.closed_with.append(timeout)


class Scene:
    """Time stands still unless a test moves it, deadlines included: nothing here waits for anything."""

    def __init__(self) -> None:
        self.made: list[StubProducer] = []
        self.now_s = 1000.0
        asyncio.get_running_loop().time = lambda: self.now_s  # type: ignore[method-assign]
        self.lasting = LastingProducer(self._make)

    def _make(self) -> Any:
        self.made.append(StubProducer())
        return self.made[-1]

    async def get(self) -> int:
        """Which of the producers that were made is the one to use."""
        return self.made.index(await self.lasting.get())  # type: ignore[arg-type]


def test_one_is_made_when_it_is_needed_and_kept_while_it_works() -> None:
    async def test() -> None:
        scene = Scene()
        assert scene.made == []
        assert await asyncio.gather(scene.get(), scene.get(), scene.get()) == [0, 0, 0]
        assert len(scene.made) == 1

    asyncio.run(test())


def test_the_first_successor_comes_at_once_and_the_others_after_pauses() -> None:
    async def test() -> None:
        scene = Scene()
        last = await scene.get()
        replaced_s = []
        for _ in range(2000):
            scene.made[last]._has_failed = True
            if (number := await scene.get()) != last:
                replaced_s.append(scene.now_s)
                last = number
            scene.now_s += 0.1
        assert replaced_s[0] == 1000.0
        pauses_s = [later - earlier for earlier, later in itertools.pairwise(replaced_s)]
        assert all(later >= earlier - 0.2 for earlier, later in itertools.pairwise(pauses_s)), pauses_s
        assert pauses_s[:3] == pytest.approx([0.5, 1, 2], abs=0.15)
        assert pauses_s[-1] == pytest.approx(30, abs=0.15)
        assert all(producer.closed_with == [None] for producer in scene.made[:-1])
        assert scene.made[-1].closed_with == []

    asyncio.run(test())


def test_who_has_worked_for_long_is_replaced_at_once() -> None:
    async def test() -> None:
        scene = Scene()
        for round_ in range(5):
            number = await scene.get()
            scene.made[number]._has_failed = True
            assert await scene.get() == round_ + 1
            scene.now_s += 3600

    asyncio.run(test())


def test_what_is_closed_makes_no_more() -> None:
    async def test() -> None:
        scene = Scene()
        await scene.get()
        await scene.lasting.close(5)
        assert scene.made[0].closed_with == [5]
        scene.made[0]._has_failed = True
        with pytest.raises(ClientClosedError):
            await scene.get()
        unused = Scene()
        await unused.lasting.close()
        with pytest.raises(ClientClosedError):
            await unused.get()
        assert unused.made == []

    asyncio.run(test())


@pytest.mark.parametrize(
    ("replacements", "past_ms", "may_be_replaced"),
    [
        (0, 0, True),
        (1, 499, False),
        (1, 500, True),
        (2, 999, False),
        (2, 1000, True),
        (6, 15_999, False),
        (6, 16_000, True),
        (7, 29_999, False),
        (7, 30_000, True),
        (99, 29_999, False),
        (99, 30_000, True),
    ],
)
def test_how_long_the_next_successor_is_waited_for(replacements: int, past_ms: int, may_be_replaced: bool) -> None:
    async def test() -> None:
        scene = Scene()
        lasting = scene.lasting
        lasting._replacements, lasting._replaced_ms = replacements, 1_000_000 - past_ms
        assert lasting._may_replace() is may_be_replaced
        if may_be_replaced:
            assert (lasting._replacements, lasting._replaced_ms) == (replacements + 1, 1_000_000)
        else:
            assert (lasting._replacements, lasting._replaced_ms) == (replacements, 1_000_000 - past_ms)

    asyncio.run(test())


def test_a_row_of_failures_ends_after_more_than_the_longest_pause() -> None:
    async def test() -> None:
        scene = Scene()
        lasting = scene.lasting
        for past_ms, replacements in ((30_000, 6), (30_001, 1)):
            lasting._replacements, lasting._replaced_ms = 5, 1_000_000 - past_ms
            assert lasting._may_replace() and lasting._replacements == replacements

    asyncio.run(test())


def test_a_replacement_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        scene = Scene()
        await scene.get()
        scene.made[0]._has_failed = True
        await scene.get()

    asyncio.run(test())
    told = [(line.levelname, line.getMessage()) for line in lines_of(caplog, lasting_producer.__name__)]
    assert told == [("WARNING", "a producer that had failed for good has been replaced")]
