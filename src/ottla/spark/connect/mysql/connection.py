"""Connections to MySQL and MariaDB: a session of known settings, and errors told apart by whether they can pass."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

import pymysql
from pymysql.constants import CR, ER
from pymysql.cursors import Cursor

from ottla.spark.connect.database import DatabaseAwayError, DatabaseError
from ottla.spark.connect.mysql.address import Address

CONNECT_TIMEOUT_S = 15
LOCK_WAIT_S = 600
"""How long a writer waits for another one of the same sink, which holds its row for as long as its batch takes."""

Conversions = dict[int | type[Any], Callable[[Any], str] | Callable[[str], Any]]
Connection: TypeAlias = "pymysql.Connection[Cursor]"

# Strict: a value that does not fit is refused and not cut. Backslashes escape, as the driver's own quoting assumes.
_SQL_MODE = "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
_SETTINGS = f"SET time_zone = '+00:00', innodb_lock_wait_timeout = {LOCK_WAIT_S}, net_write_timeout = {LOCK_WAIT_S}"

_CONNECTION_KILLED = 1927  # MariaDB's own
_LOST_IN_REPLICATION = 3101  # a conflict in a group of servers: the transaction was rolled back
_PASSING = frozenset(
    {
        CR.CR_CONNECTION_ERROR,
        CR.CR_CONN_HOST_ERROR,
        CR.CR_SERVER_GONE_ERROR,
        CR.CR_SERVER_LOST,
        CR.CR_SERVER_LOST_EXTENDED,
        ER.LOCK_DEADLOCK,
        ER.LOCK_WAIT_TIMEOUT,
        ER.CON_COUNT_ERROR,
        ER.TOO_MANY_USER_CONNECTIONS,
        ER.SERVER_SHUTDOWN,
        ER.QUERY_INTERRUPTED,
        ER.ABORTING_CONNECTION,
        ER.NEW_ABORTING_CONNECTION,
        ER.NET_READ_ERROR,
        ER.NET_READ_INTERRUPTED,
        ER.NET_ERROR_ON_WRITE,
        ER.NET_WRITE_INTERRUPTED,
        _CONNECTION_KILLED,
        _LOST_IN_REPLICATION,
    }
)


def connect(address: Address, *, autocommit: bool = False, conv: Conversions | None = None) -> Connection:
    """`conv` are the driver's conversions of values."""
    with translated(address, "no connection to "):
        connection = pymysql.connect(
            **address.driver_options(),
            autocommit=autocommit,
            charset="utf8mb4",
            connect_timeout=CONNECT_TIMEOUT_S,
            program_name="ottla",
            sql_mode=_SQL_MODE,
            init_command=_SETTINGS,
            conv=conv,
        )
        # Each statement sees what is committed, which is what a writer that has waited for another one needs; and no
        # locks on gaps between rows, over which tasks that write side by side would deadlock.
        connection.query("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    return connection


@contextmanager
def connected(address: Address, *, autocommit: bool = False, conv: Conversions | None = None) -> Iterator[Connection]:
    """Committed at the end of the block, rolled back if it raises; its driver's errors become DatabaseErrors."""
    connection = connect(address, autocommit=autocommit, conv=conv)
    try:
        with translated(address):
            yield connection
            connection.commit()
    finally:
        with suppress(pymysql.Error, OSError):
            connection.rollback()
        connection.close()


@contextmanager
def translated(address: Address, before: str = "") -> Iterator[None]:
    """The driver's errors as DatabaseErrors."""
    try:
        yield
    except (pymysql.Error, OSError) as e:
        raise _as_database_error(e, f"{before}{address.shown_url}") from None


def _as_database_error(error: Exception, where: str) -> DatabaseError:
    """Without the driver's error as its cause: nearly all of those bear one name, whether they can pass or not."""
    code, text = _code_and_text(error)
    distrusted = isinstance(getattr(error, "original_exception", error), ssl.SSLCertVerificationError)
    passing = isinstance(error, OSError | pymysql.InterfaceError) or code in _PASSING
    return (DatabaseAwayError if passing and not distrusted else DatabaseError)(f"{where}: {text}")


def _code_and_text(error: Exception) -> tuple[int | None, str]:
    match error.args:
        case (int(code), text, *_):
            return code, f"{text} ({code})"
        case _:
            return None, str(error) or type(error).__name__
