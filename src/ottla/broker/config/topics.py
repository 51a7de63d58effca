"""Topic settings: declared, defaulted from the broker's, checked, and turned into the log's own configuration."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.base.errors import InvalidConfigError
from ottla.base.options import OptionSet, Value, Values
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.config.keys import topics
from ottla.log.config import LogConfig

TOPIC_OPTIONS = OptionSet("topic", topics.TOPIC)
QUOTA_OPTIONS = OptionSet("quota", topics.QUOTA)

BROKER_SYNONYMS: dict[str, tuple[str, ...]] = {
    "cleanup.policy": ("log.cleanup.policy",),
    "compression.gzip.level": ("compression.gzip.level",),
    "compression.lz4.level": ("compression.lz4.level",),
    "compression.type": ("compression.type",),
    "compression.zstd.level": ("compression.zstd.level",),
    "delete.retention.ms": ("log.cleaner.delete.retention.ms",),
    "file.delete.delay.ms": ("log.segment.delete.delay.ms",),
    "flush.messages": ("log.flush.interval.messages",),
    "flush.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "index.interval.bytes": ("log.index.interval.bytes",),
    "local.retention.bytes": ("log.local.retention.bytes",),
    "local.retention.ms": ("log.local.retention.ms",),
    "max.compaction.lag.ms": ("log.cleaner.max.compaction.lag.ms",),
    "max.message.bytes": ("message.max.bytes",),
    "message.downconversion.enable": ("log.message.downconversion.enable",),
    "message.format.version": ("log.message.format.version",),
    "message.timestamp.after.max.ms": ("log.message.timestamp.after.max.ms",),
    "message.timestamp.before.max.ms": ("log.message.timestamp.before.max.ms",),
    "message.timestamp.difference.max.ms": ("log.message.timestamp.difference.max.ms",),
    "message.timestamp.type": ("log.message.timestamp.type",),
    "min.cleanable.dirty.ratio": ("log.cleaner.min.cleanable.ratio",),
    "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms",),
    "min.insync.replicas": ("min.insync.replicas",),
    "preallocate": ("log.preallocate",),
    "retention.bytes": ("log.retention.bytes",),
    "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "segment.bytes": ("log.segment.bytes",),
    "segment.index.bytes": ("log.index.size.max.bytes",),
    "segment.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "segment.ms": ("log.roll.ms", "log.roll.hours"),
    "unclean.leader.election.enable": ("unclean.leader.election.enable",),
}
"""The broker settings a topic setting takes its default from, the one that wins first."""


def validate_topic_overrides(overrides: Mapping[str, str | None], broker: BrokerConfig) -> None:
    """Raises InvalidConfigError for an unknown name, a bad or missing value, or values that contradict each other."""
    values = topic_values(overrides, broker)
    _check_together(values)
    for name in sorted(values.given):
        refusal = TOPIC_OPTIONS[name].refusal(values[name])
        if refusal is not None:
            raise InvalidConfigError(name, refusal)


def usable_overrides(stored: Mapping[str, str], broker: BrokerConfig) -> tuple[dict[str, str], list[str]]:
    """Those of a topic's stored settings that can be used, and what is wrong with the others.

    Whoever stores them through a broker is refused what is wrong. Others write into ZooKeeper, too: tools, people, and
    brokers that know more settings than this one.
    """
    usable: dict[str, str] = {}
    problems: list[str] = []
    try:
        if stored:
            topic_config(stored, broker)
        return dict(stored), problems
    except InvalidConfigError:
        pass  # Which of them it is shows when they are taken one after the other.
    for name, value in stored.items():
        try:
            topic_config({**usable, name: value}, broker)
        except InvalidConfigError as e:
            problems.append(e.message)
        else:
            usable[name] = value
    return usable, problems


def settings_without_effect(overrides: Mapping[str, str]) -> str | None:
    """What of a topic's own settings does nothing, and why, as part of a sentence; None if all of them do something.

    Clients cannot be told when they set them, and to refuse them would turn away programs that merely say the usual.
    """
    idle = [f"{name} ({TOPIC_OPTIONS[name].no_effect})" for name in sorted(overrides) if TOPIC_OPTIONS[name].no_effect]
    return ", ".join(idle) or None


def topic_values(overrides: Mapping[str, str | None], broker: BrokerConfig) -> Values:
    """Every topic setting with the value it has for a topic with these overrides."""
    own = TOPIC_OPTIONS.parse(overrides)
    values = {name: own[name] if name in own.given else broker_default(name, broker) for name in TOPIC_OPTIONS}
    return Values(values, own.given)


def broker_default(name: str, broker: BrokerConfig) -> Value:
    """The value of a topic setting for topics that do not set it."""
    match name:
        case "retention.ms":
            return broker.retention_ms
        case "segment.ms":
            return broker.roll_ms
        case "segment.jitter.ms":
            return broker.roll_jitter_ms
        case "flush.ms":
            return broker.flush_ms
    synonyms = BROKER_SYNONYMS.get(name)
    return broker[synonyms[0]] if synonyms else TOPIC_OPTIONS[name].default


def topic_config(overrides: Mapping[str, str | None], broker: BrokerConfig) -> LogConfig:
    values = topic_values(overrides, broker)
    _check_together(values)
    return LogConfig(
        max_message_bytes=values.integer("max.message.bytes"),
        segment_bytes=values.integer("segment.bytes"),
        segment_ms=values.integer("segment.ms"),
        segment_jitter_ms=values.integer("segment.jitter.ms"),
        segment_index_bytes=values.integer("segment.index.bytes"),
        index_interval_bytes=values.integer("index.interval.bytes"),
        retention_ms=values.integer("retention.ms"),
        retention_bytes=values.integer("retention.bytes"),
        cleanup_policy=frozenset(values.items_of("cleanup.policy")),
        compression_type=values.text("compression.type"),
        compression_gzip_level=values.integer("compression.gzip.level"),
        compression_lz4_level=values.integer("compression.lz4.level"),
        compression_zstd_level=values.integer("compression.zstd.level"),
        message_timestamp_type=values.text("message.timestamp.type"),
        message_timestamp_before_max_ms=_timestamp_limit("message.timestamp.before.max.ms", values, broker),
        message_timestamp_after_max_ms=_timestamp_limit("message.timestamp.after.max.ms", values, broker),
        flush_messages=values.integer("flush.messages"),
        flush_ms=values.integer("flush.ms"),
        file_delete_delay_ms=values.integer("file.delete.delay.ms"),
        preallocate=values.flag("preallocate"),
        min_insync_replicas=values.integer("min.insync.replicas"),
        unclean_leader_election_enable=values.flag("unclean.leader.election.enable"),
        delete_retention_ms=values.integer("delete.retention.ms"),
        min_compaction_lag_ms=values.integer("min.compaction.lag.ms"),
        max_compaction_lag_ms=values.integer("max.compaction.lag.ms"),
        min_cleanable_dirty_ratio=values.number("min.cleanable.dirty.ratio"),
        producer_id_expiration_ms=broker.integer("producer.id.expiration.ms"),
    )


def _timestamp_limit(name: str, values: Values, broker: BrokerConfig) -> int:
    """KIP-937 split one limit in two; the old one still counts wherever the new one is not set at the same level."""
    old = "message.timestamp.difference.max.ms"
    if name in values.given:
        return values.integer(name)
    if old in values.given:
        return values.integer(old)
    return broker.integer(f"log.{name}" if f"log.{name}" in broker.given else f"log.{old}")


def _check_together(values: Values) -> None:
    shortest, longest = values.integer("min.compaction.lag.ms"), values.integer("max.compaction.lag.ms")
    if shortest > longest:
        raise InvalidConfigError(
            "min.compaction.lag.ms",
            f"min.compaction.lag.ms ({shortest}) must not exceed max.compaction.lag.ms ({longest})",
        )
