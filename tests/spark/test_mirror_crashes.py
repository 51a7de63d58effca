"""A mirror whose driver, Java process and brokers are killed at the worst moments: every record once, in order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

import pyarrow as pa

import ottla
from tests.broker_process import BrokerProcess
from tests.spark.drivers.faults import FAULTS, PATIENCE_S, PLACE
from tests.spark.drivers.mirror_faults import AFTER_COMMIT, BROKERS, IN_MID_COMMIT
from tests.spark.mirrors import Seen, assert_beginning, contents, read_topic

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-drivers"), pytest.mark.timeout(1200)]

PARTITIONS = range(3)
ROWS = 120_000
TOPIC = "orders"
DESCRIPTION = """\
name: crashing
restart: {{backoff: 500 ms}}
clusters:
  west: {{bootstrap.servers: "{west}"}}
  east: {{bootstrap.servers: "{east}"}}
mirrors:
  eastward:
    from: west
    to: east
    topics: [orders]
    max_offsets_per_trigger: 30000
    groups: {{names: [reader]}}
"""


@contextmanager
def driver(tmp_path: Path, fault: tuple[int, str]) -> Iterator[subprocess.Popen[str]]:
    environment = {
        **os.environ,
        FAULTS: json.dumps({"eastward": fault}),
        PLACE: str(tmp_path),
        "PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")])),
        "SPARK_LOCAL_DIRS": str(tmp_path / "local"),
    }
    command = [sys.executable, "-m", "tests.spark.drivers.mirror", str(tmp_path / "mirror.yaml")]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def end_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, complaints = process.communicate(timeout=900)
    return process.returncode, complaints


def wait_for_file(path: Path, process: subprocess.Popen[str]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert process.poll() is None, end_of(process)
        assert time.monotonic() < deadline_s, f"nobody has made {path.name}"
        time.sleep(0.05)


def fill(bootstrap: str) -> None:
    """Numbers in every partition, each with a key and a time of its own."""
    with ottla.Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([ottla.NewTopic(TOPIC, len(PARTITIONS), configs={"retention.ms": -1})]).check()
    numbers = range(ROWS)
    table = pa.table(
        {
            "key": pa.array([b"k%d" % (number % 97) for number in numbers], pa.binary()),
            "value": pa.array([b"%d" % number for number in numbers], pa.binary()),
            "timestamp": pa.array([1_700_000_000_000 + number for number in numbers], pa.int64()),
            "partition": pa.array([number % len(PARTITIONS) for number in numbers], pa.int32()),
        }
    )
    with ottla.Producer(bootstrap_servers=bootstrap) as producer:
        producer.send_arrow(TOPIC, table, partition_column="partition").result(60)


def test_every_record_is_copied_once_whatever_is_killed(tmp_path: Path, own_broker: BrokerProcess) -> None:
    west = own_broker.start()
    east = BrokerProcess(tmp_path / "east").start()
    try:
        fill(west.bootstrap)
        originals = read_topic(west.bootstrap, TOPIC, PARTITIONS)
        (tmp_path / "mirror.yaml").write_text(DESCRIPTION.format(west=west.bootstrap, east=east.bootstrap))
        with ottla.Admin(bootstrap_servers=west.bootstrap) as admin:
            read = {ottla.TopicPartition(TOPIC, partition): 31_234 for partition in PARTITIONS}
            admin.alter_group_offsets("reader", read).check()

        # The Java process dies when a part of the second batch is committed.
        with driver(tmp_path, (1, IN_MID_COMMIT)) as process:
            code, complaints = end_of(process)
        assert code != 0, complaints
        copies = read_topic(east.bootstrap, TOPIC, PARTITIONS)
        assert ROWS // 4 < assert_beginning(copies, originals) < ROWS // 2, complaints

        # The driver is killed when the batch is committed, and Spark has not noted that.
        with driver(tmp_path, (2, AFTER_COMMIT)) as process:
            wait_for_file(tmp_path / "the mirror holds its batch", process)
            process.kill()
            process.wait(PATIENCE_S)
        (tmp_path / "what never happens").touch()
        assert assert_beginning(read_topic(east.bootstrap, TOPIC, PARTITIONS), originals) == ROWS * 3 // 4
        assert not (tmp_path / "checkpoints" / "crashing" / "eastward" / "commits" / "2").exists()

        # Both brokers are killed in the middle of the last batch, and come back.
        with driver(tmp_path, (3, BROKERS)) as process:
            wait_for_file(tmp_path / "restart the brokers", process)
            for broker in (west, east):
                broker.kill()
                broker.start()
            (tmp_path / "the brokers are back").touch()
            code, complaints = end_of(process)
        assert code == 0, complaints
        copies = read_topic(east.bootstrap, TOPIC, PARTITIONS)
        assert assert_beginning(copies, originals) == ROWS
        assert_group_goes_on(east.bootstrap, copies, originals)
    finally:
        east.stop()


def assert_group_goes_on(east: str, copies: dict[int, list[Seen]], originals: dict[int, list[Seen]]) -> None:
    """What the map says survived as well: the group misses nothing, and repeats next to nothing."""
    with ottla.Admin(bootstrap_servers=east) as admin:
        committed = admin.list_group_offsets(["reader"])["reader"]
    for partition in PARTITIONS:
        offset = committed[ottla.TopicPartition(TOPIC, partition)].offset
        left = contents([seen for seen in copies[partition] if seen.offset >= offset])
        unread = contents([seen for seen in originals[partition] if seen.offset >= 31_234])
        assert left[-len(unread) :] == unread
        assert len(left) - len(unread) < ROWS // 100
