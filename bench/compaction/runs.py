"""The rows about compaction. Against `cp`: the time that passes for the same segments, both until all is on the disk,
and processor time. Against Apache Kafka: megabytes of log for each second of processor time, of its cleaner's thread
and of our process, the start of which counts."""

from __future__ import annotations

import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench import apache_kafka, cases
from bench.compaction.dirty_log import FULL, QUICK, closed_segments, write_dirty_log
from bench.compaction.kafka_passes import kafka_with_copies
from bench.programs import run_program
from bench.row import Row, row_against
from bench.warm_pages import warm

COPY = "cp and sync"
_KAFKA_WARM_UPS = 1
"""Passes that do not count, for its code to be compiled."""


@dataclass
class CompactionRuns:
    place: Path
    rounds: int
    is_quick: bool
    say: Callable[[str], None]

    def rows(self, wanted: Callable[[str], bool]) -> Iterator[Row]:
        if not (wanted(cases.COMPACTION.name) or wanted(cases.COMPACTION_CPU.name)):
            return
        self.say(cases.COMPACTION.title)
        libs = apache_kafka.find_libs(self.say) if wanted(cases.COMPACTION_CPU.name) else None
        shape = QUICK if self.is_quick else FULL
        place = self.place / "compaction"
        source = place / "table-0"
        write_dirty_log(source, shape)
        size_mb = sum(path.stat().st_size for path in closed_segments(source)) / 1e6
        rates: dict[str, list[float]] = {"broker": [], COPY: []}
        per_cpu_s: dict[str, list[float]] = {"broker": [], COPY: []}
        shares: list[float] = []
        with ExitStack() as stack:
            kafka = None
            if libs is not None:
                copies = self.rounds + _KAFKA_WARM_UPS
                kafka = stack.enter_context(kafka_with_copies(libs, place / "kafka", source, shape, copies))
                for _ in range(_KAFKA_WARM_UPS):
                    kafka.run()
            for _ in range(self.rounds):
                result = self._own_pass(source, place / "own", shape.segment_bytes)
                rates["broker"].append(result["mb"] / result["wall_s"])
                per_cpu_s["broker"].append(result["mb"] / result["cpu_s"])
                shares.append(result["cpu_s"] / result["wall_s"])
                wall_s, cpu_s = self._copy(source, place / "copy")
                rates[COPY].append(size_mb / wall_s)
                per_cpu_s[COPY].append(size_mb / cpu_s)
                if kafka is not None:
                    per_cpu_s.setdefault(apache_kafka.NAME, []).append(size_mb / kafka.run())
        shutil.rmtree(place)
        notes = f"time that passes; our process had {statistics.median(shares):.0%} of a core meanwhile"
        yield row_against(cases.COMPACTION, COPY, cases.COMPACTION_COPY_TARGET, rates, notes)
        yield row_against(cases.COMPACTION_CPU, COPY, cases.COMPACTION_COPY_TARGET, per_cpu_s)
        if kafka is not None:
            yield row_against(cases.COMPACTION_CPU, apache_kafka.NAME, cases.COMPACTION_KAFKA_TARGET, per_cpu_s)

    def _own_pass(self, source: Path, copy: Path, segment_bytes: int) -> dict[str, float]:
        shutil.copytree(source, copy)
        subprocess.run(["sync", "-f", copy], check=True)
        command = [sys.executable, "-m", "bench.compaction.own_pass", str(copy), str(segment_bytes)]
        result = run_program(command)
        shutil.rmtree(copy)
        return result

    def _copy(self, source: Path, target: Path) -> tuple[float, float]:
        """Seconds for a copy of the same segments: those that pass until it is on the disk, and of a processor."""
        segments = closed_segments(source)
        warm(self.place, sum(path.stat().st_size for path in segments))
        target.mkdir()
        begun_s, cpu_s = time.perf_counter(), _children_cpu_s()
        subprocess.run(["cp", *segments, target], check=True)
        subprocess.run(["sync", "-d", *target.iterdir()], check=True)
        took = time.perf_counter() - begun_s, _children_cpu_s() - cpu_s
        shutil.rmtree(target)
        return took


def _children_cpu_s() -> float:
    """Of all processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
