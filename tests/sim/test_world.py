"""What a simulation consists of: its topics, and that everybody in it gets something done."""

from __future__ import annotations

from pathlib import Path

from ottla.base.types import TopicPartition
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
