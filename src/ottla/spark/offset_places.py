"""Which partitions a source reads and where it starts and ends, as options say it in text. Nothing is looked up."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from ottla.base.errors import InvalidConfigError
from ottla.base.types import TopicPartition

LATEST = -1
EARLIEST = -2
"""In place of an offset, as in Spark's own source."""

_EDGES = {"latest": LATEST, "earliest": EARLIEST}
_GROUP_PREFIX = "group:"
_MAX_LONG = 2**63 - 1


class Subscribe(NamedTuple):
    topics: tuple[str, ...]


class SubscribePattern(NamedTuple):
    pattern: str

    def matches(self, topic: str) -> bool:
        return re.fullmatch(self.pattern, topic) is not None


class Assign(NamedTuple):
    partitions: tuple[TopicPartition, ...]


Selection: TypeAlias = Subscribe | SubscribePattern | Assign


class AtEdge(NamedTuple):
    """`LATEST` or `EARLIEST`, in every partition."""

    edge: int


class AtOffsets(NamedTuple):
    """An offset for each partition; some may be `LATEST` or `EARLIEST`."""

    offsets: Mapping[TopicPartition, int]


class AtTime(NamedTuple):
    timestamp_ms: int


class AtTimes(NamedTuple):
    timestamps_ms: Mapping[TopicPartition, int]


class AtGroup(NamedTuple):
    """Where a consumer group has come to."""

    group_id: str


Place: TypeAlias = AtEdge | AtOffsets | AtTime | AtTimes | AtGroup


def parse_subscribe(name: str, text: str) -> Subscribe:
    topics = tuple(dict.fromkeys(filter(None, (part.strip() for part in text.split(",")))))
    if not topics:
        raise InvalidConfigError(name, f"{name} names no topic; give one, or several with commas between them")
    return Subscribe(topics)


def parse_pattern(name: str, text: str) -> SubscribePattern:
    if not text.strip():
        raise InvalidConfigError(name, f"{name} is empty; give a regular expression for whole topic names")
    try:
        re.compile(text.strip())
    except re.error as e:
        raise InvalidConfigError(name, f"{name} is not a regular expression: {e}") from e
    return SubscribePattern(text.strip())


def parse_assign(name: str, text: str) -> Assign:
    """`{"topic": [0, 1]}`"""
    form = f'{name} must be JSON like {{"topic": [0, 1]}}'
    partitions: list[TopicPartition] = []
    for topic, indexes in _json_object(name, text, form).items():
        if not isinstance(indexes, list) or not indexes:
            raise InvalidConfigError(name, f"{form}, but {topic!r} has no list of partitions")
        for index in indexes:
            if not _is_number(index) or index < 0:
                raise InvalidConfigError(name, f"{form}, but {topic!r} has a partition {index!r}")
            partitions.append(TopicPartition(topic, index))
    if not partitions:
        raise InvalidConfigError(name, f"{form}, but names no partition")
    return Assign(tuple(sorted(set(partitions))))


def parse_offsets(name: str, text: str) -> AtEdge | AtOffsets | AtGroup:
    """`earliest`, `latest`, `group:<id>`, or `{"topic": {"0": 23, "1": -2}}`."""
    stripped = text.strip()
    edge = _EDGES.get(stripped.lower())
    if edge is not None:
        return AtEdge(edge)
    if stripped.lower().startswith(_GROUP_PREFIX):
        group_id = stripped[len(_GROUP_PREFIX) :].strip()
        if not group_id:
            raise InvalidConfigError(name, f"{name} names no group after {_GROUP_PREFIX!r}")
        return AtGroup(group_id)
    return AtOffsets(
        _by_partition(
            name, stripped, f'{name} must be earliest, latest or JSON like {{"topic": {{"0": 23}}}}', EARLIEST
        )
    )


def parse_time(name: str, text: str) -> AtTime:
    stripped = text.strip()
    if not re.fullmatch("[0-9]+", stripped) or int(stripped) > _MAX_LONG:
        raise InvalidConfigError(name, f"{name} must be milliseconds since 1970, but was {text!r}")
    return AtTime(int(stripped))


def parse_times(name: str, text: str) -> AtTimes:
    form = f'{name} must be JSON like {{"topic": {{"0": 1700000000000}}}}, in milliseconds since 1970'
    return AtTimes(_by_partition(name, text, form, 0))


def _by_partition(name: str, text: str, form: str, least: int) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, numbers in _json_object(name, text, form).items():
        if not isinstance(numbers, dict):
            raise InvalidConfigError(name, f"{form}, but {topic!r} has no object of partitions")
        for index, number in numbers.items():
            if not re.fullmatch("[0-9]+", index):
                raise InvalidConfigError(name, f"{form}, but {topic!r} has a partition {index!r}")
            if not _is_number(number) or not least <= number <= _MAX_LONG:
                raise InvalidConfigError(name, f"{form}, but partition {index} of {topic!r} has {number!r}")
            found[TopicPartition(topic, int(index))] = number
    if not found:
        raise InvalidConfigError(name, f"{form}, but names no partition")
    return found


def _json_object(name: str, text: str, form: str) -> dict[str, object]:
    try:
        parsed = json.loads(text)
    except ValueError as e:
        raise InvalidConfigError(name, f"{form}, but was {text!r}") from e
    if not isinstance(parsed, dict):
        raise InvalidConfigError(name, f"{form}, but was {text!r}")
    return parsed


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
