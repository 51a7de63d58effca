"""Apache Kafka's cleaner on copies of a log: what its thread takes of the processor for one pass."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from bench import apache_kafka
from bench.compaction.dirty_log import Shape, closed_segments
from bench.peers import first_answer, free_port
from ottla.base.types import TopicPartition
from ottla.log.checkpoints import CheckpointError, read_offsets

_START_TIMEOUT_S = 120
_PASS_TIMEOUT_S = 300
_LOOK_EVERY_S = 0.05
_THREAD = "kafka-log-clean"
"""As far as the kernel keeps the name."""
_RATIO = "min.cleanable.dirty.ratio"
_NEVER, _AT_ONCE = "1.0", "0.01"


class KafkaPasses:
    """A broker with several copies of the log. Each `run` has it clean the next of them."""

    def __init__(self, pid: int, port: int, logs: Path, topics: list[str], end_offset: int) -> None:
        self._pid = pid
        self._admin = _admin(port)
        self._logs = logs
        self._topics = iter(topics)
        self._end_offset = end_offset

    def run(self) -> float:
        """Seconds of processor time of the cleaner's thread."""
        topic = next(self._topics)
        before_s = self._cleaner_cpu_s()
        change = ConfigEntry(_RATIO, _AT_ONCE, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
        self._admin.incremental_alter_configs([resource])[resource].result(30)
        deadline_s = time.monotonic() + _PASS_TIMEOUT_S
        while self._cleaned_up_to(topic) < self._end_offset:
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"{apache_kafka.NAME} did not compact {topic} within {_PASS_TIMEOUT_S} s")
            time.sleep(_LOOK_EVERY_S)
        return self._cleaner_cpu_s() - before_s

    def _cleaned_up_to(self, topic: str) -> int:
        try:
            return read_offsets(self._logs / "cleaner-offset-checkpoint").get(TopicPartition(topic, 0), 0)
        except (CheckpointError, FileNotFoundError):
            return 0

    def _cleaner_cpu_s(self) -> float:
        total = 0.0
        for task in Path(f"/proc/{self._pid}/task").iterdir():
            name, _, fields = (task / "stat").read_text().partition("(")[2].rpartition(")")
            if name.startswith(_THREAD):
                user, system = fields.split()[11:13]
                total += (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
        return total


@contextmanager
def kafka_with_copies(libs: Path, place: Path, source: Path, shape: Shape, count: int) -> Iterator[KafkaPasses]:
    """A node whose topics hold `count` copies of the log at `source`, and are not compacted before they are asked."""
    place.mkdir()
    port, node = free_port(), place / "node"
    apache_kafka.prepare_node(libs, node, node_id=1, port=port, controller=(1, free_port()))
    logs = node / "logs"
    topics = [f"table-{number}" for number in range(count)]
    with _running(libs, node, port):
        admin = _admin(port)
        settings = {"cleanup.policy": "compact", "segment.bytes": str(shape.segment_bytes), _RATIO: _NEVER}
        for created in admin.create_topics([NewTopic(topic, 1, 1, config=settings) for topic in topics]).values():
            created.result(30)
    for topic in topics:
        directory = logs / f"{topic}-0"
        metadata = (directory / "partition.metadata").read_bytes()
        shutil.rmtree(directory)
        shutil.copytree(source, directory)
        (directory / "partition.metadata").write_bytes(metadata)
    with _running(libs, node, port) as pid:
        end_offset = int(max(source.glob("*.log")).stem)
        assert closed_segments(source)
        yield KafkaPasses(pid, port, logs, topics, end_offset)
    shutil.rmtree(place)


def _admin(port: int) -> AdminClient:
    settings: dict[str, Any] = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "log_level": 0,
        "error_cb": lambda error: None,
    }
    return AdminClient(settings)


@contextmanager
def _running(libs: Path, node: Path, port: int) -> Iterator[int]:
    begun_s = time.perf_counter()
    with apache_kafka.running_node(libs, node) as process:
        if first_answer(process, port, begun_s, _START_TIMEOUT_S) is None:
            raise RuntimeError(f"{apache_kafka.NAME} did not start; see {node}")
        yield process.pid
