"""Drivers, brokers and a database killed at the worst moments: rows out are rows in, and none is there twice."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import ottla
from ottla.spark.pipeline.failures import is_passing
from tests.broker_process import BrokerProcess
from tests.interop.transactions.readers import read_all
from tests.spark.drivers.faults import FAULTS, PATIENCE_S, PLACE
from tests.spark.mariadb import MariadbProcess
from tests.spark.postgres import PostgresProcess

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-drivers"), pytest.mark.timeout(1200)]

PARTITIONS = (0, 1, 2)
ROWS = 120_000
SOURCE, FIRST, SECOND, THIRD = "source", "first", "second", "third"
SQLITE, POSTGRES, MYSQL, MYSQL_UPSERT = "sqlite", "postgres", "mysql", "mysql_upsert"
FOUR_BATCHES = {"maxOffsetsPerTrigger": str(ROWS // 4)}


@contextmanager
def driver(
    tmp_path: Path, broker: BrokerProcess, steps: Any, **faults: tuple[int, str]
) -> Iterator[subprocess.Popen[str]]:
    checkpoints = str(tmp_path / "checkpoints")
    job = {"bootstrap": broker.bootstrap, "topic": SOURCE, "checkpoints": checkpoints, "steps": steps}
    environment = {
        **os.environ,
        FAULTS: json.dumps(faults),
        PLACE: str(tmp_path),
        "PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")])),
        "SPARK_LOCAL_DIRS": str(tmp_path / "local"),
    }
    command = [sys.executable, "-m", "tests.spark.drivers.copies", json.dumps(job)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def outcomes(process: subprocess.Popen[str]) -> tuple[int, dict[str, list[str]]]:
    """How the driver ended, and the errors of its copies, in their order; "" for those that went well."""
    output, complaints = process.communicate(timeout=900)
    found: dict[str, list[str]] = {}
    for line in output.splitlines():
        entry = json.loads(line)
        found.setdefault(entry["target"], []).append(entry["error"])
    print(complaints)
    return process.returncode, found


def copy(target: str, **options: str) -> dict[str, Any]:
    return {"target": target, "options": {**FOUR_BATCHES, **options}}


@dataclass(frozen=True)
class Databases:
    """The databases that get a copy each, under the names of their queries; MariaDB gets another by the driver."""

    sqlite: Path
    postgres: PostgresProcess
    mariadb: MariadbProcess

    def copies(self, *names: str) -> list[dict[str, Any]]:
        urls = {
            SQLITE: f"sqlite:{self.sqlite}",
            POSTGRES: self.postgres.url,
            MYSQL: self.mariadb.url,
            MYSQL_UPSERT: self.mariadb.url,
        }
        return [{**copy(name), "database": urls[name]} for name in names]

    def ask(self, name: str, query: str) -> tuple[object, ...]:
        if name == SQLITE:
            with closing(sqlite3.connect(self.sqlite)) as connection:
                row: tuple[object, ...] = connection.execute(query).fetchone()
                return row
        return (self.postgres if name == POSTGRES else self.mariadb).rows(query)[0]

    def assert_hold(self, rows: int, *names: str) -> None:
        """The first rows of each partition, all of them once."""
        for name in names:
            found = self.ask(name, f"SELECT count(*), count(DISTINCT id), sum(id), min(id), max(id) FROM copied_{name}")
            assert (name, *found) == (name, rows, rows, rows * (rows - 1) // 2, 0, rows - 1)

    def assert_remember(self, batch_number: int, rows: int, *names: str) -> None:
        ends = {SOURCE: {str(partition): rows // len(PARTITIONS) for partition in PARTITIONS}}
        for name in names:
            # Other tests use the same servers.
            progress = self.ask(name, f"SELECT batch_id, offsets FROM ottla_progress WHERE sink = '{name}'")
            remembered, offsets = progress
            assert remembered == batch_number
            assert [json.loads(text) for text in json.loads(str(offsets))] == [ends]


def fill(broker: BrokerProcess) -> None:
    with ottla.Admin(bootstrap_servers=broker.bootstrap) as admin:
        topics = [ottla.NewTopic(name, len(PARTITIONS)) for name in (SOURCE, FIRST, SECOND, THIRD)]
        admin.create_topics(topics).check()
    with ottla.Producer(bootstrap_servers=broker.bootstrap) as producer:
        values = pa.array([b"%d" % number for number in range(ROWS)], pa.binary())
        partitions = pa.array([number % len(PARTITIONS) for number in range(ROWS)], pa.int32())
        table = pa.table({"value": values, "partition": partitions})
        producer.send_arrow(SOURCE, table, partition_column="partition").result(60)


def values_in(broker: BrokerProcess, topic: str) -> Counter[bytes]:
    return Counter(value for records in read_all(broker.bootstrap, topic, PARTITIONS).values() for _, value in records)


def test_rows_out_are_rows_in_whatever_is_killed(
    tmp_path: Path, own_broker: BrokerProcess, postgres: PostgresProcess, mariadb: MariadbProcess
) -> None:
    broker = own_broker.start()
    fill(broker)
    expected = Counter(b"%d" % number for number in range(ROWS))
    databases = Databases(tmp_path / "copied.db", postgres, mariadb)

    # The JVM is killed when the first copy has committed a part of its batch, while a worker of the second writes, when
    # the third and the databases have committed a batch that Spark has not noted yet, and before one has committed it.
    held = (SQLITE, POSTGRES, MYSQL)
    faults = {
        FIRST: (1, "killed in mid-commit"),
        SECOND: (1, "orphan"),
        THIRD: (1, "held after commit"),
        SQLITE: (1, "held after commit"),
        POSTGRES: (1, "held after commit"),
        MYSQL: (1, "held after commit"),
        MYSQL_UPSERT: (1, "held before commit"),
    }
    steps = [[*databases.copies(*held, MYSQL_UPSERT), copy(THIRD), copy(FIRST), copy(SECOND)]]
    with driver(tmp_path, broker, steps, **faults) as process:
        code, found = outcomes(process)
    assert code != 0 and not found, f"the driver was not killed: {found}"
    orphans_word = tmp_path / "what became of the orphan"
    assert not orphans_word.exists(), "the worker was to outlive its driver"
    partly = values_in(broker, FIRST)
    assert ROWS // 4 < sum(partly.values()) < ROWS // 2
    assert set(partly.values()) == {1}
    assert sum(values_in(broker, THIRD).values()) == ROWS // 2
    databases.assert_hold(ROWS // 2, *held)
    databases.assert_remember(1, ROWS // 2, *held)
    databases.assert_hold(ROWS // 4, MYSQL_UPSERT)
    databases.assert_remember(0, ROWS // 4, MYSQL_UPSERT)
    for name in (THIRD, *held, MYSQL_UPSERT):
        checkpoint = tmp_path / "checkpoints" / name
        assert (checkpoint / "offsets" / "1").exists()
        assert not (checkpoint / "commits" / "1").exists(), "Spark knows the batch as done"

    # Another number of tasks is refused while the batch is not whole. With the old one all go on, and the broker is
    # killed in the middle of their batches, and comes back. Then MariaDB is, in the middle of a transaction.
    steps = [
        [copy(FIRST, minPartitions="5")],
        [copy(SECOND)],
        [copy(FIRST), copy(THIRD), *databases.copies(*held)],
        databases.copies(MYSQL_UPSERT),
        databases.copies(MYSQL_UPSERT),
    ]
    faults = dict.fromkeys(held, (2, "broker restart"))
    faults |= {FIRST: (3, "broker restart"), MYSQL_UPSERT: (2, "database restart")}
    with driver(tmp_path, broker, steps, **faults) as process:
        wait_for_file(tmp_path / f"{SECOND} is done", process)
        assert values_in(broker, SECOND) == expected
        (tmp_path / "the orphan may go on").touch()
        # The orphan is shut out, for its successor has taken over its transactional id.
        wait_for_file(orphans_word)
        assert orphans_word.read_text().startswith("refused: ")
        for name in ("restart the broker", *(f"{name} waits for the broker" for name in held)):
            wait_for_file(tmp_path / name, process)
        broker.kill()
        broker.start()
        (tmp_path / "the broker is back").touch()
        wait_for_file(tmp_path / f"{MYSQL_UPSERT} waits for the database", process)
        mariadb.kill()
        mariadb.start()
        (tmp_path / "the database is back").touch()
        code, found = outcomes(process)
    refused, *rest = found.pop(FIRST)
    assert "batch 1 of first" in refused and "it had 3 tasks then, and has 5 now" in refused
    lost, *again = found.pop(MYSQL_UPSERT)
    assert is_passing(lost) and "s3cret" not in lost
    assert (code, rest, again, found) == (0, [""], [""], {name: [""] for name in (SECOND, THIRD, *held)})
    for topic in (FIRST, SECOND, THIRD):
        assert values_in(broker, topic) == expected
    databases.assert_hold(ROWS, *held, MYSQL_UPSERT)
    databases.assert_remember(3, ROWS, *held, MYSQL_UPSERT)


def wait_for_file(path: Path, process: subprocess.Popen[str] | None = None) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert process is None or process.poll() is None, outcomes(process)
        assert time.monotonic() < deadline_s, f"nobody has made {path.name}"
        time.sleep(0.05)
