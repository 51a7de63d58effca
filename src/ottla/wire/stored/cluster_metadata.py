"""Some of the records in `__cluster_metadata`, the log in which Kafka's KRaft controllers keep what a cluster is."""

from __future__ import annotations

from ottla.base.types import NIL_UUID, Uuid
from ottla.wire.fields import int8, int32, int64, string, uuid
from ottla.wire.message import Message
from ottla.wire.primitives import Buffer, read_unsigned_varint

_FRAME_VERSION = 1


class TopicRecord(Message, versions="0", flexible="0+"):
    name: str = string()
    topic_id: Uuid = uuid(default=NIL_UUID)


class PartitionRecord(Message, versions="0-2"):
    """Only how it begins, which is the same in all versions and has no lengths: who holds the partition comes after."""

    partition_id: int = int32()
    topic_id: Uuid = uuid(default=NIL_UUID)


class ConfigRecord(Message, versions="0", flexible="0+"):
    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable="0+")


class RemoveTopicRecord(Message, versions="0", flexible="0+"):
    topic_id: Uuid = uuid(default=NIL_UUID)


class ProducerIdsRecord(Message, versions="0", flexible="0+"):
    broker_id: int = int32()
    broker_epoch: int = int64()
    next_producer_id: int = int64()


ClusterRecord = TopicRecord | PartitionRecord | ConfigRecord | RemoveTopicRecord | ProducerIdsRecord

_KINDS: dict[int, type[ClusterRecord]] = {
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    9: RemoveTopicRecord,
    15: ProducerIdsRecord,
}


def decode_cluster_record(value: Buffer) -> ClusterRecord | None:
    """None for all the kinds there are besides. Each value is led by the version of its frame, its kind and its own
    version."""
    frame_version, position = read_unsigned_varint(value, 0)
    kind, position = read_unsigned_varint(value, position)
    version, position = read_unsigned_varint(value, position)
    record = _KINDS.get(kind)
    if record is None or frame_version != _FRAME_VERSION or version not in record.VERSIONS:
        return None
    return record.decode(value, version, position)[0]
