"""What is made of a server's answers about a slot, and what is asked again while another session uses it. No server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from tests.own_thread import patch_own_thread

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from ottla.spark.connect import replication_slot
from ottla.spark.connect.database import DatabaseError
from ottla.spark.connect.pgoutput import Column, Relation, format_lsn
from ottla.spark.connect.replication_slot import PublishedTable, ReplicationSlot, SlotState

LSN = 0x1_0000_0010


class Answer:
    def __init__(self, rows: Sequence[tuple[object, ...]]) -> None:
        self._rows = list(rows)

    def fetchone(self) -> tuple[object, ...] | None:
        return self._rows[0] if self._rows else None

    def fetchall(self) -> Sequence[tuple[object, ...]]:
        return self._rows


class Connection:
    """Answers queries that contain a word; those that are in use first fail so many times."""

    def __init__(self) -> None:
        self.answers: dict[str, Sequence[tuple[object, ...]]] = {}
        self.asked: list[tuple[str, tuple[object, ...]]] = []
        self.in_use = 0
        self.info = SimpleNamespace(server_version=150_000)
        self.cursors: list[dict[str, object]] = []
        self.portions: list[list[tuple[object, ...]]] = []
        self.copied: list[tuple[str | None, ...]] = []

    def execute(self, query: str | bytes, parameters: tuple[object, ...] = ()) -> Answer:
        text = query.decode() if isinstance(query, bytes) else query
        if self.in_use and ("_peek_" in text or "_advance" in text):
            self.in_use -= 1
            raise psycopg.errors.ObjectInUse("the slot is active")
        self.asked.append((text, parameters))
        return Answer(next((rows for word, rows in self.answers.items() if word in text), []))

    # As a cursor

    def cursor(self, **options: object) -> Connection:
        self.cursors.append(options)
        return self

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None: ...

    def fetchmany(self, count: int) -> list[tuple[object, ...]]:
        assert count == 5000
        return self.portions.pop(0) if self.portions else []

    def copy(self, query: bytes) -> Connection:
        self.asked.append((query.decode(), ()))
        return self

    def rows(self) -> Iterator[tuple[str | None, ...]]:
        return iter(self.copied)


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(replication_slot, "_IN_USE_PAUSE_S", 0.0)
    return Connection()


@pytest.fixture
def slot(connection: Any) -> ReplicationSlot:
    return ReplicationSlot(connection, "s", 'my "pub"')


def test_the_state_of_a_slot(connection: Any, slot: ReplicationSlot) -> None:
    assert slot.state() is None
    connection.answers["pg_replication_slots"] = [("1/10", "reserved", "pgoutput", True)]
    assert slot.state() == SlotState(LSN, "reserved")
    assert connection.asked[-1][1] == ("s",)
    for plugin, is_here in (("wal2json", True), ("pgoutput", False)):
        connection.answers["pg_replication_slots"] = [("1/10", "reserved", plugin, is_here)]
        with pytest.raises(DatabaseError, match="the replication slot s is not one of pgoutput in this database"):
            slot.state()


def test_what_is_made(connection: Any, slot: ReplicationSlot) -> None:
    assert not slot.has_publication()
    connection.answers["pg_publication "] = [(1,)]
    assert slot.has_publication() and connection.asked[-1][1] == ('my "pub"',)
    slot.create_publication(["public.t", "other.u"])
    slot.create_publication([])
    slot.create()
    made = [text for text, _ in connection.asked[-3:]]
    assert made[0].startswith('CREATE PUBLICATION "my ""pub""" FOR TABLE ') and ", " in made[0]
    assert made[1] == 'CREATE PUBLICATION "my ""pub""" FOR ALL TABLES'
    assert connection.asked[-1][1] == ("s", "pgoutput")


def test_places_in_the_log(connection: Any, slot: ReplicationSlot) -> None:
    connection.answers = {"pg_current_wal_flush_lsn": [("1/10",)], "pg_logical_emit_message": [("0/5",)]}
    assert (slot.flushed_lsn(), slot.write_mark()) == (LSN, 5)


@pytest.mark.parametrize(("confirmed", "lsn", "is_moved"), [(4, 5, True), (5, 5, False), (6, 5, False)])
def test_a_slot_is_only_moved_on(
    connection: Any, slot: ReplicationSlot, confirmed: int, lsn: int, is_moved: bool
) -> None:
    slot.advance(lsn)
    assert not any("advance" in text for text, _ in connection.asked), "there is none"
    connection.answers["pg_replication_slots"] = [(format_lsn(confirmed), "reserved", "pgoutput", True)]
    slot.advance(lsn)
    moves = [parameters for text, parameters in connection.asked if "advance" in text]
    assert moves == ([("s", format_lsn(lsn))] if is_moved else [])


@pytest.mark.parametrize(
    ("row", "upto", "found"),
    [((3, "0000000100000010"), None, (3, LSN)), ((2, None), LSN, (2, None)), ((0, None), None, (0, None))],
)
def test_where_the_last_whole_transaction_ends(
    connection: Any, slot: ReplicationSlot, row: tuple[object, ...], upto: int | None, found: tuple[int, int | None]
) -> None:
    connection.answers["_peek_"] = [row]
    assert slot.last_commit_end(upto, 9) == found
    assert connection.asked[-1][1] == ("s", None if upto is None else "1/10", 9, '"my ""pub"""')


def test_a_slot_that_is_in_use_is_waited_for(
    connection: Any, slot: ReplicationSlot, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    patch_own_thread(monkeypatch, replication_slot.time, "sleep", pauses.append)
    connection.answers["_peek_"] = [(3, None)]
    connection.in_use = 2
    assert slot.last_commit_end(None, 9) == (3, None)
    assert (connection.in_use, len(pauses)) == (0, 2)
    monkeypatch.setattr(replication_slot, "_IN_USE_WAIT_S", -1)
    connection.in_use = 1
    with pytest.raises(DatabaseError, match="the slot is active: two queries cannot share a slot"):
        slot.last_commit_end(None, 9)


def test_messages_come_portion_by_portion(
    connection: Any, slot: ReplicationSlot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replication_slot, "parse_message", lambda data: data.decode())
    connection.portions = [[(b"a",), (b"b",)], [(b"c",)]]
    connection.in_use = 1
    messages: list[Any] = list(slot.messages(LSN))
    assert messages == ["a", "b", "c"]
    assert connection.cursors == [{"name": "ottla_changes", "withhold": True}]
    assert connection.asked[-1][1] == ("s", "1/10", None, '"my ""pub"""')


COLUMNS = [(77, "id", 23, True), (77, "name", 25, False), (77, "secret", 25, False)]
RELATION = Relation(77, "public", "t", "d", (Column("id", 23, is_key=True), Column("name", 25, is_key=False)))


@pytest.mark.parametrize(
    ("version", "extras", "names", "row_filter"),
    [
        (150_000, "attnames::text[], rowfilter", ["name", "id"], "(id > 5)"),
        (160_001, "attnames::text[], rowfilter", ["id", "name"], None),
        (149_999, "NULL, NULL", None, None),
    ],
)
def test_the_published_tables(
    connection: Any,
    slot: ReplicationSlot,
    version: int,
    extras: str,
    names: list[str] | None,
    row_filter: str | None,
) -> None:
    connection.info.server_version = version
    connection.answers = {
        "pg_publication_tables": [("public", "t", names, row_filter)],
        "pg_attribute": COLUMNS if names is not None else COLUMNS[:2],
    }
    assert slot.tables() == [PublishedTable(RELATION, row_filter)]
    assert extras in connection.asked[0][0] and connection.asked[0][1] == ('my "pub"',)
    assert connection.asked[1][1] == ("public", "t")
    assert slot.primary_keys() == {("public", "t"): ("id",)}


@pytest.mark.parametrize(("row_filter", "where"), [(None, ""), ("(id > 5)", " WHERE (id > 5)")])
def test_all_rows_as_they_are_now(connection: Any, slot: ReplicationSlot, row_filter: str | None, where: str) -> None:
    connection.copied = [("1", "a"), ("2", None)]
    table = PublishedTable(RELATION, row_filter)
    assert table.name == "public.t"
    assert list(slot.rows(table)) == connection.copied
    assert connection.asked[-1][0] == f'COPY (SELECT "id", "name" FROM "public"."t"{where}) TO STDOUT'
