"""Kafka's releases, as `inter.broker.protocol.version` and `message.format.version` name them."""

from __future__ import annotations

from ottla.base.options import Value

_REVISIONS = {
    "0.8.0": 0,
    "0.8.1": 0,
    "0.8.2": 0,
    "0.9.0": 0,
    "0.10.0": 2,
    "0.10.1": 3,
    "0.10.2": 1,
    "0.11.0": 3,
    "1.0": 1,
    "1.1": 1,
    "2.0": 2,
    "2.1": 3,
    "2.2": 2,
    "2.3": 2,
    "2.4": 2,
    "2.5": 1,
    "2.6": 1,
    "2.7": 3,
    "2.8": 2,
    "3.0": 2,
    "3.1": 1,
    "3.2": 1,
    "3.3": 4,
    "3.4": 1,
    "3.5": 3,
    "3.6": 3,
    "3.7": 5,
    "3.8": 1,
    "3.9": 1,
}
"""Releases with the number of their internal revisions: 0.10.0 has 0.10.0-IV0 and 0.10.0-IV1."""

_NAMES = frozenset(_REVISIONS) | {
    f"{release}-IV{revision}" for release, count in _REVISIONS.items() for revision in range(count)
}


class KafkaRelease:
    """A release with any number of further parts, which do not count: 2.8, 2.8.1, 2.8-IV1, 0.10.0, 0.10.0.1."""

    def problem(self, value: Value) -> str | None:
        if not isinstance(value, str):
            return f"must be {self}"
        # Before 1.0 a release had three numbers, and the fourth was that of a bug fix.
        parts = value.split(".")
        name = ".".join(parts[: 3 if parts[0] == "0" else 2])
        return None if name in _NAMES else f"must be {self}"

    def __str__(self) -> str:
        return "a Kafka release such as 3.1, 3.0-IV1 or 0.10.0.0"
