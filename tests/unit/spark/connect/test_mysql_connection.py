"""Connections to MySQL: what they are opened with, how they end, and which of their errors can pass."""

from __future__ import annotations

import ssl

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

import pymysql

from ottla.spark.connect.database import DatabaseAwayError, DatabaseError
from ottla.spark.connect.mysql.address import Address
from ottla.spark.connect.mysql.connection import connected, translated
from tests.unit.spark.connect.scripted_mysql import Server

ADDRESS = Address.parse("mysql://u:secret@h/d")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(pymysql, "connect", server.connect)
    return server


def test_what_a_connection_is_opened_with(server: Server) -> None:
    with connected(ADDRESS):
        assert server.told == ["SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"]
    (options,) = server.opened
    assert options["sql_mode"].startswith("STRICT_ALL_TABLES,")
    assert {name: options[name] for name in ("host", "user", "password", "autocommit", "connect_timeout", "conv")} == {
        "host": "h",
        "user": "u",
        "password": "secret",
        "autocommit": False,
        "connect_timeout": 15,
        "conv": None,
    }
    waits = "innodb_lock_wait_timeout = 600, net_write_timeout = 600"
    assert options["init_command"] == f"SET time_zone = '+00:00', {waits}", "for as long as another batch may take"
    with connected(ADDRESS, autocommit=True, conv={}):
        assert (server.opened[1]["autocommit"], server.opened[1]["conv"]) == (True, {})


def test_a_block_is_committed_at_its_end_and_the_connection_closed(server: Server) -> None:
    with connected(ADDRESS) as connection:
        connection.query("INSERT")
    assert server.statements == ["INSERT", "COMMIT", "ROLLBACK", "CLOSE"]


def test_a_block_that_fails_is_rolled_back_and_the_connection_closed(server: Server) -> None:
    with pytest.raises(ZeroDivisionError), connected(ADDRESS):
        raise ZeroDivisionError
    assert server.statements == ["ROLLBACK", "CLOSE"]


def test_a_connection_that_is_gone_is_closed_too(server: Server) -> None:
    server.fails("INSERT", pymysql.OperationalError(2013, "Lost connection"))
    server.fails("ROLLBACK", pymysql.InterfaceError(0, ""))
    words = r"^mysql://u@h/d: Lost connection \(2013\)$"
    with pytest.raises(DatabaseAwayError, match=words), connected(ADDRESS) as connection:
        connection.query("INSERT")
    assert server.statements == ["INSERT", "ROLLBACK", "CLOSE"]


@pytest.mark.parametrize("when", ["connect", "ISOLATION"])
def test_no_connection(server: Server, when: str) -> None:
    server.fails(when, pymysql.OperationalError(1045, "Access denied"))
    words = r"^no connection to mysql://u@h/d: Access denied \(1045\)$"
    with pytest.raises(DatabaseError, match=words), connected(ADDRESS):
        pytest.fail("nobody is connected")


PASSING = {
    2002: "no connection by a socket",
    2003: "no connection by TCP",
    2006: "server has gone away",
    2013: "lost connection",
    2055: "lost connection, at length",
    1213: "deadlock",
    1205: "lock wait timeout",
    1040: "too many connections",
    1203: "too many connections of the user",
    1053: "server shutdown",
    1317: "query interrupted",
    1152: "aborted connection",
    1184: "aborted connection, newer",
    1158: "read error",
    1159: "read timeout",
    1160: "write error",
    1161: "write timeout",
    1927: "connection was killed (MariaDB)",
    3101: "conflict in a group of servers",
}


@pytest.mark.parametrize("code", PASSING, ids=PASSING.get)
def test_errors_that_can_pass(code: int) -> None:
    with pytest.raises(DatabaseAwayError), translated(ADDRESS):
        raise pymysql.OperationalError(code, "words")


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (pymysql.InterfaceError(0, ""), DatabaseAwayError, "mysql://u@h/d:  (0)"),
        (pymysql.InterfaceError(), DatabaseAwayError, "mysql://u@h/d: InterfaceError"),
        (ConnectionResetError("reset"), DatabaseAwayError, "mysql://u@h/d: reset"),
        (pymysql.ProgrammingError(1064, "syntax"), DatabaseError, "mysql://u@h/d: syntax (1064)"),
        (pymysql.OperationalError("no code"), DatabaseError, "mysql://u@h/d: no code"),
        (ssl.SSLCertVerificationError("not theirs"), DatabaseError, "not theirs"),
    ],
)
def test_errors_and_what_they_say(error: Exception, kind: type[Exception], words: str) -> None:
    with pytest.raises(DatabaseError) as raised, translated(ADDRESS):
        raise error
    assert type(raised.value) is kind
    assert words in str(raised.value)


def test_a_certificate_that_is_not_trusted_does_not_pass() -> None:
    """The driver says of every connection that it does not get that the server cannot be reached."""
    error = pymysql.OperationalError(2003, "Can't connect")
    error.original_exception = ssl.SSLCertVerificationError("not theirs")  # type: ignore[attr-defined]
    with pytest.raises(DatabaseError) as raised, translated(ADDRESS):
        raise error
    assert type(raised.value) is DatabaseError
