"""Writes docs/configuration.md from the declarations: `python -m ottla.broker.config_docs [FILE]`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from ottla.base.options import Option, format_value
from ottla.broker.config import ACTIVE, ENVIRONMENT_PREFIX
from ottla.broker.config_keys import coordinators, log, network, replication, security, store, tiered
from ottla.broker.config_topics import BROKER_SYNONYMS, QUOTA_OPTIONS, TOPIC_OPTIONS

_INTRODUCTION = f"""\
# Configuration

This file is generated (`python -m ottla.broker.config_docs`); change the declarations, not the text here.

A broker is configured with Kafka's names. Each setting can be given in four ways; the first that is there wins:

1. on the command line: `ottla start --override num.partitions=3`
2. in the environment: `{ENVIRONMENT_PREFIX}NUM_PARTITIONS=3` (upper case, dots become underscores)
3. in a properties file: `ottla start server.properties`
4. by default

A name or value that is not understood is an error that names the setting, and nothing is started. Variables that begin
with `{ENVIRONMENT_PREFIX}` but are no setting are ignored with a notice.

Names that begin with `listener.name.<listener>.` set a security setting for one listener only.

**Effect** says what a setting does in this version: *yes*: it does what it says; *not yet*: it is accepted, checked and
shown by DescribeConfigs, but nothing acts on it, which the broker says when it starts; anything else is the reason why
it never will. **Change** says how a running broker's setting can be changed: not at all (read-only), for one broker
(per-broker), or also for all of them (cluster-wide).
"""

_SECTIONS: tuple[tuple[str, ModuleType], ...] = (
    ("Network, requests, quotas and metrics", network),
    ("Logs", log),
    ("Identity, topics, replication and the controller", replication),
    ("Groups and transactions", coordinators),
    ("Security", security),
    ("Metadata store", store),
    ("Tiered storage", tiered),
)


def render() -> str:
    parts = [_INTRODUCTION, "## Broker settings\n"]
    for title, module in _SECTIONS:
        parts.append(f"### {title}\n")
        parts.append(_table(module.OPTIONS))
    parts.append("## Topic settings\n\nWhat a topic does not set comes from the broker setting beside it.\n")
    parts.append(_topic_table())
    parts.append("## Quotas\n\nSet for users, clients and addresses, never in a file.\n")
    parts.append(_quota_table())
    return "\n".join(parts)


def _table(options: Iterable[Option]) -> str:
    rows = ["| Setting | Type | Default | Valid | Change | Effect | Meaning |", "|---|---|---|---|---|---|---|"]
    for option in sorted(options, key=_by_name):
        effect = option.no_effect or ("yes" if option.name in ACTIVE else "not yet")
        rows.append(f"| {_basics(option)} | {option.update.value} | {effect} | {_meaning(option)} |")
    return "\n".join(rows) + "\n"


def _topic_table() -> str:
    rows = ["| Setting | Type | Default | Valid | Broker setting | Effect | Meaning |", "|---|---|---|---|---|---|---|"]
    for option in sorted(TOPIC_OPTIONS.values(), key=_by_name):
        synonyms = BROKER_SYNONYMS.get(option.name, ())
        shown = ", ".join(f"`{name}`" for name in synonyms)
        effect = option.no_effect or ("yes" if ACTIVE.intersection(synonyms) else "not yet")
        rows.append(f"| {_basics(option)} | {shown} | {effect} | {_meaning(option)} |")
    return "\n".join(rows) + "\n"


def _quota_table() -> str:
    rows = ["| Quota | Type | Default | Valid | Meaning |", "|---|---|---|---|---|"]
    rows += [f"| {_basics(option)} | {_meaning(option)} |" for option in sorted(QUOTA_OPTIONS.values(), key=_by_name)]
    return "\n".join(rows) + "\n"


def _by_name(option: Option) -> str:
    return option.name


def _basics(option: Option) -> str:
    text = format_value(option.default)
    default = "unset" if text is None else f"`{text}`" if text else "empty"
    valid = str(option.valid).replace("|", "\\|") if option.valid is not None else ""
    return f"`{option.name}` | {option.type.name.lower()} | {default} | {valid}"


def _meaning(option: Option) -> str:
    return option.doc + (f" Deprecated: use {option.deprecated}." if option.deprecated else "")


def main(arguments: list[str]) -> int:
    target = Path(arguments[0]) if arguments else Path("docs/configuration.md")
    target.write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
