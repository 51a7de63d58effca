"""Fetch requests by hand that name one partition or none, versions 11-17: those of most consumers.

Whatever else a request may be is for `fetch_request`, which reads them all.
"""

from __future__ import annotations

import struct
from functools import partial

from ottla.base.types import Uuid
from ottla.wire.fused.fetch_request import FIRST_FLEXIBLE, FIRST_WITH_TOPIC_IDS, FetchPartition, TopicRef

_FIRST_WITHOUT_REPLICA = 15

# Replica, waits and limits, isolation, session, one topic, and its id or the length of its name.
_PLAIN, _NAMED, _WITH_ID = struct.Struct(">iiiibiiih"), struct.Struct(">iiiibiiBB"), struct.Struct(">iiiibiiB16s")
_WITHOUT_REPLICA = struct.Struct(">iiibiiB16s")
_HEADS = {11: _PLAIN, 12: _NAMED, 13: _WITH_ID, 14: _WITH_ID} | dict.fromkeys(range(15, 18), _WITHOUT_REPLICA)
_NAME_BYTES_MAX = 126
"""A longer one has more than one byte for its length in flexible versions."""

# One partition and what is behind it: no forgotten topics and no rack, and in flexible versions no tags.
_PLAIN_PARTITION = struct.Struct(">iiiqqiih")
_FLEXIBLE_PARTITION = struct.Struct(">BiiqiqiBBBBB")
_PLAIN_END, _FLEXIBLE_END = [0, 0], [0, 0, 1, 1, 0]

# The same without any topic, for a session in which nothing has changed.
_EMPTY_PLAIN, _EMPTY = struct.Struct(">iiiibiiiih"), struct.Struct(">iiiibiiBBBB")
_EMPTY_WITHOUT_REPLICA = struct.Struct(">iiibiiBBBB")
_EMPTIES = (
    {11: _EMPTY_PLAIN} | dict.fromkeys(range(12, 15), _EMPTY) | dict.fromkeys(range(15, 18), _EMPTY_WITHOUT_REPLICA)
)
_EMPTY_PLAIN_END, _EMPTY_END = (0, 0, 0), (1, 1, 1, 0)

_NO_REPLICA, _NO_EPOCH = -1, -1
_partition_of = partial(tuple.__new__, FetchPartition)
"""From a tuple that already has the right fields, without NamedTuple's slower constructor."""

SingleFetch = tuple[int, int, int, int, int, int, TopicRef | None, FetchPartition | None]
"""Max wait in ms, min bytes, max bytes, isolation level, session id and epoch; topic and partition, or None."""


def read_single_fetch(view: memoryview, version: int, position: int) -> SingleFetch | None:
    """None means that the request is something else, or nothing at all: `decode_fetch` knows."""
    head = _HEADS.get(version)
    if head is None:
        return None
    topic: TopicRef
    try:
        if len(view) - position == _EMPTIES[version].size:
            return _read_empty(view, version, position)
        values = head.unpack_from(view, position)
        if version >= _FIRST_WITHOUT_REPLICA:
            values = (_NO_REPLICA, *values)
        replica_id, wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, topics, ref = values
        end = start = position + head.size
        if version >= FIRST_WITH_TOPIC_IDS:
            topic = Uuid(ref)
        else:
            end += ref if version < FIRST_FLEXIBLE else ref - 1
            if not 0 <= end - start <= _NAME_BYTES_MAX:
                return None
            topic = str(view[start:end], "utf-8")
        if version >= FIRST_FLEXIBLE:
            partitions, *asked, a, b, c, d, e = _FLEXIBLE_PARTITION.unpack_from(view, end)
            is_single = topics == partitions == 2 and [a, b, c, d, e] == _FLEXIBLE_END
        else:
            partitions, index, epoch, offset, log_start, limit, *rest = _PLAIN_PARTITION.unpack_from(view, end)
            asked = [index, epoch, offset, _NO_EPOCH, log_start, limit]
            is_single = topics == partitions == 1 and rest == _PLAIN_END
    except (struct.error, ValueError):
        return None
    if not is_single or replica_id != _NO_REPLICA:
        return None
    return wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, topic, _partition_of(asked)


def _read_empty(view: memoryview, version: int, position: int) -> SingleFetch | None:
    values = _EMPTIES[version].unpack_from(view, position)
    if version >= _FIRST_WITHOUT_REPLICA:
        values = (_NO_REPLICA, *values)
    replica_id, wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, *rest = values
    if replica_id != _NO_REPLICA or tuple(rest) != (_EMPTY_END if version >= FIRST_FLEXIBLE else _EMPTY_PLAIN_END):
        return None
    return wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, None, None
