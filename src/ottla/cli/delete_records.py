"""`ottla delete-records`: lets partitions begin later; Kafka's kafka-delete-records."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from ottla.cli.failures import FAILED, UsageError, run_client
from ottla.cli.parsing import CommandParser, number

if TYPE_CHECKING:
    from ottla.base.types import TopicPartition

_EXAMPLES = (
    "ottla delete-records orders --partition 0 --before 1000",
    "ottla delete-records orders --before latest --yes",
    "ottla delete-records --offset-json-file delete.json",
)


def parser(kafka: str = "") -> CommandParser:
    summary = "Delete the records before an offset. What is deleted cannot be brought back."
    made = CommandParser("delete-records", summary, words="[TOPIC]", examples=_EXAMPLES, kafka=kafka, prints_rows=True)
    made.add_argument(
        "--offset-json-file",
        metavar="FILE",
        help='{"partitions": [{"topic": "t", "partition": 0, "offset": 5}], "version": 1}; -1 is the end',
    )
    made.add_argument("--partition", type=number, metavar="N", help="of TOPIC; all partitions without")
    made.add_argument("--before", metavar="OFFSET", help="the first offset that stays, or latest: delete all")
    made.add_flag("--yes", "delete all partitions' records without asking")
    return made


def main(arguments: list[str], kafka: str = "") -> int:
    made = parser(kafka)
    options = made.read(arguments)
    if kafka and options.offset_json_file is None:
        made.error('Missing required argument "[offset-json-file]"')
    if (options.offset_json_file is None) == (not options.words):
        made.error("name a TOPIC with --before, or an --offset-json-file")
    if options.words and options.before is None:
        made.error("--before says which offset is the first to stay")
    if options.before is not None and options.before != "latest" and not options.before.isdecimal():
        made.error(f"--before {options.before!r} is neither an offset nor latest")
    run_client(_run(options))
    return 0


def read_offsets(text: str) -> dict[TopicPartition, int]:
    import json

    from ottla.base.types import TopicPartition

    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError("The input string is not a valid JSON") from None
    if not isinstance(read, dict) or not isinstance(read.get("partitions"), list):
        raise UsageError("Missing partitions field")
    try:
        entries = [
            (TopicPartition(str(entry["topic"]), int(entry["partition"])), int(entry["offset"]))
            for entry in read["partitions"]
        ]
    except (ValueError, KeyError, TypeError):
        form = '{"topic": "t", "partition": 0, "offset": 5}'
        raise UsageError(f"what is in the partitions field is not of the form {form}") from None
    offsets = dict(entries)
    if len(offsets) != len(entries):
        seen: set[TopicPartition] = set()
        twice = sorted({partition for partition, _ in entries if partition in seen or seen.add(partition)})  # type: ignore[func-returns-value]
        raise UsageError(f"Offset json file contains duplicate topic partitions: {','.join(map(str, twice))}")
    return offsets


async def _run(options: Namespace) -> None:
    from ottla.base.errors import KafkaError
    from ottla.base.types import TopicPartition
    from ottla.cli.confirming import confirm
    from ottla.cli.kafka_names.java_errors import java_text
    from ottla.cli.rows import show_rows
    from ottla.cli.session import described_topics, open_admin, read_text

    given = read_offsets(read_text(options.offset_json_file)) if options.offset_json_file else {}
    async with open_admin(options, "ottla-delete-records") as admin:
        if options.words:
            (topic,) = (await described_topics(admin, options.words[:1])).values()
            numbers = [info.partition for info in topic.partitions]
            if options.partition is not None and options.partition not in numbers:
                raise KafkaError(f"topic '{topic.name}' has no partition {options.partition}; it has {len(numbers)}")
            chosen = numbers if options.partition is None else [options.partition]
            before = -1 if options.before == "latest" else int(options.before)
            given = {TopicPartition(topic.name, partition): before for partition in chosen}
            if before < 0 or options.partition is None:
                what = "all records" if before < 0 else f"the records before {before}"
                confirm(f"Delete {what} in {len(chosen)} partition(s) of topic '{topic.name}'?", yes=options.yes)
        if options.kafka:
            print("Executing records delete operation")
        outcomes = await admin.delete_records(given)
    if options.kafka:
        print("Records delete operation completed:")
        for partition in given:
            if partition in outcomes.errors:
                print(f"partition: {partition}\terror: {java_text(outcomes.errors[partition])}")
            else:
                print(f"partition: {partition}\tlow_watermark: {outcomes[partition]}")
        return
    rows = [(*partition, outcomes[partition]) for partition in given if partition not in outcomes.errors]
    show_rows(options.output, ["topic", "partition", "first_offset"], rows, right=["partition", "first_offset"])
    if outcomes.errors:
        import sys

        for error in outcomes.errors.values():
            print(error.message, file=sys.stderr)
        raise SystemExit(FAILED)
