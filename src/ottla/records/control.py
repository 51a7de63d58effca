"""Control batches: the markers that end a transaction in a partition. Applications never see them."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from ottla.base.errors import CorruptBatchError
from ottla.records.batch import NO_PARTITION_LEADER_EPOCH
from ottla.records.builder import build_batch
from ottla.records.reader import Record

_KEY: Final = Struct(">hh")
_END_MARKER: Final = Struct(">hi")
_VERSION: Final = 0


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndMarker(NamedTuple):
    """How a transaction ended, and the epoch of the coordinator that said so."""

    commit: bool
    coordinator_epoch: int


def end_transaction_marker(
    producer_id: int,
    producer_epoch: int,
    commit: bool,
    coordinator_epoch: int,
    now_ms: int,
    *,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytes:
    """The batch of one record that commits or aborts what the producer has written to a partition."""
    key = _KEY.pack(_VERSION, ControlType.COMMIT if commit else ControlType.ABORT)
    value = _END_MARKER.pack(_VERSION, coordinator_epoch)
    return build_batch(
        [(key, value, (), now_ms)],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        partition_leader_epoch=partition_leader_epoch,
    )


def parse_control_key(key: bytes | None) -> ControlType | None:
    """What kind of control record this is; None if it is of a kind added after this was written.

    Later versions of the key may carry more after the type, so only its beginning is looked at.
    """
    if key is None or len(key) < _KEY.size:
        raise CorruptBatchError("the key of a control record is too short")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptBatchError(f"the key of a control record has the version {version}")
    try:
        return ControlType(kind)
    except ValueError:
        return None


def parse_end_marker(record: Record) -> EndMarker | None:
    """How the transaction ended, or None if the control record is not about a transaction."""
    kind = parse_control_key(record.key)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    value = record.value
    if value is None or len(value) < _END_MARKER.size:
        raise CorruptBatchError("the value of a transaction marker is too short")
    version, coordinator_epoch = _END_MARKER.unpack_from(value)
    if version < 0:
        raise CorruptBatchError(f"the value of a transaction marker has the version {version}")
    return EndMarker(kind is ControlType.COMMIT, coordinator_epoch)
