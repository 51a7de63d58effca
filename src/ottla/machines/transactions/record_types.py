"""From the bytes of `__transaction_state` to its records. Applies nothing."""

from __future__ import annotations

from ottla.base.types import ReadBuffer
from ottla.wire.message import stored_version
from ottla.wire.stored.transaction_state import TransactionLogKey, TransactionLogValue


def parse_record(
    key: ReadBuffer, value: ReadBuffer | None
) -> tuple[TransactionLogKey, TransactionLogValue | None] | None:
    """The record, with a value of None if it is a tombstone; None for a kind of key that a newer broker has written.

    Raises DecodeError on bytes that are not what their version promises.
    """
    if stored_version(key) not in TransactionLogKey.VERSIONS:
        return None
    parsed = None if value is None else TransactionLogValue.decode_versioned(value)
    return TransactionLogKey.decode_versioned(key), parsed
