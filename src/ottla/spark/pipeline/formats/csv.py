"""Values that are lines of CSV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Self

from pyspark.sql import functions as f

from ottla.spark.pipeline.formats.columns_schema import (
    CORRUPT,
    ColumnsSchema,
    and_required,
    with_corrupt,
    without_corrupt,
)
from ottla.spark.pipeline.formats.value_format import Decoded, not_text, with_decoded
from ottla.spark.pipeline.parts import Finding
from ottla.spark.pipeline.section import Section

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
        value = f.col("value")
        text = value.cast("string")
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in with_corrupt(schema))
        parsed = f.from_csv(text, columns, options)
        is_line = parsed.isNotNull() & parsed[CORRUPT].isNull() & (f.length(text) > 0)
        error = not_text(value, text).when(~is_line, f.lit("the value is not a line of CSV that fits the schema"))
        return with_decoded(records, Decoded(without_corrupt(parsed, schema), and_required(error, parsed, schema)))
