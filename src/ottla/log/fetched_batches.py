"""Reads what a leader has sent to a follower: header and checksum of each batch, once, and nothing else.

Followers store every batch there is, so this is written for speed; `preparation.split_batches` says the same with
objects.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.errors import CorruptBatchError, InvalidRecordError
from ottla.log.segment import WrittenBatch
from ottla.records.batch import (
    CONTROL_BIT,
    CRC_START,
    HEADER_SIZE,
    HEADER_STRUCT,
    MAGIC_V2,
    MAX_SEQUENCE,
    NO_SEQUENCE,
    OFFSET_AND_LENGTH_SIZE,
    TRANSACTIONAL_BIT,
)
from ottla.records.checksum import crc32c

_unpack_header = HEADER_STRUCT.unpack_from
_MIN_BATCH_LENGTH = HEADER_SIZE - OFFSET_AND_LENGTH_SIZE

ProducerBatch = tuple[int, int, int, int, int, int, int, bool]
"""The arguments of `ProducerStates.apply_batch`."""


class FetchedBatches(NamedTuple):
    size: int
    """Of all whole batches; the part of another may follow."""
    first_offset: int
    max_timestamp: int
    written: list[WrittenBatch]
    """Positions count from the first batch."""
    of_producers: list[ProducerBatch]
    new_epochs: list[tuple[int, int]]
    """Leader epochs that begin here, each with its first offset."""
    has_control: bool
    """Whether there are markers of transactions among them, which say more than their headers do."""


def read_fetched(records: memoryview, next_offset: int, latest_epoch: int) -> FetchedBatches:
    """The whole batches in `records`, which go on a log that ends at `next_offset`. Gaps are allowed."""
    position, size = 0, len(records)
    first_offset, newest = next_offset, -1
    written: list[WrittenBatch] = []
    of_producers: list[ProducerBatch] = []
    new_epochs: list[tuple[int, int]] = []
    has_control = False
    while size - position >= HEADER_SIZE:
        (base_offset, length, leader_epoch, magic, crc, attributes, last_delta, _, max_timestamp, producer_id,
         producer_epoch, base_sequence, _) = _unpack_header(records, position)  # fmt: skip
        end = position + OFFSET_AND_LENGTH_SIZE + length
        if magic != MAGIC_V2 or length < _MIN_BATCH_LENGTH:
            raise CorruptBatchError(f"at position {position} there is no batch of magic {MAGIC_V2}")
        if end > size:
            break
        if crc32c(records[position + CRC_START : end]) != crc:
            raise CorruptBatchError(f"the batch of offset {base_offset} has a wrong checksum")
        if base_offset < next_offset:
            raise InvalidRecordError(f"a batch of offset {base_offset} cannot follow, the log goes on at {next_offset}")
        last_offset = base_offset + last_delta
        if not written:
            first_offset = base_offset
        written.append((position, last_offset, max_timestamp))
        if max_timestamp > newest:
            newest = max_timestamp
        if leader_epoch != latest_epoch:
            latest_epoch = leader_epoch
            new_epochs.append((leader_epoch, base_offset))
        if attributes & CONTROL_BIT:
            has_control = True
        elif producer_id >= 0:
            last_sequence = NO_SEQUENCE if base_sequence == NO_SEQUENCE else (base_sequence + last_delta) & MAX_SEQUENCE
            is_transactional = attributes & TRANSACTIONAL_BIT != 0
            of_producers.append(
                (producer_id, producer_epoch, base_sequence, last_sequence, base_offset, last_offset, max_timestamp,
                 is_transactional)
            )  # fmt: skip
        position, next_offset = end, last_offset + 1
    return FetchedBatches(position, first_offset, newest, written, of_producers, new_epochs, has_control)
