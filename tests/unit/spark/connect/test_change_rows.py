"""Rows of changes as a whole: what each kind of message becomes, and how values of each type are written as JSON."""

from __future__ import annotations

import struct
from datetime import UTC, datetime

import pytest

from ottla.spark.connect.change_rows import ChangeDecoder, ChangeRow, key_json, row_json
from ottla.spark.connect.pgoutput import (
    Begin,
    Cell,
    Column,
    Commit,
    Delete,
    Insert,
    Message,
    PgOutputError,
    Relation,
    Truncate,
    Unchanged,
    Update,
    format_lsn,
    parse_lsn,
    parse_message,
)

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
BEGIN = Begin(commit_lsn=1000, committed_at=NOON, xid=7)
COMMIT = Commit(commit_lsn=1000, end_lsn=1048, committed_at=NOON)
TABLE = Relation(1, "s", "t", "d", (Column("id", 23, is_key=True), Column("name", 25, is_key=False)))
OTHER = Relation(2, "s", "u", "d", (Column("n", 25, is_key=False),))
FULL = Relation(
    3, "s", "f", "f", (Column("a", 23, is_key=True), Column("b", 23, is_key=True), Column("c", 25, is_key=True))
)


def rows(*messages: Message | None, decoder: ChangeDecoder | None = None) -> list[ChangeRow]:
    decoder = decoder or ChangeDecoder()
    return [row for message in (TABLE, OTHER, FULL, BEGIN, *messages, COMMIT) for row in decoder.feed(message)]


def row(
    op: str, key: str | None, before: str | None, after: str | None, *, seq: int = 0, table: str = "t"
) -> ChangeRow:
    return ChangeRow(op, "s", table, key, before, after, 1000, seq, 7, NOON)


A, B = '{"id":1,"name":"a"}', '{"id":1,"name":"b"}'
TOAST = Unchanged.TOAST


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (None, []),
        (Insert(1, ("1", "a")), [row("insert", '{"id":1}', None, A)]),
        (Insert(2, ("5",)), [row("insert", None, None, '{"n":"5"}', table="u")]),
        (Update(1, None, None, ("1", "b")), [row("update", '{"id":1}', None, B)]),
        (Update(1, None, ("1", "a"), ("1", "b")), [row("update", '{"id":1}', A, B)]),
        (Update(1, ("1", None), None, ("1", "b")), [row("update", '{"id":1}', None, B)]),
        (
            Update(1, ("2", None), None, ("1", "b")),
            [row("delete", '{"id":2}', None, None), row("insert", '{"id":1}', None, B, seq=1)],
        ),
        (
            Update(1, None, ("2", "a"), ("1", TOAST)),
            [
                row("delete", '{"id":2}', '{"id":2,"name":"a"}', None),
                row("insert", '{"id":1}', None, A, seq=1),
            ],
        ),
        (Update(1, ("2", None), None, ("1", TOAST)), [row("update", '{"id":1}', '{"id":2}', '{"id":1}')]),
        (Update(1, None, None, ("1", TOAST)), [row("update", '{"id":1}', None, '{"id":1}')]),
        (Delete(1, ("1", None), None), [row("delete", '{"id":1}', None, None)]),
        (Delete(1, None, ("1", "a")), [row("delete", '{"id":1}', A, None)]),
        (
            Truncate((2, 1)),
            [row("truncate", None, None, None, table="u"), row("truncate", None, None, None, seq=1)],
        ),
    ],
    ids=range(13),
)
def test_what_a_message_becomes(message: Message | None, expected: list[ChangeRow]) -> None:
    assert rows(message) == expected


VALUES: list[tuple[int, str | None, str]] = [
    *((oid, "12", "12") for oid in (20, 21, 23, 26, 700, 701, 1700)),
    *((oid, "12", '"12"') for oid in (19, 22, 24, 25, 27, 114, 699, 702, 1082, 1699, 1701)),
    *((oid, text, f'"{text}"') for oid in (700, 701, 1700) for text in ("NaN", "Infinity", "-Infinity")),
    *((oid, None, "null") for oid in (16, 23, 25)),
    (16, "t", "true"),
    (16, "f", "false"),
    (15, "t", '"t"'),
    (17, "t", '"t"'),
    (25, 'ü "x"\n', '"ü \\"x\\"\\n"'),
]


@pytest.mark.parametrize(("oid", "text", "written"), VALUES)
def test_how_a_value_is_written(oid: int, text: str | None, written: str) -> None:
    relation = Relation(1, "s", "t", "d", (Column('a"b', oid, is_key=False),))
    assert row_json(relation, (text,)) == f'{{"a\\"b":{written}}}'
    assert key_json(relation, (text,)) is None


@pytest.mark.parametrize("cells", [(), ("1",), ("1", "2", "3")])
def test_a_row_has_as_many_values_as_its_table_has_columns(cells: tuple[Cell, ...]) -> None:
    for write in (row_json, key_json):
        with pytest.raises(PgOutputError, match=f"a row of {len(cells)} values for the 2 columns of t"):
            write(TABLE, cells)


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({}, '{"a":1,"b":2,"c":"x"}'),
        ({("s", "f"): ("b", "a")}, '{"a":1,"b":2}'),
        ({("x", "f"): ("a",)}, '{"a":1,"b":2,"c":"x"}'),
    ],
)
def test_the_key_of_a_table_that_sends_whole_rows(
    keys: dict[tuple[str, str], tuple[str, ...]], key: str | None
) -> None:
    (found,) = rows(Insert(3, ("1", "2", "x")), decoder=ChangeDecoder(primary_keys=keys))
    assert found.key == key


def test_other_tables_name_their_keys_themselves() -> None:
    (found,) = rows(Insert(1, ("1", "a")), decoder=ChangeDecoder(primary_keys={("s", "t"): ("name",)}))
    assert found.key == '{"id":1}'


def test_a_description_holds_until_the_next_one() -> None:
    wider = Relation(1, "s", "t2", "d", (*TABLE.columns, Column("more", 25, is_key=False)))
    first, second = rows(Insert(1, ("1", "a")), wider, Insert(1, ("1", "a", "m")))
    assert (first.table, first.after, first.seq) == ("t", A, 0)
    assert (second.table, second.after, second.seq) == ("t2", '{"id":1,"name":"a","more":"m"}', 1)


@pytest.mark.parametrize(("start_lsn", "count"), [(0, 1), (999, 1), (1000, 1), (1001, 0), (1048, 0)])
def test_transactions_from_a_place_on(start_lsn: int, count: int) -> None:
    assert len(rows(Insert(1, ("1", "a")), decoder=ChangeDecoder(start_lsn))) == count


def test_what_comes_after_a_commit_is_in_no_transaction() -> None:
    decoder = ChangeDecoder()
    rows(decoder=decoder)
    with pytest.raises(PgOutputError, match="outside of a transaction"):
        decoder.feed(Insert(1, ("1", "a")))
    assert [decoder.feed(message) for message in (BEGIN, COMMIT, TABLE, None)] == [[]] * 4


@pytest.mark.parametrize("oid", [0, 4])
def test_a_change_of_a_table_that_was_not_described(oid: int) -> None:
    for message in (Insert(oid, ("1",)), Truncate((1, oid)), Delete(oid, ("1",), None)):
        with pytest.raises(PgOutputError, match=f"a change of the relation {oid}, which was not described before"):
            rows(message)


# Fields of messages that are as large as they can be


def text(value: str) -> bytes:
    return value.encode() + b"\0"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b"B" + struct.pack(">QqI", 2**64 - 1, -1, 2**32 - 1),
            Begin(2**64 - 1, datetime(1999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), 2**32 - 1),
        ),
        (
            b"C" + struct.pack(">BQQq", 255, 1, 2**64 - 1, 1_000_000),
            Commit(1, 2**64 - 1, datetime(2000, 1, 1, 0, 0, 1, tzinfo=UTC)),
        ),
        (
            b"R" + struct.pack(">I", 2**32 - 1) + text("ü") + text("t") + b"i" + struct.pack(">h", 3)
            + b"\1" + text("a") + struct.pack(">Ii", 2**32 - 1, -1)
            + b"\2" + text("b") + struct.pack(">Ii", 1, -1)
            + b"\3" + text("") + struct.pack(">Ii", 0, 9),
            Relation(
                2**32 - 1,
                "ü",
                "t",
                "i",
                (Column("a", 2**32 - 1, is_key=True), Column("b", 1, is_key=False), Column("", 0, is_key=True)),
            ),
        ),
        (b"T" + struct.pack(">iBII", 2, 3, 2**32 - 1, 5), Truncate((2**32 - 1, 5))),
        (b"T" + struct.pack(">iB", 0, 0), Truncate(())),
        (
            b"U" + struct.pack(">I", 1) + b"K" + struct.pack(">h", 1) + b"n" + b"N" + struct.pack(">h", 2) + b"nu",
            Update(1, (None,), None, (None, TOAST)),
        ),
        (
            b"U" + struct.pack(">I", 1) + b"O" + struct.pack(">h", 0) + b"N" + struct.pack(">h", 0),
            Update(1, None, (), ()),
        ),
        (b"D" + struct.pack(">I", 2**32 - 1) + b"O" + struct.pack(">h", 1) + b"n", Delete(2**32 - 1, None, (None,))),
    ],
    ids=range(8),
)  # fmt: skip
def test_messages_with_fields_at_their_limits(data: bytes, message: Message) -> None:
    assert parse_message(data) == message


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "the message ends at byte 0, in the middle of a field"),
        (b"T\0\0", "the message ends at byte 3, in the middle of a field"),
        (b"R\0\0\0\1pub", "the message ends at byte 8, in the middle of a field"),
        (b"T\0\0\0\0\0ab", "2 bytes follow the message"),
        (b"I\0\0\0\1N\0\1x", "a value of kind 'x': ask for text values, not binary ones"),
    ],
)
def test_where_a_message_is_wrong(data: bytes, words: str) -> None:
    with pytest.raises(PgOutputError) as refusal:
        parse_message(data)
    assert str(refusal.value) == words


@pytest.mark.parametrize(
    ("lsn", "written"),
    [
        (0, "0/0"),
        (1, "0/1"),
        (0xFFFFFFFF, "0/FFFFFFFF"),
        (0x1_00000000, "1/0"),
        (0x16_B374D848, "16/B374D848"),
        (2**64 - 1, "FFFFFFFF/FFFFFFFF"),
    ],
)
def test_log_positions_as_postgresql_writes_them(lsn: int, written: str) -> None:
    assert format_lsn(lsn) == written
    assert parse_lsn(written) == parse_lsn(written.lower()) == lsn
