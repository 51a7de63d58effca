"""What all connections of one server share: its loop, its service, its limits and counts, the memory frames lie in."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.net.limits import ComplaintBudget, ConnectionLimits
from ottla.net.service import Service
from ottla.net.turns import EpollTurns, Turns
from ottla.wire.frame import BufferPool

if TYPE_CHECKING:
    from ottla.net.server_connection import ClientConnection

_log = logging.getLogger(__name__)

MakeTurns = Callable[[asyncio.AbstractEventLoop, Service, Callable[[], None]], Turns]


@dataclass(slots=True)
class ServerStats:
    """Plain counts for whoever publishes metrics."""

    open_connections: int = 0
    accepted_total: int = 0
    refused_total: int = 0
    closed_idle_total: int = 0
    protocol_errors_total: int = 0
    service_failures_total: int = 0
    requests_total: int = 0
    received_bytes_total: int = 0
    sent_bytes_total: int = 0


@dataclass(slots=True)
class ConnectionContext:
    loop: asyncio.AbstractEventLoop
    service: Service
    limits: ConnectionLimits
    on_closed: Callable[[ClientConnection], None]
    make_turns: MakeTurns = EpollTurns
    turns: Turns = field(init=False)
    stats: ServerStats = field(default_factory=ServerStats)
    complaints: ComplaintBudget = field(default_factory=ComplaintBudget)
    buffers: BufferPool = field(default_factory=BufferPool)

    def __post_init__(self) -> None:
        self.turns = self.make_turns(self.loop, self.service, self.buffers.reuse)

    def complain(self, message: str, *arguments: object) -> None:
        if self.complaints.allow(self.loop.time()):
            suppressed = self.complaints.take_suppressed()
            _log.warning(message + (f" ({suppressed} like it not shown)" if suppressed else ""), *arguments)
