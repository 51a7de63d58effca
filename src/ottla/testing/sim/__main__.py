"""`python -m ottla.testing.sim`: many seeds and what they met, or one seed with all that happened."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial

from ottla.testing.sim.world import Outcome, simulate, try_seed

EVENTS = 20_000
_SEEDS_PER_PROCESS = 20
"""What killed brokers leave in memory, and open, is never collected, so processes are made anew now and then."""
_SHOWN_EVERY = 50


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.seed is not None:
        return _show(simulate(options.seed, options.events, say=print))
    return _run_many(range(options.first, options.first + options.seeds), options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ottla.testing.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to try (100)")
    parser.add_argument("--first", type=int, default=1, help="the first of them (1)")
    parser.add_argument("--seed", type=int, help="try one seed, and print all that happens")
    parser.add_argument("--events", type=int, default=EVENTS, help=f"events before everything heals ({EVENTS})")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--twice", action="store_true", help="run each seed twice, and compare the traces")
    return parser


def _show(outcome: Outcome) -> int:
    print(outcome)
    return 1 if outcome.violation else 0


def _run_many(seeds: range, options: argparse.Namespace) -> int:
    began_s = time.monotonic()
    outcomes: list[Outcome] = []
    with multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=_SEEDS_PER_PROCESS) as pool:
        work = partial(try_seed, events=options.events, is_twice=options.twice)
        for outcome in pool.imap_unordered(work, seeds):
            outcomes.append(outcome)
            if outcome.violation:
                print(f"seed {outcome.seed}: {outcome.violation}", flush=True)
            if len(outcomes) % _SHOWN_EVERY == 0:
                print(f"{len(outcomes)} of {len(seeds)} seeds, {time.monotonic() - began_s:.0f} s", flush=True)
    _print_summary(outcomes, time.monotonic() - began_s, is_twice=options.twice)
    return 1 if any(outcome.violation for outcome in outcomes) else 0


def _print_summary(outcomes: Iterable[Outcome], took_s: float, *, is_twice: bool) -> None:
    outcomes = list(outcomes)
    faults: Counter[str] = sum((outcome.faults for outcome in outcomes), Counter())
    broken = sorted(outcome.seed for outcome in outcomes if outcome.violation)
    print(f"seeds           {len(outcomes):>12,}{' (each twice, same trace)' if is_twice and not broken else ''}")
    print(f"events          {sum(outcome.events for outcome in outcomes):>12,}")
    print(f"fewest events   {min(outcome.events for outcome in outcomes):>12,}")
    print(f"virtual time    {sum(outcome.virtual_s for outcome in outcomes) / 3600:>12,.1f} h")
    print(f"acknowledged    {sum(outcome.acknowledged for outcome in outcomes):>12,} records")
    print(f"read            {sum(outcome.read for outcome in outcomes):>12,} records")
    print(f"offset commits  {sum(outcome.committed_offsets for outcome in outcomes):>12,}")
    print(f"transactions    {sum(outcome.transactions for outcome in outcomes):>12,} committed or aborted")
    print(f"leader epochs   {sum(outcome.leader_epochs for outcome in outcomes):>12,}")
    print(f"moves           {sum(outcome.moves for outcome in outcomes):>12,}")
    print(f"excused         {sum(outcome.excused for outcome in outcomes):>12,} partitions that had to lose records")
    for kind, count in faults.most_common():
        print(f"  {kind:<20}{count:>7,}")
    print(f"took            {took_s:>12,.0f} s")
    if broken:
        print(f"violations      {len(broken):>12,}: see them with make sim SEED={broken[0]}")


if __name__ == "__main__":
    sys.exit(main())
