"""What a consumer is to read: topics or a pattern, whose partitions a group shares out, or partitions named by hand.

Owns the choice and nothing of the partitions themselves: positions are the cursors' business.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ottla.base.types import TopicPartition
from ottla.client.errors import SubscriptionStateError
from ottla.machines.cluster.topic_names import why_illegal


class Subscription:
    """The three ways of choosing exclude each other until `unsubscribe`."""

    def __init__(self) -> None:
        self._topics: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self._excluded: re.Pattern[str] | None = None
        self._matched: frozenset[str] = frozenset()
        self._is_manual = False

    @property
    def is_manual(self) -> bool:
        return self._is_manual

    @property
    def uses_group(self) -> bool:
        return bool(self._topics) or self._pattern is not None

    @property
    def pattern(self) -> re.Pattern[str] | None:
        return self._pattern

    @property
    def topics(self) -> frozenset[str]:
        """The topics subscribed to; of a pattern, those that matched when last looked."""
        return self._matched if self._pattern is not None else self._topics

    def check_made(self) -> None:
        if not self.uses_group and not self._is_manual:
            raise SubscriptionStateError("this consumer has nothing to read; call subscribe() or assign() first")

    def subscribe(self, topics: Iterable[str]) -> None:
        names = topic_names(topics)
        self._refuse_mixing("topics", self._pattern is not None or self._is_manual)
        self._topics = names

    def subscribe_pattern(self, pattern: re.Pattern[str], excluded: re.Pattern[str] | None = None) -> None:
        """`excluded` are names that the pattern shall not match; they are compared with all of it."""
        if not isinstance(pattern.pattern, str):
            raise SubscriptionStateError(f"a pattern for topics is made of text, not of bytes: {pattern.pattern!r}")
        self._refuse_mixing("a pattern", bool(self._topics) or self._is_manual)
        if (self._pattern, self._excluded) != (pattern, excluded):
            self._pattern, self._excluded = pattern, excluded
            self._matched = frozenset()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._refuse_mixing("partitions of its own", self.uses_group)
        self._is_manual = bool(list(partitions))

    def unsubscribe(self) -> None:
        self.__init__()  # type: ignore[misc]

    def match(self, existing: Iterable[tuple[str, bool]], *, exclude_internal: bool) -> bool:
        """Takes the topics there are (name, is internal); True if the pattern now matches other ones than before."""
        if self._pattern is None:
            return False
        found = frozenset(
            name
            for name, is_internal in existing
            if not (exclude_internal and is_internal)
            and self._pattern.search(name)
            and not (self._excluded is not None and self._excluded.fullmatch(name))
        )
        changed = found != self._matched
        self._matched = found
        return changed

    def wants(self, topic: str) -> bool:
        return topic in self.topics

    def _refuse_mixing(self, wanted: str, is_mixed: bool) -> None:
        if is_mixed:
            now = "partitions" if self._is_manual else "a pattern" if self._pattern is not None else "topics"
            raise SubscriptionStateError(f"this consumer reads {now}; call unsubscribe() before it is given {wanted}")


def topic_names(topics: Iterable[str]) -> frozenset[str]:
    """The topics somebody subscribes to, if they can be that."""
    if isinstance(topics, str | bytes) or not isinstance(topics, Iterable):
        raise SubscriptionStateError(f"subscribe() takes a list of topics, or a compiled pattern, not {topics!r}")
    names = frozenset(topics)
    for name in names:
        if not isinstance(name, str):
            raise SubscriptionStateError(f"the name of a topic is text, not {name!r}")
        if (reason := why_illegal(name)) is not None:
            raise SubscriptionStateError(reason)
    return names
