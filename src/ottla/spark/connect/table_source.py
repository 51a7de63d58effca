"""A growing table of a database as a Spark source: rows after the last one read, by columns that only grow.

The driver's reader decides how far a micro-batch goes; a task selects the rows of that window. Offsets hold the place
of the last row, so a window can be selected again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ottla.spark.connect.table_follower import TableFollower, TableOptions
from ottla.spark.connect.table_server import TableServer, open_table_server, spark_schema
from ottla.spark.connect.table_window import Condition, Position

TABLE_FORMAT = "ottla_table"
_IDLE_WAIT_S = 0.2
"""At most this long the driver's reader keeps Spark waiting for rows."""


class DatabaseTableSource(DataSource):
    """`format("ottla_table")`: to be registered with `spark.dataSource.register`."""

    @classmethod
    def name(cls) -> str:
        return TABLE_FORMAT

    def schema(self) -> StructType:
        options = self._options()
        return spark_schema(open_table_server(options.url).columns(options.table))

    def reader(self, schema: StructType) -> DataSourceReader:
        return TableReader(self._options(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return TableStreamReader(self._options(), schema)

    def _options(self) -> TableOptions:
        return TableOptions.parse({name.lower(): value for name, value in self.options.items()})


class WindowPartition(InputPartition):
    """The rows after `start` up to and with `end`."""

    def __init__(self, start: Position, end: Position) -> None:
        super().__init__((start, end))
        self.start = start
        self.end = end


class TableReader(DataSourceReader):
    """The table as it stands."""

    def __init__(self, options: TableOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _select(open_table_server(self._options.url), self._options, self._schema, Condition("TRUE", ()))


class TableStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: TableOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._follower = TableFollower(options, open_table_server(options.url))
        self._looked_s: float | None = None
        self._final: Position | None = None
        """Where a query that only wants what is available now has to stop."""

    # In the process that lives as long as the query

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return Position().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        while (final := self._follower.settled_end(Position(), max_rows=None)) is None:
            time.sleep(_IDLE_WAIT_S)
        self._final = final

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begun = Position.from_json(start)
        if self._final is not None:
            return self._end_before(self._final, begun).to_json()
        if not self._is_time_to_look():
            return start
        end = self._follower.settled_end(begun, self._options.max_rows) or begun
        # Where a window was found there may be another one at once.
        self._looked_s = None if end != begun else time.monotonic()
        return end.to_json()

    def _end_before(self, final: Position, begun: Position) -> Position:
        end = self._follower.end_after(begun, self._options.max_rows)
        if end is None or not begun.is_before(final):
            return begun
        return end if end.is_before(final) else final

    def _is_time_to_look(self) -> bool:
        """Waits a little if not: Spark asks again at once."""
        if self._looked_s is None:
            return True
        left_s = self._looked_s + self._options.poll_interval_ms / 1000 - time.monotonic()
        if left_s > 0:
            time.sleep(min(left_s, _IDLE_WAIT_S))
        return left_s <= _IDLE_WAIT_S

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [WindowPartition(Position.from_json(start), Position.from_json(end))]

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the table keeps its rows."""

    # In a task

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, WindowPartition)
        server = open_table_server(self._options.url)
        order, dialect = self._options.order, server.dialect
        window = order.after(partition.start, dialect).also(order.up_to(partition.end, dialect))
        return _select(server, self._options, self._schema, window)


def _select(
    server: TableServer, options: TableOptions, schema: StructType, condition: Condition
) -> Iterator[pa.RecordBatch]:
    expressions = {column.name: column.expression for column in server.columns(options.table)}
    selected = ", ".join(expressions[name] for name in schema.names)
    query = f"SELECT {selected} FROM {server.dialect.quoted_table(options.table)} WHERE {condition.text}"
    if options.order.columns:
        query = f"{query} ORDER BY {server.dialect.quoted_list(options.order.columns)}"
    return server.fetch(query, condition.parameters, schema)
