"""Fetch requests by hand, versions 4-17, as light tuples.

A request that cannot be read this way goes to the declared codec, which either reads it or says what is wrong with it.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import NamedTuple

from ottla.base.errors import DecodeError
from ottla.base.types import Uuid
from ottla.wire.apis import fetch as apis
from ottla.wire.fused.fallbacks import FALLBACKS
from ottla.wire.fused.tags import skip_tags
from ottla.wire.primitives import STRING_BYTES_MAX, read_unsigned_varint

FIRST_FLEXIBLE = 12
FIRST_WITH_TOPIC_IDS = 13
SERVED_VERSIONS = range(4, 18)

TopicRef = str | Uuid
"""A topic's name up to version 12, its id from version 13."""


class FetchPartition(NamedTuple):
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FetchPlan(NamedTuple):
    """What a fetch request asks for."""

    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[tuple[TopicRef, list[FetchPartition]]]
    forgotten: list[tuple[TopicRef, list[int]]]
    rack_id: str


_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_REPLICA_STATE = struct.Struct(">iq")

_partition_of = partial(tuple.__new__, FetchPartition)
"""From a tuple that already has the right fields, without NamedTuple's slower constructor."""


def _head_layout(version: int) -> struct.Struct:
    """Replica id, waits and limits, isolation, and the session, up to the topics."""
    form = "iiiib" if version <= 14 else "iiib"
    return struct.Struct(">" + form + ("ii" if version >= 7 else ""))


def _partition_layout(version: int) -> struct.Struct:
    if version >= FIRST_FLEXIBLE:
        return struct.Struct(">iiqiqix")  # the pad byte is the tag count, looked at separately
    if version >= 9:
        return struct.Struct(">iiqqi")
    return struct.Struct(">iqqi" if version >= 5 else ">iqi")


_HEADS = {version: _head_layout(version) for version in SERVED_VERSIONS}
_PARTITIONS = {version: _partition_layout(version) for version in SERVED_VERSIONS}


def decode_fetch(view: memoryview, version: int, position: int = 0) -> FetchPlan:
    """The request whose body starts at `position`; raises DecodeError for anything that is not one."""
    if version not in SERVED_VERSIONS:
        return _decode_declared(view, version, position)
    try:
        plan, end = _decode(view, version, position)
        if end <= len(view):
            return plan
    except (struct.error, IndexError, ValueError, DecodeError):
        pass
    plan = _decode_declared(view, version, position)
    FALLBACKS["fetch"] += 1
    return plan


def _decode(view: memoryview, version: int, position: int) -> tuple[FetchPlan, int]:
    flexible = version >= FIRST_FLEXIBLE
    head = _HEADS[version]
    values = head.unpack_from(view, position)
    if version >= 15:
        values = (-1, *values)
    if version < 7:
        values += (0, -1)
    replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = values
    count, position = _read_count(view, position + head.size, flexible)
    read_partitions = _read_flexible_partitions if flexible else _read_plain_partitions
    topics = []
    for _ in range(count):
        topic, position = _read_topic(view, position, version)
        partitions, position = read_partitions(view, position, version)
        if flexible:
            position = skip_tags(view, position) if view[position] else position + 1
        topics.append((topic, partitions))
    forgotten: list[tuple[TopicRef, list[int]]] = []
    if version >= 7:
        forgotten, position = _read_forgotten(view, position, version)
    rack_id = ""
    if version >= 11:
        rack_id, position = _read_string(view, position, flexible)
    replica_epoch = -1
    # Looking at the number of tags also makes sure that it is there.
    if flexible and view[position]:
        replica_id, replica_epoch, position = _read_body_tags(view, position, version, replica_id)
    plan = FetchPlan(
        replica_id,
        replica_epoch,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack_id,
    )
    return plan, position


def _read_plain_partitions(view: memoryview, position: int, version: int) -> tuple[list[FetchPartition], int]:
    layout = _PARTITIONS[version]
    count, start = _read_count(view, position, False)
    end = start + count * layout.size
    rows = layout.iter_unpack(view[start:end])
    if version >= 9:
        found = [_partition_of((p, epoch, offset, -1, log_start, most)) for p, epoch, offset, log_start, most in rows]
    elif version >= 5:
        found = [_partition_of((p, -1, offset, -1, log_start, most)) for p, offset, log_start, most in rows]
    else:
        found = [_partition_of((p, -1, offset, -1, -1, most)) for p, offset, most in rows]
    return found, end


def _read_flexible_partitions(view: memoryview, position: int, version: int) -> tuple[list[FetchPartition], int]:
    layout = _PARTITIONS[version]
    count, start = _read_count(view, position, True)
    end = start + count * layout.size
    if end > len(view):
        raise ValueError("too many partitions")
    if not any(view[start + layout.size - 1 : end : layout.size]):
        return list(map(_partition_of, layout.iter_unpack(view[start:end]))), end
    # Somebody sends tags, so the partitions are not of one size.
    found = []
    for _ in range(count):
        found.append(_partition_of(layout.unpack_from(view, start)))
        start = skip_tags(view, start + layout.size - 1)
    return found, start


def _read_forgotten(view: memoryview, position: int, version: int) -> tuple[list[tuple[TopicRef, list[int]]], int]:
    flexible = version >= FIRST_FLEXIBLE
    count, position = _read_count(view, position, flexible)
    forgotten: list[tuple[TopicRef, list[int]]] = []
    for _ in range(count):
        topic, position = _read_topic(view, position, version)
        indexes, position = _read_count(view, position, flexible)
        forgotten.append((topic, list(struct.unpack_from(f">{indexes}i", view, position))))
        position += 4 * indexes
        if flexible:
            position = skip_tags(view, position) if view[position] else position + 1
    return forgotten, position


def _read_body_tags(view: memoryview, position: int, version: int, replica_id: int) -> tuple[int, int, int]:
    """Replica id and epoch, from version 15 in tag 1, and the position after the tags, which may be beyond the end."""
    replica_epoch = -1
    count, position = read_unsigned_varint(view, position)
    for _ in range(count):
        tag, position = read_unsigned_varint(view, position)
        size, position = read_unsigned_varint(view, position)
        if tag == 1 and version >= 15:
            replica_id, replica_epoch = _REPLICA_STATE.unpack_from(view, position)
            if skip_tags(view, position + _REPLICA_STATE.size) != position + size:
                raise ValueError("tag size")
        elif tag == 0:
            raise ValueError("a cluster id has to be checked for its form")
        position += size
    return replica_id, replica_epoch, position


def _read_topic(view: memoryview, position: int, version: int) -> tuple[TopicRef, int]:
    if version >= FIRST_WITH_TOPIC_IDS:
        return Uuid(bytes(view[position : position + 16])), position + 16
    return _read_string(view, position, version >= FIRST_FLEXIBLE)


def _read_string(view: memoryview, position: int, flexible: bool) -> tuple[str, int]:
    if flexible:
        length, position = read_unsigned_varint(view, position)
        length -= 1
    else:
        (length,) = _INT16.unpack_from(view, position)
        position += 2
    if not 0 <= length <= STRING_BYTES_MAX:
        raise ValueError("string length")
    return str(view[position : position + length], "utf-8"), position + length


def _read_count(view: memoryview, position: int, flexible: bool) -> tuple[int, int]:
    if flexible:
        count = view[position]
        if count > 127:
            count, position = read_unsigned_varint(view, position)
        else:
            position += 1
        count -= 1
    else:
        (count,) = _INT32.unpack_from(view, position)
        position += 4
    if not 0 <= count <= len(view) - position:
        raise ValueError("count")
    return count, position


def _decode_declared(view: memoryview, version: int, position: int) -> FetchPlan:
    request, _ = apis.FetchRequest.decode(view, version, position)
    by_id = version >= FIRST_WITH_TOPIC_IDS
    topics: list[tuple[TopicRef, list[FetchPartition]]] = [
        (topic.topic_id if by_id else topic.topic, [_partition(p) for p in topic.partitions])
        for topic in request.topics
    ]
    forgotten: list[tuple[TopicRef, list[int]]] = [
        (topic.topic_id if by_id else topic.topic, topic.partitions) for topic in request.forgotten_topics_data
    ]
    return FetchPlan(
        replica_id=request.replica_state.replica_id if version >= 15 else request.replica_id,
        replica_epoch=request.replica_state.replica_epoch,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        isolation_level=request.isolation_level,
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        topics=topics,
        forgotten=forgotten,
        rack_id=request.rack_id,
    )


def _partition(declared: apis.FetchPartition) -> FetchPartition:
    return FetchPartition(
        declared.partition,
        declared.current_leader_epoch,
        declared.fetch_offset,
        declared.last_fetched_epoch,
        declared.log_start_offset,
        declared.partition_max_bytes,
    )
