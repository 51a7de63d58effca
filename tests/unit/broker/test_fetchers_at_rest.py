"""How long a fetcher rests when some of its partitions have failed or are held back, and who is looked at then."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.clock import ManualClock
from ottla.base.types import TopicPartition, Uuid
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.replication import fetchers
from ottla.broker.replication.fetchers import _fetcher_number, _SourceFetcher
from tests.waiting import run_async

NOW_MS = 50_000
TOPIC_ID = Uuid(bytes(range(16)))


class Owner:
    def __init__(self, room: int = 0) -> None:
        self.clock = ManualClock()
        self.clock.advance(NOW_MS - self.clock.monotonic_ms())
        self.recorded: list[int] = []
        self.throttle = SimpleNamespace(record=self.recorded.append, room=lambda: room, wait_ms=lambda: 70)

    def config(self) -> BrokerConfig:
        return BrokerConfig({"replica.fetch.backoff.ms": "100"})


class World:
    """A fetcher that does nothing by itself, with partitions 0 to 3."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.fetcher = _SourceFetcher(owner, 2, 5)  # type: ignore[arg-type]
        self.fetcher.task.cancel()
        for index in range(4):
            partition: Any = SimpleNamespace(tp=TopicPartition("t", index), topic_id=TOPIC_ID, leader_epoch=index)
            self.fetcher.add(partition)
        self.fetcher._touched.clear()

    def rest(self, index: int, wait_ms: int, *, held_back: bool = False) -> None:
        fetcher, tp = self.fetcher, TopicPartition("t", index)
        followed = fetcher._followed[tp]
        followed.waits_until_ms = NOW_MS + wait_ms
        fetcher._resting[tp] = followed
        if held_back:
            fetcher._held_back[tp] = followed

    def indexes(self, place: str) -> list[int]:
        return [tp.partition for tp in getattr(self.fetcher, place)]


def in_world(scenario: Any, room: int = 0) -> None:
    async def run() -> None:
        await scenario(World(Owner(room)))

    run_async(run())


@pytest.mark.parametrize(
    ("waits_ms", "expected_s"), [([], 60.0), ([300], 0.3), ([300, 200, 400], 0.2), ([0], 0.001), ([-5, 9], 0.001)]
)
def test_it_rests_until_the_first_may_be_tried_again(
    monkeypatch: pytest.MonkeyPatch, waits_ms: list[int], expected_s: float
) -> None:
    asked: list[float] = []

    async def wait_for(waiting: Any, timeout: float) -> None:
        asked.append(timeout)
        waiting.close()
        raise TimeoutError

    async def scenario(world: World) -> None:
        for index, wait_ms in enumerate(waits_ms):
            world.rest(index, wait_ms)
        assert world.fetcher._changed.is_set()
        with monkeypatch.context() as patched:
            patched.setattr(fetchers, "asyncio", SimpleNamespace(wait_for=wait_for))
            await world.fetcher._wait_for_work()
        assert asked == [expected_s] and not world.fetcher._changed.is_set()

    in_world(scenario)


def test_whose_time_has_come_is_told_to_the_leader_again() -> None:
    async def scenario(world: World) -> None:
        assert world.fetcher._has_work()
        for index, wait_ms in enumerate((0, 1, -9, 5)):
            world.rest(index, wait_ms, held_back=index in (2, 3))
        assert world.fetcher._has_work()
        assert (world.indexes("_resting"), world.indexes("_held_back"), world.indexes("_touched")) == (
            [1, 3],
            [3],
            [0, 2],
        )
        world.rest(0, 5)
        world.rest(2, 5)
        assert not world.fetcher._has_work(), "all of them rest"
        world.fetcher.remove(TopicPartition("t", 3))
        assert (world.indexes("_resting"), world.indexes("_held_back")) == ([1, 0, 2], [])
        assert world.indexes("_touched") == [0, 2, 3]
        assert [partition.tp.partition for partition in world.fetcher.partitions] == [0, 1, 2]
        for index in range(3):
            assert not world.fetcher.is_idle
            world.fetcher.remove(TopicPartition("t", index))
        assert world.fetcher.is_idle and world.fetcher._by_id == {} == world.fetcher._resting

    in_world(scenario)


def test_who_is_held_back_shortens_the_wait_of_the_request() -> None:
    async def scenario(world: World) -> None:
        world.rest(0, 3)
        assert world.fetcher._shortened(500) == 500, "who has failed does not"
        world.rest(1, 200, held_back=True)
        assert world.fetcher._shortened(500) == 200
        assert world.fetcher._shortened(100) == 100
        world.rest(2, 150, held_back=True)
        assert world.fetcher._shortened(500) == 150
        world.rest(3, -10, held_back=True)
        assert world.fetcher._shortened(500) == 1

    in_world(scenario)


@pytest.mark.parametrize(("room", "rests"), [(-5, True), (0, True), (1, False)])
def test_a_throttle_holds_back_when_there_is_no_room_left(room: int, rests: bool) -> None:
    async def scenario(world: World) -> None:
        fetcher = world.fetcher
        followed = fetcher._followed[TopicPartition("t", 1)]
        fetcher._hold_back(followed, 77)
        assert world.owner.recorded == [77]
        assert world.indexes("_resting") == world.indexes("_held_back") == ([1] if rests else [])
        assert followed.waits_until_ms == (NOW_MS + 70 if rests else 0)

    in_world(scenario, room)


def test_each_failure_doubles_the_wait_up_to_the_setting(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        followed = world.fetcher._followed[TopicPartition("t", 1)]
        waits = []
        for _ in range(5):
            world.fetcher._back_off(followed, 56, "KAFKA_STORAGE_ERROR")
            waits.append(followed.wait_ms)
            assert followed.waits_until_ms == NOW_MS + followed.wait_ms
        assert waits == [20, 40, 80, 100, 100]
        assert world.indexes("_resting") == [1] and world.indexes("_held_back") == []

    with caplog.at_level("INFO"):
        in_world(scenario)
    said = "t-1 cannot be fetched from broker 2 for now: KAFKA_STORAGE_ERROR"
    assert [record.getMessage() for record in caplog.records if record.name == fetchers.__name__] == [said]


def test_a_fetcher_that_ends_closes_its_connection_and_is_told_nothing_more() -> None:
    async def scenario(world: World) -> None:
        closed: list[bool] = []
        fetcher: Any = world.fetcher
        fetcher._connection = SimpleNamespace(close=lambda: closed.append(True))
        fetcher._pause = asyncio.get_running_loop().create_future()
        fetcher.cancel()
        fetcher._received(memoryview(b"nonsense"))
        assert closed == [True] and not fetcher._pause.done()

    in_world(scenario)


@pytest.mark.parametrize(
    ("topic", "partition", "count", "number"),
    [("t", 0, 1, 0), ("t", 0, 4, 0), ("t", 3, 4, 3), ("a", 0, 4, 3), ("topic", 0, 7, 5), ("topic", 1, 7, 6)],
)
def test_partitions_of_all_topics_are_spread_over_fetchers(topic: str, partition: int, count: int, number: int) -> None:
    assert _fetcher_number(TopicPartition(topic, partition), count) == number
