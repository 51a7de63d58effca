"""The tables of kafka-consumer-groups, to the column: what programs that read its output expect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.client.core.admin.types import MemberDescription
from ottla.client.core.metadata import BrokerAddress

_MIN_WIDTH = 15


class OffsetRow(NamedTuple):
    group: str
    topic: str | None
    partition: int | None
    current_offset: int | None
    log_end_offset: int | None
    consumer_id: str | None
    host: str | None
    client_id: str | None

    @property
    def lag(self) -> int | None:
        if self.current_offset is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.current_offset


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)


def _width(values: Iterable[str | None], least: int = _MIN_WIDTH) -> int:
    return max(least, *(len(value or "") for value in values), 0)


def offset_lines(rows: Sequence[OffsetRow]) -> list[str]:
    """The head and a line for each partition."""
    group = _width(row.group for row in rows)
    topic = _width(row.topic for row in rows)
    consumer = _width(row.consumer_id for row in rows)
    host = _width(row.host for row in rows)

    def line(cells: Sequence[object]) -> str:
        named = list(map(_or_dash, cells))
        widths = (group, topic, 10, 15, 15, 15, consumer, host)
        padded = [f"{cell:<{width}}" for cell, width in zip(named, widths, strict=False)]
        return " ".join([*padded, named[-1]])

    head = [
        *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET"),
        *("LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"),
    ]
    return [line(head), *(line((*row[:5], row.lag, *row[5:])) for row in rows)]


def assignment_text(member: MemberDescription) -> str:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(member.assignment):
        by_topic.setdefault(topic, []).append(partition)
    return ", ".join(f"({','.join(map(str, partitions))})" for partitions in by_topic.values()) or "-"


def member_lines(group: str, members: Sequence[MemberDescription], *, verbose: bool) -> list[str]:
    """Every line ends with a blank, or with what the member has; whether there are static members decides a column."""
    static = any(member.instance_id for member in members)
    widths = [_width([group]), _width(member.member_id for member in members)]
    if static:
        widths.append(_width((member.instance_id for member in members), len("GROUP-INSTANCE-ID")))
    widths += [_width(member.host for member in members), _width(member.client_id for member in members), 15]

    def line(cells: Sequence[str], assignment: str) -> str:
        padded = " ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
        return f"{padded} {assignment if verbose else ''}"

    head = ["GROUP", "CONSUMER-ID", *(["GROUP-INSTANCE-ID"] if static else []), "HOST", "CLIENT-ID", "#PARTITIONS"]
    lines = [line(head, "ASSIGNMENT")]
    for member in members:
        instance = [member.instance_id or ""] if static else []
        cells = [group, member.member_id, *instance, member.host, member.client_id, str(len(member.assignment))]
        lines.append(line(cells, assignment_text(member)))
    return lines


def state_lines(group: str, coordinator: BrokerAddress, strategy: str, state: str, members: int) -> list[str]:
    place = f"{coordinator.host}:{coordinator.port}  ({coordinator.node_id})"

    def line(*cells: object) -> str:
        return "{:<25} {:<25} {:<20} {:<15} {}".format(*cells)

    return [
        line("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"),
        line(group, place, strategy, state, members),
    ]


def listing_lines(rows: Sequence[tuple[str, str, str]], *, types: bool, states: bool) -> list[str]:
    """`rows` are names, types and states."""
    width = _width(row[0] for row in rows) + 10

    def line(name: str, kind: str, state: str) -> str:
        cells = [f"{name:<{width}}"]
        if types:
            cells.append(f"{kind:<20}")
        if states:
            cells.append(f"{state:<20}")
        return " ".join(cells)

    return [line("GROUP", "TYPE", "STATE"), *(line(*row) for row in rows)]
