"""Values that are UTF-8 text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Self

from pyspark.sql import functions as f

from ottla.spark.pipeline.formats.value_format import Decoded, not_text, with_decoded
from ottla.spark.pipeline.parts import Finding
from ottla.spark.pipeline.section import Section

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class TextFormat:
    has_columns: ClassVar[bool] = False
    inputs: ClassVar[tuple[str, ...]] = ("value",)

    @classmethod
    def from_section(cls, section: Section) -> Self:
        return cls()

    def check(self) -> Sequence[Finding]:
        return []

    def decode(self, records: DataFrame) -> DataFrame:
        value = f.col("value")
        text = value.cast("string")
        # A text may be absent: that is how a compacted topic says that a key is gone.
        return with_decoded(records, Decoded(text, f.when(value.isNotNull(), not_text(value, text))))
