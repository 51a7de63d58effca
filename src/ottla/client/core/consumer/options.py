"""The settings of a consumer, with their types and the rules that hold between them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from ottla.base.errors import InvalidConfigError
from ottla.base.options import Between, OneOf, Option, OptionSet, Type
from ottla.client.core.settings import CLIENT_OPTIONS, NO_METRICS, ClientSettings, parse_settings

LATEST = -1
EARLIEST = -2
"""What ListOffsets takes in place of a time."""

_RESETS = {"latest": LATEST, "earliest": EARLIEST, "none": None}

CONSUMER_OPTIONS = OptionSet(
    "consumer",
    (
        *CLIENT_OPTIONS,
        Option("group.id", Type.STRING, None, "The group whose members share the partitions.", importance="high"),
        Option(
            "group.instance.id", Type.STRING, None, "A name that makes the member static: a restart keeps its place."
        ),
        Option(
            "group.protocol",
            Type.STRING,
            "classic",
            "How the group is coordinated: by its members (classic) or by the broker (consumer).",
            OneOf("classic", "consumer"),
            "high",
        ),
        Option("group.remote.assignor", Type.STRING, None, "The broker's assignor to ask for (consumer protocol)."),
        Option(
            "partition.assignment.strategy",
            Type.LIST,
            ("range", "cooperative-sticky"),
            "Assignors in the order of preference (classic protocol).",
        ),
        Option("session.timeout.ms", Type.INT, 45_000, "Silence after which a member counts as dead.", Between(1)),
        Option("heartbeat.interval.ms", Type.INT, 3_000, "The time between two signs of life.", Between(1)),
        Option(
            "max.poll.interval.ms",
            Type.INT,
            300_000,
            "The longest time between two polls; a member that takes longer leaves the group.",
            Between(1),
        ),
        Option("max.poll.records", Type.INT, 500, "The most records one poll returns.", Between(1)),
        Option(
            "auto.offset.reset",
            Type.STRING,
            "latest",
            "Where to start without a usable committed offset.",
            OneOf(*_RESETS),
        ),
        Option("enable.auto.commit", Type.BOOLEAN, True, "Whether positions are committed in the background."),
        Option("auto.commit.interval.ms", Type.INT, 5_000, "The time between two such commits.", Between(0)),
        Option("fetch.min.bytes", Type.INT, 1, "Bytes a broker gathers before it answers a fetch.", Between(0)),
        Option("fetch.max.bytes", Type.INT, 52_428_800, "The most bytes of one answer.", Between(0)),
        Option("fetch.max.wait.ms", Type.INT, 500, "How long a broker may gather.", Between(0)),
        Option(
            "max.partition.fetch.bytes",
            Type.INT,
            2_097_152,
            # Kafka's default has room for one batch of a producer that fills them to a megabyte (docs/adr/0007).
            "The most bytes of a partition in one answer.",
            Between(0),
        ),
        Option("check.crcs", Type.BOOLEAN, True, "Whether the checksum of every batch is verified."),
        Option(
            "isolation.level",
            Type.STRING,
            "read_uncommitted",
            "Whether records of open and aborted transactions are hidden.",
            OneOf("read_committed", "read_uncommitted"),
        ),
        Option("client.rack", Type.STRING, "", "Where this client is, to read from a replica nearby (KIP-392)."),
        Option("exclude.internal.topics", Type.BOOLEAN, True, "Whether patterns pass over internal topics."),
        Option("allow.auto.create.topics", Type.BOOLEAN, True, "Whether subscribing may create a missing topic."),
        Option("default.api.timeout.ms", Type.INT, 60_000, "How long a call may take if it is not told.", Between(0)),
    ),
    elsewhere={
        "key.deserializer": "give the consumer a function, or an object, as key_deserializer=",
        "value.deserializer": "give the consumer a function, or an object, as value_deserializer=",
        "interceptor.classes": "give the consumer a list of objects as interceptors=",
        **NO_METRICS,
    },
)


class Isolation(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class ConsumerSettings(NamedTuple):
    client: ClientSettings
    group_id: str | None
    group_instance_id: str | None
    uses_consumer_protocol: bool
    """KIP-848: the broker assigns."""
    remote_assignor: str | None
    assignors: tuple[str, ...]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    max_poll_records: int
    reset: int | None
    """EARLIEST, LATEST, or None: an error for the application."""
    auto_commit: bool
    auto_commit_interval_ms: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    check_crcs: bool
    isolation: Isolation
    client_rack: str
    exclude_internal_topics: bool
    allow_auto_create_topics: bool
    api_timeout_ms: int

    @classmethod
    def parse(cls, settings: Mapping[str, object]) -> ConsumerSettings:
        values = parse_settings(CONSUMER_OPTIONS, settings)
        parsed = cls(
            ClientSettings.of(values),
            values.optional_text("group.id"),
            values.optional_text("group.instance.id"),
            values.text("group.protocol") == "consumer",
            values.optional_text("group.remote.assignor"),
            values.items_of("partition.assignment.strategy"),
            values.integer("session.timeout.ms"),
            values.integer("heartbeat.interval.ms"),
            values.integer("max.poll.interval.ms"),
            values.integer("max.poll.records"),
            _RESETS[values.text("auto.offset.reset")],
            values.flag("enable.auto.commit"),
            values.integer("auto.commit.interval.ms"),
            values.integer("fetch.min.bytes"),
            values.integer("fetch.max.bytes"),
            values.integer("fetch.max.wait.ms"),
            values.integer("max.partition.fetch.bytes"),
            values.flag("check.crcs"),
            Isolation[values.text("isolation.level").upper()],
            values.text("client.rack"),
            values.flag("exclude.internal.topics"),
            values.flag("allow.auto.create.topics"),
            values.integer("default.api.timeout.ms"),
        )
        parsed._check(values.given)
        return parsed

    def _check(self, given: frozenset[str]) -> None:
        if self.group_id == "":
            raise InvalidConfigError("group.id", "group.id must not be empty; leave it out to read without a group")
        if self.group_instance_id == "":
            raise InvalidConfigError("group.instance.id", "group.instance.id must not be empty")
        if self.auto_commit and self.group_id is None and "enable.auto.commit" in given:
            raise InvalidConfigError("enable.auto.commit", "enable.auto.commit needs a group.id to commit for")
        if self.uses_consumer_protocol:
            for name in ("partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms"):
                if name in given:
                    raise InvalidConfigError(name, f"{name} is the broker's to set with group.protocol=consumer")
        elif self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise InvalidConfigError(
                "heartbeat.interval.ms",
                f"heartbeat.interval.ms ({self.heartbeat_interval_ms}) must be below"
                f" session.timeout.ms ({self.session_timeout_ms})",
            )
        if not self.assignors:
            raise InvalidConfigError("partition.assignment.strategy", "at least one assignor is needed")

    @property
    def commits_automatically(self) -> bool:
        return self.auto_commit and self.group_id is not None
