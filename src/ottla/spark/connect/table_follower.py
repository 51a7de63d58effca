"""How far a growing table can be read by now: asked of the database, by the columns it is followed by."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple, cast

from ottla.spark.connect.table_server import TableServer
from ottla.spark.connect.table_window import Condition, Order, Position


class TableOptions(NamedTuple):
    url: str
    table: str
    order: Order
    delay_ms: int = 0
    """Rows are left alone until their timestamp is this old."""
    poll_interval_ms: int = 1000
    max_rows: int = 100_000
    """Of a micro-batch; rows of one timestamp stay together if there is no incrementing column."""
    wait_for_writers: bool = True
    """Whether a window waits for transactions that were under way when its end was chosen."""

    @classmethod
    def parse(cls, options: dict[str, str]) -> TableOptions:
        """From Spark's options, all of them text."""
        return cls(
            url=options["url"],
            table=options["table"],
            order=Order(options.get("incrementing"), options.get("timestamp")),
            delay_ms=int(options.get("delayms", "0")),
            poll_interval_ms=int(options.get("pollintervalms", "1000")),
            max_rows=int(options.get("maxrows", "100000")),
            wait_for_writers=options.get("waitforwriters", "true") == "true",
        )

    def spark_options(self) -> dict[str, str]:
        named = {"incrementing": self.order.incrementing, "timestamp": self.order.timestamp}
        return {
            "url": self.url,
            "table": self.table,
            "delayMs": str(self.delay_ms),
            "pollIntervalMs": str(self.poll_interval_ms),
            "maxRows": str(self.max_rows),
            "waitForWriters": str(self.wait_for_writers).lower(),
            **{name: column for name, column in named.items() if column is not None},
        }


class TableFollower:
    """Of use to one thread."""

    def __init__(self, options: TableOptions, server: TableServer) -> None:
        self._options = options
        self._server = server
        self._unsettled: tuple[Position, object] | None = None

    def settled_end(self, start: Position, max_rows: int | None) -> Position | None:
        """The end of the window after `start` (`start` itself if there are no rows); None while a transaction may
        still commit a row that belongs into it.

        Numbers and times are handed out before the commit, so a row may appear behind rows already read. Those that
        could belong into the window come from transactions that had begun when its end was seen.
        """
        if self._unsettled is None:
            end = self.end_after(start, max_rows)
            if end is None or not self._options.wait_for_writers:
                return end or start
            # After the end was seen: whoever holds a place before it has taken it by now.
            self._unsettled = end, self._server.writers()
        end, writers = self._unsettled
        if not self._server.are_done(writers):
            return None
        self._unsettled = None
        return end

    def end_after(self, start: Position, max_rows: int | None) -> Position | None:
        """The place of the last row a window after `start` may hold; None if there is no row."""
        order, dialect = self._options.order, self._server.dialect
        condition = order.after(start, dialect).also(self._is_old_enough())
        listed = dialect.quoted_list(order.columns)
        query = f"SELECT {listed} FROM {dialect.quoted_table(self._options.table)} WHERE {condition.text}"
        if max_rows is not None:
            query = f"{query} ORDER BY {listed} LIMIT {max_rows:d}"
        last_first = ", ".join(f"{dialect.quoted(column)} DESC" for column in order.columns)
        rows = self._server.rows(f"SELECT * FROM ({query}) AS next ORDER BY {last_first} LIMIT 1", condition.parameters)
        return self._position(rows[0]) if rows else None

    def _is_old_enough(self) -> Condition:
        # Without a delay too: a row from the future would move the end past rows that are yet to come.
        if self._options.order.timestamp is None:
            return Condition("TRUE", ())
        return self._server.is_older(self._options.table, self._options.order.timestamp, self._options.delay_ms)

    def _position(self, row: tuple[object, ...]) -> Position:
        order = self._options.order
        values = dict(zip(order.columns, row, strict=True))
        number = None if order.incrementing is None else int(cast(int, values[order.incrementing]))
        moment = None if order.timestamp is None else _utc_text(cast(datetime, values[order.timestamp]))
        return Position(number, moment)


def _utc_text(moment: datetime) -> str:
    """A timestamp without a zone is taken as UTC, as everywhere in a session of ours."""
    aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return aware.isoformat(timespec="microseconds")
