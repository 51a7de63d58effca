"""`python -m bench.in_process`: what has no peer on the wire. Columns against rows, and how fast a test has a broker.

Ratios are of medians in one run; nothing is asserted, because other programs share the machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from ottla.records.batch import assign_offsets, iter_headers
from ottla.records.builder import build_batch
from ottla.records.columns import decode_columns, encode_columns
from ottla.records.reader import read_records
from ottla.testing import EmbeddedBroker

ROWS = 10_000
FIRST_MS = 1_700_000_000_000


def median_s(work: Callable[[], object], rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        begun = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def encode(table: pa.Table) -> list[memoryview]:
    return [batch.make() for batch in encode_columns(table)]


def measure_columns(out: Table, rounds: int) -> None:
    sizes = {
        "100 bytes each": [100] * ROWS,
        "50 to 150 bytes": [50 + number * 7919 % 101 for number in range(ROWS)],
        "1000 bytes each": [1000] * ROWS,
    }
    for title, of_values in sizes.items():
        rows = [(b"%06d" % n, b"v" * size, (), FIRST_MS + n // 10) for n, size in enumerate(of_values)]
        keys, values, _, times = zip(*rows, strict=True)
        table = pa.table({"key": keys, "value": values, "timestamp": times})
        batches = encode(table)
        for batch, number in zip(batches, range(0, ROWS * len(batches), ROWS), strict=True):
            assign_offsets(batch, 0, number, 0)
        data = b"".join(batches)
        cuts = [pos for pos, _ in iter_headers(data)]

        def build_rows(rows: list[tuple[bytes, bytes, tuple[()], int]] = rows, parts: int = len(batches)) -> object:
            step = -(-len(rows) // parts)
            return [build_batch(rows[first : first + step]) for first in range(0, len(rows), step)]

        def read_rows(data: bytes = data, cuts: list[int] = cuts) -> object:
            view = memoryview(data)
            return [read_records(view[pos:]) for pos in cuts]

        pairs: list[tuple[str, Callable[[], object], Callable[[], object]]] = [
            ("encode", partial(encode, table), build_rows),
            ("decode", partial(decode_columns, data), read_rows),
        ]
        for verb, by_column, by_row in pairs:
            fast, slow = median_s(by_column, rounds), median_s(by_row, rounds)
            out.add_row(f"{verb} {title}", f"{ROWS / fast / 1e6:.2f} M rows/s", f"{slow / fast:.1f} x row by row")


def measure_embedded(out: Table, rounds: int) -> None:
    started, stopped = [], []
    for _ in range(rounds):
        begun = time.perf_counter()
        broker = EmbeddedBroker().start()
        ready = time.perf_counter()
        broker.stop()
        started.append(ready - begun)
        stopped.append(time.perf_counter() - ready)
    out.add_row(
        "embedded broker up", f"{statistics.median(started) * 1000:.0f} ms", f"max {max(started) * 1000:.0f} ms"
    )
    out.add_row("embedded broker down", f"{statistics.median(stopped) * 1000:.0f} ms", "")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.in_process")
    parser.add_argument("--rounds", type=int, default=15, help="how often each thing is measured")
    options = parser.parse_args()
    out = Table("what", "median", "against")
    measure_columns(out, options.rounds)
    measure_embedded(out, options.rounds)
    Console().print(out)


if __name__ == "__main__":
    main()
