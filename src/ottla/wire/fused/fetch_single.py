"""Fetch requests by hand that a consumer without a session sends for one partition, versions 11-17.

Whatever else a request may be is for `fetch_request`, which reads them all.
"""

from __future__ import annotations

import struct

from ottla.base.types import Uuid
from ottla.wire.fused.fetch_request import FIRST_FLEXIBLE, FIRST_WITH_TOPIC_IDS, TopicRef

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

_NO_REPLICA, _NO_SESSION, _NO_SESSION_EPOCH, _NO_EPOCH = -1, 0, -1, -1

SingleFetch = tuple[int, int, int, int, TopicRef, int, int, int, int]
"""Max wait in ms, min bytes, max bytes, isolation level, topic; partition, leader epoch, offset, max bytes of it."""


def read_single_fetch(view: memoryview, version: int, position: int) -> SingleFetch | None:
    """None means that the request is something else, or nothing at all: `decode_fetch` knows."""
    head = _HEADS.get(version)
    if head is None:
        return None
    topic: TopicRef
    try:
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
            partitions, index, epoch, offset, last_epoch, _, limit, *rest = _FLEXIBLE_PARTITION.unpack_from(view, end)
            is_single = topics == partitions == 2 and last_epoch == _NO_EPOCH and rest == _FLEXIBLE_END
        else:
            partitions, index, epoch, offset, _, limit, *rest = _PLAIN_PARTITION.unpack_from(view, end)
            is_single = topics == partitions == 1 and rest == _PLAIN_END
    except (struct.error, ValueError):
        return None
    if not is_single or (replica_id, session_id, session_epoch) != (_NO_REPLICA, _NO_SESSION, _NO_SESSION_EPOCH):
        return None
    return wait_ms, min_bytes, max_bytes, isolation, topic, index, epoch, offset, limit
