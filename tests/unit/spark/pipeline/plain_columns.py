"""Expressions of columns that are computed here, row by row, as Spark would."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
import pytest

Row = Mapping[str, Any]


class Column:
    """A value for each row. As in SQL, what is made of NULL is NULL, unless it is `coalesce` or an and/or."""

    def __init__(self, of: Callable[[Row], Any], name: str = "") -> None:
        self.of = of
        self.name = name

    def alias(self, name: str) -> Column:
        return Column(self.of, name)

    def _with(self, other: Any, combine: Callable[[Any, Any], Any]) -> Column:
        right = as_column(other)

        def of(row: Row) -> Any:
            sides = self.of(row), right.of(row)
            return None if None in sides else combine(*sides)

        return Column(of)

    def _map(self, change: Callable[[Any], Any]) -> Column:
        def of(row: Row) -> Any:
            value = self.of(row)
            return None if value is None else change(value)

        return Column(of)

    def __eq__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a == b)

    def __ne__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a != b)

    def __ge__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a >= b)

    def __gt__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a > b)

    def __sub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a - b)

    def __add__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a + b)

    __hash__ = None  # type: ignore[assignment]

    def __and__(self, other: Any) -> Column:
        right = as_column(other)

        def of(row: Row) -> Any:
            sides = self.of(row), right.of(row)
            return False if False in sides else None if None in sides else True

        return Column(of)

    def __or__(self, other: Any) -> Column:
        return ~(~self & ~as_column(other))

    def __invert__(self) -> Column:
        return self._map(lambda value: not value)

    def __getitem__(self, key: Any) -> Column:
        return self._map(lambda value: value[key])

    def isNull(self) -> Column:
        return Column(lambda row: self.of(row) is None)

    def isNotNull(self) -> Column:
        return Column(lambda row: self.of(row) is not None)

    def startswith(self, text: str) -> Column:
        return self._map(lambda value: value.startswith(text))

    def endswith(self, text: str) -> Column:
        return self._map(lambda value: value.endswith(text))

    def cast(self, kind: str) -> Column:
        def cast(value: Any) -> Any:
            if kind == "string":
                return value.decode(errors="surrogateescape") if isinstance(value, bytes) else str(value)
            return value.encode() if kind == "binary" and isinstance(value, str) else value

        return self._map(cast)


class Choice(Column):
    """CASE WHEN."""

    def __init__(self, branches: list[tuple[Column, Column]]) -> None:
        self._branches = branches
        super().__init__(self._chosen)

    def _chosen(self, row: Row) -> Any:
        return next((value.of(row) for condition, value in self._branches if condition.of(row)), None)

    def when(self, condition: Column, value: Any) -> Choice:
        return Choice([*self._branches, (condition, as_column(value))])

    def otherwise(self, value: Any) -> Column:
        return self.when(lit(True), value)


def as_column(value: Any) -> Column:
    return value if isinstance(value, Column) else lit(value)


def named(value: Any) -> Column:
    """Functions take a text for the name of a column."""
    return col(value) if isinstance(value, str) else as_column(value)


def lit(value: Any) -> Column:
    return Column(lambda row: value)


def col(name: str) -> Column:
    first, *path = name.strip("`").split(".")
    column = Column(lambda row: row[first], path[-1] if path else first)
    for key in path:
        column = column.alias(key) if key == "*" else column[key].alias(key)
    return column


def _joined(values: Iterable[Any]) -> Any:
    parts = list(values)
    if None in parts:
        return None
    joined = parts[0]
    for part in parts[1:]:
        joined = joined + part
    return joined


def _array_length(text: str) -> int | None:
    """What follows the array is not looked at."""
    try:
        found, _ = json.JSONDecoder().raw_decode(text.lstrip())
    except ValueError:
        return None
    return len(found) if isinstance(found, list) else None


def _from_json(schema: Any, options: Mapping[str, str], text: str) -> Any:
    assert (options["mode"], options["allowSingleQuotes"]) == ("PERMISSIVE", "false")
    corrupt = options["columnNameOfCorruptRecord"]
    row = dict.fromkeys(schema.names)
    try:
        found, _ = json.JSONDecoder().raw_decode(text.lstrip())
        assert isinstance(found, dict)
    except (ValueError, AssertionError):
        return {**row, corrupt: text}
    return {name: found.get(name) for name in row}


def _from_csv(names: list[str], options: Mapping[str, str], text: str) -> Any:
    assert (options["mode"], options["escape"]) == ("PERMISSIVE", '"')
    cells = next(csv.reader([text]), [])
    corrupt = None if len(cells) == len(names) - 1 else text
    return {
        **dict.fromkeys(names),
        **dict(zip(names, cells, strict=False)),
        options["columnNameOfCorruptRecord"]: corrupt,
    }


class Functions:
    """In the place of `pyspark.sql.functions`."""

    col = staticmethod(col)
    lit = staticmethod(lit)

    def when(self, condition: Column, value: Any) -> Choice:
        return Choice([(condition, as_column(value))])

    def coalesce(self, *columns: Any) -> Column:
        found = [named(column) for column in columns]
        return Column(lambda row: next((v for v in (column.of(row) for column in found) if v is not None), None))

    def array(self, *columns: Column) -> Column:
        return Column(lambda row: [column.of(row) for column in columns])

    def struct(self, *columns: Column) -> Column:
        return Column(lambda row: {column.name: column.of(row) for column in columns})

    def concat(self, *columns: Column) -> Column:
        return Column(lambda row: _joined(column.of(row) for column in columns))

    def filter(self, column: Column, keep: Callable[[Column], Column]) -> Column:
        return column._map(lambda items: [item for item in items if keep(lit(item)).of({})])

    def exists(self, column: Column, has: Callable[[Column], Column]) -> Column:
        return column._map(lambda items: any(has(lit(item)).of({}) for item in items))

    def get(self, column: Column, index: int) -> Column:
        return column._map(lambda items: items[index] if index < len(items) else None)

    def unix_millis(self, column: Any) -> Column:
        return named(column)._map(lambda moment: round(moment.timestamp() * 1000))

    def substring(self, column: Column, first: Column, size: Column) -> Column:
        def of(row: Row) -> Any:
            value, begin, count = column.of(row), first.of(row) - 1, size.of(row)
            return None if value is None or count is None else value[begin : begin + count] if count > 0 else value[:0]

        return Column(of)

    def octet_length(self, column: Column) -> Column:
        return column._map(len)

    def contains(self, column: Column, part: Column) -> Column:
        return column._with(part, lambda value, sought: sought in value)

    def rtrim(self, column: Column, signs: Column) -> Column:
        return column._with(signs, lambda value, ends: value.rstrip(ends))

    def json_array_length(self, column: Column) -> Column:
        return column._map(_array_length)

    def from_json(self, column: Column, schema: Any, options: Mapping[str, str]) -> Column:
        return column._map(lambda text: _from_json(schema, options, text))

    def from_csv(self, column: Column, schema: str, options: Mapping[str, str]) -> Column:
        names = [part.split()[0] for part in schema.split(",")]
        return column._map(lambda text: _from_csv(names, options, text))

    def to_json(self, column: Column, options: Mapping[str, str]) -> Column:
        keeps = options.get("ignoreNullFields") == "false"
        return column._map(lambda row: json.dumps({k: v for k, v in row.items() if keeps or v is not None}))

    def is_valid_utf8(self, column: Column) -> Column:
        return column._map(lambda text: all(not "\udc80" <= sign <= "\udcff" for sign in text))

    def spark_partition_id(self) -> Column:
        return lit(0)

    def format_string(self, form: str, *columns: Any) -> Column:
        found = [named(column) for column in columns]
        return Column(lambda row: form % tuple(column.of(row) for column in found))

    def raise_error(self, column: Column) -> Column:
        def of(row: Row) -> Any:
            raise RaisedError(column.of(row))

        return Column(of)


class ArrayFunction:
    """In the place of what `array_function` makes: it is called with one row at a time."""

    def __init__(self, function: Callable[..., Any], returns: object) -> None:
        self._function = function

    def asNondeterministic(self) -> ArrayFunction:
        return self

    def __call__(self, *columns: Any) -> Column:
        found = [named(column) for column in columns]

        def of(row: Row) -> Any:
            (value,) = self._function(*(_array(column.of(row)) for column in found)).to_pylist()
            return value

        return Column(of)


def _array(value: Any) -> Any:
    return pa.array([value], pa.binary() if value is None else None)


class RaisedError(Exception):
    """What `raise_error` raises."""


class Frame:
    def __init__(self, *rows: Row, columns: Iterable[str] | None = None, is_streaming: bool = True) -> None:
        self.rows = list(rows)
        self.columns = list(columns if columns is not None else rows[0] if rows else ())
        self.isStreaming = is_streaming

    def select(self, *chosen: Any) -> Frame:
        columns: list[Column] = []
        for one in chosen:
            columns += map(col, self.columns) if isinstance(one, str) and one == "*" else [named(one)]
        rows: list[dict[str, Any]] = []
        for row in self.rows:
            found: dict[str, Any] = {}
            for column in columns:
                found |= column.of(row) if column.name == "*" else {column.name: column.of(row)}
            rows.append(found)
        names = list(rows[0]) if rows else [column.name for column in columns]
        return Frame(*rows, columns=names, is_streaming=self.isStreaming)

    def where(self, condition: Column) -> Frame:
        rows = [row for row in self.rows if condition.of(row)]
        return Frame(*rows, columns=self.columns, is_streaming=self.isStreaming)

    def withColumn(self, name: str, column: Column) -> Frame:
        return self.select(*(each for each in self.columns if each != name), column.alias(name))

    def drop(self, name: str) -> Frame:
        return self.select(*(each for each in self.columns if each != name))


def use_plain_columns(monkeypatch: pytest.MonkeyPatch, *modules: Any) -> None:
    """These modules of the code make expressions that are computed here."""
    for module in modules:
        monkeypatch.setattr(module, "f", Functions())
