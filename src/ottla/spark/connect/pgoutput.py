"""PostgreSQL's logical decoding messages (plug-in pgoutput, protocol version 1): bytes in, values out.

Pure: no connection, no clock. What a message means for a table's rows is decided in `change_rows`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum

from ottla.base.errors import ProtocolError

_POSTGRES_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class PgOutputError(ProtocolError):
    """Bytes that are no message of pgoutput, protocol version 1."""


class Unchanged(Enum):
    """A value too large for its row that the update did not touch: the log does not carry it (TOAST)."""

    TOAST = "toast"


Cell = str | None | Unchanged
"""A value as PostgreSQL's text output, NULL, or unchanged and not sent."""

Cells = tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Begin:
    commit_lsn: int
    committed_at: datetime
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    commit_lsn: int
    end_lsn: int
    """Where the transaction's commit record ends: a slot confirmed up to here never sends the transaction again."""
    committed_at: datetime


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type_oid: int
    is_key: bool


@dataclass(frozen=True, slots=True)
class Relation:
    oid: int
    schema: str
    table: str
    replica_identity: str
    """'d' primary key, 'i' an index, 'f' the whole row, 'n' nothing."""
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Insert:
    relation_oid: int
    after: Cells


@dataclass(frozen=True, slots=True)
class Update:
    relation_oid: int
    old_key: Cells | None
    """The old row with only its key filled in: sent when the key has changed."""
    before: Cells | None
    """The whole old row: sent when the table's replica identity is FULL."""
    after: Cells


@dataclass(frozen=True, slots=True)
class Delete:
    relation_oid: int
    old_key: Cells | None
    before: Cells | None


@dataclass(frozen=True, slots=True)
class Truncate:
    relation_oids: tuple[int, ...]


Message = Begin | Commit | Relation | Insert | Update | Delete | Truncate


def parse_message(data: bytes) -> Message | None:
    """The message in `data`; None for kinds that change no row (origin, type, a message of an application)."""
    cursor = _Cursor(data)
    kind = cursor.letter()
    if kind in _WITHOUT_ROWS:
        return None
    parse = _PARSERS.get(kind)
    if parse is None:
        raise PgOutputError(f"unknown message {kind!r}: only protocol version 1 of pgoutput is understood")
    message = parse(cursor)
    cursor.expect_end()
    return message


class _Cursor:
    """Reads fields off one message; running over its end is an error that says where."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def _unpack(self, form: struct.Struct) -> int:
        try:
            (value,) = form.unpack_from(self._data, self._position)
        except struct.error:
            raise self._truncated() from None
        self._position += form.size
        return int(value)

    def _truncated(self) -> PgOutputError:
        return PgOutputError(f"the message ends at byte {len(self._data)}, in the middle of a field")

    def letter(self) -> str:
        return chr(self._unpack(_UINT8))

    def uint8(self) -> int:
        return self._unpack(_UINT8)

    def int16(self) -> int:
        return self._unpack(_INT16)

    def int32(self) -> int:
        return self._unpack(_INT32)

    def uint32(self) -> int:
        return self._unpack(_UINT32)

    def lsn(self) -> int:
        return self._unpack(_UINT64)

    def timestamp(self) -> datetime:
        microseconds = self._unpack(_INT64)
        try:
            return _POSTGRES_EPOCH + timedelta(microseconds=microseconds)
        except OverflowError:
            raise PgOutputError(f"{microseconds} microseconds from 2000 is no time") from None

    def text(self) -> str:
        """A string that ends with a zero byte."""
        try:
            end = self._data.index(b"\0", self._position)
        except ValueError:
            raise self._truncated() from None
        value = self._decode(self._data[self._position : end])
        self._position = end + 1
        return value

    def sized_text(self) -> str:
        size = self.int32()
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise self._truncated()
        value = self._decode(self._data[self._position : end])
        self._position = end
        return value

    def _decode(self, raw: bytes) -> str:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as e:
            raise PgOutputError("text that is not UTF-8: set client_encoding to UTF8 on the connection") from e

    def cells(self) -> Cells:
        return tuple(self._cell() for _ in range(self.int16()))

    def _cell(self) -> Cell:
        kind = self.letter()
        if kind == "n":
            return None
        if kind == "u":
            return Unchanged.TOAST
        if kind == "t":
            return self.sized_text()
        raise PgOutputError(f"a value of kind {kind!r}: ask for text values, not binary ones")

    def expect_end(self) -> None:
        left_over = len(self._data) - self._position
        if left_over:
            raise PgOutputError(f"{left_over} bytes follow the message")


_UINT8 = struct.Struct(">B")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT64 = struct.Struct(">q")
_UINT64 = struct.Struct(">Q")


def _begin(cursor: _Cursor) -> Begin:
    return Begin(commit_lsn=cursor.lsn(), committed_at=cursor.timestamp(), xid=cursor.uint32())


def _commit(cursor: _Cursor) -> Commit:
    cursor.uint8()
    return Commit(commit_lsn=cursor.lsn(), end_lsn=cursor.lsn(), committed_at=cursor.timestamp())


def _relation(cursor: _Cursor) -> Relation:
    oid = cursor.uint32()
    schema = cursor.text()
    table = cursor.text()
    replica_identity = cursor.letter()
    columns = tuple(_column(cursor) for _ in range(cursor.int16()))
    # The system schema is sent as an empty name.
    return Relation(oid, schema or "pg_catalog", table, replica_identity, columns)


def _column(cursor: _Cursor) -> Column:
    flags = cursor.uint8()
    name = cursor.text()
    type_oid = cursor.uint32()
    cursor.int32()
    return Column(name, type_oid, is_key=bool(flags & 1))


def _insert(cursor: _Cursor) -> Insert:
    relation_oid = cursor.uint32()
    _expect_new(cursor.letter())
    return Insert(relation_oid, cursor.cells())


def _update(cursor: _Cursor) -> Update:
    relation_oid = cursor.uint32()
    marker = cursor.letter()
    old_key = before = None
    if marker in ("K", "O"):
        old = cursor.cells()
        old_key, before = (old, None) if marker == "K" else (None, old)
        marker = cursor.letter()
    _expect_new(marker)
    return Update(relation_oid, old_key, before, cursor.cells())


def _delete(cursor: _Cursor) -> Delete:
    relation_oid = cursor.uint32()
    marker = cursor.letter()
    if marker == "K":
        return Delete(relation_oid, cursor.cells(), None)
    if marker == "O":
        return Delete(relation_oid, None, cursor.cells())
    raise PgOutputError(f"a deleted row marked {marker!r}, not 'K' or 'O'")


def _truncate(cursor: _Cursor) -> Truncate:
    count = cursor.int32()
    cursor.uint8()
    return Truncate(tuple(cursor.uint32() for _ in range(count)))


def _expect_new(marker: str) -> None:
    if marker != "N":
        raise PgOutputError(f"a new row marked {marker!r}, not 'N'")


_WITHOUT_ROWS = frozenset("OYM")
_PARSERS: dict[str, Callable[[_Cursor], Message]] = {
    "B": _begin,
    "C": _commit,
    "R": _relation,
    "I": _insert,
    "U": _update,
    "D": _delete,
    "T": _truncate,
}


def parse_lsn(text: str) -> int:
    """A log position in PostgreSQL's notation (`16/B374D848`) as a number that can be compared."""
    high, _, low = text.partition("/")
    try:
        return (int(high, 16) << 32) | int(low, 16)
    except ValueError:
        raise PgOutputError(f"{text!r} is no log position of PostgreSQL") from None


def format_lsn(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
