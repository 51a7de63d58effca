"""`ottla consume`: prints the records of a topic. It reads all partitions itself; groups are not used."""

from __future__ import annotations

import asyncio
import re
import sys
from enum import StrEnum
from typing import Annotated, NamedTuple

import typer

from ottla.base.errors import ErrorCode, KafkaError, OttlaError, kafka_error
from ottla.base.types import TopicPartition
from ottla.cli.lines import RecordFormatter
from ottla.cli.terminal import (
    DEFAULT_BOOTSTRAP_SERVER,
    BootstrapServer,
    UsageError,
    fail,
    parse_pairs,
    run_client,
    run_command,
    sentence,
)
from ottla.client.aio.consumer.consumer import Consumer
from ottla.client.core.consumer.options import EARLIEST, LATEST
from ottla.client.core.topic_info import PartitionInfo
from ottla.client.errors import OffsetOutOfRangeError

_MAX_WAIT_S = 0.5
_POLL_RECORDS = 10_000
_RESETS = {EARLIEST: "earliest", LATEST: "latest"}


class IsolationLevel(StrEnum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class Settings(NamedTuple):
    topic: str | None
    include: re.Pattern[str] | None
    partition: int | None
    start: int
    """An offset, or EARLIEST or LATEST."""
    max_messages: int | None
    timeout_ms: int | None
    isolation_level: IsolationLevel
    formatter: RecordFormatter


def main(arguments: list[str]) -> int:
    return run_command("consume", consume, arguments)


def consume(
    topic: Annotated[str | None, typer.Option(help="the topic to read")] = None,
    include: Annotated[str | None, typer.Option(help="a regular expression of topics to read instead")] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="start with the oldest record")] = False,
    partition: Annotated[int | None, typer.Option(min=0, help="read this partition only")] = None,
    offset: Annotated[str | None, typer.Option(help="with --partition: a number, earliest or latest")] = None,
    max_messages: Annotated[int | None, typer.Option(min=1, help="stop after so many records")] = None,
    timeout_ms: Annotated[int | None, typer.Option(min=1, help="stop if nothing comes for this long")] = None,
    isolation_level: Annotated[
        IsolationLevel, typer.Option(help="whether records of open or aborted transactions are hidden")
    ] = IsolationLevel.READ_UNCOMMITTED,
    property_: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            help="name=value, repeatable: print.timestamp, print.partition, print.offset, print.epoch, print.headers, "
            "print.key, print.value, key.separator, line.separator, headers.separator, null.literal",
        ),
    ] = None,
) -> None:
    """Print what is in a topic."""
    try:
        settings = Settings(
            topic,
            _pattern(topic, include),
            partition,
            parse_start(offset, partition, from_beginning=from_beginning),
            max_messages,
            timeout_ms,
            isolation_level,
            RecordFormatter(parse_pairs("--property", property_ or [])),
        )
    except OttlaError as e:
        fail(sentence(e))
    run_client(_run(bootstrap_server, settings))


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


async def _run(bootstrap_server: str, settings: Settings) -> None:
    async with Consumer(
        {"isolation.level": settings.isolation_level, "auto.offset.reset": _RESETS.get(settings.start, "none")},
        bootstrap_servers=bootstrap_server,
        bootstrap_fail_fast=True,
        client_id="console-consumer",
        max_poll_records=_POLL_RECORDS,
    ) as consumer:
        partitions = await _partitions(consumer, settings)
        consumer.assign(partitions)
        if settings.start >= 0:
            for partition in partitions:
                consumer.seek(partition, settings.start)
        count = await _print_records(consumer, settings)
    sys.stdout.flush()
    print(f"Processed a total of {count} messages", file=sys.stderr)


async def _partitions(consumer: Consumer[bytes | None, bytes | None], settings: Settings) -> list[TopicPartition]:
    if settings.include is not None:
        everything = await consumer.list_topics()
        topics = {name: everything[name] for name in sorted(everything) if settings.include.fullmatch(name)}
        if not topics:
            raise KafkaError(f"no topic matches {settings.include.pattern}", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    else:
        topics = {settings.topic or "": await _partitions_of_topic(consumer, settings.topic or "")}
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
    try:
        partitions = await consumer.partitions_for(topic)
    except KafkaError as e:
        raise kafka_error(e.code, f"topic {topic}: {e.message}") from e
    if not partitions:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise kafka_error(code, f"topic {topic}: {kafka_error(code).message}")
    return partitions


async def _print_records(consumer: Consumer[bytes | None, bytes | None], settings: Settings) -> int:
    """Until enough were printed or nothing came for long enough; returns how many were printed."""
    loop = asyncio.get_running_loop()
    out = sys.stdout.buffer
    count = 0
    last_at = loop.time()
    while settings.max_messages is None or count < settings.max_messages:
        wait_s = _MAX_WAIT_S
        if settings.timeout_ms is not None:
            wait_s = min(wait_s, last_at + settings.timeout_ms / 1000 - loop.time())
            if wait_s <= 0:
                break
        room = _POLL_RECORDS if settings.max_messages is None else min(settings.max_messages - count, _POLL_RECORDS)
        try:
            records = await consumer.poll(wait_s, room)
        except OffsetOutOfRangeError as e:
            raise KafkaError(f"offset {e.offset} is not in {e.topic_partition}", code=e.code) from e
        if records:
            out.write(b"".join(map(settings.formatter.format, records)))
            out.flush()
            count += len(records)
            last_at = loop.time()
    return count
