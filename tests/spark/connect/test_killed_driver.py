"""A driver killed between a database's commit and Spark's, with failing tasks and a broker that is restarted."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ottla
from tests.broker_process import BrokerProcess
from tests.spark.postgres import PostgresProcess

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

ROWS = 120_000
PARTITIONS = 4
DIES_AFTER_BATCH = 1
RUN_TIMEOUT_S = 300


class Drivers:
    """Runs of the copying program, each with a Spark of its own."""

    def __init__(self, settings: dict[str, object], directory: Path) -> None:
        self._settings = settings
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None

    def start(self, **settings: object) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_DIRS": str(self._directory / "spark-local"),
        }
        arguments = json.dumps({**self._settings, **settings})
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.connect.copy_driver", arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            cwd=Path(__file__).parents[3],
            start_new_session=True,
        )
        return self._process

    def finish(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        output, _ = process.communicate(timeout=RUN_TIMEOUT_S)
        return process.returncode, output

    def end(self) -> None:
        """Ends what a failed test has left: the driver and the Java process in its session."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline_s = time.monotonic() + RUN_TIMEOUT_S
    while not path.exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline_s, "the driver did not come as far"
        time.sleep(0.05)


def fill(broker: BrokerProcess, topic: str) -> None:
    with ottla.Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([ottla.NewTopic(topic, PARTITIONS)]).check()
    with ottla.Producer(bootstrap_servers=broker.bootstrap, linger_ms=20) as producer:
        for number in range(ROWS):
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
        producer.flush()


def remembered(progress: tuple[object, ...] | None) -> tuple[object, dict[str, int]]:
    assert progress is not None
    batch_id, offsets = progress
    (by_topic,) = (json.loads(text) for text in json.loads(str(offsets)))
    (by_partition,) = by_topic.values()
    return batch_id, by_partition


@pytest.mark.timeout(2 * RUN_TIMEOUT_S + 60)
def test_nothing_is_lost_or_doubled(
    own_broker: BrokerProcess, postgres: PostgresProcess, new_topic: str, tmp_path: Path
) -> None:
    own_broker.start()
    fill(own_broker, new_topic)
    sqlite_path = tmp_path / "copied.db"
    settings = {
        "bootstrap": own_broker.bootstrap,
        "topic": new_topic,
        "sqlite": f"sqlite:{sqlite_path}",
        "postgres": postgres.url,
        "directory": str(tmp_path),
    }
    query = "SELECT count(*), count(DISTINCT id), sum(id), min(id), max(id) FROM copied"
    progress = "SELECT batch_id, offsets FROM ottla_progress WHERE sink = "
    drivers = Drivers(settings, tmp_path)
    try:
        process = drivers.start(dies_after_batch=DIES_AFTER_BATCH, waits_in_batch=0)
        wait_for(tmp_path / "here", process)
        own_broker.kill()
        own_broker.start()
        (tmp_path / "restarted").touch()
        code, output = drivers.finish(process)
        assert code == -signal.SIGKILL, output
        with sqlite3.connect(sqlite_path) as from_sqlite, postgres.connect() as from_postgres:
            half = (DIES_AFTER_BATCH + 1) * 30_000
            assert from_sqlite.execute(query).fetchone()[:2] == (half, half)
            found = from_postgres.execute(query).fetchone()
            assert found is not None and found[:2] == (half, half)
        for name in ("to-sqlite", "to-postgres"):
            assert (tmp_path / name / "offsets" / str(DIES_AFTER_BATCH)).exists()
            assert not (tmp_path / name / "commits" / str(DIES_AFTER_BATCH)).exists(), "Spark knows the batch as done"

        code, output = drivers.finish(drivers.start())
        assert code == 0, output
    finally:
        drivers.end()
    expected = (ROWS, ROWS, ROWS * (ROWS - 1) // 2, 0, ROWS - 1)
    ends = {str(partition): ROWS // PARTITIONS for partition in range(PARTITIONS)}
    with sqlite3.connect(sqlite_path) as from_sqlite, postgres.connect() as from_postgres:
        assert from_sqlite.execute(query).fetchone() == expected
        assert from_postgres.execute(query).fetchone() == expected
        assert remembered(from_sqlite.execute(f"{progress} 'to-sqlite'").fetchone()) == (3, ends)
        assert remembered(from_postgres.execute(f"{progress} 'to-postgres'").fetchone()) == (3, ends)
