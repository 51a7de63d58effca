"""Large topics: do retention and compaction keep up with a producer at half its top speed, what do they cost it, and
how long does a start take after kill -9? `python -m bench.compaction.under_load --gb 10`."""

from __future__ import annotations

import argparse
import itertools
import socket
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic
from rich.console import Console

from bench import peers, report
from bench.compaction.dirty_log import random_rows
from bench.frames import create_topic, receive_frame
from bench.python_load import dial, produce_frame
from bench.row import Row
from ottla.records.columns.encode import encode_columns

TABLE, EVENTS, KEPT = "table", "events", "kept"
_KEYS = 300_000
_SEGMENT_BYTES = 100_000_000
_RETAINED_BYTES = 500_000_000
_TOP_SPEED_S = 5.0
_SETTLED_S_MAX = 120.0
_RATIO = "min.cleanable.dirty.ratio"
_SETTINGS = {"log.retention.check.interval.ms": "1000", "log.cleaner.backoff.ms": "500", "num.partitions": "1"}


class Producer:
    """One connection, one request of 64 KB at a time, to the table and the events by turns."""

    def __init__(self, port: int) -> None:
        self._socket = dial(port)
        self._frames = _frames([TABLE, EVENTS])
        self._error_at = {topic: 4 + 4 + 2 + len(topic) + 4 + 4 for topic in (TABLE, EVENTS)}

    def run(self, total_bytes: float, bytes_per_s: float) -> tuple[float, list[float]]:
        """How fast it got, and how long each request took; as fast as it can with a limit of infinity."""
        done = 0
        took_ms: list[float] = []
        begun_s = time.perf_counter()
        while done < total_bytes:
            topic, frame = next(self._frames)
            wait_s = begun_s + done / bytes_per_s - time.perf_counter()
            if wait_s > 0:
                time.sleep(wait_s)
            sent_s = time.perf_counter()
            _ask(self._socket, frame, self._error_at[topic])
            took_ms.append((time.perf_counter() - sent_s) * 1000)
            done += len(frame)
        return done / (time.perf_counter() - begun_s), took_ms

    def run_for(self, seconds: float) -> float:
        """The top speed."""
        done, begun_s = 0.0, time.perf_counter()
        while time.perf_counter() < begun_s + seconds:
            self.run(10_000_000, float("inf"))
            done += 10_000_000
        return done / (time.perf_counter() - begun_s)


def _frames(topics: list[str]) -> Iterator[tuple[str, bytes]]:
    """Enough of them that most keys come again and again."""
    rows = random_rows(np.random.default_rng(2), 2 * _KEYS, _KEYS, 0)
    batches = [bytes(batch.make()) for batch in encode_columns(rows, max_batch_size=65_536)]
    frames = [(topic, produce_frame(topic, 0, batch)) for batch in batches for topic in topics]
    return itertools.cycle(frames)


def _ask(sock: socket.socket, frame: bytes, error_at: int) -> None:
    sock.sendall(frame)
    (error,) = struct.unpack_from(">h", receive_frame(sock), error_at)
    if error:
        raise RuntimeError(f"a request was answered with error {error}")


class Sizes:
    """Watches how large directories get."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self.largest = {TABLE: 0.0, EVENTS: 0.0}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sizes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(0.2):
            for topic in self.largest:
                self.largest[topic] = max(self.largest[topic], size_of(self._data, topic))


def size_of(data: Path, topic: str) -> float:
    total = 0
    for path in (data / f"{topic}-0").glob("*.log"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return float(total)


def _admin(port: int) -> AdminClient:
    settings: dict[str, Any] = {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}
    return AdminClient(settings)


def _create(port: int) -> None:
    segments = {"segment.bytes": str(_SEGMENT_BYTES), "retention.ms": "-1"}
    topics = [
        NewTopic(TABLE, 1, 1, config={**segments, "cleanup.policy": "compact", _RATIO: "1.0"}),
        NewTopic(EVENTS, 1, 1, config={**segments}),
        NewTopic(KEPT, 1, 1, config={"retention.ms": "-1"}),
    ]
    admin = _admin(port)
    for created in admin.create_topics(topics).values():
        created.result(30)


def _change(port: int, topic: str, name: str, value: str) -> None:
    change = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    admin = _admin(port)
    admin.incremental_alter_configs([resource])[resource].result(30)


def under_load(place: Path, total_bytes: float, console: Console) -> Iterator[Row]:
    data = place / "data"
    with ExitStack() as stack:
        broker = stack.enter_context(peers.broker(data, settings=_SETTINGS))
        _create(broker.port)
        producer = Producer(broker.port)
        top = producer.run_for(_TOP_SPEED_S)
        console.print(f"[dim]top speed {top / 1e6:.0f} MB/s[/dim]")
        _, without_ms = producer.run(total_bytes / 5, top / 2)
        _change(broker.port, TABLE, _RATIO, "0.5")
        _change(broker.port, EVENTS, "retention.bytes", str(_RETAINED_BYTES))
        settled_s = _wait_until_small(data)
        console.print(f"[dim]what had piled up was gone after {settled_s:.1f} s[/dim]")
        with Sizes(data) as sizes:
            speed, with_ms = producer.run(total_bytes * 4 / 5, top / 2)
        settled_s = _wait_until_small(data)
        notes = f"top speed {top / 1e6:.0f} MB/s, clean {settled_s:.1f} s after the last record"
        yield Row(
            "cleanup-speed", "producer, while logs are cleaned, of half its top speed", "MB/s", speed / 1e6,
            against="as asked for", other=top / 2e6, ratio=speed / (top / 2), floor=0.95, goal=0.99, notes=notes,
        )  # fmt: skip
        p99 = [statistics.quantiles(took, n=100)[98] for took in (with_ms, without_ms)]
        yield Row(
            "cleanup-p99", "produce of 64 KB, p99 while logs are cleaned", "ms", p99[0], against="without",
            other=p99[1], ratio=p99[0] / p99[1], floor=2.0, goal=1.2, lower_is_better=True,
            notes=f"p50 {statistics.median(with_ms):.2f} and {statistics.median(without_ms):.2f} ms",
        )  # fmt: skip
        for topic, bound in ((TABLE, _most_of_table()), (EVENTS, _RETAINED_BYTES + 2 * _SEGMENT_BYTES)):
            yield Row(
                f"cleanup-size-{topic}", f"largest size of the {topic}", "MB", sizes.largest[topic] / 1e6,
                against="what the rules allow", other=bound / 1e6, ratio=sizes.largest[topic] / bound, floor=2.0,
                goal=1.0, lower_is_better=True,
            )  # fmt: skip


def _most_of_table() -> float:
    """Clean, as much again that is dirty, what is active, and what has come since a pass began."""
    return 2.0 * _KEYS * 126 + 2 * _SEGMENT_BYTES


def _wait_until_small(data: Path) -> float:
    begun_s = time.monotonic()
    while size_of(data, TABLE) > _most_of_table() or size_of(data, EVENTS) > _RETAINED_BYTES + _SEGMENT_BYTES:
        if time.monotonic() > begun_s + _SETTLED_S_MAX:
            break
        time.sleep(0.1)
    return time.monotonic() - begun_s


def recovery(place: Path, total_bytes: float) -> Row:
    """Segments are flushed when they are closed; what is not is checked at the next start."""
    data = place / "recovery"
    rows = random_rows(np.random.default_rng(3), 8_000, _KEYS, 0)
    (batch, *_) = [bytes(each.make()) for each in encode_columns(rows)]
    frame = produce_frame(KEPT, 0, batch)
    with peers.broker(data, settings=_SETTINGS) as broker:
        _create(broker.port)
        sock, done = dial(broker.port), 0
        while done < total_bytes:
            _ask(sock, frame, 4 + 4 + 2 + len(KEPT) + 4 + 4)
            done += len(batch)
        # The flush of the last closed segment, and the checkpoint that says so.
        time.sleep(70)
        broker.process.kill()
        broker.process.wait()
    with peers.broker(data, settings=_SETTINGS) as broker:
        begun_s = time.perf_counter()
        create_topic(broker.port, KEPT, timeout_s=120)
        took_s = broker.started_in_ms / 1000 + time.perf_counter() - begun_s
    return Row(
        "cleanup-recovery", f"start after kill -9, {done / 1e9:.0f} GB of clean segments, for 10 GB", "s",
        took_s * 1e10 / done, floor=10, goal=3, lower_is_better=True,
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.compaction.under_load", description=__doc__)
    parser.add_argument("--gb", type=float, default=10, help="how much is written, twice")
    parser.add_argument("--skip-recovery", action="store_true")
    options = parser.parse_args()
    console = Console(width=160)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        try:
            rows.extend(under_load(Path(directory), options.gb * 1e9, console))
            if not options.skip_recovery:
                rows.append(recovery(Path(directory), options.gb * 1e9))
        finally:
            report.show(console, rows)
    return 1 if any(row.verdict == "MISS" for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
