"""`ottla transactions`: who has transactions open, and ending those nobody will end; Kafka's kafka-transactions."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.cli.failures import run_client
from ottla.cli.parsing import CommandParser, number

if TYPE_CHECKING:
    from ottla.base.types import TopicPartition
    from ottla.client.aio.admin.admin import Admin

VERBS = ("list", "describe", "describe-producers", "find-hanging", "abort")
_EXAMPLES = (
    "ottla transactions list --duration-filter 60000",
    "ottla transactions describe --transactional-id billing-1",
    "ottla transactions find-hanging --topic orders",
    "ottla transactions abort --topic orders --partition 0 --start-offset 1042",
)


def parser(kafka: str = "") -> CommandParser:
    summary = (
        "List and describe transactions, find those that no coordinator will end (hanging ones keep read_committed "
        "readers waiting), and abort them."
    )
    made = CommandParser(
        "transactions",
        summary,
        words="VERB [TRANSACTIONAL_ID]",
        verbs=VERBS,
        examples=_EXAMPLES,
        kafka=kafka,
        prints_rows=True,
    )
    made.add_argument("--transactional-id", metavar="ID", help="which to describe")
    made.add_argument("--duration-filter", type=number, metavar="MS", help="list those open for longer")
    made.add_argument("--topic", metavar="NAME", help="where to look, or where to abort")
    made.add_argument("--partition", type=number, metavar="N", help="of the topic")
    made.add_argument("--broker-id", type=number, metavar="ID", help="find-hanging in all this broker leads")
    made.add_argument(
        "--max-transaction-timeout", type=number, default=15, metavar="MINUTES", help="hanging if older; 15"
    )
    made.add_argument("--start-offset", type=number, metavar="N", help="where the transaction to abort begins")
    made.add_argument("--producer-id", type=number, metavar="ID", help="of the transaction to abort")
    made.add_argument("--producer-epoch", type=number, metavar="N", help="with --producer-id")
    made.add_argument("--coordinator-epoch", type=number, metavar="N", help="with --producer-id")
    return made


def main(arguments: list[str], kafka: str = "") -> int:
    made = parser(kafka)
    options = made.read(arguments)
    if options.verb == "describe":
        if options.transactional_id is None and options.words:
            options.transactional_id = options.words[0]
        if options.transactional_id is None:
            made.error("argument --transactional-id is required")
    if options.verb in ("describe-producers", "abort") and (options.topic is None or options.partition is None):
        made.error(f"{options.verb} needs --topic and --partition")
    if options.verb == "find-hanging" and options.topic is None and options.broker_id is None:
        made.error("The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search")
    named = (options.producer_id, options.producer_epoch, options.coordinator_epoch)
    if options.verb == "abort" and options.start_offset is None and None in named:
        made.error(
            "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above) or "
            "with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)"
        )
    run_client(_run(options))
    return 0


async def _run(options: Namespace) -> None:
    from ottla.cli.session import open_admin

    work = {
        "list": _list,
        "describe": _describe,
        "describe-producers": _describe_producers,
        "find-hanging": _find_hanging,
        "abort": _abort,
    }
    async with open_admin(options, "ottla-transactions") as admin:
        await work[options.verb](admin, options)


def _show(options: Namespace, names: dict[str, str], rows: Sequence[Sequence[str | int | None]]) -> None:
    """`names` are those of the columns, ours and Kafka's."""
    if not options.kafka:
        from ottla.cli.rows import show_rows

        show_rows(options.output, list(names), rows)
        return
    table = [list(names.values()), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(names))]
    for row in table:
        print("".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True)))


async def _list(admin: Admin, options: Namespace) -> None:
    listings = await admin.list_transactions(min_duration_ms=options.duration_filter)
    places = (await admin.find_transaction_coordinators([found.transactional_id for found in listings])).check()
    rows = [(it.transactional_id, places[it.transactional_id].node_id, it.producer_id, it.state) for it in listings]
    names = {
        "transactional_id": "TransactionalId",
        "coordinator": "Coordinator",
        "producer_id": "ProducerId",
        "state": "TransactionState",
    }
    _show(options, names, rows)


async def _describe(admin: Admin, options: Namespace) -> None:
    wanted = options.transactional_id
    found = (await admin.describe_transactions([wanted])).check()[wanted]
    place = (await admin.find_transaction_coordinators([wanted])).check()[wanted]
    open_ms = None if found.started_ms is None else int(time.time() * 1000) - found.started_ms
    row = (
        *(place.node_id, found.transactional_id, found.producer_id, found.producer_epoch, found.state),
        *(found.timeout_ms, found.started_ms, open_ms),
        ",".join(map(str, sorted(found.partitions))),
    )
    names = {
        "coordinator": "CoordinatorId",
        "transactional_id": "TransactionalId",
        "producer_id": "ProducerId",
        "producer_epoch": "ProducerEpoch",
        "state": "TransactionState",
        "timeout_ms": "TransactionTimeoutMs",
        "started_ms": "CurrentTransactionStartTimeMs",
        "open_ms": "TransactionDurationMs",
        "partitions": "TopicPartitions",
    }
    _show(options, names, [row])


async def _describe_producers(admin: Admin, options: Namespace) -> None:
    from ottla.base.types import TopicPartition

    partition = TopicPartition(options.topic, options.partition)
    await _check_place(admin, partition, options.broker_id)
    producers = (await admin.describe_producers([partition])).check()[partition]
    rows = [
        (
            *(it.producer_id, it.producer_epoch, -1 if it.coordinator_epoch is None else it.coordinator_epoch),
            *(it.last_sequence, it.last_timestamp_ms, it.txn_start_offset),
        )
        for it in producers
    ]
    names = {
        "producer_id": "ProducerId",
        "producer_epoch": "ProducerEpoch",
        "coordinator_epoch": "LatestCoordinatorEpoch",
        "last_sequence": "LastSequence",
        "last_timestamp_ms": "LastTimestamp",
        "transaction_start": "CurrentTransactionStartOffset",
    }
    _show(options, names, rows)


async def _check_place(admin: Admin, partition: TopicPartition, broker_id: int | None) -> None:
    """Whether the partition is there, and on the broker that was named, if one was."""
    from ottla.base.errors import ErrorCode, KafkaError
    from ottla.cli.session import check_broker, described_topics

    (topic,) = (await described_topics(admin, [partition.topic])).values()
    places = {info.partition: info.replicas for info in topic.partitions}
    if partition.partition not in places:
        raise KafkaError(
            f"topic '{topic.name}' has no partition {partition.partition}; it has {len(places)}",
            code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
    if broker_id is not None:
        await check_broker(admin, broker_id)
        replicas = places[partition.partition]
        if broker_id not in replicas:
            raise KafkaError(
                f"{partition} is on brokers {', '.join(map(str, replicas))}, not on broker {broker_id}",
                code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            )


async def _find_hanging(admin: Admin, options: Namespace) -> None:
    from ottla.base.types import TopicPartition
    from ottla.cli.session import check_broker, described_topics

    if options.broker_id is not None:
        await check_broker(admin, options.broker_id)
    if options.topic is not None and options.partition is not None and not options.kafka:
        await _check_place(admin, TopicPartition(options.topic, options.partition), None)
    if options.topic is not None:
        topics = list((await described_topics(admin, [options.topic])).values())
    else:
        topics = list((await admin.describe_topics()).check().values())
    partitions = [
        TopicPartition(topic.name, info.partition)
        for topic in topics
        for info in topic.partitions
        if (options.partition is None or info.partition == options.partition)
        and (options.broker_id is None or info.leader_id == options.broker_id)
    ]
    found = await admin.find_hanging_transactions(partitions, min_age_ms=options.max_transaction_timeout * 60_000)
    now_ms = int(time.time() * 1000)
    rows = [
        (
            *it.partition,
            *(it.producer.producer_id, it.producer.producer_epoch),
            -1 if it.producer.coordinator_epoch is None else it.producer.coordinator_epoch,
            -1 if it.producer.txn_start_offset is None else it.producer.txn_start_offset,
            it.producer.last_timestamp_ms,
            (now_ms - it.producer.last_timestamp_ms) // 60_000,
        )
        for it in found
    ]
    names = {
        "topic": "Topic",
        "partition": "Partition",
        "producer_id": "ProducerId",
        "producer_epoch": "ProducerEpoch",
        "coordinator_epoch": "CoordinatorEpoch",
        "start_offset": "StartOffset",
        "last_timestamp_ms": "LastTimestamp",
        "minutes": "Duration(min)",
    }
    _show(options, names, rows)


async def _abort(admin: Admin, options: Namespace) -> None:
    from ottla.base.errors import KafkaError
    from ottla.base.types import TopicPartition
    from ottla.client.core.admin.types import HangingTransaction, ProducerDescription

    partition = TopicPartition(options.topic, options.partition)
    if not options.kafka:
        await _check_place(admin, partition, None)
    if options.start_offset is None:
        given = (options.producer_id, options.producer_epoch, -1, -1, options.coordinator_epoch, None)
        producer = ProducerDescription(*given)
    else:
        found = (await admin.describe_producers([partition])).check()[partition]
        open_there = [producer for producer in found if producer.txn_start_offset == options.start_offset]
        if not open_there:
            raise KafkaError(
                f"Could not find any open transactions starting at offset {options.start_offset} on partition "
                f"{partition}"
            )
        producer = open_there[0]
    await admin.abort_transaction(HangingTransaction(partition, producer))
    if options.output == "table":
        print(f"Aborted the transaction of producer {producer.producer_id} on {partition}.")
