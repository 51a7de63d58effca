"""Where an ensemble is, as `zookeeper.connect` says it: host:port pairs and at their end, perhaps, a path."""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.errors import InvalidConfigError

SETTING = "zookeeper.connect"
_DEFAULT_PORT = 2181


class EnsembleAddress(NamedTuple):
    hosts: str
    """host:port,host:port"""
    chroot: str
    """The path below which the cluster's nodes are, without a slash at its end; empty if that is the root."""

    @classmethod
    def parse(cls, text: str) -> EnsembleAddress:
        """Raises InvalidConfigError with a sentence about what is wrong."""
        servers, slash, path = text.strip().partition("/")
        hosts = [_host_and_port(part.strip(), text) for part in servers.split(",")]
        chroot = (slash + path).rstrip("/")
        if "//" in chroot or any(name in (".", "..") for name in chroot.split("/")):
            raise InvalidConfigError(SETTING, f"{SETTING}: {slash + path!r} is not a path of ZooKeeper")
        return cls(",".join(hosts), chroot)

    def __str__(self) -> str:
        return self.hosts + self.chroot


def _host_and_port(part: str, text: str) -> str:
    host, colon, port = part.rpartition(":")
    if not colon or part.endswith("]"):
        host, port = part, str(_DEFAULT_PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise InvalidConfigError(
            SETTING, f"{SETTING}: {text!r} is not of the form host:port,host:port or host:port,host:port/path"
        )
    return f"{host}:{port}"
