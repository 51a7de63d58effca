"""How the settings of any client are given: Kafka's names in a mapping, or the same names in snake_case as keywords.

Owns the options every client has. What they mean is for the clients; nothing here opens a connection.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.base.errors import InvalidConfigError
from ottla.base.options import Between, OneOf, Option, OptionSet, Type, Values

_DEFAULT_PORT = 9092
_MAX_TEXT_BYTES = 32_767
_ADDRESS = re.compile(r"(?:([^\s:/\[\]]+)|\[([^\s/\[\]]+)\])(?::([0-9]+))?", re.ASCII)
"""A name, or an IPv6 address in brackets, and perhaps a port."""

NO_METRICS = dict.fromkeys(
    ("metric.reporters", "auto.include.jmx.reporter", "enable.metrics.push"), "this client reports no metrics"
)
"""Settings of Java's clients that there are not, and why."""

CLIENT_OPTIONS = (
    Option(
        "bootstrap.servers",
        Type.LIST,
        (),
        "Addresses (host:port) of some brokers, from which the whole cluster is found.",
        importance="high",
    ),
    Option(
        "bootstrap.fail.fast",
        Type.BOOLEAN,
        False,
        "Whether to fail at once if no broker can be reached at the start, instead of waiting for one.",
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
    Option(
        "socket.connection.setup.timeout.max.ms",
        Type.LONG,
        30_000,
        "The longest such time: it doubles with every connection to a broker that could not be opened.",
        Between(1),
    ),
    Option(
        "connections.max.idle.ms",
        Type.LONG,
        540_000,
        "When a connection that is not used is closed; -1 never. Brokers do so after ten minutes.",
        Between(1, or_else=-1),
    ),
    Option("send.buffer.bytes", Type.INT, -1, "The system's buffer for sending; -1 for its default.", Between(-1)),
    Option("receive.buffer.bytes", Type.INT, -1, "The system's buffer for receiving; -1 for its default.", Between(-1)),
    Option(
        "client.dns.lookup",
        Type.STRING,
        "use_all_dns_ips",
        "What a host name stands for: all its addresses are tried.",
        OneOf("use_all_dns_ips"),
    ),
    Option(
        "metadata.recovery.strategy",
        Type.STRING,
        "rebootstrap",
        "What to do if no known broker can be reached: the bootstrap servers are tried again.",
        OneOf("rebootstrap"),
    ),
    Option("metadata.max.age.ms", Type.LONG, 300_000, "Metadata older than this is asked for again.", Between(0)),
    Option("security.protocol", Type.STRING, "PLAINTEXT", "How to talk to the brokers.", OneOf("PLAINTEXT"), "medium"),
)


class ClientSettings(NamedTuple):
    """The options of `CLIENT_OPTIONS`, with their types."""

    bootstrap_servers: tuple[str, ...]
    fails_fast: bool
    client_id: str
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    connect_timeout_ms: int
    connect_timeout_max_ms: int
    connection_idle_ms: int
    """-1 for a connection that may be idle for ever."""
    send_buffer_bytes: int
    receive_buffer_bytes: int
    """-1 for what the system gives."""
    metadata_max_age_ms: int

    @classmethod
    def of(cls, values: Values) -> ClientSettings:
        servers = values.items_of("bootstrap.servers")
        parse_bootstrap_servers(servers)
        return cls(
            servers,
            values.flag("bootstrap.fail.fast"),
            values.text("client.id"),
            values.integer("request.timeout.ms"),
            values.integer("retry.backoff.ms"),
            values.integer("retry.backoff.max.ms"),
            values.integer("reconnect.backoff.ms"),
            values.integer("reconnect.backoff.max.ms"),
            values.integer("socket.connection.setup.timeout.ms"),
            values.integer("socket.connection.setup.timeout.max.ms"),
            values.integer("connections.max.idle.ms"),
            values.integer("send.buffer.bytes"),
            values.integer("receive.buffer.bytes"),
            values.integer("metadata.max.age.ms"),
        )


def parse_bootstrap_servers(servers: Iterable[str]) -> list[tuple[str, int]]:
    """Hosts and ports; InvalidConfigError says which one is not an address."""
    addresses = []
    for entry in filter(None, (server.strip() for server in servers)):
        match = _ADDRESS.fullmatch(entry)
        if match is None or entry.isdecimal():
            raise _no_address(entry)
        name, address, port = match.groups(default="")
        if port and not 0 < int(port) < 65536:
            raise _no_address(entry)
        addresses.append((name or address, int(port) if port else _DEFAULT_PORT))
    if not addresses:
        raise InvalidConfigError("bootstrap.servers", "bootstrap.servers must name at least one host:port")
    return addresses


def _no_address(entry: str) -> InvalidConfigError:
    return InvalidConfigError("bootstrap.servers", f"bootstrap.servers: {entry!r} is not of the form host:port")


def merge_settings(config: Mapping[str, object] | None, keywords: Mapping[str, object]) -> dict[str, object]:
    """One mapping with Kafka's names. The same setting given both ways is an error rather than a silent choice."""
    if config is not None and not isinstance(config, Mapping):
        raise InvalidConfigError("", f"settings must be a mapping of names to values, but were {config!r}")
    merged: dict[str, object] = dict(config or {})
    for name in merged:
        if not isinstance(name, str):
            raise InvalidConfigError(str(name), f"the name of a setting must be text, but was {name!r}")
    for keyword, value in keywords.items():
        name = keyword.replace("_", ".")
        if name in merged:
            raise InvalidConfigError(name, f"{name} is given twice, as a setting and as the keyword {keyword}")
        merged[name] = value
    return merged


def parse_settings(options: OptionSet, settings: Mapping[str, object]) -> Values:
    """Values of any natural type (numbers, booleans, lists, text) as the options' types, checked."""
    for name in settings:
        options.find(name)
    texts = {name: _as_text(name, value) for name, value in settings.items()}
    for name, text in texts.items():
        if text is not None and options.find(name).type is Type.STRING:
            _check_writable(name, text)
    return options.parse(texts)


def _check_writable(name: str, text: str) -> None:
    """Names go into requests, which have room for so much of each."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidConfigError(name, f"{name} has no UTF-8 form: {text!r}") from None
    if size > _MAX_TEXT_BYTES:
        raise InvalidConfigError(name, f"{name} must have at most {_MAX_TEXT_BYTES} bytes, but has {size}")


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
