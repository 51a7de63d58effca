"""OffsetCommit by hand: requests as tuples, replies as whole frames, and the records that commits are stored as.

A request of one partition, versions 6-9, is sliced out of its frame. All others are read by the declared codec, which
is as fast where there is more than one partition to read.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ottla.base.errors import DecodeError
from ottla.wire.apis.offset_commit import OffsetCommitRequest
from ottla.wire.header import response_frame_prefix
from ottla.wire.primitives import write_unsigned_varint

KEY_VERSION, VALUE_VERSION = 1, 3
"""Of the records. The value's version is the last that Apache Kafka 3 reads."""

PartitionCommit = tuple[int, int, int, str]
"""Partition, offset, leader epoch, metadata."""
TopicCommits = Sequence[tuple[str, Sequence[PartitionCommit]]]
"""By topic, in the order of the request."""
Commit = tuple[str, int, str, str | None, TopicCommits]
"""Group, generation or member epoch, member, its instance, and what is committed."""

_FIRST_PLAIN, _FIRST_WITH_INSTANCE, _FIRST_FLEXIBLE = 6, 7, 8
_LAST = 9
_FIRST_WITH_THROTTLE = 3

_INT16, _INT32, _INT64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_unpack_int16 = _INT16.unpack_from
# Generation and the member's length; one topic and its length; no instance, one topic and its length.
_unpack_int32_int16 = struct.Struct(">ih").unpack_from
_unpack_no_instance_topic = struct.Struct(">hih").unpack_from
# One partition: number, index, offset, leader epoch, length of its metadata.
_PLAIN_PARTITION = struct.Struct(">iiqih")
_unpack_plain_partition = _PLAIN_PARTITION.unpack_from
# The same in flexible versions, with no tags behind partition, topic and request.
_unpack_int32_int8 = struct.Struct(">iB").unpack_from
_unpack_no_instance_topic_flexible = struct.Struct(">BBB").unpack_from
_PARTITION = struct.Struct(">BiqiB")
_unpack_partition = _PARTITION.unpack_from
_unpack_tags = struct.Struct(">BBB").unpack_from
_NO_TAGS = (0, 0, 0)
_SHORT = range(1, 128)
"""Lengths of strings in flexible versions, plus one, that take a single byte."""

# Size, correlation id, throttle time, one topic, the length of its name; then one partition and its error.
_pack_plain_head, _pack_plain_end = struct.Struct(">iiiih").pack, struct.Struct(">iih").pack
_pack_head, _pack_end = struct.Struct(">iiBiBB").pack, struct.Struct(">BihBBB").pack
_PLAIN_RESULT = struct.Struct(">ih")
_RESULT = struct.Struct(">ihB")
_KEY_HEAD = struct.Struct(">hh")
_VALUE_HEAD = struct.Struct(">hqih")


# --- requests -------------------------------------------------------------------------------------------------------


def read_commit(view: memoryview, version: int, position: int) -> Commit | None:
    """The request whose body starts at `position`; None for one with anything unusual in it, and for what is none.

    A usual one names some topics, each of them once and with partitions, and asks for no retention time of its own.
    """
    try:
        single = None
        if _FIRST_FLEXIBLE <= version <= _LAST:
            single = _read_single_flexible(view, position)
        elif _FIRST_PLAIN <= version < _FIRST_FLEXIBLE:
            single = _read_single_plain(view, version, position)
        if single is not None:
            return single
    except (struct.error, IndexError, ValueError):
        pass
    return _read_declared(view, version, position)


def _read_declared(view: memoryview, version: int, position: int) -> Commit | None:
    try:
        request, _ = OffsetCommitRequest.decode(view, version, position)
    except DecodeError:
        return None
    names = {topic.name for topic in request.topics if topic.partitions}
    if not names or len(names) < len(request.topics) or request.retention_time_ms >= 0:
        return None
    topics = [
        (
            topic.name,
            [
                (p.partition_index, p.committed_offset, p.committed_leader_epoch, p.committed_metadata or "")
                for p in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    member_id, instance_id = request.member_id, request.group_instance_id
    return request.group_id, request.generation_id_or_member_epoch, member_id, instance_id, topics


def _read_single_plain(view: memoryview, version: int, position: int) -> Commit | None:
    (group_bytes,) = _unpack_int16(view, position)
    group_start = position + 2
    group_end = group_start + group_bytes
    generation, member_bytes = _unpack_int32_int16(view, group_end)
    member_start = group_end + 6
    member_end = member_start + member_bytes
    if version < _FIRST_WITH_INSTANCE:
        no_instance = -1
        topic_count, topic_bytes = _unpack_int32_int16(view, member_end)
        topic_start = member_end + 6
    else:
        no_instance, topic_count, topic_bytes = _unpack_no_instance_topic(view, member_end)
        topic_start = member_end + 8
    topic_end = topic_start + topic_bytes
    partition_count, index, offset, leader_epoch, metadata_bytes = _unpack_plain_partition(view, topic_end)
    metadata_start = topic_end + 22
    metadata_end = metadata_start + metadata_bytes
    if (
        topic_count != 1
        or partition_count != 1
        or no_instance != -1
        or group_bytes < 0
        or member_bytes < 0
        or topic_bytes < 0
        or metadata_bytes < -1
        or metadata_end > len(view)
    ):
        return None
    metadata = str(view[metadata_start:metadata_end], "utf-8") if metadata_bytes > 0 else ""
    return (
        str(view[group_start:group_end], "utf-8"),
        generation,
        str(view[member_start:member_end], "utf-8") if member_bytes else "",
        None,
        ((str(view[topic_start:topic_end], "utf-8"), ((index, offset, leader_epoch, metadata),)),),
    )


def _read_single_flexible(view: memoryview, position: int) -> Commit | None:
    group_bytes = view[position]
    group_end = position + group_bytes
    generation, member_bytes = _unpack_int32_int8(view, group_end)
    member_start = group_end + 5
    member_end = member_start + member_bytes - 1
    instance, topic_count, topic_bytes = _unpack_no_instance_topic_flexible(view, member_end)
    topic_start = member_end + 3
    topic_end = topic_start + topic_bytes - 1
    partition_count, index, offset, leader_epoch, metadata_bytes = _unpack_partition(view, topic_end)
    metadata_start = topic_end + 18
    metadata_end = metadata_start + (metadata_bytes - 1 if metadata_bytes else 0)
    if (
        topic_count != 2
        or partition_count != 2
        or instance
        or group_bytes not in _SHORT
        or member_bytes not in _SHORT
        or topic_bytes not in _SHORT
        or metadata_bytes > 127
        or _unpack_tags(view, metadata_end) != _NO_TAGS
    ):
        return None
    return (
        str(view[position + 1 : group_end], "utf-8"),
        generation,
        str(view[member_start:member_end], "utf-8"),
        None,
        (
            (
                str(view[topic_start:topic_end], "utf-8"),
                ((index, offset, leader_epoch, str(view[metadata_start:metadata_end], "utf-8")),),
            ),
        ),
    )


# --- replies --------------------------------------------------------------------------------------------------------


def encode_commit_reply(version: int, correlation_id: int, topics: TopicCommits, error_code: int = 0) -> bytes:
    """A whole frame that says the same of every partition."""
    if len(topics) == 1 and len(topics[0][1]) == 1 and version >= _FIRST_WITH_THROTTLE:
        return _encode_single_reply(version, correlation_id, topics, error_code)
    if version >= _FIRST_FLEXIBLE:
        return _encode_flexible_reply(correlation_id, topics, error_code)
    throttle = b"\x00\x00\x00\x00" if version >= _FIRST_WITH_THROTTLE else b""
    parts = [b"", throttle, _INT32.pack(len(topics))]
    for topic, partitions in topics:
        name = topic.encode()
        parts += (_INT16.pack(len(name)), name, _INT32.pack(len(partitions)))
        for partition in partitions:
            parts.append(_PLAIN_RESULT.pack(partition[0], error_code))
    body = b"".join(parts)
    return response_frame_prefix(0, correlation_id, len(body)) + body


def _encode_single_reply(version: int, correlation_id: int, topics: TopicCommits, error_code: int) -> bytes:
    topic, partitions = topics[0]
    index = partitions[0][0]
    name = topic.encode()
    length = len(name)
    if version < _FIRST_FLEXIBLE:
        return (
            _pack_plain_head(length + 24, correlation_id, 0, 1, length) + name + _pack_plain_end(1, index, error_code)
        )
    if length < 127:
        head = _pack_head(length + 21, correlation_id, 0, 0, 2, length + 1)
        return head + name + _pack_end(2, index, error_code, 0, 0, 0)
    return _encode_flexible_reply(correlation_id, topics, error_code)


def _encode_flexible_reply(correlation_id: int, topics: TopicCommits, error_code: int) -> bytes:
    parts = [b"\x00\x00\x00\x00", write_unsigned_varint(len(topics) + 1)]
    for topic, partitions in topics:
        name = topic.encode()
        parts += (write_unsigned_varint(len(name) + 1), name, write_unsigned_varint(len(partitions) + 1))
        for partition in partitions:
            parts.append(_RESULT.pack(partition[0], error_code, 0))
        parts.append(b"\x00")
    parts.append(b"\x00")
    body = b"".join(parts)
    return response_frame_prefix(1, correlation_id, len(body)) + body


# --- stored records -------------------------------------------------------------------------------------------------


def encode_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key of the record in `__consumer_offsets`, in `KEY_VERSION`."""
    group, name = group_id.encode(), topic.encode()
    return b"%b%b%b%b%b" % (
        _KEY_HEAD.pack(KEY_VERSION, len(group)),
        group,
        _INT16.pack(len(name)),
        name,
        _INT32.pack(partition),
    )


def encode_offset_value(offset: int, leader_epoch: int, metadata: str, commit_timestamp_ms: int) -> bytes:
    """Its value, in `VALUE_VERSION`, of an offset that does not expire at a time of its own."""
    text = metadata.encode()
    head = _VALUE_HEAD.pack(VALUE_VERSION, offset, leader_epoch, len(text))
    return b"%b%b%b" % (head, text, _INT64.pack(commit_timestamp_ms))
