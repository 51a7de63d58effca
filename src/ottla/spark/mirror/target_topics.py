"""The copies' topics: made like their originals where they are missing, and grown when these have grown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.admin.types import ConfigResource, ConfigSource, NewTopic
from ottla.client.sync import Admin
from ottla.spark.connections import admin_for
from ottla.spark.mirror.settings import TopicNames
from ottla.spark.topic_offsets import existing

COPIED_SETTINGS = frozenset(
    {
        "cleanup.policy",
        "compression.type",
        "delete.retention.ms",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.ms",
    }
)
"""What describes the data. How brokers keep it (replicas, flushing, tiers, indexes) is for the target to decide."""

_ALWAYS_SET = {"message.timestamp.type": "CreateTime"}
"""Under LogAppendTime the target would replace the times of records by that of copying them."""
_MAP_SETTINGS = {"cleanup.policy": "compact"}
_HAPPENED_MEANWHILE = (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_PARTITIONS)


def partition_counts(partitions: Iterable[TopicPartition]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for topic, partition in partitions:
        counts[topic] = max(counts.get(topic, 0), partition + 1)
    return counts


@dataclass
class TargetTopics:
    source: Mapping[str, str] = field(repr=False)
    """Settings of clients, as are those of `target`. May hold passwords."""
    target: Mapping[str, str] = field(repr=False)
    names: TopicNames
    _there: dict[str, int] = field(default_factory=dict)
    """Partitions that are known to exist on the target, by the topic's name on the source."""

    def ensure(self, counts: Mapping[str, int]) -> None:
        """Sees to it that the copies of these topics exist, with at least as many partitions."""
        wanted = {topic: count for topic, count in counts.items() if self._there.get(topic, 0) < count}
        if not wanted:
            return
        admin = admin_for(self.target)
        by_copy = {self.names.on_target(topic): topic for topic in wanted}
        found = existing(admin.describe_topics(list(by_copy)))
        missing = {copy: topic for copy, topic in by_copy.items() if copy not in found}
        if missing:
            self._create(admin, missing, wanted)
        short = {
            copy: wanted[by_copy[str(copy)]]
            for copy, topic in found.items()
            if len(topic.partitions) < wanted[by_copy[str(copy)]]
        }
        if short:
            _check(admin.create_partitions({str(copy): count for copy, count in short.items()}).errors)
        self._there.update(wanted)

    def _create(self, admin: Admin, missing: Mapping[str, str], counts: Mapping[str, int]) -> None:
        settings = self._settings(missing.values())
        made = [NewTopic(copy, counts[topic], configs=settings[topic]) for copy, topic in missing.items()]
        _check(admin.create_topics(made).errors)

    def _settings(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """What somebody has set for these topics themselves; defaults are left to each cluster."""
        described = admin_for(self.source).describe_configs([ConfigResource.topic(topic) for topic in topics])
        described.check()
        return {
            resource.name: {
                **{
                    name: entry.value
                    for name, entry in entries.items()
                    if entry.source is ConfigSource.TOPIC and name in COPIED_SETTINGS and entry.value is not None
                },
                **_ALWAYS_SET,
            }
            for resource, entries in described.results.items()
        }


def create_map_topic(target: Mapping[str, str], map_topic: str) -> None:
    """Makes the topic of the offset map unless it is there."""
    _check(admin_for(target).create_topics([NewTopic(map_topic, 1, configs=_MAP_SETTINGS)]).errors)


def _check(errors: Mapping[str, Exception]) -> None:
    for error in errors.values():
        if getattr(error, "code", None) not in _HAPPENED_MEANWHILE:
            raise error
