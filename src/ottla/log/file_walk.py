"""Walks over the batches of a log file by their headers, without an index; payloads are skipped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from struct import Struct

from ottla.base.errors import CorruptBatchError
from ottla.log.file import LogFile
from ottla.records.batch import HEADER_SIZE, MAGIC_V2, OFFSET_AND_LENGTH_SIZE, BatchHeader, read_header

_MIN_BATCH_LENGTH = HEADER_SIZE - OFFSET_AND_LENGTH_SIZE
_WALK_BYTES = 8192
_SCAN_BYTES = 65536

_walk_header = Struct(">qi4xb6xi")
_unpack_walk = _walk_header.unpack_from


def begins_with_batch(found: bytes, first_offset: int, last_offset: int) -> bool:
    """Whether there is a batch whose base offset lies between the two, which belong to the range."""
    if len(found) < _walk_header.size:
        return False
    base_offset: int
    base_offset, length, magic, _ = _unpack_walk(found)
    return first_offset <= base_offset <= last_offset and magic == MAGIC_V2 and length >= _MIN_BATCH_LENGTH


def walk_to(log: LogFile, position: int, size: int, offset: int, check: Callable[[bytes], None] | None = None) -> int:
    """From the batch at `position` to the first one that reaches `offset`; `size`, where the data ends, if none does.

    `check` may object to what lies at `position`, before any of it is believed.
    """
    while position < size:
        chunk = os.pread(log.fd, _WALK_BYTES, position)
        if check is not None:
            check(chunk)
            check = None
        at, last_start = 0, len(chunk) - _walk_header.size
        while at <= last_start and position + at < size:
            base_offset, length, magic, last_delta = _unpack_walk(chunk, at)
            if magic != MAGIC_V2 or length < _MIN_BATCH_LENGTH:
                raise CorruptBatchError(f"{log.path} holds no batch at position {position + at}")
            if base_offset + last_delta >= offset:
                return position + at
            at += OFFSET_AND_LENGTH_SIZE + length
        if at == 0:
            raise CorruptBatchError(f"{log.path} ends inside the batch at position {position}")
        position += at
    if position > size:
        # Not the same as an offset that compaction removed: to go on in the next segment would hide records.
        raise CorruptBatchError(f"{log.path} ends inside a batch")
    return size


def iter_file(log: LogFile, position: int, size: int) -> Iterator[tuple[int, BatchHeader]]:
    """Every batch from `position` to `size`, by its header."""
    while position < size:
        chunk = log.read_at(position, min(_SCAN_BYTES, size - position))
        at = 0
        while at + HEADER_SIZE <= len(chunk):
            header = read_header(chunk, at)
            if header.magic != MAGIC_V2 or header.batch_length < _MIN_BATCH_LENGTH:
                raise CorruptBatchError(f"{log.path} holds no batch at position {position + at}")
            if position + at + header.size > size:
                raise CorruptBatchError(f"{log.path} ends inside the batch at position {position + at}")
            yield position + at, header
            at += header.size
        if at == 0:
            raise CorruptBatchError(f"{log.path} ends inside the batch at position {position}")
        position += at
