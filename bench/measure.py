"""Runs the cases, all sides in turn, and turns medians into rows of the report."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench import apache_kafka, cases, peers
from bench.apache_kafka import WarmUps
from bench.cases import AbsoluteCase, CommitCase, FetchCase, ProduceCase, Target
from bench.client_runs import ClientRuns
from bench.compaction.runs import CompactionRuns
from bench.frames import create_topic, find_coordinator, produce_reply_bytes
from bench.guarded import GuardedRuns
from bench.peers import Peer
from bench.pipeline_rows import PipelineRuns
from bench.programs import Programs, run_program
from bench.replication.runs import ReplicatedRuns
from bench.row import Row, absolute_row, row_against
from bench.spark_rows import SparkRuns
from bench.warm_pages import warm

TOPIC_BYTES = 12
"""All topic names have this length, so that the replies of the limits can be as long as a broker's."""


@dataclass
class Bench:
    programs: Programs
    rounds: int
    is_quick: bool
    say: Callable[[str], None]

    @property
    def short_rounds(self) -> int:
        """Of cases whose slices take hundredths of a second, of which any one can fall into a bad moment."""
        return self.rounds * cases.SHORT_ROUNDS

    def load(self, *arguments: object) -> dict[str, float]:
        return run_program([*self.programs.load, *map(str, arguments)])

    # The whole run

    def run(self, wanted: Callable[[str], bool]) -> Iterator[Row]:
        with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory, ExitStack() as stack:
            place = Path(directory)
            libs = apache_kafka.find_libs(self.say) if any(map(wanted, cases.AGAINST_KAFKA)) else None
            if wanted(cases.START.name):
                yield from self._start(place, libs)
            broker = stack.enter_context(peers.broker(place / "data"))
            kafka = None if libs is None else stack.enter_context(apache_kafka.apache_kafka(libs, place / "kafka"))
            if wanted(cases.IDLE_RSS.name):
                yield from _costs(cases.IDLE_RSS, broker, kafka, Peer.rss_mb)
            self._warm_ups = WarmUps(kafka, self.is_quick)
            self._warm_ups.first(self._send)
            mock = stack.enter_context(peers.mock_cluster())
            sink = stack.enter_context(peers.sink(self.programs, place, produce_reply_bytes("x" * TOPIC_BYTES)))
            for produce_case in cases.PRODUCE_CASES:
                if wanted(produce_case.name):
                    yield from self._produce(produce_case, sink, broker, mock, kafka, place)
            for fetch_case in cases.FETCH_CASES:
                if wanted(fetch_case.name):
                    yield from self._fetch(fetch_case, broker, mock, kafka, place)
            guarded_runs = GuardedRuns(self.load, broker, place, self.short_rounds, self.is_quick, self.say)
            yield from guarded_runs.rows(wanted)
            for commit_case in cases.COMMIT_CASES:
                if wanted(commit_case.name):
                    yield from self._commits(commit_case, broker, mock, kafka, place)
            if wanted(cases.REBALANCE.name):
                yield self._rebalance(broker)
            for records, target in cases.TRANSACTIONS_TARGETS.items():
                if wanted(f"transactions-{records}"):
                    yield from self._transactions(records, target, broker, mock, kafka)
            if wanted("end-to-end"):
                yield from self._end_to_end(broker, mock, kafka, place)
            if wanted(cases.LONG_POLL.name):
                yield from self._long_poll(broker, kafka)
            if wanted(cases.WORKED_RSS.name):
                yield from _costs(cases.WORKED_RSS, broker, kafka, Peer.rss_mb)
            if kafka is not None:
                kafka.process.terminate()
            yield from ReplicatedRuns(self.load, place, self.rounds, self.is_quick, self.say).rows(wanted)
            client_rounds = self.rounds * cases.CLIENT_ROUNDS
            yield from ClientRuns(self.programs, broker, place, client_rounds, self.is_quick, self.say).rows(wanted)
            yield from CompactionRuns(place, self.rounds, self.is_quick, self.say).rows(wanted)
            if not self.is_quick:
                yield from SparkRuns(broker, place, self.rounds, self.say).rows(wanted)
                yield from PipelineRuns(broker, place, self.rounds, self.say).rows(wanted)
            if wanted(cases.PEAK_RSS.name):
                yield absolute_row(cases.PEAK_RSS, broker.peak_rss_mb())
            if wanted(cases.IDLE_CONNECTION.name):
                yield from self._idle_connections(broker)

    # Produce

    def _send(self, case: ProduceCase, peer: Peer, topic: str, requests: int) -> dict[str, float]:
        shape = (case.partitions, case.connections, case.depth, case.records, case.record_bytes)
        return self.load("produce", peer.port, topic, *shape, requests)

    def _produce(
        self, case: ProduceCase, sink: Peer, broker: Peer, mock: Peer, kafka: Peer | None, place: Path
    ) -> Iterator[Row]:
        self.say(case.title)
        topic = _topic(case.name)
        brokers = _there(broker, mock, kafka)
        for peer in brokers:
            create_topic(peer.port, topic)
        requests = case.quick_requests if self.is_quick else case.requests

        def run(peer: Peer, count: int) -> dict[str, float]:
            warm(place, count * (case.records * (case.record_bytes + 10) + 100))
            return self._send(case, peer, topic, count)

        sides = [sink, *brokers]
        self._warm_ups.run(lambda kafka, own_topic: self._send(case, kafka, own_topic, requests))
        for peer in sides:
            run(peer, max(requests // 10, case.connections * case.depth))
        results: dict[str, list[dict[str, float]]] = {peer.name: [] for peer in sides}
        cpu_s = 0.0
        for _ in range(self.short_rounds):
            for peer in sides:
                before_s = broker.cpu_s()
                results[peer.name].append(run(peer, requests))
                if peer is broker:
                    cpu_s += broker.cpu_s() - before_s
        cpu_us = cpu_s / (requests * self.short_rounds) * 1e6
        load_cpu = statistics.median(result["load_cpu"] for result in results["broker"])
        notes = f"broker {cpu_us:.1f} µs of processor per request; load generator {load_cpu:.0%} of a core"
        values = {name: [result[case.measure] for result in of_side] for name, of_side in results.items()}
        yield row_against(case, "sink", case.vs_limit, values, notes)
        yield row_against(case, "mock", case.vs_mock, values, f"{notes}; {_limit_against_mock('sink', values)}")
        if kafka is not None:
            target = cases.KAFKA_COST_TARGET if case.lower_is_better else cases.KAFKA_RATE_TARGET
            yield row_against(case, kafka.name, target, values)

    # Fetch

    def _fetch(self, case: FetchCase, broker: Peer, mock: Peer, kafka: Peer | None, place: Path) -> Iterator[Row]:
        self.say(case.title)
        topic = _topic(case.name)
        sides = _there(broker, None if case.vs_mock is None else mock, kafka)

        def fill(peer: Peer, topic: str) -> None:
            requests = case.partitions * cases.FETCH_BATCHES_PER_PARTITION
            self.load("produce", peer.port, topic, case.partitions, 1, 1, 9_500, 100, requests)

        def run(peer: Peer, topic: str, wanted_bytes: int, is_raw: bool = False) -> dict[str, float]:
            shape = (case.partitions, cases.FETCH_PARTITION_BYTES, wanted_bytes, int(is_raw))
            return self.load("fetch", peer.port, topic, *shape)

        def fill_and_run(peer: Peer, topic: str) -> None:
            fill(peer, topic)
            run(peer, topic, total_bytes)

        for peer in sides:
            create_topic(peer.port, topic)
            fill(peer, topic)
        file = place / "source.bin"
        file.write_bytes(bytes(case.partitions * cases.FETCH_BATCHES_PER_PARTITION * cases.FETCH_PARTITION_BYTES))
        total_bytes = case.quick_total_bytes if self.is_quick else case.total_bytes
        results: dict[str, list[float]] = {}
        reply_bytes = case.partitions * cases.FETCH_PARTITION_BYTES
        self._warm_ups.run(fill_and_run)
        with peers.source(self.programs, file, reply_bytes) as source:
            for round_number in range(-1, self.short_rounds):
                for peer in (source, *sides):
                    wanted_bytes = total_bytes if round_number >= 0 else total_bytes // 10
                    result = run(peer, topic, wanted_bytes, is_raw=peer is source)
                    if round_number >= 0:
                        results.setdefault(peer.name, []).append(result["bytes_per_s"] / 1e6)
        file.unlink()
        yield row_against(case, "source", case.vs_limit, results)
        if case.vs_mock is not None:
            yield row_against(case, "mock", case.vs_mock, results, _limit_against_mock("source", results))
        if kafka is not None:
            yield row_against(case, kafka.name, cases.KAFKA_RATE_TARGET, results)

    # Groups

    def _commits(self, case: CommitCase, broker: Peer, mock: Peer, kafka: Peer | None, place: Path) -> Iterator[Row]:
        self.say(case.title)
        topic = _topic("commits")
        requests = case.quick_requests if self.is_quick else case.requests
        values: dict[str, list[float]] = {}
        cpu_s = 0.0
        sides = _there(broker, mock, kafka)
        for peer in sides:
            create_topic(peer.port, topic)
            find_coordinator(peer.port, "bench-0")

        def run(peer: Peer, topic: str, count: int) -> dict[str, float]:
            return self.load("commit", peer.port, topic, case.connections, case.depth, count)

        self._warm_ups.run(lambda kafka, own_topic: run(kafka, own_topic, requests))
        for round_number in range(-1, self.short_rounds):
            for peer in sides:
                count = requests if round_number >= 0 else max(requests // 10, case.connections * case.depth)
                warm(place, count * 250)
                before_s = broker.cpu_s()
                result = run(peer, topic, count)
                if round_number >= 0:
                    values.setdefault(peer.name, []).append(result["requests_per_s"])
                    cpu_s += broker.cpu_s() - before_s
        notes = f"broker {cpu_s / (requests * self.short_rounds) * 1e6:.1f} µs of processor per commit"
        yield row_against(case, "mock", case.vs_mock, values, notes)
        if kafka is not None:
            yield row_against(case, kafka.name, cases.KAFKA_RATE_TARGET, values)

    def _rebalance(self, broker: Peer) -> Row:
        self.say(cases.REBALANCE.title)
        group = "bench-rebalance"
        find_coordinator(broker.port, group)
        shape = (broker.port, group, cases.REBALANCE_MEMBERS, cases.REBALANCE_ROUNDS)
        result = run_program([sys.executable, "-m", "bench.group_load", *map(str, shape)])
        return absolute_row(cases.REBALANCE, result["rebalance_ms"])

    # Transactions

    def _transactions(
        self, records: int, target: Target, broker: Peer, mock: Peer, kafka: Peer | None
    ) -> Iterator[Row]:
        case = AbsoluteCase(
            name=f"transactions-{records}",
            title=f"transactions of {records} record{'s' if records > 1 else ''}",
            unit="transactions/s",
            target=None,
            lower_is_better=False,
        )
        self.say(case.title)
        topic = _topic(f"txn-{records}")
        count = cases.QUICK_TRANSACTIONS if self.is_quick else cases.TRANSACTIONS
        sides = _there(broker, mock, kafka)
        for peer in sides:
            create_topic(peer.port, topic)

        def run(peer: Peer, topic: str) -> dict[str, float]:
            shape = (peer.port, topic, cases.MOCK_PARTITIONS, records, count)
            return run_program([sys.executable, "-m", "bench.transactions", *map(str, shape)])

        self._warm_ups.run(run)
        results: dict[str, list[dict[str, float]]] = {peer.name: [] for peer in sides}
        for _ in range(self.rounds * cases.CLIENT_ROUNDS):
            for peer in sides:
                results[peer.name].append(run(peer, topic))
        rates = {name: [result["transactions_per_s"] for result in of_side] for name, of_side in results.items()}
        notes = ", ".join(
            f"{name} p50 {statistics.median(result['p50_ms'] for result in of_side):.2f} ms and p99 "
            f"{statistics.median(result['p99_ms'] for result in of_side):.2f} ms"
            for name, of_side in results.items()
        )
        yield row_against(case, "mock", target, rates, notes)
        if kafka is not None:
            yield row_against(case, kafka.name, cases.KAFKA_RATE_TARGET, rates)

    # A whole client

    def _end_to_end(self, broker: Peer, mock: Peer, kafka: Peer | None, place: Path) -> Iterator[Row]:
        self.say("librdkafka end to end")
        rates: dict[str, dict[str, list[float]]] = {"produce": {}, "consume": {}}

        def run(peer: Peer, topic: str, direction: str) -> float:
            warm(place, cases.END_TO_END_MESSAGES * 110)
            shape = (peer.port, topic, cases.MOCK_PARTITIONS, cases.END_TO_END_MESSAGES)
            command = [sys.executable, "-m", "bench.end_to_end", direction, *map(str, shape)]
            return run_program(command)["messages_per_s"]

        self._warm_ups.run(lambda kafka, own_topic: [run(kafka, own_topic, direction) for direction in rates])
        for round_number in range(self.short_rounds):
            topic = _topic(f"e2e-{round_number}")
            for peer in _there(broker, mock, kafka):
                create_topic(peer.port, topic)
                for direction in rates:
                    rates[direction].setdefault(peer.name, []).append(run(peer, topic, direction))
        for direction, target in cases.END_TO_END_TARGETS.items():
            case = AbsoluteCase(
                name=f"end-to-end-{direction}",
                title=f"librdkafka end to end, {direction}",
                unit="messages/s",
                target=None,
                lower_is_better=False,
            )
            notes = "driven through confluent-kafka on both sides, whose own cost makes them more alike"
            yield row_against(case, "mock", target, rates[direction], notes)
            if kafka is not None:
                yield row_against(case, kafka.name, None, rates[direction], notes)

    # The broker alone

    def _start(self, place: Path, libs: Path | None) -> Iterator[Row]:
        self.say(cases.START.title)
        took_ms: dict[str, list[float]] = {}
        for number in range(3 if self.is_quick else 5):
            with peers.broker(place / f"start-{number}") as started:
                took_ms.setdefault(started.name, []).append(started.started_in_ms)
            if libs is not None:
                with apache_kafka.apache_kafka(libs, place / f"start-kafka-{number}") as started:
                    took_ms.setdefault(started.name, []).append(started.started_in_ms)
        yield absolute_row(cases.START, statistics.median(took_ms["broker"]), {"broker": took_ms["broker"]})
        if libs is not None:
            yield row_against(cases.START, apache_kafka.NAME, cases.KAFKA_COST_TARGET, took_ms)

    def _long_poll(self, broker: Peer, kafka: Peer | None) -> Iterator[Row]:
        self.say(cases.LONG_POLL.title)
        topic = _topic(cases.LONG_POLL.name)
        count = 300 if self.is_quick else 1000
        for peer in _there(broker, kafka):
            create_topic(peer.port, topic)
        self._warm_ups.run(lambda kafka, own_topic: self.load("longpoll", kafka.port, own_topic, count))
        results: dict[str, list[dict[str, float]]] = {}
        for _ in range(self.rounds):
            for peer in _there(broker, kafka):
                results.setdefault(peer.name, []).append(self.load("longpoll", peer.port, topic, count))
        p50_us = {name: [result["p50_us"] for result in of_side] for name, of_side in results.items()}
        p99_us = statistics.median(result["p99_us"] for result in results["broker"])
        yield absolute_row(cases.LONG_POLL, statistics.median(p50_us["broker"]), notes=f"p99 {p99_us:.0f} µs")
        if kafka is not None:
            yield row_against(cases.LONG_POLL, kafka.name, cases.KAFKA_COST_TARGET, p50_us)

    def _idle_connections(self, broker: Peer) -> Iterator[Row]:
        self.say(cases.IDLE_CONNECTION.title)
        before_mb = broker.rss_mb()
        command = [*self.programs.load, "idle", str(broker.port), str(cases.IDLE_CONNECTIONS)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            if not holder.stdout.readline():
                raise RuntimeError("the idle connections could not be opened (is the limit of open files too low?)")
            time.sleep(0.5)
            grown_mb = broker.rss_mb() - before_mb
            cpu_before_s, begun_s = broker.cpu_s(), time.monotonic()
            time.sleep(2)
            cpu_percent = (broker.cpu_s() - cpu_before_s) / (time.monotonic() - begun_s) * 100
            holder.communicate()
        yield absolute_row(cases.IDLE_CONNECTION, grown_mb * 1000 / cases.IDLE_CONNECTIONS)
        yield absolute_row(cases.IDLE_CPU, cpu_percent)


def _topic(name: str) -> str:
    """The case's name, cut or filled to the common length. Cases differ within it."""
    return name.replace("single-", "s").replace("produce-", "p")[:TOPIC_BYTES].ljust(TOPIC_BYTES, "x")


def _costs(case: AbsoluteCase, broker: Peer, kafka: Peer | None, cost: Callable[[Peer], float]) -> Iterator[Row]:
    """What the broker takes, and the same against Apache Kafka."""
    yield absolute_row(case, cost(broker))
    if kafka is not None:
        costs = {peer.name: [cost(peer)] for peer in (broker, kafka)}
        yield row_against(case, kafka.name, cases.KAFKA_COST_TARGET, costs)


def _there(*sides: Peer | None) -> list[Peer]:
    return [side for side in sides if side is not None]


def _limit_against_mock(limit: str, values: dict[str, list[float]]) -> str:
    """A broker that does what the limit does, and more, cannot be expected above this."""
    ratio = statistics.median(values[limit]) / statistics.median(values["mock"])
    return f"the {limit} itself is at {ratio:.2f} of the mock"
