"""`make mutants`: plants seeded mistakes one at a time and says which of them no test notices.

A mutant meets the tests of its own layer first, and those of other layers only if they do not notice it: the likely
ones, or with `--suite` all that call its function, within the time they are given. One that changes nothing anybody can
see counts as such only if it is listed, with the reason, in equivalent.toml.
"""

from __future__ import annotations

import argparse
import difflib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from tests.mutants.operators import apply, edits_of
from tests.mutants.runner import Copy, Outcome, Run, preload, wait_for
from tests.mutants.selection import (
    EQUIVALENT,
    ROOT,
    Mutant,
    all_tests,
    choose,
    files_about,
    find,
    listed,
    modules,
    own_tests,
    source_of,
    wider_tests,
    written,
)
from tests.mutants.tracing import (
    TRACED_PROCESS,
    Function,
    Planned,
    Recorder,
    Trace,
    digest,
    function_around,
    noted_by_processes,
    plan,
)

_TRACES = ROOT / "build" / "mutants"
_PATIENCE_S = 30.0
_TRACING_S = 900.0
_IMPORT_ALL = """
import contextlib, sys
for name in sys.argv[1:]:
    with contextlib.suppress(ImportError):
        __import__(name)
"""


class Bench:
    """Copies of the work tree, one per job, and for each file of tests what it calls and how long it takes."""

    def __init__(self, folder: Path, jobs: int, box_s: float) -> None:
        self._folder = folder
        self._box_s = box_s
        self._copies = [Copy(folder / str(job)) for job in range(jobs)]
        self._traces: dict[str, Trace] = {}
        self._imported = self._called_at_import()
        self._noticing: set[str] = set()
        self._met: dict[Mutant, set[str]] = defaultdict(set)

    def try_all(
        self,
        mutants: Sequence[Mutant],
        tests_of: Callable[[Path], tuple[str, ...]],
        tell: Callable[[Mutant, Outcome], None],
    ) -> dict[Mutant, Outcome]:
        self._trace({file for mutant in mutants for file in tests_of(mutant.path)})
        todo = list(reversed(mutants))
        whose: dict[int, Mutant] = {}
        outcomes: dict[Mutant, Outcome] = {}

        def next_run(copy: Copy, job: int) -> Run | None:
            if not todo:
                return None
            whose[job] = todo.pop()
            return self._run(copy, whose[job], tests_of(whose[job].path))

        def done(job: int, run: Run, outcome: Outcome) -> None:
            if outcome.noticed and "::" in outcome.by:
                self._noticing.add(outcome.by)
            outcomes[whose[job]] = outcome
            tell(whose[job], outcome)

        self._keep_busy(next_run, done)
        return outcomes

    def uncalled(self, paths: Sequence[Path]) -> Counter[Function]:
        """Functions that no test of their own layer calls, by how many mistakes could be made in them."""
        self._trace({file for path in paths for file in own_tests(path)})
        found: Counter[Function] = Counter()
        for path in paths:
            traces = [self._traces[file] for file in own_tests(path) if file in self._traces]
            called = self._imported.union(*(trace.callers for trace in traces))
            source = source_of(path)
            names = (function_around(source, edit.line) for edit in edits_of(source))
            found.update((str(path), name) for name in names if name is not None and (str(path), name) not in called)
        return found

    def failing_anyway(self) -> list[str]:
        """Of the tests that have noticed mutants, those that fail without one: they say nothing."""
        if not self._noticing:
            return []
        copy = self._copies[0]
        copy.take(None)
        files = sorted({test.partition("::")[0] for test in self._noticing})
        usual_s = {test: self._traces[test.partition("::")[0]].seconds.get(test, 0.0) for test in self._noticing}
        traces = {f: Trace({t: s for t, s in usual_s.items() if t.startswith(f)}, {}) for f in files}
        chosen = plan("", None, traces, 1e9, 120)
        others = {test for file in files for test in self._traces[file].seconds}
        planned = Planned(chosen, others, 120)
        todo = [Run(copy, chosen.files, 120 + 10 * chosen.seconds, [planned], stops_early=False)]
        failing: list[str] = []

        def done(job: int, run: Run, outcome: Outcome) -> None:
            failing.extend((run.failures or [outcome.by]) if outcome.noticed else [])

        self._keep_busy(lambda copy, job: todo.pop() if todo else None, done)
        return failing

    def _keep_busy(
        self, next_run: Callable[[Copy, int], Run | None], done: Callable[[int, Run, Outcome], None]
    ) -> None:
        running: dict[int, Run] = {}
        try:
            while True:
                for job, copy in enumerate(self._copies):
                    if job not in running and (run := next_run(copy, job)) is not None:
                        running[job] = run
                        run.start()
                if not running:
                    return
                job, outcome = wait_for(running)
                done(job, running.pop(job), outcome)
        finally:
            for run in running.values():
                run.kill()

    def _run(self, copy: Copy, mutant: Mutant, files: Sequence[str]) -> Run:
        name = function_around(source_of(mutant.path), mutant.edit.line)
        if (str(mutant.path), name) in self._imported:
            name = None
        traces = {file: self._traces[file] for file in files if file in self._traces}
        chosen = plan(
            str(mutant.path),
            name,
            traces,
            self._box_s,
            _PATIENCE_S,
            first=files_about(mutant.path),
            met=self._met[mutant],
        )
        self._met[mutant].update(chosen.timeouts_s)
        copy.take(mutant)
        traced = {test for file in chosen.files for test in traces[file].seconds}
        planned = Planned(chosen, traced, _PATIENCE_S)
        return Run(copy, chosen.files, 2 * _PATIENCE_S + 5 * chosen.seconds, [planned])

    def _trace(self, files: set[str]) -> None:
        """Files that fail without a mutant, twice, are left out: they say nothing about mutants."""
        _TRACES.mkdir(parents=True, exist_ok=True)
        kept = {file: _TRACES / f"{file.replace('/', '.')}.{digest(ROOT / file)}.json" for file in files}
        missing = [file for file in sorted(files - set(self._traces)) if not kept[file].exists()]
        if missing:
            print(f"tracing {len(missing)} files of tests", flush=True)
        todo = list(reversed(missing))
        began: dict[int, str] = {}
        failed: set[str] = set()

        def next_run(copy: Copy, job: int) -> Run | None:
            if not todo:
                return None
            copy.take(None)
            began[job] = todo.pop()
            return self._traced(copy, began[job], kept[began[job]])

        def done(job: int, run: Run, outcome: Outcome) -> None:
            file = began[job]
            if outcome.noticed:
                kept[file].unlink(missing_ok=True)
                if file in failed:
                    print(f"left out, as it fails without a mutant: {file} ({outcome.by})", flush=True)
                else:
                    failed.add(file)
                    todo.insert(0, file)

        self._keep_busy(next_run, done)
        self._traces |= {file: Trace.read(path) for file, path in kept.items() if path.exists()}

    def _called_at_import(self) -> set[Function]:
        copy = self._copies[0]
        processes, environment = self._traced_processes(copy)
        names = [".".join(("ottla", *path.with_suffix("").parts)) for path in modules("")]
        subprocess.run([sys.executable, "-c", _IMPORT_ALL, *names], env=os.environ | environment, check=True)
        return noted_by_processes(processes)

    def _traced_processes(self, copy: Copy) -> tuple[Path, dict[str, str]]:
        """Where processes with this environment note what they call."""
        processes = Path(tempfile.mkdtemp(dir=self._folder))
        hook = Path(tempfile.mkdtemp(dir=self._folder))
        (hook / "sitecustomize.py").write_text(TRACED_PROCESS)
        return processes, {
            "PYTHONPATH": f"{copy.folder / 'src'}:{hook}",
            "MUTANTS_SOURCE": f"{copy.source}/",
            "MUTANTS_TRACE": str(processes),
        }

    def _traced(self, copy: Copy, file: str, output: Path) -> Run:
        processes, environment = self._traced_processes(copy)
        return Run(copy, [file], _TRACING_S, [Recorder(copy.source, processes, output)], environment)


def show(mutant: Mutant) -> str:
    source = source_of(mutant.path)
    lines = difflib.unified_diff(
        source.splitlines(), apply(source, mutant.edit).splitlines(), mutant.place, mutant.edit.kind, lineterm="", n=2
    )
    return "\n".join(lines)


def main() -> int:
    options = parse()
    # Whoever ends this ends the tests that are running, too, and the copies go.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    if options.uncalled:
        return show_uncalled(options)
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    if options.again is not None:
        mutants = list(find(listed(options.again)).values())
        print(f"{len(mutants)} mutants of {options.again}", flush=True)
    else:
        mutants = choose(seed, options.count, options.module)
        print(f"seed {seed}: {len(mutants)} mutants in {options.module or 'src/ottla'}", flush=True)
    known = listed(EQUIVALENT)
    for gone in known.keys() - find(known).keys():
        print(f"the code has changed, so that this listed mutant is none any more: {gone}", flush=True)
    equivalent = [mutant for mutant in mutants if mutant.identity in known]
    preload()
    started = time.monotonic()

    def tell(mutant: Mutant, outcome: Outcome) -> None:
        word = "noticed" if outcome.noticed else "NOT NOTICED"
        by = f" by {outcome.by}" if outcome.by else ""
        print(f"{word:11}  {mutant.place}  {mutant.edit.kind} ({outcome.seconds:.1f} s){by}", flush=True)

    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        bench = Bench(Path(folder), options.jobs, options.box)
        unnoticed = tried = [mutant for mutant in mutants if mutant not in equivalent]
        if not options.wider:
            outcomes = bench.try_all(tried, own_tests, tell)
            unnoticed = [mutant for mutant in tried if not outcomes[mutant].noticed]
        missed = unnoticed
        if unnoticed and not options.own:
            print(f"{len(unnoticed)} survivors meet the tests of other layers", flush=True)
            again = bench.try_all(unnoticed, all_tests if options.suite else wider_tests, tell)
            missed = [mutant for mutant in unnoticed if not again[mutant].noticed]
        failing = bench.failing_anyway()
    report(missed, [mutant for mutant in unnoticed if mutant not in missed], options.survivors)
    all_, own, wider = len(tried), len(tried) - len(unnoticed), len(tried) - len(missed)
    print(
        f"seed {seed}: {wider} of {all_} noticed ({100 * wider / max(1, all_):.0f} %), {own} of them by the tests of "
        f"their own layer; {len(equivalent)} more change nothing; {time.monotonic() - started:.0f} s"
    )
    if failing:
        print("these tests fail without a mutant, too:", *failing, sep="\n  ")
        return 2
    return 0 if wider >= options.goal / 100 * all_ else 1


def show_uncalled(options: argparse.Namespace) -> int:
    preload()
    paths = modules(options.module)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        found = Bench(Path(folder), options.jobs, options.box).uncalled(paths)
    by_module: dict[str, list[str]] = defaultdict(list)
    sizes: Counter[str] = Counter()
    for (module, name), count in found.most_common():
        by_module[module].append(f"{name} ({count})")
        sizes[module] += count
    for module, count in sizes.most_common():
        print(f"{count:5}  src/ottla/{module}: {', '.join(by_module[module])}")
    possible = sum(len(edits_of(source_of(path))) for path in paths)
    print(f"{found.total()} of {possible} mistakes would be in functions that no test of their own layer calls")
    return 0


def report(missed: list[Mutant], elsewhere: list[Mutant], file: Path | None) -> None:
    for title, group in (("Not noticed", missed), ("Noticed only by tests of other layers", elsewhere)):
        if group:
            print(f"\n--- {title} ({len(group)}) ---\n" + "\n\n".join(show(mutant) for mutant in group) + "\n")
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(written({m.identity: "" for m in missed} | {m.identity: "elsewhere" for m in elsewhere}))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--seed", type=int, help="which mutants (by chance)")
    parser.add_argument("--module", default="", help="modules or packages below src/ottla, with commas (all)")
    parser.add_argument("--count", type=int, default=100, help="how many mutants (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (%(default)s)")
    parser.add_argument("--goal", type=float, default=95, help="fail below this percentage (%(default)s)")
    parser.add_argument("--box", type=float, default=120, help="seconds of tests per mutant and stage (%(default)s)")
    parser.add_argument("--own", action="store_true", help="only the tests of a mutant's own layer")
    parser.add_argument("--wider", action="store_true", help="only the tests of other layers")
    parser.add_argument("--suite", action="store_true", help="other layers are the whole suite (tracing it takes long)")
    parser.add_argument("--uncalled", action="store_true", help="only list what no test of its own layer calls")
    parser.add_argument("--survivors", type=Path, help="a file for the mutants that their own layer did not notice")
    parser.add_argument("--again", type=Path, help="such a file: try these")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
