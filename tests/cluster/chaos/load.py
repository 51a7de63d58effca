"""What runs while brokers suffer: clients of librdkafka, and Kafka's Java producer; and how all of it is judged."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType

import confluent_kafka

from tests.checker import Operation, Outcome, Send, check
from tests.cluster.chaos.cluster import IDS, Cluster
from tests.cluster.chaos.java_writer import JavaWriter
from tests.crash.log_files import parse_batches
from tests.crash.transaction_load import CommittedReader, TransactionLoad
from tests.interop.kafka_tools import KafkaTools
from tests.interop.transactions.raw_producer import fetch
from tests.raw_client import ConnectionClosedError
from tests.waiting import PATIENCE_S, join, repeat_until

PLAIN, IN_TRANSACTIONS = "plain", "in-transactions"
PARTITIONS = 3


@dataclass
class Figures:
    records: int = 0
    """Acknowledged, or committed."""
    records_of_java: int = 0
    """That is how many of them its producer has sent."""
    unknown: int = 0
    longest_gap_s: float = 0.0
    """In which no write to some partition was acknowledged."""
    batches: int = 0
    """That are the same on all brokers."""


class Writer:
    """Sends numbered values to one partition, a few at a time, until it is told to stop."""

    def __init__(self, name: str, partition: int, servers: str, topic: str = PLAIN, pause_s: float = 0.0) -> None:
        self.operations: list[Operation] = []
        self.acknowledged_at_s: list[float] = []
        self.waited_s: list[float] = []
        """For each of these acknowledgements."""
        self.partition = partition
        self._name = name
        self._topic = topic
        self._servers = servers
        self._pause_s = pause_s
        self._is_over = threading.Event()
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def stop(self) -> None:
        self._is_over.set()

    def _run(self) -> None:
        life, number = 0, 0
        while not self._is_over.is_set():
            life += 1
            producer = self._new_producer()
            while not self._is_over.is_set():
                values = [f"{self._name}.{number + place}" for place in range(20)]
                number += len(values)
                if not self._send(producer, f"{self._name}/{life}", values):
                    break
                self._is_over.wait(self._pause_s)
            producer.flush(PATIENCE_S)

    def _new_producer(self) -> confluent_kafka.Producer:
        return confluent_kafka.Producer(
            {
                "bootstrap.servers": self._servers,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "delivery.timeout.ms": 60_000,
                "log_level": 0,
            }
        )

    def _send(self, producer: confluent_kafka.Producer, process: str, values: list[str]) -> bool:
        """False if the producer is of no more use."""
        told: dict[str, int | None] = {}
        began_s = time.monotonic()

        def on_delivery(error: object, message: confluent_kafka.Message) -> None:
            told[message.value().decode()] = None if error is not None else message.offset()

        for value in values:
            producer.produce(self._topic, value.encode(), partition=self.partition, on_delivery=on_delivery)
        producer.flush(PATIENCE_S)
        for value in values:
            offset = told.get(value)
            outcome = Outcome.INFO if offset is None else Outcome.OK
            key = f"{self._topic}-{self.partition}"
            self.operations.append(Operation(process, outcome, [Send(key, value, offset)]))
        is_well = len(told) == len(values) and None not in told.values()
        if is_well:
            now_s = time.monotonic()
            self.waited_s.append(now_s - began_s)
            self.acknowledged_at_s.append(now_s)
        return is_well


class Load:
    """Writers and readers of a cluster. Leaving the block ends them, ends the cluster, and judges both."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        transactions: bool = False,
        seed: int = 0,
        is_damaged: bool = False,
        pause_s: float = 0.0,
        java: KafkaTools | None = None,
    ) -> None:
        """`is_damaged`: records were destroyed on purpose, so some may be missing; none may be wrong. `pause_s`: how
        long a writer rests between two rounds."""
        self.cluster = cluster
        self.figures = Figures()
        self.writers = [
            Writer(f"w{n}", n % PARTITIONS, cluster.servers, pause_s=pause_s) for n in range(PARTITIONS * 2)
        ]
        self.topics = [PLAIN]
        self.transactions: list[TransactionLoad] = []
        if transactions:
            self.topics.append(IN_TRANSACTIONS)
            self.transactions = [
                TransactionLoad(
                    f"t{n}",
                    cluster.servers,
                    IN_TRANSACTIONS,
                    PARTITIONS,
                    4,
                    seed + n,
                    pause_s,
                    is_careful=cluster.has_brokers_of_kafka,
                )
                for n in range(2)
            ]
        self._is_damaged = is_damaged
        self._java_tools = java
        self._java: JavaWriter | None = None
        self._readers: list[CommittedReader] = []

    def __enter__(self) -> Load:
        for topic in self.topics:
            self.cluster.create(topic, PARTITIONS)
            self._readers.append(CommittedReader(f"along {topic}", self.cluster.servers, topic, PARTITIONS))
        for reader in self._readers:
            reader.start()
        if self._java_tools is not None:
            self._java = JavaWriter(self._java_tools, self.cluster.servers, PLAIN, self.cluster.directory)
        for writer in self.writers:
            writer.thread.start()
        for transaction in self.transactions:
            transaction.start()
        self.wait_for_more()
        return self

    def acknowledged(self, partition: int | None = None) -> int:
        """Rounds of writers so far."""
        return sum(len(w.acknowledged_at_s) for w in self.writers if partition in (None, w.partition))

    def wait_for_more(self, rounds: int = 5) -> None:
        """Until every writer has been acknowledged so many rounds more."""
        goals = {writer: len(writer.acknowledged_at_s) + rounds for writer in self.writers}
        repeat_until(lambda: all(len(w.acknowledged_at_s) >= goal for w, goal in goals.items()), _short_sleep)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._finish()
            return
        for writer in self.writers:
            writer.stop()
        for transaction in self.transactions:
            transaction.ask_to_finish()
        if self._java is not None:
            self._java.kill()

    def end_writing(self) -> None:
        """Nothing is sent any more, and of what was sent is known what became of it."""
        for writer in self.writers:
            writer.stop()
        for transaction in self.transactions:
            transaction.ask_to_finish()
        if self._java is not None:
            self._java.finish()
            assert self._java.failures == [], self._java.failures[:3]
        join(*(writer.thread for writer in self.writers))
        for transaction in self.transactions:
            transaction.finish()
            assert transaction.failures == [], transaction.failures[:3]

    def _finish(self) -> None:
        self.end_writing()
        self.cluster.wait_until_well(*self.topics)
        written = [operation for writer in self.writers for operation in writer.operations]
        if self._java is not None:
            self.figures.records_of_java = len(self._java.operations)
            written += self._java.operations
        written += [operation for transaction in self.transactions for operation in transaction.history]
        read: list[Operation] = []
        for topic in self.topics:
            wait_until_all_have_ended(self.cluster, topic, PARTITIONS)
            final = CommittedReader(f"final {topic}", self.cluster.servers, topic, PARTITIONS)
            final.read_to_the_end()
            read += final.history
        for reader in self._readers:
            reader.finish()
            read += reader.history
        self.cluster.end()
        self._judge(written, read)

    def _judge(self, written: list[Operation], read: list[Operation]) -> None:
        figures = self.figures
        figures.records = sum(len(operation.steps) for operation in written if operation.outcome is Outcome.OK)
        figures.unknown = sum(len(operation.steps) for operation in written if operation.outcome is Outcome.INFO)
        figures.longest_gap_s = max(map(self._gap_s, range(PARTITIONS)))
        anomalies = check(written + read)
        if self._is_damaged:
            anomalies = [one for one in anomalies if one.rule not in ("lost-write", "unseen", "final-missing")]
        assert not anomalies, "; ".join(f"{one.rule}: {one.text}" for one in anomalies[:5])
        for topic in self.topics:
            for index in range(PARTITIONS):
                figures.batches += same_batches(self.cluster, topic, index)
        for broker in self.cluster.brokers.values():
            assert broker.tracebacks() == [], "\n".join(broker.log_lines)

    def _gap_s(self, partition: int) -> float:
        times_s = sorted(at_s for w in self.writers if w.partition == partition for at_s in w.acknowledged_at_s)
        return max((b - a for a, b in pairwise(times_s)), default=0.0)


def same_batches(cluster: Cluster, topic: str, index: int) -> int:
    """How many there are; raises AssertionError if the copies differ. Nobody may write any more."""
    copies = {broker_id: log_bytes(cluster.data_of(broker_id) / f"{topic}-{index}") for broker_id in IDS}
    sizes = {broker_id: len(data) for broker_id, data in copies.items()}
    assert len(set(copies.values())) == 1, f"the copies of {topic}-{index} differ, their sizes are {sizes}"
    return len(parse_batches(copies[IDS[0]], f"{topic}-{index}"))


def log_bytes(directory: Path) -> bytes:
    """All of a copy; brokers that follow may cut their segments elsewhere."""
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def wait_until_all_have_ended(cluster: Cluster, topic: str, partitions: int) -> None:
    """A commit is confirmed before its markers are written; readers are shown the records after that."""
    for number in range(partitions):

        def has_ended(partition: int = number) -> bool:
            try:
                with cluster.raw_client(cluster.leader(topic, partition)) as client:
                    found = fetch(client, topic, partition=partition)
            except (OSError, ConnectionClosedError):
                return False
            return found.error_code == 0 and found.last_stable_offset == found.high_watermark

        repeat_until(has_ended, _short_sleep)


def _short_sleep() -> None:
    time.sleep(0.05)
