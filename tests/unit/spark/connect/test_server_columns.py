"""Columns of PostgreSQL and MySQL as Spark's, addresses of MySQL, and rows as the text of its statements."""

from __future__ import annotations

import ssl
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    IntegerType,
    StringType,
    StructField,
    TimestampType,
    VarcharType,
)

from ottla.spark.connect.column_types import MYSQL_TYPES, SQLITE_TYPES, TableSchemaError, sql_type
from ottla.spark.connect.database import DatabaseError
from ottla.spark.connect.mysql.address import Address
from ottla.spark.connect.mysql.change_values import CHANGE_CONVERTERS
from ottla.spark.connect.mysql.rows import MysqlColumn, _read
from ottla.spark.connect.mysql.values import values_of
from ottla.spark.connect.postgres_rows import PgColumn
from ottla.spark.connect.sql import MYSQL, STANDARD


def numeric(precision: int, scale: int) -> int:
    """The modifier that PostgreSQL keeps for numeric(precision, scale)."""
    return (precision << 16 | scale & 0x7FF) + 4


@pytest.mark.parametrize(
    ("oid", "modifier", "spark", "kind"),
    [
        (16, -1, "boolean", ""),
        (17, -1, "binary", ""),
        (20, -1, "bigint", "bigint"),
        (21, -1, "smallint", "smallint"),
        (23, -1, "int", "integer"),
        (700, -1, "float", ""),
        (701, -1, "double", ""),
        (1082, -1, "date", ""),
        (1114, -1, "timestamp_ntz", "timestamp"),
        (1184, -1, "timestamp", "timestamp with time zone"),
        (25, -1, "string", ""),
        (1700, -1, "decimal(38,18)", ""),
        (1700, numeric(12, 2), "decimal(12,2)", ""),
        (1700, numeric(38, 38), "decimal(38,38)", ""),
        (1700, numeric(39, 2), "string", ""),
        (1700, numeric(5, -2), "string", ""),
        (1700, numeric(3, 5), "string", ""),
    ],
)
def test_types_of_postgresql(oid: int, modifier: int, spark: str, kind: str) -> None:
    column = PgColumn('a"b', oid, modifier)
    assert (column.spark_type.simpleString(), column.kind) == (spark, kind)
    assert column.expression == ('"a""b"::text' if spark == "string" else '"a""b"')


@pytest.mark.parametrize(
    ("kind", "full_type", "digits", "spark", "expression"),
    [
        ("tinyint", "tinyint(1)", (3, 0), "boolean", "`c` <> 0"),
        ("bit", "bit(1)", (1, 0), "boolean", "`c` <> 0"),
        ("tinyint", "tinyint(4)", (3, 0), "smallint", "`c`"),
        ("tinyint", "tinyint(3) unsigned", (3, 0), "smallint", "`c`"),
        ("smallint", "smallint(6)", (5, 0), "smallint", "`c`"),
        ("smallint", "smallint(5) unsigned", (5, 0), "int", "`c`"),
        ("mediumint", "mediumint(8) unsigned", (7, 0), "int", "`c`"),
        ("int", "int(11)", (10, 0), "int", "`c`"),
        ("int", "int(10) unsigned zerofill", (10, 0), "bigint", "`c`"),
        ("int", "int(10) unsigned", (10, 0), "bigint", "`c`"),
        ("bigint", "bigint(20)", (19, 0), "bigint", "`c`"),
        ("bigint", "bigint(20) unsigned", (20, 0), "decimal(20,0)", "`c`"),
        ("year", "year(4)", (0, 0), "smallint", "`c`"),
        ("bit", "bit(8)", (8, 0), "bigint", "`c` + 0"),
        ("bit", "bit(64)", (64, 0), "decimal(20,0)", "`c` + 0"),
        ("float", "float", (12, 0), "float", "`c` + 0E0"),
        ("double", "double", (22, 0), "double", "`c`"),
        ("decimal", "decimal(38,3)", (38, 3), "decimal(38,3)", "`c`"),
        ("decimal", "decimal(65,3)", (65, 3), "string", "`c`"),
        ("date", "date", (0, 0), "date", "NULLIF(`c`, 0)"),
        ("datetime", "datetime(6)", (0, 0), "timestamp_ntz", "NULLIF(`c`, 0)"),
        ("timestamp", "timestamp", (0, 0), "timestamp", "NULLIF(`c`, 0)"),
        ("blob", "blob", (0, 0), "binary", "`c`"),
        ("varchar", "varchar(5)", (0, 0), "string", "`c`"),
        ("json", "json", (0, 0), "string", "`c`"),
    ],
)
def test_types_of_mysql(kind: str, full_type: str, digits: tuple[int, int], spark: str, expression: str) -> None:
    column = MysqlColumn("c", kind, full_type, *digits, 0)
    assert (column.spark_type.simpleString(), column.expression) == (spark, expression)


def test_texts_of_mysql_become_values() -> None:
    assert _read(["1", None], pa.int64()).to_pylist() == [1, None]
    assert _read(["1.50"], pa.decimal128(10, 2)).to_pylist() == [Decimal("1.50")]
    assert _read([b"\xff"], pa.binary()).to_pylist() == [b"\xff"]
    assert _read([b"\xff"], pa.large_binary()).to_pylist() == [b"\xff"]
    noon = datetime(2026, 1, 1, 12)
    assert _read(["2026-01-01 12:00:00"], pa.timestamp("us")).to_pylist() == [noon]
    assert _read(["2026-01-01 12:00:00"], pa.timestamp("us", "UTC")).to_pylist() == [noon.replace(tzinfo=UTC)]


def test_an_address_in_full_and_what_it_is_without_being_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MYSQL_PWD", raising=False)
    assert Address.parse("mysql://h/d").driver_options() == {
        "host": "h",
        "port": 3306,
        "user": None,
        "password": "",
        "database": "d",
        "unix_socket": None,
    }
    full = Address.parse("mysql://u%40x:p%3Aw@h:3307/d%20b?ssl_mode=disabled&unix_socket=/s")
    assert full.driver_options() == {
        "host": "h",
        "port": 3307,
        "user": "u@x",
        "password": "p:w",
        "database": "d b",
        "unix_socket": "/s",
        "ssl_disabled": True,
    }
    assert "p%3Aw" not in full.shown_url and "p:w" not in repr(full)
    assert Address.parse("mysql:///d").host == "127.0.0.1"
    assert Address.parse("mysql://h/d?password=in-query").password == "in-query"
    monkeypatch.setenv("MYSQL_PWD", "in-environment")
    assert Address.parse("mysql://h/d").password == "in-environment"
    assert Address.parse("mysql://u:own@h/d").password == "own"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://h", "names no database: write mysql://user@host:3306/name"),
        ("mysql://h/", "names no database"),
        ("mysql://h:x/d", "is no address"),
        ("mysql://h/d?sslmode=required", "there is no option sslmode; there is ssl_mode"),
        ("mysql://h/d?ssl_mode=on", "ssl_mode cannot be 'on'"),
    ],
)
def test_an_address_that_is_none(url: str, words: str) -> None:
    with pytest.raises(DatabaseError, match=words):
        Address.parse(url)


@pytest.mark.parametrize(
    ("query", "verify_mode", "checks_name"),
    [
        ("ssl_mode=required", ssl.CERT_NONE, False),
        ("ssl_mode=verify_ca", ssl.CERT_REQUIRED, False),
        ("ssl_mode=verify_identity", ssl.CERT_REQUIRED, True),
    ],
)
def test_what_is_checked_of_a_server(query: str, verify_mode: ssl.VerifyMode, checks_name: bool) -> None:
    context = Address.parse(f"mysql://h/d?{query}").driver_options()["ssl"]
    assert (context.verify_mode, context.check_hostname) == (verify_mode, checks_name)


def test_a_certificate_authority_is_asked_and_has_to_be_there() -> None:
    with pytest.raises(DatabaseError, match="the certificates cannot be read"):
        Address.parse("mysql://h/d?ssl_ca=/no/such/file").driver_options()
    with pytest.raises(DatabaseError, match="the certificates cannot be read"):
        Address.parse("mysql://h/d?ssl_mode=required&ssl_cert=/no/such/file").driver_options()
    assert "ssl" not in Address.parse("mysql://h/d?ssl_mode=preferred&ssl_ca=/no/such/file").driver_options()


COLUMNS: dict[str, tuple[pa.Array, list[str]]] = {
    "text": (pa.array(["it's", "a\\b", None]), ["'it''s'", r"'a\\b'", "NULL"]),
    "large text": (pa.array(["x", None], pa.large_string()), ["'x'", "NULL"]),
    "bytes": (pa.array([b"\x00\xff", None]), ["x'00ff'", "NULL"]),
    "large bytes": (pa.array([b"\x01"], pa.large_binary()), ["x'01'"]),
    "flags": (pa.array([True, False, None]), ["1", "0", "NULL"]),
    "whole numbers": (pa.array([-5, None]), ["-5", "NULL"]),
    "numbers": (pa.array([1.5, None]), ["1.5", "NULL"]),
    "decimals": (pa.array([Decimal("1.50"), None]), ["'1.50'", "NULL"]),
    "days": (pa.array([date(2026, 1, 2)]), ["'2026-01-02'"]),
    "moments": (
        pa.array([datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))], pa.timestamp("us", "UTC")),
        ["'2026-01-01 10:00:00.000000'"],
    ),
}


@pytest.mark.parametrize(("column", "literals"), COLUMNS.values(), ids=COLUMNS)
def test_values_in_a_statement(column: pa.Array, literals: list[str]) -> None:
    (values,) = values_of([column], ["c"])
    assert values.text.decode() == ",".join(f"({literal})" for literal in literals)
    assert values.row_count == len(literals)


def test_statements_are_cut_where_they_would_be_too_long() -> None:
    column = pa.array(["x" * 8] * 10)  # 12 bytes each, and a comma
    whole = ",".join(["('xxxxxxxx',1)"] * 10)
    for limit in (1, 20, 40, 41, 150, 10_000):
        pieces = list(values_of([column, pa.array([1] * 10)], ["a", "b"], statement_bytes=limit))
        assert ",".join(piece.text.decode() for piece in pieces) == whole
        assert [piece.text.count(b"(") for piece in pieces] == [piece.row_count for piece in pieces]
        assert all(len(piece.text) <= 2 * limit or piece.row_count == 1 for piece in pieces)
    assert len(list(values_of([column], ["a"], statement_bytes=10_000))) == 1
    assert len(list(values_of([column], ["a"], statement_bytes=1))) == 10
    assert list(values_of([column[:0]], ["a"])) == []


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_mysql_has_not(number: float) -> None:
    with pytest.raises(DatabaseError, match="column 'c' holds NaN or an infinite number"):
        list(values_of([pa.array([1.0, number])], ["c"]))


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ("datetime", "2026-01-01 12:00:00+02", "2026-01-01 10:00:00"),
        ("timestamp", "2026-01-01 12:00:00", "2026-01-01 12:00:00"),
        ("datetime", "no time", "no time"),
        ("blob", "\\x00ff", b"\x00\xff"),
        ("blob", "plain", "plain"),
        ("binary", 5, 5),
    ],
)
def test_values_of_changes(kind: str, given: Any, expected: Any) -> None:
    assert CHANGE_CONVERTERS[kind](given) == expected


def test_types_of_new_tables() -> None:
    decimal = StructField("a", DecimalType(10, 3))
    assert sql_type(decimal, MYSQL_TYPES, "decimal({precision}, {scale})") == "decimal(10, 3)"
    assert sql_type(StructField("b", StringType()), SQLITE_TYPES, "TEXT") == "TEXT"
    assert sql_type(StructField("b", VarcharType(5)), MYSQL_TYPES, "") == "longtext"
    assert sql_type(StructField("c", TimestampType()), MYSQL_TYPES, "") == "datetime(6)"
    with pytest.raises(TableSchemaError, match="column 'd' of type array<int> has no counterpart"):
        sql_type(StructField("d", ArrayType(IntegerType())), MYSQL_TYPES, "")


def test_names_are_quoted_and_marks_are_those_of_the_driver() -> None:
    assert STANDARD.quoted_table('a.b"c') == '"a"."b""c"'
    assert MYSQL.insert_statement("t", ["a", "b"]) == "INSERT INTO `t` (`a`, `b`) VALUES (?, ?)"
    assert MYSQL.insert_statement("t", ["a", "b"], ["a"]).endswith("ON DUPLICATE KEY UPDATE `b` = VALUES(`b`)")
    assert MYSQL.conflict_clause(["a"], ["a"]) == "ON DUPLICATE KEY UPDATE `a` = VALUES(`a`)"
    assert STANDARD.conflict_clause(["a"], ["a"]) == 'ON CONFLICT ("a") DO NOTHING'
    assert STANDARD.with_format_marks('SELECT "?" WHERE "a%" = ?') == 'SELECT "?" WHERE "a%%" = %s'
    assert STANDARD.create_statement("t", {"a": "int"}, ()) == 'CREATE TABLE IF NOT EXISTS "t" ("a" int)'
    assert STANDARD.create_statement("t", {"a": "int"}, ["a"]).endswith('("a" int, PRIMARY KEY ("a"))')
