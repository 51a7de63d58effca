"""Apache Kafka itself as a peer: one node in KRaft mode, with the JVM options and settings it ships with.

Its jars come by name from Maven Central (`scripts/fetch_kafka_tools.sh`). Where they, Java or Maven cannot be had, the
rows against it are left out, and the run says so.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench import cases
from bench.frames import create_topic, delete_topic
from bench.peers import PARTITIONS, Peer, first_answer, free_port, running

NAME = "Apache Kafka"

_ROOT = Path(__file__).parents[1]
_FETCH = _ROOT / "scripts" / "fetch_kafka_tools.sh"
_LIBS = _ROOT / ".tools" / "kafka-libs"
_FETCH_TIMEOUT_S = 600
_START_TIMEOUT_S = 90
_PROPERTIES, _OUTPUT = "server.properties", "output.txt"
_CLUSTER_ID = "b3R0bGEta2Fma2EtYmVuY2g"
# What kafka-run-class.sh and kafka-server-start.sh give it.
_JVM = [
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
]


def find_libs(say: Callable[[str], None]) -> Path | None:
    """Where its jars are; None, with the reason said, if they cannot be had."""
    try:
        fetched = subprocess.run([str(_FETCH)], capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        say(f"no rows against {NAME}: its jars could not be fetched within {_FETCH_TIMEOUT_S} s")
        return None
    if fetched.returncode:
        say(f"no rows against {NAME}: {fetched.stderr.strip()}")
        return None
    return _LIBS


@contextmanager
def apache_kafka(libs: Path, directory: Path) -> Iterator[Peer]:
    """A node of its own in `directory`. `started_in_ms` does not count the formatting of its storage."""
    port, controller_port = free_port(), free_port()
    prepare_node(libs, directory, node_id=1, port=port, controller=(1, controller_port))
    begun_s = time.perf_counter()
    with running_node(libs, directory) as process:
        started_in_ms = first_answer(process, port, begun_s, _START_TIMEOUT_S)
        if started_in_ms is None:
            raise RuntimeError(f"{NAME} did not start:\n{(directory / _OUTPUT).read_text()[-2000:]}")
        yield Peer(NAME, port, process, started_in_ms)


def prepare_node(libs: Path, directory: Path, *, node_id: int, port: int, controller: tuple[int, int]) -> None:
    """Makes the node's files. `controller` is the id of the node that decides for the cluster, and its port for that:
    this one or another."""
    controller_id, controller_port = controller
    client_listener, own_controller = f"PLAINTEXT://127.0.0.1:{port}", f"CONTROLLER://127.0.0.1:{controller_port}"
    decides = node_id == controller_id
    settings = {
        "process.roles": "broker,controller" if decides else "broker",
        "node.id": str(node_id),
        "controller.quorum.voters": f"{controller_id}@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{client_listener},{own_controller}" if decides else client_listener,
        "advertised.listeners": client_listener,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(directory / "logs"),
        "num.partitions": str(PARTITIONS),
        "log.segment.delete.delay.ms": "0",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    properties = write_properties(directory, settings)
    form = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(properties)]
    subprocess.run([*_java(libs), *form], capture_output=True, timeout=_START_TIMEOUT_S, check=True)


def write_properties(directory: Path, settings: Mapping[str, str]) -> Path:
    """Makes the directory of a node, with its settings."""
    directory.mkdir()
    properties = directory / _PROPERTIES
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return properties


@contextmanager
def running_node(libs: Path, directory: Path) -> Iterator[subprocess.Popen[str]]:
    command = [*_java(libs), "kafka.Kafka", str(directory / _PROPERTIES)]
    with (directory / _OUTPUT).open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, text=True, env=os.environ)
    with running(process):
        yield process


def _java(libs: Path) -> list[str]:
    return ["java", *_JVM, "-cp", f"{libs}/*"]


class WarmUps:
    """Its code is compiled while it runs, so nothing of it counts before it has done the same for a while."""

    def __init__(self, kafka: Peer | None, is_quick: bool) -> None:
        self._kafka = kafka
        self._is_quick = is_quick
        self._topics = 0

    def first(self, send: Callable[[cases.ProduceCase, Peer, str, int], object]) -> None:
        seconds = cases.QUICK_KAFKA_FIRST_WARM_UP_S if self._is_quick else cases.KAFKA_FIRST_WARM_UP_S
        for case in cases.KAFKA_WARM_UP_CASES:
            self._repeat(partial(_send_all, send, case), seconds / len(cases.KAFKA_WARM_UP_CASES))

    def run(self, once: Callable[[Peer, str], object]) -> None:
        """What is about to be measured, again and again, each time on a topic that is gone afterwards."""
        self._repeat(once, cases.QUICK_KAFKA_WARM_UP_S if self._is_quick else cases.KAFKA_WARM_UP_S)

    def _repeat(self, once: Callable[[Peer, str], object], seconds: float) -> None:
        if self._kafka is None:
            return
        deadline_s = time.monotonic() + seconds
        while time.monotonic() < deadline_s:
            self._topics += 1
            topic = f"warm-up-{self._topics:04}"
            create_topic(self._kafka.port, topic)
            once(self._kafka, topic)
            # What is not there any more is not written to the disk while others are measured.
            delete_topic(self._kafka.port, topic)


def _send_all(
    send: Callable[[cases.ProduceCase, Peer, str, int], object], case: cases.ProduceCase, kafka: Peer, topic: str
) -> None:
    send(case, kafka, topic, case.requests)
