"""Values that are lines of CSV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Self

from pyspark.sql import functions as f

from ottla.spark.pipeline.formats.columns_schema import CORRUPT, ColumnsSchema, Parsed, with_columns, with_corrupt
from ottla.spark.pipeline.parts import Finding
from ottla.spark.pipeline.section import Section

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MISFIT = "the value is not a line of CSV that fits the schema"
_LINE_END = "\r\n"


class CsvFormat:
    has_columns: ClassVar[bool] = True
    inputs: ClassVar[tuple[str, ...]] = ("value",)

    def __init__(self, schema: ColumnsSchema) -> None:
        self._schema = schema

    @classmethod
    def from_section(cls, section: Section) -> Self:
        return cls(ColumnsSchema.from_section(section))

    def check(self) -> Sequence[Finding]:
        return []

    def decode(self, records: DataFrame) -> DataFrame:
        schema = self._schema.parse()
        text = f.col("value").cast("string")
        # To trim takes half as long as to parse, and few values end with the end of a line.
        has_end = text.endswith("\n") | text.endswith("\r")
        line = f.when(has_end, f.rtrim(text, f.lit(_LINE_END))).otherwise(text)
        # A quote within quotes is doubled (RFC 4180); Spark's own default is a backslash before it.
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, "escape": '"'}
        parsed = f.from_csv(line, with_corrupt(schema).toDDL(), options)
        return with_columns(records, text, Parsed(parsed, line != f.lit(""), _MISFIT, _MISFIT), schema)
