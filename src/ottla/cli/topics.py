"""`ottla topics`: Kafka's options, or a verb and a name (`ottla topics create NAME`); both take the same way."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple

import typer

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.options import no_effect_in
from ottla.cli.terminal import (
    DEFAULT_BOOTSTRAP_SERVER,
    BootstrapServer,
    Output,
    UsageError,
    fail,
    parse_pairs,
    run_client,
    run_command,
)
from ottla.cli.topics_output import describe
from ottla.client.aio.admin.admin import Admin
from ottla.client.core.admin.outcomes import Outcomes
from ottla.client.core.admin.types import BROKER_DEFAULT, ConfigResource, NewPartitions, NewTopic, TopicDescription

VERBS = ("create", "list", "describe", "alter", "delete")


class Filters(NamedTuple):
    """What `--describe` is narrowed to; with one of the partition filters only partition lines are shown."""

    under_replicated: bool
    unavailable: bool
    under_min_isr: bool
    at_min_isr: bool
    with_overrides: bool

    @property
    def by_partition(self) -> bool:
        return self.under_replicated or self.unavailable or self.under_min_isr or self.at_min_isr


class Settings(NamedTuple):
    verb: str
    topic: str | None
    partitions: int | None
    replication_factor: int | None
    assignments: list[list[int]]
    configs: dict[str, str]
    if_exists: bool
    if_not_exists: bool
    exclude_internal: bool
    filters: Filters
    output: Output


def main(arguments: list[str]) -> int:
    return run_command("topics", topics, arguments)


def topics(
    verb: Annotated[str | None, typer.Argument(metavar="VERB", help="create, list, describe, alter or delete")] = None,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="the same as --topic")] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    create: Annotated[bool, typer.Option("--create", help="create a topic")] = False,
    list_: Annotated[bool, typer.Option("--list", help="list the names of topics")] = False,
    describe_: Annotated[bool, typer.Option("--describe", help="show partitions, replicas and settings")] = False,
    alter: Annotated[bool, typer.Option("--alter", help="add partitions")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="delete topics")] = False,
    topic: Annotated[str | None, typer.Option(help="the topic; a regular expression, except with --create")] = None,
    partitions: Annotated[int | None, typer.Option(min=1, help="number of partitions")] = None,
    replication_factor: Annotated[int | None, typer.Option(min=1, help="replicas of each partition")] = None,
    replica_assignment: Annotated[
        str | None, typer.Option(help="brokers by hand: a comma between partitions, a colon between replicas (1:2,2:3)")
    ] = None,
    config: Annotated[list[str] | None, typer.Option(help="a setting of the new topic, name=value; repeatable")] = None,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="no error if the topic is not there")] = False,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="no error if the topic is there")] = False,
    exclude_internal: Annotated[bool, typer.Option("--exclude-internal", help="leave internal topics out")] = False,
    under_replicated_partitions: Annotated[
        bool,
        typer.Option("--under-replicated-partitions", help="describe only partitions with replicas that are behind"),
    ] = False,
    unavailable_partitions: Annotated[
        bool, typer.Option("--unavailable-partitions", help="describe only partitions without a leader")
    ] = False,
    under_min_isr_partitions: Annotated[
        bool,
        typer.Option(
            "--under-min-isr-partitions",
            help="describe only partitions that refuse acks=all: too few replicas are in sync",
        ),
    ] = False,
    at_min_isr_partitions: Annotated[
        bool,
        typer.Option(
            "--at-min-isr-partitions", help="describe only partitions that would refuse acks=all with one replica less"
        ),
    ] = False,
    topics_with_overrides: Annotated[
        bool, typer.Option("--topics-with-overrides", help="describe only topics with settings of their own")
    ] = False,
    output: Annotated[Output, typer.Option(help="auto: a table on a terminal, else Kafka's text")] = Output.AUTO,
) -> None:
    """Create, list, describe, alter and delete topics."""
    flags = dict(zip(VERBS, (create, list_, describe_, alter, delete), strict=True))
    try:
        settings = Settings(
            verb=_only_verb(verb, [flag for flag, given in flags.items() if given]),
            topic=_only_topic(name, topic),
            partitions=partitions,
            replication_factor=replication_factor,
            assignments=parse_assignment(replica_assignment) if replica_assignment is not None else [],
            configs=parse_pairs("--config", config or []),
            if_exists=if_exists,
            if_not_exists=if_not_exists,
            exclude_internal=exclude_internal,
            filters=Filters(
                under_replicated_partitions,
                unavailable_partitions,
                under_min_isr_partitions,
                at_min_isr_partitions,
                topics_with_overrides,
            ),
            output=output.resolve(),
        )
        _check(settings)
    except UsageError as e:
        fail(str(e))
    run_client(_run(bootstrap_server, settings))


def parse_assignment(text: str) -> list[list[int]]:
    """Broker ids per partition from `1:2,2:3`."""
    try:
        assignments = [[int(broker) for broker in partition.split(":")] for partition in text.split(",")]
    except ValueError:
        raise UsageError(f"--replica-assignment {text!r} is not of the form 1:2,2:3") from None
    if any(len(set(replicas)) != len(replicas) for replicas in assignments):
        raise UsageError(f"--replica-assignment {text!r} puts two replicas of a partition on one broker")
    if any(len(replicas) != len(assignments[0]) for replicas in assignments):
        raise UsageError(f"--replica-assignment {text!r} gives partitions different numbers of replicas")
    return assignments


def _only_verb(verb: str | None, flags: list[str]) -> str:
    given = ([verb] if verb is not None else []) + flags
    if len(given) != 1 or given[0] not in VERBS:
        raise UsageError(f"name exactly one of {', '.join(VERBS)}, such as `ottla topics --list`")
    return given[0]


def _only_topic(argument: str | None, option: str | None) -> str | None:
    if argument is not None and option is not None:
        raise UsageError("the topic is named twice")
    return argument if argument is not None else option


def _check(settings: Settings) -> None:
    if settings.verb in ("create", "alter", "delete") and settings.topic is None:
        raise UsageError(f"which topic to {settings.verb} is not said; use --topic")
    if settings.verb == "alter" and settings.partitions is None:
        raise UsageError("--alter needs --partitions with the new number of partitions")
    if settings.configs and settings.verb != "create":
        raise UsageError("--config is for --create only")
    if settings.verb == "create" and settings.assignments and (settings.partitions or settings.replication_factor):
        raise UsageError("--replica-assignment says all; leave --partitions and --replication-factor out")


async def _run(bootstrap_server: str, settings: Settings) -> None:
    async with Admin(bootstrap_servers=bootstrap_server, bootstrap_fail_fast=True, client_id="ottla-topics") as admin:
        if settings.verb == "create":
            await _create(admin, settings)
            return
        chosen = _choose((await admin.describe_topics()).check().values(), settings)
        match settings.verb:
            case "list":
                _list(chosen, settings.output)
            case "describe":
                await describe(admin, chosen, settings.filters, settings.output)
            case "alter":
                await _alter(admin, chosen, settings)
            case "delete":
                _raise_failures(await admin.delete_topics([topic.name for topic in chosen]))


async def _alter(admin: Admin, topics: list[TopicDescription], settings: Settings) -> None:
    totals = {
        topic.name: NewPartitions(settings.partitions or 0, settings.assignments[len(topic.partitions) :])
        for topic in topics
    }
    _raise_failures(await admin.create_partitions(totals))


def _raise_failures(outcomes: Outcomes[Any, None]) -> None:
    """All in one sentence: there may be many topics, and each can fail for a reason of its own."""
    if outcomes.errors:
        raise KafkaError("; ".join(error.message for error in outcomes.errors.values()))


async def _create(admin: Admin, settings: Settings) -> None:
    name = settings.topic or ""
    topic = NewTopic(
        name,
        settings.partitions or BROKER_DEFAULT,
        settings.replication_factor or BROKER_DEFAULT,
        settings.assignments,
        settings.configs,
    )
    if "." in name or "_" in name:
        print(
            "WARNING: metrics cannot tell '.' from '_' in topic names; it is best to use only one of them.",
            file=sys.stderr,
        )
    try:
        (await admin.create_topics([topic])).check()
    except KafkaError as e:
        if e.code is ErrorCode.TOPIC_ALREADY_EXISTS and settings.if_not_exists:
            return
        raise
    print(f"Created topic {name}.")
    if settings.configs:
        await _warn_of_idle_settings(admin, name, settings.configs)


async def _warn_of_idle_settings(admin: Admin, topic: str, configs: dict[str, str]) -> None:
    """The broker knows which settings it does nothing with; it says so where it documents them."""
    resource = ConfigResource.topic(topic)
    described = await admin.describe_configs([resource], keys=sorted(configs), include_documentation=True)
    if resource in described.errors:
        return  # whoever may create a topic need not be allowed to read its settings
    for name, entry in described[resource].items():
        reason = no_effect_in(entry.documentation or "")
        if reason is not None:
            print(f"WARNING: {name} has no effect: {reason}.", file=sys.stderr)


def _choose(topics: Iterable[TopicDescription], settings: Settings) -> list[TopicDescription]:
    """The topics that are meant. Naming one that is not there is an error, unless --if-exists is given."""
    topics = [topic for topic in topics if not (settings.exclude_internal and topic.is_internal)]
    if settings.topic is None:
        return topics
    try:
        pattern = re.compile(settings.topic)
    except re.error as e:
        raise UsageError(f"--topic {settings.topic!r} is not a regular expression: {e}") from None
    chosen = [topic for topic in topics if topic.name == settings.topic or pattern.fullmatch(topic.name)]
    if not chosen and not settings.if_exists and settings.verb != "list":
        raise KafkaError(f"there is no topic {settings.topic}", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return chosen


def _list(topics: list[TopicDescription], output: Output) -> None:
    names = [topic.name for topic in topics]
    if output is Output.JSON:
        import json

        print(json.dumps(names))
    else:
        print("".join(f"{name}\n" for name in names), end="")
