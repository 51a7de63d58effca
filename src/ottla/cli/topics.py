"""`ottla topics`: Kafka's options, or a verb and a name (`ottla topics create NAME`); both take the same way."""

from __future__ import annotations

import re
import sys
from argparse import Namespace
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.cli.failures import FAILED, UsageError, parse_pairs, run_client
from ottla.cli.parsing import CommandParser, number
from ottla.cli.rows import Output, show_rows

if TYPE_CHECKING:
    from ottla.client.aio.admin.admin import Admin
    from ottla.client.core.admin.outcomes import Outcomes
    from ottla.client.core.admin.types import TopicDescription

VERBS = ("create", "list", "describe", "alter", "delete")
_KAFKA_ACTIONS = "Command must include exactly one action: --list, --describe, --create, --alter or --delete"
_KAFKA_FAILURE = "Error while executing topic command : "
_DESCRIBE_TOPIC_PARTITIONS = 75
_ONLY_WITH = {
    "config": ("create", "alter"),
    "delete_config": ("alter",),
    "partitions": ("create", "alter"),
    "replication_factor": ("create",),
    "replica_assignment": ("create", "alter"),
    "under_replicated_partitions": ("describe",),
    "unavailable_partitions": ("describe",),
    "under_min_isr_partitions": ("describe",),
    "at_min_isr_partitions": ("describe",),
    "topics_with_overrides": ("describe",),
    "if_not_exists": ("create",),
    "if_exists": ("alter", "delete", "describe"),
    "exclude_internal": ("list", "describe", "delete"),
}
"""Which verbs an option says something to: with another, it was meant for something else."""
_EXAMPLES = (
    "ottla topics create orders --partitions 3 --config retention.ms=3600000",
    "ottla topics describe orders",
    "ottla topics alter orders --partitions 6",
    "ottla topics alter orders --config retention.ms=1 --delete-config segment.ms",
    "ottla topics delete 'tmp-.*'",
)


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
    delete_configs: tuple[str, ...] = ()
    topic_id: str | None = None
    yes: bool = False
    kafka: bool = False


def parser(kafka: str = "") -> CommandParser:
    summary = (
        "Create, list, describe, alter and delete topics. A name may be a regular expression, except with create; "
        "deleting by one shows what matches and asks."
    )
    made = CommandParser(
        "topics", summary, words="[VERB] [NAME]", verbs=() if kafka else VERBS, examples=_EXAMPLES, kafka=kafka
    )
    made.add_verb_flags(
        {
            "create": "create a topic",
            "list": "list the names of topics",
            "describe": "show partitions, replicas and settings",
            "alter": "add partitions, change settings",
            "delete": "delete topics",
        }
    )
    made.add_argument("--topic", metavar="NAME", help="the same as NAME")
    made.add_argument("--topic-id", metavar="ID", help="describe the topic of this id")
    made.add_argument("--partitions", type=number, metavar="N", help="number of partitions")
    made.add_argument("--replication-factor", type=number, metavar="N", help="replicas of each partition")
    made.add_argument("--replica-assignment", metavar="1:2,2:3", help="brokers by hand, for each partition")
    made.add_argument("--config", action="append", default=[], metavar="NAME=VALUE", help="a setting; repeatable")
    made.add_argument("--delete-config", action="append", default=[], metavar="NAME", help="alter: remove a setting")
    made.add_flag("--if-exists", "no error if the topic is not there")
    made.add_flag("--if-not-exists", "no error if the topic is there")
    made.add_flag("--exclude-internal", "leave internal topics out")
    made.add_flag("--under-replicated-partitions", "describe only partitions with replicas that are behind")
    made.add_flag("--unavailable-partitions", "describe only partitions without a leader")
    made.add_flag("--under-min-isr-partitions", "describe only partitions with too few replicas in sync for acks=all")
    made.add_flag("--at-min-isr-partitions", "describe only partitions with just enough replicas in sync for acks=all")
    made.add_flag("--topics-with-overrides", "describe only topics with settings of their own")
    made.add_argument("--partition-size-limit-per-response", type=number, metavar="N", help="has no effect")
    made.add_flag("--yes", "delete what a pattern matches without asking")
    if not kafka:
        made.add_argument(
            *("--output", "-o"),
            choices=[kind.value for kind in Output],
            default="auto",
            help="auto, table, kafka, json, tsv; auto is a table at a terminal, else Kafka's text",
        )
    return made


def main(arguments: list[str], kafka: str = "") -> int:
    made = parser(kafka)
    options = made.read(arguments)
    if kafka:
        flags = [verb for verb in VERBS if getattr(options, verb)]
        if len(flags) != 1:
            made.error(_KAFKA_ACTIONS)
        options.verb = flags[0]
        _check_as_kafka(made, options)
    try:
        settings = _settings(options)
        _check(settings)
    except UsageError as e:
        if kafka:
            print(f"{_KAFKA_FAILURE}{e}")
            return FAILED
        made.error(str(e))
    run_client(_told_as_kafka(_options_run(options, settings)) if kafka else _options_run(options, settings))
    return 0


def _check_as_kafka(made: CommandParser, options: Namespace) -> None:
    if options.verb in ("create", "alter", "delete") and options.topic is None:
        made.error('Missing required argument "[topic]"')
    if options.verb == "alter" and options.config:
        made.error(
            'Option combination "[[bootstrap-server], [config]]" can\'t be used with option "[alter]" '
            "(the kafka-configs CLI supports altering topic configs with a --bootstrap-server option)"
        )
    if options.verb == "alter" and options.partitions is None:
        made.error('Missing required argument "[partitions]"')
    if misplaced := _misplaced(options):
        made.error(f'Option "[{misplaced}]" can\'t be used with option "[{options.verb}]"')
    filters = [name for name in _ONLY_WITH if _ONLY_WITH[name] == ("describe",) and getattr(options, name)]
    if options.topics_with_overrides and len(filters) > 1:
        made.error(f'Option "[{filters[0].replace("_", "-")}]" can\'t be used with option "[topics-with-overrides]"')
    if options.verb == "create" and options.replica_assignment and options.partitions is not None:
        made.error('Option "[replica-assignment]" can\'t be used with option "[partitions]"')


def _misplaced(options: Namespace) -> str:
    """The first option that the verb has no use for, if there is one."""
    for name, verbs in _ONLY_WITH.items():
        if getattr(options, name) not in (None, False, []) and options.verb not in verbs:
            return name.replace("_", "-")
    return ""


def _settings(options: Namespace) -> Settings:
    if misplaced := _misplaced(options):
        raise UsageError(f"--{misplaced} is for {' and '.join(_ONLY_WITH[misplaced.replace('-', '_')])} only")
    if len(options.words) > 1 or (options.words and options.topic is not None):
        raise UsageError("the topic is named twice")
    for name in ("partitions", "replication_factor"):
        value = getattr(options, name)
        if value is not None and value < 1 and not options.kafka:
            raise UsageError(f"--{name.replace('_', '-')} must be at least 1")
    return Settings(
        verb=options.verb,
        topic=options.words[0] if options.words else options.topic,
        partitions=options.partitions,
        replication_factor=options.replication_factor,
        assignments=parse_assignment(options.replica_assignment) if options.replica_assignment is not None else [],
        configs=parse_pairs("--config", options.config),
        if_exists=options.if_exists,
        if_not_exists=options.if_not_exists,
        exclude_internal=options.exclude_internal,
        filters=Filters(
            options.under_replicated_partitions,
            options.unavailable_partitions,
            options.under_min_isr_partitions,
            options.at_min_isr_partitions,
            options.topics_with_overrides,
        ),
        output=Output(options.output).resolve(),
        delete_configs=tuple(options.delete_config),
        topic_id=options.topic_id,
        yes=options.yes,
        kafka=options.kafka,
    )


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


def _check(settings: Settings) -> None:
    if settings.verb in ("create", "alter", "delete") and settings.topic is None:
        raise UsageError(f"which topic to {settings.verb} is not said; use --topic")
    changes = settings.configs or settings.delete_configs
    if settings.verb == "alter" and settings.partitions is None and not changes:
        raise UsageError("--alter needs --partitions with the new number of partitions, or --config with settings")
    if settings.verb == "create" and settings.assignments and (settings.partitions or settings.replication_factor):
        raise UsageError("--replica-assignment says all; leave --partitions and --replication-factor out")


async def _options_run(options: Namespace, settings: Settings) -> None:
    from ottla.cli.session import open_admin
    from ottla.cli.topics_output import describe

    async with open_admin(options, "ottla-topics") as admin:
        if settings.verb == "create":
            await _create(admin, settings)
            return
        chosen = _choose((await admin.describe_topics()).check().values(), settings)
        match settings.verb:
            case "list":
                _list(chosen, settings)
            case "describe":
                elr = await _eligible_leaders(admin) if settings.kafka else ""
                await describe(admin, chosen, settings.filters, settings.output, elr=elr)
            case "alter":
                await _alter(admin, chosen, settings)
            case "delete":
                await _delete(admin, chosen, settings)


async def _eligible_leaders(admin: Admin) -> str:
    """The end of Kafka's lines: nobody, or not known if the brokers are too old to say (KIP-966)."""
    answers = (await admin.api_versions()).results.values()
    known = "" if answers and all(_DESCRIBE_TOPIC_PARTITIONS in versions for versions in answers) else "N/A"
    return f"\tElr: {known}\tLastKnownElr: {known}"


async def _told_as_kafka(work: Any) -> None:
    from ottla.base.errors import KafkaError
    from ottla.cli.kafka_names.java_errors import java_name
    from ottla.client.errors import ClientError

    try:
        await work
    except KafkaError as e:
        text = (e.broker_message if isinstance(e, ClientError) else None) or e.message
        print(f"{_KAFKA_FAILURE}{text}")
        print(f"ERROR {java_name(e.code)}: {text}\n (org.apache.kafka.tools.TopicCommand)", file=sys.stderr)
        raise SystemExit(FAILED) from None


async def _alter(admin: Admin, topics: list[TopicDescription], settings: Settings) -> None:
    from ottla.client.core.admin.types import ConfigChange, ConfigOperation, ConfigResource, NewPartitions

    changes = [
        *(ConfigChange(name, value) for name, value in settings.configs.items()),
        *(ConfigChange(name, None, ConfigOperation.DELETE) for name in settings.delete_configs),
    ]
    if changes:
        _raise_failures(
            await admin.incremental_alter_configs({ConfigResource.topic(topic.name): changes for topic in topics})
        )
        for topic in topics:
            print(f"Updated config for topic {topic.name}.")
    if settings.partitions is not None:
        if settings.kafka:
            _refuse_as_kafka(topics, settings.partitions)
        totals = {
            topic.name: NewPartitions(settings.partitions, settings.assignments[len(topic.partitions) :])
            for topic in topics
        }
        _raise_failures(await admin.create_partitions(totals))


def _refuse_as_kafka(topics: list[TopicDescription], wanted: int) -> None:
    """In Kafka's words, which runbooks look for."""
    from ottla.base.errors import ErrorCode, KafkaError

    for topic in topics:
        count = len(topic.partitions)
        if wanted == count:
            raise KafkaError(f"Topic already has {count} partitions.", code=ErrorCode.INVALID_PARTITIONS)
        if wanted < count:
            raise KafkaError(
                f"Topic currently has {count} partitions, which is higher than the requested {wanted}.",
                code=ErrorCode.INVALID_PARTITIONS,
            )


async def _delete(admin: Admin, topics: list[TopicDescription], settings: Settings) -> None:
    """A pattern may match more than was thought of: what matches is shown, and deleted only if that is meant."""
    from ottla.cli.confirming import confirm

    names = [topic.name for topic in topics]
    by_pattern = bool(names) and names != [settings.topic] and not settings.kafka
    if by_pattern:
        listed = "".join(f"  {name}\n" for name in names)
        confirm(f"'{settings.topic}' matches {len(names)} topic(s):\n{listed}Delete them?", yes=settings.yes)
    outcomes = await admin.delete_topics(names)
    if by_pattern:
        print("".join(f"Deleted topic {name}.\n" for name in names if name not in outcomes.errors), end="")
    _raise_failures(outcomes)


def _raise_failures(outcomes: Outcomes[Any, None]) -> None:
    """All in one sentence: there may be many topics, and each can fail for a reason of its own."""
    from ottla.base.errors import KafkaError

    if len(outcomes.errors) == 1:
        raise next(iter(outcomes.errors.values()))
    if outcomes.errors:
        raise KafkaError("; ".join(error.message for error in outcomes.errors.values()))


async def _create(admin: Admin, settings: Settings) -> None:
    from ottla.base.errors import ErrorCode, KafkaError
    from ottla.client.core.admin.types import BROKER_DEFAULT, NewTopic

    name = settings.topic or ""
    topic = NewTopic(
        name,
        BROKER_DEFAULT if settings.partitions is None else settings.partitions,
        BROKER_DEFAULT if settings.replication_factor is None else settings.replication_factor,
        settings.assignments,
        settings.configs,
    )
    if "." in name or "_" in name:
        if settings.kafka:
            print(
                "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could "
                "collide. To avoid issues it is best to use either, but not both."
            )
        else:
            print(
                "WARNING: metrics cannot tell '.' from '_' in topic names; it is best to use only one of them.",
                file=sys.stderr,
            )
    try:
        (await admin.create_topics([topic])).check()
    except KafkaError as e:
        if e.code is ErrorCode.TOPIC_ALREADY_EXISTS and settings.if_not_exists:
            return
        if e.code is ErrorCode.TOPIC_ALREADY_EXISTS and settings.kafka:
            raise KafkaError(f"Topic '{name}' already exists.", code=e.code) from e
        raise
    print(f"Created topic {name}.")
    if settings.configs and not settings.kafka:
        await _warn_of_idle_settings(admin, name, settings.configs)


async def _warn_of_idle_settings(admin: Admin, topic: str, configs: dict[str, str]) -> None:
    """The broker knows which settings it does nothing with; it says so where it documents them."""
    from ottla.base.options import no_effect_in
    from ottla.client.core.admin.types import ConfigResource

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
    from ottla.base.errors import ErrorCode, KafkaError
    from ottla.base.types import uuid_to_text
    from ottla.cli.session import missing_topic

    topics = [topic for topic in topics if not (settings.exclude_internal and topic.is_internal)]
    if settings.topic_id is not None:
        by_id = [topic for topic in topics if uuid_to_text(topic.topic_id) == settings.topic_id]
        if not by_id and not settings.if_exists:
            raise KafkaError(f"TopicId '{settings.topic_id}' does not exist as expected")
        return by_id
    if settings.topic is None:
        return topics
    # Kafka takes a comma for "or".
    try:
        pattern = re.compile(settings.topic.replace(",", "|"))
    except re.error as e:
        raise UsageError(f"--topic {settings.topic!r} is not a regular expression: {e}") from None
    chosen = [topic for topic in topics if topic.name == settings.topic or pattern.fullmatch(topic.name)]
    if not chosen and not settings.if_exists and settings.verb != "list":
        known = [topic.name for topic in topics]
        text = (
            f"Topic 'Optional[{settings.topic}]' does not exist as expected"
            if settings.kafka
            else missing_topic(settings.topic, known)
        )
        raise KafkaError(text, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return chosen


def _list(topics: list[TopicDescription], settings: Settings) -> None:
    names = [topic.name for topic in topics]
    if settings.kafka:
        print("\n".join(names))
    elif settings.output is Output.JSON:
        import json

        print(json.dumps(names))
    elif settings.output is Output.TSV:
        show_rows("tsv", ["topic"], [[name] for name in names])
    else:
        print("".join(f"{name}\n" for name in names), end="")
