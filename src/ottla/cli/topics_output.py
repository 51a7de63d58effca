"""How `ottla topics --describe` looks: Kafka's own lines, a table, or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.base.errors import KafkaError
from ottla.base.types import NIL_UUID, TopicPartition, uuid_to_text
from ottla.cli.rows import Cell, Output, show_rows
from ottla.client.aio.admin.admin import Admin
from ottla.client.core.admin.types import (
    ConfigResource,
    ConfigSource,
    PartitionReassignment,
    TopicDescription,
)
from ottla.client.core.topic_info import PartitionInfo

if TYPE_CHECKING:
    from ottla.cli.topics import Filters


class Description(NamedTuple):
    topic: TopicDescription
    partitions: list[PartitionInfo]
    overrides: dict[str, str]
    moves: Mapping[int, PartitionReassignment] = {}
    """By partition, those that are under way."""

    @property
    def replication_factor(self) -> int:
        """Replicas that are only being added do not count yet."""
        if not self.topic.partitions:
            return 0
        first = self.topic.partitions[0]
        move = self.moves.get(first.partition)
        return len(first.replicas) - (len(move.adding) if move is not None else 0)

    @property
    def topic_id(self) -> str:
        return "" if self.topic.topic_id == NIL_UUID else uuid_to_text(self.topic.topic_id)


async def describe(
    admin: Admin, topics: list[TopicDescription], filters: Filters, output: Output, *, elr: str = ""
) -> None:
    configs = (await admin.describe_configs([ConfigResource.topic(topic.name) for topic in topics])).results
    live = set((await admin.describe_cluster()).brokers)
    moves = await _moves(admin)
    descriptions = []
    for topic in topics:
        # A topic that has gone meanwhile, or whose settings may not be seen, is shown without them.
        entries = configs.get(ConfigResource.topic(topic.name), {}).values()
        values = {entry.name: entry.value for entry in entries}
        overrides = {entry.name: entry.value or "" for entry in entries if entry.source is ConfigSource.TOPIC}
        min_isr = int(values.get("min.insync.replicas") or 1)
        partitions = [info for info in topic.partitions if partition_matches(info, filters, live, min_isr)]
        if (filters.with_overrides and not overrides) or (filters.by_partition and not partitions):
            continue
        own_moves = {tp.partition: move for tp, move in moves.items() if tp.topic == topic.name}
        descriptions.append(Description(topic, partitions, overrides, own_moves))
    show(descriptions, filters, output, elr=elr)


async def _moves(admin: Admin) -> dict[TopicPartition, PartitionReassignment]:
    """Whoever may see topics need not be allowed to see reassignments, and old brokers know none (KIP-455)."""
    try:
        return await admin.list_partition_reassignments()
    except KafkaError:
        return {}


def partition_matches(info: PartitionInfo, filters: Filters, live: set[int], min_isr: int) -> bool:
    if not filters.by_partition:
        return True
    return (
        (filters.under_replicated and len(info.isr) < len(info.replicas))
        or (filters.unavailable and info.leader_id not in live)
        or (filters.under_min_isr and len(info.isr) < min_isr)
        or (filters.at_min_isr and len(info.isr) == min_isr)
    )


def show(descriptions: list[Description], filters: Filters, output: Output, *, elr: str = "") -> None:
    match output:
        case Output.JSON:
            print(json.dumps([_as_json(description) for description in descriptions], indent=2))
        case Output.TSV:
            columns = ["topic", "topic_id", "partition", "leader", "replicas", "isr", "offline"]
            show_rows("tsv", columns, [row for description in descriptions for row in _as_rows(description)])
        case Output.TABLE:
            _print_tables(descriptions, filters)
        case _:
            for line in kafka_lines(descriptions, filters, elr=elr):
                print(line)


def kafka_lines(descriptions: list[Description], filters: Filters, *, elr: str = "") -> Iterator[str]:
    """`elr` is what newer tools put at the end of a partition's line."""
    for description in descriptions:
        topic = description.topic
        if not filters.by_partition:
            settings = ",".join(f"{name}={value}" for name, value in sorted(description.overrides.items()))
            yield (
                f"Topic: {topic.name}\tTopicId: {description.topic_id}\tPartitionCount: {len(topic.partitions)}\t"
                f"ReplicationFactor: {description.replication_factor}\tConfigs: {settings}"
            )
        if filters.with_overrides:
            continue
        for info in description.partitions:
            move = description.moves.get(info.partition)
            moving = (
                ""
                if move is None
                else f"\tAdding Replicas: {_ids(move.adding)}\tRemoving Replicas: {_ids(move.removing)}"
            )
            yield (
                f"\tTopic: {topic.name}\tPartition: {info.partition}\tLeader: {_leader(info)}\t"
                f"Replicas: {_ids(info.replicas)}\tIsr: {_ids(info.isr)}{moving}{elr}"
            )


def _print_tables(descriptions: list[Description], filters: Filters) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for description in descriptions:
        topic = description.topic
        table = Table(title=f"{topic.name}  {description.topic_id}", title_justify="left")
        for column in ("partition", "leader", "replicas", "in sync", "offline"):
            table.add_column(column, justify="right")
        for info in description.partitions:
            behind = "red" if len(info.isr) < len(info.replicas) else None
            cells = (str(info.partition), _leader(info), _ids(info.replicas), _ids(info.isr), _ids(info.offline))
            table.add_row(*cells, style=behind)
        console.print(table)
        for name, value in sorted(description.overrides.items()):
            console.print(f"  {name} = {value}", highlight=False, markup=False)


def _as_json(description: Description) -> dict[str, object]:
    return {
        "topic": description.topic.name,
        "topic_id": description.topic_id,
        "internal": description.topic.is_internal,
        "replication_factor": description.replication_factor,
        "configs": description.overrides,
        "partitions": [
            {
                "partition": info.partition,
                "leader": info.leader_id if info.leader_id >= 0 else None,
                "replicas": list(info.replicas),
                "isr": list(info.isr),
                "offline": list(info.offline),
            }
            for info in description.partitions
        ],
    }


def _as_rows(description: Description) -> Iterator[Sequence[Cell]]:
    """One for each partition."""
    start = (description.topic.name, description.topic_id)
    for info in description.partitions:
        leader = info.leader_id if info.leader_id >= 0 else None
        yield (*start, info.partition, leader, list(info.replicas), list(info.isr), list(info.offline))


def _leader(info: PartitionInfo) -> str:
    return str(info.leader_id) if info.leader_id >= 0 else "none"


def _ids(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids))
