"""A simulation from its beginning to what it tells of itself, with nothing in it but what the test puts there."""

from __future__ import annotations

import asyncio
import itertools
import logging
import resource
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.testing.sim import world
from ottla.testing.sim.checks import ViolationError
from ottla.testing.sim.loop import Party
from ottla.testing.sim.world import Outcome, Simulation, simulate, try_seed


class Quiet(Simulation):
    """Without brokers and clients, unless the test has some."""

    def __init__(self, home: Path, seed: int = 1) -> None:
        self.said: list[str] = []
        super().__init__(seed, home, say=self.said.append)
        self.at_first: Callable[[], object] = lambda: None
        self.healed = 0
        self.compared = 0
        self.checks.compare_all = self._compare  # type: ignore[method-assign]

    async def _begin(self) -> None:
        self.at_first()

    def _heal(self) -> None:
        self.healed += 1

    def _compare(self) -> None:
        self.compared += 1

    @property
    def words(self) -> list[str]:
        return [" ".join(line.split()) for line in self.said]


@pytest.fixture
def quiet(tmp_path: Path) -> Quiet:
    return Quiet(tmp_path)


def test_who_takes_part(tmp_path: Path) -> None:
    simulation = Simulation(1, tmp_path)
    assert [broker.name for broker in simulation.brokers] == ["broker-1", "broker-2", "broker-3"]
    partitions = [TopicPartition("safe", 0), TopicPartition("safe", 1), TopicPartition("lax", 0)]
    by_name = {client.party.name: client for client in simulation._everybody()}
    for kind in ("producer", "reader", "careless"):
        assert [by_name.pop(f"{kind}-{number}").tp for number in range(3)] == partitions  # type: ignore[union-attr]
    assert set(by_name) == {"group-0", "transactions-0", "mover"}
    for tp in partitions:
        simulation.checks.excused = {tp}
        assert simulation.transactions.is_excused is (tp.topic == "safe")


def test_an_outcome_begins_with_nothing() -> None:
    assert Outcome(3) == Outcome(3, 0, 0.0, Counter(), 0, 0, 0, 0, 0, 0, 0, None, "")


def test_a_simulation_runs_for_its_events_heals_and_is_compared(quiet: Quiet) -> None:
    async def work() -> None:
        while True:
            await asyncio.sleep(0.001)

    quiet.at_first = lambda: Party("p").run(quiet.loop.create_task, work())
    outcome = quiet.run(500)
    assert outcome is quiet.outcome and outcome.violation is None
    assert outcome.events >= 500 and outcome.virtual_s == quiet.loop.time() > 0.4
    assert (quiet.healed, quiet.compared) == (1, 1)
    assert "no more faults" in " ".join(quiet.words)


def test_clients_that_fail_end_it(quiet: Quiet) -> None:
    async def fail() -> None:
        await asyncio.sleep(1)
        raise ViolationError("a promise")

    quiet.at_first = lambda: quiet._clients.append(quiet.loop.create_task(fail()))
    assert quiet.run(10_000).violation == "a promise"
    assert (quiet.healed, quiet.compared) == (0, 0)
    assert quiet.words[-1].endswith("VIOLATION: a promise")


def test_who_waits_for_nothing_ends_it(quiet: Quiet) -> None:
    quiet.faults.run = lambda: asyncio.sleep(1)  # type: ignore[method-assign, assignment]
    assert quiet.run(10_000).violation == "NothingLeftError"


def test_faults_that_fail_are_not_passed_over(quiet: Quiet) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    quiet.faults.run = fail  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        quiet.run(0)


def test_faults_end_before_anything_heals(quiet: Quiet) -> None:
    ended: list[int] = []

    async def last() -> None:
        while not quiet.faults.is_over:
            await asyncio.sleep(0.1)
        await asyncio.sleep(5)
        ended.append(quiet.healed)

    quiet.faults.run = last  # type: ignore[method-assign]
    quiet.run(10)
    assert ended == [0] and quiet.healed == 1


def test_a_traceback_in_a_log_is_a_violation(quiet: Quiet) -> None:
    def log() -> None:
        logger = logging.getLogger("ottla.broker")
        logger.info("all is well in %s", f"{quiet._home}0")
        logger.debug("too much")
        for number in (1, 2):
            try:
                raise ValueError(number)
            except ValueError:
                logger.exception("failure %d", number)

    quiet.at_first = log
    violation = quiet.run(0).violation or ""
    assert violation.startswith("something failed: ottla.broker: failure 1\n") and "ValueError: 1" in violation
    assert "failure 2" not in violation
    assert quiet.words[0] == "0.000 ottla.broker: all is well in 0", "without the directory, which is another each time"
    assert not any("too much" in line for line in quiet.words)


def test_what_fails_in_the_loop_is_a_violation(quiet: Quiet) -> None:
    quiet.at_first = lambda: quiet.loop.failures.extend(["first", "second"])
    assert quiet.run(0).violation == "something failed: first"


@pytest.mark.parametrize("fails", [False, True])
def test_logs_are_as_they_were_afterwards(quiet: Quiet, fails: bool) -> None:
    logger = logging.getLogger("ottla")
    was = logger.level, logger.propagate, list(logger.handlers)
    seen: list[tuple[int, bool]] = []
    try:
        logger.setLevel(logging.ERROR)
        logger.propagate = True

        def look() -> None:
            seen.append((logger.level, logger.propagate))
            if fails:
                raise ViolationError("it")

        quiet.at_first = look
        quiet.run(0)
        assert seen == [(logging.INFO, False)]
        assert (logger.level, logger.propagate, logger.handlers) == (logging.ERROR, True, was[2])
    finally:
        logger.setLevel(was[0])
        logger.propagate = was[1]


def test_files_of_brokers_are_closed_at_the_end(quiet: Quiet) -> None:
    closed: list[int] = []
    for broker in quiet.brokers:
        broker.close_files = lambda: closed.append(1)  # type: ignore[method-assign]
    quiet.run(0)
    assert closed == [1, 1, 1]


# After every event


def test_after_every_event_the_checks_look_at_its_party(quiet: Quiet) -> None:
    seen: list[str] = []
    quiet.checks.after_event = seen.append  # type: ignore[method-assign]
    quiet.loop.after_event(Party("broker-1"))
    quiet.loop.after_event(None)
    assert seen == ["broker-1", ""]


def _nothing(simulation: Quiet) -> None: ...


def _an_event(simulation: Quiet) -> None:
    simulation.loop.after_event(None)


def _an_event_of_somebody(simulation: Quiet) -> None:
    simulation.loop.after_event(Party("p"))


def _a_later_event(simulation: Quiet) -> None:
    simulation.loop.run_until_complete(asyncio.sleep(0.00001))
    simulation.loop.after_event(None)


def _an_event_still_later(simulation: Quiet) -> None:
    simulation.loop.run_until_complete(asyncio.sleep(0.00002))
    simulation.loop.after_event(None)


def _a_note(simulation: Quiet) -> None:
    simulation.note("something")


def test_the_trace_tells_all_runs_apart(tmp_path: Path) -> None:
    traces = []
    for happens in (
        _nothing,
        _an_event,
        _an_event_of_somebody,
        _a_later_event,
        _an_event_still_later,
        _a_note,
        _nothing,
    ):
        simulation = Quiet(tmp_path)
        happens(simulation)
        simulation._sum_up()
        traces.append(simulation.outcome.trace)
    assert traces[0] == traces[-1] and len(set(traces)) == len(traces) - 1
    assert {len(trace) for trace in traces} == {16}


def test_nobody_need_listen_to_notes(tmp_path: Path) -> None:
    Simulation(1, tmp_path).note("nothing")


# The end


def test_what_is_missing_may_come_within_two_minutes(quiet: Quiet) -> None:
    async def tick() -> None:
        while True:
            await asyncio.sleep(1)

    quiet.loop.create_task(tick())
    quiet._until_nothing_is_missing(lambda: None)
    assert quiet.loop.time() == 0
    quiet._until_nothing_is_missing(lambda: "it" if quiet.loop.time() < 119 else None)
    assert quiet.loop.time() == 119
    with pytest.raises(ViolationError, match=r"^120 s after everything has healed: a leader$"):
        quiet._until_nothing_is_missing(lambda: "a leader")
    assert quiet.loop.time() == 119 + 120


def test_a_look_every_twentieth_of_a_second(quiet: Quiet) -> None:
    async def tick() -> None:
        while True:
            await asyncio.sleep(0.01)

    quiet.loop.create_task(tick())
    looks: list[float] = []

    def look() -> str | None:
        looks.append(quiet.loop.time())
        return "it" if len(looks) < 5 else None

    quiet._until_nothing_is_missing(look)
    assert all(0.045 < later - at < 0.065 for at, later in itertools.pairwise(looks))


def test_what_an_outcome_adds_up(quiet: Quiet) -> None:
    for counts, clients in (((3, 4, 5), quiet.producers), ((7,), quiet.groups), ((11,), [quiet.transactions])):
        for count, client in zip(counts, clients, strict=True):
            client.done_so_far = count
    for position, reader in zip((20, 30, 40), quiet.readers, strict=True):
        reader.position = position
    quiet.mover.done_so_far = 13
    states = {"a": SimpleNamespace(leader_epoch=2), "b": SimpleNamespace(leader_epoch=6), "c": None}
    quiet.checks = SimpleNamespace(  # type: ignore[assignment]
        partitions=lambda: list(states), state=states.get, excused={"a", "b"}
    )
    quiet.faults.met = Counter(kill=2)
    quiet.ensemble.lost_replies, quiet.ensemble.expired_sessions = 8, 9
    quiet.loop.events = 99
    quiet._sum_up()
    faults: Counter[str] = Counter({"kill": 2, "lost reply": 8, "session expired": 9})
    assert quiet.outcome == Outcome(1, 99, 0.0, faults, 12, 90, 7, 11, 8, 13, 2, None, quiet.outcome.trace)


# Seeds


class Recorded:
    """Instead of a simulation."""

    made: list[Any]

    def __init__(self, seed: int, home: Path, *, say: Any) -> None:
        assert home.is_dir()
        (home / "file").touch()
        self.told = seed, home, say
        self.loop = SimpleNamespace(tasks=[self])
        Recorded.made.append(self)

    def run(self, events: int) -> Outcome:
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if events < 0:
            raise ZeroDivisionError
        return Outcome(self.told[0], events)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    Recorded.made = []
    monkeypatch.setattr(world, "Simulation", Recorded)
    monkeypatch.setattr(world, "_MEMORY", tmp_path / "memory")
    monkeypatch.setattr(world, "_kept", [])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return Recorded.made


@pytest.mark.parametrize("has_memory", [False, True])
def test_a_simulation_has_a_directory_in_memory_if_there_is_such(
    recorded: list[Any], tmp_path: Path, has_memory: bool
) -> None:
    if has_memory:
        (tmp_path / "memory").mkdir()
    assert simulate(4, 17, say=print) == Outcome(4, 17)
    with pytest.raises(ZeroDivisionError):
        simulate(5, -1)
    assert [simulation.told[::2] for simulation in recorded] == [(4, print), (5, None)]
    for simulation in recorded:
        home = simulation.told[1]
        assert home.name.startswith("ottla-sim-") and not home.exists()
        assert home.parent == (tmp_path / "memory" if has_memory else tmp_path)
    assert world._kept == [[simulation] for simulation in recorded], "tasks that are kept do not clean up"


def test_a_simulation_may_have_as_many_files_as_the_system_allows(recorded: list[Any]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard - 1, hard))
        simulate(4, 1)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("is_twice", "outcomes", "runs", "violation"),
    [
        (False, [Outcome(3, trace="a"), Outcome(3, trace="b")], 1, None),
        (True, [Outcome(3, trace="a"), Outcome(3, trace="a")], 2, None),
        (True, [Outcome(3, trace="a"), Outcome(3, trace="b")], 2, "the second run went another way"),
        (True, [Outcome(3, trace="a", violation="lost"), Outcome(3, trace="b")], 1, "lost"),
    ],
)
def test_a_seed_is_tried_twice_if_it_is_good(
    is_twice: bool, outcomes: list[Outcome], runs: int, violation: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []

    def simulated(seed: int, events: int) -> Outcome:
        asked.append((seed, events))
        return outcomes[len(asked) - 1]

    monkeypatch.setattr(world, "simulate", simulated)
    assert try_seed(3, events=8, is_twice=is_twice) is outcomes[0]
    assert asked == [(3, 8)] * runs and outcomes[0].violation == violation
