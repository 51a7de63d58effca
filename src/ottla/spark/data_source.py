"""The format "ottla" itself: what Spark asks for a reader or a writer of topics.

Makes no connection; Spark builds and copies these objects wherever it likes.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

FORMAT_NAME = "ottla"


class OttlaDataSource(DataSource):
    """`spark.read.format("ottla")` and its three siblings. Options and columns are those of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        return FORMAT_NAME

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from ottla.spark import sink

        return sink.batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        from ottla.spark import sink

        return sink.stream_writer(self.options, schema, overwrite)
