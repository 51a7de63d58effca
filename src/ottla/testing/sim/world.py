"""One simulation: three brokers, their clients and what goes wrong, all of it drawn from one seed."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import resource
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from ottla.base.types import TopicPartition
from ottla.testing.sim.brokers import SimBroker
from ottla.testing.sim.checks import Checks, ViolationError
from ottla.testing.sim.clients import SimCarelessProducer, SimClient, SimGroup, SimProducer, SimReader
from ottla.testing.sim.disks import SyncedLengths
from ottla.testing.sim.faults import Faults
from ottla.testing.sim.loop import NothingLeftError, Party, SimLoop
from ottla.testing.sim.mover import SimMover
from ottla.testing.sim.network import SimNetwork
from ottla.testing.sim.store import SimEnsemble
from ottla.testing.sim.transactions import SimTransactions

BROKERS = (1, 2, 3)
HEALING_S = 120.0
_LOOK_S = 0.05
_PARTITIONS = (TopicPartition("safe", 0), TopicPartition("safe", 1), TopicPartition("lax", 0))
_MEMORY = Path("/dev/shm")
_kept: list[list[asyncio.Task[object]]] = []
"""The tasks of brokers that were killed: if they were collected, their clean-up would run. They go with the process."""


@dataclass(slots=True)
class Outcome:
    seed: int
    events: int = 0
    virtual_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    read: int = 0
    committed_offsets: int = 0
    transactions: int = 0
    leader_epochs: int = 0
    moves: int = 0
    excused: int = 0
    """Partitions that all disks in sync had lost records of."""
    violation: str | None = None
    trace: str = ""
    """A hash of all that happened, in its order."""


class Simulation:
    def __init__(self, seed: int, home: Path, *, say: Callable[[str], None] | None = None) -> None:
        """`say` is given a line for everything worth reading in a trace."""
        self.outcome = Outcome(seed)
        self._say = say
        self._home = f"{home}/"
        self._hash = hashlib.sha256()
        draw = Random(seed)

        def own_draw() -> Random:
            return Random(draw.random())

        self.loop = SimLoop()  # type: ignore[abstract]
        self.synced = SyncedLengths()
        self.network = SimNetwork(self.loop, own_draw())
        self.ensemble = SimEnsemble(self.network, own_draw())
        self.brokers = [
            SimBroker(number, home / f"broker-{number}", self.network, self.ensemble, self.synced, own_draw())
            for number in BROKERS
        ]
        self.checks = Checks(self.brokers, self.ensemble)
        self.faults = Faults(self.brokers, self.network, self.checks, own_draw(), self.note)
        names = [broker.name for broker in self.brokers]
        self._admin = SimClient("admin", names, own_draw())
        self.producers = [
            SimProducer(f"producer-{number}", names, own_draw(), self.checks, tp)
            for number, tp in enumerate(_PARTITIONS)
        ]
        self.readers = [
            SimReader(f"reader-{number}", names, own_draw(), self.checks, tp) for number, tp in enumerate(_PARTITIONS)
        ]
        self.groups = [SimGroup("group-0", names, own_draw(), self.checks)]
        self.transactions = SimTransactions("transactions-0", names, own_draw(), self.checks, _PARTITIONS[:2])
        self._careless = [
            SimCarelessProducer(f"careless-{number}", names, own_draw(), tp) for number, tp in enumerate(_PARTITIONS)
        ]
        self.mover = SimMover("mover", names, own_draw(), self.note, BROKERS, _PARTITIONS)
        self._clients: list[asyncio.Task[None]] = []
        self.loop.after_event = self._after_event

    def note(self, what: str) -> None:
        line = f"{self.loop.time():9.3f}  {what.replace(self._home, '')}"
        self._hash.update(line.encode())
        if self._say is not None:
            self._say(line)

    def run(self, events: int) -> Outcome:
        """Until so many events have happened, and everything has healed."""
        broken = _Failures(self.note)
        logger = logging.getLogger("ottla")
        was = logger.level, logger.propagate
        logger.addHandler(broken)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        try:
            with self.synced.watching():
                self.loop.run_until_complete(self._begin())
                faults = self.loop.create_task(self.faults.run())
                self._run_while(lambda: self.loop.events < events)
                self.faults.is_over = True
                self.note("no more faults")
                self._run_while(lambda: not faults.done())
                faults.result()
                self._heal()
                self.checks.compare_all()
            if broken.lines or self.loop.failures:
                raise ViolationError(f"something failed: {(broken.lines + self.loop.failures)[0]}")
        except (ViolationError, NothingLeftError) as e:
            self.outcome.violation = str(e) or type(e).__name__
            self.note(f"VIOLATION: {e}")
        finally:
            logger.removeHandler(broken)
            logger.level, logger.propagate = was
            for broker in self.brokers:
                broker.close_files()
        self._sum_up()
        return self.outcome

    async def _begin(self) -> None:
        self.ensemble.start()
        await asyncio.gather(*(broker.start() for broker in self.brokers))
        await self._as_client(self._admin, self._create_topics)
        for client in self._everybody():
            self._clients.append(client.party.run(self.loop.create_task, client.run()))

    def _everybody(self) -> list[SimProducer | SimReader | SimGroup | SimTransactions | SimCarelessProducer | SimMover]:
        return [*self.producers, *self.readers, *self.groups, self.transactions, *self._careless, self.mover]

    async def _create_topics(self) -> None:
        await self._admin.create_topic("safe", 2, {"min.insync.replicas": "2"})
        await self._admin.create_topic("lax", 1, {"min.insync.replicas": "1"})

    async def _as_client(self, client: SimClient, work: Callable[[], object]) -> None:
        await client.party.run(self.loop.create_task, work())  # type: ignore[arg-type]

    def _run_while(self, goes_on: Callable[[], bool]) -> None:
        def and_nobody_failed() -> bool:
            for client in self._clients:
                if client.done():
                    client.result()
            return goes_on()

        self.loop.run_while(and_nobody_failed)

    def _heal(self) -> None:
        """Everything is back: then all replicas are in sync again, and everybody gets on."""
        before = {client: client.done_so_far for client in (*self.producers, *self.groups, self.transactions)}

        def stands_still() -> str | None:
            for client, count in before.items():
                if client.done_so_far <= count and not client.is_excused:
                    return f"{client.party.name} has got nothing done since"
            return None

        self._until_nothing_is_missing(stands_still)
        for client in self._everybody():
            client.party.is_dead = True
        self._until_nothing_is_missing(self.checks.unfinished)
        self._until_nothing_is_missing(self.transactions.what_is_wrong)

    def _until_nothing_is_missing(self, what_is_missing: Callable[[], str | None]) -> None:
        deadline_s = self.loop.time() + HEALING_S
        while (missing := what_is_missing()) is not None:
            if self.loop.time() >= deadline_s:
                raise ViolationError(f"{HEALING_S:.0f} s after everything has healed: {missing}")
            next_look_s = self.loop.time() + _LOOK_S
            self._run_while(lambda until_s=next_look_s: self.loop.time() < until_s)  # type: ignore[misc]

    def _after_event(self, party: Party | None) -> None:
        name = "" if party is None else party.name
        self._hash.update(b"%d %s" % (int(self.loop.time() * 1e6), name.encode()))
        self.checks.after_event(name)

    def _sum_up(self) -> None:
        outcome = self.outcome
        outcome.events = self.loop.events
        outcome.virtual_s = self.loop.time()
        outcome.faults = self.faults.met
        outcome.faults["lost reply"] = self.ensemble.lost_replies
        outcome.faults["session expired"] = self.ensemble.expired_sessions
        outcome.acknowledged = sum(producer.done_so_far for producer in self.producers)
        outcome.read = sum(reader.position for reader in self.readers)
        outcome.committed_offsets = self.groups[0].done_so_far
        outcome.transactions = self.transactions.done_so_far
        outcome.leader_epochs = sum(
            state.leader_epoch for tp in self.checks.partitions() if (state := self.checks.state(tp)) is not None
        )
        outcome.moves = self.mover.done_so_far
        outcome.excused = len(self.checks.excused)
        outcome.trace = self._hash.hexdigest()[:16]


class _Failures(logging.Handler):
    """Tracebacks in a broker's log are defects, whether anybody has suffered from them or not."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []
        self._note = note
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        self._note(text)
        if record.exc_info:
            self.lines.append(text)


def simulate(seed: int, events: int, *, say: Callable[[str], None] | None = None) -> Outcome:
    """Raises nothing for a broken promise: the outcome tells."""
    # What killed brokers had open stays open with their tasks, so the process needs more than the usual thousand.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    home = Path(tempfile.mkdtemp(prefix="ottla-sim-", dir=_MEMORY if _MEMORY.is_dir() else None))
    try:
        simulation = Simulation(seed, home, say=say)
        _kept.append(simulation.loop.tasks)
        return simulation.run(events)
    finally:
        shutil.rmtree(home)


def try_seed(seed: int, *, events: int, is_twice: bool) -> Outcome:
    """For processes that share the work."""
    outcome = simulate(seed, events)
    if is_twice and not outcome.violation and simulate(seed, events).trace != outcome.trace:
        outcome.violation = "the second run went another way"
    return outcome
