"""`python -m bench`: measures, prints the table, writes bench/results. Ends with 1 if a floor was missed."""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from bench import programs, report
from bench.measure import Bench
from bench.row import Row


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure the broker against limits and peers.")
    parser.add_argument("--quick", action="store_true", help="fewer and smaller rounds, under a minute")
    parser.add_argument("--only", metavar="TEXT", default="", help="only cases whose name contains this")
    parser.add_argument(
        "--rounds",
        type=int,
        help="how often each side is measured (5, or 3 with --quick; on the wire three times as often)",
    )
    parser.add_argument("--name", help="of the files in bench/results (full or quick)")
    parser.add_argument("--python", action="store_true", help="load and limits in Python even where C is at hand")
    options = parser.parse_args()
    console = Console()
    # Ending by a signal also stops the brokers and removes what they wrote.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    _allow_many_connections()
    begun_s, load_before = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="ottla-bench-programs-") as directory:
        used = programs.prepare(Path(directory), use_c=not options.python)
        rounds = options.rounds or (3 if options.quick else 5)
        bench = Bench(used, rounds, options.quick, lambda text: console.print(f"[dim]{text}[/dim]"))
        rows: list[Row] = []
        try:
            rows.extend(bench.run(lambda name: options.only in name))
        finally:
            # A run takes long, and one part that fails must not cost the figures of the others.
            report.show(console, rows)
    name = options.name or ("quick" if options.quick else "full")
    if not options.only:
        for path in report.write(name, rows, language=used.language, rounds=rounds, load_before=load_before):
            console.print(f"wrote {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")
    missed = sum(row.verdict == "MISS" for row in rows)
    console.print(f"{len(rows)} rows, {missed} below the floor, {time.monotonic() - begun_s:.0f} s")
    return 1 if missed else 0


def _allow_many_connections() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    raise SystemExit(main())
