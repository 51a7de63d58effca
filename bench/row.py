"""One line of the report, and what it says of a target."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from bench.cases import AbsoluteCase, CommitCase, FetchCase, ProduceCase, ReplicatedCase, Target


@dataclass
class Row:
    """One line of the report: the broker against one other side, or an absolute figure where `against` is empty."""

    case: str
    title: str
    unit: str
    value: float
    against: str = ""
    other: float | None = None
    ratio: float | None = None
    floor: float | None = None
    goal: float | None = None
    lower_is_better: bool = False
    rounds: dict[str, list[float]] = field(default_factory=dict)
    notes: str = ""

    @property
    def verdict(self) -> str:
        measured = self.ratio if self.against else self.value
        if self.floor is None or self.goal is None or measured is None:
            return "for information"
        # With the signs turned, larger is better for every row.
        sign = -1 if self.lower_is_better else 1
        if sign * measured >= sign * self.goal:
            return "goal"
        if sign * measured >= sign * self.floor:
            return "floor"
        return "MISS"


def absolute_row(
    case: AbsoluteCase, value: float, rounds: dict[str, list[float]] | None = None, notes: str = ""
) -> Row:
    row = Row(case.name, case.title, case.unit, value, lower_is_better=True, rounds=rounds or {}, notes=notes)
    if case.target is not None:
        row.floor, row.goal = case.target.floor, case.target.goal
    return row


def row_against(
    case: ProduceCase | FetchCase | CommitCase | AbsoluteCase | ReplicatedCase,
    other: str,
    target: Target | None,
    values: dict[str, list[float]],
    notes: str = "",
) -> Row:
    """Ratios are taken of medians: rounds are interleaved, so both medians saw the same machine."""
    ours, theirs = statistics.median(values["broker"]), statistics.median(values[other])
    return Row(
        case.name,
        case.title,
        case.unit,
        ours,
        against=other,
        other=theirs,
        ratio=ours / theirs,
        floor=None if target is None else target.floor,
        goal=None if target is None else target.goal,
        lower_is_better=case.lower_is_better,
        rounds={name: values[name] for name in ("broker", other)},
        notes=notes,
    )
