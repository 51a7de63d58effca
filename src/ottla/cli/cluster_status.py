"""`ottla cluster status`: the controller, the brokers with what they lead, partitions that lack copies or a leader."""

from __future__ import annotations

import asyncio
import json
import sys
from argparse import Namespace
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.cli.rows import show_rows
from ottla.cli.session import open_admin
from ottla.client.aio.admin.admin import Admin
from ottla.client.core.admin.types import ClusterDescription, TopicDescription

if TYPE_CHECKING:
    from rich.console import RenderableType

_INTERVAL_S = 1.0
_SHOWN_MAX = 20
"""As many partitions with something wrong are listed by name."""


class BrokerStatus(NamedTuple):
    broker_id: int
    address: str
    """Empty if it holds replicas but is not alive."""
    rack: str | None
    leads: int
    replicas: int
    in_sync: int

    @property
    def is_alive(self) -> bool:
        return bool(self.address)


class PartitionStatus(NamedTuple):
    partition: str
    leader: int
    replicas: list[int]
    isr: list[int]


class ClusterStatus(NamedTuple):
    cluster_id: str
    controller: int
    topics: int
    partitions: int
    brokers: list[BrokerStatus]
    under_replicated: list[PartitionStatus]
    offline: list[PartitionStatus]


async def show(options: Namespace) -> None:
    async with open_admin(options, "ottla-cluster") as admin:
        if options.watch and options.output == "table" and sys.stdout.isatty():
            await _watch(admin)
            return
        while True:
            found = await read_status(admin)
            _print(found, options.output)
            if not options.watch:
                return
            await asyncio.sleep(_INTERVAL_S)


def _print(found: ClusterStatus, output: str) -> None:
    if output == "tsv":
        columns = [*BrokerStatus._fields, "is_alive", "is_controller"]
        rows = [(*broker, broker.is_alive, broker.broker_id == found.controller) for broker in found.brokers]
        show_rows(output, columns, rows)
    else:
        print(json.dumps(as_json(found)) if output == "json" else as_text(found))
    sys.stdout.flush()


async def _watch(admin: Admin) -> None:
    from rich.live import Live
    from rich.text import Text

    with Live(Text.from_ansi(as_text(await read_status(admin), in_colour=True)), auto_refresh=False) as live:
        while True:
            await asyncio.sleep(_INTERVAL_S)
            live.update(Text.from_ansi(as_text(await read_status(admin), in_colour=True)), refresh=True)


async def read_status(admin: Admin) -> ClusterStatus:
    topics = (await admin.describe_topics()).results
    return status_of(await admin.describe_cluster(), topics.values())


def status_of(cluster: ClusterDescription, topics: Iterable[TopicDescription]) -> ClusterStatus:
    """What the descriptions come to."""
    topics = list(topics)
    partitions = [(f"{topic.name}-{info.partition}", info) for topic in topics for info in topic.partitions]
    known = set(cluster.brokers) | {replica for _, info in partitions for replica in info.replicas}
    brokers = []
    for broker_id in sorted(known):
        address = cluster.brokers.get(broker_id)
        brokers.append(
            BrokerStatus(
                broker_id,
                "" if address is None else f"{address.host}:{address.port}",
                None if address is None else address.rack,
                sum(info.leader_id == broker_id for _, info in partitions),
                sum(broker_id in info.replicas for _, info in partitions),
                sum(broker_id in info.isr for _, info in partitions),
            )
        )
    listed = [PartitionStatus(name, info.leader_id, list(info.replicas), list(info.isr)) for name, info in partitions]
    return ClusterStatus(
        cluster.cluster_id or "",
        cluster.controller_id,
        len(topics),
        len(partitions),
        brokers,
        [one for one in listed if len(one.isr) < len(one.replicas)],
        [one for one in listed if one.leader not in cluster.brokers],
    )


def as_json(found: ClusterStatus) -> dict[str, Any]:
    return {
        **found._asdict(),
        "brokers": [{**broker._asdict(), "is_alive": broker.is_alive} for broker in found.brokers],
        "under_replicated": [partition._asdict() for partition in found.under_replicated],
        "offline": [partition._asdict() for partition in found.offline],
    }


def as_text(found: ClusterStatus, *, in_colour: bool | None = None) -> str:
    """Tables for people; in colour where a terminal shows them, unless told otherwise."""
    from rich.console import Console

    console = Console(
        force_terminal=in_colour, width=None if sys.stdout.isatty() else 120, highlight=False, soft_wrap=False
    )
    with console.capture() as captured:
        for part in _parts(found):
            console.print(part)
    return captured.get().rstrip("\n")


def _parts(found: ClusterStatus) -> Iterable[RenderableType]:
    controller = f"broker {found.controller}" if found.controller >= 0 else "nobody"
    counts = f"{found.topics} topics with {found.partitions} partitions"
    yield f"cluster {found.cluster_id}: controlled by {controller}, {counts}"
    yield _broker_table(found)
    for what, partitions in (("without a leader", found.offline), ("under-replicated", found.under_replicated)):
        yield f"[bold red]{len(partitions)} partitions {what}[/]" if partitions else f"no partitions {what}"
        if partitions:
            yield _partition_table(partitions)


def _broker_table(found: ClusterStatus) -> RenderableType:
    from rich.table import Table

    table = Table("broker", "address", "rack", "state")
    for name in ("leads", "replicas", "in sync"):
        table.add_column(name, justify="right")
    for broker in found.brokers:
        state = "[bold red]not alive[/]" if not broker.is_alive else "alive"
        if broker.broker_id == found.controller:
            state += ", controller"
        counts = map(str, (broker.leads, broker.replicas, broker.in_sync))
        table.add_row(str(broker.broker_id), broker.address or "-", broker.rack or "-", state, *counts)
    return table


def _partition_table(partitions: list[PartitionStatus]) -> RenderableType:
    from rich.table import Table

    table = Table("partition", "leader", "replicas", "in sync")
    for one in partitions[:_SHOWN_MAX]:
        leader = str(one.leader) if one.leader >= 0 else "none"
        table.add_row(one.partition, leader, _listed(one.replicas), _listed(one.isr))
    if len(partitions) > _SHOWN_MAX:
        table.add_row(f"… and {len(partitions) - _SHOWN_MAX} more", "", "", "")
    return table


def _listed(brokers: list[int]) -> str:
    return ", ".join(map(str, brokers))
