"""How `ottla topics --describe` looks: Kafka's own lines, a table, or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.base.types import NIL_UUID, uuid_to_text
from ottla.cli.rows import Output
from ottla.client.aio.admin.admin import Admin
from ottla.client.core.admin.types import ConfigResource, ConfigSource, TopicDescription
from ottla.client.core.topic_info import PartitionInfo

if TYPE_CHECKING:
    from ottla.cli.topics import Filters


class Description(NamedTuple):
    topic: TopicDescription
    partitions: list[PartitionInfo]
    overrides: dict[str, str]

    @property
    def replication_factor(self) -> int:
        return len(self.topic.partitions[0].replicas) if self.topic.partitions else 0

    @property
    def topic_id(self) -> str:
        return "" if self.topic.topic_id == NIL_UUID else uuid_to_text(self.topic.topic_id)


async def describe(
    admin: Admin, topics: list[TopicDescription], filters: Filters, output: Output, *, elr: str = ""
) -> None:
    configs = (await admin.describe_configs([ConfigResource.topic(topic.name) for topic in topics])).results
    live = set((await admin.describe_cluster()).brokers)
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
        descriptions.append(Description(topic, partitions, overrides))
    show(descriptions, filters, output, elr=elr)


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
            yield (
                f"\tTopic: {topic.name}\tPartition: {info.partition}\tLeader: {_leader(info)}\t"
                f"Replicas: {_ids(info.replicas)}\tIsr: {_ids(info.isr)}{elr}"
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


def _leader(info: PartitionInfo) -> str:
    return str(info.leader_id) if info.leader_id >= 0 else "none"


def _ids(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids))
