"""What the broker looks at of a connection, without a socket."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ottla.broker.dispatch import Dispatch
from ottla.broker.node import Broker


@dataclass(eq=False)
class LocalConnection:
    peer_host: str = "127.0.0.1"
    listener: str = "PLAINTEXT"
    state: Any = None
    mutes_ms: list[int] = field(default_factory=list)
    late_replies: int = 0

    def mute(self, duration_ms: int) -> None:
        self.mutes_ms.append(duration_ms)

    def late_replies_came(self) -> None:
        self.late_replies += 1


def connected(broker: Broker, **fields: Any) -> Any:
    """A connection as the broker's handlers find it."""
    connection: Any = LocalConnection(**fields)
    Dispatch(broker, broker.handlers).opened(connection)
    return connection
