"""Spark on a topic beside Spark on other things, all in one run: Parquet files, its own Kafka source, its clock.

Not for quick runs: starting Spark alone takes as long as those.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench import cases
from bench.peers import Peer
from bench.row import Row

_READ = "spark-read"
_WRITE = "spark-write"
_MICRO_BATCH = "spark-micro-batch"
_WRITES = {"ottla": "Spark: batch write, 100 B", "ottla exactly once": "Spark: batch write, 100 B, exactly once"}


@dataclass
class SparkRuns:
    broker: Peer
    place: Path
    rounds: int
    say: Callable[[str], None]

    def rows(self, wanted: Callable[[str], bool]) -> Iterator[Row]:
        if not any(wanted(name) for name in (_READ, _WRITE, _MICRO_BATCH)):
            return
        if shutil.which("java") is None:
            self.say("Java was not found, so Spark is not measured")
            return
        self.say("Spark: batch reads and writes, and micro-batches")
        measured = self._measure()
        reads, micro_batches = measured["reads"], measured["micro_batches_ms"]
        if wanted(_READ):
            for other, target in cases.SPARK_READ_TARGETS.items():
                if other in reads:
                    row = ratio_row(_READ, "Spark: batch read, 100 B", "rows/s", reads, other)
                    row.floor, row.goal = target.floor, target.goal
                    yield row
        if wanted(_WRITE):
            for side, title in _WRITES.items():
                row = ratio_row(_WRITE, title, "rows/s", measured["writes"], "parquet", ours=side)
                row.floor, row.goal = cases.SPARK_WRITE_TARGET.floor, cases.SPARK_WRITE_TARGET.goal
                yield row
        if wanted(_MICRO_BATCH):
            row = ratio_row(_MICRO_BATCH, "Spark: a micro-batch of a few rows", "ms", micro_batches, "rate")
            row.lower_is_better = True
            row.floor, row.goal = cases.SPARK_MICRO_BATCH_TARGET.floor, cases.SPARK_MICRO_BATCH_TARGET.goal
            yield row

    def _measure(self) -> dict[str, dict[str, list[float]]]:
        servers = f"127.0.0.1:{self.broker.port}"
        command = [sys.executable, "-m", "bench.spark_load", servers, self.place, cases.SPARK_ROWS, self.rounds]
        done = subprocess.run(
            [*map(str, command), *kafka_jars(self.say)], capture_output=True, text=True, timeout=cases.SPARK_TIMEOUT_S
        )
        if done.returncode:
            raise RuntimeError(f"measuring Spark failed: {done.stderr.strip()[-1000:]}")
        measured: dict[str, dict[str, list[float]]] = json.loads(done.stdout.splitlines()[-1])
        return measured


def kafka_jars(say: Callable[[str], None]) -> list[str]:
    """Those of Spark's own Kafka source; none, and a word about it, where they cannot be had."""
    from tests.spark.kafka_source import NotFetchedError, fetch_kafka_source

    try:
        return [str(jar) for jar in fetch_kafka_source()]
    except NotFetchedError as e:
        say(f"without Spark's own Kafka source: {e}")
        return []


def ratio_row(
    name: str, title: str, unit: str, sides: dict[str, list[float]], other: str, *, ours: str = "ottla"
) -> Row:
    value, theirs = statistics.median(sides[ours]), statistics.median(sides[other])
    rounds = {side: sides[side] for side in (ours, other)}
    return Row(name, title, unit, value, against=other, other=theirs, ratio=value / theirs, rounds=rounds)
