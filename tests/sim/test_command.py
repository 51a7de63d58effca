"""`python -m ottla.testing.sim`: what it tells of seeds, and when it fails."""

from __future__ import annotations

from collections import Counter
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.testing.sim import __main__ as command
from ottla.testing.sim.world import Outcome

GOOD = Outcome(3, 1500, 7200.0, Counter(cut=2, killed=1), 10, 20, 30, 40, 50, 60, 70)
BAD = Outcome(5, 1000, 3600.0, Counter(cut=1), 1, 2, 3, 4, 5, 6, 7, violation="a record is lost")


class Pool:
    """Tries seeds in this process."""

    made: list[tuple[str, int, int]]
    """How processes are begun, how many, and after how many seeds they are made anew."""

    def __init__(self, method: str, jobs: int, maxtasksperchild: int) -> None:
        Pool.made.append((method, jobs, maxtasksperchild))

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def imap_unordered(self, work: Any, seeds: range) -> Any:
        return map(work, seeds)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, bool]]:
    """Seeds, events and whether twice; the seed 5 is a bad one."""
    seen: list[tuple[int, int, bool]] = []

    def try_seed(seed: int, *, events: int, is_twice: bool) -> Outcome:
        seen.append((seed, events, is_twice))
        return BAD if seed == 5 else GOOD

    class Context:
        def __init__(self, method: str) -> None:
            self.Pool = partial(Pool, method)

    Pool.made = []
    monkeypatch.setattr(command, "try_seed", try_seed)
    monkeypatch.setattr(command.multiprocessing, "get_context", Context)
    return seen


def test_a_hundred_seeds_unless_told_otherwise(
    tried: list[tuple[int, int, bool]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--first", "6"]) == 0
    assert tried == [(seed, 20_000, False) for seed in range(6, 106)]
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("50 of 100 seeds, ") and said[1].startswith("100 of 100 seeds, ")
    assert Pool.made == [("spawn", 2, 20)]


def test_how_long_many_seeds_took(
    tried: list[tuple[int, int, bool]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times_s = iter([1000.0, 1064.0])
    monkeypatch.setattr(command, "time", SimpleNamespace(monotonic=lambda: next(times_s)))
    assert command.main(["--first", "6", "--seeds", "2"]) == 0
    assert "took 64 s" in words(capsys.readouterr().out)


def test_a_seed_that_is_broken_is_named_at_once(
    tried: list[tuple[int, int, bool]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--seeds", "6", "--events", "9", "--twice", "--jobs", "7"]) == 1
    assert Pool.made == [("spawn", 7, 20)]
    assert tried == [(seed, 9, True) for seed in range(1, 7)]
    assert capsys.readouterr().out.startswith("seed 5: a record is lost\n")


def words(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_the_summary_adds_up_what_seeds_met(capsys: pytest.CaptureFixture[str]) -> None:
    command._print_summary([GOOD, BAD], 12.4, is_twice=True)
    assert words(capsys.readouterr().out) == [
        "seeds 2",
        "events 2,500",
        "fewest events 1,000",
        "virtual time 3.0 h",
        "acknowledged 11 records",
        "read 22 records",
        "offset commits 33",
        "transactions 44 committed or aborted",
        "leader epochs 55",
        "moves 66",
        "excused 77 partitions that had to lose records",
        "cut 3",
        "killed 1",
        "took 12 s",
        "violations 1: see them with make sim SEED=5",
    ]


@pytest.mark.parametrize(("is_twice", "first"), [(True, "seeds 1 (each twice, same trace)"), (False, "seeds 1")])
def test_seeds_that_were_tried_twice_had_the_same_trace(
    is_twice: bool, first: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command._print_summary([GOOD], 1, is_twice=is_twice)
    said = words(capsys.readouterr().out)
    assert said[0] == first
    assert not any(line.startswith("violations") for line in said)


@pytest.mark.parametrize(("outcome", "code"), [(GOOD, 0), (BAD, 1)])
def test_one_seed_is_shown(
    outcome: Outcome, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[object, ...]] = []

    def simulate(*arguments: object, say: object) -> Outcome:
        asked.append((*arguments, say))
        return outcome

    monkeypatch.setattr(command, "simulate", simulate)
    assert command.main(["--seed", "7"]) == code
    assert asked == [(7, 20_000, print)]
    assert capsys.readouterr().out == f"{outcome}\n"
