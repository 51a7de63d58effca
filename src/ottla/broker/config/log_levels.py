"""Levels of the broker's log by Kafka's names, and by Python's where they differ."""

from __future__ import annotations

from ottla.base.options import Value

LEVELS = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}
_OTHER_NAMES = {"WARNING": "WARN", "CRITICAL": "FATAL"}


def level_named(name: str) -> int | None:
    upper = name.strip().upper()
    return LEVELS.get(_OTHER_NAMES.get(upper, upper))


class LogLevels:
    """The rule for `ottla.log.level`: a level for everything, and levels for loggers by name."""

    def problem(self, value: Value) -> str | None:
        items = value if isinstance(value, tuple) else ()
        are_levels = all(level_named(item.rpartition("=")[2]) is not None for item in items)
        return None if items and are_levels else f"must be {self}"

    def __str__(self) -> str:
        return f"{', '.join(LEVELS)} or logger=LEVEL, or several of them"
