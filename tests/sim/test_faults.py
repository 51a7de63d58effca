"""What goes wrong in a simulation: each kind of fault from its beginning to its end, and all of them together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from ottla.testing.sim.faults import Faults
from ottla.testing.sim.loop import SimLoop
from ottla.testing.sim.network import SimNetwork
from ottla.testing.sim.store import STORE


class Chosen(Random):
    """Draws one kind of fault only; all the rest by its seed."""

    kind = ""

    def choice(self, seq: Sequence[Any]) -> Any:
        return next((each for each in seq if getattr(each, "__name__", "?") == self.kind), None) or super().choice(seq)


class Broker:
    """Notes what is done to it."""

    def __init__(self, number: int, world: World) -> None:
        self.broker_id = number
        self.name = f"broker-{number}"
        self.is_up = True
        self.is_held = False
        self._world = world

    def _note(self, what: str) -> None:
        self._world.done.append((self._world.loop.time(), what, self.name))

    def kill(self, *, power_loss: bool) -> int:
        assert self.is_up
        self.is_up = self.is_held = False
        self._note("lose power" if power_loss else "kill")
        return 77

    def hold(self) -> None:
        assert self.is_up
        self.is_up, self.is_held = False, True
        self._note("hold")

    def resume(self) -> None:
        assert self.is_held
        self.is_up, self.is_held = True, False
        self._note("resume")

    async def stop(self) -> None:
        assert self.is_up
        self.is_up = False
        await asyncio.sleep(0.01)
        self._note("stop")

    async def start(self) -> None:
        assert not self.is_up
        await asyncio.sleep(0.01)
        self.is_up = True
        self._note("start")


class World:
    def __init__(self, kind: str = "", seed: int = 1) -> None:
        self.loop = SimLoop()  # type: ignore[abstract]
        self.network = SimNetwork(self.loop, Random(seed))
        self.done: list[tuple[float, str, str]] = []
        self.lost_power: list[int] = []
        self.notes: list[str] = []
        self.brokers = [Broker(number, self) for number in (1, 2, 3)]
        self.reset: list[int] = []
        self.network.reset_some = lambda count: self.reset.append(count) or count + 10  # type: ignore
        checks: Any = self
        draw = Chosen(seed)
        draw.kind = f"_{kind}"
        brokers: Any = self.brokers
        self.faults = Faults(brokers, self.network, self.checks_of(checks), draw, self.notes.append)

    def checks_of(self, world: Any) -> Any:
        class Checks:
            def lost_power(self, broker_id: int) -> None:
                assert world.brokers[broker_id - 1].is_up, "the checks ask who lived when it happened"
                world.lost_power.append(broker_id)

        return Checks()

    def run(self, seconds: float) -> None:
        async def scenario() -> None:
            running = asyncio.ensure_future(self.faults.run())
            await asyncio.sleep(seconds)
            self.faults.is_over = True
            await running

        self.loop.run_until_complete(scenario())
        assert self.loop.failures == []
        self.loop.close()

    def one(self) -> None:
        """The first of the kind, and nothing else."""

        async def scenario() -> None:
            running = asyncio.ensure_future(self.faults.run())
            while not self.faults.met:
                await asyncio.sleep(0.001)
            self.faults.is_over = True
            await running

        async def one_only() -> None:
            # The next would be drawn after the pause that is under way.
            do = self.faults._do

            async def first(fault: Any) -> None:
                if self.faults.met:
                    fault.close()
                else:
                    await do(fault)

            self.faults._do = first  # type: ignore[method-assign]
            await scenario()

        self.loop.run_until_complete(one_only())
        assert self.loop.failures == []

    @property
    def what(self) -> list[str]:
        return [what for _, what, _ in self.done]

    @property
    def links(self) -> set[tuple[str, str]]:
        names = [*(broker.name for broker in self.brokers), STORE]
        return {(a, b) for a in names for b in names if self.network.is_cut(a, b)}


@pytest.mark.parametrize(
    ("kind", "told", "done"),
    [
        ("kill", "kill", ["kill", "start"]),
        ("lose_power", "power loss", ["lose power", "start"]),
        ("hold", "hold", ["hold", "resume"]),
        ("stop", "clean stop", ["stop", "start"]),
    ],
)
def test_a_broker_has_a_fault_and_comes_back(kind: str, told: str, done: list[str]) -> None:
    world = World(kind)
    world.one()
    assert world.what == done
    (name,) = {name for _, _, name in world.done}
    lost = ", 77 bytes of records are gone" if kind == "lose_power" else ""
    assert world.notes == [f"{told}: {name}{lost}", f"{done[1]} {name}"]
    assert world.faults.met == {told: 1}
    assert world.lost_power == ([int(name[-1])] if kind == "lose_power" else [])
    assert all(broker.is_up for broker in world.brokers)


@pytest.mark.parametrize("kind", ["kill", "lose_power", "hold", "stop"])
def test_any_broker_that_is_up_may_be_met_and_no_other(kind: str) -> None:
    world = World(kind)
    world.run(200)
    assert {name for _, _, name in world.done} == {"broker-1", "broker-2", "broker-3"}
    world = World(kind)
    for broker in world.brokers:
        broker.is_up = False
    world.run(20)
    assert (world.done, world.notes, world.faults.met) == ([], [], {})


def test_who_was_killed_while_it_was_held_is_not_resumed() -> None:
    world = World("hold")
    held = [broker.hold for broker in world.brokers]
    for broker, hold in zip(world.brokers, held, strict=True):

        def hold_and_die(broker: Broker = broker, hold: Any = hold) -> None:
            hold()
            broker.is_held = False

        broker.hold = hold_and_die  # type: ignore[method-assign]
    world.one()
    assert world.what == ["hold"] and len(world.notes) == 1


def test_faults_last_for_moments_or_for_seconds() -> None:
    world = World("hold", seed=4)
    world.run(2_500)
    begun: dict[str, float] = {}
    lasted_s = []
    for at_s, what, name in world.done:
        if what == "hold":
            begun[name] = at_s
        else:
            lasted_s.append(at_s - begun.pop(name))
    ranges = [(0.025, 0.075), (0.25, 0.75), (1.25, 2.5), (3.75, 7.5)]
    shares = [sum(low <= each <= high for each in lasted_s) / len(lasted_s) for low, high in ranges]
    assert all(0.1 < share < 0.4 for share in shares)
    assert all(0.025 <= each <= 7.51 for each in lasted_s)
    assert not any(0.076 < each < 0.249 or 0.751 < each < 1.249 for each in lasted_s)


def cut_by(kind: str, seed: int) -> tuple[World, set[tuple[str, str]]]:
    """A fault of links, and which of them it has cut."""
    world = World(kind, seed)
    cut: set[tuple[str, str]] = set()

    async def look() -> None:
        while True:
            await asyncio.sleep(0.01)
            cut.update(world.links)

    world.loop.create_task(look())
    world.one()
    assert world.links == set(), "it has healed"
    return world, cut


def shown(links: str) -> set[tuple[str, str]]:
    found = [tuple(link.split(" -> ")) for link in links.split(", ")]
    assert len(set(found)) == len(found)
    return set(found)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(1, 9))
@pytest.mark.parametrize(("kind", "told"), [("cut_store", "cut from the store"), ("isolate", "isolate")])
def test_links_of_one_broker_are_cut_both_ways_and_healed(kind: str, told: str, seed: int) -> None:
    world, cut = cut_by(kind, seed)
    first, last = world.notes
    assert first.startswith(f"{told}: ") and last.startswith("healed: ")
    assert shown(first.partition(": ")[2]) == shown(last.partition(": ")[2]) == cut
    (broker,) = {a for a, b in cut if b == STORE}
    others = {STORE} if kind == "cut_store" else {STORE, *(b.name for b in world.brokers)} - {broker}
    assert cut == {link for other in others for link in ((broker, other), (other, broker))}
    assert world.faults.met == {told: 1}


def test_links_between_two_brokers_are_cut_one_way_or_both() -> None:
    found = []
    for seed in range(1, 25):
        world, cut = cut_by("cut_brokers", seed)
        assert world.faults.met == {"cut": 1}
        names = {name for link in cut for name in link}
        assert len(names) == 2 and names <= {broker.name for broker in world.brokers}
        found.append(len(cut))
    assert set(found) == {1, 2} and 6 <= found.count(1) <= 18


def test_a_few_connections_are_reset() -> None:
    world = World("reset")
    world.run(100)
    assert set(world.reset) == {1, 2, 3, 4}
    assert world.notes == [f"reset: {count + 10} connections" for count in world.reset]
    assert world.faults.met == {"reset": len(world.reset)}
    assert 80 < len(world.reset) < 180, "one after a pause of 0.8 s or so"


def test_all_kinds_come_and_when_it_is_over_all_is_well_again() -> None:
    world = World("none", seed=2)
    world.run(1_000)
    kinds = {"kill", "power loss", "hold", "clean stop", "cut", "cut from the store", "isolate", "reset"}
    assert set(world.faults.met) == kinds
    assert 700 < world.faults.met.total() < 1_700
    assert world.faults.met["cut"] > 1.3 * world.faults.met["isolate"], "there are two of them"
    assert all(broker.is_up for broker in world.brokers) and world.links == set()
