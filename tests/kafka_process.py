"""Apache Kafka itself for tests: one node in KRaft mode, from the jars of `scripts/fetch_kafka_tools.sh`."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

START_TIMEOUT_S = 90
STOP_TIMEOUT_S = 30
_CLUSTER_ID = "b3R0bGEta2Fma2EtdGVzdA"
# Short-lived: starting fast matters more than running fast.
_JAVA = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]


class KafkaProcess:
    """Has the names of `BrokerProcess` that tests use. The first start formats `data_dir`."""

    def __init__(self, libs: Path, data_dir: Path, overrides: dict[str, str] | None = None) -> None:
        self.data_dir = data_dir
        self.overrides = overrides or {}
        self.port = 0
        self._libs = libs
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def _output(self) -> Path:
        return self.data_dir / "output.txt"

    def start(self) -> KafkaProcess:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        properties = self.data_dir / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self._settings().items()))
        format_storage = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(properties), "-g"]
        with self._output.open("wb") as output:
            subprocess.run(
                [*self._java("256m"), *format_storage],
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=START_TIMEOUT_S,
                check=True,
            )
            self._process = subprocess.Popen(
                [*self._java("512m"), "kafka.Kafka", str(properties)],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._wait_until_ready()
        return self

    def _java(self, heap: str) -> list[str]:
        return [*_JAVA, f"-Xmx{heap}", "-cp", f"{self._libs}/*"]

    def _settings(self) -> dict[str, str]:
        self.port, controller_port = _free_ports(2)
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.data_dir / "logs"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            **self.overrides,
        }

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        deadline_s = time.monotonic() + START_TIMEOUT_S
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, "error_cb": lambda error: None})
        while True:
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                self.kill()
                raise RuntimeError(f"Kafka did not start:\n{self._output.read_text()}")
            try:
                if admin.list_topics(timeout=1).brokers:
                    return
            except KafkaException:
                continue

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(number)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_ports(count: int) -> list[int]:
    """Kafka has to be told its ports beforehand: they are advertised, and voters are found by them."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [entry.getsockname()[1] for entry in held]
    finally:
        for entry in held:
            entry.close()
