"""Options of the format "ottla", as Spark hands them over: text by name, the case of names of no importance.

The source's have the names and meanings of Spark's own Kafka source. What does not fit together is refused, and so is
what nobody knows: an option that is silently ignored is a query that silently does something else.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.base.errors import InvalidConfigError
from ottla.base.options import MAX_LONG, Between, OneOf, Option, OptionSet, Type, Values
from ottla.client.core.consumer.options import ConsumerSettings, Isolation
from ottla.spark.offset_places import (
    EARLIEST,
    LATEST,
    Assign,
    AtEdge,
    AtGroup,
    AtOffsets,
    Place,
    Selection,
    parse_assign,
    parse_offsets,
    parse_pattern,
    parse_subscribe,
    parse_time,
    parse_times,
)

CLIENT_PREFIX = "kafka."
"""An option `kafka.X` is the client's setting X."""

_SERVERS = "bootstrap.servers"

_SELECTIONS = ("subscribe", "subscribePattern", "assign")
_STARTS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_PACE = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_CLIENT_RETRIES = "the client asks again by itself, for kafka.default.api.timeout.ms"

SOURCE_OPTIONS = OptionSet(
    "source",
    (
        Option("subscribe", Type.STRING, None, "Topics, with commas between them."),
        Option("subscribePattern", Type.STRING, None, "A regular expression for whole names of topics."),
        Option("assign", Type.STRING, None, 'Partitions as JSON: {"topic": [0, 1]}.'),
        Option("startingOffsets", Type.STRING, None, 'earliest, latest, group:<id>, or JSON: {"topic": {"0": 23}}.'),
        Option("startingOffsetsByTimestamp", Type.STRING, None, "A time in ms for each partition, as JSON."),
        Option("startingTimestamp", Type.STRING, None, "A time in ms for all partitions."),
        Option(
            "startingOffsetsByTimestampStrategy",
            Type.STRING,
            "error",
            "What to do if no record is as young as the starting time.",
            OneOf("error", "latest"),
        ),
        Option("endingOffsets", Type.STRING, None, "latest, or JSON; for batch queries."),
        Option("endingOffsetsByTimestamp", Type.STRING, None, "A time in ms for each partition; for batch queries."),
        Option("endingTimestamp", Type.STRING, None, "A time in ms for all partitions; for batch queries."),
        Option("maxOffsetsPerTrigger", Type.LONG, None, "The most offsets one micro-batch covers.", Between(1)),
        Option("minOffsetsPerTrigger", Type.LONG, None, "The fewest offsets worth a micro-batch.", Between(1)),
        Option("maxTriggerDelay", Type.STRING, "15m", "How long fewer offsets than that may have to wait."),
        Option("minPartitions", Type.INT, None, "The fewest tasks to share the work.", Between(1)),
        Option("maxRecordsPerPartition", Type.LONG, None, "The most offsets one task covers.", Between(1)),
        Option(
            "failOnDataLoss", Type.BOOLEAN, True, "Whether records that are gone before they were read are an error."
        ),
        Option("includeHeaders", Type.BOOLEAN, False, "Whether there is a column for headers."),
        Option(
            "kafkaConsumer.pollTimeoutMs",
            Type.LONG,
            120_000,
            "How long a task waits for records that should be there.",
            Between(1),
        ),
        Option("fetchOffset.numRetries", Type.INT, 3, "", Between(0), no_effect=_CLIENT_RETRIES),
        Option("fetchOffset.retryIntervalMs", Type.LONG, 10, "", Between(0), no_effect=_CLIENT_RETRIES),
        Option("groupIdPrefix", Type.STRING, None, "", no_effect="the source reads without a group"),
    ),
)

_NOT_TO_SET = {
    "auto.offset.reset": "use startingOffsets to say where to start",
    "enable.auto.commit": "the source commits nothing; Spark's checkpoint remembers how far it has come",
    "key.deserializer": "keys come as bytes; use Spark's functions to read them",
    "value.deserializer": "values come as bytes; use Spark's functions to read them",
    "interceptor.classes": "interceptors do not see the source's records",
}


@dataclass(frozen=True)
class SourceOptions:
    """What a source is asked to do, checked. `client` holds the settings of the client."""

    client: Mapping[str, str] = field(repr=False)
    """May hold passwords."""
    selection: Selection
    starting: Place
    ending: Place
    starting_at_latest_if_none: bool
    """What to do where no record is as young as the starting time."""
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    fail_on_data_loss: bool
    include_headers: bool
    poll_timeout_ms: int
    reads_committed: bool

    @property
    def starts_at_the_end(self) -> bool:
        """In one partition at least: it starts at a place that moves as long as records come."""
        return _names_edge(self.starting, LATEST) or self.starting_at_latest_if_none

    @classmethod
    def for_either(cls, options: Mapping[str, str]) -> SourceOptions:
        """Before it is known whether the query is a stream: what is wrong for both is refused."""
        return cls._of(options, _parse(options), default_start=LATEST)

    @classmethod
    def for_stream(cls, options: Mapping[str, str]) -> SourceOptions:
        values = _parse(options)
        for name in _ENDS:
            if name in values.given:
                raise InvalidConfigError(name, f"{name} is for batch queries: a stream has no end")
        return cls._of(options, values, default_start=LATEST)

    @classmethod
    def for_batch(cls, options: Mapping[str, str]) -> SourceOptions:
        values = _parse(options)
        for name in _PACE:
            if name in values.given:
                raise InvalidConfigError(name, f"{name} is for streaming queries: a batch query reads all at once")
        parsed = cls._of(options, values, default_start=EARLIEST)
        if _names_edge(parsed.starting, LATEST):
            raise InvalidConfigError("startingOffsets", "startingOffsets cannot be latest (-1) in a batch query")
        if _names_edge(parsed.ending, EARLIEST):
            raise InvalidConfigError("endingOffsets", "endingOffsets cannot be earliest (-2)")
        return parsed

    @classmethod
    def _of(cls, options: Mapping[str, str], values: Values, *, default_start: int) -> SourceOptions:
        client, settings = _consumer_properties(options)
        parsed = cls(
            client,
            _selection(values),
            _place(values, _STARTS, default_start),
            _place(values, _ENDS, LATEST),
            values.text("startingOffsetsByTimestampStrategy") == "latest",
            values.optional_integer("maxOffsetsPerTrigger"),
            values.optional_integer("minOffsetsPerTrigger"),
            parse_duration_ms("maxTriggerDelay", values.text("maxTriggerDelay")),
            values.optional_integer("minPartitions"),
            values.optional_integer("maxRecordsPerPartition"),
            values.flag("failOnDataLoss"),
            values.flag("includeHeaders"),
            values.integer("kafkaConsumer.pollTimeoutMs"),
            settings.isolation is Isolation.READ_COMMITTED,
        )
        parsed._check(values)
        return parsed

    def _check(self, values: Values) -> None:
        if isinstance(self.ending, AtGroup):
            raise InvalidConfigError("endingOffsets", "endingOffsets cannot be those of a group; startingOffsets can")
        for place in (self.starting, self.ending):
            if isinstance(place, AtOffsets) and isinstance(self.selection, Assign):
                stray = set(place.offsets) - set(self.selection.partitions)
                if stray:
                    raise InvalidConfigError("assign", f"there is an offset for {min(stray)}, which is not in assign")
        most, fewest = self.max_offsets_per_trigger, self.min_offsets_per_trigger
        if most is not None and fewest is not None and fewest > most:
            raise InvalidConfigError(
                "minOffsetsPerTrigger", f"minOffsetsPerTrigger ({fewest}) is more than maxOffsetsPerTrigger ({most})"
            )
        if "maxTriggerDelay" in values.given and fewest is None:
            raise InvalidConfigError("maxTriggerDelay", "maxTriggerDelay does nothing without minOffsetsPerTrigger")
        by_time = {"startingTimestamp", "startingOffsetsByTimestamp"}
        if "startingOffsetsByTimestampStrategy" in values.given and not by_time & values.given:
            raise InvalidConfigError(
                "startingOffsetsByTimestampStrategy",
                "startingOffsetsByTimestampStrategy needs startingTimestamp or startingOffsetsByTimestamp",
            )


def client_properties(options: Mapping[str, str]) -> dict[str, str]:
    """The settings of the client among the options; InvalidConfigError if they do not say where the brokers are."""
    properties = {
        name.lower().removeprefix(CLIENT_PREFIX): text
        for name, text in options.items()
        if name.lower().startswith(CLIENT_PREFIX)
    }
    if not properties.get(_SERVERS, "").strip():
        raise InvalidConfigError(
            CLIENT_PREFIX + _SERVERS,
            f"the option {CLIENT_PREFIX}{_SERVERS} is missing: name the host:port of a broker or more, with commas",
        )
    return properties


def canonical_names(options: Mapping[str, str], known: OptionSet) -> dict[str, str]:
    """The options that are not the client's, by their names as `known` writes them; unknown ones are refused."""
    names = {name.lower(): name for name in known}
    found: dict[str, str] = {}
    for name, text in options.items():
        lowered = name.lower()
        if lowered.startswith(CLIENT_PREFIX):
            continue
        if lowered not in names:
            raise _unknown(name, [*names.values(), CLIENT_PREFIX + _SERVERS], known.what)
        found[names[lowered]] = text
    return found


def parse_duration_ms(name: str, text: str) -> int:
    """`15m`, `90s`, `500ms`; a number alone is milliseconds, as everywhere in Spark."""
    found = re.fullmatch(r"([0-9]+)\s*(ms|s|m|min|h|d)?", text.strip().lower())
    if found is None:
        raise InvalidConfigError(name, f"{name} must be a time like 500ms, 90s, 15m, 2h or 1d, but was {text!r}")
    duration_ms: int = int(found[1]) * _MS_PER_UNIT[found[2] or "ms"]
    if duration_ms > MAX_LONG:
        raise InvalidConfigError(name, f"{name} is more than 64 bits of milliseconds")
    return duration_ms


_MS_PER_UNIT = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def _unknown(name: str, known: list[str], what: str) -> InvalidConfigError:
    by_lowered = {entry.lower(): entry for entry in known}
    close = difflib.get_close_matches(name.lower(), by_lowered, cutoff=0.6)
    hint = f"; did you mean {by_lowered[close[0]]}?" if close else f"; known are {', '.join(known)}"
    return InvalidConfigError(name, f"unknown {what} option {name}{hint}")


def _parse(options: Mapping[str, str]) -> Values:
    return SOURCE_OPTIONS.parse(canonical_names(options, SOURCE_OPTIONS))


def _consumer_properties(options: Mapping[str, str]) -> tuple[dict[str, str], ConsumerSettings]:
    properties = client_properties(options)
    for name, instead in _NOT_TO_SET.items():
        if name in properties:
            raise InvalidConfigError(CLIENT_PREFIX + name, f"{CLIENT_PREFIX}{name} cannot be set: {instead}")
    # Partitions are dealt out by Spark, not by a group; the name may still serve others to show how far a query is.
    properties.pop("group.id", None)
    return properties, ConsumerSettings.parse(properties)


def _selection(values: Values) -> Selection:
    given = [name for name in _SELECTIONS if name in values.given]
    if len(given) != 1:
        what = "none is given" if not given else f"{' and '.join(given)} are given"
        raise InvalidConfigError(
            given[0] if given else "subscribe", f"exactly one of subscribe, subscribePattern, assign is needed; {what}"
        )
    (name,) = given
    text = values.text(name)
    if name == "subscribe":
        return parse_subscribe(name, text)
    return parse_pattern(name, text) if name == "subscribePattern" else parse_assign(name, text)


def _place(values: Values, names: tuple[str, str, str], default_edge: int) -> Place:
    given = [name for name in names if name in values.given]
    if len(given) > 1:
        raise InvalidConfigError(given[0], f"{' and '.join(given)} say different things; give only one of them")
    if not given:
        return AtEdge(default_edge)
    (name,) = given
    by_time, by_times, _ = names
    text = values.text(name)
    if name == by_time:
        return parse_time(name, text)
    return parse_times(name, text) if name == by_times else parse_offsets(name, text)


def _names_edge(place: Place, edge: int) -> bool:
    if isinstance(place, AtEdge):
        return place.edge == edge
    return isinstance(place, AtOffsets) and edge in place.offsets.values()
