"""From decoded messages to rows of changes: one row per inserted, updated or deleted row, values as JSON.

Pure: it remembers the relations it was told of and the transaction it is in, nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from ottla.spark.connect.pgoutput import (
    Begin,
    Cell,
    Cells,
    Column,
    Commit,
    Delete,
    Insert,
    Message,
    PgOutputError,
    Relation,
    Truncate,
    Unchanged,
    Update,
)

_BOOL_OID = 16
_NUMBER_OIDS = frozenset({20, 21, 23, 26, 700, 701, 1700})
_NOT_JSON_NUMBERS = frozenset({"NaN", "Infinity", "-Infinity"})


PrimaryKeys = Mapping[tuple[str, str], tuple[str, ...]]


class ChangeRow(NamedTuple):
    op: str
    """insert, update, delete, truncate; snapshot for a row that was there before the first change."""
    schema: str
    table: str
    key: str | None
    """The columns that identify the row, as a JSON object; None where the table has no replica identity."""
    before: str | None
    after: str | None
    lsn: int
    """Where the transaction's commit stands in the log: transactions are ordered by it, their changes by `seq`."""
    seq: int
    xid: int | None
    committed_at: datetime


class ChangeDecoder:
    """Turns the messages of one read of a slot into rows, leaving out transactions before `start_lsn`.

    A slot sends what was not confirmed yet, which may include transactions of an earlier micro-batch. `start_lsn` is
    the end of a commit record, so a transaction belongs to an earlier one exactly if its commit begins before it.
    `primary_keys` by (schema, table) are for tables with replica identity FULL, whose messages do not tell them.
    """

    def __init__(self, start_lsn: int = 0, primary_keys: PrimaryKeys | None = None) -> None:
        self._start_lsn = start_lsn
        self._primary_keys = primary_keys or {}
        self._relations: dict[int, Relation] = {}
        self._begin: Begin | None = None
        self._seq: int
        """Of the next change of the transaction."""

    def feed(self, message: Message | None) -> list[ChangeRow]:
        match message:
            case Begin():
                self._begin = message
                self._seq = 0
            case Commit():
                self._begin = None
            case Relation():
                self._relations[message.oid] = self._with_primary_key(message)
            case Insert() | Update() | Delete() | Truncate():
                return self._rows(message)
            case None:
                pass
        return []

    def _with_primary_key(self, relation: Relation) -> Relation:
        names = self._primary_keys.get((relation.schema, relation.table), ())
        if relation.replica_identity != "f" or not names:
            return relation
        columns = tuple(replace(column, is_key=column.name in names) for column in relation.columns)
        return replace(relation, columns=columns)

    def _rows(self, change: Insert | Update | Delete | Truncate) -> list[ChangeRow]:
        begin = self._begin
        if begin is None:
            raise PgOutputError("a change outside of a transaction: the messages do not start at a Begin")
        if begin.commit_lsn < self._start_lsn:
            return []
        rows = []
        for op, relation, key, before, after in self._images(change):
            rows.append(
                ChangeRow(
                    op=op,
                    schema=relation.schema,
                    table=relation.table,
                    key=key,
                    before=before,
                    after=after,
                    lsn=begin.commit_lsn,
                    seq=self._seq,
                    xid=begin.xid,
                    committed_at=begin.committed_at,
                )
            )
            self._seq += 1
        return rows

    def _images(self, change: Insert | Update | Delete | Truncate) -> list[_Image]:
        if isinstance(change, Truncate):
            return [("truncate", self._relation(oid), None, None, None) for oid in change.relation_oids]
        relation = self._relation(change.relation_oid)
        match change:
            case Insert():
                return [("insert", relation, key_json(relation, change.after), None, row_json(relation, change.after))]
            case Delete():
                old = _either(change.old_key, change.before)
                before = None if change.before is None else row_json(relation, change.before)
                return [("delete", relation, key_json(relation, old), before, None)]
            case Update():
                return _update_images(relation, change)

    def _relation(self, oid: int) -> Relation:
        try:
            return self._relations[oid]
        except KeyError:
            raise PgOutputError(f"a change of the relation {oid}, which was not described before") from None


_Image = tuple[str, Relation, str | None, str | None, str | None]


def _update_images(relation: Relation, change: Update) -> list[_Image]:
    after = _with_known_values(change.after, change.before)
    old = change.before if change.before is not None else change.old_key
    new_key = key_json(relation, after)
    old_key = new_key if old is None else key_json(relation, old)
    before = None if change.before is None else row_json(relation, change.before)
    whole = Unchanged.TOAST not in after
    # A new key is a new row to everyone downstream, who may hold the two keys in different places. It stays one
    # update only if the log lacks a value that the new row needs.
    if old_key != new_key and whole:
        return [
            ("delete", relation, old_key, before, None),
            ("insert", relation, new_key, None, row_json(relation, after)),
        ]
    if old_key != new_key:
        before = old_key
    return [("update", relation, new_key, before, row_json(relation, after))]


def _with_known_values(after: Cells, before: Cells | None) -> Cells:
    """What an update did not send is what the old row held, if that one is known."""
    if before is None:
        return after
    return tuple(old if new is Unchanged.TOAST else new for new, old in zip(after, before, strict=True))


def _either(old_key: Cells | None, before: Cells | None) -> Cells:
    cells = old_key if old_key is not None else before
    assert cells is not None
    return cells


def key_json(relation: Relation, cells: Cells) -> str | None:
    # With replica identity FULL and no primary key every column is marked: only the whole row identifies it.
    keys = [(column, cell) for column, cell in _pairs(relation, cells) if column.is_key]
    return _object(keys) if keys else None


def row_json(relation: Relation, cells: Cells) -> str:
    """The row as a JSON object; a value that was not sent is left out."""
    return _object(_pairs(relation, cells))


def _pairs(relation: Relation, cells: Cells) -> list[tuple[Column, Cell]]:
    if len(cells) != len(relation.columns):
        raise PgOutputError(f"a row of {len(cells)} values for the {len(relation.columns)} columns of {relation.table}")
    return list(zip(relation.columns, cells, strict=True))


def _object(pairs: list[tuple[Column, Cell]]) -> str:
    parts = [
        f"{_quoted(column.name)}:{_value(column.type_oid, cell)}"
        for column, cell in pairs
        if not isinstance(cell, Unchanged)
    ]
    return "{" + ",".join(parts) + "}"


def _value(type_oid: int, text: str | None) -> str:
    """Numbers keep the digits that PostgreSQL gave them. All else is its text, documents too: so nothing is lost."""
    if text is None:
        return "null"
    if type_oid == _BOOL_OID:
        return "true" if text == "t" else "false"
    if type_oid in _NUMBER_OIDS and text not in _NOT_JSON_NUMBERS:
        return text
    return _quoted(text)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
