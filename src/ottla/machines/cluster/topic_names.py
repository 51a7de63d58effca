"""Which topic names are legal, and which two may not live side by side."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ottla.base.errors import ErrorCode, KafkaError

MAX_NAME_LENGTH = 249
GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC})

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def why_illegal(name: str) -> str | None:
    """The reason why no topic may have this name, or None if one may."""
    if not name:
        return "a topic name cannot be empty"
    if name in (".", ".."):
        return f"a topic cannot be called {name!r}"
    if len(name) > MAX_NAME_LENGTH:
        return f"a topic name has at most {MAX_NAME_LENGTH} characters; this one has {len(name)}"
    if not _LEGAL.fullmatch(name):
        return f"topic name {name!r} holds a character other than ASCII letters, digits, '.', '_' and '-'"
    return None


def validate_name(name: str) -> None:
    reason = why_illegal(name)
    if reason is not None:
        raise KafkaError(reason, code=ErrorCode.INVALID_TOPIC_EXCEPTION)


def colliding_name(name: str, existing: Iterable[str]) -> str | None:
    """An existing topic that metrics could not tell from `name`, because they write '.' as '_'."""
    if "." not in name and "_" not in name:
        return None
    flat = name.replace(".", "_")
    return next((other for other in existing if other != name and other.replace(".", "_") == flat), None)
