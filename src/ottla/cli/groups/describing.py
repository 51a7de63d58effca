"""`ottla groups describe`: where groups are and how far behind, who their members are, in what state they are."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.cli.groups.kafka_text import OffsetRow, member_lines, offset_lines, state_lines
from ottla.cli.rows import Cell, show_rows
from ottla.cli.session import missing_group
from ottla.client.aio.admin.admin import Admin
from ottla.client.core.admin.types import GroupDescription, MemberDescription, OffsetSpec

_REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


async def describe(admin: Admin, options: Namespace) -> None:
    described = await admin.describe_groups(options.group)
    missing: list[str] = []
    blocks: list[list[str]] = []
    rows: list[Sequence[Cell]] = []
    for group in options.group:
        error = described.errors.get(group)
        if error is not None:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise error
            missing.append(group)
            if options.kafka:
                print(f"\nError: Consumer group '{group}' does not exist.")
                if options.members:
                    blocks.append(member_lines(group, [], verbose=options.verbose))
            continue
        description = described[group]
        lines, cells = await _view(admin, description, options)
        if options.output in ("kafka", "table"):
            _tell_state(description, options)
        if lines:
            blocks.append(lines)
        rows += cells
    _show(options, blocks, rows)
    if missing and not options.kafka:
        known = [listing.group_id for listing in await admin.list_groups()]
        raise KafkaError("; ".join(missing_group(name, known) for name in missing))


def _show(options: Namespace, blocks: list[list[str]], rows: list[Sequence[Cell]]) -> None:
    if options.output in ("json", "tsv"):
        show_rows(options.output, _columns(options), rows)
        return
    by_offsets = not options.members and options.state is None
    if options.kafka and by_offsets:
        # Kafka begins every line instead of ending it.
        print("".join(f"\n{line}" for block in blocks for line in block), end="")
        return
    for position, block in enumerate(blocks):
        if options.kafka or position:
            print()
        for line in block:
            print(line)


def _columns(options: Namespace) -> list[str]:
    if options.members:
        return ["group", "consumer_id", "instance_id", "host", "client_id", "partitions", "assignment"]
    if options.state is not None:
        return ["group", "coordinator", "coordinator_id", "assignor", "state", "members", "type"]
    return [
        *("group", "topic", "partition", "current_offset", "log_end_offset", "lag"),
        *("consumer_id", "host", "client_id"),
    ]


def _tell_state(description: GroupDescription, options: Namespace) -> None:
    text = ""
    if description.state == "Empty":
        text = f"Consumer group '{description.group_id}' has no active members."
    elif description.state in _REBALANCING:
        text = f"Warning: Consumer group '{description.group_id}' is rebalancing."
    if text:
        sys.stdout.flush()
        print(f"\n{text}" if options.kafka else text, file=sys.stderr)


async def _view(
    admin: Admin, description: GroupDescription, options: Namespace
) -> tuple[list[str], list[Sequence[Cell]]]:
    group = description.group_id
    members = [member._replace(host=_host(member)) for member in description.members]
    if options.members:
        cells: list[Sequence[Cell]] = [
            (
                *(group, member.member_id, member.instance_id, member.host, member.client_id),
                *(len(member.assignment), [f"{topic}-{partition}" for topic, partition in sorted(member.assignment)]),
            )
            for member in members
        ]
        return member_lines(group, members, verbose=options.verbose), cells
    if options.state is not None:
        coordinator = (await admin.find_group_coordinators([group]))[group]
        address = f"{coordinator.host}:{coordinator.port}"
        count = len(members)
        row: Sequence[Cell] = (
            *(group, address, coordinator.node_id, description.assignor, description.state, count, description.type),
        )
        return state_lines(group, coordinator, description.assignor, description.state, count), [row]
    offsets = await _offset_rows(admin, group, members)
    return (offset_lines(offsets) if offsets else []), [(*row[:5], row.lag, *row[5:]) for row in offsets]


def _host(member: MemberDescription) -> str:
    return member.host if member.host.startswith("/") else f"/{member.host}"


async def _offset_rows(admin: Admin, group: str, members: Sequence[MemberDescription]) -> list[OffsetRow]:
    committed = (await admin.list_group_offsets([group]))[group]
    owners = {partition: member for member in members for partition in member.assignment}
    partitions = sorted({*committed, *owners})
    ends = (await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))).results if partitions else {}
    rows = []
    for partition in partitions:
        owner = owners.get(partition)
        who = (None, None, None) if owner is None else (owner.member_id, owner.host, owner.client_id)
        at = committed[partition].offset if partition in committed else None
        end = ends[partition].offset if partition in ends else None
        rows.append(OffsetRow(group, *TopicPartition(*partition), at, end, *who))
    idle = [member for member in members if not member.assignment]
    rows += [OffsetRow(group, None, None, None, None, m.member_id, m.host, m.client_id) for m in idle]
    return rows
