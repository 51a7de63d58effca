"""Apache Kafka itself for tests: in KRaft mode or on ZooKeeper, from the jars of `scripts/fetch_kafka_tools.sh`."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from typing import BinaryIO, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.ports import free_ports

START_TIMEOUT_S = 90
STOP_TIMEOUT_S = 30
_CLUSTER_ID = "b3R0bGEta2Fma2EtdGVzdA"
_SCRAM = {
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    **{
        f"listener.name.sasl_plaintext.{mechanism}.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        )
        for mechanism in ("scram-sha-256", "scram-sha-512")
    },
}
# Short-lived: starting fast matters more than running fast.
_JAVA = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]


class KafkaProcess:
    """Has the names of `BrokerProcess` that tests use. The first start formats `data_dir`; the ports stay the same.

    A node is a broker and the controller; one that is given another as its `controller` is a broker only. One
    `with_scram` listens a second time (`sasl_bootstrap`), for clients that log in.
    """

    def __init__(
        self,
        libs: Path,
        data_dir: Path,
        overrides: dict[str, str] | None = None,
        *,
        node_id: int = 1,
        controller: KafkaProcess | None = None,
        with_scram: bool = False,
    ) -> None:
        self.data_dir = data_dir
        self.overrides = overrides or {}
        self.node_id = node_id
        self.port = 0
        self.controller_port = 0
        self.sasl_port = 0
        self._with_scram = with_scram
        self._controller = controller
        self._libs = libs
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def sasl_bootstrap(self) -> str:
        return f"127.0.0.1:{self.sasl_port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def _output(self) -> Path:
        return self.data_dir / "output.txt"

    def start(self) -> Self:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        properties = self.data_dir / "server.properties"
        is_first = not properties.exists()
        properties.write_text("".join(f"{name}={value}\n" for name, value in self._settings().items()))
        with self._output.open("wb" if is_first else "ab") as output:
            if is_first:
                self._format(properties, output)
            self._process = subprocess.Popen(
                [*self._java("512m"), "kafka.Kafka", str(properties)],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._wait_until_ready()
        return self

    def _format(self, properties: Path, output: BinaryIO) -> None:
        format_storage = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(properties), "-g"]
        subprocess.run(
            [*self._java("256m"), *format_storage],
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=START_TIMEOUT_S,
            check=True,
        )

    def _java(self, heap: str) -> list[str]:
        return [*_JAVA, f"-Xmx{heap}", "-cp", f"{self._libs}/*"]

    def _settings(self) -> dict[str, str]:
        if not self.port:
            self.port = free_ports(3)
            self.controller_port, self.sasl_port = self.port + 1, self.port + 2
        listeners = [f"PLAINTEXT://127.0.0.1:{self.port}"]
        if self._with_scram:
            listeners.append(f"SASL_PLAINTEXT://127.0.0.1:{self.sasl_port}")
        own_controller = [f"CONTROLLER://127.0.0.1:{self.controller_port}"] if self._controller is None else []
        voter = self._controller or self
        return {
            "process.roles": "broker,controller" if own_controller else "broker",
            "node.id": str(self.node_id),
            "controller.quorum.voters": f"{voter.node_id}@127.0.0.1:{voter.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(listeners + own_controller),
            "advertised.listeners": ",".join(listeners),
            "listener.security.protocol.map": (
                "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
            ),
            "log.dirs": str(self.data_dir / "logs"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            **(_SCRAM if self._with_scram else {}),
            **self.overrides,
        }

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        deadline_s = time.monotonic() + START_TIMEOUT_S
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, "error_cb": lambda error: None})
        while True:
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                ended = f"it ended with {self._process.poll()}" if self._process.poll() is not None else "it runs"
                self.kill()
                raise RuntimeError(f"Kafka did not start, {ended}:\n{self._output.read_text()}")
            try:
                if admin.list_topics(timeout=1).brokers:
                    return
            except KafkaException:
                continue

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Like `BrokerProcess`; Java's code for the end by a signal is none of failure."""
        self._end(signal.SIGTERM)
        return 0

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
            process.wait(STOP_TIMEOUT_S)


class KafkaOnZooKeeper(KafkaProcess):
    """A broker of a cluster on ZooKeeper. `settings` are all it is given; `port` is that of its clients."""

    def __init__(self, libs: Path, data_dir: Path, port: int, settings: dict[str, str]) -> None:
        super().__init__(libs, data_dir, settings)
        self.port = port
        self.log_lines: tuple[str, ...] = ()

    def tracebacks(self) -> list[str]:
        """None: its log is not kept."""
        return []

    def _settings(self) -> dict[str, str]:
        return self.overrides

    def _format(self, properties: Path, output: BinaryIO) -> None:
        """Only KRaft wants it."""
