"""The part `table` of a pipeline: a table of PostgreSQL or MySQL, followed as it grows or read as it stands."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Self

from ottla.spark.connect.database import DatabaseError
from ottla.spark.connect.table_follower import TableOptions
from ottla.spark.connect.table_server import SourceColumn, TableServer, open_table_server
from ottla.spark.connect.table_source import TABLE_FORMAT, DatabaseTableSource
from ottla.spark.connect.table_window import Order
from ottla.spark.pipeline.parts import Finding
from ottla.spark.pipeline.section import Section
from ottla.spark.shared_environment import stream_reader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class TableSource:
    """Options: url, table, incrementing, timestamp, delay, poll_interval, max_rows, wait_for_writers."""

    def __init__(self, section: Section, options: TableOptions) -> None:
        self._section = section
        self.options = options

    @classmethod
    def from_section(cls, section: Section) -> Self:
        url = section.take("url", str)
        try:
            open_table_server(url)
        except DatabaseError as e:
            section.fail("url", str(e))
        options = TableOptions(
            url=url,
            table=section.take("table", str),
            order=Order(section.take("incrementing", str, None), section.take("timestamp", str, None)),
            delay_ms=section.take_duration_ms("delay", 0),
            poll_interval_ms=section.take_duration_ms("poll_interval", 1000),
            max_rows=section.take("max_rows", int, 100_000),
            wait_for_writers=section.take("wait_for_writers", bool, True),
        )
        section.finish()
        if options.max_rows < 1:
            section.fail("max_rows", "'max_rows' must be at least 1")
        if options.delay_ms and options.order.timestamp is None:
            section.fail("delay", "'delay' waits for a row's timestamp to be so old: name the column in 'timestamp'")
        return cls(section, options)

    def check(self) -> Sequence[Finding]:
        with closing(open_table_server(self.options.url)) as server:
            try:
                columns = {column.name: column for column in server.columns(self.options.table)}
            except DatabaseError as e:
                return [self._section.problem("url", str(e))]
            if not columns:
                return [self._section.problem("table", f"there is no table {self.options.table}")]
            order = self.options.order
            return [
                *self._check_column("incrementing", order.incrementing, columns, server.number_kinds),
                *self._check_column("timestamp", order.timestamp, columns, server.moment_kinds),
                *self._check_writers(server),
            ]

    def _check_column(
        self, key: str, name: str | None, columns: dict[str, SourceColumn], allowed: Sequence[str]
    ) -> list[Finding]:
        if name is None:
            return []
        if name not in columns:
            there = ", ".join(columns)
            return [self._section.problem(key, f"table {self.options.table} has no column {name!r}; it has {there}")]
        if columns[name].kind not in allowed:
            kinds = ", ".join(allowed)
            return [self._section.problem(key, f"column {name!r} cannot be used as {key}: it must be {kinds}")]
        return []

    def _check_writers(self, server: TableServer) -> list[Finding]:
        if not self.options.order.columns or not self.options.wait_for_writers:
            return []
        try:
            server.writers()
        except DatabaseError as e:
            return [
                self._section.problem(
                    "wait_for_writers", f"{e}; grant it to see the transactions of others, or set it to false"
                )
            ]
        return []

    def load(self, spark: SparkSession) -> DataFrame:
        if not self.options.order.columns:
            self._section.fail("table", "say what the table grows by: 'incrementing', 'timestamp' or both")
        spark.dataSource.register(DatabaseTableSource)
        return stream_reader(spark, TABLE_FORMAT).options(**self.options.spark_options()).load()

    def load_table(self, spark: SparkSession) -> DataFrame:
        spark.dataSource.register(DatabaseTableSource)
        return spark.read.format(TABLE_FORMAT).options(**self.options.spark_options()).load()
