"""Rows of MySQL and MariaDB as Arrow batches, and the Spark types its columns have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

import pyarrow as pa
from pymysql.cursors import SSCursor
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ottla.spark.connect.mysql import catalogue
from ottla.spark.connect.mysql.connection import Connection
from ottla.spark.connect.sql import MYSQL

BATCH_ROWS = 10_000
_MAX_DIGITS = 38
_TYPES: dict[str, DataType] = {
    "tinyint": ShortType(),
    "smallint": ShortType(),
    "mediumint": IntegerType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "year": ShortType(),
    "bit": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "date": DateType(),
    "datetime": TimestampNTZType(),
    "timestamp": TimestampType(),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), BinaryType()),
}
_UNSIGNED: dict[str, DataType] = {
    "smallint": IntegerType(),
    "int": LongType(),
    "bigint": DecimalType(20, 0),
    "bit": DecimalType(20, 0),
}
"""Where the next wider type is needed."""


class MysqlColumn(NamedTuple):
    name: str
    kind: str
    full_type: str
    """As in CREATE TABLE, with lengths and signs."""
    precision: int
    scale: int
    second_digits: int
    """Of a time: how many digits its seconds have behind the point."""

    @property
    def spark_type(self) -> DataType:
        if self.full_type in ("tinyint(1)", "bit(1)"):
            # The first is what MySQL makes of BOOLEAN.
            return BooleanType()
        if self.kind == "decimal":
            return DecimalType(self.precision, self.scale) if self.precision <= _MAX_DIGITS else StringType()
        if self.full_type.endswith(("unsigned", "zerofill")) or self.full_type == "bit(64)":
            return _UNSIGNED.get(self.kind, _TYPES[self.kind])
        return _TYPES.get(self.kind, StringType())

    @property
    def expression(self) -> str:
        name = MYSQL.quoted(self.name)
        if self.spark_type == BooleanType():
            return f"{name} <> 0"
        match self.kind:
            case "bit":
                return f"{name} + 0"
            case "float":
                # By itself it is shown with six digits.
                return f"{name} + 0E0"
            case "date" | "datetime" | "timestamp":
                # 0000-00-00, which old tables hold for want of a NULL.
                return f"NULLIF({name}, 0)"
        return name


def table_columns(connection: Connection, table: str) -> list[MysqlColumn]:
    """Empty if there is no such table."""
    found = catalogue.rows(
        connection,
        "SELECT column_name, data_type, column_type, COALESCE(numeric_precision, 0), COALESCE(numeric_scale, 0), "
        "COALESCE(datetime_precision, 0) FROM information_schema.columns "
        f"WHERE {catalogue.OF_TABLE} ORDER BY ordinal_position",
        catalogue.place_of(table),
    )
    return [
        MysqlColumn(str(name), str(kind), str(full_type), *(int(cast(int, number)) for number in numbers))
        for name, kind, full_type, *numbers in found
    ]


def fetch_batches(
    connection: Connection, query: str, parameters: Sequence[object], schema: StructType
) -> Iterator[pa.RecordBatch]:
    """The connection has to give values as they arrive, as text: Arrow reads a column of them at once."""
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    with connection.cursor(SSCursor) as cursor:
        cursor.execute(query, tuple(parameters))
        while rows := cursor.fetchmany(BATCH_ROWS):
            values = zip(*rows, strict=True)
            columns = [_read(texts, kind) for texts, kind in zip(values, arrow_schema.types, strict=True)]
            yield pa.record_batch(columns, schema=arrow_schema)


def _read(texts: Sequence[object], kind: pa.DataType) -> pa.Array:
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.array(texts, kind)
    column = pa.array(texts, pa.string())
    if pa.types.is_timestamp(kind):
        # In UTC, as the session is.
        return column.cast(pa.timestamp("us")).cast(kind)
    return column.cast(kind)
