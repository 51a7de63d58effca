"""Values that are JSON objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Self

from pyspark.sql import Column
from pyspark.sql import functions as f

from ottla.spark.pipeline.formats.columns_schema import CORRUPT, ColumnsSchema, Parsed, with_columns, with_corrupt
from ottla.spark.pipeline.parts import Finding
from ottla.spark.pipeline.section import Section

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MISFIT = "the value is not a JSON object that fits the schema"
_REST = "there is text after the JSON object"


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
        text = f.col("value").cast("string")
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, "allowSingleQuotes": "false"}
        parsed = f.from_json(text, with_corrupt(schema), options)
        return with_columns(records, text, Parsed(parsed, _is_alone(f.col("value"), text), _MISFIT, _REST), schema)


def _is_alone(value: Column, text: Column) -> Column:
    """Whether there is nothing after the JSON object that a text begins with: Spark's parser stops there."""
    # The brace that ends an object is often the only one. To look for others takes a hundredth of the time of a parser.
    before = f.substring(value, f.lit(1), f.octet_length(value) - 1)
    has_one_brace = text.endswith("}") & ~f.contains(before, f.lit(b"}"))
    # As the only item of an array it has to be the whole text, unless the text closes the array itself: then one more
    # item makes no difference.
    is_item = f.json_array_length(f.concat(f.lit("["), text, f.lit("]"))) == 1
    is_inside = f.json_array_length(f.concat(f.lit("["), text, f.lit(",0]"))) == 2
    return f.when(has_one_brace, f.lit(True)).otherwise(is_item & (~f.contains(text, f.lit("]")) | is_inside))


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
