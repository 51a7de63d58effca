"""What the demonstration shows while it runs: a table that changes in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ottla.spark.pipeline.flows.report import FlowReport
from ottla.spark.pipeline.line_displays import describe_work

_LINE_EVERY_S = 5
_WINDOW = timedelta(seconds=10)


class PageCounts(NamedTuple):
    """Views in the last whole window, in the one that still runs, and in all."""

    last: int
    running: int
    total: int


_NOTHING = PageCounts(0, 0, 0)


class Results(NamedTuple):
    counted: int
    pages: dict[str, PageCounts]


def read_results(database: Path, now: datetime) -> Results:
    """What the pipeline has written so far; nothing while the table is not there."""
    if not database.exists():
        return Results(0, {})
    current = datetime.fromtimestamp(now.timestamp() // 10 * 10, UTC)
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        try:
            rows = connection.execute("SELECT page, since, views FROM views_per_page").fetchall()
        except sqlite3.OperationalError:
            return Results(0, {})
    pages: dict[str, PageCounts] = {}
    for page, since, views in rows:
        at = datetime.fromisoformat(since).replace(tzinfo=UTC)
        last, running, total = pages.get(page, _NOTHING)
        last += views if at == current - _WINDOW else 0
        running += views if at == current else 0
        pages[page] = PageCounts(last, running, total + views)
    return Results(sum(counts.total for counts in pages.values()), pages)


class Screen:
    """`update` as often as you like; leaves the last state standing."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4) if console.is_terminal else None
        self._line_due = 0.0

    def __enter__(self) -> Screen:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._live is not None:
            self._live.stop()

    def tell(self, sentence: str) -> None:
        """It stays, above what changes."""
        self._console.print(Text(sentence), soft_wrap=True)

    def update(self, sent: int, results: Results, report: FlowReport | None) -> None:
        state = "Spark is starting …"
        if report is not None and report.at_work is not None:
            state = f"{describe_work(report)}, lag {report.lag or 0:,}"
        elif report is not None and report.last is not None:
            state = f"batch {report.last.batch_id}, lag {report.lag or 0:,}"
        line = f"{sent:,} page views sent, {results.counted:,} counted so far; {state}"
        if self._live is not None:
            self._live.update(Group(_table(results), Text(line, style="dim")))
        elif time.monotonic() >= self._line_due:
            self._console.print(line)
            self._line_due = time.monotonic() + _LINE_EVERY_S


def _table(results: Results) -> Table:
    table = Table(title="Page views, counted by Spark", title_justify="left")
    table.add_column("page")
    for name in ("last 10 s", "now", "in all"):
        table.add_column(name, justify="right")
    for page, counts in sorted(results.pages.items(), key=lambda item: -item[1].total):
        table.add_row(page, *(f"{count:,}" for count in counts))
    return table
