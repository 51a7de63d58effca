"""The topics that letters are sent to: whether they take them, under which time, and who else reads there."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

from ottla.base.errors import OttlaError
from ottla.base.types import TopicPartition
from ottla.client.core.admin.types import ConfigResource, NewTopic
from ottla.client.sync import Admin
from ottla.spark.own_names import SINK_GROUP
from ottla.spark.pipeline.redrive.letters import Letter
from ottla.spark.topic_offsets import existing


class RedriveError(OttlaError):
    """Letters cannot be sent back; the message is a sentence or two."""


class _Target(NamedTuple):
    partitions: int
    is_compacted: bool
    retention_ms: int | None
    """None if records are not deleted for their age."""


class Targets:
    def __init__(self, admin: Admin, now_ms: int, to_be_made: NewTopic | None = None) -> None:
        """`to_be_made` counts as there."""
        self._admin = admin
        self._now_ms = now_ms
        self._to_be_made = to_be_made
        self._known: dict[str, _Target] = {}

    @property
    def topics(self) -> list[str]:
        """Those that were asked about."""
        return sorted(self._known)

    @property
    def compacted(self) -> list[str]:
        return [topic for topic in self.topics if self._known[topic].is_compacted]

    def check(self, topic: str, partition: int | None = None) -> None:
        """RedriveError if it is not there. A topic that a producer would create is not the one that was meant."""
        if partition is not None and partition >= self._target(topic).partitions:
            raise RedriveError(
                f"topic {topic!r} has no partition {partition}, where letters came from: it is another topic by now. "
                "Leave these letters out with --topic or --error, or give the source a 'redrive_topic'"
            )

    def timestamp_of(self, letter: Letter, topic: str) -> int | None:
        """The record's own time; None, for now, if brokers would delete the record for its age before it is read."""
        retention_ms = self._target(topic).retention_ms
        is_old = retention_ms is not None and letter.timestamp_ms < self._now_ms - retention_ms // 2
        return None if is_old or letter.timestamp_ms < 0 else letter.timestamp_ms

    def _target(self, topic: str) -> _Target:
        if topic not in self._known:
            described = existing(self._admin.describe_topics([topic]))
            if topic not in described and self._to_be_made is not None and topic == self._to_be_made.name:
                return self._known.setdefault(topic, _Target(self._to_be_made.partitions, False, None))
            if topic not in described:
                raise RedriveError(
                    f"there is no topic {topic!r}, where letters are to go: create it, or leave them out with "
                    "--topic or --error"
                )
            resource = ConfigResource.topic(topic)
            configs = {name: entry.value for name, entry in self._admin.describe_configs([resource])[resource].items()}
            policy = (configs.get("cleanup.policy") or "delete").split(",")
            retention_ms = int(configs.get("retention.ms") or -1)
            self._known[topic] = _Target(
                len(described[topic].partitions),
                "compact" in policy,
                retention_ms if retention_ms >= 0 and "delete" in policy else None,
            )
        return self._known[topic]


def groups_at(admin: Admin, topics: Collection[str], *, except_for: Iterable[str]) -> list[str]:
    """The groups that have a position in one of these topics, but for some, and for those of sinks."""
    own = set(except_for)
    listed = [group.group_id for group in admin.list_groups()]
    chosen = [name for name in listed if name not in own and not re.fullmatch(SINK_GROUP, name)]
    offsets = admin.list_group_offsets(chosen).results if chosen else {}
    return sorted(name for name, found in offsets.items() if _are_at(found, topics))


def _are_at(partitions: Iterable[TopicPartition], topics: Collection[str]) -> bool:
    return any(partition.topic in topics for partition in partitions)
