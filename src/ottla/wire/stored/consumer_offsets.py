"""Keys and values of the records in `__consumer_offsets`.

The key's version tells what the record is: 0 and 1 an offset commit, 2 a classic group, 3 to 8 the parts of a group of
the new protocol (KIP-848). A null value is a tombstone. Keys are never flexible. Offset and group values are written in
version 3, so that Kafka 3 reads them too.
"""

from __future__ import annotations

from ottla.base.types import Uuid
from ottla.wire.fields import array, bytes_, int8, int32, int64, string, struct, uuid
from ottla.wire.message import StoredRecord, Struct


class OffsetCommitKey(StoredRecord, versions="0-1"):
    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(StoredRecord, versions="0-4", flexible="4+"):
    offset: int = int64()
    leader_epoch: int = int32(versions="3+", default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64(versions="1", default=-1, ignorable=True)


class GroupMetadataKey(StoredRecord, versions="2"):
    group: str = string()


class MemberMetadata(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(versions="3+", nullable="3+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32(versions="1+", default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = bytes_()
    assignment: bytes = bytes_()


class GroupMetadataValue(StoredRecord, versions="0-4", flexible="4+"):
    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64(versions="2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)


class ConsumerGroupMetadataKey(StoredRecord, versions="3"):
    group_id: str = string()


class ConsumerGroupMetadataValue(StoredRecord, versions="0", flexible="0+"):
    epoch: int = int32()


class ConsumerGroupPartitionMetadataKey(StoredRecord, versions="4"):
    group_id: str = string()


class PartitionRacks(Struct):
    partition: int = int32()
    racks: list[str] = array(string)


class TopicMetadata(Struct):
    topic_id: Uuid = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionRacks] = array(PartitionRacks)


class ConsumerGroupPartitionMetadataValue(StoredRecord, versions="0", flexible="0+"):
    topics: list[TopicMetadata] = array(TopicMetadata)


class ConsumerGroupMemberMetadataKey(StoredRecord, versions="5"):
    group_id: str = string()
    member_id: str = string()


class ClassicProtocol(Struct):
    name: str = string()
    metadata: bytes = bytes_()


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


class ConsumerGroupMemberMetadataValue(StoredRecord, versions="0", flexible="0+"):
    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata, tag=0, tagged="0+", nullable="0+", default=None
    )


class ConsumerGroupTargetAssignmentMetadataKey(StoredRecord, versions="6"):
    group_id: str = string()


class ConsumerGroupTargetAssignmentMetadataValue(StoredRecord, versions="0", flexible="0+"):
    assignment_epoch: int = int32()


class ConsumerGroupTargetAssignmentMemberKey(StoredRecord, versions="7"):
    group_id: str = string()
    member_id: str = string()


class TargetTopicPartitions(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array(int32)


class ConsumerGroupTargetAssignmentMemberValue(StoredRecord, versions="0", flexible="0+"):
    topic_partitions: list[TargetTopicPartitions] = array(TargetTopicPartitions)


class ConsumerGroupCurrentMemberAssignmentKey(StoredRecord, versions="8"):
    group_id: str = string()
    member_id: str = string()


class CurrentTopicPartitions(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array(int32)


class ConsumerGroupCurrentMemberAssignmentValue(StoredRecord, versions="0", flexible="0+"):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[CurrentTopicPartitions] = array(CurrentTopicPartitions)
    partitions_pending_revocation: list[CurrentTopicPartitions] = array(CurrentTopicPartitions)
