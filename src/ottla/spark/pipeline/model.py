"""A pipeline as plain values: sources, tables, views, sinks and the flows that join them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ottla.spark.pipeline.parts import SinkPart, SourcePart, TablePart
from ottla.spark.pipeline.problems import Place
from ottla.spark.pipeline.section import Section


@dataclass(frozen=True)
class Source:
    name: str
    section: Section
    part: SourcePart


@dataclass(frozen=True)
class Table:
    name: str
    section: Section
    part: TablePart


@dataclass(frozen=True)
class View:
    """Rows made from other rows: by a query, or by a function of frames."""

    name: str
    section: Section
    sql: str | None = None
    function: Callable[..., Any] | str | None = None
    """A function, or where to find it: `module:function` or `file.py:function`."""
    watermark: tuple[str, str] | None = None
    """A column of event times, and how late rows may come."""
    deduplicate: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sink:
    name: str
    section: Section
    part: SinkPart


@dataclass(frozen=True)
class Flow:
    """One streaming query: the rows of a view or source go to a sink."""

    name: str
    section: Section
    origin: str
    sink: str
    mode: str
    checkpoint: str
    group_id: str
    trigger_ms: int | None = None
    """The time between micro-batches; None starts the next when the last is done."""
    is_available_now: bool = False
    takes_dead_letters: bool = False
    """The rows are those a source could not read."""


@dataclass(frozen=True)
class Restarts:
    """How often a flow may fail without a batch in between, and how long it waits before it is started again."""

    attempts: int = 5
    backoff_ms: int = 1000
    backoff_ms_max: int = 60_000

    def wait_ms(self, failures: int) -> int:
        """The wait after the n-th failure in a row, counted from one."""
        return min(self.backoff_ms << min(failures - 1, 30), self.backoff_ms_max)


@dataclass(frozen=True)
class Model:
    name: str
    place: Place
    directory: Path
    kafka: Mapping[str, str]
    master: str | None
    conf: Mapping[str, str]
    """Spark's own settings."""
    conf_section: Section | None
    """Where they are written."""
    restarts: Restarts
    sources: Mapping[str, Source]
    tables: Mapping[str, Table]
    views: Mapping[str, View]
    sinks: Mapping[str, Sink]
    flows: Mapping[str, Flow]
