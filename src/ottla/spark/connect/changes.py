"""The part `changes` of a pipeline: every change of PostgreSQL tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from ottla.spark.connect.change_source import CHANGES_FORMAT, ChangeOptions, PostgresChangeSource
from ottla.spark.connect.database import DatabaseError
from ottla.spark.connect.postgres_rows import table_columns
from ottla.spark.connect.postgresql import Connection, connect
from ottla.spark.connect.replication_slot import ReplicationSlot
from ottla.spark.pipeline.parts import Finding
from ottla.spark.pipeline.section import Section
from ottla.spark.shared_environment import stream_reader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SLOT_NAME = re.compile(r"[a-z0-9_]{1,63}")


class ChangesSource:
    """Options: url, slot, publication, tables, snapshot, poll_interval, max_changes."""

    def __init__(self, section: Section, options: ChangeOptions) -> None:
        self._section = section
        self.options = options

    @classmethod
    def from_section(cls, section: Section) -> Self:
        url = section.take("url", str)
        if not url.startswith(("postgresql://", "postgres://")):
            section.fail("url", "changes are read from PostgreSQL: postgresql://user@host:port/name")
        slot = section.take("slot", str)
        if not _SLOT_NAME.fullmatch(slot):
            section.fail("slot", f"{slot!r} is no name for a slot: only a-z, 0-9 and _ are allowed")
        options = ChangeOptions(
            url=url,
            slot=slot,
            publication=section.take("publication", str, slot),
            tables=tuple(section.take("tables", list[str], [])),
            snapshot=section.take("snapshot", bool, True),
            poll_interval_ms=section.take_duration_ms("poll_interval", 500),
            max_changes=section.take("max_changes", int, 100_000),
        )
        section.finish()
        if options.max_changes < 1:
            section.fail("max_changes", "'max_changes' must be at least 1")
        return cls(section, options)

    def check(self) -> Sequence[Finding]:
        try:
            with connect(self.options.url, autocommit=True) as connection:
                return self._check(connection)
        except DatabaseError as e:
            return [self._section.problem("url", str(e))]

    def _check(self, connection: Connection) -> list[Finding]:
        found: list[Finding] = []
        level = connection.execute("SHOW wal_level").fetchone()
        if level != ("logical",):
            found.append(self._section.problem("url", "the server must run with wal_level = logical"))
        slot = ReplicationSlot(connection, self.options.slot, self.options.publication)
        slot.state()
        if not self.options.tables and not slot.has_publication():
            found.append(
                self._section.problem(
                    "publication",
                    f"there is no publication {self.options.publication!r}: make it, or name the 'tables'",
                )
            )
        missing = [table for table in self.options.tables if not table_columns(connection, table)]
        if missing:
            found.append(self._section.problem("tables", f"there is no table {', '.join(missing)}"))
        return found

    def load(self, spark: SparkSession) -> DataFrame:
        spark.dataSource.register(PostgresChangeSource)
        return stream_reader(spark, CHANGES_FORMAT).options(**self.options.spark_options()).load()
