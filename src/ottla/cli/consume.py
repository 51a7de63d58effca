"""`ottla consume`: prints the records of a topic; Kafka's kafka-console-consumer.

It reads all partitions itself unless a --group is named, which then divides them among its members.
"""

from __future__ import annotations

import re
import sys
from argparse import SUPPRESS, Namespace
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.failures import UsageError, parse_pairs, run_client, sentence
from ottla.cli.parsing import CommandParser, number

if TYPE_CHECKING:
    from ottla.base.types import TopicPartition
    from ottla.cli.lines import PlainRecord
    from ottla.cli.record_forms import Format
    from ottla.client.aio.consumer.consumer import Consumer
    from ottla.client.core.topic_info import PartitionInfo

EARLIEST = -2
LATEST = -1
_MAX_WAIT_S = 0.5
_POLL_RECORDS = 10_000
_RESETS = {EARLIEST: "earliest", LATEST: "latest"}
_ISOLATION_LEVELS = ("read_uncommitted", "read_committed")
_PROPERTIES = (
    "name=value, repeatable: print.timestamp, print.topic, print.partition, print.offset, print.epoch, print.headers, "
    "print.key, print.value, key.separator, line.separator, headers.separator, null.literal, key.deserializer, "
    "value.deserializer, schema.registry.url"
)
_EXAMPLES = (
    "ottla consume orders --from-beginning --max-messages 10",
    "ottla consume orders --group billing --property print.key=true",
    "ottla consume orders --from-time 2026-03-01T12:00 -o json",
    "ottla consume orders --tail 5 --grep 'failed|refused'",
    "ottla consume __consumer_offsets --from-beginning --formatter offsets",
)


class Settings(NamedTuple):
    topic: str | None
    include: re.Pattern[str] | None
    partition: int | None
    start: int
    """An offset, or EARLIEST or LATEST."""
    max_messages: int | None
    timeout_ms: int | None
    format: Format
    config: dict[str, str]
    group: str | None = None
    from_time_ms: int | None = None
    tail: int | None = None
    grep: re.Pattern[bytes] | None = None
    kafka: bool = False
    skips_bad_records: bool = False
    tells_end: bool = False


def parser(kafka: str = "") -> CommandParser:
    made = CommandParser("consume", "Print what is in a topic.", words="[TOPIC]", examples=_EXAMPLES, kafka=kafka)
    made.add_argument("--topic", metavar="NAME", help="the same as TOPIC")
    made.add_argument("--include", metavar="REGEX", help="a regular expression of topics to read instead")
    made.add_argument("--whitelist", dest="include", default=SUPPRESS, help=SUPPRESS)
    made.add_flag("--from-beginning", "start with the oldest record")
    made.add_argument("--partition", type=number, metavar="N", help="read this partition only")
    made.add_argument("--offset", metavar="N", help="with --partition: a number, earliest or latest")
    made.add_argument("--from-time", metavar="TIME", help="start with the first record that is not older")
    made.add_argument("--tail", type=number, metavar="N", help="start with the last N records of each partition")
    made.add_argument("--grep", metavar="REGEX", help="print only records whose key or value matches")
    made.add_argument("--max-messages", type=number, metavar="N", help="stop after so many records")
    made.add_argument("--timeout-ms", type=number, metavar="MS", help="stop if nothing comes for this long")
    made.add_argument("--group", metavar="NAME", help="read as a member of this group, and commit")
    made.add_argument("--isolation-level", choices=_ISOLATION_LEVELS, default=None, help="; ".join(_ISOLATION_LEVELS))
    made.add_argument("--property", action="append", default=[], metavar="NAME=VALUE", help=_PROPERTIES)
    made.add_argument("--formatter", metavar="NAME", help="default, noop, offsets, groupmetadata or transactions")
    made.add_argument("--formatter-config", metavar="FILE", help="a file with properties for --property")
    made.add_argument("--key-deserializer", metavar="NAME", help="string, long, json, avro, hex, … or Kafka's class")
    made.add_argument("--value-deserializer", metavar="NAME", help="the same for values")
    made.add_argument("--consumer-property", action="append", default=[], metavar="NAME=VALUE", help="a client setting")
    made.add_argument("--consumer.config", metavar="FILE", dest="consumer_config", help="a file with client settings")
    made.add_flag("--skip-message-on-error", "leave out records that cannot be shown, and say which")
    made.add_argument("--enable-systest-events", action="store_true", help=SUPPRESS)
    if not kafka:
        made.add_argument("-o", "--output", choices=("lines", "json"), default="lines", help="lines or json; lines")
    return made


def main(arguments: list[str], kafka: str = "") -> int:
    made = parser(kafka)
    options = made.read(arguments)
    made.take_topic(options)
    if kafka:
        _check_as_kafka(made, options)
    try:
        settings = _settings(options)
    except UsageError as e:
        made.error(str(e))
    except OSError as e:
        made.error(f"{e.filename}: {(e.strerror or str(e)).lower()}")
    run_client(_run(settings))
    return 0


def _check_as_kafka(made: CommandParser, options: Namespace) -> None:
    if (options.topic is None) == (options.include is None):
        made.error("Exactly one of --include/--topic is required. ")
    if options.partition is not None and options.topic is None:
        made.error("The topic is required when partition is specified.")
    if options.offset is not None:
        if options.partition is None:
            made.error("The partition is required when offset is specified.")
        if options.from_beginning:
            made.error("Options from-beginning and offset cannot be specified together.")
        if options.offset not in ("earliest", "latest") and not options.offset.isdecimal():
            made.error(
                f"The provided offset value '{options.offset}' is incorrect. Valid values are 'earliest', 'latest', or "
                "a non-negative long."
            )
    if options.group is not None and options.partition is not None:
        made.error("Options group and partition cannot be specified together.")


def _settings(options: Namespace) -> Settings:
    from ottla.base.errors import OttlaError
    from ottla.cli.times import parse_time_ms

    limits = (("--max-messages", options.max_messages), ("--timeout-ms", options.timeout_ms), ("--tail", options.tail))
    for name, value in limits:
        if value is not None and value < 0:
            raise UsageError(f"{name} must not be negative")
    if options.partition is not None and options.partition < 0:
        raise UsageError(f"there is no partition {options.partition}")
    starts = [
        options.from_beginning,
        options.offset is not None,
        options.from_time is not None,
        options.tail is not None,
    ]
    if sum(starts) > 1:
        raise UsageError("--offset and --from-beginning, --from-time and --tail cannot be given together")
    if options.group and (options.partition is not None or any(starts[1:])):
        raise UsageError("with --group, the group's offsets say where to start; `ottla groups reset-offsets` sets them")
    start = parse_start(options.offset, options.partition, from_beginning=options.from_beginning)
    try:
        grep = None if options.grep is None else re.compile(options.grep.encode())
    except re.error as e:
        raise UsageError(f"--grep {options.grep!r} is not a regular expression: {e}") from None
    include = _pattern(options.topic, options.include)
    try:
        return Settings(
            options.topic,
            include,
            options.partition,
            start,
            options.max_messages,
            options.timeout_ms,
            _format(options),
            _config(options, start),
            options.group,
            None if options.from_time is None else parse_time_ms("--from-time", options.from_time),
            options.tail,
            grep,
            options.kafka,
            options.skip_message_on_error,
            options.enable_systest_events,
        )
    except OttlaError as e:
        raise UsageError(sentence(e)) from None


def _format(options: Namespace) -> Format:
    from ottla.cli.record_forms import REGISTRY_URL, deserializer, json_format, line_format, named_format
    from ottla.cli.session import read_config

    properties = {**read_config(options.formatter_config), **parse_pairs("--property", options.property)}
    names = (options.key_deserializer, options.value_deserializer)
    decoders = [deserializer(name, properties.get(REGISTRY_URL)) for name in names]
    if options.output == "json":
        return json_format(*decoders)
    lines = line_format(properties, *decoders, lenient=options.kafka)
    if options.formatter is None:
        return lines
    return named_format(options.formatter, lines, line_end=b"" if options.kafka else b"\n")


def _config(options: Namespace, start: int) -> dict[str, str]:
    from ottla.cli.session import client_config, read_config

    given = {
        **read_config(options.command_config),
        **read_config(options.consumer_config),
        **parse_pairs("--consumer-property", options.consumer_property),
    }
    in_settings = given.pop("group.id", None)
    if options.group is not None and in_settings not in (None, options.group):
        raise UsageError(
            "The group ids provided in different places (directly using '--group', via '--consumer-property', or via "
            f"'--consumer.config') do not match. Detected group ids: '{options.group}', '{in_settings}'"
        )
    options.group = options.group or in_settings
    if options.from_beginning and given.get("auto.offset.reset") not in (None, "earliest"):
        raise UsageError(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={given['auto.offset.reset']}', "
            "please remove one option"
        )
    own = {"max.poll.records": str(_POLL_RECORDS), "auto.offset.reset": _RESETS.get(start, "none"), **given}
    if options.isolation_level is not None:
        own["isolation.level"] = options.isolation_level
    if options.group is not None:
        own["group.id"] = options.group
    return client_config(None, options.bootstrap_server, "console-consumer", **own)


def parse_start(offset: str | None, partition: int | None, *, from_beginning: bool) -> int:
    if offset is None:
        return EARLIEST if from_beginning else LATEST
    if partition is None:
        raise UsageError("--offset needs --partition")
    if from_beginning:
        raise UsageError("--offset and --from-beginning cannot both be given")
    if offset in ("earliest", "latest"):
        return EARLIEST if offset == "earliest" else LATEST
    if not offset.isdecimal():
        raise UsageError(f"--offset {offset!r} is neither a number nor earliest or latest")
    return int(offset)


def _pattern(topic: str | None, include: str | None) -> re.Pattern[str] | None:
    if (topic is None) == (include is None):
        raise UsageError("name either a --topic or topics to --include")
    try:
        return None if include is None else re.compile(include)
    except re.error as e:
        raise UsageError(f"--include {include!r} is not a regular expression: {e}") from None


async def _run(settings: Settings) -> None:
    import asyncio

    from ottla.client.aio.consumer.consumer import Consumer

    async with Consumer(settings.config) as consumer:
        if settings.group is not None:
            topics = await _topics(consumer, settings)
            consumer.subscribe(list(topics))
        else:
            await _assign(consumer, settings)
        printed = _Printed()
        try:
            await _print_records(consumer, settings, printed)
        except asyncio.CancelledError:
            printed.tell()  # by Ctrl-C, which is how most end it
            raise
    if settings.tells_end:
        print("shutdown_complete")
    printed.tell()


class _Printed:
    """How many records were printed; whoever is interrupted still knows it."""

    def __init__(self) -> None:
        self.count = 0

    def tell(self) -> None:
        sys.stdout.flush()
        print(f"Processed a total of {self.count} messages", file=sys.stderr)


async def _assign(consumer: Consumer[bytes | None, bytes | None], settings: Settings) -> None:
    partitions = await _partitions(consumer, settings)
    consumer.assign(partitions)
    if settings.start >= 0:
        for partition in partitions:
            consumer.seek(partition, settings.start)
    elif settings.from_time_ms is not None:
        found = await consumer.offsets_for_times(dict.fromkeys(partitions, settings.from_time_ms))
        ends = await consumer.end_offsets(partitions)
        for partition in partitions:
            place = found.get(partition)
            consumer.seek(partition, ends[partition] if place is None else place.offset)
    elif settings.tail is not None:
        firsts = await consumer.beginning_offsets(partitions)
        for partition, end in (await consumer.end_offsets(partitions)).items():
            consumer.seek(partition, max(firsts[partition], end - settings.tail))


async def _topics(consumer: Consumer[bytes | None, bytes | None], settings: Settings) -> dict[str, list[PartitionInfo]]:
    from ottla.base.errors import ErrorCode, KafkaError

    if settings.include is None:
        return {settings.topic or "": await _partitions_of_topic(consumer, settings.topic or "")}
    everything = await consumer.list_topics()
    topics = {name: everything[name] for name in sorted(everything) if settings.include.fullmatch(name)}
    if not topics:
        raise KafkaError(f"no topic matches {settings.include.pattern}", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topics


async def _partitions(consumer: Consumer[bytes | None, bytes | None], settings: Settings) -> list[TopicPartition]:
    from ottla.base.errors import ErrorCode, KafkaError
    from ottla.base.types import TopicPartition

    topics = await _topics(consumer, settings)
    found = [TopicPartition(name, info.partition) for name, partitions in topics.items() for info in partitions]
    if settings.partition is not None:
        found = [topic_partition for topic_partition in found if topic_partition.partition == settings.partition]
        if not found:
            raise KafkaError(
                f"topic {next(iter(topics))} has no partition {settings.partition}",
                code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
    return found


async def _partitions_of_topic(consumer: Consumer[bytes | None, bytes | None], topic: str) -> list[PartitionInfo]:
    from ottla.base.errors import ErrorCode, KafkaError, kafka_error
    from ottla.cli.session import missing_topic

    try:
        partitions = await consumer.partitions_for(topic)
    except KafkaError as e:
        if e.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise kafka_error(e.code, f"topic {topic}: {e.message}") from e
        partitions = []
    if not partitions:
        known = await consumer.list_topics()
        raise kafka_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, missing_topic(topic, known))
    return partitions


async def _print_records(consumer: Consumer[bytes | None, bytes | None], settings: Settings, printed: _Printed) -> None:
    """Until enough were printed or nothing came for long enough."""
    import asyncio

    from ottla.base.errors import KafkaError
    from ottla.client.errors import OffsetOutOfRangeError

    loop = asyncio.get_running_loop()
    out = sys.stdout.buffer
    last_at = loop.time()
    while settings.max_messages is None or printed.count < settings.max_messages:
        wait_s = _MAX_WAIT_S
        if settings.timeout_ms is not None:
            wait_s = min(wait_s, last_at + settings.timeout_ms / 1000 - loop.time())
            if wait_s <= 0:
                _tell_timeout(settings)
                break
        left = _POLL_RECORDS if settings.max_messages is None else settings.max_messages - printed.count
        room = min(left, _POLL_RECORDS)
        try:
            records = await consumer.poll(wait_s, room)
        except OffsetOutOfRangeError as e:
            there = await _bounds(consumer, e.topic_partition)
            raise KafkaError(f"offset {e.offset} is not in {e.topic_partition}, which {there}", code=e.code) from e
        if records:
            last_at = loop.time()
            grep = settings.grep
            if grep is not None:
                records = [
                    record for record in records if grep.search(record.key or b"") or grep.search(record.value or b"")
                ]
            for record in records:
                out.write(_formatted(record, settings))
                printed.count += 1
            out.flush()


async def _bounds(consumer: Consumer[bytes | None, bytes | None], partition: TopicPartition) -> str:
    first = (await consumer.beginning_offsets([partition]))[partition]
    end = (await consumer.end_offsets([partition]))[partition]
    return f"has {first} to {end - 1}" if first < end else f"is empty and goes on with {end}"


def _formatted(record: PlainRecord, settings: Settings) -> bytes:
    from ottla.base.errors import KafkaError
    from ottla.cli.record_forms import RecordError

    try:
        return settings.format(record)
    except RecordError as e:
        text = f"{record.topic}-{record.partition}, offset {record.offset}: {e}"
        if not settings.skips_bad_records:
            raise KafkaError(f"{text}; --skip-message-on-error leaves such records out") from None
        print(text, file=sys.stderr)
        return b""


def _tell_timeout(settings: Settings) -> None:
    if settings.kafka:
        print(
            "ERROR Error processing message, terminating consumer process:  "
            "(org.apache.kafka.tools.consumer.ConsoleConsumer)\norg.apache.kafka.common.errors.TimeoutException",
            file=sys.stderr,
        )
