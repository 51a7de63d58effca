"""The interface of formats: records with a value become records with what was read, and with what was wrong.

A value is read or it is not: an error is a sentence in a column, and nothing is raised here. Whoever loads a source
decides whether a bad record stops the flow, is left out, or is set aside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, Self

from pyspark.sql import Column
from pyspark.sql import functions as f

from ottla.spark.pipeline.parts import Finding
from ottla.spark.pipeline.section import Section

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VALUE = "_ottla_value"
"""The column of what was read; NULL or half filled where there is an error."""
ERROR = "_ottla_error"
"""The column of what was wrong: a sentence, or NULL."""


class Decoded(NamedTuple):
    value: Column
    error: Column


class SourceFormat(Protocol):
    """How a topic source reads values."""

    has_columns: ClassVar[bool]
    """Whether what is read is a struct, whose fields are the rows' columns; otherwise it is a column `value`."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns of a record that `decode` looks at."""
        ...

    @classmethod
    def from_section(cls, section: Section) -> Self:
        """Takes its own options from the source's section; raises SpecError."""
        ...

    def check(self) -> Sequence[Finding]:
        """Looks outside before anything runs, as a part does."""
        ...

    def decode(self, records: DataFrame) -> DataFrame:
        """The records with the columns VALUE and ERROR besides their own; SpecError if the schema is none."""
        ...


class SinkFormat(Protocol):
    """How a topic sink writes values."""

    @classmethod
    def from_section(cls, section: Section) -> Self: ...

    def check(self) -> Sequence[Finding]: ...

    def prepare(self) -> None:
        """Called when all checks have passed, before the rows are asked to be encoded for the last time."""
        ...

    def encode(self, rows: DataFrame) -> Column:
        """The value of a record, from all columns of the rows; SpecError if they cannot be written so."""
        ...


def with_decoded(records: DataFrame, decoded: Decoded) -> DataFrame:
    return records.select("*", decoded.value.alias(VALUE), decoded.error.alias(ERROR))


def evaluated_once(column: Column) -> Column:
    """The same column, computed in the projection it stands in and nowhere else.

    Spark pushes filters below projections, and would compute what both look at in both: a value that is parsed would be
    parsed twice. What it takes to be non-deterministic it leaves where it is.
    """
    return f.when(f.spark_partition_id() >= 0, column)


def not_text(value: Column, text: Column) -> Column:
    """Why a value is no text, for formats that are text; to be continued with `when`."""
    return f.when(value.isNull(), f.lit("the value is null")).when(
        ~f.is_valid_utf8(text), f.lit("the value is not UTF-8 text")
    )
