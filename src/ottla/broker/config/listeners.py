"""What `listeners` and its relatives mean: names, protocols and addresses, checked against each other."""

from __future__ import annotations

import re
from typing import NamedTuple

from ottla.base.errors import InvalidConfigError

_LISTENER = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]+)://(?:\[(?P<v6>[0-9A-Fa-f:.%]*)\]|(?P<host>[^:\[\]/]*)):(?P<port>\d+)/?"
)
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_EVERY_INTERFACE = ("", "0.0.0.0", "::")


class Listener(NamedTuple):
    name: str
    protocol: str
    host: str
    """Empty: every interface."""
    port: int

    @property
    def binds_every_interface(self) -> bool:
        return self.host in _EVERY_INTERFACE

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_protocol_map(key: str, text: str) -> dict[str, str]:
    """Listener name to security protocol, from `NAME:PROTOCOL,…`."""
    protocols: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = entry.partition(":")
        name, protocol = name.strip().upper(), protocol.strip().upper()
        if not colon or protocol not in _PROTOCOLS:
            raise InvalidConfigError(
                key, f"{key}: {entry!r} is not of the form NAME:PROTOCOL with one of {', '.join(_PROTOCOLS)}"
            )
        if name in protocols:
            raise InvalidConfigError(key, f"{key}: the listener {name} is mapped twice")
        protocols[name] = protocol
    return protocols


def parse_listeners(key: str, text: str, protocols: dict[str, str]) -> list[Listener]:
    """Listeners from `NAME://host:port,…`; each needs its own name, and a known security protocol."""
    listeners: list[Listener] = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        match = _LISTENER.fullmatch(entry)
        if match is None or int(match["port"]) > 65535:
            raise InvalidConfigError(key, f"{key}: {entry!r} is not of the form NAME://host:port")
        name = match["name"].upper()
        if name not in protocols:
            raise InvalidConfigError(
                key, f"{key}: listener.security.protocol.map does not say which protocol {name} stands for"
            )
        if any(listener.name == name for listener in listeners):
            raise InvalidConfigError(key, f"{key}: the listener {name} is given twice")
        host = match["v6"] if match["v6"] is not None else match["host"]
        listeners.append(Listener(name, protocols[name], host, int(match["port"])))
    if not listeners:
        raise InvalidConfigError(key, f"{key} must name at least one listener, as NAME://host:port")
    return listeners


def check_ports(key: str, listeners: list[Listener]) -> None:
    """Two listeners on one port are a slip, unless they bind different addresses (KIP-797)."""
    taken: dict[tuple[str, int], str] = {}
    for listener in listeners:
        address = (listener.host, listener.port)
        if listener.port and address in taken:
            raise InvalidConfigError(
                key, f"{key}: {taken[address]} and {listener.name} cannot share port {listener.port}"
            )
        taken[address] = listener.name


def check_advertised(advertised: list[Listener], listeners: list[Listener]) -> None:
    key = "advertised.listeners"
    bound = {listener.name for listener in listeners}
    for listener in advertised:
        if listener.name not in bound:
            raise InvalidConfigError(key, f"{key}: {listener.name} is not one of the listeners")
        if listener.host in ("0.0.0.0", "::"):
            raise InvalidConfigError(
                key, f"{key}: clients cannot connect to {listener.host}; name a host they can reach instead"
            )


def host_name() -> str:
    """This machine's name if it resolves, else localhost: what an empty host is advertised as."""
    import socket  # not needed by whoever only parses

    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return "localhost"
    return name
