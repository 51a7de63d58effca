"""F21: `ottla start --brokers 3`, as a user runs it, and faults of all kinds at seeded moments.

Writers are librdkafka's, idempotent with acks=all. A history of all they were told, and of what a last reader finds, is
judged by the checker; then the copies of every partition are compared byte by byte.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin

from tests.checker import Operation, Outcome, Poll, check
from tests.cluster.chaos.cluster import IDS
from tests.cluster.chaos.load import PARTITIONS, Writer, log_bytes
from tests.cluster.chaos.load import Figures as TableFigures
from tests.cluster.chaos.table import Scene, row
from tests.crash.log_files import parse_batches
from tests.ports import free_ports
from tests.waiting import PATIENCE_S, join, repeat_until

TOPIC = "chaos"
SETTINGS = {
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "2000",
    "zookeeper.session.timeout.ms": "4000",
    "log.segment.bytes": "200000",
}
_QUIET_S = (0.5, 2.5)
_HELD_S = (0.5, 5.0)
_ONE_AT_A_TIME_SHARE = 0.7
"""The other faults may meet a cluster that has not got over the one before."""
FAULTS = ("kill", "kill leader", "hold", "stop", "kill two")
FAULTS_OF_RUN = 60


@dataclass
class Figures:
    faults: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FAULTS, 0))
    acknowledged: int = 0
    unknown: int = 0
    longest_gap_s: float = 0.0
    batches: int = 0

    def __str__(self) -> str:
        met = ", ".join(f"{name} {count}" for name, count in self.faults.items())
        return (
            f"{self.acknowledged} records acknowledged, {self.unknown} of unknown fate, longest time without an "
            f"acknowledgement {self.longest_gap_s:.1f} s; faults: {met}; {self.batches} batches alike on all brokers"
        )


class Cluster:
    """`ottla start --brokers 3`, as a user runs it."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.servers = ",".join(f"127.0.0.1:{port + place}" for place in range(len(IDS)))
        command = [sys.executable, "-m", "ottla", "start", "--brokers", str(len(IDS)), "--port", str(port)]
        for name, value in SETTINGS.items():
            command += ["--override", f"{name}={value}"]
        directory.parent.mkdir(parents=True, exist_ok=True)
        self._output = (directory.parent / "cluster.out").open("w+")
        self.process = subprocess.Popen(
            [*command, "--data", str(directory)], stdout=self._output, stderr=subprocess.STDOUT, text=True
        )
        repeat_until(lambda: "bootstrap servers" in self.said() or self.process.poll() is not None, _short_sleep)
        assert self.process.poll() is None, self.said()

    def said(self) -> str:
        return Path(self._output.name).read_text()

    def signal(self, broker_id: int, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, FileNotFoundError, ValueError):
            os.kill(int((self.directory / f"broker-{broker_id}" / "pid").read_text()), number)

    def stop(self) -> None:
        for broker_id in IDS:
            self.signal(broker_id, signal.SIGCONT)
        self.process.send_signal(signal.SIGINT)
        self.process.wait(PATIENCE_S)
        self._output.close()


def run(directory: Path, *, port: int, seed: int, faults: int) -> Figures:
    """Raises AssertionError if anything was lost, doubled, reordered, or differs between copies."""
    rng = random.Random(seed)
    figures = Figures()
    cluster = Cluster(directory, port)
    try:
        _create_topic(cluster.servers)
        writers = [
            Writer(f"w{number}", number % PARTITIONS, cluster.servers, TOPIC) for number in range(PARTITIONS * 2)
        ]
        for writer in writers:
            writer.thread.start()
        for _ in range(faults):
            time.sleep(rng.uniform(*_QUIET_S))
            if rng.random() < _ONE_AT_A_TIME_SHARE:
                _wait_until_well(cluster)
            _make_trouble(cluster, rng, figures)
        time.sleep(_QUIET_S[1])
        for writer in writers:
            writer.stop()
        join(*(writer.thread for writer in writers))
        _wait_until_well(cluster)
        history = [operation for writer in writers for operation in writer.operations]
        history += _read_everything(cluster.servers)
    finally:
        cluster.stop()
    _judge(cluster, writers, history, figures)
    return figures


def _wait_until_well(cluster: Cluster) -> None:
    repeat_until(lambda: _isr_sizes(cluster.servers) == {len(IDS)}, _short_sleep)


def _short_sleep() -> None:
    time.sleep(0.1)


def _create_topic(servers: str) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": servers})
    new = confluent_kafka.admin.NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=len(IDS))
    admin.create_topics([new])[TOPIC].result(PATIENCE_S)


def _metadata(servers: str) -> confluent_kafka.admin.TopicMetadata | None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": servers, "log_level": 0})
    try:
        return admin.list_topics(TOPIC, timeout=10).topics[TOPIC]
    except confluent_kafka.KafkaException:
        return None


def _isr_sizes(servers: str) -> set[int]:
    topic = _metadata(servers)
    return set() if topic is None else {len(partition.isrs) for partition in topic.partitions.values()}


def _make_trouble(cluster: Cluster, rng: random.Random, figures: Figures) -> None:
    fault = rng.choice(FAULTS)
    figures.faults[fault] += 1
    victim = rng.choice(IDS)
    match fault:
        case "kill":
            cluster.signal(victim, signal.SIGKILL)
        case "kill leader":
            topic = _metadata(cluster.servers)
            leaders = [] if topic is None else [p.leader for p in topic.partitions.values() if p.leader in IDS]
            cluster.signal(rng.choice(leaders or [victim]), signal.SIGKILL)
        case "hold":
            cluster.signal(victim, signal.SIGSTOP)
            time.sleep(rng.uniform(*_HELD_S))
            cluster.signal(victim, signal.SIGCONT)
        case "stop":
            cluster.signal(victim, signal.SIGTERM)
        case "kill two":
            for broker_id in rng.sample(IDS, 2):
                cluster.signal(broker_id, signal.SIGKILL)


def _read_everything(servers: str) -> list[Operation]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "judge", "auto.offset.reset": "earliest", "log_level": 0}
    )
    try:
        ends = {
            index: consumer.get_watermark_offsets(confluent_kafka.TopicPartition(TOPIC, index), timeout=PATIENCE_S)[1]
            for index in range(PARTITIONS)
        }
        found: dict[int, list[tuple[int, str]]] = {index: [] for index in range(PARTITIONS)}
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
        while any(end and (not found[index] or found[index][-1][0] < end - 1) for index, end in ends.items()):
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"the end {ends} was not reached"
            assert message.error() is None, message.error()
            found[message.partition()].append((message.offset(), message.value().decode()))
    finally:
        consumer.close()
    polls = [Poll(f"{TOPIC}-{index}", tuple(records)) for index, records in found.items()]
    return [Operation("judge", Outcome.OK, polls, new_assignment=True, is_final=True)]


def _judge(cluster: Cluster, writers: list[Writer], history: list[Operation], figures: Figures) -> None:
    figures.acknowledged = sum(operation.outcome is Outcome.OK for operation in history) - 1
    figures.unknown = sum(operation.outcome is Outcome.INFO for operation in history)
    times_s = sorted(at_s for writer in writers for at_s in writer.acknowledged_at_s)
    figures.longest_gap_s = max((b - a for a, b in pairwise(times_s)), default=0.0)
    anomalies = check(history)
    assert not anomalies, "\n".join(f"{one.rule}: {one.text}" for one in anomalies[:20])
    for index in range(PARTITIONS):
        copies = {
            broker_id: log_bytes(cluster.directory / f"broker-{broker_id}" / f"{TOPIC}-{index}") for broker_id in IDS
        }
        assert copies[1] == copies[2] == copies[3], f"the copies of {TOPIC}-{index} differ"
        figures.batches += len(parse_batches(copies[1], f"{TOPIC}-{index}"))
    logs = "".join((cluster.directory / f"broker-{broker_id}.log").read_text() for broker_id in IDS)
    assert "Traceback" not in logs, logs[max(0, logs.index("Traceback") - 500) :][:3000]


@row("F21", "a seeded mix of kills, holds and stops of `ottla start --brokers 3`, under load")
def random_mix(scene: Scene) -> None:
    figures = run(scene.directory / "cluster", port=free_ports(3), seed=scene.seed, faults=FAULTS_OF_RUN)
    scene.figures = TableFigures(figures.acknowledged, figures.unknown, figures.longest_gap_s, figures.batches)
    scene.note = ", ".join(f"{name} {count}" for name, count in figures.faults.items())
