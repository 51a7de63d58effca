"""A replication slot of PostgreSQL, read by its SQL functions: peeked at as often as need be, moved on only when told.

Only one session can use a slot at a time, so whoever comes second waits a little and tries again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar, cast

import psycopg

from ottla.spark.connect.change_rows import PrimaryKeys
from ottla.spark.connect.database import DatabaseError
from ottla.spark.connect.pgoutput import Column, Message, Relation, format_lsn, parse_lsn, parse_message
from ottla.spark.connect.postgresql import Connection
from ottla.spark.connect.sql import STANDARD

PLUGIN = "pgoutput"
_FETCH_ROWS = 5000
_IN_USE_WAIT_S = 30
_IN_USE_PAUSE_S = 0.2
_FIRST_ROWS_WITH_FILTERS = 150_000
"""Publications have lists of columns and conditions for rows since PostgreSQL 15."""

T = TypeVar("T")


class ChangesLostError(DatabaseError):
    """The slot no longer holds what the checkpoint needs."""


class SlotState(NamedTuple):
    confirmed_lsn: int
    """Transactions whose commit ends here or before are not sent again."""
    wal_status: str


class PublishedTable(NamedTuple):
    relation: Relation
    row_filter: str | None

    @property
    def name(self) -> str:
        return f"{self.relation.schema}.{self.relation.table}"


class ReplicationSlot:
    def __init__(self, connection: Connection, slot: str, publication: str) -> None:
        """The connection must commit by itself: a slot cannot be made inside of a transaction that wrote."""
        self._connection = connection
        self._slot = slot
        self._publication = publication

    # What there is

    def state(self) -> SlotState | None:
        row = self._connection.execute(
            "SELECT confirmed_flush_lsn::text, wal_status, plugin, database = current_database() "
            "FROM pg_replication_slots WHERE slot_name = %s",
            (self._slot,),
        ).fetchone()
        if row is None:
            return None
        confirmed, wal_status, plugin, is_here = row
        if plugin != PLUGIN or not is_here:
            raise DatabaseError(f"the replication slot {self._slot} is not one of {PLUGIN} in this database")
        return SlotState(parse_lsn(str(confirmed)), str(wal_status))

    def has_publication(self) -> bool:
        found = self._connection.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", (self._publication,))
        return found.fetchone() is not None

    def flushed_lsn(self) -> int:
        """How far the log can be decoded by now."""
        return self._lsn("SELECT pg_current_wal_flush_lsn()::text")

    def _lsn(self, query: str) -> int:
        row = self._connection.execute(query.encode()).fetchone()
        assert row is not None
        return parse_lsn(str(row[0]))

    # Making and moving

    def create_publication(self, tables: Sequence[str]) -> None:
        listed = ", ".join(STANDARD.quoted_table(table) for table in tables)
        what = f"FOR TABLE {listed}" if tables else "FOR ALL TABLES"
        self._connection.execute(f"CREATE PUBLICATION {STANDARD.quoted(self._publication)} {what}".encode())

    def create(self) -> None:
        self._connection.execute("SELECT pg_create_logical_replication_slot(%s, %s)", (self._slot, PLUGIN))

    def advance(self, lsn: int) -> None:
        """Lets the server forget what ends at `lsn` or before."""
        state = self.state()
        if state is not None and state.confirmed_lsn < lsn:
            self._when_free(
                lambda: self._connection.execute(
                    "SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", (self._slot, format_lsn(lsn))
                )
            )

    def write_mark(self) -> int:
        """Writes an empty record into the log and returns where it ends: a place between transactions."""
        return self._lsn("SELECT pg_logical_emit_message(false, 'ottla', '')::text")

    # Reading

    def last_commit_end(self, upto_lsn: int | None, max_changes: int) -> tuple[int, int | None]:
        """How many messages a peek at about `max_changes` gives, and where the last whole transaction in it ends."""
        # The end stands in bytes 11 to 18 of a commit message; as hexadecimal text of one length it can be compared.
        row = self._when_free(
            lambda: self._connection.execute(
                "SELECT count(*), max(CASE WHEN get_byte(data, 0) = ascii('C') "
                f"THEN encode(substring(data FROM 11 FOR 8), 'hex') END) FROM {_PEEK}",
                self._peek_parameters(upto_lsn, max_changes),
            ).fetchone()
        )
        assert row is not None
        return cast(int, row[0]), None if row[1] is None else int(str(row[1]), 16)

    def messages(self, upto_lsn: int) -> Iterator[Message | None]:
        """All that was not confirmed, up to the transaction whose commit ends at `upto_lsn`."""
        # A cursor that outlives its transaction is filled by the statement that declares it, so that one can be tried
        # again while the slot is in use; and the slot is free as soon as it is filled.
        with self._connection.cursor(name="ottla_changes", withhold=True) as cursor:
            parameters = self._peek_parameters(upto_lsn, None)
            self._when_free(lambda: cursor.execute(f"SELECT data FROM {_PEEK}", parameters))
            while rows := cursor.fetchmany(_FETCH_ROWS):
                for (data,) in rows:
                    yield parse_message(cast(bytes, data))

    def _peek_parameters(self, upto_lsn: int | None, max_changes: int | None) -> tuple[object, ...]:
        return (
            self._slot,
            None if upto_lsn is None else format_lsn(upto_lsn),
            max_changes,
            STANDARD.quoted(self._publication),
        )

    def _when_free(self, action: Callable[[], T]) -> T:
        deadline_s = time.monotonic() + _IN_USE_WAIT_S
        while True:
            try:
                return action()
            except psycopg.errors.ObjectInUse as e:
                if time.monotonic() > deadline_s:
                    raise DatabaseError(f"{str(e).strip()}: two queries cannot share a slot") from e
                time.sleep(_IN_USE_PAUSE_S)

    # The published tables

    def tables(self) -> list[PublishedTable]:
        has_filters = self._connection.info.server_version >= _FIRST_ROWS_WITH_FILTERS
        extras = "attnames::text[], rowfilter" if has_filters else "NULL, NULL"
        rows = self._connection.execute(
            f"SELECT schemaname::text, tablename::text, {extras} FROM pg_publication_tables WHERE pubname = %s "
            "ORDER BY 1, 2",
            (self._publication,),
        ).fetchall()
        found = []
        for schema, table, names, row_filter in rows:
            relation = self._relation(str(schema), str(table), cast("list[str] | None", names))
            found.append(PublishedTable(relation, None if row_filter is None else str(row_filter)))
        return found

    def _relation(self, schema: str, table: str, names: list[str] | None) -> Relation:
        rows = self._connection.execute(
            "SELECT attrelid, attname::text, atttypid, COALESCE(attnum = ANY(indkey), false) FROM pg_attribute "
            "LEFT JOIN pg_index ON indrelid = attrelid AND indisprimary "
            "WHERE attrelid = format('%%I.%%I', %s::text, %s::text)::regclass AND attnum > 0 AND NOT attisdropped "
            "AND attgenerated = '' ORDER BY attnum",
            (schema, table),
        ).fetchall()
        columns = tuple(
            Column(str(name), cast(int, oid), is_key=bool(is_key))
            for _, name, oid, is_key in rows
            if names is None or name in names
        )
        return Relation(cast(int, rows[0][0]), schema, table, "d", columns)

    def primary_keys(self) -> PrimaryKeys:
        return {
            (found.relation.schema, found.relation.table): tuple(
                column.name for column in found.relation.columns if column.is_key
            )
            for found in self.tables()
        }

    def rows(self, table: PublishedTable) -> Iterator[tuple[str | None, ...]]:
        """All rows as they are now, values as the text that messages have too."""
        names = ", ".join(STANDARD.quoted(column.name) for column in table.relation.columns)
        where = "" if table.row_filter is None else f" WHERE {table.row_filter}"
        query = f"COPY (SELECT {names} FROM {STANDARD.quoted_table(table.name)}{where}) TO STDOUT"
        with self._connection.cursor() as cursor, cursor.copy(query.encode()) as copy:
            for row in copy.rows():
                yield cast("tuple[str | None, ...]", row)


_PEEK = (
    "pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, %s::integer, "
    "'proto_version', '1', 'publication_names', %s::text)"
)
