"""`ottla cluster add-broker` and `remove-broker`: a plan that gives a broker its share, or takes all from it.

It is shown before anything moves.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.cli.confirming import agrees
from ottla.cli.reassign.cluster_view import ClusterView, bytes_to_copy, clear_throttles, look, set_throttles, sizes
from ottla.cli.reassign.moves import begin, sides_of, watch
from ottla.cli.reassign.plan_file import plan_json
from ottla.cli.reassign.proposals import propose
from ottla.cli.session import open_admin
from ottla.client.aio.admin.admin import Admin


async def scale(options: Namespace) -> None:
    broker_id = int(options.words[0])
    leaves = options.verb == "remove-broker"
    plan = None if options.plan is None else Path(options.plan)
    async with open_admin(options, "ottla-cluster") as admin:
        view = await look(admin)
        _check(view, broker_id, leaves=leaves)
        racks = {b: rack for b, rack in view.racks.items() if not (leaves and b == broker_id)}
        wanted = {tp: tuple(replicas) for tp, replicas in propose(view.replicas, racks).items()}
        moves = {tp: replicas for tp, replicas in wanted.items() if replicas != view.replicas[tp]}
        if not moves:
            print(f"Nothing has to move: broker {broker_id} holds {_share(view.replicas, broker_id)}.")
            return
        total = bytes_to_copy(view, moves, await sizes(admin))
        print(_table(view, wanted, moves, total))
        if plan is not None:
            plan.write_text(plan_json(moves) + "\n", encoding="utf-8")
            print(f"The plan is in {plan}. `ottla reassign execute {plan}` begins it.")
        elif options.yes or _agreed():
            await _move(admin, view, moves, options.throttle)
            print(f"Done: broker {broker_id} holds {_share((await look(admin)).replicas, broker_id)}.")
        else:
            print("Nothing was moved. --yes begins without asking, --plan FILE keeps the plan.")


def _check(view: ClusterView, broker_id: int, *, leaves: bool) -> None:
    if leaves and not any(broker_id in replicas for replicas in view.replicas.values()):
        raise KafkaError(
            f"broker {broker_id} holds no replicas, so it can be stopped as it is",
            code=ErrorCode.REPLICA_NOT_AVAILABLE,
        )
    if not leaves and broker_id not in view.racks:
        alive = ", ".join(map(str, sorted(view.racks)))
        raise KafkaError(
            f"broker {broker_id} is not in the cluster (alive are {alive}); start it first, with broker.id={broker_id}",
            code=ErrorCode.BROKER_NOT_AVAILABLE,
        )


def _share(replicas: Mapping[TopicPartition, tuple[int, ...]], broker_id: int) -> str:
    held = sum(broker_id in brokers for brokers in replicas.values())
    return f"{held} of {sum(map(len, replicas.values()))} replicas"


def _table(
    view: ClusterView,
    wanted: Mapping[TopicPartition, tuple[int, ...]],
    moves: Mapping[TopicPartition, tuple[int, ...]],
    total: int,
) -> str:
    from rich.console import Console
    from rich.table import Table

    table = Table("broker")
    for name in ("replicas now", "then", "prefer it as leader now", "then"):
        table.add_column(name, justify="right")
    now, then = view.replicas.values(), wanted.values()
    for broker_id in sorted({*view.racks, *(b for replicas in now for b in replicas)}):
        held = [sum(broker_id in replicas for replicas in each) for each in (now, then)]
        preferred = [sum(replicas[0] == broker_id for replicas in each) for each in (now, then)]
        table.add_row(str(broker_id), *map(str, (*held, *preferred)))
    copies = sum(len(set(replicas) - set(view.replicas[tp])) for tp, replicas in moves.items())
    console = Console(width=None if sys.stdout.isatty() else 100, highlight=False)
    with console.capture() as captured:
        console.print(table)
        console.print(f"{len(moves)} of {len(wanted)} partitions change; {copies} copies, about {total / 1e6:.1f} MB.")
    return captured.get().rstrip("\n")


def _agreed() -> bool:
    return sys.stdin.isatty() and agrees("Begin?")


async def _move(
    admin: Admin, view: ClusterView, moves: Mapping[TopicPartition, tuple[int, ...]], throttle: int | None
) -> None:
    if throttle is not None:
        running = await admin.list_partition_reassignments()
        sides = {tp: sides_of(view, running, tp, replicas) for tp, replicas in moves.items()}
        await set_throttles(admin, sides, throttle)
    try:
        await begin(admin, moves)
        await watch(admin, view, moves)
    finally:
        if throttle is not None:
            await clear_throttles(admin, view.racks, {tp.topic for tp in moves})
    # Who is preferred has changed with the order of the replicas.
    _ = (await admin.elect_leaders(moves)).errors
