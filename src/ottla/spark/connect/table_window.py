"""Where a reader of a growing table stands, and the rows between two such places. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.base.errors import OttlaError
from ottla.spark.connect.sql import Dialect

INCREMENTING, TIMESTAMP = "incrementing", "timestamp"


class TablePositionError(OttlaError):
    """A position in a checkpoint that does not belong to the columns the table is followed by."""


class Position(NamedTuple):
    """The last row read, by the columns that order the table; None for a column that is not used or before any row."""

    incrementing: int | None = None
    timestamp: str | None = None
    """As text in UTC with microseconds, which is exact and can be compared as text."""

    def to_json(self) -> dict[str, Any]:
        return {INCREMENTING: self.incrementing, TIMESTAMP: self.timestamp}

    @classmethod
    def from_json(cls, offset: dict[str, Any]) -> Position:
        if set(offset) != {INCREMENTING, TIMESTAMP}:
            raise TablePositionError(f"{offset} is no position in a table: this checkpoint is that of another source")
        return cls(offset[INCREMENTING], offset[TIMESTAMP])

    def is_before(self, other: Position) -> bool:
        return self._sort_key() < other._sort_key()

    def _sort_key(self) -> tuple[str, bool, int]:
        return self.timestamp or "", self.incrementing is not None, self.incrementing or 0


class Condition(NamedTuple):
    """A WHERE condition with `%s` for its parameters."""

    text: str
    parameters: tuple[object, ...]

    def also(self, other: Condition) -> Condition:
        return Condition(f"({self.text}) AND ({other.text})", (*self.parameters, *other.parameters))


class Order(NamedTuple):
    """The columns a table is followed by: an incrementing one, a timestamp, or both (the timestamp goes first)."""

    incrementing: str | None
    timestamp: str | None

    @property
    def columns(self) -> list[str]:
        return [column for column in (self.timestamp, self.incrementing) if column is not None]

    def _place(self, position: Position) -> list[object]:
        """Times without their zone: sessions are in UTC, and not every database knows how to read one."""
        moment = None if position.timestamp is None else position.timestamp.removesuffix("+00:00")
        values = {self.timestamp: moment, self.incrementing: position.incrementing}
        place: list[object] = [values[column] for column in self.columns]
        if None in place and place != [None] * len(place):
            raise TablePositionError("the checkpoint follows the table by other columns than now: start a new one")
        return place

    def after(self, position: Position, dialect: Dialect) -> Condition:
        place = self._place(position)
        if place[0] is None:
            every = " AND ".join(f"{dialect.quoted(column)} IS NOT NULL" for column in self.columns)
            return Condition(every, ())
        return self._compared(">", place, dialect)

    def up_to(self, position: Position, dialect: Dialect) -> Condition:
        place = self._place(position)
        if place[0] is None:
            return Condition("FALSE", ())
        return self._compared("<=", place, dialect)

    def _compared(self, operator: str, place: list[object], dialect: Dialect) -> Condition:
        """Not as rows, (a, b) > (x, y): MySQL does not use an index for that."""
        *firsts, last = (dialect.quoted(column) for column in self.columns)
        condition = Condition(f"{last} {operator} %s", (place[-1],))
        for first in firsts:
            strict, wide = operator[0], f"{operator[0]}="
            beyond = f"{first} {wide} %s AND ({first} {strict} %s OR {condition.text})"
            condition = Condition(beyond, (place[0], place[0], *condition.parameters))
        return condition
