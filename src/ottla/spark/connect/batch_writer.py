"""Exactly once into a database: a batch's rows and the memory of the batch are committed in one transaction.

Spark runs a batch again if it cannot tell that it was finished. The transaction then finds the batch remembered and
writes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from ottla.spark.connect.arrow_batches import arrow_batches
from ottla.spark.connect.batch_progress import Progress, must_write
from ottla.spark.connect.change_fold import Change, ChangeFold
from ottla.spark.connect.checkpoint import batch_progress
from ottla.spark.connect.database import DatabaseError, Session, Staging, TooManyRowsError, at_most
from ottla.spark.connect.database_target import CHANGE_COLUMNS, CHANGE_ORDER, Target

_logger = logging.getLogger(__name__)


@dataclass
class BatchWriter:
    """What `foreachBatch` calls: `frame.writeStream.foreachBatch(BatchWriter(target, "orders", checkpoint))`."""

    target: Target
    sink: str
    """Names the query's output in the table of progress; two queries never share one."""
    checkpoint: str
    """The query's checkpointLocation."""
    _staging: Staging | None = field(default=None, init=False)
    _by_tasks: bool = field(default=False, init=False)
    _prepared: bool = field(default=False, init=False)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        batch = batch_progress(frame.sparkSession, self.checkpoint, batch_id)
        self._prepare(frame.schema)
        if not self._write(frame, batch):
            _logger.info("batch %d of sink %s was written before: its rows are dropped", batch_id, self.sink)
            # Computed all the same: Spark insists that a query with state has made the state of every batch it ran.
            frame.write.format("noop").mode("overwrite").save()

    def _write(self, frame: DataFrame, batch: Progress) -> bool:
        """False if the batch was there already."""
        if not self._by_tasks:
            try:
                return self._write_by_driver(frame, batch)
            except TooManyRowsError:
                _logger.info("batch %d of sink %s is large: from now on its tasks write", batch.batch_id, self.sink)
                self._by_tasks = True
        assert self._staging is not None
        return self._write_by_tasks(self._staging, frame, batch)

    def _prepare(self, schema: StructType) -> None:
        """Once a run: the table, and away with what runs that were killed have left behind."""
        if self._prepared:
            return
        target = self.target
        if target.create:
            with target.database.transaction() as session:
                session.create_table(target.table, schema, target.keys)
        if target.staging != "never" and target.mode in ("append", "upsert"):
            self._staging = target.database.staging(self.sink)
        if self._staging is not None:
            self._staging.clean()
            self._by_tasks = target.staging == "always"
        self._prepared = True

    def _begin(self, session: Session, batch: Progress) -> bool:
        session.claim(self.sink)
        remembered = session.progress(self.sink)
        accept = self.target.accept_new_checkpoint
        return must_write(remembered, batch, sink=self.sink, accept_new_checkpoint=accept)

    def _write_by_driver(self, frame: DataFrame, batch: Progress) -> bool:
        with self.target.database.transaction() as session:
            if not self._begin(session, batch):
                return False
            if self.target.mode == "changes":
                self._apply_changes(session, frame)
            else:
                self._write_rows(session, frame)
            session.save_progress(self.sink, batch)
        return True

    def _write_rows(self, session: Session, frame: DataFrame) -> None:
        target = self.target
        rows = at_most(arrow_batches(frame), None if self._staging is None else target.staging_rows)
        if target.mode == "replace":
            session.run(f"DELETE FROM {target.database.dialect.quoted_table(target.table)}")
        if target.mode == "upsert":
            session.upsert(target.table, frame.columns, target.keys, rows)
        else:
            session.append(target.table, frame.columns, rows)

    def _apply_changes(self, session: Session, frame: DataFrame) -> None:
        target = self.target
        columns = session.columns(target.table)
        if columns is None:
            raise DatabaseError(f"there is no table {target.table} in {target.database.shown_url} any more")
        names = [column.name for column in columns]
        converters = session.change_converters(target.table)
        fold = ChangeFold(target.table, names, target.keys, target.database.dialect, converters)
        for step in fold.steps(_ordered_changes(frame)):
            session.run(step.statement, step.rows)

    def _write_by_tasks(self, staging: Staging, frame: DataFrame, batch: Progress) -> bool:
        target = self.target
        with target.database.transaction() as session:
            if not self._begin(session, batch):
                return False
        filled = staging.fill(frame, target.table)
        with target.database.transaction() as session:
            # Looked at again: another driver may have written the batch while our tasks were at work.
            if self._begin(session, batch):
                keys = target.keys if target.mode == "upsert" else ()
                staging.take_over(session, filled, target.table, frame.columns, keys)
                session.save_progress(self.sink, batch)
        staging.drop(filled)
        return True


def _ordered_changes(frame: DataFrame) -> Iterator[Change]:
    order = [name for name in CHANGE_ORDER if name in frame.columns]
    ordered = frame.orderBy(*order) if order else frame
    for batch in arrow_batches(ordered.select(*CHANGE_COLUMNS)):
        for op, key, before, after in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield Change(op, before, after, key)
