"""The columns of a text format, as a description declares them: `id BIGINT NOT NULL, name STRING`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from ottla.spark.pipeline.formats.value_format import ERROR, VALUE, evaluated_once, not_text
from ottla.spark.pipeline.section import Section
from ottla.spark.pipeline.sql_errors import short_message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CORRUPT = "_ottla_corrupt"
"""The field in which Spark's parsers put a text that does not fit."""
_PARSED = "_ottla_parsed"
_NOT_TEXT = "_ottla_not_text"
_IS_WHOLE = "_ottla_is_whole"


class ColumnsSchema:
    """Taken from a section as text; only a running Spark can parse it."""

    def __init__(self, section: Section, text: str) -> None:
        self._section = section
        self._text = text

    @classmethod
    def from_section(cls, section: Section) -> ColumnsSchema:
        text = section.take("schema", str, None)
        if text is None:
            section.fail("format", f"format {section.take('format', str)} needs a 'schema'")
        return cls(section, text)

    def parse(self) -> StructType:
        try:
            schema = StructType.fromDDL(self._text)
        except PySparkException as e:
            self._section.fail("schema", short_message(e))
        if not isinstance(schema, StructType):
            self._section.fail("schema", f"{self._text!r} is one type; name columns, as in 'id BIGINT, name STRING'")
        return schema


def with_corrupt(schema: StructType) -> StructType:
    # Spark gives NULL for a missing field whatever the schema says; `with_columns` looks after NOT NULL.
    nullable = [StructField(field.name, field.dataType, True, field.metadata) for field in schema.fields]
    return StructType([*nullable, StructField(CORRUPT, StringType())])


class Parsed(NamedTuple):
    """What a parser makes of a text, and what it does not look at."""

    columns: Column
    """By `with_corrupt(schema)`."""
    is_whole: Column
    """Whether the parser has seen all of the text. It may be wrong or NULL where the text does not fit."""
    misfit: str
    """The sentence about a text that does not fit."""
    rest: str
    """The sentence about a text that fits, with something after it."""


def with_columns(records: DataFrame, text: Column, parsed: Parsed, schema: StructType) -> DataFrame:
    """The records with what was read from a text, and what was wrong, as columns VALUE and ERROR."""
    # This projection looks at the text, the next one only at what came of it.
    seen = records.select(
        "*",
        evaluated_once(parsed.columns).alias(_PARSED),
        not_text(f.col("value"), text).alias(_NOT_TEXT),
        parsed.is_whole.alias(_IS_WHOLE),
    )
    found = f.col(_PARSED)
    error = (
        f.when(f.col(_NOT_TEXT).isNotNull(), f.col(_NOT_TEXT))
        .when(found.isNull() | found[CORRUPT].isNotNull(), f.lit(parsed.misfit))
        .when(~f.coalesce(_IS_WHOLE, f.lit(False)), f.lit(parsed.rest))
    )
    for field in schema.fields:
        if not field.nullable:
            error = error.when(found[field.name].isNull(), f.lit(f"the column {field.name} is missing"))
    value = f.struct(*(found[field.name].alias(field.name) for field in schema.fields))
    return seen.select(*records.columns, value.alias(VALUE), error.alias(ERROR))
