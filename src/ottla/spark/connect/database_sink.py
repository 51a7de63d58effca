"""The part `database` of a pipeline: a table of SQLite or PostgreSQL, written exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ottla.spark.connect.batch_progress import BEFORE_ANY_BATCH, Progress
from ottla.spark.connect.batch_writer import BatchWriter
from ottla.spark.connect.column_types import TableSchemaError
from ottla.spark.connect.database import DatabaseError, open_database
from ottla.spark.connect.database_target import FLOW_MODES, STAGING_ROWS, Target
from ottla.spark.pipeline.parts import Finding, FlowContext, MovedFlow
from ottla.spark.pipeline.section import Section


class DatabaseSink:
    """Options: url, table, mode, keys, create, staging, staging_rows, on_new_checkpoint."""

    def __init__(self, section: Section, target: Target) -> None:
        self._section = section
        self.target = target

    @classmethod
    def from_section(cls, section: Section) -> Self:
        url = section.take("url", str)
        try:
            database = open_database(url, directory=section.directory)
        except DatabaseError as e:
            section.fail("url", str(e))
        target = Target(
            database=database,
            table=section.take("table", str),
            mode=section.take_choice("mode", FLOW_MODES, "append"),
            keys=tuple(section.take("keys", list[str], [])),
            create=section.take("create", bool, False),
            staging=section.take_choice("staging", ("auto", "always", "never"), "auto"),
            staging_rows=section.take("staging_rows", int, STAGING_ROWS),
            accept_new_checkpoint=section.take_choice("on_new_checkpoint", ("refuse", "accept"), "refuse") == "accept",
        )
        section.finish()
        return cls(section, target)

    def check(self) -> Sequence[Finding]:
        try:
            self.target.check()
        except (DatabaseError, TableSchemaError) as e:
            return [str(e)]
        return []

    def writer(self, frame: DataFrame, *, flow: FlowContext) -> DataStreamWriter:
        try:
            self.target.check(frame.schema, flow.mode)
        except (DatabaseError, TableSchemaError) as e:
            self._section.fail("table", str(e))
        return frame.writeStream.foreachBatch(BatchWriter(self.target, flow.sink_id, flow.checkpoint))

    @property
    def rewritten_rows(self) -> str:
        target = self.target
        return {
            "append": f"the rows in {target.table} stay, and theirs are added a second time",
            "replace": f"{target.table} is written anew",
        }.get(target.mode, f"they are written over the rows of {target.table} that have their keys")

    def obstacle_to_move(self) -> str | None:
        """DatabaseError if it could not be told that its flow was moved."""
        database = self.target.database
        if database.exists():
            with database.transaction(read_only=True):
                return None
        return None

    def flow_moved(self, moved: MovedFlow) -> None:
        """The database takes batches of the new query from here on, and none of the old one."""
        database = self.target.database
        if not database.exists():
            return
        with database.transaction() as session:
            session.claim(moved.sink_id)
            session.save_progress(moved.sink_id, Progress(moved.new_query_id, BEFORE_ANY_BATCH, moved.sources))
