"""Big batches: the tasks write their rows into a staging table, the driver takes them over.

A task may run more than once, and an attempt that was given up may still be writing. So every row names its attempt,
and only attempts whose success Spark has reported are taken over.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from ottla.spark.connect.database import DatabaseAwayError, Filled, Session
from ottla.spark.connect.sql import Dialect
from ottla.spark.connect.staging_sql import rows_of, staging_prefix, take_over

_logger = logging.getLogger(__name__)

_RESULT = pa.schema([("part", pa.int32()), ("attempt", pa.int64()), ("row_count", pa.int64())])


class StagingTables(Protocol):
    """What a kind of database does for staging. It travels to the tasks, so it holds an address and no connection."""

    dialect: Dialect

    def named(self, prefix: str) -> list[str]:
        """The staging tables whose names begin so."""
        ...

    def create(self, staging: str, table: str, names: Sequence[str]) -> None:
        """With the columns of `table` and the marks."""
        ...

    def write(
        self, staging: str, names: Sequence[str], batches: Iterable[pa.RecordBatch], *, part: int, attempt: int
    ) -> int:
        """How many rows were written, and committed."""
        ...

    def drop(self, staging: str) -> bool:
        """False if somebody still holds the table."""
        ...


class TaskStaging:
    def __init__(self, tables: StagingTables, sink: str) -> None:
        self._tables = tables
        self._prefix = staging_prefix(sink)

    def clean(self) -> None:
        for name in self._tables.named(self._prefix):
            self._drop(name)

    def fill(self, frame: DataFrame, table: str) -> Filled:
        staging = self._prefix + uuid.uuid4().hex[:8]
        self._tables.create(staging, table, frame.columns)
        task = _WriteTask(self._tables, staging, frame.columns)
        results = frame.mapInArrow(task, "part int, attempt bigint, row_count bigint").collect()
        attempts = tuple((row.part, row.attempt) for row in results)
        return Filled(staging, attempts, sum(row.row_count for row in results))

    def take_over(
        self, session: Session, filled: Filled, table: str, names: Sequence[str], keys: Sequence[str]
    ) -> None:
        if not filled.attempts:
            return
        dialect = self._tables.dialect
        found = session.count(f"SELECT count(*) {rows_of(filled.staging, filled.attempts, dialect)}")
        if found != filled.row_count:
            raise DatabaseAwayError(
                f"{found} of the {filled.row_count} rows that were staged are left: the server has lost the others in "
                "a crash, and the batch has to be written again"
            )
        session.run(take_over(filled.staging, table, names, keys, filled.attempts, dialect))

    def drop(self, filled: Filled) -> None:
        self._drop(filled.staging)

    def _drop(self, staging: str) -> None:
        """An attempt that was given up may still hold the table; the next start tries again."""
        if not self._tables.drop(staging):
            _logger.warning("the staging table %s is in use and stays until the next start", staging)


class _WriteTask:
    def __init__(self, tables: StagingTables, staging: str, names: Sequence[str]) -> None:
        self._tables = tables
        self._staging = staging
        self._names = list(names)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        part, attempt = context.partitionId(), context.taskAttemptId()
        count = self._tables.write(self._staging, self._names, batches, part=part, attempt=attempt)
        yield pa.record_batch([[part], [attempt], [count]], schema=_RESULT)
