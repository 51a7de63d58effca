"""Messages of logical decoding, as PostgreSQL 15 sent them, and the rows of changes made from them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.spark.connect.change_rows import ChangeDecoder, ChangeRow
from ottla.spark.connect.pgoutput import (
    Begin,
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

# A table (id int primary key, s text, n numeric(10,2), j jsonb): rows inserted, updated, given a new key, truncated.
CAPTURED: dict[str, Message] = {
    "4200000000015059d0000303584bf7ecaf000002d6": Begin(
        commit_lsn=0x15059D0, committed_at=datetime(2026, 11, 16, 0, 4, 56, 676527, tzinfo=UTC), xid=726
    ),
    "52000040007075626c69630074006400040169640000000017ffffffff00730000000019ffffffff006e00000006a4000a0006006a0000000e"
    "daffffffff": Relation(
        oid=16384,
        schema="public",
        table="t",
        replica_identity="d",
        columns=(
            Column("id", 23, is_key=True),
            Column("s", 25, is_key=False),
            Column("n", 1700, is_key=False),
            Column("j", 3802, is_key=False),
        ),
    ),
    "49000040004e00047400000001317400000001617400000004312e353074000000087b2261223a20317d": Insert(
        16384, ("1", "a", "1.50", '{"a": 1}')
    ),
    "55000040004f00047400000001317400000001617400000004312e353074000000087b2261223a20317d4e000474000000013174000000016174"
    "00000004322e303074000000087b2261223a20317d": Update(
        16384, old_key=None, before=("1", "a", "1.50", '{"a": 1}'), after=("1", "a", "2.00", '{"a": 1}')
    ),
    "55000040004e0004740000000131757400000004372e303074000000087b2261223a20317d": Update(
        16384, old_key=None, before=None, after=("1", Unchanged.TOAST, "7.00", '{"a": 1}')
    ),
    "55000040004b00047400000001316e6e6e4e000474000000023137757400000004372e303074000000087b2261223a20317d": Update(
        16384, old_key=("1", None, None, None), before=None, after=("17", Unchanged.TOAST, "7.00", '{"a": 1}')
    ),
    "44000040004b00047400000001326e6e6e": Delete(16384, old_key=("2", None, None, None), before=None),
    "54000000010000004000": Truncate((16384,)),
    "430000000000015059d00000000001505a00000303584bf7ecaf": Commit(
        commit_lsn=0x15059D0, end_lsn=0x1505A00, committed_at=datetime(2026, 11, 16, 0, 4, 56, 676527, tzinfo=UTC)
    ),
}


@pytest.mark.parametrize(("captured", "message"), CAPTURED.items())
def test_captured_messages(captured: str, message: Message) -> None:
    assert parse_message(bytes.fromhex(captured)) == message


@pytest.mark.parametrize("captured", CAPTURED)
def test_a_message_cut_anywhere_is_refused(captured: str) -> None:
    whole = bytes.fromhex(captured)
    for size in range(len(whole)):
        with pytest.raises(PgOutputError):
            parse_message(whole[:size])
    with pytest.raises(PgOutputError, match="follow"):
        parse_message(whole + b"\0")


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    try:
        parse_message(data)
    except PgOutputError as e:
        assert str(e)


@pytest.mark.parametrize("size", ["ffffffff", "fffffffb", "00000003", "7fffffff"])
def test_a_value_that_lies_about_its_size_is_refused(size: str) -> None:
    insert = bytes.fromhex(f"49000040004e000174{size}6161")
    with pytest.raises(PgOutputError, match="in the middle of a field"):
        parse_message(insert)
    assert parse_message(bytes.fromhex("49000040004e000174000000026161")) == Insert(16384, ("aa",))


@pytest.mark.parametrize("kind", [b"O", b"Y", b"M"])
def test_what_changes_no_row_is_passed_over(kind: bytes) -> None:
    assert parse_message(kind + bytes(8) + b"elsewhere\0") is None


def test_a_text_may_be_empty() -> None:
    assert parse_message(bytes.fromhex("49000040004e00017400000000")) == Insert(16384, ("",))


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("49 00004000 58 0001 6e", "a new row marked 'X', not 'N'"),
        ("55 00004000 58 0001 6e", "a new row marked 'X', not 'N'"),
        ("55 00004000 4b 0001 6e 58 0001 6e", "a new row marked 'X', not 'N'"),
        ("44 00004000 58 0001 6e", "a deleted row marked 'X', not 'K' or 'O'"),
        ("42 0000000000000000 7fffffffffffffff 00000001", "9223372036854775807 microseconds from 2000 is no time"),
        ("5a 00000000", "unknown message 'Z': only protocol version 1"),
    ],
)
def test_what_is_no_message(message: str, words: str) -> None:
    with pytest.raises(PgOutputError, match=words):
        parse_message(bytes.fromhex(message))


def test_a_whole_row_that_is_gone() -> None:
    gone = Delete(16384, old_key=None, before=("2", None))
    assert parse_message(bytes.fromhex("44000040004f00027400000001326e")) == gone


def test_the_system_schema_is_sent_without_a_name() -> None:
    found = parse_message(bytes.fromhex("5200000001 00 7400 64 0000"))
    assert found == Relation(1, "pg_catalog", "t", "d", ())


def test_binary_values_are_refused_with_advice() -> None:
    with pytest.raises(PgOutputError, match="text values"):
        parse_message(b"I\0\0@\0N\0\1b\0\0\0\4\0\0\0\1")


@given(st.integers(0, 2**64 - 1))
def test_log_positions_read_back(lsn: int) -> None:
    assert parse_lsn(format_lsn(lsn)) == lsn


@pytest.mark.parametrize("text", ["", "12", "x/y", "1/"])
def test_what_is_no_log_position(text: str) -> None:
    with pytest.raises(PgOutputError, match="no log position"):
        parse_lsn(text)


# Rows of changes

BEGIN = Begin(commit_lsn=1000, committed_at=datetime(2026, 1, 2, tzinfo=UTC), xid=7)
COMMIT = Commit(commit_lsn=1000, end_lsn=1048, committed_at=BEGIN.committed_at)
TABLE = Relation(
    oid=1,
    schema="public",
    table="t",
    replica_identity="d",
    columns=(
        Column("id", 23, is_key=True),
        Column("text", 25, is_key=False),
        Column("amount", 1700, is_key=False),
        Column("flag", 16, is_key=False),
        Column("document", 3802, is_key=False),
    ),
)
ROW = ("1", 'say "a"\n', "12345678901234567890.10", "t", '{"a": [1]}')


def changes(*messages: Message, decoder: ChangeDecoder | None = None) -> list[ChangeRow]:
    decoder = decoder or ChangeDecoder()
    return [row for message in (BEGIN, TABLE, *messages, COMMIT) for row in decoder.feed(message)]


def test_an_insert_keeps_digits_and_documents() -> None:
    (row,) = changes(Insert(1, ROW))
    assert (row.op, row.schema, row.table, row.key, row.before) == ("insert", "public", "t", '{"id":1}', None)
    assert row.after is not None
    assert '"amount":12345678901234567890.10,' in row.after
    assert json.loads(row.after) | {"amount": None} == {
        "id": 1,
        "text": 'say "a"\n',
        "amount": None,
        "flag": True,
        "document": '{"a": [1]}',
    }
    assert (row.lsn, row.seq, row.xid, row.committed_at) == (1000, 0, 7, BEGIN.committed_at)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_json_does_not_have_are_text(number: str) -> None:
    (row,) = changes(Insert(1, ("1", None, number, "f", None)))
    assert row.after == f'{{"id":1,"text":null,"amount":"{number}","flag":false,"document":null}}'


def test_a_value_that_was_not_sent_is_left_out() -> None:
    (row,) = changes(Update(1, None, None, ("1", Unchanged.TOAST, "2", "t", None)))
    assert row.op == "update"
    assert row.after == '{"id":1,"amount":2,"flag":true,"document":null}'


def test_a_value_that_was_not_sent_is_taken_from_the_old_row_if_that_is_known() -> None:
    (row,) = changes(Update(1, None, ROW, ("1", Unchanged.TOAST, "2", "t", None)))
    assert row.after is not None and row.before is not None
    assert json.loads(row.after)["text"] == json.loads(row.before)["text"] == ROW[1]


def test_a_new_key_is_a_row_gone_and_a_row_come() -> None:
    gone, come = changes(Update(1, ("1", None, None, None, None), None, ("2", *ROW[1:])))
    assert (gone.op, gone.key, gone.seq) == ("delete", '{"id":1}', 0)
    assert (come.op, come.key, come.seq) == ("insert", '{"id":2}', 1)


def test_a_new_key_stays_an_update_while_a_value_is_missing() -> None:
    (row,) = changes(Update(1, ("1", None, None, None, None), None, ("2", Unchanged.TOAST, "2", "t", None)))
    assert (row.op, row.key, row.before) == ("update", '{"id":2}', '{"id":1}')


def test_deletes_and_truncates() -> None:
    by_key, whole, emptied = changes(
        Delete(1, ("3", None, None, None, None), None), Delete(1, None, ROW), Truncate((1,))
    )
    assert (by_key.op, by_key.key, by_key.before) == ("delete", '{"id":3}', None)
    assert (whole.key, whole.before) == ('{"id":1}', changes(Insert(1, ROW))[0].after)
    assert (emptied.op, emptied.key, emptied.seq) == ("truncate", None, 2)


def test_full_identity_uses_the_primary_key_that_is_known() -> None:
    columns = tuple(Column(column.name, column.type_oid, is_key=True) for column in TABLE.columns)
    full = Relation(1, "public", "t", "f", columns)
    changed = ("1", "other", *ROW[2:])
    knowing = ChangeDecoder(primary_keys={("public", "t"): ("id",)})
    (update,) = changes(full, Update(1, None, ROW, changed), decoder=knowing)
    assert (update.op, update.key) == ("update", '{"id":1}')
    gone, come = changes(full, Update(1, None, ROW, changed))
    assert (gone.op, come.op) == ("delete", "insert"), "only the whole row identifies it"


def test_transactions_of_earlier_batches_are_left_out() -> None:
    assert changes(Insert(1, ROW), decoder=ChangeDecoder(start_lsn=COMMIT.end_lsn)) == []
    assert len(changes(Insert(1, ROW), decoder=ChangeDecoder(start_lsn=BEGIN.commit_lsn))) == 1


def test_changes_are_counted_from_the_beginning_of_their_transaction() -> None:
    rows = changes(Insert(1, ROW), Insert(1, ROW), COMMIT, BEGIN, Insert(1, ROW))
    assert [row.seq for row in rows] == [0, 1, 0]


def test_messages_out_of_order_are_refused() -> None:
    with pytest.raises(PgOutputError, match="outside of a transaction"):
        ChangeDecoder().feed(Insert(1, ROW))
    with pytest.raises(PgOutputError, match="outside of a transaction"):
        changes(COMMIT, Insert(1, ROW))
    with pytest.raises(PgOutputError, match="not described"):
        [ChangeDecoder().feed(BEGIN), changes(Insert(2, ROW))]
    with pytest.raises(PgOutputError, match="2 values"):
        changes(Insert(1, ("1", "a")))


def test_text_in_another_encoding_is_refused_with_what_to_do() -> None:
    insert = bytes.fromhex("49000040004e000174000000024160")
    assert parse_message(insert) == Insert(16384, ("A`",))
    with pytest.raises(PgOutputError, match="not UTF-8: set client_encoding to UTF8"):
        parse_message(insert.replace(b"A`", b"A\xe9"))
