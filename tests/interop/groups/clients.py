"""Members of groups through real clients: each function here is one member's life, from joining to leaving.

A member reports what it is assigned and what it reads, commits after every batch, and leaves when it is told to stop.
A commit that is refused is made again: who keeps a partition through a rebalance does not read its records twice.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import confluent_kafka
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AiokafkaRange
from aiokafka.errors import KafkaError as AiokafkaError
from kafka import ConsumerRebalanceListener as KafkaPythonListener
from kafka import KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError as KafkaPythonError

from tests.interop.groups.ledger import Partition, Sink
from tests.interop.peers.confluent import LOG

POLL_MS = 50
KAFKA_PYTHON_POLL_MS = 300
KAFKA_PYTHON_LONG_POLL_MS = 3_000
"""Where kafka-python rebalances because topics have changed, a poll must not end before the rebalance does: when the
next poll finds the topics as they were at the last join, it forgets the join under way and never beats again."""
HEARTBEAT_MS = 200


@dataclass(frozen=True, kw_only=True)
class Seat:
    """Who takes part in what."""

    client: str
    name: str
    bootstrap: str
    group: str
    topics: tuple[str, ...] = ()
    pattern: str = ""
    instance_id: str = ""
    session_timeout_ms: int = 10_000
    max_poll_interval_ms: int = 60_000
    metadata_max_age_ms: int = 300_000
    """Clients see new topics and partitions by asking for metadata now and then."""


def _partitions(given: Iterable[Any]) -> list[Partition]:
    return [(item.topic, item.partition) for item in given]


# confluent-kafka


def confluent_settings(seat: Seat) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": seat.bootstrap,
        "client.id": seat.name,
        "group.id": seat.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "max.poll.interval.ms": seat.max_poll_interval_ms,
        "topic.metadata.refresh.interval.ms": seat.metadata_max_age_ms,
        "fetch.wait.max.ms": POLL_MS,
    }
    if seat.instance_id:
        settings["group.instance.id"] = seat.instance_id
    if seat.client == "confluent-consumer":
        return settings | {"group.protocol": "consumer"}
    return settings | {
        "session.timeout.ms": seat.session_timeout_ms,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "partition.assignment.strategy": "cooperative-sticky" if "cooperative" in seat.client else "range",
    }


def run_confluent(seat: Seat, sink: Sink, stop: threading.Event) -> None:
    consumer = confluent_kafka.Consumer(confluent_settings(seat), logger=LOG)
    consumer.subscribe(
        [f"^{seat.pattern}"] if seat.pattern else list(seat.topics),
        on_assign=lambda _, given: sink.assigned(_partitions(given)),
        on_revoke=lambda _, given: sink.revoked(_partitions(given)),
        on_lost=lambda _, given: sink.revoked(_partitions(given)),
    )
    is_to_commit = False
    try:
        while not stop.is_set():
            batch = consumer.consume(500, timeout=POLL_MS / 1000)
            for message in batch:
                error = message.error()
                if error is None:
                    sink.consumed((message.topic(), message.partition()), message.offset(), message.value())
                elif error.fatal():
                    raise confluent_kafka.KafkaException(error)
                else:
                    sink.failed(str(error))
            is_to_commit |= any(message.error() is None for message in batch)
            if is_to_commit:
                try:
                    consumer.commit(asynchronous=False)
                    is_to_commit = False
                except confluent_kafka.KafkaException as e:
                    is_to_commit = e.args[0].code() != confluent_kafka.KafkaError._NO_OFFSET
                    sink.failed(str(e))
    finally:
        consumer.close()


# kafka-python


class _KafkaPythonReports(KafkaPythonListener):  # type: ignore[misc]
    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._sink.revoked(_partitions(revoked))

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._sink.assigned(_partitions(assigned))

    def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        self._sink.revoked(_partitions(lost))


def run_kafka_python(seat: Seat, sink: Sink, stop: threading.Event) -> None:
    assignor = CooperativeStickyAssignor if "cooperative" in seat.client else RangePartitionAssignor
    consumer = KafkaConsumer(
        bootstrap_servers=seat.bootstrap,
        client_id=seat.name,
        group_id=seat.group,
        group_instance_id=seat.instance_id or None,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=seat.session_timeout_ms,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_interval_ms=seat.max_poll_interval_ms,
        metadata_max_age_ms=seat.metadata_max_age_ms,
        partition_assignment_strategy=[assignor],
        fetch_max_wait_ms=POLL_MS,
    )
    consumer.subscribe(list(seat.topics), seat.pattern or None, _KafkaPythonReports(sink))
    poll_ms = KAFKA_PYTHON_LONG_POLL_MS if seat.pattern else KAFKA_PYTHON_POLL_MS
    is_to_commit = False
    try:
        while not stop.is_set():
            batches = consumer.poll(timeout_ms=poll_ms)
            for records in batches.values():
                for record in records:
                    sink.consumed((record.topic, record.partition), record.offset, record.value)
            is_to_commit |= bool(batches)
            if is_to_commit:
                try:
                    consumer.commit()
                    is_to_commit = False
                except KafkaPythonError as e:
                    sink.failed(repr(e))
    finally:
        consumer.close()


# aiokafka


class _AiokafkaReports(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._sink.revoked(_partitions(revoked))

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._sink.assigned(_partitions(assigned))


def run_aiokafka(seat: Seat, sink: Sink, stop: threading.Event) -> None:
    asyncio.run(_run_aiokafka(seat, sink, stop))


async def _run_aiokafka(seat: Seat, sink: Sink, stop: threading.Event) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=seat.bootstrap,
        client_id=seat.name,
        group_id=seat.group,
        group_instance_id=seat.instance_id or None,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=seat.session_timeout_ms,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_interval_ms=seat.max_poll_interval_ms,
        metadata_max_age_ms=seat.metadata_max_age_ms,
        partition_assignment_strategy=(AiokafkaRange,),
        fetch_max_wait_ms=POLL_MS,
    )
    consumer.subscribe(list(seat.topics), seat.pattern or None, _AiokafkaReports(sink))
    await consumer.start()
    is_to_commit = False
    try:
        while not stop.is_set():
            batches = await consumer.getmany(timeout_ms=POLL_MS)
            for records in batches.values():
                for record in records:
                    sink.consumed((record.topic, record.partition), record.offset, record.value)
            is_to_commit |= bool(batches)
            if is_to_commit:
                try:
                    await consumer.commit()
                    is_to_commit = False
                except AiokafkaError as e:
                    sink.failed(repr(e))
    finally:
        await consumer.stop()


CLIENTS: dict[str, Callable[[Seat, Sink, threading.Event], None]] = {
    "confluent-range": run_confluent,
    "confluent-cooperative": run_confluent,
    "confluent-consumer": run_confluent,
    "kafka-python-range": run_kafka_python,
    "kafka-python-cooperative": run_kafka_python,
    "aiokafka-range": run_aiokafka,
}
"""Each client with each kind of rebalance it knows; `consumer` is KIP-848's protocol."""

KIP_848 = "confluent-consumer"


def run(seat: Seat, sink: Sink, stop: threading.Event) -> None:
    CLIENTS[seat.client](seat, sink, stop)
