"""Values that are JSON objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Self

from pyspark.sql import Column
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


class JsonFormat:
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
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, "allowSingleQuotes": "false"}
        parsed = f.from_json(text, with_corrupt(schema), options)
        # Spark's parser stops after the first object; as the only item of an array it has to be the whole text.
        is_alone = f.json_array_length(f.concat(f.lit("["), text, f.lit("]"))) == 1
        is_object = parsed.isNotNull() & parsed[CORRUPT].isNull() & f.coalesce(is_alone, f.lit(False))
        error = not_text(value, text).when(~is_object, f.lit("the value is not a JSON object that fits the schema"))
        return with_decoded(records, Decoded(without_corrupt(parsed, schema), and_required(error, parsed, schema)))


class JsonObjects:
    """Rows as JSON objects. NULLs are kept: a reader can tell them from columns that are not there."""

    @classmethod
    def from_section(cls, section: Section) -> Self:
        return cls()

    def check(self) -> Sequence[Finding]:
        return []

    def prepare(self) -> None:
        pass

    def encode(self, rows: DataFrame) -> Column:
        columns = f.struct(*(f.col(f"`{name}`") for name in rows.columns))
        return f.to_json(columns, {"ignoreNullFields": "false"})
