"""What a simulation consists of: its topics, and that everybody in it gets something done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.testing.sim.loop import Party
from ottla.testing.sim.world import Simulation


def test_what_is_simulated(tmp_path: Path) -> None:
    simulation = Simulation(9_001, tmp_path)
    outcome = simulation.run(6_000)
    assert outcome.violation is None
    min_insync = {
        p.tp: p.log.config.min_insync_replicas
        for broker in simulation.brokers
        if broker.broker is not None
        for p in broker.broker.replicas
        if not p.tp.topic.startswith("__")
    }
    assert min_insync == {TopicPartition("safe", 0): 2, TopicPartition("safe", 1): 2, TopicPartition("lax", 0): 1}
    done = outcome.acknowledged, outcome.read, outcome.committed_offsets, outcome.transactions
    assert all(done) and outcome.leader_epochs and outcome.faults.total() and outcome.virtual_s


@pytest.mark.parametrize(
    ("has_got_on", "is_excused", "told"),
    [
        (False, False, "p has got nothing done since"),
        (True, False, None),
        (False, True, None),
        (True, True, None),
    ],
)
def test_after_everything_has_healed_everybody_gets_on(has_got_on: bool, is_excused: bool, told: str | None) -> None:
    class Client(SimpleNamespace):
        __hash__ = object.__hash__

    stuck = Client(done_so_far=7, is_excused=is_excused, party=Party("p"))
    others = [Client(done_so_far=0, is_excused=True, party=Party(name), what_is_wrong=lambda: None) for name in "gt"]
    missing: list[str | None] = []

    def look(what_is_missing: Callable[[], str | None]) -> None:
        stuck.done_so_far += has_got_on
        missing.append(what_is_missing())

    simulation: Any = object.__new__(Simulation)
    simulation.producers, simulation.groups, simulation.transactions = [stuck], others[:1], others[1]
    simulation.checks = SimpleNamespace(unfinished=lambda: None)
    simulation._until_nothing_is_missing = look
    simulation._everybody = lambda: [stuck, *others]
    simulation._heal()
    assert missing == [told, None, None]
    assert all(client.party.is_dead for client in (stuck, *others))
