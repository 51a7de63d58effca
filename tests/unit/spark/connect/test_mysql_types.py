"""Every kind of column of MySQL, and every option of its addresses."""

from __future__ import annotations

import ssl

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

import pyarrow as pa

from ottla.spark.connect.database import DatabaseError
from ottla.spark.connect.mysql.address import Address
from ottla.spark.connect.mysql.change_values import CHANGE_CONVERTERS
from ottla.spark.connect.mysql.rows import MysqlColumn
from ottla.spark.connect.mysql.values import values_of

BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set", "time", "json", "point")


@pytest.mark.parametrize(
    ("kind", "full_type", "precision", "spark"),
    [
        *((kind, kind, 0, "binary") for kind in BYTES),
        *((kind, kind, 0, "string") for kind in TEXTS),
        ("mediumint", "mediumint(9)", 7, "int"),
        ("tinyint", "tinyint(2)", 3, "smallint"),
        ("tinyint", "tinyint(1) unsigned", 3, "smallint"),
        ("tinyint", "tinyint(3) unsigned zerofill", 3, "smallint"),
        ("mediumint", "mediumint(8) unsigned zerofill", 7, "int"),
        ("smallint", "smallint(5) unsigned zerofill", 5, "int"),
        ("bigint", "bigint(20) unsigned zerofill", 20, "decimal(20,0)"),
        ("float", "float unsigned", 12, "float"),
        ("double", "double unsigned zerofill", 22, "double"),
        ("decimal", "decimal(9,0) unsigned", 9, "decimal(9,0)"),
        ("decimal", "decimal(38,0)", 38, "decimal(38,0)"),
        ("decimal", "decimal(39,0)", 39, "string"),
        ("bit", "bit(2)", 2, "bigint"),
        ("bit", "bit(63)", 63, "bigint"),
    ],
)
def test_the_type_of_a_column(kind: str, full_type: str, precision: int, spark: str) -> None:
    assert MysqlColumn("c", kind, full_type, precision, 0, 0).spark_type.simpleString() == spark


def test_kinds_of_columns_that_take_changes_as_something_else() -> None:
    assert set(CHANGE_CONVERTERS) == {"datetime", "timestamp", *BYTES}
    for kind, convert in CHANGE_CONVERTERS.items():
        is_time = kind not in BYTES
        assert convert("2026-01-01 12:00:00.5+02") == (
            "2026-01-01 10:00:00.500000" if is_time else "2026-01-01 12:00:00.5+02"
        )
        assert convert("\\x00ff") == ("\\x00ff" if is_time else b"\x00\xff")
        assert convert("\\x") == ("\\x" if is_time else b"")


def tls_of(query: str) -> dict[str, object]:
    options = Address.parse(f"mysql://h/d?{query}").driver_options()
    return {name: value for name, value in options.items() if name.startswith("ssl")}


def test_how_a_connection_is_encrypted() -> None:
    assert tls_of("") == tls_of("ssl_mode=preferred") == {}
    assert tls_of("ssl_mode=disabled") == tls_of("ssl_mode=disabled&ssl_ca=/no/such/file") == {"ssl_disabled": True}
    for mode, verify, checks_name in (
        ("required", ssl.CERT_NONE, False),
        ("verify_ca", ssl.CERT_REQUIRED, False),
        ("verify_identity", ssl.CERT_REQUIRED, True),
    ):
        context = tls_of(f"ssl_mode={mode}")["ssl"]
        assert isinstance(context, ssl.SSLContext)
        assert (context.verify_mode, context.check_hostname) == (verify, checks_name)


def test_whoever_names_an_authority_has_the_name_of_the_host_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[tuple[object, ...]] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    def create(cafile: str | None) -> ssl.SSLContext:
        loaded.append((cafile,))
        return context

    monkeypatch.setattr(ssl, "create_default_context", create)
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", lambda self, *files: loaded.append(files))
    assert tls_of("ssl_ca=/ca&ssl_cert=/cert&ssl_key=/key") == {"ssl": context}
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert loaded == [("/ca",), ("/cert", "/key")]
    loaded.clear()
    tls_of("ssl_mode=verify_ca&ssl_cert=/cert")
    assert (loaded, context.check_hostname) == ([(None,), ("/cert", None)], False)
    loaded.clear()
    tls_of("ssl_ca=/ca&ssl_key=/key")
    assert loaded == [("/ca",)], "a key is of no use without a certificate"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (
            "mysql://u:p@h/d?x=1&y=2",
            "mysql://u@h/d?x=1&y=2: there is no option x, y; there is ssl_mode, ssl_ca, ssl_cert, ssl_key, unix_socket",
        ),
        (
            "mysql://h/d?ssl_mode=",
            "mysql://h/d?ssl_mode=: ssl_mode cannot be '': it is one of disabled, preferred, required, verify_ca, "
            "verify_identity",
        ),
        ("mysql://u:p@h", "mysql://u@h names no database: write mysql://user@host:3306/name"),
    ],
)
def test_what_is_wrong_with_an_address(url: str, words: str) -> None:
    with pytest.raises(DatabaseError) as refusal:
        Address.parse(url)
    assert str(refusal.value) == words


@pytest.mark.parametrize(
    ("limit", "pieces"),
    [(1, [1] * 6), (6, [1] * 6), (1000, [6])],
)
def test_how_many_rows_go_into_a_statement(limit: int, pieces: list[int]) -> None:
    found = list(values_of([pa.array(["xy"] * 6)], ["a"], statement_bytes=limit))  # ('xy'), takes seven bytes
    assert [values.row_count for values in found] == pieces
    assert b",".join(values.text for values in found) == b",".join([b"('xy')"] * 6)


def test_what_is_written_without_being_told_how_much_goes_into_a_statement() -> None:
    row = "x" * (64 * 1024 - 5)  # with its quotes, brackets and comma an eighth of the half megabyte
    found = list(values_of([pa.array([row] * 17)], ["a"]))
    assert [values.row_count for values in found] == [7, 8, 2]
