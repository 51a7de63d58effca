"""Columns of a frame as columns of a table: which SQL type holds which Spark type. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pyspark.sql.types import DataType, DecimalType, StructField, StructType

from ottla.base.errors import OttlaError


class TableSchemaError(OttlaError):
    """A frame and a table that do not fit together; the message names the column."""


class TableColumn(NamedTuple):
    """A column of an existing table. `required`: a row without a value for it is refused."""

    name: str
    required: bool


POSTGRESQL_TYPES = {
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp",
}
# A time goes in as UTC: TIMESTAMP would end in 2038. Texts are long ones, for TEXT ends at 64 KB.
MYSQL_TYPES = {
    "boolean": "boolean",
    "tinyint": "tinyint",
    "smallint": "smallint",
    "int": "int",
    "bigint": "bigint",
    "float": "float",
    "double": "double",
    "string": "longtext",
    "binary": "longblob",
    "date": "date",
    "timestamp": "datetime(6)",
    "timestamp_ntz": "datetime(6)",
}
# An index needs a bound; three columns of this fit into the 3072 bytes that InnoDB gives a key.
MYSQL_KEY_TYPES = {**MYSQL_TYPES, "string": "varchar(255)", "binary": "varbinary(255)"}
# SQLite has neither times nor exact decimals: as text they keep every digit and sort as they should.
SQLITE_TYPES = {
    "boolean": "INTEGER",
    "tinyint": "INTEGER",
    "smallint": "INTEGER",
    "int": "INTEGER",
    "bigint": "INTEGER",
    "float": "REAL",
    "double": "REAL",
    "string": "TEXT",
    "binary": "BLOB",
    "date": "TEXT",
    "timestamp": "TEXT",
    "timestamp_ntz": "TEXT",
}


def sql_type(field: StructField, types: Mapping[str, str], decimal: str) -> str:
    """`decimal` is the type for exact decimals, with {precision} and {scale} where it has them."""
    kind: DataType = field.dataType
    if isinstance(kind, DecimalType):
        return decimal.format(precision=kind.precision, scale=kind.scale)
    name = kind.simpleString()
    if name.startswith(("char(", "varchar(")):
        name = "string"
    try:
        return types[name]
    except KeyError:
        raise TableSchemaError(
            f"column {field.name!r} of type {name} has no counterpart in a table: turn it into text with to_json(), or "
            "take it apart into columns"
        ) from None


def check_columns(schema: StructType, columns: Iterable[TableColumn], table: str) -> None:
    """Refuses a frame that has columns the table lacks, or lacks columns the table insists on."""
    existing = {column.name: column for column in columns}
    unknown = [name for name in schema.names if name not in existing]
    if unknown:
        raise TableSchemaError(
            f"table {table} has no column {', '.join(map(repr, unknown))}; it has {', '.join(map(repr, existing))}"
        )
    missing = [name for name, column in existing.items() if column.required and name not in schema.names]
    if missing:
        raise TableSchemaError(
            f"table {table} insists on a value for {', '.join(map(repr, missing))}, which no row has"
        )


def check_keys(names: Iterable[str], keys: Iterable[str]) -> None:
    there = list(names)
    absent = [key for key in keys if key not in there]
    if absent:
        raise TableSchemaError(f"the key column {', '.join(map(repr, absent))} is missing; there is {', '.join(there)}")
