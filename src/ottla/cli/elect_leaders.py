"""`ottla elect-leaders`: preferred replicas lead again, or anybody does; options and texts of kafka-leader-election."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from ottla.cli.failures import fail, run_client
from ottla.cli.parsing import CommandParser, number

if TYPE_CHECKING:
    from ottla.base.errors import KafkaError
    from ottla.base.types import TopicPartition

_KINDS = ("preferred", "unclean")
_EXAMPLES = (
    "ottla elect-leaders --all-topic-partitions",
    "ottla elect-leaders orders --partition 0 --election-type unclean",
)


def parser(kafka: str = "") -> CommandParser:
    summary = (
        "Elect leaders of partitions. preferred: the first replica leads again, if it is in sync. unclean: any replica "
        "leads where there is no leader, and records may be lost."
    )
    made = CommandParser("elect-leaders", summary, words="[TOPIC]", examples=_EXAMPLES, kafka=kafka, prints_rows=True)
    made.add_argument("--admin.config", dest="command_config", metavar="FILE", help="the same as --command-config")
    made.add_argument(
        "--election-type",
        type=str.lower,
        choices=_KINDS,
        default=None if kafka else _KINDS[0],
        metavar="KIND",
        help=f"{' or '.join(_KINDS)}; {_KINDS[0]}",
    )
    made.add_flag("--all-topic-partitions", "wherever it is needed")
    made.add_argument("--topic", metavar="NAME", help="with --partition: one partition")
    made.add_argument("--partition", type=number, metavar="N", help="of the topic")
    made.add_argument("--path-to-json-file", metavar="FILE", help='{"partitions":[{"topic":"t","partition":0}]}')
    return made


def main(arguments: list[str], kafka: str = "") -> int:
    made = parser(kafka)
    options = made.read(arguments)
    made.take_topic(options)
    if options.election_type is None:
        made.error("Missing required option(s): election-type")
    named = [options.topic is not None, options.all_topic_partitions, options.path_to_json_file is not None]
    if named.count(True) != 1:
        made.error(
            "One and only one of the following options is required: topic, all-topic-partitions, path-to-json-file"
        )
    if (options.topic is None) != (options.partition is None):
        made.error("Missing required option(s): partition")
    run_client(_run(options))
    return 0


def _partitions(options: Namespace) -> list[TopicPartition] | None:
    from pathlib import Path

    from ottla.base.types import TopicPartition
    from ottla.cli.reassign.plan_file import read_partitions

    if options.topic is not None:
        return [TopicPartition(options.topic, options.partition)]
    return None if options.all_topic_partitions else read_partitions(Path(options.path_to_json_file))


async def _run(options: Namespace) -> None:
    from ottla.base.errors import ErrorCode
    from ottla.cli.session import described_topics, open_admin
    from ottla.client.core.admin.types import ElectionType

    partitions = _partitions(options)
    if partitions == []:
        return
    kind = ElectionType[options.election_type.upper()]
    async with open_admin(options, "ottla-elect") as admin:
        if options.topic is not None and not options.kafka:
            await described_topics(admin, [options.topic])
        outcomes = await admin.elect_leaders(partitions, kind=kind)
    elected, errors = outcomes.results, outcomes.errors
    not_needed = [tp for tp, error in errors.items() if error.code is ErrorCode.ELECTION_NOT_NEEDED]
    failed = {tp: error for tp, error in errors.items() if tp not in not_needed}
    if options.output in ("json", "tsv"):
        _show_rows(options.output, elected, not_needed, failed)
    else:
        _tell(kind.name, elected, not_needed, failed, as_kafka=options.kafka)
    if failed:
        fail(f"{len(failed)} replica(s) could not be elected")


def _show_rows(
    output: str,
    elected: Iterable[TopicPartition],
    not_needed: Iterable[TopicPartition],
    failed: Mapping[TopicPartition, KafkaError],
) -> None:
    from ottla.cli.rows import show_rows

    outcomes: dict[TopicPartition, tuple[str, str | None]] = {
        **dict.fromkeys(elected, ("elected", None)),
        **dict.fromkeys(not_needed, ("not needed", None)),
        **{tp: ("failed", error.message) for tp, error in failed.items()},
    }
    columns = ["topic", "partition", "outcome", "error"]
    show_rows(output, columns, [(*tp, *outcome) for tp, outcome in sorted(outcomes.items())])


def _tell(
    kind: str,
    elected: Collection[TopicPartition],
    not_needed: Collection[TopicPartition],
    failed: Mapping[TopicPartition, KafkaError],
    *,
    as_kafka: bool,
) -> None:
    from ottla.cli.kafka_names.java_errors import java_text

    if elected:
        print(f"Successfully completed leader election ({kind}) for partitions {_listed(elected)}")
    if not_needed:
        print(f"Valid replica already elected for partitions {_listed(not_needed)}")
    for tp, error in failed.items():
        text = java_text(error) if as_kafka else error.message.removeprefix(f"{tp}: ")
        print(f"Error completing leader election ({kind}) for partition: {tp}: {text}")


def _listed(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))
