"""The simulation notices what it is there for: each of these mistakes, planted into the real code, breaks a promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.handlers import fetch
from ottla.broker.partition import Partition
from ottla.broker.registration import Registration
from ottla.broker.replication import fetchers
from ottla.broker.replication.fetchers import ReplicaFetchers
from ottla.log.producer_state import ProducerStates
from ottla.machines.cluster import controller, election
from ottla.machines.replication.follower import Append, Fetched, FollowedLog, Step, Truncate, after_fetch
from ottla.machines.replication.leader import FollowerPosition, PartitionLeader
from ottla.testing.sim.world import simulate

SEEDS = range(1, 31)
EVENTS = 6_000

Plant = Callable[[pytest.MonkeyPatch], None]


def cut_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """As Kafka did before leader epochs: what was committed but not yet known to be goes (KIP-101)."""
    follow = ReplicaFetchers.follow

    def cut_and_follow(self: ReplicaFetchers, partition: Partition) -> None:
        partition.log.truncate_to(partition.log.high_watermark)
        follow(self, partition)

    patch.setattr(ReplicaFetchers, "follow", cut_and_follow)


def acknowledge_too_early(patch: pytest.MonkeyPatch) -> None:
    def advance(self: PartitionLeader) -> int:
        self.high_watermark = max(self.high_watermark, self.log_end_offset)
        return self.high_watermark

    patch.setattr(PartitionLeader, "_advance", advance)


def skip_the_epoch_check(patch: pytest.MonkeyPatch) -> None:
    """A leader that does not compare the epoch of a follower's last record with its own."""
    patch.setattr(fetch, "divergence", lambda log, wanted: None)


def keep_what_has_diverged(patch: pytest.MonkeyPatch) -> None:
    def never_cut(fetched: Fetched, log: FollowedLog) -> Step:
        step = after_fetch(fetched, log)
        return Append() if isinstance(step, Truncate) else step

    patch.setattr(fetchers, "after_fetch", never_cut)


def let_anybody_join(patch: pytest.MonkeyPatch) -> None:
    def may_join(self: PartitionLeader, replica: int, follower: FollowerPosition) -> bool:
        return replica not in self.isr

    patch.setattr(PartitionLeader, "_may_join", may_join)


def elect_anybody(patch: pytest.MonkeyPatch) -> None:
    honest = election.elect

    def unclean(replicas: Any, isr: Any, live: Any, *, unclean_allowed: bool) -> Any:
        return honest(replicas, isr, live, unclean_allowed=True)

    patch.setattr(controller, "elect", unclean)


def take_what_was_sent_for_stored(patch: pytest.MonkeyPatch) -> None:
    honest = FollowerPosition.fetched

    def fetched(
        self: FollowerPosition, offset: int, log_start_offset: int, leader_end_offset: int, now_ms: int
    ) -> None:
        honest(self, leader_end_offset, log_start_offset, leader_end_offset, now_ms)

    patch.setattr(FollowerPosition, "fetched", fetched)


def ignore_a_lost_session(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Registration, "_session_changed", lambda self, event: None)


def forget_sequences(patch: pytest.MonkeyPatch) -> None:
    """A follower that does not learn who has written what takes a batch twice once it leads."""
    patch.setattr(ProducerStates, "replay", lambda self, header, marker: None)


@pytest.mark.parametrize(
    "plant",
    [
        cut_to_the_high_watermark,
        acknowledge_too_early,
        skip_the_epoch_check,
        keep_what_has_diverged,
        let_anybody_join,
        elect_anybody,
        take_what_was_sent_for_stored,
        ignore_a_lost_session,
        forget_sequences,
    ],
    ids=lambda plant: plant.__name__,
)
def test_a_planted_bug_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(simulate(seed, EVENTS).violation for seed in SEEDS)
