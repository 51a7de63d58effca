"""From a sequence of changes to what is to be done to a table: per key only the last state, in few statements. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import NamedTuple

from ottla.base.errors import OttlaError
from ottla.spark.connect.database import Converters, SqlValue
from ottla.spark.connect.sql import Dialect

MAX_PENDING_KEYS = 10_000

Row = dict[str, SqlValue]
Key = tuple[SqlValue, ...]


class ChangeError(OttlaError):
    """A change that cannot be applied to the table."""


class Change(NamedTuple):
    op: str
    before: str | None
    after: str | None
    key: str | None


class Step(NamedTuple):
    """A statement with `?` for parameters, and the rows of parameters to run it with."""

    statement: str
    rows: list[list[SqlValue]]


class _State(NamedTuple):
    """The row as it will be (`whole`), some of its columns, or gone (None)."""

    row: Row | None
    whole: bool


class ChangeFold:
    """Takes changes in their order and gives statements. Keys are distinct between two barriers (a changed key, an
    emptied table), so within one the order of statements does not matter."""

    def __init__(
        self,
        table: str,
        names: Sequence[str],
        keys: Sequence[str],
        dialect: Dialect,
        converters: Converters = MappingProxyType({}),
    ) -> None:
        self._table = table
        self._dialect = dialect
        self._converters = converters
        self._names = frozenset(names)
        self._keys = list(keys)
        self._pending: dict[Key, _State] = {}

    def steps(self, changes: Iterable[Change]) -> Iterator[Step]:
        for change in changes:
            yield from self._take(change)
            if len(self._pending) >= MAX_PENDING_KEYS:
                yield from self._flush()
        yield from self._flush()

    def _take(self, change: Change) -> Iterator[Step]:
        match change.op:
            case "insert" | "snapshot":
                row = self._row(change.after)
                self._pending[self._key(row)] = _State(row, whole=True)
            case "update":
                yield from self._take_update(change)
            case "delete":
                self._pending[self._key(self._row(change.key or change.before))] = _State(None, whole=True)
            case "truncate":
                self._pending.clear()
                yield Step(f"DELETE FROM {self._quoted_table()}", [[]])
            case other:
                raise ChangeError(f"there is no change {other!r}: it is insert, update, delete, truncate or snapshot")

    def _take_update(self, change: Change) -> Iterator[Step]:
        row = self._row(change.after)
        key = self._key(row)
        old = key if change.before is None else self._key(self._row(change.before))
        if old != key:
            yield from self._flush()
            yield self._update(tuple(row), [row], [old])
            return
        state = self._pending.get(key)
        whole = False
        if state is not None and state.row is not None:
            row, whole = state.row | row, state.whole
        self._pending[key] = _State(row, whole or row.keys() >= self._names)

    def _flush(self) -> Iterator[Step]:
        pending, self._pending = self._pending, {}
        gone = [list(key) for key, state in pending.items() if state.row is None]
        if gone:
            yield Step(f"DELETE FROM {self._quoted_table()} WHERE {self._matches_key()}", gone)
        for (whole, names), group in _by_columns(pending).items():
            rows = [row for _, row in group]
            if whole:
                yield Step(
                    self._dialect.insert_statement(self._table, names, self._keys), [list(row.values()) for row in rows]
                )
            else:
                # Not an upsert: a row that is not there cannot be made from some of its columns.
                yield self._update(names, rows, [key for key, _ in group])

    def _update(self, names: Sequence[str], rows: list[Row], keys: list[Key]) -> Step:
        changes = ", ".join(f"{self._dialect.quoted(name)} = ?" for name in names)
        statement = f"UPDATE {self._quoted_table()} SET {changes} WHERE {self._matches_key()}"
        return Step(statement, [[*row.values(), *key] for row, key in zip(rows, keys, strict=True)])

    def _quoted_table(self) -> str:
        return self._dialect.quoted_table(self._table)

    def _matches_key(self) -> str:
        return " AND ".join(f"{self._dialect.quoted(key)} = ?" for key in self._keys)

    def _key(self, row: Row) -> Key:
        try:
            return tuple(row[key] for key in self._keys)
        except KeyError as e:
            raise ChangeError(f"a change does not tell the key column {e.args[0]!r} of {self._table}") from None

    def _row(self, text: str | None) -> Row:
        try:
            decoded = json.loads(text or "", parse_float=Decimal)
        except ValueError:
            raise ChangeError(f"a change of {self._table} holds no JSON: {(text or '')[:100]!r}") from None
        if not isinstance(decoded, dict):
            raise ChangeError(f"a change of {self._table} holds no JSON object: {(text or '')[:100]!r}")
        unknown = [name for name in decoded if name not in self._names]
        if unknown:
            raise ChangeError(
                f"table {self._table} has no column {', '.join(map(repr, unknown))}, which a change fills: add it"
            )
        return {name: self._converted(name, _sql_value(value)) for name, value in sorted(decoded.items())}

    def _converted(self, name: str, value: SqlValue) -> SqlValue:
        convert = self._converters.get(name)
        return value if convert is None or value is None else convert(value)


def _by_columns(pending: Mapping[Key, _State]) -> dict[tuple[bool, tuple[str, ...]], list[tuple[Key, Row]]]:
    groups: dict[tuple[bool, tuple[str, ...]], list[tuple[Key, Row]]] = {}
    for key, state in pending.items():
        if state.row is not None:
            row = dict(sorted(state.row.items()))
            groups.setdefault((state.whole, tuple(row)), []).append((key, row))
    return groups


def _sql_value(value: object) -> SqlValue:
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False, default=_plain_number)
    if isinstance(value, Decimal):
        return format(value, "f")
    assert value is None or isinstance(value, (str, int, float, bool))
    return value


def _plain_number(value: object) -> object:
    if isinstance(value, Decimal):
        return float(value)
    raise TypeError(f"{type(value).__name__} is no JSON")
