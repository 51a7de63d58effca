"""Ports for processes that have to be told theirs beforehand, and take a while until they listen."""

from __future__ import annotations

import random
import socket

_FIRST, _LAST = 10_000, 32_000
"""Below those that the system gives to outgoing connections: one of these could take the port in the meantime, and with
several test processes there are thousands of them."""

_drawing = random.SystemRandom()


def free_port() -> int:
    return free_ports(1)


def free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody listens on."""
    while True:
        first = _drawing.randrange(_FIRST, _LAST - count)
        if all(_is_free(port) for port in range(first, first + count)):
            return first


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
