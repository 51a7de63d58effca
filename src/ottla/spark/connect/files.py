"""The parts `files` of a pipeline: a directory whose new files are read, and one that results are written into.

Both are Spark's own. Its file source remembers in the checkpoint which files it has read, and its file sink lists the
files of each batch in a log (`_spark_metadata`): with both, a file's rows come out exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pyspark.sql import functions as f
from pyspark.sql.types import StringType

from ottla.spark.pipeline.parts import Finding, FlowContext, MovedFlow
from ottla.spark.pipeline.section import Section

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

FORMATS = ("text", "json", "csv", "parquet")
FORMATS_OF_FILES = frozenset({*FORMATS, "orc", "avro", "xml", "binaryFile"})
_FILE_COLUMN = "file"


class FilesSource:
    """Options: path, format, schema (DDL), max_files, pattern, file_column, options (Spark's own, by name)."""

    def __init__(self, section: Section) -> None:
        self._section = section
        self.path = _take_location(section)
        self.format = section.take_choice("format", FORMATS)
        self.schema = section.take("schema", str, None)
        self.file_column = section.take("file_column", bool, False)
        self.options = section.take("options", dict[str, str], {})
        max_files = section.take("max_files", int, None)
        if max_files is not None:
            self.options["maxFilesPerTrigger"] = str(max_files)
        pattern = section.take("pattern", str, None)
        if pattern is not None:
            self.options["pathGlobFilter"] = pattern
        if self.schema is None and self.format != "text":
            section.fail("schema", f"format {self.format} needs a 'schema', as in 'id bigint, name string'")
        if self.schema is not None and self.format == "text":
            section.fail("schema", "format text has no schema: each line is a row with the column 'value'")

    @classmethod
    def from_section(cls, section: Section) -> Self:
        made = cls(section)
        section.finish()
        return made

    def check(self) -> Sequence[Finding]:
        if _is_local(self.path) and not Path(self.path).is_dir():
            return [self._section.problem("path", f"there is no directory {self.path}")]
        return []

    def load(self, spark: SparkSession) -> DataFrame:
        reader = spark.readStream.format(self.format).options(**self.options)
        return self._finished((reader if self.schema is None else reader.schema(self.schema)).load(self.path))

    def load_table(self, spark: SparkSession) -> DataFrame:
        reader = spark.read.format(self.format).options(**self.options)
        return self._finished((reader if self.schema is None else reader.schema(self.schema)).load(self.path))

    def _finished(self, frame: DataFrame) -> DataFrame:
        if not self.file_column:
            return frame
        return frame.select("*", f.col("_metadata.file_path").alias(_FILE_COLUMN))


class FilesSink:
    """Options: path, format, partition_by, options (Spark's own, by name)."""

    def __init__(self, section: Section) -> None:
        self._section = section
        self.path = _take_location(section)
        self.format = section.take_choice("format", FORMATS)
        self.partition_by = section.take("partition_by", list[str], [])
        self.options = section.take("options", dict[str, str], {})

    @classmethod
    def from_section(cls, section: Section) -> Self:
        made = cls(section)
        section.finish()
        return made

    def check(self) -> Sequence[Finding]:
        if _is_local(self.path) and Path(self.path).exists() and not Path(self.path).is_dir():
            return [self._section.problem("path", f"{self.path} is a file, not a directory")]
        return []

    def writer(self, frame: DataFrame, *, flow: FlowContext) -> DataStreamWriter:
        if flow.mode != "append":
            self._section.fail("kind", f"files can only be added to: flow {flow.name!r} must be in mode append")
        missing = [name for name in self.partition_by if name not in frame.columns]
        if missing:
            there = ", ".join(frame.columns)
            self._section.fail("partition_by", f"there is no column {', '.join(missing)}; there is {there}")
        rest = [field for field in frame.schema.fields if field.name not in self.partition_by]
        if self.format == "text" and [field.dataType for field in rest] != [StringType()]:
            self._section.fail("format", "format text takes one column of text: make it one with concat_ws or to_json")
        writer = frame.writeStream.format(self.format).options(**self.options).option("path", self.path)
        return writer.partitionBy(*self.partition_by) if self.partition_by else writer

    rewritten_rows = "they are written into files of their own once more"

    def obstacle_to_move(self) -> str | None:
        return obstacle_to_move(self.path)

    def flow_moved(self, moved: MovedFlow) -> None:
        pass


def obstacle_to_move(path: str) -> str | None:
    """Spark lists the batches of a directory by their numbers, which a new query counts from 0, and drops those that
    are in the list."""
    if _is_local(path) and not (Path(path) / "_spark_metadata").exists():
        return None
    return (
        f"the files in {path} are listed by batch, and a moved flow counts its batches anew. Give the sink another "
        "'path', the flow another 'checkpoint', and its source the 'starting_offsets'"
    )


def _take_location(section: Section) -> str:
    """A directory: a local path, relative to the pipeline's file, or an address of a file system Spark knows."""
    text = section.take("path", str)
    return text if "://" in text else str(section.resolve(text))


def _is_local(location: str) -> bool:
    return "://" not in location
