"""What can be wrong with the records of a batch, said in one way by all that read them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NoReturn

from ottla.base.errors import CorruptBatchError
from ottla.records.batch import BatchHeader

_MIN_INT64: Final = -(1 << 63)
_MAX_INT64: Final = (1 << 63) - 1


def check_end(buf: bytes, pos: int, last_delta: int, header: BatchHeader) -> None:
    if pos > len(buf):
        raise_cut_short()
    if pos < len(buf):
        raise CorruptBatchError(f"{len(buf) - pos} bytes are left after the last of {header.record_count} records")
    if last_delta > header.last_offset_delta:
        raise CorruptBatchError(
            f"a record has the offset delta {last_delta}, the last of the batch is {header.last_offset_delta}"
        )


def check_timestamps(timestamps: Iterable[int]) -> None:
    """A delta can carry a timestamp out of the range it is stored in; nobody could write such a record again."""
    found = tuple(timestamps)
    if found and not (min(found) >= _MIN_INT64 and max(found) <= _MAX_INT64):
        raise CorruptBatchError("the timestamp of a record does not fit 64 bits")


def raise_cut_short() -> NoReturn:
    raise CorruptBatchError("the records end within a record") from None


def raise_wrong_length(end: int) -> NoReturn:
    raise CorruptBatchError(f"a record does not end at byte {end}, where its length says")


def raise_negative_length(what: str) -> NoReturn:
    raise CorruptBatchError(f"the {what} of a record has a negative length")


def raise_offset_order(delta: int, last_delta: int) -> NoReturn:
    raise CorruptBatchError(f"the offset delta {delta} of a record does not follow {last_delta}")
