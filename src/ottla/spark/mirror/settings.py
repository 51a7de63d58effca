"""What one mirror is asked to do, as plain values: two clusters, the topics, their names on the target, the groups."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ottla.spark.own_names import REDRIVEN_PREFIX, SINK_GROUP

ORIGIN_HEADER = "ottla.mirror.origin"
"""Holds the id of the cluster a record was first written in."""

_MAP_PREFIX = "ottla.mirror."
_NEVER_COPIED = (r"__.*", re.escape(_MAP_PREFIX) + ".*", re.escape(REDRIVEN_PREFIX) + ".*")
"""Notes about offsets, which are others in another cluster."""
_NOT_READERS = (r"ottla-(?:pipeline|spark)-.*", SINK_GROUP)
"""Groups that only show how far queries are, and those in which sinks keep the numbers of batches."""


def choosing(names: Iterable[str], pattern: str | None, exclude: Iterable[str]) -> str:
    """A regular expression for whole names: those listed or matching `pattern`, and matching none of `exclude`."""
    wanted = "|".join(f"(?:{one})" for one in [*map(re.escape, names), *([pattern] if pattern is not None else [])])
    unwanted = "|".join(f"(?:{one})" for one in exclude)
    return f"(?!(?:{unwanted})\\Z)(?:{wanted})" if unwanted else f"(?:{wanted})"


@dataclass(frozen=True)
class TopicNames:
    """Which topics of the source are copied, and what their copies are called."""

    pattern: str
    prefix: str = ""

    @classmethod
    def of(
        cls, topics: Iterable[str], pattern: str | None, exclude: Iterable[str], *, prefix: str, target_prefix: str
    ) -> TopicNames:
        """Topics that begin with `target_prefix` have come from the target, if copies get a prefix."""
        came_from_target = [re.escape(target_prefix) + ".*"] if prefix else []
        return cls(choosing(topics, pattern, [*_NEVER_COPIED, *came_from_target, *exclude]), prefix)

    def are_copied(self, topic: str) -> bool:
        return re.fullmatch(self.pattern, topic) is not None

    def on_target(self, topic: str) -> str:
        return self.prefix + topic

    def on_source(self, copy: str) -> str:
        return copy.removeprefix(self.prefix)


@dataclass(frozen=True)
class GroupChoice:
    """The groups whose offsets are translated, and how often."""

    pattern: str
    interval_ms: int

    @classmethod
    def of(cls, names: Iterable[str], pattern: str | None, exclude: Iterable[str], interval_ms: int) -> GroupChoice:
        return cls(choosing(names, pattern, [*_NOT_READERS, *exclude]), interval_ms)

    def are_translated(self, group_id: str) -> bool:
        return re.fullmatch(self.pattern, group_id) is not None


@dataclass(frozen=True)
class Mirror:
    name: str
    source: Mapping[str, str] = field(repr=False)
    """Settings of clients, as are those of `target`. May hold passwords."""
    target: Mapping[str, str] = field(repr=False)
    names: TopicNames
    marks_origin: bool
    """Whether copies get the header that tells where they come from."""
    groups: GroupChoice | None = None

    @property
    def map_topic(self) -> str:
        return map_topic_of(self.name)


def map_topic_of(mirror_name: str) -> str:
    """The topic of the target that maps source offsets to target offsets."""
    return f"{_MAP_PREFIX}{mirror_name}.offsets"
