"""Topics in directories that a KRaft broker has left: what its metadata log says of them."""

from __future__ import annotations

from pathlib import Path

from ottla.base.types import Uuid
from ottla.log.checkpoints import write_partition_metadata
from ottla.log.found_topics import find_topics
from ottla.records.builder import NewRecord, build_batch
from ottla.wire.message import Message
from ottla.wire.stored.cluster_metadata import ConfigRecord, ProducerIdsRecord, RemoveTopicRecord, TopicRecord

KEPT, GONE, UNKNOWN = (Uuid(bytes([number] * 16)) for number in (1, 2, 3))
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4


def framed(kind: int, record: Message) -> bytes:
    return bytes([1, kind, 0]) + record.encode(0)


def partition(index: int, topic_id: Uuid) -> bytes:
    """Version 1, with replicas and more behind what is read."""
    return bytes([1, 3, 1]) + index.to_bytes(4, "big") + topic_id + bytes(40)


def config(name: str, value: str | None, *, of: str = "kept", kind: int = TOPIC_RESOURCE) -> bytes:
    return framed(4, ConfigRecord(resource_type=kind, resource_name=of, name=name, value=value))


def write(path: Path, base_offset: int, *values: bytes) -> None:
    records = [NewRecord(None, value, (), 1) for value in values]
    path.write_bytes(build_batch(records, base_offset=base_offset))


def leave(directory: Path, **topics: Uuid) -> Path:
    for name, topic_id in topics.items():
        (directory / f"{name}-0").mkdir(parents=True)
        write_partition_metadata(directory / f"{name}-0", topic_id)
    metadata = directory / "__cluster_metadata-0"
    metadata.mkdir()
    return metadata


def test_the_newest_snapshot_counts_and_what_came_after_it(tmp_path: Path) -> None:
    metadata = leave(tmp_path, kept=KEPT, gone=GONE, stray=UNKNOWN)
    write(metadata / f"{5:020}-0000000001.checkpoint", 0, config("retention.ms", "1", of="outdated"))
    write(
        metadata / f"{10:020}-0000000001.checkpoint",
        0,
        framed(2, TopicRecord(name="kept", topic_id=KEPT)),
        framed(2, TopicRecord(name="gone", topic_id=GONE)),
        partition(0, KEPT),
        partition(2, KEPT),
        config("retention.ms", "5"),
        config("cleanup.policy", "compact"),
        framed(15, ProducerIdsRecord(broker_id=1, broker_epoch=3, next_producer_id=2000)),
    )
    write(
        metadata / f"{0:020}.log",
        8,
        config("retention.ms", "before the snapshot"),
        config("cleanup.policy", "before the snapshot"),
        config("retention.ms", "7"),
        config("cleanup.policy", None),
        config("log.retention.ms", "9", of="1", kind=BROKER_RESOURCE),
        framed(9, RemoveTopicRecord(topic_id=GONE)),
        bytes([1, 99, 0, 1, 2, 3]),
    )
    found = find_topics([tmp_path])
    (topic,) = found.topics
    assert (topic.name, topic.topic_id, topic.configs) == ("kept", KEPT, {"retention.ms": "7"})
    assert (topic.partition_count, topic.missing) == (3, [1, 2])
    assert (found.unknown, found.next_producer_id) == (["gone", "stray"], 2000)
