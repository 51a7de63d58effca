"""The simulated metadata store: what a party hears of its session while its link is cut, and afterwards."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from ottla.metadata.store import SessionEvent
from ottla.testing.sim.loop import Party, SimLoop
from ottla.testing.sim.network import SimNetwork
from ottla.testing.sim.store import STORE, SimEnsemble, SimStore

TIMEOUT_MS = 6_000


@pytest.mark.parametrize(
    ("cut_s", "expected"),
    [
        (1.0, [SessionEvent.SUSPENDED, SessionEvent.RESUMED]),
        (60.0, [SessionEvent.SUSPENDED, SessionEvent.LOST, SessionEvent.RENEWED]),
    ],
)
def test_a_cut_is_told_of_once_and_so_is_its_end(cut_s: float, expected: list[SessionEvent]) -> None:
    loop = SimLoop()  # type: ignore[abstract]
    network = SimNetwork(loop, Random(1))
    ensemble = SimEnsemble(network, Random(2))
    events: list[SessionEvent] = []

    async def scenario() -> None:
        store = await SimStore.open(ensemble, TIMEOUT_MS)
        store.on_session(events.append)
        await asyncio.sleep(5)
        assert events == []
        network.cut("a", STORE)
        await asyncio.sleep(cut_s)
        network.heal([("a", STORE)])
        await asyncio.sleep(5)
        await store.close()

    ensemble.start()
    loop.run_until_complete(Party("a").run(loop.create_task, scenario()))
    loop.close()
    assert events == expected
