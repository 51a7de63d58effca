"""Which partitions are meant: by topic, by number, or by Kafka's patterns of both."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from ottla.base.types import TopicPartition
from ottla.cli.failures import UsageError

Wanted = Callable[[str, int], bool]
_ALL = range(1 << 31)
"""Partitions are numbered by an int32."""


def of_topics(pattern: str | None, partitions: str | None) -> Wanted:
    """Topics by a regular expression, and some of their partitions: `0,1`, `0-3` (the end is not among them)."""
    matches = _topic_pattern(pattern)
    ranges = [_range(part) for part in partitions.split(",")] if partitions else [_ALL]
    return lambda topic, partition: matches(topic) and any(partition in numbers for numbers in ranges)


def of_patterns(text: str) -> Wanted:
    """`orders:0,orders:2-4,audit.*`, any of them."""
    rules = []
    for part in text.split(","):
        topic, _, numbers = part.strip().partition(":")
        rules.append((_topic_pattern(topic or None), _range(numbers) if numbers else _ALL))
    return lambda topic, partition: any(matches(topic) and partition in numbers for matches, numbers in rules)


def _topic_pattern(pattern: str | None) -> Callable[[str], bool]:
    if pattern is None:
        return lambda _: True
    try:
        compiled = re.compile(".*" if pattern == "*" else pattern)
    except re.error as e:
        raise UsageError(f"{pattern!r} is not a regular expression: {e}") from None
    return lambda topic: topic == pattern or compiled.fullmatch(topic) is not None


def _range(text: str) -> range:
    found = re.fullmatch(r"(\d*)(-?)(\d*)", text.strip())
    if found is None or not text.strip() or text.strip() == "-":
        raise UsageError(f"{text!r} is no partition: write 0, 0-3 (without 3), -3 or 3-")
    start, dash, end = found.groups()
    if not dash:
        return range(int(start), int(start) + 1)
    return range(int(start or 0), int(end) if end else _ALL.stop)


def select(partitions: Iterable[TopicPartition], wanted: Wanted) -> list[TopicPartition]:
    return sorted(partition for partition in partitions if wanted(*partition))
