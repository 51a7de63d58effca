"""Which type a column gets in each kind of database, and what is said of frames and tables that do not fit."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from ottla.spark.connect.column_types import (
    MYSQL_KEY_TYPES,
    MYSQL_TYPES,
    POSTGRESQL_TYPES,
    SQLITE_TYPES,
    TableColumn,
    TableSchemaError,
    check_columns,
    check_keys,
    sql_type,
)
from ottla.spark.connect.database_target import CHANGE_COLUMNS, CHANGE_ORDER, FLOW_MODES

TYPES: list[tuple[DataType, str, str, str, str]] = [
    # Spark's, PostgreSQL's, MySQL's, MySQL's in a key, SQLite's.
    (BooleanType(), "boolean", "boolean", "boolean", "INTEGER"),
    (ByteType(), "smallint", "tinyint", "tinyint", "INTEGER"),
    (ShortType(), "smallint", "smallint", "smallint", "INTEGER"),
    (IntegerType(), "integer", "int", "int", "INTEGER"),
    (LongType(), "bigint", "bigint", "bigint", "INTEGER"),
    (FloatType(), "real", "float", "float", "REAL"),
    (DoubleType(), "double precision", "double", "double", "REAL"),
    (StringType(), "text", "longtext", "varchar(255)", "TEXT"),
    (CharType(3), "text", "longtext", "varchar(255)", "TEXT"),
    (VarcharType(3), "text", "longtext", "varchar(255)", "TEXT"),
    (BinaryType(), "bytea", "longblob", "varbinary(255)", "BLOB"),
    (DateType(), "date", "date", "date", "TEXT"),
    (TimestampType(), "timestamp with time zone", "datetime(6)", "datetime(6)", "TEXT"),
    (TimestampNTZType(), "timestamp", "datetime(6)", "datetime(6)", "TEXT"),
    (DecimalType(12, 3), "12-3", "12-3", "12-3", "12-3"),
]


@pytest.mark.parametrize(("kind", "postgresql", "mysql", "mysql_key", "sqlite"), TYPES, ids=lambda each: str(each))
def test_the_type_of_a_column(kind: DataType, postgresql: str, mysql: str, mysql_key: str, sqlite: str) -> None:
    field = StructField("c", kind)
    tables = (POSTGRESQL_TYPES, MYSQL_TYPES, MYSQL_KEY_TYPES, SQLITE_TYPES)
    found = [sql_type(field, types, "{precision}-{scale}") for types in tables]
    assert found == [postgresql, mysql, mysql_key, sqlite]


@pytest.mark.parametrize("kind", [ArrayType(StringType()), MapType(StringType(), LongType()), StructType()])
def test_what_no_table_has(kind: DataType) -> None:
    for types in (POSTGRESQL_TYPES, MYSQL_TYPES, MYSQL_KEY_TYPES, SQLITE_TYPES):
        with pytest.raises(TableSchemaError) as refusal:
            sql_type(StructField("c", kind), types, "")
        assert str(refusal.value) == (
            f"column 'c' of type {kind.simpleString()} has no counterpart in a table: turn it into text with "
            "to_json(), or take it apart into columns"
        )


COLUMNS = [TableColumn("id", True), TableColumn("name", True), TableColumn("note", False)]


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["id", "name", "note"], None),
        (["name", "id"], None),
        (["id", "name", "age", "x"], "table t has no column 'age', 'x'; it has 'id', 'name', 'note'"),
        (["age"], "table t has no column 'age'; it has 'id', 'name', 'note'"),
        (["note"], "table t insists on a value for 'id', 'name', which no row has"),
        (["id"], "table t insists on a value for 'name', which no row has"),
    ],
)
def test_whether_a_frame_has_the_columns_of_a_table(names: list[str], told: str | None) -> None:
    schema = StructType([StructField(name, StringType()) for name in names])
    if told is None:
        check_columns(schema, iter(COLUMNS), "t")
    else:
        with pytest.raises(TableSchemaError) as refusal:
            check_columns(schema, iter(COLUMNS), "t")
        assert str(refusal.value) == told


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ([], None),
        (["b", "a"], None),
        (["a", "x", "y"], "the key column 'x', 'y' is missing; there is a, b"),
        (["B"], "the key column 'B' is missing; there is a, b"),
    ],
)
def test_whether_keys_are_among_the_columns(keys: list[str], told: str | None) -> None:
    if told is None:
        check_keys(iter("ab"), iter(keys))
    else:
        with pytest.raises(TableSchemaError) as refusal:
            check_keys(iter("ab"), iter(keys))
        assert str(refusal.value) == told


def test_what_rows_of_changes_have_and_which_flows_suit_a_mode() -> None:
    assert CHANGE_COLUMNS == ("op", "key", "before", "after")
    assert CHANGE_ORDER == ("lsn", "seq")
    assert FLOW_MODES == {
        "append": ("append",),
        "upsert": ("append", "update", "complete"),
        "changes": ("append",),
        "replace": ("complete",),
    }
