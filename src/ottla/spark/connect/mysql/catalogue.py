"""What MySQL and MariaDB say of a table: its columns, its unique indexes, whether it knows transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.spark.connect.column_types import TableColumn
from ottla.spark.connect.mysql.connection import Connection

OF_TABLE = "table_schema = COALESCE(%s, DATABASE()) AND table_name = %s"


class UniqueIndex(NamedTuple):
    columns: frozenset[str]
    whole: bool
    """False if it looks at the beginning of a column only."""


def rows(connection: Connection, query: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query, tuple(parameters))
        return list(cursor.fetchall())


def place_of(table: str) -> tuple[str | None, str]:
    """The schema, if it is named, and the table's own name."""
    schema, dot, name = table.partition(".")
    return (schema, name) if dot else (None, schema)


def columns(connection: Connection, table: str) -> list[TableColumn] | None:
    found = rows(
        connection,
        "SELECT column_name, is_nullable = 'NO' AND column_default IS NULL AND extra NOT LIKE '%%auto_increment%%' "
        "AND extra NOT LIKE '%%GENERATED%%' "
        f"FROM information_schema.columns WHERE {OF_TABLE} ORDER BY ordinal_position",
        place_of(table),
    )
    return [TableColumn(str(name), bool(required)) for name, required in found] or None


def kinds(connection: Connection, table: str) -> dict[str, str]:
    """The types of a table's columns, without their lengths."""
    query = f"SELECT column_name, data_type FROM information_schema.columns WHERE {OF_TABLE}"
    return {str(name): str(kind) for name, kind in rows(connection, query, place_of(table))}


def unique_indexes(connection: Connection, table: str) -> list[UniqueIndex]:
    found = rows(
        connection,
        "SELECT index_name, column_name, sub_part IS NULL FROM information_schema.statistics "
        f"WHERE {OF_TABLE} AND non_unique = 0",
        place_of(table),
    )
    parts: dict[object, list[tuple[object, ...]]] = {}
    for index, *part in found:
        parts.setdefault(index, []).append(tuple(part))
    # A part without a name is an expression; no column is called like that.
    return [
        UniqueIndex(frozenset(str(name) for name, _ in part), all(whole for _, whole in part))
        for part in parts.values()
    ]


def without_transactions(connection: Connection, table: str) -> str | None:
    """The engine of a table that has no transactions; None if it has them. A view has no engine."""
    found = rows(
        connection,
        "SELECT COALESCE(engine, table_type) FROM information_schema.tables "
        f"WHERE {OF_TABLE} AND COALESCE(engine, '') NOT IN "
        "(SELECT engine FROM information_schema.engines WHERE transactions = 'YES')",
        place_of(table),
    )
    return str(found[0][0]) if found else None
