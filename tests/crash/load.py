"""Clients that write without a pause while brokers die under them, and remember what was acknowledged.

Every value names its writer and its number and continues with bytes that follow from both, so that a value found in a
log can be judged alone.
"""

from __future__ import annotations

import random
import threading
import time
import zlib
from collections.abc import Callable
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ottla.records.builder import NewRecord, build_batch
from ottla.records.compression import Codec
from tests.crash import wire_view
from tests.raw_client import ConnectionClosedError, RawClient

_SIZES = (0, 10, 100, 100, 300, 1000, 4000)
_LARGE = 15_000
_PAUSE_S = 0.01
_FLUSH_TIMEOUT_S = 60


def value_of(writer: str, number: int) -> bytes:
    seed = zlib.crc32(f"{writer} {number}".encode())
    rng = random.Random(seed)
    size = _LARGE if seed % 200 == 0 else rng.choice(_SIZES)
    filler = rng.randbytes(16) * (size // 16) if seed % 2 else rng.randbytes(size)
    return f"{writer} {number} ".encode() + filler


def key_of(writer: str, number: int) -> bytes:
    return f"{writer}:{number}".encode()


def writer_and_number(value: bytes) -> tuple[str, int]:
    writer, number, _ = value.split(b" ", 2)
    return writer.decode(), int(number)


class Load(Protocol):
    """A writer of one topic. `acknowledged` maps (partition, number) to the offset, or None if it was not told."""

    writer: str
    topic: str
    is_idempotent: bool
    acknowledged: dict[tuple[int, int], int | None]
    failures: list[str]

    def start(self) -> None: ...

    def finish(self) -> None:
        """Stops writing; what is under way is completed against the broker that runs now."""


class IdempotentLoad:
    """librdkafka's idempotent producer: one client for the whole run, which retries over every restart."""

    is_idempotent = True

    def __init__(self, writer: str, bootstrap: str, topic: str, partitions: int, codec: str) -> None:
        self.writer = writer
        self.topic = topic
        self.acknowledged: dict[tuple[int, int], int | None] = {}
        self.failures: list[str] = []
        self.sent = [0] * partitions
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "compression.type": codec,
                "linger.ms": 2,
                "batch.num.messages": 40,
                "batch.size": 30_000,
                "message.timeout.ms": 300_000,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                # A client that forgets its brokers looks for them once a second: never again, if none lives that long.
                "metadata.recovery.strategy": "none",
                "queue.buffering.max.messages": 2000,
                "log_level": 0,
                "error_cb": self._on_error,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=writer, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(_FLUSH_TIMEOUT_S)
        left = self._producer.flush(_FLUSH_TIMEOUT_S)
        if left:
            self.failures.append(f"{left} messages were still not delivered after {_FLUSH_TIMEOUT_S} s")

    def _run(self) -> None:
        rng = random.Random(self.writer)
        while not self._stop.is_set():
            for _ in range(rng.randrange(1, 12)):
                partition = rng.randrange(len(self.sent))
                number = self.sent[partition]
                try:
                    self._producer.produce(
                        self.topic,
                        value_of(self.writer, number),
                        key_of(self.writer, number),
                        partition=partition,
                        on_delivery=self._delivered(partition, number),
                    )
                except BufferError:
                    break
                except KafkaException as e:
                    self.failures.append(f"produce: {e}")
                    return
                self.sent[partition] = number + 1
            self._producer.poll(_PAUSE_S)
            time.sleep(_PAUSE_S)

    def _delivered(self, partition: int, number: int) -> Callable[[KafkaError | None, Message], None]:
        def report(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failures.append(f"{partition}/{number}: {error}")
                return
            offset = message.offset()
            self.acknowledged[partition, number] = offset if offset is not None and offset >= 0 else None

        return report

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.failures.append(f"fatal: {error}")


class PlainLoad:
    """A producer without retries and without an identity: after an error it never learns what became of a batch."""

    is_idempotent = False

    def __init__(self, writer: str, port: int, topic: str, partitions: int, acks: int) -> None:
        self.writer = writer
        self.topic = topic
        self.acknowledged: dict[tuple[int, int], int | None] = {}
        self.failures: list[str] = []
        self._port = port
        self._acks = acks
        self._next = [0] * partitions
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=writer, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(_FLUSH_TIMEOUT_S)

    def _run(self) -> None:
        rng = random.Random(self.writer)
        while not self._stop.is_set():
            try:
                with RawClient(self._port, timeout_s=10) as client:
                    while not self._stop.is_set():
                        self._send(client, rng)
                        time.sleep(_PAUSE_S)
            except (OSError, ConnectionClosedError):
                time.sleep(0.02)

    def _send(self, client: RawClient, rng: random.Random) -> None:
        chosen = rng.sample(range(len(self._next)), rng.randrange(1, len(self._next) + 1))
        numbers: dict[int, range] = {}
        batches: dict[int, bytes] = {}
        for partition in chosen:
            first = self._next[partition]
            numbers[partition] = range(first, first + rng.randrange(1, 11))
            self._next[partition] = numbers[partition].stop
            now_ms = time.time_ns() // 1_000_000
            records = [
                NewRecord(key_of(self.writer, n), value_of(self.writer, n), (), now_ms + rng.randrange(-50, 50))
                for n in numbers[partition]
            ]
            batches[partition] = build_batch(records, codec=rng.choice(list(Codec)))
        for partition, (code, base_offset) in wire_view.produce(client, self.topic, batches, self._acks).items():
            if code:
                self.failures.append(f"{partition}/{numbers[partition]}: error {code}")
                continue
            for delta, number in enumerate(numbers[partition]):
                self.acknowledged[partition, number] = base_offset + delta
