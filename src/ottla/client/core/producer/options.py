"""The settings of a producer, checked together: idempotence and the time-outs depend on each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.base.errors import InvalidConfigError
from ottla.base.options import MAX_INT, Between, OneOf, Option, OptionSet, Type
from ottla.client.core.settings import CLIENT_OPTIONS, NO_METRICS, ClientSettings, parse_settings
from ottla.machines.cluster.topic_names import MAX_NAME_LENGTH
from ottla.records.compression import LEVELS, Codec

MAX_IN_FLIGHT_IDEMPOTENT = 5
"""Brokers remember this many batches of a producer and partition, to recognise those they have already."""

FOREVER_MS = 100 * 365 * 86_400_000
"""Java's configurations say 2**63 - 1 for "as long as it takes", which no timer here can be set to."""

_REQUEST_OVERHEAD = 64
"""The fields of a produce request around its batches, without the names it carries."""
PARTITION_OVERHEAD = 24
"""What a batch takes in a request besides itself and the name of its topic."""

_ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}

PRODUCER_OPTIONS = OptionSet(
    "producer",
    (
        *CLIENT_OPTIONS,
        Option(
            "acks",
            Type.STRING,
            "all",
            "Who must have a record before it counts as sent: 0 nobody, 1 the leader, all every replica in sync.",
            OneOf(*_ACKS),
        ),
        # Larger than in Java, where every batch allocates this much at once. Here a batch takes what it holds. With a
        # megabyte, small records took more processor time (ADR 5).
        Option(
            "batch.size",
            Type.INT,
            720_000,
            "Bytes of a partition's batch at which it is sent; no more than max.request.size has room for.",
            Between(0),
        ),
        Option("linger.ms", Type.LONG, 5, "How long a batch waits for more records.", Between(0)),
        Option("buffer.memory", Type.LONG, 33_554_432, "Bytes of records that may wait to be sent.", Between(1)),
        Option(
            "max.block.ms",
            Type.LONG,
            60_000,
            "How long send() may wait for room in the buffer, and for a topic to be known.",
            Between(0),
        ),
        Option(
            "compression.type",
            Type.STRING,
            "none",
            "The codec of batches.",
            OneOf(*(codec.config_name for codec in Codec)),
        ),
        Option("compression.gzip.level", Type.INT, -1, "The effort of gzip.", Between(1, 9, or_else=-1)),
        Option("compression.lz4.level", Type.INT, 9, "The effort of lz4.", Between(1, 17)),
        Option("compression.zstd.level", Type.INT, 3, "The effort of zstd.", Between(-131072, 22)),
        Option(
            "delivery.timeout.ms",
            Type.INT,
            120_000,
            "The longest time from send() to its result, retries included.",
            Between(0),
        ),
        Option("enable.idempotence", Type.BOOLEAN, True, "Whether retries can neither double nor reorder records."),
        Option(
            "max.in.flight.requests.per.connection",
            Type.INT,
            5,
            "Requests to a broker that may be unanswered.",
            Between(1),
        ),
        Option("max.request.size", Type.INT, 1_048_576, "The largest request, and the largest record.", Between(1)),
        Option("metadata.max.idle.ms", Type.LONG, 300_000, "When an unused topic is forgotten.", Between(5000)),
        Option("retries", Type.INT, MAX_INT, "How often a batch is sent again.", Between(0, MAX_INT)),
        Option("transaction.timeout.ms", Type.INT, 60_000, "When the broker aborts an open transaction.", Between(1)),
        Option("transactional.id", Type.STRING, None, "The name under which transactions survive restarts."),
        Option("partitioner.ignore.keys", Type.BOOLEAN, False, "Whether records with a key are spread as well."),
        Option(
            "partitioner.adaptive.partitioning.enable",
            Type.BOOLEAN,
            True,
            "Whether records without a key go less often to partitions for which more batches wait.",
        ),
        Option(
            "partitioner.availability.timeout.ms",
            Type.LONG,
            0,
            "How long a leader may be unable to take what is due before records without a key avoid it; 0: any time.",
            Between(0),
        ),
    ),
    elsewhere={
        "key.serializer": "give the producer a function, or an object, as key_serializer=",
        "value.serializer": "give the producer a function, or an object, as value_serializer=",
        "partitioner.class": "give the producer a function as partitioner=",
        "interceptor.classes": "give the producer a list of objects as interceptors=",
        **NO_METRICS,
    },
)


class ProducerSettings(NamedTuple):
    client: ClientSettings
    acks: int
    batch_size: int
    linger_ms: int
    buffer_memory: int
    max_block_ms: int
    codec: Codec
    compression_level: int | None
    delivery_timeout_ms: int
    idempotent: bool
    max_in_flight: int
    max_request_size: int
    metadata_max_idle_ms: int
    retries: int
    transaction_timeout_ms: int
    transactional_id: str | None
    ignore_keys: bool
    adaptive_partitioning: bool
    availability_timeout_ms: int

    @classmethod
    def parse(cls, settings: Mapping[str, object]) -> ProducerSettings:
        values = parse_settings(PRODUCER_OPTIONS, settings)
        codec = Codec.from_name(values.text("compression.type"))
        parsed = cls(
            ClientSettings.of(values),
            _ACKS[values.text("acks")],
            values.integer("batch.size"),
            values.integer("linger.ms"),
            values.integer("buffer.memory"),
            min(values.integer("max.block.ms"), FOREVER_MS),
            codec,
            values.integer(f"compression.{codec.config_name}.level") if codec in LEVELS else None,
            values.integer("delivery.timeout.ms"),
            values.flag("enable.idempotence"),
            values.integer("max.in.flight.requests.per.connection"),
            values.integer("max.request.size"),
            values.integer("metadata.max.idle.ms"),
            values.integer("retries"),
            values.integer("transaction.timeout.ms"),
            values.optional_text("transactional.id"),
            values.flag("partitioner.ignore.keys"),
            values.flag("partitioner.adaptive.partitioning.enable"),
            values.integer("partitioner.availability.timeout.ms"),
        )
        return parsed._made_consistent(values.given)

    @property
    def request_overhead(self) -> int:
        """How much a produce request takes without batches, rounded up."""
        names = self.client.client_id + (self.transactional_id or "")
        return _REQUEST_OVERHEAD + len(names.encode())

    @property
    def largest_batch(self) -> int:
        """The size of a batch that fits into a request, whatever its topic is called. A larger record goes alone."""
        return max(1, self.max_request_size - self.request_overhead - PARTITION_OVERHEAD - MAX_NAME_LENGTH)

    def _made_consistent(self, given: frozenset[str]) -> ProducerSettings:
        """Idempotence that nobody asked for gives way to settings that rule it out; asked for, it is an error."""
        settings = self._replace(batch_size=min(self.batch_size, self.largest_batch))
        least_ms = settings.linger_ms + settings.client.request_timeout_ms
        if settings.delivery_timeout_ms < least_ms:
            if "delivery.timeout.ms" in given:
                raise InvalidConfigError(
                    "delivery.timeout.ms",
                    f"delivery.timeout.ms must be at least linger.ms + request.timeout.ms, which is {least_ms}",
                )
            settings = settings._replace(delivery_timeout_ms=least_ms)
        if settings.transactional_id == "":
            raise InvalidConfigError("transactional.id", "transactional.id must not be empty")
        obstacle = settings._obstacle_to_idempotence()
        if settings.transactional_id is not None and (obstacle or not settings.idempotent):
            reason = obstacle or "enable.idempotence=true"
            raise InvalidConfigError("transactional.id", f"transactions need {reason}")
        if settings.idempotent and obstacle:
            if "enable.idempotence" in given:
                raise InvalidConfigError("enable.idempotence", f"enable.idempotence needs {obstacle}")
            settings = settings._replace(idempotent=False)
        return settings

    def _obstacle_to_idempotence(self) -> str:
        if self.acks != -1:
            return "acks=all"
        if self.retries == 0:
            return "retries above 0"
        if self.max_in_flight > MAX_IN_FLIGHT_IDEMPOTENT:
            return f"max.in.flight.requests.per.connection of at most {MAX_IN_FLIGHT_IDEMPOTENT}"
        return ""
