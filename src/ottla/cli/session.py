"""The clients that commands use: settings from a file and from options; a cluster out of reach fails at once."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.failures import UsageError, nearest

if TYPE_CHECKING:
    from ottla.client.aio.admin.admin import Admin
    from ottla.client.core.admin.types import TopicDescription


_SILENCE_MS = 5000
"""How long a server that does not answer is waited for: whoever sits before a terminal wants to know soon."""


def read_config(path: str | None) -> dict[str, str]:
    """What a properties file says; nothing without one."""
    if path is None:
        return {}
    from ottla.base.properties import parse_properties

    properties = parse_properties(read_text(path))
    for entry in properties:
        if entry.problem:
            raise UsageError(f"{path}, line {entry.line}: {entry.problem}")
    return {entry.name: entry.value for entry in properties}


def read_text(path: str | Path) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except UnicodeDecodeError as e:
        raise UsageError(f"{path} is no text in UTF-8: byte {e.start} is {e.object[e.start]:#x}") from None


def client_config(path: str | None, server: str, client_id: str, **more: str) -> dict[str, str]:
    """The options win over the file."""
    return {
        "client.id": client_id,
        "socket.connection.setup.timeout.ms": str(_SILENCE_MS),
        **read_config(path),
        **more,
        "bootstrap.servers": server,
        "bootstrap.fail.fast": "true",
    }


def open_admin(options: Namespace, client_id: str, **more: str) -> Admin:
    from ottla.client.aio.admin.admin import Admin

    return Admin(client_config(options.command_config, options.bootstrap_server, client_id, **more))


def missing_topic(name: str, known: Collection[str]) -> str:
    return f"topic '{name}' does not exist{nearest(name, known)}"


def missing_group(name: str, known: Collection[str]) -> str:
    return f"consumer group '{name}' does not exist{nearest(name, known)}"


async def check_broker(admin: Admin, broker_id: int) -> None:
    from ottla.base.errors import ErrorCode, KafkaError

    known = sorted((await admin.describe_cluster()).brokers)
    if broker_id not in known:
        listed = ", ".join(map(str, known))
        raise KafkaError(
            f"broker {broker_id} does not exist; there are {listed}", code=ErrorCode.BROKER_ID_NOT_REGISTERED
        )


async def described_topics(admin: Admin, names: Collection[str]) -> Mapping[str, TopicDescription]:
    """The topics of these names; a missing one ends the command, with the name that was perhaps meant."""
    from ottla.base.errors import ErrorCode, KafkaError

    everything = {topic.name: topic for topic in (await admin.describe_topics()).check().values()}
    for name in names:
        if name not in everything:
            raise KafkaError(missing_topic(name, everything), code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return {name: everything[name] for name in names}
