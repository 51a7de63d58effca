"""`ottla reassign`: moves partitions between brokers by Kafka's plan files; a verb, or the options of Kafka's tool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.cli.reassign import moves
from ottla.cli.reassign.cluster_view import ClusterView, look
from ottla.cli.reassign.plan_file import plan_json, read_plan, read_topics
from ottla.cli.reassign.proposals import propose
from ottla.cli.terminal import (
    DEFAULT_BOOTSTRAP_SERVER,
    BootstrapServer,
    UsageError,
    errors_told,
    run_client,
    run_command,
)
from ottla.client.aio.admin.admin import Admin

VERBS = ("generate", "execute", "verify", "cancel", "list")


class Settings(NamedTuple):
    verb: str
    plan: Path | None
    topics: list[str]
    brokers: list[int] | None
    replication_factor: int | None
    uses_racks: bool
    limits: moves.Limits
    additional: bool
    preserve_throttles: bool
    wait: bool


def main(arguments: list[str]) -> int:
    return run_command("reassign", reassign, arguments)


def reassign(
    verb: Annotated[
        str | None, typer.Argument(metavar="VERB", help="generate, execute, verify, cancel or list")
    ] = None,
    plan: Annotated[Path | None, typer.Argument(metavar="PLAN", help="the same as --reassignment-json-file")] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    generate: Annotated[bool, typer.Option("--generate", help="print a plan that spreads topics over brokers")] = False,
    execute: Annotated[bool, typer.Option("--execute", help="begin to move as the plan says")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="say how far it is; remove throttles when it is done")
    ] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="end what is under way: replicas stay where they were")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="list what is being moved")] = False,
    reassignment_json_file: Annotated[Path | None, typer.Option(help="a plan: replicas by partition, as JSON")] = None,
    topics_to_move_json_file: Annotated[Path | None, typer.Option(help="generate: names of topics, as JSON")] = None,
    topic: Annotated[list[str] | None, typer.Option(help="generate: a topic to move; repeatable")] = None,
    broker_list: Annotated[
        str | None, typer.Option(help="generate: the brokers to use, such as 1,2,3; else all")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option(min=1, help="generate: replicas of each partition, if not as many as before")
    ] = None,
    disable_rack_aware: Annotated[
        bool, typer.Option("--disable-rack-aware", help="generate: racks do not count")
    ] = False,
    throttle: Annotated[
        int | None, typer.Option(min=1, help="execute: bytes per second each broker sends and takes in")
    ] = None,
    replica_alter_log_dirs_throttle: Annotated[
        int | None, typer.Option(min=1, help="execute: bytes per second between log directories")
    ] = None,
    additional: Annotated[
        bool, typer.Option("--additional", help="execute: besides what is under way, or with another throttle")
    ] = False,
    preserve_throttles: Annotated[
        bool, typer.Option("--preserve-throttles", help="verify, cancel: leave throttles as they are")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="execute: show progress until it is done, remove throttles")
    ] = False,
) -> None:
    """Move partitions to other brokers, or give them more or fewer replicas.

    Examples:

      ottla reassign generate --topic orders --broker-list 1,2,3,4 > plan.json

      ottla reassign execute plan.json --throttle 10000000 --wait

      ottla reassign --verify --reassignment-json-file plan.json
    """
    flags = dict(zip(VERBS, (generate, execute, verify, cancel, list_), strict=True))
    with errors_told():
        settings = Settings(
            _only_verb(verb, [flag for flag, given in flags.items() if given]),
            plan or reassignment_json_file,
            [*(topic or []), *(read_topics(topics_to_move_json_file) if topics_to_move_json_file else [])],
            None if broker_list is None else _brokers(broker_list),
            replication_factor,
            not disable_rack_aware,
            moves.Limits(throttle, replica_alter_log_dirs_throttle),
            additional,
            preserve_throttles,
            wait,
        )
        _check(settings, is_kafkas=generate)
    run_client(_run(bootstrap_server, settings, is_kafkas=generate))


def _only_verb(verb: str | None, flags: list[str]) -> str:
    given = ([verb] if verb is not None else []) + flags
    if len(given) != 1 or given[0] not in VERBS:
        raise UsageError(f"name exactly one of {', '.join(VERBS)}, such as `ottla reassign list`")
    return given[0]


def _brokers(text: str) -> list[int]:
    try:
        brokers = [int(broker_id) for broker_id in text.split(",")]
    except ValueError:
        raise UsageError(f"--broker-list {text!r} is not of the form 1,2,3") from None
    doubled = sorted({broker_id for broker_id in brokers if brokers.count(broker_id) > 1})
    if doubled:
        raise UsageError(f"Broker list contains duplicate entries: {doubled}")
    return brokers


def _check(settings: Settings, *, is_kafkas: bool) -> None:
    if settings.verb in ("execute", "verify", "cancel") and settings.plan is None:
        raise UsageError(f"which plan to {settings.verb} is not said; use --reassignment-json-file")
    if settings.verb != "execute" and (any(settings.limits) or settings.wait or settings.additional):
        raise UsageError("--throttle, --wait and --additional are for execute only")
    if is_kafkas and (settings.brokers is None or not settings.topics):
        raise UsageError("--generate needs --topics-to-move-json-file (or --topic) and --broker-list")


async def _run(bootstrap_server: str, settings: Settings, *, is_kafkas: bool) -> None:
    async with Admin(bootstrap_servers=bootstrap_server, bootstrap_fail_fast=True, client_id="ottla-reassign") as admin:
        if settings.verb == "list":
            await moves.list_running(admin)
            return
        if settings.verb == "generate":
            _generate(await look(admin), settings, is_kafkas=is_kafkas)
            return
        assert settings.plan is not None
        file, plan = read_plan(settings.plan)
        match settings.verb:
            case "execute":
                await moves.execute(
                    admin, file, plan, settings.limits, additional=settings.additional, wait=settings.wait
                )
            case "verify":
                await moves.verify(admin, plan, preserve_throttles=settings.preserve_throttles)
            case "cancel":
                await moves.cancel(admin, plan, preserve_throttles=settings.preserve_throttles)


def _generate(view: ClusterView, settings: Settings, *, is_kafkas: bool) -> None:
    """Kafka's options print what its tool prints; the verb prints the plan alone, to be kept in a file."""
    current = chosen_partitions(view, settings.topics)
    # As in Kafka, brokers that are not there are passed over.
    racks = {b: rack for b, rack in view.racks.items() if settings.brokers is None or b in settings.brokers}
    if not settings.uses_racks:
        racks = dict.fromkeys(racks)
    proposed = propose(current, racks, replication_factor=settings.replication_factor)
    if is_kafkas:
        print(f"Current partition replica assignment\n{plan_json(current)}\n")
        print(f"Proposed partition reassignment configuration\n{plan_json(proposed)}")
    else:
        print(plan_json(proposed))


def chosen_partitions(view: ClusterView, topics: list[str]) -> dict[TopicPartition, tuple[int, ...]]:
    """Of the topics, or of all if none is named."""
    there = {tp.topic for tp in view.replicas}
    for topic in topics:
        if topic not in there:
            raise KafkaError(f"Topic {topic} not found.", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return {tp: replicas for tp, replicas in view.replicas.items() if not topics or tp.topic in topics}
