"""Rows of PostgreSQL as Arrow batches, and the Spark types its columns have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

import pyarrow as pa
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

from ottla.spark.connect.postgresql import Connection
from ottla.spark.connect.sql import STANDARD

BATCH_ROWS = 10_000
_NUMERIC_OID = 1700
_KINDS = {
    20: "bigint",
    21: "smallint",
    23: "integer",
    1114: "timestamp",
    1184: "timestamp with time zone",
}
_TYPES: dict[int, DataType] = {
    16: BooleanType(),
    17: BinaryType(),
    20: LongType(),
    21: ShortType(),
    23: IntegerType(),
    700: FloatType(),
    701: DoubleType(),
    1082: DateType(),
    1114: TimestampNTZType(),
    1184: TimestampType(),
}


class PgColumn(NamedTuple):
    name: str
    type_oid: int
    modifier: int

    @property
    def kind(self) -> str:
        """Of those that a table can be followed by."""
        return _KINDS.get(self.type_oid, "")

    @property
    def spark_type(self) -> DataType:
        if self.type_oid == _NUMERIC_OID:
            return _decimal(self.modifier)
        return _TYPES.get(self.type_oid, StringType())

    @property
    def expression(self) -> str:
        """How it is selected: types that Spark has no counterpart for, as their text."""
        name = STANDARD.quoted(self.name)
        return f"{name}::text" if self.spark_type == StringType() else name


def _decimal(modifier: int) -> DataType:
    """A numeric without limits becomes what Spark's own JDBC source makes of it."""
    if modifier == -1:
        return DecimalType(38, 18)
    precision, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
    # Scales are 11 bits with a sign, and Spark has none below zero.
    return DecimalType(precision, scale) if scale <= precision <= 38 else StringType()


def table_columns(connection: Connection, table: str) -> list[PgColumn]:
    """Empty if there is no such table."""
    rows = connection.execute(
        "SELECT attname, atttypid, atttypmod FROM pg_attribute "
        "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        (STANDARD.quoted_table(table),),
    ).fetchall()
    return [PgColumn(str(name), cast(int, oid), cast(int, modifier)) for name, oid, modifier in rows]


def fetch_batches(
    connection: Connection, query: str, parameters: Sequence[object], schema: StructType
) -> Iterator[pa.RecordBatch]:
    """The query's rows. They stay on the server until they are needed: a result may be larger than memory."""
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    with connection.cursor(name="ottla_rows") as cursor:
        cursor.execute(query.encode(), parameters)
        while rows := cursor.fetchmany(BATCH_ROWS):
            columns = [
                pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), arrow_schema.types, strict=True)
            ]
            yield pa.record_batch(columns, schema=arrow_schema)
