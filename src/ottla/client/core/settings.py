"""How the settings of any client are given: Kafka's names in a mapping, or the same names in snake_case as keywords.

Owns the options every client has. What they mean is for the clients; nothing here opens a connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.base.errors import InvalidConfigError
from ottla.base.options import Between, OneOf, Option, OptionSet, Type, Values

_DEFAULT_PORT = 9092

CLIENT_OPTIONS = (
    Option(
        "bootstrap.servers",
        Type.LIST,
        (),
        "Addresses (host:port) of some brokers, from which the whole cluster is found.",
        importance="high",
    ),
    Option("client.id", Type.STRING, "", "A name for this client in the brokers' logs and quotas."),
    Option(
        "request.timeout.ms",
        Type.INT,
        30_000,
        "How long to wait for a reply before the request counts as failed.",
        Between(1),
    ),
    Option("retry.backoff.ms", Type.LONG, 100, "The first pause before a failed request is tried again.", Between(0)),
    Option("retry.backoff.max.ms", Type.LONG, 1000, "The longest pause between two tries.", Between(0)),
    Option("reconnect.backoff.ms", Type.LONG, 50, "The first pause before a broker is dialled again.", Between(0)),
    Option("reconnect.backoff.max.ms", Type.LONG, 1000, "The longest pause between two dials.", Between(0)),
    Option(
        "socket.connection.setup.timeout.ms",
        Type.LONG,
        10_000,
        "How long to wait for a connection to open.",
        Between(1),
    ),
    Option("metadata.max.age.ms", Type.LONG, 300_000, "Metadata older than this is asked for again.", Between(0)),
    Option("security.protocol", Type.STRING, "PLAINTEXT", "How to talk to the brokers.", OneOf("PLAINTEXT"), "medium"),
)


class ClientSettings(NamedTuple):
    """The options of `CLIENT_OPTIONS`, with their types."""

    bootstrap_servers: tuple[str, ...]
    client_id: str
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    connect_timeout_ms: int
    metadata_max_age_ms: int

    @classmethod
    def of(cls, values: Values) -> ClientSettings:
        servers = values.items_of("bootstrap.servers")
        parse_bootstrap_servers(servers)
        return cls(
            servers,
            values.text("client.id"),
            values.integer("request.timeout.ms"),
            values.integer("retry.backoff.ms"),
            values.integer("retry.backoff.max.ms"),
            values.integer("reconnect.backoff.ms"),
            values.integer("reconnect.backoff.max.ms"),
            values.integer("socket.connection.setup.timeout.ms"),
            values.integer("metadata.max.age.ms"),
        )


def parse_bootstrap_servers(servers: Iterable[str]) -> list[tuple[str, int]]:
    """Hosts and ports; InvalidConfigError says which one is not an address."""
    addresses = []
    for entry in filter(None, (server.strip() for server in servers)):
        host, colon, port = entry.rpartition(":")
        if not colon:
            host, port = entry, str(_DEFAULT_PORT)
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise InvalidConfigError("bootstrap.servers", f"bootstrap.servers: {entry!r} is not of the form host:port")
        addresses.append((host.removeprefix("[").removesuffix("]"), int(port)))
    if not addresses:
        raise InvalidConfigError("bootstrap.servers", "bootstrap.servers must name at least one host:port")
    return addresses


def merge_settings(config: Mapping[str, object] | None, keywords: Mapping[str, object]) -> dict[str, object]:
    """One mapping with Kafka's names. The same setting given both ways is an error rather than a silent choice."""
    merged: dict[str, object] = dict(config or {})
    for keyword, value in keywords.items():
        name = keyword.replace("_", ".")
        if name in merged:
            raise InvalidConfigError(name, f"{name} is given twice, as a setting and as the keyword {keyword}")
        merged[name] = value
    return merged


def parse_settings(options: OptionSet, settings: Mapping[str, object]) -> Values:
    """Values of any natural type (numbers, booleans, lists, text) as the options' types, checked."""
    return options.parse({name: _as_text(name, value) for name, value in settings.items()})


def _as_text(name: str, value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    raise InvalidConfigError(name, f"{name} cannot be a value of type {type(value).__name__}")


def backoff_ms(attempt: int, first_ms: int, max_ms: int) -> int:
    """The pause before try number `attempt` + 1: it doubles each time, up to a bound."""
    return int(min(max_ms, first_ms << min(attempt - 1, 20))) if attempt > 0 else 0
