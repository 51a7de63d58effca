"""The format "ottla" itself: what Spark asks for a reader or a writer of topics.

Makes no connection; Spark builds and copies these objects wherever it likes.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from ottla.spark.batch_reader import BatchReader
from ottla.spark.options import SourceOptions
from ottla.spark.source_schema import source_columns, source_schema
from ottla.spark.stream_reader import StreamReader

FORMAT_NAME = "ottla"


class OttlaDataSource(DataSource):
    """`spark.read.format("ottla")` and its three siblings. Options and columns are those of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        return FORMAT_NAME

    def schema(self) -> StructType:
        # Options are parsed here as well as in the readers, so that what is wrong with them comes up in `load()`.
        return source_schema(include_headers=SourceOptions.for_either(self.options).include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(SourceOptions.for_batch(self.options), source_columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return StreamReader(SourceOptions.for_stream(self.options), source_columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from ottla.spark import sink

        return sink.batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        from ottla.spark import sink

        return sink.stream_writer(self.options, schema, overwrite)
