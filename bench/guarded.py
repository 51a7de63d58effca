"""What rules and quotas cost: the same load on a broker that asks them for every request and on one that has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench import cases, peers
from bench.cases import FetchCase, ProduceCase
from bench.frames import create_topic
from bench.peers import Peer
from bench.row import Row, row_against
from bench.warm_pages import warm

OPEN = "open broker"
Load = Callable[..., dict[str, float]]


@dataclass
class GuardedRuns:
    """`load` runs the load generator; `broker` is the one without rules and quotas."""

    load: Load
    broker: Peer
    place: Path
    rounds: int
    is_quick: bool
    say: Callable[[str], None]

    def rows(self, wanted: Callable[[str], bool]) -> Iterator[Row]:
        produced = [case for case in cases.GUARDED_PRODUCE_CASES if wanted(case.name)]
        fetched = [case for case in cases.GUARDED_FETCH_CASES if wanted(case.name)]
        if not produced and not fetched:
            return
        with peers.broker(self.place / "guarded", is_guarded=True) as guarded:
            sides = {"broker": guarded, OPEN: self.broker}
            for produce_case in produced:
                yield self._produce(produce_case, sides)
            for fetch_case in fetched:
                yield self._fetch(fetch_case, sides)

    def _produce(self, case: ProduceCase, sides: dict[str, Peer]) -> Row:
        self.say(case.title)
        requests = case.quick_requests if self.is_quick else case.requests
        shape = (case.partitions, case.connections, case.depth, case.records, case.record_bytes)

        def run(peer: Peer, topic: str) -> float:
            warm(self.place, requests * (case.records * (case.record_bytes + 10) + 100))
            return self.load("produce", peer.port, topic, *shape, requests)[case.measure]

        return self._alternate(case, sides, run, requests)

    def _fetch(self, case: FetchCase, sides: dict[str, Peer]) -> Row:
        self.say(case.title)
        for peer in sides.values():
            create_topic(peer.port, case.name)
            batches = case.partitions * cases.FETCH_BATCHES_PER_PARTITION
            self.load("produce", peer.port, case.name, case.partitions, 1, 1, 9_500, 100, batches)
        total_bytes = case.quick_total_bytes if self.is_quick else case.total_bytes

        def run(peer: Peer, topic: str) -> float:
            shape = (case.partitions, cases.FETCH_PARTITION_BYTES, total_bytes, 0)
            return self.load("fetch", peer.port, topic, *shape)["bytes_per_s"] / 1e6

        return self._alternate(
            case, sides, run, total_bytes // (case.partitions * cases.FETCH_PARTITION_BYTES), is_filled=True
        )

    def _alternate(
        self,
        case: ProduceCase | FetchCase,
        sides: dict[str, Peer],
        run: Callable[[Peer, str], float],
        requests: int,
        *,
        is_filled: bool = False,
    ) -> Row:
        values: dict[str, list[float]] = {name: [] for name in sides}
        cpu_s = dict.fromkeys(sides, 0.0)
        for peer in sides.values():
            if not is_filled:
                create_topic(peer.port, case.name)
            run(peer, case.name)
        for _ in range(self.rounds):
            for name, peer in sides.items():
                before_s = peer.cpu_s()
                values[name].append(run(peer, case.name))
                cpu_s[name] += peer.cpu_s() - before_s
        each_us = {name: spent / (requests * self.rounds) * 1e6 for name, spent in cpu_s.items()}
        notes = f"{each_us['broker']:.1f} µs of processor per request, {each_us[OPEN]:.1f} without"
        return row_against(case, OPEN, cases.GUARDED_TARGETS[case.lower_is_better], values, notes)
