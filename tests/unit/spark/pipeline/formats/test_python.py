"""Decoders of one's own: what they may give, and whose fault it is when they fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from ottla.spark.pipeline.formats.python import BatchDecoder, DecoderError

COLUMNS = StructType([StructField("id", IntegerType(), False), StructField("name", StringType())])
VALUES = [b"1", b"2", b"x", b"4", b"5", b"x"]


def decoded(function: Callable[..., Any], values: list[bytes] = VALUES) -> list[tuple[Any, str | None]]:
    found = BatchDecoder(function, ("value",), COLUMNS)([pa.array(values, pa.binary())])
    found.validate(full=True)
    return [(row["value"], row["error"]) for row in found.to_pylist()]


def test_records_it_raises_for_are_bad_and_the_others_are_not() -> None:
    calls = []

    def decode(value: Any) -> Any:
        calls.append(len(value))
        numbers = [int(each) for each in value.to_pylist()]
        return pa.table({"name": [str(n) for n in numbers], "id": numbers})

    found = decoded(decode)
    failed = "the decoder failed: ValueError: invalid literal for int() with base 10: b'x'"
    assert [value for value, _ in found] == [
        None if each == b"x" else {"id": int(each), "name": each.decode()} for each in VALUES
    ]
    assert [error for _, error in found] == [None, None, failed, None, None, failed]
    assert calls[0] == len(VALUES)


def test_errors_that_it_tells_and_columns_that_are_missing() -> None:
    def decode(value: Any) -> Any:
        ids = [int(each) if each != b"x" else None for each in value.to_pylist()]
        return {"id": ids, "name": ["n"] * len(ids), "_error": [None, "not this one", *[None] * (len(ids) - 2)]}

    assert decoded(decode)[:3] == [
        ({"id": 1, "name": "n"}, None),
        (None, "not this one"),
        (None, "the column id is missing"),
    ]


def test_a_number_that_does_not_fit_its_column_is_the_records_fault() -> None:
    def decode(value: Any) -> Any:
        return {"id": [2**40 if each == b"x" else 1 for each in value.to_pylist()], "name": pa.nulls(len(value))}

    errors = [error for _, error in decoded(decode)]
    assert [error is None for error in errors] == [each != b"x" for each in VALUES]
    assert "1099511627776" in (errors[2] or "")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (None, "the decoder gave NoneType; it has to give a table or a dict of arrays"),
        ({"id": [1], "name": ["a"]}, "the decoder gave 1 rows for 6 records"),
        ({"id": [1] * 6}, "the decoder gave no column 'name', which the schema has"),
    ],
)
def test_a_decoder_that_does_not_keep_to_its_form_is_told(given: Any, sentence: str) -> None:
    with pytest.raises(DecoderError, match=sentence):
        decoded(lambda value: given)


def test_what_may_pass_is_no_records_fault() -> None:
    def decode(value: Any) -> Any:
        raise ConnectionResetError("the other side has gone")

    with pytest.raises(ConnectionResetError):
        decoded(decode)


def test_a_batch_of_none() -> None:
    assert decoded(lambda value: {"id": [], "name": []}, []) == []


def test_each_column_that_it_asks_for_is_given() -> None:
    given: list[dict[str, Any]] = []

    def decode(**columns: Any) -> Any:
        given.append({name: column.to_pylist() for name, column in columns.items()})
        return {"id": pa.array([1] * len(columns["key"]), pa.int64()), "name": columns["key"]}

    arrays = [pa.array(["a", "b"]), pa.array([5, 6])]
    decoder = BatchDecoder(decode, ("key", "offset"), COLUMNS)
    assert decoder(arrays).field("error").null_count == 2
    assert given == [{"key": ["a", "b"], "offset": [5, 6]}]
    with pytest.raises(ValueError, match="zip"):
        decoder(arrays[:1])


@pytest.mark.parametrize("made", [pa.table, pa.RecordBatch.from_pydict, dict])
def test_the_columns_may_come_in_any_form(made: Callable[..., Any]) -> None:
    values = {
        "extra": [0] * 6,
        "name": ["n"] * 6,
        "id": [None, *range(1, 6)],
        "_error": [None, None, "no", *[None] * 3],
    }
    found = decoded(lambda value: made(values))
    assert found == [
        (None, "the column id is missing"),
        ({"id": 1, "name": "n"}, None),
        (None, "no"),
        *(({"id": number, "name": "n"}, None) for number in (3, 4, 5)),
    ]


def test_what_it_tells_of_a_record_goes_before_what_is_missing() -> None:
    found = decoded(lambda value: {"id": [None] * 2, "name": [None] * 2, "_error": ["told", None]}, [b"", b""])
    assert found == [(None, "told"), (None, "the column id is missing")]


def test_only_the_records_it_raises_for_are_asked_one_by_one() -> None:
    calls: list[list[bytes]] = []

    def decode(value: Any) -> Any:
        calls.append(value.to_pylist())
        if b"x" in calls[-1]:
            raise RuntimeError("never")
        return {"id": [1] * len(value), "name": [""] * len(value)}

    assert [error for _, error in decoded(decode, [b"1", b"2", b"x"])] == [
        None,
        None,
        "the decoder failed: RuntimeError: never",
    ]
    assert calls == [[b"1", b"2", b"x"], [b"1"], [b"2", b"x"], [b"2"], [b"x"]]
