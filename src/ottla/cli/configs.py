"""`ottla configs`: settings of topics, brokers, loggers and groups while they run; Kafka's kafka-configs.

Under Kafka's name it takes users, clients and addresses too, whose settings are quotas and passwords.
"""

from __future__ import annotations

from argparse import SUPPRESS, Namespace
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from ottla.cli.failures import UsageError, fail, nearest, run_client
from ottla.cli.parsing import CommandParser

if TYPE_CHECKING:
    from ottla.client.aio.admin.admin import Admin
    from ottla.client.core.admin.types import ConfigEntry, ConfigResource

TYPES = ("topics", "brokers", "broker-loggers", "groups", "client-metrics")
ACCESS_TYPES = ("users", "clients", "ips")
_SINGULAR = {
    "topics": "topic",
    "brokers": "broker",
    "broker-loggers": "broker-logger",
    "groups": "group",
    "client-metrics": "client-metric",
    "users": "user",
    "clients": "client",
    "ips": "ip",
}
_SHORT = ("topic", "broker", "broker-logger", "group", "client-metrics", "user", "client", "ip")
_EXAMPLES = (
    "ottla configs describe topics orders",
    "ottla configs describe brokers 1 --all",
    "ottla configs alter topics orders --add-config retention.ms=3600000",
    "ottla configs alter brokers --entity-default --add-config log.retention.ms=1",
    "ottla configs delete topics orders retention.ms",
)
DEFAULT = ""
_WITH_DEFAULTS = ("brokers", *ACCESS_TYPES)


def parser(kafka: str = "") -> CommandParser:
    summary = (
        "Show and change settings of topics, brokers, broker-loggers and groups. Without a name, of all of them; "
        "--entity-default means the defaults of all brokers. Changes act at once."
    )
    made = CommandParser(
        "configs",
        summary,
        words="[VERB] [TYPE] [NAME] [SETTING]...",
        verbs=("describe", "alter") if kafka else ("describe", "alter", "delete"),
        examples=_EXAMPLES,
        kafka=kafka,
        prints_rows=True,
    )
    made.add_verb_flags({"describe": "show settings", "alter": "change settings"})
    if not kafka:
        made.add_argument("--delete", action="store_true", help="remove settings: back to the defaults")
    made.add_argument("--entity-type", action="append", default=[], metavar="TYPE", help=", ".join(TYPES))
    made.add_argument("--entity-name", action="append", default=[], metavar="NAME", help="of a topic, broker or group")
    made.add_flag("--entity-default", "the defaults of all brokers")
    for kind in _SHORT:
        made.add_argument(f"--{kind}", metavar="NAME", help=SUPPRESS if kind in ("user", "client", "ip") else kind)
    for kind in ("broker", "user", "client", "ip"):
        made.add_argument(f"--{kind}-defaults", action="store_true", help=SUPPRESS)
    made.add_flag("--all", "describe also what has not been changed")
    made.add_argument("--add-config", action="append", default=[], metavar="NAME=VALUE,...", help="lists: [a,b]")
    made.add_argument("--set", dest="add_config", action="append", default=SUPPRESS, help=SUPPRESS)
    made.add_argument("--add-config-file", metavar="FILE", help="a properties file with settings to make")
    made.add_argument("--delete-config", action="append", default=[], metavar="NAME,...", help="settings to remove")
    made.add_argument("--force", action="store_true", help=SUPPRESS)
    return made


def main(arguments: list[str], kafka: str = "") -> int:
    made = parser(kafka)
    options = made.read(arguments)
    _read_words(options)
    options.entities = _entities(made, options)
    changes = options.add_config or options.add_config_file or options.delete_config
    if options.verb != "describe" and not changes:
        made.error("At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter")
    if options.add_config and options.add_config_file:
        made.error("Only one of --add-config or --add-config-file must be specified")
    kinds = [kind for kind, _ in options.entities]
    defaults = any(name == DEFAULT and kind not in _WITH_DEFAULTS for kind, name in options.entities)
    if options.verb != "describe" and (defaults or any(name is None for _, name in options.entities)):
        made.error(f"an entity name must be specified with --alter of {kinds[0]}")
    if any(kind in ACCESS_TYPES for kind in kinds):
        from ottla.cli.access.kafka_configs import run as run_access

        work = run_access(options)
    else:
        work = _run(options)
    run_client(_told_as_kafka(work, arguments) if kafka else work)
    return 0


async def _told_as_kafka(work: Coroutine[Any, Any, None], arguments: list[str]) -> None:
    """What a broker has refused; other errors are sentences."""
    from ottla.cli.kafka_names.java_errors import java_text
    from ottla.client.errors import ClientError, ClusterUnreachableError

    try:
        await work
    except ClusterUnreachableError:
        raise
    except ClientError as e:
        fail(
            f"Error while executing config command with args '{' '.join(arguments)}'\n"
            f"java.util.concurrent.ExecutionException: {java_text(e)}"
        )


def _read_words(options: Namespace) -> None:
    words = list(options.words)
    if words:
        kind = words.pop(0)
        options.entity_type.append(f"{kind}s" if f"{kind}s" in TYPES + ACCESS_TYPES else kind)
    if words and not options.entity_default:
        options.entity_name.append(words.pop(0))
    if options.verb == "delete":
        options.delete_config += words
    else:
        options.add_config += words


def _entities(made: CommandParser, options: Namespace) -> list[tuple[str, str | None]]:
    """Types with names: None is all of a type, DEFAULT what holds for who has none."""
    names = [*options.entity_name, *([DEFAULT] if options.entity_default else [])]
    entities: list[tuple[str, str | None]] = []
    for position, kind in enumerate(options.entity_type):
        if kind not in TYPES + ACCESS_TYPES:
            known = TYPES + ACCESS_TYPES
            meant = "" if made.kafka else nearest(kind, known)
            made.error(f"Invalid entity type {kind}, the entity type must be one of {', '.join(known)}{meant}")
        entities.append((kind, names[position] if position < len(names) else None))
    for kind in _SHORT:
        value = getattr(options, kind.replace("-", "_"))
        if value is not None:
            entities.append((kind if kind.endswith("s") else f"{kind}s", value))
    defaults = [kind for kind in ("broker", "user", "client", "ip") if getattr(options, f"{kind}_defaults")]
    entities += [(f"{kind}s", DEFAULT) for kind in defaults]
    if not entities:
        made.error("At least one entity type must be specified")
    if len(entities) > 1 and any(kind not in ACCESS_TYPES for kind, _ in entities):
        made.error("Only users and clients can be named together")
    return entities


def parse_settings(texts: Iterable[str]) -> dict[str, str]:
    """`a=1,b=[x,y]`: commas in brackets belong to the value."""
    settings: dict[str, str] = {}
    for text in texts:
        depth, start = 0, 0
        for end, sign in enumerate([*text, ","]):
            depth += (sign == "[") - (sign == "]")
            if sign == "," and (depth == 0 or end == len(text)):
                name, equals, value = text[start:end].strip().partition("=")
                if not equals or not name:
                    raise UsageError(
                        'Invalid entity config: all configs to be added must be in the format "key=val": '
                        f"{text[start:end]!r}"
                    )
                value = value.strip()
                settings[name.strip()] = value[1:-1] if value.startswith("[") and value.endswith("]") else value
                start = end + 1
    return settings


async def _run(options: Namespace) -> None:
    from ottla.cli.session import open_admin, read_config
    from ottla.client.core.admin.types import ConfigResource, ResourceType

    ((kind, name),) = options.entities
    type_ = {
        "topics": ResourceType.TOPIC,
        "brokers": ResourceType.BROKER,
        "broker-loggers": ResourceType.BROKER_LOGGER,
        "groups": ResourceType.GROUP,
        "client-metrics": ResourceType.CLIENT_METRICS,
    }[kind]
    async with open_admin(options, "ottla-configs") as admin:
        if name is None:
            resources = [ConfigResource(type_, found) for found in await _every(admin, kind)]
        else:
            resources = [ConfigResource(type_, name)]
            await _check_exists(admin, kind, name)
        if options.verb == "describe":
            await _describe(admin, kind, resources, options)
        else:
            settings = {**read_config(options.add_config_file), **parse_settings(options.add_config)}
            await _alter(admin, kind, resources[0], settings, options)


async def _every(admin: Admin, kind: str) -> list[str]:
    if kind == "topics":
        return sorted(topic.name for topic in (await admin.list_topics(include_internal=True)).values())
    if kind == "groups":
        return [listing.group_id for listing in await admin.list_groups()]
    brokers = [str(node) for node in sorted((await admin.describe_cluster()).brokers)]
    return [*brokers, DEFAULT] if kind == "brokers" else brokers


async def _check_exists(admin: Admin, kind: str, name: str) -> None:
    from ottla.cli.session import check_broker, described_topics

    if kind == "topics":
        await described_topics(admin, [name])
    elif kind in ("brokers", "broker-loggers") and name != DEFAULT:
        if not name.isdecimal():
            raise UsageError(f"The entity name for {kind} must be a valid integer broker id, but it is: {name}")
        await check_broker(admin, int(name))


def _is_own(entry: ConfigEntry, kind: str, name: str) -> bool:
    from ottla.client.core.admin.types import ConfigSource

    own = {
        "topics": ConfigSource.TOPIC,
        "brokers": ConfigSource.DEFAULT_BROKER if name == DEFAULT else ConfigSource.BROKER,
        "broker-loggers": ConfigSource.BROKER_LOGGER,
        "groups": ConfigSource.GROUP,
        "client-metrics": ConfigSource.CLIENT_METRICS,
    }
    return entry.source is own[kind]


async def _describe(admin: Admin, kind: str, resources: list[ConfigResource], options: Namespace) -> None:
    described = (await admin.describe_configs(resources, include_synonyms=True)).check()
    rows: list[tuple[str, str, str, str | None, str]] = []
    for resource in resources:
        entries = [
            entry
            for _, entry in sorted(described[resource].items())
            if options.all or kind == "broker-loggers" or _is_own(entry, kind, resource.name)
        ]
        if options.output in ("json", "tsv"):
            rows += [(kind, resource.name, entry.name, entry.value, source_name(entry.source)) for entry in entries]
            continue
        print(f"{_heading(kind, resource.name, all_=options.all)} are:")
        for entry in entries:
            print(f"  {entry_text(entry)}")
    if options.output in ("json", "tsv"):
        from ottla.cli.rows import show_rows

        show_rows(options.output, ["type", "name", "setting", "value", "source"], rows)


def _heading(kind: str, name: str, *, all_: bool) -> str:
    if name == DEFAULT:
        return f"Default configs for {kind} in the cluster"
    return f"{'All' if all_ else 'Dynamic'} configs for {_SINGULAR[kind]} {name}"


def entry_text(entry: ConfigEntry) -> str:
    synonyms = ", ".join(
        f"{source_name(synonym.source)}:{synonym.name}={_or_null(synonym.value)}" for synonym in entry.synonyms
    )
    sensitive = str(entry.is_sensitive).lower()
    return f"{entry.name}={_or_null(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def _or_null(value: str | None) -> str:
    return "null" if value is None else value


def source_name(source: int) -> str:
    """Kafka's name of where a value comes from."""
    names = (
        *("UNKNOWN", "DYNAMIC_TOPIC_CONFIG", "DYNAMIC_BROKER_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        *("STATIC_BROKER_CONFIG", "DEFAULT_CONFIG", "DYNAMIC_BROKER_LOGGER_CONFIG", "DYNAMIC_CLIENT_METRICS_CONFIG"),
        "DYNAMIC_GROUP_CONFIG",
    )
    return names[source]


async def _alter(
    admin: Admin, kind: str, resource: ConfigResource, settings: dict[str, str], options: Namespace
) -> None:
    from ottla.base.errors import KafkaError
    from ottla.client.core.admin.types import ConfigChange, ConfigOperation

    removed = [name.strip() for text in options.delete_config for name in text.split(",") if name.strip()]
    if removed and kind != "broker-loggers":
        described = (await admin.describe_configs([resource])).check()[resource]
        own = {name for name, entry in described.items() if _is_own(entry, kind, resource.name)}
        unknown = [name for name in removed if name not in own]
        if unknown:
            raise KafkaError(f"Invalid config(s): {','.join(unknown)}")
    if kind == "broker-loggers":
        known = (await admin.describe_configs([resource])).check()[resource]
        unknown = [name for name in (*settings, *removed) if name not in known]
        if unknown:
            raise KafkaError(f"Invalid broker logger(s): {','.join(unknown)}")
    changes = [
        *(ConfigChange(name, value) for name, value in settings.items()),
        *(ConfigChange(name, None, ConfigOperation.DELETE) for name in removed),
    ]
    (await admin.incremental_alter_configs({resource: changes})).check()
    if resource.name == DEFAULT:
        print(f"Completed updating default config for {kind} in the cluster.")
    else:
        print(f"Completed updating config for {_SINGULAR[kind]} {resource.name}.")
