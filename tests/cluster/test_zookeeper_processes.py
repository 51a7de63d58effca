"""Processes as a user has them: an ensemble by `ottla zookeeper start`, brokers on it, and kill -9 for some of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker_process import BrokerProcess
from tests.cluster.test_start_brokers import read_all
from tests.ports import free_ports
from tests.waiting import PATIENCE_S, repeat_until
from tests.zookeeper_process import require_zookeeper

pytestmark = pytest.mark.timeout(240)

PARTITIONS = 3


def start_zookeeper(data: Path, *options: str, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "ottla", "zookeeper", "start", "--data", str(data), *options]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **(environment or {})},
    )


def until_said(process: subprocess.Popen[str], words: str) -> str:
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if words in line:
            return line
    raise AssertionError(f"{words!r} was never said:\n{said}")


@contextmanager
def ensemble(data: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Three servers, and their addresses."""
    with start_zookeeper(data, "--nodes", "3", "--port", str(free_ports(9))) as process:
        try:
            yield process, until_said(process, "zookeeper.connect=").partition("zookeeper.connect=")[2].strip()
        finally:
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, rest
    assert "Traceback" not in rest


def pid_of(data: Path, number: int) -> int:
    return int((data / f"server-{number}" / "pid").read_text())


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


class Cluster:
    def __init__(self, directory: Path, connect: str) -> None:
        settings = {
            "zookeeper.connect": connect,
            "zookeeper.session.timeout.ms": "4000",
            "min.insync.replicas": "2",
            "offsets.topic.num.partitions": "1",
            "controlled.shutdown.retry.backoff.ms": "200",
        }
        self.brokers = {
            broker_id: BrokerProcess(directory / f"broker-{broker_id}", {**settings, "broker.id": str(broker_id)})
            for broker_id in (1, 2, 3)
        }

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def metadata(self) -> confluent_kafka.admin.ClusterMetadata:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0}).list_topics(timeout=30)

    def is_whole(self) -> bool:
        topic = self.metadata().topics["t"]
        return all(len(partition.isrs) == 3 for partition in topic.partitions.values())

    def kill(self) -> None:
        for broker in self.brokers.values():
            broker.kill()


def test_nothing_is_lost_when_leader_controller_and_a_zookeeper_are_killed(tmp_path: Path) -> None:
    require_zookeeper(tmp_path)
    data = tmp_path / "zookeeper"
    with ensemble(data) as (zookeeper, connect):
        cluster = Cluster(tmp_path, f"{connect}/kafka")
        try:
            for broker in cluster.brokers.values():
                broker.start()
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
            new = NewTopic("t", num_partitions=PARTITIONS, replication_factor=3)
            admin.create_topics([new])["t"].result(60)
            acknowledged: list[bytes] = []

            def told(error: object, message: confluent_kafka.Message) -> None:
                assert error is None, error
                acknowledged.append(message.value())

            settings = {"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True}
            producer = confluent_kafka.Producer({**settings, "on_delivery": told, "log_level": 0})

            def produce(first: int) -> None:
                for number in range(first, first + 200):
                    producer.produce("t", str(number).encode(), key=str(number).encode())
                assert producer.flush(PATIENCE_S) == 0

            produce(0)
            controller = cluster.metadata().controller_id
            leader = next(
                p.leader for p in cluster.metadata().topics["t"].partitions.values() if p.leader != controller
            )
            cluster.brokers[leader].kill()
            # At once: its old session is still there.
            cluster.brokers[leader].start()
            produce(200)
            repeat_until(cluster.is_whole)
            os.kill(pid_of(data, 2), signal.SIGKILL)
            cluster.brokers[controller].kill()
            produce(400)
            until_said(zookeeper, "ZooKeeper server 2 was started again")
            cluster.brokers[controller].start()
            repeat_until(cluster.is_whole)
            assert cluster.metadata().controller_id != controller
            expected = sorted(str(number).encode() for number in range(600))
            assert sorted(acknowledged) == expected == sorted(read_all(cluster.bootstrap, 600))
            for broker in cluster.brokers.values():
                assert broker.stop() == 0, "\n".join(broker.log_lines)
                assert broker.tracebacks() == []
        finally:
            cluster.kill()
        pids = [pid_of(data, number) for number in (1, 2, 3)]
    assert not any(map(is_running, pids))


def test_servers_whose_supervisor_was_killed_are_gone(tmp_path: Path) -> None:
    require_zookeeper(tmp_path)
    with start_zookeeper(tmp_path / "data", "--port", str(free_ports(3))) as process:
        try:
            until_said(process, "zookeeper.connect=")
            pid = pid_of(tmp_path / "data", 1)
        finally:
            process.kill()
    repeat_until(lambda: not is_running(pid))


def test_without_java_it_is_said_what_to_do(tmp_path: Path) -> None:
    with start_zookeeper(tmp_path, environment={"PATH": "/nowhere", "JAVA_HOME": ""}) as process:
        said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert said == "ZooKeeper needs Java 17 or newer; install it, or set JAVA_HOME to where it is\n"
