"""The rows of replication: both clusters in turn, round after round."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench import apache_kafka, cases
from bench.cases import AbsoluteCase, ReplicatedCase, Target
from bench.replication.clusters import IDS, Cluster, kafka_cluster, our_cluster
from bench.replication.controller_failover import measured_failovers
from bench.replication.failover import longest_gap_ms
from bench.replication.growth import idle_cost
from bench.row import Row, absolute_row, row_against
from bench.warm_pages import warm

Load = Callable[..., dict[str, float]]
_FEW = "few partitions"


@dataclass
class ReplicatedRuns:
    load: Load
    place: Path
    rounds: int
    is_quick: bool
    say: Callable[[str], None]

    def rows(self, wanted: Callable[[str], bool]) -> Iterator[Row]:
        produced = [case for case in cases.REPLICATED_CASES if wanted(case.name)]
        has_failover, has_memory = wanted(cases.FAILOVER.name), wanted(cases.REPLICATED_RSS.name)
        if produced or has_failover or has_memory:
            libs = apache_kafka.find_libs(self.say)
            with ExitStack() as stack:
                ours = stack.enter_context(our_cluster(self.place / "three"))
                kafka = None if libs is None else stack.enter_context(kafka_cluster(libs, self.place / "three-kafka"))
                clusters = [ours] if kafka is None else [ours, kafka]
                for case in produced:
                    yield from self._produce(case, clusters)
                if has_memory:
                    yield from _compared(
                        cases.REPLICATED_RSS, cases.REPLICATED_RSS_TARGET, {c.name: [c.rss_mb()] for c in clusters}
                    )
                if has_failover:
                    yield from self._failover(clusters)
        if wanted(cases.GROWTH_IDLE.name) or wanted(cases.GROWTH_COST.name):
            yield from self._growth()
        if wanted(cases.CONTROLLER_FAILOVER.name):
            yield from self._controller_failover()

    def _send(self, case: ReplicatedCase, cluster: Cluster, topic: str, requests: int) -> dict[str, float]:
        shape = (1, case.connections, case.depth, case.records, case.record_bytes)
        return self.load("replicate", cluster.ports[case.leader], topic, *shape, requests)

    def _produce(self, case: ReplicatedCase, clusters: list[Cluster]) -> Iterator[Row]:
        self.say(case.title)
        requests = case.quick_requests if self.is_quick else case.requests
        warm_ups = 1 if self.is_quick else cases.REPLICATED_WARM_UPS
        values: dict[str, list[float]] = {cluster.name: [] for cluster in clusters}
        cpu_s = dict.fromkeys(values, 0.0)
        for cluster in clusters:
            cluster.create_topic(case.name, [_led_by(case.leader)])
        for round_number in range(-warm_ups, self.rounds):
            for cluster in clusters:
                warm(self.place, 3 * requests * (case.records * (case.record_bytes + 10) + 100))
                before_s = cluster.cpu_s()
                result = self._send(case, cluster, case.name, requests)
                if round_number >= 0:
                    values[cluster.name].append(result[case.measure])
                    cpu_s[cluster.name] += cluster.cpu_s() - before_s
        for cluster in clusters:
            cluster.delete_topic(case.name)
        each = {name: spent / (requests * self.rounds) * 1e6 for name, spent in cpu_s.items()}
        notes = ", ".join(f"{name} {spent_us:.1f} µs of processor per request" for name, spent_us in each.items())
        target = cases.REPLICATED_LATENCY_TARGET if case.lower_is_better else cases.REPLICATED_RATE_TARGET
        yield from _compared(case, target, values, notes)

    def _failover(self, clusters: list[Cluster]) -> Iterator[Row]:
        self.say(cases.FAILOVER.title)
        values: dict[str, list[float]] = {cluster.name: [] for cluster in clusters}
        # Never the first: Apache Kafka's has the controller.
        for leader in IDS[1:] if not self.is_quick else IDS[1:2]:
            for cluster in clusters:
                topic = f"failover-{leader}"
                others = [broker_id for broker_id in cluster.ports if broker_id != leader]
                cluster.create_topic(topic, [[leader, *others]])
                values[cluster.name].append(longest_gap_ms(cluster, topic, leader))
        yield from _compared(cases.FAILOVER, cases.FAILOVER_TARGET, values)

    def _growth(self) -> Iterator[Row]:
        self.say(cases.GROWTH_IDLE.title)
        few, many = cases.QUICK_GROWTH_PARTITIONS if self.is_quick else cases.GROWTH_PARTITIONS
        idle, fetches, costs = {}, {}, {}
        for partitions in (few, many):
            with our_cluster(self.place / f"growth-{partitions}") as cluster:
                for number in range(partitions // few):
                    leaders = [_led_by(IDS[index % len(IDS)]) for index in range(few)]
                    cluster.create_topic(f"growth-{number}", leaders)
                found = idle_cost(cluster)
                idle[partitions], fetches[partitions] = found.cpu_percent, found.fetches_per_s
                costs[partitions] = self._cost_per_message(cluster)
        told = [f"{count} partitions: {_rate(fetches[count])} fetches/s" for count in (few, many)]
        for case, values, notes in ((cases.GROWTH_IDLE, idle, "; ".join(told)), (cases.GROWTH_COST, costs, "")):
            compared = {"broker": [values[many]], _FEW: [values[few]]}
            yield row_against(case, _FEW, cases.GROWTH_TARGET, compared, notes)

    def _controller_failover(self) -> Iterator[Row]:
        self.say(cases.CONTROLLER_FAILOVER.title)
        counts = cases.QUICK_CONTROLLER_FAILOVER_PARTITIONS if self.is_quick else cases.CONTROLLER_FAILOVER_PARTITIONS
        values: dict[str, list[float]] = {}
        told = []
        for name, found in measured_failovers(self.place, counts, apache_kafka.find_libs(self.say)):
            told.append(f"{name}, {found}")
            if found.partitions == counts[-1]:
                values[name] = [found.led_s * 1000]
        yield from _compared(cases.CONTROLLER_FAILOVER, cases.CONTROLLER_FAILOVER_TARGET, values, "; ".join(told))

    def _cost_per_message(self, cluster: Cluster) -> float:
        """µs of processor of all brokers for one message to one partition, acknowledged by all."""
        requests = cases.GROWTH_MESSAGES
        shape = (1, 1, 20, 1, 100)
        spent = []
        for _ in range(3):
            before_s = cluster.cpu_s()
            self.load("replicate", cluster.ports[IDS[0]], "growth-0", *shape, requests)
            spent.append((cluster.cpu_s() - before_s) / requests * 1e6)
        return statistics.median(spent)


def _led_by(leader: int) -> list[int]:
    place = IDS.index(leader)
    return [*IDS[place:], *IDS[:place]]


def _rate(per_s: float | None) -> str:
    return "unknown" if per_s is None else f"{per_s:.0f}"


def _compared(
    case: ReplicatedCase | AbsoluteCase, target: Target, values: dict[str, list[float]], notes: str = ""
) -> Iterator[Row]:
    if apache_kafka.NAME in values:
        yield row_against(case, apache_kafka.NAME, target, values, notes)
    else:
        alone = AbsoluteCase(
            name=case.name, title=case.title, unit=case.unit, target=None, lower_is_better=case.lower_is_better
        )
        yield absolute_row(alone, statistics.median(values["broker"]), values, notes)
