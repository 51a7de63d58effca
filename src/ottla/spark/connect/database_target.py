"""A table as the target of a query, and whether the query's rows fit into it: asked before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.types import StructType

from ottla.spark.connect.column_types import TableColumn, TableSchemaError, check_columns, check_keys
from ottla.spark.connect.database import Database, Session

STAGING_ROWS = 50_000
"""Above this many rows a batch is written by the tasks, where the database allows it."""

FLOW_MODES = {
    "append": ("append",),
    "upsert": ("append", "update", "complete"),
    "changes": ("append",),
    "replace": ("complete",),
}
"""The output modes of a query that suit each mode of writing."""

CHANGE_COLUMNS = ("op", "key", "before", "after")
CHANGE_ORDER = ("lsn", "seq")
"""Of a changes source; where a frame has them, its changes are put into this order."""


@dataclass(frozen=True)
class Target:
    database: Database
    table: str
    mode: str = "append"
    """append; upsert by `keys`; changes (rows of a changes source, applied by `keys`); replace (all rows each time)."""
    keys: tuple[str, ...] = ()
    create: bool = False
    """Make the table from the frame's columns if it is not there."""
    staging: str = "auto"
    """Whether tasks write: auto (big batches), always, never."""
    staging_rows: int = STAGING_ROWS
    accept_new_checkpoint: bool = False

    def check(self, schema: StructType | None = None, output_mode: str | None = None) -> None:
        """Raises TableSchemaError for what could not be written; without a schema, for what never could."""
        self._check_options(output_mode)
        if schema is not None:
            self._check_frame(schema)
        if not self.database.exists():
            if not self.create:
                raise TableSchemaError(f"there is no database {self.database.shown_url}; set create: true to make it")
            return
        with self.database.transaction(read_only=True) as session:
            columns = session.columns(self.table)
            unique = session.unique_keys(self.table)
            obstacle = None if columns is None else self._obstacle(session, columns, schema)
        if columns is None:
            if not self.create:
                raise TableSchemaError(
                    f"there is no table {self.table} in {self.database.shown_url}; set create: true to make it"
                )
            return
        self._check_keys([column.name for column in columns], unique)
        if obstacle is not None:
            raise TableSchemaError(obstacle)
        if schema is not None and self.mode != "changes":
            check_columns(schema, columns, self.table)

    def _obstacle(self, session: Session, columns: list[TableColumn], schema: StructType | None) -> str | None:
        written = schema.names if schema is not None and self.mode != "changes" else [column.name for column in columns]
        return session.obstacle(self.table, written, self.keys if self.mode in ("upsert", "changes") else ())

    def _check_options(self, output_mode: str | None) -> None:
        if self.mode not in FLOW_MODES:
            raise TableSchemaError(f"there is no mode {self.mode!r}: it is one of {', '.join(FLOW_MODES)}")
        if output_mode is not None and output_mode not in FLOW_MODES[self.mode]:
            suiting = [mode for mode, flow_modes in FLOW_MODES.items() if output_mode in flow_modes]
            raise TableSchemaError(
                f"mode {self.mode} cannot take the rows of a flow in mode {output_mode}: use {' or '.join(suiting)}"
            )
        if self.mode in ("upsert", "changes") and not self.keys:
            raise TableSchemaError(f"mode {self.mode} needs keys: the columns that identify a row")
        if self.mode == "changes" and self.create:
            raise TableSchemaError("a table cannot be created from changes: they do not tell the types of its columns")

    def _check_keys(self, names: Sequence[str], unique: list[frozenset[str]]) -> None:
        check_keys(names, self.keys)
        if self.mode in ("upsert", "changes") and frozenset(self.keys) not in unique:
            raise TableSchemaError(
                f"table {self.table} needs a primary key or a unique index on exactly {', '.join(self.keys)}"
            )

    def _check_frame(self, schema: StructType) -> None:
        if self.mode == "changes":
            missing = [name for name in CHANGE_COLUMNS if name not in schema.names]
            if missing:
                raise TableSchemaError(
                    f"changes come in the columns {', '.join(CHANGE_COLUMNS)}, but {', '.join(missing)} is missing"
                )
        else:
            check_keys(schema.names, self.keys)
