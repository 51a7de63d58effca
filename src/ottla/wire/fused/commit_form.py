"""What the commits of one client for one partition have in common: all but the offset, its epoch and its metadata."""

from __future__ import annotations

import struct

from ottla.wire.fused.offset_commit import Commit, encode_offset_key

_FIRST_FLEXIBLE = 8
_COMMON_BYTES = {6: 22, 7: 24, 8: 14, 9: 14}
"""By version: what stands before the offset of a request of one partition, besides group, member and topic."""
_NAME_BYTES_MAX = 126
"""In flexible versions a longer name has more than one byte for its length."""

_unpack_plain_rest = struct.Struct(">qih").unpack_from
_unpack_rest = struct.Struct(">qiB").unpack_from
_unpack_tags = struct.Struct(">BBB").unpack_from
_NO_TAGS = (0, 0, 0)


class CommitForm:
    """Reads requests that are like an earlier one, with one comparison in place of most of their fields."""

    __slots__ = ("_common", "_common_bytes", "_head", "_index", "_topic", "_unpack_common", "_version", "key")

    def __init__(self, commit: Commit, version: int, frame: memoryview, position: int) -> None:
        """`commit` is what `frame` holds from `position` on, and `has_form` is true of it."""
        group_id, _, member_id, _, ((topic, (partition,)),) = commit
        self.key = encode_offset_key(group_id, topic, partition[0])
        """Of the record."""
        self._head = commit[:4]
        self._topic = topic
        self._index = partition[0]
        self._version = version
        names = sum(len(name.encode()) for name in (group_id, member_id, topic))
        self._common_bytes = _COMMON_BYTES[version] + names
        # One call, where a slice and its copy are two.
        self._unpack_common = struct.Struct(f"{self._common_bytes}s").unpack_from
        self._common = self._unpack_common(frame, position)

    def read(self, view: memoryview, version: int, position: int) -> Commit | None:
        """None if the request is not like the one before, or has anything unusual in it."""
        try:
            if version != self._version or self._unpack_common(view, position) != self._common:
                return None
            start = position + self._common_bytes
            if version < _FIRST_FLEXIBLE:
                offset, leader_epoch, length = _unpack_plain_rest(view, start)
                start += 14
                end = start + length
                if length < -1 or end > len(view):
                    return None
            else:
                offset, leader_epoch, length = _unpack_rest(view, start)
                start += 13
                end = start + length - 1 if length else start
                if length > _NAME_BYTES_MAX + 1 or _unpack_tags(view, end) != _NO_TAGS:
                    return None
            metadata = str(view[start:end], "utf-8") if end > start else ""
        except (struct.error, ValueError):
            return None
        return *self._head, ((self._topic, ((self._index, offset, leader_epoch, metadata),)),)


def has_form(commit: Commit, version: int) -> bool:
    """Whether a request is of the kind that forms are made of: one partition, no instance, short names."""
    group_id, _, member_id, instance_id, topics = commit
    return (
        version in _COMMON_BYTES
        and instance_id is None
        and len(topics) == 1
        and len(topics[0][1]) == 1
        and all(len(name.encode()) <= _NAME_BYTES_MAX for name in (group_id, member_id, topics[0][0]))
    )
