"""What goes wrong in a simulation, drawn by its seed: brokers die, stand still and stop, links and sessions fail."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random

from ottla.testing.sim.brokers import SimBroker
from ottla.testing.sim.checks import Checks
from ottla.testing.sim.network import SimNetwork
from ottla.testing.sim.store import STORE


class Faults:
    def __init__(
        self,
        brokers: list[SimBroker],
        network: SimNetwork,
        checks: Checks,
        draw: Random,
        note: Callable[[str], None],
    ) -> None:
        self.met: Counter[str] = Counter()
        self.is_over = False
        self._brokers = brokers
        self._network = network
        self._checks = checks
        self._draw = draw
        self._note = note
        self._kinds: list[Callable[[], Awaitable[None]]] = [
            self._kill,
            self._kill,
            self._lose_power,
            self._hold,
            self._stop,
            self._cut_brokers,
            self._cut_brokers,
            self._cut_store,
            self._isolate,
            self._reset,
        ]

    async def run(self) -> None:
        """One after the other, some of them at the same time, until `is_over`."""
        running: list[asyncio.Task[None]] = []
        while not self.is_over:
            await asyncio.sleep(self._draw.uniform(0.1, 1.5))
            fault = self._draw.choice(self._kinds)
            running.append(asyncio.get_running_loop().create_task(self._do(fault())))
        await asyncio.gather(*running)

    async def _do(self, fault: Awaitable[None]) -> None:
        await fault

    def _happens(self, kind: str, what: str) -> None:
        self.met[kind] += 1
        self._note(f"{kind}: {what}")

    def _one_that_is_up(self) -> SimBroker | None:
        up = [broker for broker in self._brokers if broker.is_up]
        return self._draw.choice(up) if up else None

    async def _while_it_lasts(self) -> None:
        await asyncio.sleep(self._draw.choice((0.05, 0.5, 2.5, 5.0)) * self._draw.uniform(0.5, 1.5))

    async def _start_again(self, broker: SimBroker) -> None:
        await self._while_it_lasts()
        self._note(f"start {broker.name}")
        await broker.start()

    async def _kill(self) -> None:
        broker = self._one_that_is_up()
        if broker is not None:
            self._happens("kill", broker.name)
            broker.kill(power_loss=False)
            await self._start_again(broker)

    async def _lose_power(self) -> None:
        broker = self._one_that_is_up()
        if broker is not None:
            self._checks.lost_power(broker.broker_id)
            lost = broker.kill(power_loss=True)
            self._happens("power loss", f"{broker.name}, {lost} bytes of records are gone")
            await self._start_again(broker)

    async def _hold(self) -> None:
        broker = self._one_that_is_up()
        if broker is not None:
            self._happens("hold", broker.name)
            broker.hold()
            await self._while_it_lasts()
            if broker.is_held:
                self._note(f"resume {broker.name}")
                broker.resume()

    async def _stop(self) -> None:
        broker = self._one_that_is_up()
        if broker is not None:
            self._happens("clean stop", broker.name)
            await broker.stop()
            await self._start_again(broker)

    async def _cut_brokers(self) -> None:
        one, other = self._draw.sample(self._brokers, 2)
        links = [(one.name, other.name)]
        if self._draw.random() < 0.5:
            links.append((other.name, one.name))
        await self._cut("cut", links)

    async def _cut_store(self) -> None:
        broker = self._draw.choice(self._brokers)
        await self._cut("cut from the store", [(broker.name, STORE), (STORE, broker.name)])

    async def _isolate(self) -> None:
        broker = self._draw.choice(self._brokers)
        others = [other.name for other in self._brokers if other is not broker] + [STORE]
        await self._cut("isolate", [link for other in others for link in ((broker.name, other), (other, broker.name))])

    async def _cut(self, kind: str, links: list[tuple[str, str]]) -> None:
        self._happens(kind, ", ".join(f"{source} -> {target}" for source, target in links))
        for source, target in links:
            self._network.cut(source, target)
        await self._while_it_lasts()
        self._note(f"healed: {', '.join(f'{source} -> {target}' for source, target in links)}")
        self._network.heal(links)

    async def _reset(self) -> None:
        count = self._network.reset_some(self._draw.randint(1, 4))
        self._happens("reset", f"{count} connections")
