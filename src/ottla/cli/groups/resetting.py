"""`ottla groups reset-offsets`: where a group is to go on, by every strategy Kafka has; shown first, done if asked."""

from __future__ import annotations

import re
import sys
import time
from argparse import Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.cli.failures import UsageError
from ottla.cli.rows import show_rows
from ottla.cli.session import described_topics, missing_group, read_text
from ottla.cli.times import parse_time_ms
from ottla.client.aio.admin.admin import Admin
from ottla.client.core.admin.types import OffsetSpec

_INACTIVE = ("Empty", "Dead")
_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
_SHORT_DURATION = re.compile(r"(\d+)(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

Plan = dict[TopicPartition, int]


async def reset(admin: Admin, options: Namespace) -> None:
    plans: dict[str, Plan] = {}
    refusals = []
    for group in options.group:
        refusal = await _refusal(admin, group, options)
        if refusal:
            refusals.append(refusal)
        else:
            plans[group] = await plan(admin, group, options)
    if options.execute:
        for group, offsets in plans.items():
            (await admin.alter_group_offsets(group, offsets)).check()
    for refusal in refusals if options.kafka else []:
        print(f"\nError: {refusal}")
    _show(plans, options)
    if refusals and not options.kafka:
        raise KafkaError("; ".join(refusals), code=ErrorCode.NON_EMPTY_GROUP)


async def _refusal(admin: Admin, group: str, options: Namespace) -> str:
    """Why a group cannot be reset now; nothing if it can, as one that does not exist yet can."""
    description = (await admin.describe_groups([group])).results.get(group)
    if description is None or description.state in _INACTIVE:
        return ""
    if options.kafka:
        return (
            f"Assignments can only be reset if the group '{group}' is inactive, but the current state is "
            f"{description.state}."
        )
    members = ", ".join(f"{member.member_id} on {member.host}" for member in description.members)
    return f"group '{group}' is {description.state}; stop its members before its offsets are reset: {members}"


def _show(plans: Mapping[str, Plan], options: Namespace) -> None:
    rows = [(group, *partition, offset) for group, offsets in plans.items() for partition, offset in offsets.items()]
    if options.export:
        for group, topic, partition, offset in rows:
            start = f"{group}," if len(options.group) > 1 else ""
            print(f"{start}{topic},{partition},{offset}")
        if options.kafka:
            print()
    elif options.kafka:
        print(f"\n{'GROUP':<30} {'TOPIC':<30} {'PARTITION':<10} {'NEW-OFFSET':<15}", end="")
        # Kafka puts all rows on one line.
        print(
            "".join(f"{group:<30} {topic:<30} {index:<10} {offset:<15}" for group, topic, index, offset in rows), end=""
        )
    else:
        show_rows(
            options.output, ["group", "topic", "partition", "new_offset"], rows, right=["partition", "new_offset"]
        )
        if not options.execute and rows:
            print("Nothing was changed: this is what --execute would do.", file=sys.stderr)


async def plan(admin: Admin, group: str, options: Namespace) -> Plan:
    """The offset of each partition that is meant, within what the partition holds."""
    if options.strategy == "from_file":
        wanted = read_plan(Path(options.from_file), group, several=len(options.group) > 1)
        return await _within_bounds(admin, wanted)
    committed = {
        partition: at.offset
        for partition, at in (await admin.list_group_offsets([group])).results.get(group, {}).items()
    }
    if not options.topic and not committed and not options.kafka:
        known = [listing.group_id for listing in await admin.list_groups()]
        if group not in known:
            raise KafkaError(missing_group(group, known), code=ErrorCode.GROUP_ID_NOT_FOUND)
        raise KafkaError(f"consumer group '{group}' has no offsets; --topic says which topics it shall have some of")
    partitions = await chosen_partitions(admin, options.topic) if options.topic else sorted(committed)
    match options.strategy:
        case "to_earliest":
            return await _offsets(admin, partitions, OffsetSpec.EARLIEST)
        case "to_latest":
            return await _offsets(admin, partitions, OffsetSpec.LATEST)
        case "to_offset":
            return await _within_bounds(admin, dict.fromkeys(partitions, options.to_offset))
        case "to_current":
            ends = await _offsets(admin, partitions, OffsetSpec.LATEST)
            return await _within_bounds(admin, {**ends, **{p: committed[p] for p in partitions if p in committed}})
        case "shift_by":
            for partition in partitions:
                if partition not in committed:
                    raise KafkaError(
                        f"Cannot shift offset for partition {partition} since there is no current committed offset"
                    )
            return await _within_bounds(admin, {p: committed[p] + options.shift_by for p in partitions})
        case "to_datetime":
            time_ms = parse_time_ms("--to-datetime", options.to_datetime)
        case _:
            # Longer ago than there are times is at the beginning.
            time_ms = max(0, int(time.time() * 1000) - parse_duration_ms(options.by_duration))
    return await _at_time(admin, partitions, time_ms, as_kafka=options.kafka)


async def chosen_partitions(admin: Admin, topics: Iterable[str]) -> list[TopicPartition]:
    """`orders` is all partitions of a topic, `orders:0,2` two of them."""
    named: dict[str, set[int] | None] = {}
    for text in topics:
        topic, colon, numbers = text.partition(":")
        if not colon:
            named[topic] = None
            continue
        wrong = [part for part in numbers.split(",") if not part.isdecimal()]
        if wrong:
            raise UsageError(f"Invalid partition '{wrong[0]}' specified in topic arg '{text}'")
        named[topic] = (named.get(topic) or set()) | {int(part) for part in numbers.split(",")}
    chosen = []
    for topic, description in (await described_topics(admin, list(named))).items():
        there = [info.partition for info in description.partitions]
        wanted = named[topic]
        missing = sorted((wanted or set()) - set(there))
        if missing:
            raise KafkaError(
                f"topic '{topic}' has no partition {missing[0]}; it has {len(there)}",
                code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        chosen += [TopicPartition(topic, partition) for partition in sorted(wanted if wanted is not None else there)]
    return chosen


async def _offsets(admin: Admin, partitions: Iterable[TopicPartition], spec: OffsetSpec | int) -> Plan:
    found = (await admin.list_offsets(dict.fromkeys(partitions, spec))).check()
    return {partition: found[partition].offset for partition in partitions}


async def _at_time(admin: Admin, partitions: list[TopicPartition], time_ms: int, *, as_kafka: bool) -> Plan:
    found = await _offsets(admin, partitions, time_ms)
    late = [partition for partition, offset in found.items() if offset < 0]
    for topic, partition in late:
        if as_kafka:
            print(f"\nWarn: Partition {partition} from topic {topic} is empty. Falling back to latest known offset.")
        else:
            print(f"WARN {topic}-{partition} has no record that young. It is reset to its end", file=sys.stderr)
    return {**found, **(await _offsets(admin, late, OffsetSpec.LATEST) if late else {})}


async def _within_bounds(admin: Admin, wanted: Plan) -> Plan:
    first = await _offsets(admin, list(wanted), OffsetSpec.EARLIEST)
    end = await _offsets(admin, list(wanted), OffsetSpec.LATEST)
    for partition, offset in wanted.items():
        bounded = min(max(offset, first[partition]), end[partition])
        if bounded != offset:
            how = "higher than latest" if offset > bounded else "lower than earliest"
            print(
                f"WARN New offset ({offset}) is {how} offset for topic partition {partition}. "
                f"Value will be set to {bounded}",
                file=sys.stderr,
            )
        wanted[partition] = bounded
    return wanted


def read_plan(path: Path, group: str, *, several: bool) -> Plan:
    """Lines `topic,partition,offset`, or with the group in front."""
    wanted: Plan = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        cells = [cell.strip() for cell in line.split(",")]
        if not line.strip():
            continue
        named = cells.pop(0) if len(cells) == 4 else None
        if len(cells) != 3 or not cells[1].isdecimal() or not cells[2].isdecimal() or (several and named is None):
            form = "group,topic,partition,offset" if several else "topic,partition,offset"
            raise UsageError(f"{path}, line {number}: {line!r} is not of the form {form}")
        if named in (None, group):
            wanted[TopicPartition(cells[0], int(cells[1]))] = int(cells[2])
    return wanted


def parse_duration_ms(text: str) -> int:
    """`PT2H`, `P1DT30M` as ISO 8601 has it, or `90s`, `30m`, `2h`, `7d`."""
    short = _SHORT_DURATION.fullmatch(text.lower())
    if short:
        return int(short[1]) * _UNIT_MS[short[2]]
    found = _DURATION.fullmatch(text.upper())
    if found is None or text.upper() in ("P", "PT"):
        raise UsageError(f"--by-duration {text!r} is no duration: write PT2H, P1DT12H, 30m or 7d")
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
