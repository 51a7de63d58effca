"""Spark's own Kafka source, as a judge of ours: its jars, fetched by name from Maven Central into .tools, once.

`python -m tests.spark.kafka_source` fetches them ahead of the tests.

Not every registry has every version. The source works with a Spark that is a little newer, so each jar may be one of a
few, the best one first.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

import pyspark

LIBS = Path(__file__).resolve().parents[2] / ".tools" / "spark-kafka-libs"
FETCH_TIMEOUT_S = 60

_SPARK = pyspark.__version__
_CANDIDATES = (
    [f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}" for version in (_SPARK, "4.2.0")],
    [f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{version}" for version in (_SPARK, "4.2.0", "4.0.0")],
    ["org.apache.kafka:kafka-clients:3.9.2", "org.apache.kafka:kafka-clients:3.9.1"],
    ["org.apache.commons:commons-pool2:2.13.1", "org.apache.commons:commons-pool2:2.12.1"],
)


class NotFetchedError(Exception):
    """The jars cannot be had; the message says why."""


def fetch_kafka_source() -> list[Path]:
    """The jars to give to Spark."""
    LIBS.mkdir(parents=True, exist_ok=True)
    # Tests that run side by side may all want them at once.
    with (LIBS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return [_fetch_one(candidates) for candidates in _CANDIDATES]


def _fetch_one(candidates: list[str]) -> Path:
    for candidate in candidates:
        _, name, version = candidate.split(":")
        jar = LIBS / f"{name}-{version}.jar"
        if jar.exists():
            return jar
    if shutil.which("java") is None or shutil.which("mvn") is None:
        raise NotFetchedError("Spark's own Kafka source needs java and mvn to be fetched")
    for candidate in candidates:
        _, name, version = candidate.split(":")
        command = ["mvn", "--batch-mode", "--quiet", "dependency:copy", f"-Dartifact={candidate}"]
        try:
            subprocess.run(
                [*command, f"-DoutputDirectory={LIBS}"],
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=FETCH_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            continue
        jar = LIBS / f"{name}-{version}.jar"
        if jar.exists():
            return jar
    raise NotFetchedError(f"none of {', '.join(candidates)} could be fetched")


if __name__ == "__main__":
    try:
        fetch_kafka_source()
    except NotFetchedError as e:
        print(f"{e}; the test that uses it will be skipped.")
