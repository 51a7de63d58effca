"""`ottla start --brokers`: processes, as a user starts, kills and stops them."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest

from tests.cluster.load import load
from tests.ports import free_ports
from tests.waiting import PATIENCE_S, repeat_until
from tests.zookeeper_process import ZooKeeperProcesses

pytestmark = pytest.mark.timeout(240)


def start(data: Path, port: int, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "ottla", "start", "--brokers", "3", "--port", str(port), "--data", str(data)]
    return subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def until_said(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if text in line:
            return said
    raise AssertionError(f"{text!r} was never said:\n{said}")


def pid_of(data: Path, broker_id: int) -> int:
    return int((data / f"broker-{broker_id}" / "pid").read_text())


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_killed_broker_is_started_again_and_nothing_is_lost(tmp_path: Path) -> None:
    data, port = tmp_path / "cluster", free_ports(3)
    with start(data, port, "--override", "min.insync.replicas=2") as process:
        try:
            said = until_said(process, "bootstrap servers:")
            servers = said.rsplit("bootstrap servers: ", 1)[1].strip()
            assert servers == ",".join(f"127.0.0.1:{port + place}" for place in range(3))
            admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": servers})
            new = confluent_kafka.admin.NewTopic("t", num_partitions=3, replication_factor=3)
            admin.create_topics([new])["t"].result(60)
            acknowledged: list[bytes] = []

            def told(error: object, message: confluent_kafka.Message) -> None:
                assert error is None, error
                acknowledged.append(message.value())

            producer = confluent_kafka.Producer(
                {"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True, "on_delivery": told}
            )
            for number in range(300):
                producer.produce("t", str(number).encode(), key=str(number).encode())
            assert producer.flush(PATIENCE_S) == 0
            killed = pid_of(data, 2)
            subprocess.run(["kill", "-9", str(killed)], check=True)
            for number in range(300, 600):
                producer.produce("t", str(number).encode(), key=str(number).encode())
            assert producer.flush(PATIENCE_S) == 0
            until_said(process, "broker 2 was started again")
            assert pid_of(data, 2) != killed
            repeat_until(lambda: _isr_sizes(admin) == {3})
            assert sorted(acknowledged) == sorted(read_all(servers, 600)) == sorted(str(n).encode() for n in range(600))
            pids = [pid_of(data, broker_id) for broker_id in (1, 2, 3)]
        finally:
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, rest
    assert "Traceback" not in rest
    assert not any(map(is_running, pids))
    logs = "".join((data / f"broker-{broker_id}.log").read_text() for broker_id in (1, 2, 3))
    assert "Traceback" not in logs


@pytest.mark.parametrize("on_zookeeper", [False, True], ids=["without ZooKeeper", "on ZooKeeper"])
def test_a_rolling_restart_fails_no_write(request: pytest.FixtureRequest, tmp_path: Path, on_zookeeper: bool) -> None:
    data, port = tmp_path / "cluster", free_ports(3)
    options = ["--override", "min.insync.replicas=2"]
    if on_zookeeper:
        zookeeper: ZooKeeperProcesses = request.getfixturevalue("zookeeper")
        options += ["--override", f"zookeeper.connect={zookeeper.new_cluster()}"]
    with start(data, port, *options) as process:
        try:
            servers = until_said(process, "bootstrap servers:").rsplit("bootstrap servers: ", 1)[1].strip()
            admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": servers})
            new = confluent_kafka.admin.NewTopic("t", num_partitions=3, replication_factor=3)
            admin.create_topics([new])["t"].result(60)
            before = [pid_of(data, broker_id) for broker_id in (1, 2, 3)]
            with load(servers, "t") as acknowledged:
                command = [sys.executable, "-m", "ottla", "cluster", "restart", "--rolling", "--data", str(data)]
                done = subprocess.run(
                    [*command, "--bootstrap-server", servers], capture_output=True, text=True, timeout=PATIENCE_S
                )
            assert done.returncode == 0, done.stderr
            assert [line.split(",")[0] for line in done.stdout.splitlines()] == [
                f"broker {broker_id} was restarted and is in sync" for broker_id in (1, 2, 3)
            ]
            assert not set(before) & {pid_of(data, broker_id) for broker_id in (1, 2, 3)}
            assert sorted(acknowledged) == sorted(read_all(servers, len(acknowledged)))
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE_S)


def _isr_sizes(admin: confluent_kafka.admin.AdminClient) -> set[int]:
    metadata = admin.list_topics("t", timeout=30)
    return {len(partition.isrs) for partition in metadata.topics["t"].partitions.values()}


def read_all(servers: str, count: int) -> list[bytes]:
    settings = {"bootstrap.servers": servers, "group.id": "reader", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings)
    try:
        consumer.assign([confluent_kafka.TopicPartition("t", index, 0) for index in range(3)])
        found: list[bytes] = []
        while len(found) < count:
            message = consumer.poll(PATIENCE_S)
            assert message is not None and message.error() is None
            found.append(message.value())
        return found
    finally:
        consumer.close()


def test_a_directory_that_another_cluster_uses_is_refused_in_a_sentence(tmp_path: Path) -> None:
    data, port = tmp_path / "cluster", free_ports(6)
    with start(data, port, "--no-restart") as process:
        try:
            until_said(process, "bootstrap servers:")
            with start(data, port + 3) as second:
                output, _ = second.communicate(timeout=PATIENCE_S)
            assert second.returncode == 1
            assert "in use by another process" in output and "Traceback" not in output
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


def test_a_port_that_is_taken_is_told_with_the_brokers_log(tmp_path: Path) -> None:
    port = free_ports(3)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with start(tmp_path / "cluster", port) as process:
            output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "broker 1 did not start" in output and "Traceback" not in output


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--brokers", "none"], "'none' is no number of brokers"),
        (["--brokers", "0"], "'0' is no number of brokers"),
        (["--port", "9999"], "--port is for clusters"),
        (["--no-restart"], "--no-restart is for clusters"),
    ],
)
def test_wrong_options_are_told(options: list[str], expected: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "start", *options], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert expected in done.stderr


def test_brokers_whose_supervisor_was_killed_stop_by_themselves_and_lose_nothing(tmp_path: Path) -> None:
    data, port = tmp_path / "cluster", free_ports(3)
    with start(data, port) as process:
        try:
            servers = until_said(process, "bootstrap servers:").rsplit("bootstrap servers: ", 1)[1].strip()
            admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": servers, "log_level": 0})
            new = confluent_kafka.admin.NewTopic("t", num_partitions=3, replication_factor=3)
            admin.create_topics([new])["t"].result(60)
            producer = confluent_kafka.Producer({"bootstrap.servers": servers, "acks": "all", "log_level": 0})
            for number in range(300):
                producer.produce("t", str(number).encode(), key=str(number).encode())
            assert producer.flush(PATIENCE_S) == 0
            pids = [pid_of(data, broker_id) for broker_id in (1, 2, 3)]
        finally:
            process.kill()
        process.wait(PATIENCE_S)
        repeat_until(lambda: not any(map(is_running, pids)))
    for broker_id in (1, 2, 3):
        lines = (data / f"broker-{broker_id}.log").read_text()
        assert lines.count("the process that started this broker's cluster is gone") == 1
        assert f"broker {broker_id} stopped in" in lines and "Traceback" not in lines
    with start(data, port) as process:
        try:
            until_said(process, "bootstrap servers:")
            assert sorted(read_all(servers, 300)) == sorted(str(number).encode() for number in range(300))
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
