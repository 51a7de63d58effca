"""JSON, CSV and text: which values are read, and what is said of the others. Their parsers are stand-ins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from pyspark.errors import PySparkException
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ottla.spark.pipeline.formats import columns_schema, csv, json, text, value_format
from ottla.spark.pipeline.formats.columns_schema import CORRUPT, ColumnsSchema, with_corrupt
from ottla.spark.pipeline.formats.csv import CsvFormat
from ottla.spark.pipeline.formats.json import JsonFormat, JsonObjects
from ottla.spark.pipeline.formats.text import TextFormat
from ottla.spark.pipeline.formats.value_format import ERROR, VALUE
from ottla.spark.pipeline.problems import Place, SpecError
from ottla.spark.pipeline.section import Section
from tests.unit.spark.pipeline.plain_columns import Frame, col, lit, use_plain_columns

SCHEMA = StructType([StructField("a", StringType(), False), StructField("b", StringType())])


@pytest.fixture(autouse=True)
def plain_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    use_plain_columns(monkeypatch, columns_schema, csv, json, text, value_format)
    monkeypatch.setattr(StructType, "fromDDL", lambda ddl: SCHEMA)
    monkeypatch.setattr(StructType, "toDDL", lambda self: ", ".join(f"{name} STRING" for name in self.names))


def section(**values: object) -> Section:
    return Section.of(values, Place("p.yaml", 7), "source in", directory=Path("/"))


def decoded(kind: Any, value: bytes | None) -> tuple[Any, Any]:
    """What is read of a value, and what is said of it."""
    made = kind.from_section(section(format="x", schema="a STRING NOT NULL, b STRING"))
    assert made.inputs == ("value",)
    assert list(made.check()) == []
    frame = made.decode(Frame({"value": value, "offset": 5}))
    assert frame.columns == ["value", "offset", VALUE, ERROR]
    (row,) = frame.rows
    assert (row["value"], row["offset"]) == (value, 5)
    return row[VALUE], row[ERROR]


MISFIT = "the value is not a JSON object that fits the schema"
REST = "there is text after the JSON object"


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b'{"a": "x", "b": null}', None),
        (b'{"a": "x"}', None),
        (b'{"a": "x", "b": {"c": "}"}}', None),
        (b'{"a": "x"}  \n', None),
        (b'{"a": "]"}  ', None),
        (b'{"a": "x"} {"a": "y"}', REST),
        (b'{"a": "x"}, {"a": "y"}', REST),
        (b'{"a": "x"} and so on', REST),
        (b'{"a": "x"}}', REST),
        (b'{"a": "x"}] [{"b": 1}', REST),
        (b'{"a": "x"}]', REST),
        (b'{"b": "x"}', "the column a is missing"),
        (b'["a"]', MISFIT),
        (b"{", MISFIT),
        (b"", MISFIT),
        (None, "the value is null"),
        (b'{"a": "\xff"}', "the value is not UTF-8 text"),
    ],
)
def test_a_value_of_json_is_one_object(value: bytes | None, error: str | None) -> None:
    row, told = decoded(JsonFormat, value)
    assert told == error
    if error is None:
        assert row["a"] in ("x", "]") and list(row) == ["a", "b"]


CSV_MISFIT = "the value is not a line of CSV that fits the schema"


@pytest.mark.parametrize(
    ("value", "row", "error"),
    [
        (b"x,y", {"a": "x", "b": "y"}, None),
        (b"x,y\n", {"a": "x", "b": "y"}, None),
        (b"x,y\r\n", {"a": "x", "b": "y"}, None),
        (b"x,y\r", {"a": "x", "b": "y"}, None),
        (b"x", None, CSV_MISFIT),
        (b"\n", None, CSV_MISFIT),
        (b"", None, CSV_MISFIT),
        (None, None, "the value is null"),
        (b"x,\xff", None, "the value is not UTF-8 text"),
    ],
)
def test_a_value_of_csv_is_one_line(value: bytes | None, row: Any, error: str | None) -> None:
    found, told = decoded(CsvFormat, value)
    assert told == error
    if row is not None:
        assert found == row


def test_an_empty_line_is_none_even_if_a_parser_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def lenient(line: Any, schema: str, options: object) -> Any:
        return lit({"a": "x", "b": None, CORRUPT: None})

    monkeypatch.setattr(csv.f, "from_csv", lenient)
    assert decoded(CsvFormat, b"\r\n")[1] == CSV_MISFIT
    assert decoded(CsvFormat, b"x")[1] is None


@pytest.mark.parametrize(
    ("value", "row", "error"),
    [(b"x", "x", None), (None, None, None), (b"\xff", None, "the value is not UTF-8 text")],
)
def test_a_value_of_text_may_be_absent(value: bytes | None, row: Any, error: str | None) -> None:
    found, told = decoded(TextFormat, value)
    assert told == error
    if error is None:
        assert found == row


def test_which_formats_have_columns() -> None:
    assert (JsonFormat.has_columns, CsvFormat.has_columns, TextFormat.has_columns) == (True, True, False)


def test_objects_keep_their_nulls() -> None:
    format = JsonObjects.from_section(section())
    assert format.check() == []
    frame: Any = Frame({"a": 1, "b": None})
    assert format.encode(frame).of(frame.rows[0]) == '{"a": 1, "b": null}'  # type: ignore[attr-defined]


def test_fields_may_be_missing_to_the_parser() -> None:
    """Whoever looks at the rows sees to those that must not be."""
    assert with_corrupt(SCHEMA) == StructType(
        [StructField("a", StringType()), StructField("b", StringType()), StructField(CORRUPT, StringType())]
    )


def test_a_schema_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(ddl: str) -> StructType:
        raise PySparkException("[PARSE_SYNTAX_ERROR] wrong. SQLSTATE: 42601")

    schema = ColumnsSchema.from_section(section(schema="BIGINT"))
    monkeypatch.setattr(StructType, "fromDDL", lambda ddl: LongType())
    with pytest.raises(SpecError, match="'BIGINT' is one type; name columns, as in"):
        schema.parse()
    monkeypatch.setattr(StructType, "fromDDL", refuse)
    with pytest.raises(SpecError, match=r"p\.yaml:7: source in: wrong"):
        schema.parse()
    with pytest.raises(SpecError, match="format csv needs a 'schema'"):
        ColumnsSchema.from_section(section(format="csv"))


def test_what_is_computed_once_is_what_it_was() -> None:
    row = {"a": 5}
    assert value_format.evaluated_once(col("a")).of(row) == 5  # type: ignore[arg-type, attr-defined]
