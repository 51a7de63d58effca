"""What `ottla reassign` does with a plan: begins it, shows how far it is, ends it. It speaks as Kafka's tool does."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.cli.reassign import directories
from ottla.cli.reassign.cluster_view import (
    ClusterView,
    bytes_to_copy,
    clear_throttles,
    look,
    set_directory_throttle,
    set_throttles,
    sizes,
)
from ottla.cli.reassign.plan_file import PlanFile, PlannedPartition, plan_json
from ottla.cli.rows import show_rows
from ottla.client.aio.admin.admin import Admin
from ottla.client.core.admin.types import PartitionReassignment

if TYPE_CHECKING:
    from rich.progress import Progress

_INTERVAL_S = 1.0
Reassignments = Mapping[TopicPartition, PartitionReassignment]


class Limits(NamedTuple):
    throttle: int | None = None
    directory_throttle: int | None = None
    directory_timeout_ms: int | None = None


async def list_running(admin: Admin, output: str) -> None:
    running = await admin.list_partition_reassignments()
    if output in ("json", "tsv"):
        columns = ["topic", "partition", "replicas", "adding", "removing"]
        rows = [(*tp, list(move.replicas), list(move.adding), list(move.removing)) for tp, move in running.items()]
        show_rows(output, columns, rows)
        return
    if not running:
        print("No partition reassignments found.")
        return
    print("Current partition reassignments:")
    for tp, move in running.items():
        parts = [("replicas", move.replicas), ("adding", move.adding), ("removing", move.removing)]
        print(f"{tp}: " + " ".join(f"{name}: {_listed(brokers)}." for name, brokers in parts if brokers))


async def execute(
    admin: Admin, file: PlanFile, plan: list[PlannedPartition], limits: Limits, *, additional: bool, wait: bool
) -> None:
    if not plan:
        raise file.error("Partition reassignment list cannot be empty")
    view = await look(admin)
    check_plan(file, plan, view)
    running = await admin.list_partition_reassignments()
    if running and not additional:
        raise KafkaError(
            f"Cannot execute because there is an existing partition assignment: {len(running)} partitions are being "
            "moved. Use --additional to begin this one besides, or to change the throttle of the same one.",
            code=ErrorCode.REASSIGNMENT_IN_PROGRESS,
        )
    current = {planned.tp: view.replicas[planned.tp] for planned in plan}
    print("Current partition replica assignment\n")
    print(plan_json(current))
    print("\nSave this to use as the --reassignment-json-file option during rollback")
    wanted, named = {planned.tp: planned.replicas for planned in plan}, directories.named_directories(plan)
    await _throttle(admin, view, running, wanted, named, limits)
    # First: nothing begins if a directory is not there, and a broker puts a replica into its directory at once.
    pending = await directories.send(admin, named)
    await begin(admin, wanted)
    await directories.send_all(admin, named, pending, limits.directory_timeout_ms or directories.TIMEOUT_MS)
    if wait:
        await watch(admin, view, wanted)
        await directories.watch(admin, named)
        await _clear(admin, view.racks, {planned.tp.topic for planned in plan})


async def begin(admin: Admin, wanted: Mapping[TopicPartition, tuple[int, ...]]) -> None:
    outcomes = await admin.alter_partition_reassignments(dict(wanted))
    if outcomes.errors:
        told = "\n".join(f"{tp}: {error.message}" for tp, error in outcomes.errors.items())
        raise KafkaError(f"Error reassigning partition(s):\n{told}")
    print(f"Successfully started partition reassignment{_s(wanted)} for {','.join(map(str, sorted(wanted)))}")


def check_plan(file: PlanFile, plan: Iterable[PlannedPartition], view: ClusterView) -> None:
    for planned in plan:
        if planned.tp not in view.replicas:
            raise file.error(f"there is no partition {planned.tp}", line=planned.line)
        unknown = [broker_id for broker_id in planned.replicas if broker_id not in view.racks]
        # A dead broker may keep what it has.
        unknown = [broker_id for broker_id in unknown if broker_id not in view.replicas[planned.tp]]
        if unknown:
            raise file.error(f"Unknown broker id {unknown[0]}", line=planned.line)


async def _throttle(
    admin: Admin,
    view: ClusterView,
    running: Reassignments,
    wanted: Mapping[TopicPartition, tuple[int, ...]],
    named: directories.Directories,
    limits: Limits,
) -> None:
    if limits.throttle is None and limits.directory_throttle is None:
        return
    print(
        "Warning: You must run --verify periodically, until the reassignment completes, "
        "to ensure the throttle is removed."
    )
    if limits.throttle is not None:
        moves = {tp: sides_of(view, running, tp, replicas) for tp, replicas in wanted.items()}
        await set_throttles(admin, moves, limits.throttle)
        print(f"The inter-broker throttle limit was set to {limits.throttle} B/s")
    if limits.directory_throttle is not None:
        await set_directory_throttle(admin, {replica.node_id for replica in named}, limits.directory_throttle)
        print(f"The replica-alter-dir throttle limit was set to {limits.directory_throttle} B/s")


def sides_of(
    view: ClusterView, running: Reassignments, tp: TopicPartition, wanted: tuple[int, ...]
) -> tuple[set[int], set[int]]:
    """Who may send records of the partition, and who is going to receive them."""
    move = running.get(tp)
    senders = set(view.replicas[tp]) - set(move.adding if move is not None else ())
    receivers = (set(wanted) | set(move.adding if move is not None else ())) - senders
    return senders, receivers


# How far it is


async def verify(admin: Admin, plan: list[PlannedPartition], *, preserve_throttles: bool) -> None:
    """Says how far each partition is. Throttles go when nothing is under way any more."""
    view, running = await look(admin), await admin.list_partition_reassignments()
    print("Status of partition reassignment:")
    for planned in sorted(plan):
        move = running.get(planned.tp)
        has = view.replicas.get(planned.tp, ())
        if move is not None:
            print(f"Reassignment of partition {planned.tp} is still in progress.")
        elif has == planned.replicas:
            print(f"Reassignment of partition {planned.tp} is completed.")
        else:
            print(
                f"There is no active reassignment of partition {planned.tp}, "
                f"but replica set is {_listed(has)} rather than {_listed(planned.replicas)}."
            )
    named = directories.named_directories(plan)
    if not named:
        print()
    is_copying = bool(named) and not await directories.verify(admin, named)
    if not running and not is_copying and not preserve_throttles:
        await _clear(admin, view.racks, {planned.tp.topic for planned in plan})


async def cancel(
    admin: Admin, plan: list[PlannedPartition], *, preserve_throttles: bool, tells_of_directories: bool = False
) -> None:
    """Kafka's tool `tells_of_directories` even if nothing is copied between any, on a line that it does not end."""
    view, running = await look(admin), await admin.list_partition_reassignments()
    active = sorted(planned.tp for planned in plan if planned.tp in running)
    if active:
        (await admin.alter_partition_reassignments(dict.fromkeys(active))).check()
        print(f"Successfully cancelled partition reassignment{_s(active)} for: {','.join(map(str, active))}")
    else:
        print("None of the specified partition reassignments are active.")
    if not await directories.cancel(admin, directories.named_directories(plan)) and tells_of_directories:
        print("None of the specified partition moves are active.", end="")
    if not preserve_throttles:
        await _clear(admin, view.racks, {planned.tp.topic for planned in plan})


async def _clear(admin: Admin, brokers: Iterable[int], topics: Iterable[str]) -> None:
    live, names = sorted(brokers), sorted(topics)
    print(f"Clearing broker-level throttles on broker{_s(live)} {','.join(map(str, live))}")
    print(f"Clearing topic-level throttles on topic{_s(names)} {','.join(names)}")
    await clear_throttles(admin, live, names)


async def watch(admin: Admin, before: ClusterView, wanted: Mapping[TopicPartition, tuple[int, ...]]) -> None:
    """Until none of the partitions is being moved: a bar for people, a line now and then for files."""
    total = bytes_to_copy(before, wanted, await sizes(admin))
    new = {tp: set(replicas) - set(before.replicas[tp]) for tp, replicas in wanted.items()}
    with _progress() as progress:
        task = progress.add_task("moving", total=max(total, 1)) if progress is not None else None
        last = ""
        while True:
            running = await admin.list_partition_reassignments(wanted)
            size_of = await sizes(admin)
            copied = min(sum(size_of.get((b, tp), 0) for tp, brokers in new.items() for b in brokers), total)
            done = f"{len(wanted) - len(running)} of {len(wanted)} partitions"
            if progress is not None and task is not None:
                finished = total if not running else min(copied, max(total - 1, 0))
                progress.update(task, completed=finished or (0 if running else 1), description=done)
            elif (line := f"{done} moved, {_megabytes(copied)} of {_megabytes(total)} copied") != last:
                print(line, file=sys.stderr, flush=True)
                last = line
            if not running:
                return
            await asyncio.sleep(_INTERVAL_S)


class _NoProgress:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc_info: object) -> None:
        return None


def _progress() -> Progress | _NoProgress:
    if not sys.stderr.isatty():
        return _NoProgress()
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def _listed(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


def _s(many: Iterable[object]) -> str:
    return "" if len(list(many)) == 1 else "s"
