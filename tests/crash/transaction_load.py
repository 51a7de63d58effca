"""Clients that write transactions to many partitions while brokers die under them, and one that reads along.

Each keeps its own history for the checker. A transaction is "ok" once its commit was confirmed, "fail" once its abort
was, and "info" if the client gave up: then it may be there or not, but never in part.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.checker import Operation, Outcome, Poll, Send

PATIENCE_S = 60
QUICK_TO_RETURN = {
    # When its only broker goes, librdkafka forgets it (KIP-899) but not that it coordinates a group: offsets that are
    # sent to a transaction then wait for the forgotten one for ever.
    "metadata.recovery.strategy": "none",
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "log_level": 0,
}
_CALL_S = 5.0


class GaveUpError(Exception):
    """The client can do nothing more with this transaction; a new producer has to take over."""


def _ignore(error: KafkaError) -> None:
    """librdkafka reports lost connections here; losing them is what the run is about."""


def persist(call: Callable[[], None], deadline_s: float) -> None:
    """Repeats a call that the library says can be repeated; raises KafkaException for what needs an abort."""
    while True:
        try:
            return call()
        except KafkaException as e:
            error: KafkaError = e.args[0]
            if error.txn_requires_abort():
                raise
            if not error.retriable() or time.monotonic() > deadline_s:
                raise GaveUpError(str(error)) from e


class TransactionLoad:
    """One transactional producer, replaced by another with the same id whenever it cannot go on."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        topic: str,
        partitions: int,
        per_partition: int,
        seed: int,
        pause_s: float = 0.0,
        *,
        is_careful: bool = False,
    ) -> None:
        """`pause_s` is the rest between two transactions. Who `is_careful` does not go on with a producer that has
        aborted records of unknown fate: librdkafka may use their sequence numbers again, and Apache Kafka takes the new
        records for the old ones, confirms them and does not store them."""
        self.history: list[Operation] = []
        self.records = 0
        self.failures: list[str] = []
        self._name = name
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._per_partition = per_partition
        self._rng = random.Random(seed)
        self._pause_s = pause_s
        self._is_careful = is_careful
        self._lives = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask_to_finish(self) -> None:
        self._stop.set()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(2 * PATIENCE_S)
        if self._thread.is_alive():
            self.failures.append(f"{self._name} does not end")

    def _run(self) -> None:
        try:
            producer = self._new_producer()
            while not self._stop.is_set():
                try:
                    self._one_transaction(producer)
                    self._stop.wait(self._pause_s)
                except GaveUpError:
                    producer = self._new_producer()
        except Exception as e:
            self.failures.append(f"{self._name}: {e!r}")

    def _new_producer(self) -> Producer:
        self._lives += 1
        settings = {
            "bootstrap.servers": self._bootstrap,
            "transactional.id": self._name,
            "transaction.timeout.ms": 2 * PATIENCE_S * 1000,
            "message.timeout.ms": PATIENCE_S * 1000,
            "linger.ms": 0,
            "error_cb": _ignore,
        }
        producer = Producer(settings | QUICK_TO_RETURN)
        persist(lambda: producer.init_transactions(_CALL_S), time.monotonic() + PATIENCE_S)
        return producer

    def _one_transaction(self, producer: Producer) -> None:
        offsets: dict[tuple[str, str], int] = {}
        sent: list[tuple[str, str]] = []
        outcome = Outcome.INFO
        wants_commit = self._rng.random() < 0.8

        def delivered(error: KafkaError | None, message: object) -> None:
            if error is None:
                value, offset = message.value().decode(), message.offset()  # type: ignore[attr-defined]
                offsets[f"{self._topic}-{message.partition()}", value] = offset  # type: ignore[attr-defined]

        deadline_s = time.monotonic() + PATIENCE_S
        try:
            producer.begin_transaction()
            try:
                for number in range(self._partitions * self._per_partition):
                    partition = number % self._partitions
                    value = f"{self._name} {self.records}"
                    self.records += 1
                    sent.append((f"{self._topic}-{partition}", value))
                    producer.produce(self._topic, value, partition=partition, on_delivery=delivered)
                if wants_commit:
                    persist(lambda: producer.commit_transaction(_CALL_S), deadline_s)
                    outcome = Outcome.OK
                else:
                    producer.flush(_CALL_S)
            except KafkaException:
                wants_commit = False
            if not wants_commit:
                try:
                    persist(lambda: producer.abort_transaction(_CALL_S), deadline_s)
                except KafkaException as e:
                    raise GaveUpError(str(e)) from e
                outcome = Outcome.FAIL
                if self._is_careful and len(offsets) < len(sent):
                    raise GaveUpError("some records may have been stored")
        finally:
            sends = [Send(key, value, offsets.get((key, value))) for key, value in sent]
            self.history.append(Operation(f"{self._name}.{self._lives}", outcome, sends))


class CommittedReader:
    """Reads all partitions from the beginning, committed records only, and keeps on over every restart."""

    def __init__(self, name: str, bootstrap: str, topic: str, partitions: int) -> None:
        self.history: list[Operation] = []
        self._name = name
        self._topic = topic
        self._partitions = range(partitions)
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "not used",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,
            "enable.partition.eof": True,
            "topic.metadata.refresh.interval.ms": 1000,
            "error_cb": _ignore,
        }
        self._consumer = Consumer(settings | QUICK_TO_RETURN)
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        self._consumer.close()

    def read_to_the_end(self) -> None:
        """Instead of `start` and `finish`: one reading whose records count as the last ones."""
        unfinished = set(self._partitions)
        deadline_s = time.monotonic() + PATIENCE_S
        while unfinished:
            assert time.monotonic() < deadline_s, f"the ends of {sorted(unfinished)} were not reached"
            unfinished -= self._poll(is_final=True)
        self._consumer.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._poll()

    def _poll(self, *, is_final: bool = False) -> set[int]:
        """Notes what came; returns the partitions at whose end the reader is."""
        found: dict[str, list[tuple[int, str]]] = {}
        at_end: set[int] = set()
        for message in self._consumer.consume(5_000, timeout=0.1):
            error, partition, offset, value = message.error(), message.partition(), message.offset(), message.value()
            assert partition is not None
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    at_end.add(partition)
                elif not error.retriable() and error.code() != KafkaError._TRANSPORT:
                    raise KafkaException(error)
            else:
                assert offset is not None and value is not None
                found.setdefault(f"{self._topic}-{partition}", []).append((offset, value.decode()))
        if found:
            polls = [Poll(key, tuple(records)) for key, records in found.items()]
            self.history.append(Operation(self._name, Outcome.OK, polls, is_final=is_final))
        return at_end
