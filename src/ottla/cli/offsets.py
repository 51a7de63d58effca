"""`ottla offsets`: where partitions begin and end, or are at a time; Kafka's kafka-get-offsets."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Coroutine
from typing import Any

from ottla.cli.failures import FAILED, UsageError, fail, run_client
from ottla.cli.parsing import CommandParser

_PLACES = {"latest": -1, "earliest": -2, "max-timestamp": -3, "earliest-local": -4, "latest-tiered": -5}
_KAFKA_FAILURE = "Error occurred: "
_EXAMPLES = (
    "ottla offsets orders",
    "ottla offsets orders --time earliest",
    "ottla offsets --topic-partitions orders:0,audit:2-5",
    "ottla offsets orders --time 2026-03-01T12:00",
)


def parser(kafka: str = "") -> CommandParser:
    summary = "Show offsets of partitions: the end, the beginning, or the first record that is not older than a time."
    made = CommandParser("offsets", summary, words="[TOPIC]", examples=_EXAMPLES, kafka=kafka, prints_rows=True)
    made.add_argument("--topic", metavar="NAME", help="a topic, or a regular expression; all without")
    made.add_argument("--partitions", metavar="0,1", help="only these partitions; 0-3 is 0, 1 and 2")
    made.add_argument("--topic-partitions", metavar="T:0,T:1-3", help="topics with partitions, in one")
    made.add_argument(
        "--time", default="latest", metavar="TIME", help=f"{', '.join(_PLACES)}, a time, or milliseconds; latest"
    )
    made.add_flag("--exclude-internal-topics", "leave internal topics out")
    return made


def main(arguments: list[str], kafka: str = "") -> int:
    made = parser(kafka)
    options = made.read(arguments)
    if options.words[:1] == ["get"]:
        options.words.pop(0)
    if options.words and options.topic is None:
        options.topic = options.words.pop(0)
    if options.words:
        made.error(f"{options.words[0]!r} is not understood")
    if options.topic_partitions and (options.topic or options.partitions):
        made.error(f"{_KAFKA_FAILURE if kafka else ''}--topic-partitions cannot be used with --topic or --partitions")
    run_client(_told_as_kafka(_run(options)) if kafka else _run(options))
    return 0


async def _told_as_kafka(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except UsageError as e:
        fail(f"{_KAFKA_FAILURE}{e}")


def parse_time(text: str) -> int:
    """A place (-1 and below) or milliseconds."""
    from ottla.cli.times import parse_time_ms

    if text in _PLACES:
        return _PLACES[text]
    if text.startswith("-") and text[1:].isdecimal():
        if int(text) < min(_PLACES.values()):
            raise UsageError(f"--time {text!r} is no place in a partition")
        return int(text)
    return parse_time_ms("--time", text)


async def _run(options: Namespace) -> None:
    import sys

    from ottla.base.errors import ErrorCode, KafkaError
    from ottla.base.types import TopicPartition
    from ottla.cli.partition_ranges import of_patterns, of_topics, select
    from ottla.cli.rows import show_rows
    from ottla.cli.session import missing_topic, open_admin
    from ottla.client.core.admin.types import OffsetSpec

    time_ms = parse_time(options.time)
    wanted = (
        of_patterns(options.topic_partitions)
        if options.topic_partitions
        else of_topics(options.topic, options.partitions)
    )
    async with open_admin(options, "ottla-offsets") as admin:
        topics = (await admin.describe_topics()).check().values()
        shown = [topic for topic in topics if not (options.exclude_internal_topics and topic.is_internal)]
        all_partitions = [TopicPartition(topic.name, info.partition) for topic in shown for info in topic.partitions]
        partitions = select(all_partitions, wanted)
        if not partitions:
            if options.kafka:
                fail(f"{_KAFKA_FAILURE}Could not match any topic-partitions with the specified filters")
            known = [topic.name for topic in shown]
            if options.topic and options.topic not in known:
                raise KafkaError(missing_topic(options.topic, known), code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            raise KafkaError("no partition matches")
        spec = OffsetSpec(time_ms) if time_ms < 0 else time_ms
        found = await admin.list_offsets(dict.fromkeys(partitions, spec))
        rows = [
            (partition.topic, partition.partition, found[partition].offset)
            for partition in partitions
            if partition not in found.errors and found[partition].offset >= 0
        ]
        if options.output == "table" or options.kafka:
            for row in rows:
                print(":".join(map(str, row)))
        else:
            show_rows(options.output, ["topic", "partition", "offset"], rows)
        for partition, error in found.errors.items():
            print(
                f"Skip getting offsets for topic-partition {partition} due to error: {error.message}", file=sys.stderr
            )
        if found.errors and not options.kafka:
            raise SystemExit(FAILED)
