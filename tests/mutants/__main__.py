"""`make mutants`: plants seeded mistakes one at a time and says which of them no test of their own layer notices."""

from __future__ import annotations

import argparse
import difflib
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from tests.mutants.operators import apply
from tests.mutants.runner import Copy, Outcome, Run, preload, wait_for
from tests.mutants.selection import SOURCE, Mutant, choose, own_tests, wider_tests
from tests.mutants.tracing import CallersFirst, Recorder, Trace

_SLACK = 4
_PATIENCE_S = 20.0
_BASELINE_S = 600.0


class Bench:
    """Copies of src, one per job, and for each set of tests how long it takes and what calls what in good order."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self._folder = folder
        self._copies = [Copy(folder / str(job)) for job in range(jobs)]
        self._seconds: dict[tuple[str, ...], float] = {}
        self._traces: dict[tuple[str, ...], Trace] = {}

    def try_all(
        self,
        mutants: Sequence[Mutant],
        tests_of: Callable[[Path], tuple[str, ...]],
        tell: Callable[[Mutant, Outcome], None],
    ) -> dict[Mutant, Outcome]:
        for tests in sorted({tests_of(mutant.path) for mutant in mutants} - set(self._seconds)):
            self._measure(tests)
        todo = list(reversed(mutants))
        running: dict[int, Run] = {}
        whose: dict[int, Mutant] = {}
        outcomes: dict[Mutant, Outcome] = {}
        while todo or running:
            for job, copy in enumerate(self._copies):
                if todo and job not in running:
                    whose[job] = todo.pop()
                    running[job] = self._start(copy, whose[job], tests_of(whose[job].path))
            job, outcome = wait_for(running)
            del running[job]
            outcomes[whose[job]] = outcome
            tell(whose[job], outcome)
        return outcomes

    def _start(self, copy: Copy, mutant: Mutant, tests: tuple[str, ...]) -> Run:
        copy.take(mutant)
        trace = self._traces[tests]
        first = trace.tests_of(mutant.path, (SOURCE / mutant.path).read_text(), mutant.edit.line)
        run = Run(copy, tests, _PATIENCE_S + _SLACK * self._seconds[tests], [CallersFirst(first, trace)])
        run.start()
        return run

    def _measure(self, tests: tuple[str, ...]) -> None:
        """Tests that fail without a mutant say nothing about mutants."""
        copy = self._copies[0]
        copy.take(None)
        output = self._folder / "trace.json"
        run = Run(copy, tests, _BASELINE_S, [Recorder(copy.folder / "src" / "ottla", output)])
        run.start()
        _, outcome = wait_for({0: run})
        if outcome.noticed:
            raise SystemExit(f"{run.output}\nthe tests fail without a mutant: {outcome.by}")
        self._seconds[tests] = outcome.seconds
        self._traces[tests] = Trace.read(output)
        print(f"{', '.join(tests)}: {outcome.seconds:.0f} s", flush=True)


def show(mutant: Mutant) -> str:
    source = (SOURCE / mutant.path).read_text()
    lines = difflib.unified_diff(
        source.splitlines(), apply(source, mutant.edit).splitlines(), mutant.place, mutant.edit.kind, lineterm="", n=2
    )
    return "\n".join(lines)


def main() -> int:
    options = parse()
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    mutants = choose(seed, options.count, options.module)
    print(f"seed {seed}: {len(mutants)} mutants in {options.module or 'src/ottla'}", flush=True)
    preload()
    started = time.monotonic()

    def tell(mutant: Mutant, outcome: Outcome) -> None:
        word = "noticed" if outcome.noticed else "NOT NOTICED"
        by = f" by {outcome.by}" if outcome.by else ""
        print(f"{word:11}  {mutant.place}  {mutant.edit.kind} ({outcome.seconds:.1f} s){by}", flush=True)

    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        bench = Bench(Path(folder), options.jobs)
        outcomes = bench.try_all(mutants, own_tests, tell)
        unnoticed = [mutant for mutant, outcome in outcomes.items() if not outcome.noticed]
        elsewhere: set[Mutant] = set()
        if options.wider and unnoticed:
            print(f"{len(unnoticed)} survivors meet the wider tests", flush=True)
            again = bench.try_all(unnoticed, wider_tests, tell)
            elsewhere = {mutant for mutant, outcome in again.items() if outcome.noticed}
    report(seed, mutants, unnoticed, elsewhere, time.monotonic() - started, options.survivors)
    noticed = len(mutants) - len(unnoticed)
    return 0 if noticed >= options.goal / 100 * len(mutants) else 1


def report(
    seed: int, mutants: list[Mutant], unnoticed: list[Mutant], elsewhere: set[Mutant], seconds: float, file: Path | None
) -> None:
    suspects = [mutant for mutant in unnoticed if mutant.edit.is_suspect]
    parts = []
    for title, group in (
        ("Not noticed", [m for m in unnoticed if m not in elsewhere and m not in suspects]),
        ("Not noticed, and perhaps without effect", [m for m in suspects if m not in elsewhere]),
        ("Noticed only by tests of other layers", [m for m in unnoticed if m in elsewhere]),
    ):
        if group:
            parts.append(f"--- {title} ({len(group)}) ---\n" + "\n\n".join(show(mutant) for mutant in group))
    text = "\n\n".join(parts)
    if text:
        print(f"\n{text}\n")
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n" if text else "")
    noticed = len(mutants) - len(unnoticed)
    print(f"seed {seed}: {noticed} of {len(mutants)} noticed by the tests of their own layer, in {seconds:.0f} s")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--seed", type=int, help="which mutants (by chance)")
    parser.add_argument("--module", default="", help="modules or packages below src/ottla, with commas (all)")
    parser.add_argument("--count", type=int, default=100, help="how many mutants (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (%(default)s)")
    parser.add_argument("--goal", type=float, default=95, help="fail below this percentage (%(default)s)")
    parser.add_argument("--wider", action="store_true", help="try survivors again, with tests of other layers")
    parser.add_argument("--survivors", type=Path, help="a file for the mutants that nobody noticed")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
