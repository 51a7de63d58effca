"""A dead letter as it is read back: the record it was, where it came from, and which letters somebody asks for.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.record import ConsumerRecord
from ottla.records.walk import Header
from ottla.spark.pipeline.dead_letters import HEADER_PREFIX


class Letter(NamedTuple):
    """`key`, `value` and `headers` are those of the record that could not be read."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    facts: tuple[Header, ...]
    """The headers that tell of the origin and the error."""
    origin: TopicPartition
    offset: int
    """In its origin."""
    timestamp_ms: int
    source: str
    error: str

    @property
    def size(self) -> int:
        named = sum(len(name) + len(value or b"") for name, value in (*self.headers, *self.facts))
        return len(self.key or b"") + len(self.value or b"") + named


def parse_letter(record: ConsumerRecord) -> Letter | None:
    """None if the record is not a dead letter of a source: others may write to the topic as well."""
    facts = {name.removeprefix(HEADER_PREFIX): value for name, value in record.headers if _is_fact(name)}
    try:
        return Letter(
            record.key,
            record.value,
            tuple(header for header in record.headers if not _is_fact(header[0])),
            tuple(header for header in record.headers if _is_fact(header[0])),
            TopicPartition(_text(facts["topic"]), int(_text(facts["partition"]))),
            int(_text(facts["offset"])),
            int(_text(facts["timestamp"])),
            _text(facts["source"]),
            _text(facts["error"]),
        )
    except (KeyError, ValueError):
        return None


def _is_fact(name: str) -> bool:
    return name.startswith(HEADER_PREFIX)


def _text(value: bytes | None) -> str:
    return (value or b"").decode()


@dataclass(frozen=True)
class LetterFilter:
    """Which letters are meant. All but `error` is about the record as it was in its topic."""

    error: str | None = None
    """A text that the error contains."""
    topic: str | None = None
    partitions: Sequence[int] = ()
    first_offset: int | None = None
    last_offset: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    """Exclusive."""

    def takes(self, letter: Letter) -> bool:
        return (
            (self.error is None or self.error in letter.error)
            and (self.topic is None or self.topic == letter.origin.topic)
            and (not self.partitions or letter.origin.partition in self.partitions)
            and (self.first_offset is None or self.first_offset <= letter.offset)
            and (self.last_offset is None or letter.offset <= self.last_offset)
            and (self.since_ms is None or self.since_ms <= letter.timestamp_ms)
            and (self.until_ms is None or letter.timestamp_ms < self.until_ms)
        )


class LetterGroup(NamedTuple):
    """Letters of one partition with one error, as a person is shown them."""

    origin: TopicPartition
    error: str
    letters: int
    first_offset: int
    last_offset: int

    def with_one_more(self, offset: int) -> LetterGroup:
        return self._replace(
            letters=self.letters + 1,
            first_offset=min(self.first_offset, offset),
            last_offset=max(self.last_offset, offset),
        )


class LetterSummary:
    """What a number of letters are, without keeping them."""

    def __init__(self) -> None:
        self._groups: dict[tuple[TopicPartition, str], LetterGroup] = {}

    def add(self, letter: Letter) -> None:
        key = letter.origin, letter.error
        known = self._groups.get(key, LetterGroup(*key, 0, letter.offset, letter.offset))
        self._groups[key] = known.with_one_more(letter.offset)

    @property
    def letters(self) -> int:
        return sum(group.letters for group in self._groups.values())

    @property
    def groups(self) -> list[LetterGroup]:
        """The largest first."""
        return sorted(self._groups.values(), key=lambda group: (-group.letters, group.origin, group.error))
