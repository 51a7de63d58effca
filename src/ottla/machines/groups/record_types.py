"""Which record a key of `__consumer_offsets` announces: bytes in, declared messages out."""

from __future__ import annotations

from ottla.base.types import ReadBuffer
from ottla.wire.message import StoredRecord, stored_version
from ottla.wire.stored import consumer_offsets as stored

RECORD_TYPES: dict[int, tuple[type[StoredRecord], type[StoredRecord]]] = {
    0: (stored.OffsetCommitKey, stored.OffsetCommitValue),
    1: (stored.OffsetCommitKey, stored.OffsetCommitValue),
    2: (stored.GroupMetadataKey, stored.GroupMetadataValue),
    3: (stored.ConsumerGroupMetadataKey, stored.ConsumerGroupMetadataValue),
    4: (stored.ConsumerGroupPartitionMetadataKey, stored.ConsumerGroupPartitionMetadataValue),
    5: (stored.ConsumerGroupMemberMetadataKey, stored.ConsumerGroupMemberMetadataValue),
    6: (stored.ConsumerGroupTargetAssignmentMetadataKey, stored.ConsumerGroupTargetAssignmentMetadataValue),
    7: (stored.ConsumerGroupTargetAssignmentMemberKey, stored.ConsumerGroupTargetAssignmentMemberValue),
    8: (stored.ConsumerGroupCurrentMemberAssignmentKey, stored.ConsumerGroupCurrentMemberAssignmentValue),
}
"""By the version of the key."""


def parse(key: ReadBuffer, value: ReadBuffer | None) -> tuple[StoredRecord, StoredRecord | None] | None:
    """The record, or None for a kind of record that this version does not know and has to leave alone.

    Raises DecodeError on bytes that are not what their version promises.
    """
    types = RECORD_TYPES.get(stored_version(key))
    if types is None:
        return None
    key_type, value_type = types
    return key_type.decode_versioned(key), None if value is None else value_type.decode_versioned(value)
