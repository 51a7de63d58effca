"""`ottla log-dirs`: what brokers have in their log directories, and how large it is; Kafka's kafka-log-dirs."""

from __future__ import annotations

from argparse import SUPPRESS, Namespace
from typing import TYPE_CHECKING

from ottla.cli.failures import FAILED, run_client
from ottla.cli.parsing import CommandParser

if TYPE_CHECKING:
    from ottla.client.core.admin.types import LogDirDescription

_EXAMPLES = (
    "ottla log-dirs",
    "ottla log-dirs orders,audit --broker-list 1,2 -o json",
)


def parser(kafka: str = "") -> CommandParser:
    summary = "Show the log directories of brokers: partitions, their size in bytes, and how far copies are behind."
    made = CommandParser(
        "log-dirs", summary, words="[TOPICS]", examples=_EXAMPLES, kafka=kafka, broker_ids=True, prints_rows=True
    )
    made.add_argument("--describe", action="store_true", help=SUPPRESS)
    made.add_argument("--topic-list", metavar="T,T", help="only these topics")
    made.add_argument("--broker-list", metavar="1,2", help="only these brokers")
    return made


def main(arguments: list[str], kafka: str = "") -> int:
    made = parser(kafka)
    options = made.read(arguments)
    if kafka and not options.describe:
        made.error('Missing required argument "[describe]"')
    if options.words and options.words[0] == "describe":
        options.words.pop(0)
    if options.words:
        options.topic_list = ",".join(options.words)
    brokers = [text for text in (options.broker_list or "").split(",") if text]
    if not all(text.isdecimal() for text in brokers):
        made.error(f"--broker-list {options.broker_list!r} is no list of broker ids")
    options.brokers = list(map(int, brokers))
    run_client(_run(options))
    return 0


async def _run(options: Namespace) -> None:
    import json
    import sys

    from ottla.base.errors import KafkaError
    from ottla.cli.rows import show_rows
    from ottla.cli.session import described_topics, open_admin

    topics = {name for name in (options.topic_list or "").split(",") if name}
    async with open_admin(options, "ottla-log-dirs") as admin:
        known = sorted((await admin.describe_cluster()).brokers)
        strangers = ",".join(str(broker) for broker in options.brokers if broker not in known)
        if strangers:
            listed = ",".join(map(str, known))
            text = f"The given brokers do not exist from --broker-list: {strangers}. Current existent brokers: {listed}"
            if options.kafka:
                print(f"ERROR: {text}", file=sys.stderr)
                raise SystemExit(FAILED)
            raise KafkaError(f"broker {strangers} does not exist; there are {listed}")
        if topics and not options.kafka:
            await described_topics(admin, topics)
        brokers = options.brokers or known
        if options.kafka:
            print("Querying brokers for log directories information")
        described = (await admin.describe_log_dirs(brokers)).check()
    if options.kafka:
        print(f"Received log directory information from brokers {','.join(map(str, brokers))}")
        answer = {"brokers": [_broker_json(broker, described[broker], topics) for broker in brokers], "version": 1}
        print(json.dumps(answer, separators=(",", ":")))
        return
    rows = [
        (broker, path, *partition, info.size_bytes, info.offset_lag, info.is_future)
        for broker in brokers
        for path, log_dir in described[broker].items()
        for partition, info in sorted(log_dir.replicas.items())
        if not topics or partition.topic in topics
    ]
    names = ["broker", "log_dir", "topic", "partition", "size", "offset_lag", "is_future"]
    show_rows(options.output, names, rows, right=["broker", "partition", "size", "offset_lag"])
    failed = [(broker, d) for broker in brokers for d in described[broker].values() if d.error is not None]
    if failed:
        raise KafkaError("; ".join(f"broker {broker}, {d.path}: {d.error and d.error.message}" for broker, d in failed))


def _broker_json(broker: int, log_dirs: dict[str, LogDirDescription], topics: set[str]) -> dict[str, object]:
    from ottla.cli.kafka_names.java_errors import java_name

    return {
        "broker": broker,
        "logDirs": [
            {
                "partitions": [
                    {
                        "partition": f"{partition.topic}-{partition.partition}",
                        "size": info.size_bytes,
                        "offsetLag": info.offset_lag,
                        "isFuture": info.is_future,
                    }
                    for partition, info in sorted(log_dir.replicas.items())
                    if not topics or partition.topic in topics
                ],
                "error": None if log_dir.error is None else java_name(log_dir.error.code),
                "logDir": path,
            }
            for path, log_dir in log_dirs.items()
        ],
    }
