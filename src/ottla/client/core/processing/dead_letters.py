"""A record that was given up, as it goes to its dead-letter topic: unchanged, with headers that tell its origin."""

from __future__ import annotations

import re
from typing import NamedTuple

from ottla.client.core.processing.failures import message_of
from ottla.client.core.processing.parallel import RawRecord
from ottla.records.walk import Header

PREFIX = "ottla.dead-letter."
DEFAULT_TOPIC = "{topic}.dlt"
_MESSAGE_CHARS_MAX = 2000
_PLACE = frozenset(PREFIX + name for name in ("topic", "partition", "offset"))


class DeadLetter(NamedTuple):
    """What a producer sends."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    timestamp_ms: int | None

    def shorter(self) -> list[DeadLetter]:
        """With only the place of the record, and with nothing of ours: then it is no larger than it has been."""
        own = [header for header in self.headers if not header[0].startswith(PREFIX)]
        place = [header for header in self.headers if header[0] in _PLACE]
        return [self._replace(headers=own + place), self._replace(headers=own)]


def check_template(template: str) -> None:
    try:
        named = template.format(topic="a") != template.format(topic="b")
    except (KeyError, IndexError, ValueError, AttributeError) as e:
        raise ValueError(
            f"the dead-letter topic may contain {{topic}} and no other braces, but was {template!r}"
        ) from e
    if not template or (named and template == "{topic}"):
        raise ValueError(f"the dead-letter topic must not be empty, nor the topic itself, but was {template!r}")


def dead_letter_topics(template: str) -> re.Pattern[str]:
    """Matches the names of all topics that dead letters may go to, and no others."""
    any_topic = "\0"
    return re.compile(".+".join(map(re.escape, template.format(topic=any_topic).split(any_topic))))


def dead_letter(record: RawRecord, template: str, *, error: BaseException, attempts: int, group_id: str) -> DeadLetter:
    origin = {
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "timestamp": str(record.timestamp),
        "group": group_id,
        "exception": f"{type(error).__module__}.{type(error).__qualname__}",
        "message": message_of(error)[:_MESSAGE_CHARS_MAX],
        "attempts": str(attempts),
    }
    headers = [header for header in record.headers if not header[0].startswith(PREFIX)]
    headers += [(PREFIX + name, value.encode(errors="replace")) for name, value in origin.items()]
    return DeadLetter(
        template.format(topic=record.topic),
        record.key,
        record.value,
        headers,
        record.timestamp if record.timestamp >= 0 else None,
    )
