"""Several brokers of Apache Kafka as one cluster, and how its partitions are laid out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ottla
from tests.client.admin_shells import until
from tests.interop.kafka_tools import fetch_kafka_libs
from tests.kafka_process import KafkaProcess


@contextmanager
def started_cluster(
    home: Path, settings: Mapping[str, str], *, broker_count: int, with_scram: bool = False
) -> Iterator[list[KafkaProcess]]:
    """Brokers 1, 2, …; the first is the controller, too."""
    libs = fetch_kafka_libs()
    first = KafkaProcess(libs, home / "1", dict(settings), with_scram=with_scram)
    others = [
        KafkaProcess(libs, home / str(node_id), dict(settings), node_id=node_id, controller=first)
        for node_id in range(2, broker_count + 1)
    ]
    try:
        first.start()
        with ThreadPoolExecutor() as threads:
            list(threads.map(KafkaProcess.start, others))
        yield [first, *others]
    finally:
        with ThreadPoolExecutor() as threads:
            list(threads.map(KafkaProcess.stop, others))
        first.stop()


def make_partition(admin: Any, topic: str, replicas: list[int]) -> ottla.TopicPartition:
    admin.create_topics([ottla.NewTopic(topic, assignments=[replicas])]).check()
    partition = ottla.TopicPartition(topic, 0)
    until(lambda: replicas_of(admin, partition) == replicas)
    return partition


def replicas_of(admin: Any, partition: ottla.TopicPartition) -> list[int] | None:
    described = admin.describe_topics([partition.topic]).results.get(partition.topic)
    return described and list(described.partitions[0].replicas)


def leader_seen(admin: Any, partition: ottla.TopicPartition) -> int:
    leader: int = admin.describe_topics([partition.topic])[partition.topic].partitions[0].leader_id
    return leader
