"""What one server allows its clients, and how often it may complain about them. No sockets here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

UNLIMITED = 2**31 - 1

OS_DEFAULT = -1
"""A socket buffer size that leaves the choice, and the automatic tuning, to the operating system."""


class CreationRate(Protocol):
    """How fast connections may come."""

    def record(self, size: int, now_ms: int) -> int:
        """So many have come; says for how many milliseconds the next ones have to wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """What one listener allows, within what the server does."""

    max_connections: int = UNLIMITED
    creation_rate: CreationRate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    max_request_bytes: int = 104_857_600
    max_connections: int = UNLIMITED
    max_connections_per_ip: int = UNLIMITED
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    creation_rate: CreationRate | None = None
    by_listener: Mapping[str, ListenerLimits] = field(default_factory=dict)
    protected_listener: str | None = None
    """Not bound by what all listeners share, if it is one of several: the brokers' own connections come there."""
    max_idle_ms: int = 600_000
    send_buffer_bytes: int = 1_048_576
    receive_buffer_bytes: int = OS_DEFAULT
    max_deferred_per_connection: int = 256
    """How many replies may wait behind a late one before later requests of the connection wait, too."""

    def max_connections_from(self, peer_host: str) -> int:
        return self.max_connections_per_ip_overrides.get(peer_host, self.max_connections_per_ip)


class ComplaintBudget:
    """Lets a few messages through per period, so that a hostile peer cannot fill the log of the server."""

    def __init__(self, *, per_period: int = 10, period_s: float = 10.0) -> None:
        self._per_period = per_period
        self._period_s = period_s
        self._period_start_s = float("-inf")
        self._spent = 0
        self._suppressed = 0

    def allow(self, now_s: float) -> bool:
        if now_s - self._period_start_s >= self._period_s:
            self._period_start_s = now_s
            self._spent = 0
        if self._spent >= self._per_period:
            self._suppressed += 1
            return False
        self._spent += 1
        return True

    def take_suppressed(self) -> int:
        """How many messages were held back since this was last asked."""
        suppressed, self._suppressed = self._suppressed, 0
        return suppressed
