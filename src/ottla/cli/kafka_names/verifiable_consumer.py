"""kafka-verifiable-consumer.sh: reads as a member of a group, and prints an event for all that happens to it."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ottla.cli.failures import run_client
from ottla.cli.parsing import CommandParser, number

if TYPE_CHECKING:
    import asyncio

    from ottla.base.types import TopicPartition
    from ottla.cli.lines import PlainRecord
    from ottla.client.aio.consumer.consumer import Consumer

_POLL_S = 0.2


def main(arguments: list[str], kafka: str) -> int:
    made = parser(kafka)
    options = made.read(arguments)
    from ottla.cli.kafka_names.verifiable import require

    require(made, topic=options.topic, group_id=options.group_id)
    run_client(_run(options))
    return 0


def parser(kafka: str) -> CommandParser:
    summary = "Read a topic as a member of a group, and print events as JSON: what is assigned, read and committed."
    made = CommandParser("", summary, kafka=kafka)
    made.add_argument("--topic", metavar="NAME", help="what to read; must be given")
    made.add_argument("--group-id", metavar="NAME", help="of the group; must be given")
    made.add_argument("--group-protocol", default="classic", metavar="NAME", help="classic or consumer; classic")
    made.add_argument("--group-remote-assignor", metavar="NAME", help="with the consumer protocol")
    made.add_argument("--group-instance-id", metavar="ID", help="of a static member")
    made.add_argument("--max-messages", type=number, default=-1, metavar="N", help="-1, the default, is no end")
    made.add_argument("--session-timeout", type=number, default=30_000, metavar="MS", help="30000")
    made.add_flag("--verbose", "an event for each record, too")
    made.add_flag("--enable-autocommit", "let the client commit, and tell nothing of it")
    made.add_argument("--reset-policy", default="earliest", metavar="NAME", help="earliest, latest or none; earliest")
    made.add_argument("--assignment-strategy", metavar="CLASS", help="the classes of Kafka's assignors, or short names")
    made.add_argument(
        "--consumer.config", dest="consumer_config", metavar="FILE", help="a properties file with client settings"
    )
    return made


def _config(options: Namespace) -> dict[str, str]:
    from ottla.cli.session import client_config, read_config

    given = {**read_config(options.command_config), **read_config(options.consumer_config)}
    own = {
        "group.id": options.group_id,
        "group.protocol": options.group_protocol.lower(),
        "enable.auto.commit": str(options.enable_autocommit).lower(),
        "auto.offset.reset": options.reset_policy,
    }
    if options.group_instance_id is not None:
        own["group.instance.id"] = options.group_instance_id
    if own["group.protocol"] == "consumer":
        if options.group_remote_assignor is not None:
            own["group.remote.assignor"] = options.group_remote_assignor
    else:
        own["session.timeout.ms"] = str(options.session_timeout)
        if options.assignment_strategy is not None:
            own["partition.assignment.strategy"] = ",".join(map(_assignor, options.assignment_strategy.split(",")))
    return client_config(None, options.bootstrap_server, "verifiable-consumer", **{**own, **given})


def _assignor(name: str) -> str:
    """`org.apache.kafka.clients.consumer.CooperativeStickyAssignor` is cooperative-sticky."""
    short = name.strip().rsplit(".", 1)[-1].removesuffix("Assignor")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", short).lower().replace("round-robin", "roundrobin")


async def _run(options: Namespace) -> None:
    from ottla.cli.kafka_names.verifiable import stopped_by_signals, tell
    from ottla.client.aio.consumer.consumer import Consumer
    from ottla.client.core.group.rebalance import RebalanceListener

    class Told(RebalanceListener):
        def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
            tell("partitions_assigned", partitions=_places(partitions))

        def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
            tell("partitions_revoked", partitions=_places(partitions))

    async with Consumer(_config(options)) as consumer:
        stopped = stopped_by_signals()
        tell("startup_complete")
        consumer.subscribe([options.topic], listener=Told())
        await _read(consumer, options, stopped)
    tell("shutdown_complete")


async def _read(consumer: Consumer[bytes | None, bytes | None], options: Namespace, stopped: asyncio.Event) -> None:
    """Until it has read enough. Of a poll, it takes no more than is left, and commits that."""
    from ottla.cli.kafka_names.verifiable import tell, text

    count = 0
    while not stopped.is_set() and (options.max_messages < 0 or count < options.max_messages):
        polled = await consumer.poll(_POLL_S)
        if not polled:
            continue
        taken = polled if options.max_messages < 0 else polled[: options.max_messages - count]
        count += len(taken)
        for record in taken if options.verbose else []:
            place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
            tell("record_data", key=text(record.key), value=text(record.value), **place)
        tell("records_consumed", count=len(polled), partitions=_spans(taken))
        if not options.enable_autocommit:
            await _commit(consumer, {record.topic_partition: record.offset + 1 for record in taken})


async def _commit(consumer: Consumer[bytes | None, bytes | None], offsets: Mapping[TopicPartition, int]) -> None:
    from ottla.base.errors import KafkaError
    from ottla.cli.kafka_names.verifiable import tell

    listed = [
        {"topic": tp.topic, "partition": tp.partition, "offset": offset} for tp, offset in sorted(offsets.items())
    ]
    try:
        await consumer.commit(dict(offsets))
    except KafkaError as e:
        tell("offsets_committed", offsets=listed, success=False, error=e.message)
    else:
        tell("offsets_committed", offsets=listed, success=True)


def _places(partitions: Collection[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": tp.topic, "partition": tp.partition} for tp in sorted(partitions)]


def _spans(records: Collection[PlainRecord]) -> list[dict[str, Any]]:
    offsets: dict[TopicPartition, list[int]] = {}
    for record in records:
        offsets.setdefault(record.topic_partition, []).append(record.offset)
    return [
        {**place, "count": len(offsets[tp]), "minOffset": offsets[tp][0], "maxOffset": offsets[tp][-1]}
        for tp, place in zip(sorted(offsets), _places(offsets), strict=True)
    ]
