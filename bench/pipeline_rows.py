"""Pipelines beside plain Spark on the same topic: parsing, windows, whole flows into sinks, and a flow as a program.

Not for quick runs: starting Spark alone takes as long as those.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import cases
from bench.peers import Peer
from bench.row import Row
from bench.spark_rows import kafka_jars, ratio_row

_PREFIX = "pipeline-"
_ONCE = f"{_PREFIX}once"
_POSTGRES = "to-postgresql"


@dataclass
class PipelineRuns:
    broker: Peer
    place: Path
    rounds: int
    say: Callable[[str], None]

    def rows(self, wanted: Callable[[str], bool]) -> Iterator[Row]:
        parts = [part for part in cases.PIPELINE_CASES if wanted(_PREFIX + part)]
        if not parts and not wanted(_ONCE):
            return
        if shutil.which("java") is None:
            self.say("Java was not found, so pipelines are not measured")
            return
        if parts:
            self.say(f"Pipelines: {', '.join(parts)}")
            yield from self._part_rows(parts)
        if wanted(_ONCE):
            self.say("Pipelines: a small flow as a program")
            taken = self._run("bench.pipeline_once", self.rounds)
            row = ratio_row(_ONCE, "Pipeline: a small flow with --once", "s", taken, "bare session")
            row.lower_is_better = True
            row.floor, row.goal = cases.PIPELINE_ONCE_TARGET.floor, cases.PIPELINE_ONCE_TARGET.goal
            yield row

    def _part_rows(self, parts: list[str]) -> Iterator[Row]:
        with self._postgres(parts):
            arguments = cases.PIPELINE_ROWS, self.rounds, ",".join(parts), *kafka_jars(self.say)
            measured = self._run("bench.pipeline_load", *arguments)
        for part, sides in measured.items():
            case = cases.PIPELINE_CASES[part]
            if case.against in sides:
                row = ratio_row(_PREFIX + part, case.title, "rows/s", sides, case.against)
            else:
                row = Row(_PREFIX + part, case.title, "rows/s", statistics.median(sides["ottla"]), rounds=sides)
            if case.against in sides or not case.against:
                row.floor, row.goal = case.target.floor, case.target.goal
            yield row

    def _run(self, module: str, *arguments: object) -> dict[str, Any]:
        command = [sys.executable, "-m", module, f"127.0.0.1:{self.broker.port}", self.place, *arguments]
        done = subprocess.run(
            [*map(str, command)], capture_output=True, text=True, timeout=cases.PIPELINE_TIMEOUT_S, check=False
        )
        if done.returncode:
            raise RuntimeError(f"measuring pipelines failed: {done.stderr.strip()[-1000:]}")
        measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return measured

    @contextmanager
    def _postgres(self, parts: list[str]) -> Iterator[None]:
        """A server of its own, if there is one to be measured and its programs are installed."""
        from tests.spark.postgres import PostgresProcess, find_binaries

        binaries = find_binaries()
        if _POSTGRES in parts and binaries is None:
            self.say("PostgreSQL was not found, so it is not measured")
            parts.remove(_POSTGRES)
        if _POSTGRES not in parts or binaries is None:
            yield
            return
        with tempfile.TemporaryDirectory(prefix="ottla-bench-postgres-", ignore_cleanup_errors=True) as directory:
            server = PostgresProcess(binaries, Path(directory)).start()
            try:
                (self.place / "postgres.url").write_text(server.url)
                yield
            finally:
                server.stop()
