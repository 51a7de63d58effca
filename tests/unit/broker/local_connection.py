"""What a handler looks at of a connection, without a socket."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class LocalConnection:
    principal: str = "User:ANONYMOUS"
    peer_host: str = "127.0.0.1"
    listener: str = "PLAINTEXT"
