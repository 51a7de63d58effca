"""The columns of a text format, as a description declares them: `id BIGINT NOT NULL, name STRING`."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from ottla.spark.pipeline.section import Section
from ottla.spark.pipeline.sql_errors import short_message

CORRUPT = "_ottla_corrupt"
"""The field in which Spark's parsers put a text that does not fit."""


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
    # Spark gives NULL for a missing field whatever the schema says; `and_required` looks after NOT NULL.
    nullable = [StructField(field.name, field.dataType, True, field.metadata) for field in schema.fields]
    return StructType([*nullable, StructField(CORRUPT, StringType())])


def without_corrupt(parsed: Column, schema: StructType) -> Column:
    return f.struct(*(parsed[field.name].alias(field.name) for field in schema.fields))


def and_required(error: Column, parsed: Column, schema: StructType) -> Column:
    for field in schema.fields:
        if not field.nullable:
            error = error.when(parsed[field.name].isNull(), f.lit(f"the column {field.name} is missing"))
    return error
