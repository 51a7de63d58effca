"""Knows records of message formats 0 and 1, in order to refuse them: to recovery they would look like damage.

Kafka has not written them by default since 0.11, and does not read them any more since 4.0 (KIP-724).
"""

from __future__ import annotations

import zlib
from pathlib import Path
from struct import Struct

from ottla.base.errors import StartError
from ottla.log.file import LogFile
from ottla.records.batch import OFFSET_AND_LENGTH_SIZE

_HEAD = Struct(">qiIb")
_AFTER_CRC = 16
_MIN_LENGTH = 14


def refuse_old_format(log: LogFile, position: int, size: int) -> None:
    """Raises StartError if at `position` of a file of `size` bytes there is an entry of an old format."""
    if position + _HEAD.size > size:
        return
    _, length, crc, magic = _HEAD.unpack(log.read_at(position, _HEAD.size))
    end = position + OFFSET_AND_LENGTH_SIZE + length
    if magic not in (0, 1) or length < _MIN_LENGTH or end > size:
        return
    if zlib.crc32(log.read_at(position + _AFTER_CRC, end - position - _AFTER_CRC)) == crc:
        raise _refusal(log.path, magic)


def _refusal(path: Path, magic: int) -> StartError:
    return StartError(
        f"{path} holds records of message format {magic}, and only format 2 can be read (KIP-724); they are left as "
        "they are: copy the topic with a Kafka 3.x broker, whose default format is 2, or move its directories away"
    )
