"""Kills what a mirror is made of, again and again, while records come in, and compares both sides in the end.

`python -m tests.crash.mirror_run` runs it. What is struck is chosen by a seed: the driver, its Java process, either of
them in the middle of a commit or right after it, the broker that is read from or the one that is written to. With
`--kafka` one of these is Apache Kafka.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa

import ottla
from tests.broker_process import BrokerProcess
from tests.interop.kafka_tools import fetch_kafka_libs
from tests.kafka_process import KafkaProcess
from tests.spark.drivers.faults import FAULTS, PLACE
from tests.spark.drivers.mirror_faults import AFTER_COMMIT, IN_MID_COMMIT, NEXT_FAULT
from tests.spark.mirrors import assert_beginning, read_topic
from tests.waiting import join

PARTITIONS = range(3)
TOPIC = "orders"
PATIENCE_S = 300.0
CHUNK = 500
VICTIMS = ("driver", "java", IN_MID_COMMIT, AFTER_COMMIT, "west", "east")
DESCRIPTION = """\
name: crashing
restart: {{attempts: 20, backoff: 500 ms, max_backoff: 2 seconds}}
clusters:
  west: {{bootstrap.servers: "{west}"}}
  east: {{bootstrap.servers: "{east}"}}
mirrors:
  eastward: {{from: west, to: east, topics: [orders], max_offsets_per_trigger: 20000, groups: {{pattern: "reader.*"}}}}
"""


class Load:
    """Sends records to all partitions, evenly over the run, until it is told to finish; the broker may go away."""

    def __init__(self, bootstrap: str, records: int, pause_s: float) -> None:
        self._bootstrap = bootstrap
        self._records = records
        self._pause_s = pause_s
        self.hurry = threading.Event()
        self.thread = threading.Thread(target=self._run, name="load")

    def _run(self) -> None:
        with ottla.Producer(bootstrap_servers=self._bootstrap, delivery_timeout_ms=600_000) as producer:
            for first in range(0, self._records, CHUNK):
                numbers = range(first, min(first + CHUNK, self._records))
                values = pa.array([b"%d" % number for number in numbers], pa.binary())
                partitions = pa.array([number % len(PARTITIONS) for number in numbers], pa.int32())
                table = pa.table({"value": values, "key": values, "partition": partitions})
                producer.send_arrow(TOPIC, table, partition_column="partition").result(PATIENCE_S)
                self.hurry.wait(self._pause_s)


class MirrorRun:
    def __init__(self, home: Path, west: BrokerProcess | KafkaProcess, east: BrokerProcess | KafkaProcess) -> None:
        self._home = home
        self._brokers = {"west": west, "east": east}
        self._driver: subprocess.Popen[bytes] | None = None
        self._output = home / "driver.txt"
        self._jvm_pid = home / "jvm.pid"
        """Written by the driver when it has started Java."""
        self.starts = self.own_ends = 0

    # The driver

    def start_driver(self, *flags: str) -> subprocess.Popen[bytes]:
        self.starts += 1
        self._jvm_pid.unlink(missing_ok=True)
        environment = {
            **os.environ,
            FAULTS: json.dumps({}),
            PLACE: str(self._home),
            "PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")])),
            "SPARK_LOCAL_DIRS": str(self._home / "local"),
        }
        command = [sys.executable, "-m", "tests.spark.drivers.mirror", str(self._home / "mirror.yaml"), *flags]
        with self._output.open("ab") as output:
            self._driver = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        return self._driver

    def stop_driver(self) -> None:
        if self._driver is not None:
            self._driver.kill()
            self._driver.wait(PATIENCE_S)

    def wait_for_progress(self) -> None:
        """Until copies are committed that were not there before; a driver that has given up is started again."""
        before, deadline_s = self._copied(), time.monotonic() + PATIENCE_S
        while self._copied() <= before or not self._jvm_pid.exists():
            assert time.monotonic() < deadline_s, f"no progress; see {self._output}"
            self._revive()
            time.sleep(0.2)

    def _revive(self) -> None:
        if self._driver is None or self._driver.poll() is not None:
            self.own_ends += self._driver is not None
            self.start_driver("--for-ever")

    def _copied(self) -> int:
        with ottla.Admin(bootstrap_servers=self._brokers["east"].bootstrap) as admin:
            places = {ottla.TopicPartition(TOPIC, one): ottla.OffsetSpec.LATEST for one in PARTITIONS}
            found = admin.list_offsets(places, read_committed=True)
            found.errors  # noqa: B018  # the topic may not be there yet
            return sum(place.offset for place in found.results.values())

    # Striking

    def strike(self, victim: str, chance: random.Random) -> None:
        self.wait_for_progress()
        assert self._driver is not None
        if victim in (IN_MID_COMMIT, AFTER_COMMIT):
            self._strike_commit(victim)
        elif victim == "driver":
            time.sleep(chance.random())
            self._driver.kill()
            self._driver.wait(PATIENCE_S)
        elif victim == "java":
            time.sleep(chance.random())
            os.kill(int(self._jvm_pid.read_text()), signal.SIGKILL)
            self._driver.wait(PATIENCE_S)
        else:
            time.sleep(chance.random())
            self._brokers[victim].kill()
            time.sleep(2 * chance.random())
            self._brokers[victim].start()
            return
        self.start_driver("--for-ever")

    def _strike_commit(self, kind: str) -> None:
        assert self._driver is not None
        order, held = self._home / NEXT_FAULT, self._home / "the mirror holds its batch"
        for old in (held, self._home / "what never happens"):
            old.unlink(missing_ok=True)
        order.write_text(kind)
        deadline_s = time.monotonic() + PATIENCE_S
        while self._driver.poll() is None and not held.exists():
            assert time.monotonic() < deadline_s, f"nothing was committed; see {self._output}"
            time.sleep(0.05)
        self._driver.kill()
        self._driver.wait(PATIENCE_S)
        order.unlink()
        (self._home / "what never happens").touch()

    def finish(self) -> int:
        """Copies what is left and compares; gives the number of copies."""
        self.stop_driver()
        assert self.start_driver().wait(PATIENCE_S) == 0, f"the last run failed; see {self._output}"
        originals = read_topic(self._brokers["west"].bootstrap, TOPIC, PARTITIONS)
        copies = read_topic(self._brokers["east"].bootstrap, TOPIC, PARTITIONS)
        assert {one: len(records) for one, records in copies.items()} == {one: len(originals[one]) for one in originals}
        return assert_beginning(copies, originals)


def run(home: Path, *, records: int, kills: int, seed: int, kafka: str | None) -> None:
    chance = random.Random(seed)
    brokers: dict[str, BrokerProcess | KafkaProcess] = {
        name: KafkaProcess(fetch_kafka_libs(), home / name) if name == kafka else BrokerProcess(home / name)
        for name in ("west", "east")
    }
    run = MirrorRun(home, brokers["west"], brokers["east"])
    struck: Counter[str] = Counter()
    load: Load | None = None
    began_s = time.monotonic()
    try:
        for broker in brokers.values():
            broker.start()
        with ottla.Admin(bootstrap_servers=brokers["west"].bootstrap) as admin:
            admin.create_topics([ottla.NewTopic(TOPIC, len(PARTITIONS))]).check()
        text = DESCRIPTION.format(west=brokers["west"].bootstrap, east=brokers["east"].bootstrap)
        (home / "mirror.yaml").write_text(text)
        load = Load(brokers["west"].bootstrap, records, pause_s=20.0 * kills * CHUNK / records)
        load.thread.start()
        victims = [VICTIMS[number % len(VICTIMS)] for number in range(kills)]
        chance.shuffle(victims)
        for victim in victims:
            run.strike(victim, chance)
            struck[victim] += 1
            print(f"{time.monotonic() - began_s:5.0f} s: killed {victim}", flush=True)
        load.hurry.set()
        join(load.thread)
        copies = run.finish()
        assert copies == records, f"{records} were sent, and {copies} are there"
        told = ", ".join(f"{name} {count}" for name, count in sorted(struck.items()))
        print(
            f"seed {seed}: {copies} records in, {copies} out, each once and in order; {kills} kills ({told}), "
            f"{run.starts} starts of the driver, {run.own_ends} times it had given up by itself"
        )
    finally:
        if load is not None:
            load.hurry.set()
        run.stop_driver()
        for broker in brokers.values():
            broker.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--kills", type=int, default=16)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--kafka", choices=("west", "east"), help="Apache Kafka on this side")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    with tempfile.TemporaryDirectory(prefix="ottla-mirror-", ignore_cleanup_errors=True) as home:
        run(
            Path(home),
            records=arguments.records,
            kills=arguments.kills,
            seed=arguments.seed,
            kafka=arguments.kafka,
        )


if __name__ == "__main__":
    main()
