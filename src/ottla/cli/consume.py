"""`ottla consume`: prints the records of a topic. It reads all partitions itself; groups are not used."""

from __future__ import annotations

import asyncio
import re
import sys
from enum import StrEnum
from typing import Annotated, NamedTuple

import typer

from ottla.base.errors import ErrorCode, KafkaError, OttlaError
from ottla.base.types import TopicPartition
from ottla.cli.lines import RecordFormatter
from ottla.cli.terminal import (
    DEFAULT_BOOTSTRAP_SERVER,
    UsageError,
    fail,
    parse_pairs,
    run_client,
    run_command,
    sentence,
)
from ottla.client.cluster import Cluster
from ottla.client.reading import EARLIEST, LATEST, Isolation, PartitionReader, find_offset

_MAX_WAIT_MS = 500


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
    isolation: Isolation
    formatter: RecordFormatter


def main(arguments: list[str]) -> int:
    return run_command("consume", consume, arguments)


def consume(
    topic: Annotated[str | None, typer.Option(help="the topic to read")] = None,
    include: Annotated[str | None, typer.Option(help="a regular expression of topics to read instead")] = None,
    bootstrap_server: Annotated[str, typer.Option(help="host:port of a broker, or several")] = DEFAULT_BOOTSTRAP_SERVER,
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
            Isolation[isolation_level.name],
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
    cluster = await Cluster.connect(bootstrap_server, client_id="console-consumer")
    try:
        positions = await _start_positions(cluster, await _partitions(cluster, settings), settings)
        reader = PartitionReader(cluster, positions, isolation=settings.isolation)
        count = await _print_records(reader, settings)
    finally:
        cluster.close()
    sys.stdout.flush()
    print(f"Processed a total of {count} messages", file=sys.stderr)


async def _partitions(cluster: Cluster, settings: Settings) -> list[TopicPartition]:
    if settings.include is not None:
        everything = (await cluster.refresh()).topics
        names = [name for name in sorted(everything) if settings.include.fullmatch(name)]
        if not names:
            raise KafkaError(f"no topic matches {settings.include.pattern}", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    else:
        names = [settings.topic or ""]
    found = []
    for name in names:
        info = await cluster.topic(name)
        found += [TopicPartition(name, partition.partition) for partition in info.partitions]
    if settings.partition is not None:
        found = [topic_partition for topic_partition in found if topic_partition.partition == settings.partition]
        if not found:
            raise KafkaError(
                f"topic {names[0]} has no partition {settings.partition}", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
    return found


async def _start_positions(
    cluster: Cluster, partitions: list[TopicPartition], settings: Settings
) -> dict[TopicPartition, int]:
    if settings.start >= 0:
        return dict.fromkeys(partitions, settings.start)
    offsets = await asyncio.gather(
        *(find_offset(cluster, partition, settings.start, settings.isolation) for partition in partitions)
    )
    return dict(zip(partitions, offsets, strict=True))


async def _print_records(reader: PartitionReader, settings: Settings) -> int:
    """Until enough were printed or nothing came for long enough; returns how many were printed."""
    loop = asyncio.get_running_loop()
    out = sys.stdout.buffer
    count = 0
    last_at = loop.time()
    while settings.max_messages is None or count < settings.max_messages:
        wait_ms = _MAX_WAIT_MS
        if settings.timeout_ms is not None:
            left_ms = settings.timeout_ms - int((loop.time() - last_at) * 1000)
            if left_ms <= 0:
                break
            wait_ms = min(wait_ms, left_ms)
        records = await reader.read(max_wait_ms=wait_ms)
        if settings.max_messages is not None:
            records = records[: settings.max_messages - count]
        if records:
            out.write(b"".join(map(settings.formatter.format, records)))
            out.flush()
            count += len(records)
            last_at = loop.time()
    return count
