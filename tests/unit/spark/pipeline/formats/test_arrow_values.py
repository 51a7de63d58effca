"""Values of Python as Arrow arrays: what does not fit is found among what does, and is an error of its row alone."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from ottla.spark.pipeline.formats.arrow_values import arrow_struct, converted_rows, with_errors

ROW = pa.struct([("id", pa.int32()), ("name", pa.string())])
TOO_LARGE = {"id": 2**40, "name": "x"}


def row(number: int) -> dict[str, Any]:
    return {"id": number, "name": str(number)}


@pytest.mark.parametrize("bad", [set(), {0}, {4}, {0, 4}, {2}, {0, 1, 2, 3, 4}, {1, 2}], ids=str)
def test_rows_that_do_not_fit_are_null_and_told(bad: set[int]) -> None:
    rows = [TOO_LARGE if number in bad else row(number) for number in range(5)]
    errors: dict[int, str] = {9: "told before"}
    found = converted_rows(rows, ROW, errors)
    assert found.type == ROW
    assert found.to_pylist() == [None if number in bad else row(number) for number in range(5)]
    assert errors.keys() == {9, *bad} and errors[9] == "told before"
    sentences = {errors[number] for number in bad}
    assert all(told.startswith("it does not fit its columns: ") and "1099511627776" in told for told in sentences)


@pytest.mark.parametrize("wrong", [5, {"id": "x", "name": "x"}, {"id": 1, "name": 5}, {"id": object(), "name": "x"}])
def test_values_of_any_other_type_do_not_fit(wrong: Any) -> None:
    errors: dict[int, str] = {}
    assert converted_rows([row(1), wrong], ROW, errors).to_pylist() == [row(1), None]
    assert list(errors) == [1]


def test_no_rows_and_absent_ones() -> None:
    errors: dict[int, str] = {}
    assert converted_rows([], ROW, errors).to_pylist() == []
    assert converted_rows([None, row(1)], ROW, errors).to_pylist() == [None, row(1)]
    assert errors == {}


def test_of_a_bad_row_nothing_was_read() -> None:
    value = converted_rows([row(0), row(1), row(2)], ROW, {})
    found = with_errors(value, {1: "wrong"})
    assert found.to_pylist() == [
        {"value": row(0), "error": None},
        {"value": None, "error": "wrong"},
        {"value": row(2), "error": None},
    ]
    found.validate(full=True)
    assert with_errors(value, {}).to_pylist() == [{"value": row(number), "error": None} for number in range(3)]
    assert found.type == with_errors(value, {}).type == pa.struct([("value", ROW), ("error", pa.string())])


def test_the_type_that_spark_takes() -> None:
    columns = StructType(
        [StructField("id", LongType(), False), StructField("at", TimestampType()), StructField("name", StringType())]
    )
    fields = [pa.field("id", pa.int64(), nullable=False), ("at", pa.timestamp("us", tz="UTC")), ("name", pa.string())]
    assert arrow_struct(columns) == pa.struct(fields)
