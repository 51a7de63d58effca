"""Changes folded into statements leave a table as if each had been applied on its own."""

from __future__ import annotations

import json
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.spark.connect import change_fold
from ottla.spark.connect.change_fold import Change, ChangeError, ChangeFold, Step
from ottla.spark.connect.sql import STANDARD

NAMES = ("id", "name", "note")
Table = dict[int, dict[str, object]]


def change(
    op: str, after: dict[str, object] | None = None, *, key: int | None = None, old: int | None = None
) -> Change:
    return Change(
        op,
        before=None if old is None else json.dumps({"id": old}),
        after=None if after is None else json.dumps(after),
        key=None if key is None else json.dumps({"id": key}),
    )


def steps(*changes: Change) -> list[Step]:
    return list(ChangeFold("t", NAMES, ("id",), STANDARD).steps(changes))


def applied(changes: list[Change], start: Table) -> Table:
    """What a real database makes of the statements."""
    connection = sqlite3.connect(":memory:")
    connection.execute('CREATE TABLE "t" ("id" INTEGER PRIMARY KEY, "name" TEXT NOT NULL, "note" TEXT)')
    connection.executemany(
        "INSERT INTO t VALUES (?, ?, ?)", [(key, row["name"], row["note"]) for key, row in start.items()]
    )
    for step in ChangeFold("t", NAMES, ("id",), STANDARD).steps(changes):
        connection.executemany(step.statement, step.rows)
    return {key: {"id": key, "name": name, "note": note} for key, name, note in connection.execute("SELECT * FROM t")}


@st.composite
def histories(draw: st.DrawFn) -> tuple[Table, list[Change], Table]:
    """A table, changes a database could have made to it, and the table after them."""
    texts = st.text("ab?%\"'", min_size=1, max_size=2)
    start: Table = {
        key: {"id": key, "name": draw(texts), "note": draw(texts)} for key in draw(st.sets(st.integers(0, 4)))
    }
    table = {key: dict(row) for key, row in start.items()}
    changes = []
    for _ in range(draw(st.integers(0, 25))):
        op = draw(st.sampled_from(["put", "patch", "delete", "move", "truncate"]))
        key = draw(st.integers(0, 4))
        row: dict[str, object] = {"id": key, "name": draw(texts), "note": draw(st.none() | texts)}
        if op == "put":
            changes.append(change("update" if key in table else "insert", row, key=key))
            table[key] = row
        elif op == "patch" and key in table:
            del row["note"]
            changes.append(change("update", row, key=key))
            table[key] |= row
        elif op == "delete" and key in table:
            changes.append(change("delete", key=key))
            del table[key]
        elif op == "move" and key not in table and table:
            old = draw(st.sampled_from(sorted(table)))
            del row["note"]
            changes.append(change("update", row, key=key, old=old))
            table[key] = table.pop(old) | row
        elif op == "truncate":
            changes.append(change("truncate"))
            table.clear()
    return start, changes, table


@given(histories(), st.integers(1, 5))
def test_folding_changes_nothing(history: tuple[Table, list[Change], Table], max_pending_keys: int) -> None:
    start, changes, expected = history
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(change_fold, "MAX_PENDING_KEYS", max_pending_keys)
        assert applied(changes, start) == expected


def test_many_changes_of_a_row_are_one_statement() -> None:
    found = steps(*[change("update", {"id": 1, "name": str(n), "note": None}, key=1) for n in range(100)])
    assert [len(step.rows) for step in found] == [1]


def test_digits_are_kept() -> None:
    fold = ChangeFold("t", ("id", "amount"), ("id",), STANDARD)
    after = '{"id":1,"amount":12345678901234567890.10}'
    (step,) = fold.steps([Change("insert", None, after, None)])
    assert step.rows == [["12345678901234567890.10", 1]]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (Change("upsert", None, '{"id":1}', None), "no change 'upsert'"),
        (Change("insert", None, None, None), "no JSON"),
        (Change("insert", None, "[1]", None), "no JSON object"),
        (Change("insert", None, '{"name":"a"}', None), "key column 'id'"),
        (Change("insert", None, '{"id":1,"colour":"red"}', None), "no column 'colour'"),
        (Change("delete", None, None, None), "no JSON"),
    ],
)
def test_changes_that_cannot_be_applied(bad: Change, words: str) -> None:
    with pytest.raises(ChangeError, match=words):
        steps(bad)


def test_a_row_that_came_whole_is_inserted_even_if_not_all_columns_are_published() -> None:
    (step,) = steps(change("insert", {"id": 1, "name": "a"}), change("update", {"id": 1, "name": "b"}))
    assert step.statement.startswith("INSERT INTO") and step.rows == [[1, "b"]]


def test_a_row_that_became_whole_bit_by_bit_is_inserted() -> None:
    (step,) = steps(change("update", {"id": 1, "name": "a"}), change("update", {"id": 1, "note": "b"}))
    assert step.statement.startswith("INSERT INTO") and step.rows == [[1, "a", "b"]]


def test_what_is_known_of_a_row_is_not_enough_to_make_it() -> None:
    (step,) = steps(change("update", {"id": 1, "name": "a"}))
    assert step.statement.startswith("UPDATE") and step.rows == [[1, "a", 1]]


def test_only_so_many_keys_are_kept_waiting() -> None:
    inserts = [change("insert", {"id": number % 10_001, "name": "a", "note": None}) for number in range(10_002)]
    assert [len(step.rows) for step in steps(*inserts)] == [10_000, 2]


INSERT = 'INSERT INTO "t" ("id", "name", "note") VALUES (?, ?, ?)'
UPSERT = f'{INSERT} ON CONFLICT ("id") DO UPDATE SET "name" = excluded."name", "note" = excluded."note"'
WHOLE: dict[str, object] = {"id": 1, "name": "a", "note": "b"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], []),
        ([change("snapshot", WHOLE)], [Step(UPSERT, [[1, "a", "b"]])]),
        ([change("insert", WHOLE), change("delete", key=1)], [Step('DELETE FROM "t" WHERE "id" = ?', [[1]])]),
        ([change("delete", key=1), change("insert", WHOLE)], [Step(UPSERT, [[1, "a", "b"]])]),
        (
            [change("delete", key=1), change("update", {"id": 1, "name": "c"})],
            [Step('UPDATE "t" SET "id" = ?, "name" = ? WHERE "id" = ?', [[1, "c", 1]])],
        ),
        ([change("insert", WHOLE), change("update", {"id": 1, "name": "c"})], [Step(UPSERT, [[1, "c", "b"]])]),
        (
            [change("insert", WHOLE), change("truncate"), change("delete", key=2)],
            [Step('DELETE FROM "t"', [[]]), Step('DELETE FROM "t" WHERE "id" = ?', [[2]])],
        ),
        (
            [change("insert", WHOLE), change("update", {"id": 2, "name": "c"}, old=1), change("delete", key=3)],
            [
                Step(UPSERT, [[1, "a", "b"]]),
                Step('UPDATE "t" SET "id" = ?, "name" = ? WHERE "id" = ?', [[2, "c", 1]]),
                Step('DELETE FROM "t" WHERE "id" = ?', [[3]]),
            ],
        ),
        (
            [change("update", {"id": 1, "name": "c"}, old=1), change("update", {"id": 2, "note": None})],
            [
                Step('UPDATE "t" SET "id" = ?, "name" = ? WHERE "id" = ?', [[1, "c", 1]]),
                Step('UPDATE "t" SET "id" = ?, "note" = ? WHERE "id" = ?', [[2, None, 2]]),
            ],
        ),
        ([Change("delete", '{"id": 4, "name": "x"}', None, None)], [Step('DELETE FROM "t" WHERE "id" = ?', [[4]])]),
        (
            [change("insert", {"id": 1, "name": {"a": [1.5, None]}, "note": [True, "ü"]})],
            [Step(UPSERT, [[1, '{"a": [1.5, null]}', '[true, "ü"]']])],
        ),
        (
            [change("insert", {"id": 1, "name": False, "note": 2})],
            [Step(UPSERT, [[1, False, 2]])],
        ),
    ],
    ids=range(12),
)
def test_the_statements_that_changes_become(changes: list[Change], expected: list[Step]) -> None:
    assert steps(*changes) == expected


def test_values_are_converted_but_none_that_is_missing() -> None:
    fold = ChangeFold("t", NAMES, ("id",), STANDARD, {"name": lambda value: f"<{value!r}>", "note": lambda value: 5})
    (step,) = fold.steps([change("insert", {"id": 1, "name": "a", "note": None})])
    assert step.rows == [[1, "<'a'>", None]]


def test_a_row_is_found_by_all_of_its_keys() -> None:
    fold = ChangeFold("t", ("a", "b", "c"), ("b", "a"), STANDARD)
    gone = Change("delete", None, None, '{"a": 1, "b": 2}')
    changed = Change("update", None, '{"a": 3, "b": 4, "c": 5}', None)
    assert list(fold.steps([gone, changed])) == [
        Step('DELETE FROM "t" WHERE "b" = ? AND "a" = ?', [[2, 1]]),
        Step(
            'INSERT INTO "t" ("a", "b", "c") VALUES (?, ?, ?) ON CONFLICT ("b", "a") DO UPDATE SET "c" = excluded."c"',
            [[3, 4, 5]],
        ),
    ]
