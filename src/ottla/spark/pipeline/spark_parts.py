"""Parts that are Spark's own: any of its formats as a source or sink, and the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from ottla.spark.connect.files import FORMATS_OF_FILES, obstacle_to_move
from ottla.spark.pipeline.parts import Finding, FlowContext, MovedFlow
from ottla.spark.pipeline.section import Section
from ottla.spark.shared_environment import stream_reader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class SparkSource:
    """A format Spark knows by its name, with its options: `rate`, `delta`, a data source of one's own."""

    def __init__(self, format_name: str, schema: str | None, options: dict[str, str]) -> None:
        self._format = format_name
        self._schema = schema
        self._options = options

    @classmethod
    def from_section(cls, section: Section) -> Self:
        made = cls(
            section.take("format", str), section.take("schema", str, None), section.take("options", dict[str, str], {})
        )
        section.finish()
        return made

    def check(self) -> Sequence[Finding]:
        return []

    def load(self, spark: SparkSession) -> DataFrame:
        reader = stream_reader(spark, self._format).options(**self._options)
        return (reader if self._schema is None else reader.schema(self._schema)).load()

    def load_table(self, spark: SparkSession) -> DataFrame:
        reader = spark.read.format(self._format).options(**self._options)
        return (reader if self._schema is None else reader.schema(self._schema)).load()


class SparkSink:
    """A format Spark knows by its name. How often a row may come after a failure is that format's affair."""

    def __init__(self, format_name: str, options: dict[str, str]) -> None:
        self._format = format_name
        self._options = options

    @classmethod
    def from_section(cls, section: Section) -> Self:
        made = cls(section.take("format", str), section.take("options", dict[str, str], {}))
        section.finish()
        return made

    def check(self) -> Sequence[Finding]:
        return []

    def writer(self, frame: DataFrame, *, flow: FlowContext) -> DataStreamWriter:
        return frame.writeStream.format(self._format).options(**self._options)

    @property
    def rewritten_rows(self) -> str:
        return f"what becomes of their rows is up to the format {self._format}"

    def obstacle_to_move(self) -> str | None:
        return obstacle_to_move(self._options.get("path", "")) if self._format in FORMATS_OF_FILES else None

    def flow_moved(self, moved: MovedFlow) -> None:
        pass


class ConsoleSink:
    """Prints the rows of each batch, for looking at a pipeline while it is written. A batch may be printed again after
    a failure."""

    def __init__(self, rows: int, is_truncated: bool) -> None:
        self._rows = rows
        self._is_truncated = is_truncated

    @classmethod
    def from_section(cls, section: Section) -> Self:
        made = cls(section.take("rows", int, 20), section.take("truncate", bool, False))
        section.finish()
        return made

    def check(self) -> Sequence[Finding]:
        return []

    def writer(self, frame: DataFrame, *, flow: FlowContext) -> DataStreamWriter:
        rows, is_truncated, name = self._rows, self._is_truncated, flow.name

        def show(batch: DataFrame, batch_id: int) -> None:
            # All of it is computed, and not only what is shown: a record that cannot be read has to be noticed.
            computed = batch.persist()
            try:
                print(f"{name}, batch {batch_id}: {computed.count()} rows")
                computed.show(rows, truncate=is_truncated)
            finally:
                computed.unpersist()

        return frame.writeStream.foreachBatch(show)
