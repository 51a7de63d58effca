"""Big batches into PostgreSQL: the tasks copy their rows into a staging table, the driver takes them over.

A task may run more than once, and an attempt that was given up may still be writing. So every row names its attempt,
and only attempts whose success Spark has reported are taken over.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence

import psycopg
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from ottla.spark.connect.copy_rows import copy_batches
from ottla.spark.connect.database import Filled, Session, quoted_table
from ottla.spark.connect.postgresql import connect
from ottla.spark.connect.staging_sql import empty_copy, staging_prefix, take_over

_logger = logging.getLogger(__name__)

_LOCK_TIMEOUT_MS = 5000
_RESULT = pa.schema([("part", pa.int32()), ("attempt", pa.int64()), ("row_count", pa.int64())])


class PostgresStaging:
    def __init__(self, url: str, sink: str) -> None:
        self._url = url
        self._prefix = staging_prefix(sink)

    def clean(self) -> None:
        with connect(self._url, autocommit=True) as connection:
            found = connection.execute(
                "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relpersistence = 'u' "
                "AND starts_with(relname, %s)",
                (self._prefix,),
            ).fetchall()
        for (name,) in found:
            self._drop(str(name))

    def fill(self, frame: DataFrame, table: str) -> Filled:
        staging = self._prefix + uuid.uuid4().hex[:8]
        with connect(self._url, autocommit=True) as connection:
            # Not logged: if the server loses it, the batch was not finished and is written again.
            columns = empty_copy(table, frame.columns)
            connection.execute(f"CREATE UNLOGGED TABLE {quoted_table(staging)} AS {columns}")
        task = _CopyTask(self._url, staging, frame.columns)
        results = frame.mapInArrow(task, "part int, attempt bigint, row_count bigint").collect()
        return Filled(staging, tuple((row.part, row.attempt) for row in results))

    def take_over(
        self, session: Session, filled: Filled, table: str, names: Sequence[str], keys: Sequence[str]
    ) -> None:
        if filled.attempts:
            session.run(take_over(filled.staging, table, names, keys, filled.attempts))

    def drop(self, filled: Filled) -> None:
        self._drop(quoted_table(filled.staging))

    def _drop(self, table: str) -> None:
        """An attempt that was given up may still hold the table; the next start tries again."""
        with connect(self._url, autocommit=True) as connection:
            connection.execute(f"SET lock_timeout = '{_LOCK_TIMEOUT_MS}ms'")
            try:
                connection.execute(f"DROP TABLE IF EXISTS {table}")
            except psycopg.errors.LockNotAvailable:
                _logger.warning("the staging table %s is in use and stays until the next start", table)


class _CopyTask:
    def __init__(self, url: str, staging: str, names: Sequence[str]) -> None:
        self._url = url
        self._staging = staging
        self._names = list(names)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        part, attempt = context.partitionId(), context.taskAttemptId()
        with connect(self._url) as connection:
            count = copy_batches(connection, self._staging, self._names, batches, part=part, attempt=attempt)
        yield pa.record_batch([[part], [attempt], [count]], schema=_RESULT)
