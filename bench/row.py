"""One line of the report, and what it says of a target."""

from __future__ import annotations

from dataclasses import dataclass, field


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
    limit: float | None = None
    """The ratio that a side without any work of its own had in the same run: nobody can be above it."""
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
        return "beyond the limit" if self.limit is not None and self.floor > self.limit else "MISS"
