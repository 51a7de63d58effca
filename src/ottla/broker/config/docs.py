"""Writes docs/configuration.md from the declarations: `python -m ottla.broker.config.docs [FILE]`."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

from ottla.base.environment import BOOTSTRAP_SERVERS, KAFKA_PREFIX, PREFIX
from ottla.base.option_docs import table
from ottla.base.options import Option
from ottla.broker.config.groups import GROUP_OPTIONS, broker_synonym
from ottla.broker.config.keys import coordinators, log, network, ottla, replication, sasl, security, store, tiered, tls
from ottla.broker.config.topics import BROKER_SYNONYMS, QUOTA_OPTIONS, TOPIC_OPTIONS

_INTRODUCTION = f"""\
# Configuration

This file is generated (`python -m ottla.broker.config.docs`); change the declarations, not the text here.

A broker is configured with Kafka's names. Each setting can be given in five ways; the first that is there wins:

1. on the command line: `ottla start --override num.partitions=3`
2. in the environment: `{PREFIX}NUM_PARTITIONS=3` (upper case, dots become underscores)
3. in the environment as for Kafka's container images: `{KAFKA_PREFIX}NUM_PARTITIONS=3`, or
   `{KAFKA_PREFIX}CFG_NUM_PARTITIONS=3` (`_` stands for a dot, `__` for a dash, `___` for an underscore)
4. in a properties file: `ottla start server.properties`
5. by default

A name or value that is not understood is an error that names the setting, and nothing is started. Variables that begin
with `{PREFIX}` or `{KAFKA_PREFIX}` but are no setting are ignored with a notice, and those that Kafka's scripts know
(`KAFKA_HEAP_OPTS`, `KAFKA_OPTS`, …) without. `{BOOTSTRAP_SERVERS}` is for clients: the command line and the examples
look for a broker there.

Names that begin with `listener.name.<listener>.` set a security setting for one listener only, or a limit of its
connections (`max.connections`, `max.connection.creation.rate`).

**Effect** says what a setting does in this version: *yes*: it does what it says; *refused*: the broker does not start
with another value than the default, because to ignore it would feign protection or a place for data; anything else: it
is accepted, checked and shown by DescribeConfigs, but does nothing, for the reason given, which the broker says when it
starts. **Change** says how a running broker's setting can be changed: not at all (read-only), for one broker
(per-broker), or also for all of them (cluster-wide).
"""

_LOG = """\
## The broker's log

It goes to stderr, a line for each event: time, level, logger, message. There is a line for every topic that is created,
grown, reconfigured or deleted, every rebalance of a group with its reason, every member that times out, every
producer that is fenced, what recovery found, starts, stops and slow requests; there is none for an ordinary request.
Levels are those of `ottla.log.level` (or `ottla start --log-level DEBUG`), and can be changed while the broker runs:
`kafka-configs.sh --alter --entity-type broker-loggers --entity-name 1 --add-config ottla.broker.coordinators=DEBUG`.
"""

_TOPIC_INTRODUCTION = """\
## Topic settings

What a topic does not set comes from the broker setting beside it. Settings without effect are accepted all the same,
since programs set them as a matter of course; the broker's log and `ottla topics --create` name them.
"""

_GROUP_INTRODUCTION = """## Group settings

Set for a single group, while the broker runs, within the bounds of `group.consumer.min.*` and `group.consumer.max.*`;
a group follows from the next heartbeat of each member on. What it does not set comes from the broker setting beside
it.
"""

_SECTIONS: tuple[tuple[str, ModuleType], ...] = (
    ("Network, requests, quotas and metrics", network),
    ("Logs", log),
    ("Identity, topics, replication and the controller", replication),
    ("Groups and transactions", coordinators),
    ("Access and secrets", security),
    ("Authentication (SASL)", sasl),
    ("Encryption (TLS)", tls),
    ("Metadata store", store),
    ("Tiered storage", tiered),
    ("Settings of Ottla's own", ottla),
)


def render() -> str:
    parts = [_INTRODUCTION, "## Broker settings\n"]
    for title, module in _SECTIONS:
        parts.append(f"### {title}\n")
        parts.append(table("Setting", module.OPTIONS, ("Change", "Effect"), _broker_cells))
    parts.append(_LOG)
    parts.append(_TOPIC_INTRODUCTION)
    parts.append(table("Setting", TOPIC_OPTIONS.values(), ("Broker setting", "Effect"), _topic_cells))
    parts.append(_GROUP_INTRODUCTION)
    parts.append(table("Setting", GROUP_OPTIONS.values(), ("Broker setting", "Effect"), _group_cells))
    parts.append("## Quotas\n\nSet for users, clients and addresses, never in a file.\n")
    parts.append(table("Quota", QUOTA_OPTIONS.values()))
    return "\n".join(parts)


def _broker_cells(option: Option) -> tuple[str, ...]:
    return option.update.value, _effect(option)


def _topic_cells(option: Option) -> tuple[str, ...]:
    return ", ".join(f"`{name}`" for name in BROKER_SYNONYMS.get(option.name, ())), _effect(option)


def _group_cells(option: Option) -> tuple[str, ...]:
    return f"`{broker_synonym(option.name)}`", _effect(option)


def _effect(option: Option) -> str:
    return f"refused: {option.refused}" if option.refused else option.no_effect or "yes"


def main(arguments: list[str]) -> int:
    target = Path(arguments[0]) if arguments else Path("docs/configuration.md")
    target.write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
