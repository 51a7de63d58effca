"""Writes docs/authorization.md from the table of needs: `python -m ottla.broker.access_docs [FILE]`."""

from __future__ import annotations

import sys
from pathlib import Path

from ottla.broker.access import BEFORE_AUTHENTICATION, NEEDS
from ottla.wire.api_keys import ApiKey

_INTRODUCTION = """\
# What each request needs

This file is generated (`python -m ottla.broker.access_docs`); change the table in `broker/access.py`, not this text.

An authorizer decides whether a client may do an operation on a resource. Which ones a request needs, and where its
reply says that one was refused, is Kafka's: the same table is tested against this broker and against Apache Kafka. To
be allowed READ, WRITE, DELETE or ALTER implies DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS.

Today a program that embeds a broker can give it an authorizer, such as `TableAuthorizer`, and quotas (`AccessRules`,
which `start_broker` and `EmbeddedBroker` take); there is no setting for them yet, and without one everybody may do
everything.
"""


def document() -> str:
    before = ", ".join(sorted(_title(key) for key in BEFORE_AUTHENTICATION))
    lines = [
        _INTRODUCTION,
        f"On a listener that authenticates, a client may send nothing but {before} before it has done so.\n",
        "| API | operation | resource | when | if it is refused |",
        "|---|---|---|---|---|",
    ]
    for api_key, needs in sorted(NEEDS.items()):
        for number, need in enumerate(needs):
            resource = need.resource_type.name.lower().replace("_", " ")
            name = "" if number else _title(api_key)
            lines.append(f"| {name} | {need.operation.name} | {resource} | {need.when} | {need.refusal.value} |")
        if not needs:
            lines.append(f"| {_title(api_key)} | none | | | |")
    return "\n".join(lines) + "\n"


def _title(api_key: ApiKey) -> str:
    return "".join(part.capitalize() for part in api_key.name.split("_"))


def main() -> None:
    text = document()
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
