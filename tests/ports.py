"""Ports for processes that have to be told theirs beforehand, and take a while until they listen."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from functools import cache
from pathlib import Path

_FIRST, _LAST = 10_000, 32_000
"""Below those that the system gives to outgoing connections: one of these could take the port in the meantime, and with
several test processes there are thousands of them."""

_drawing = random.SystemRandom()
_drawn: set[int] = set()


def free_port() -> int:
    return free_ports(1)


def free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody listens on, and that no other test of this machine was given."""
    while True:
        first = _drawing.randrange(_FIRST, _LAST - count)
        if all(_take(port) for port in range(first, first + count)):
            return first


def _take(port: int) -> bool:
    if port in _drawn or not _is_free(port):
        return False
    try:
        # Until this process ends: what it starts with the port may listen, end and start again all the time.
        fcntl.lockf(_register(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _drawn.add(port)
    return True


@cache
def _register() -> int:
    """A file of which every byte stands for a port."""
    return os.open(Path(tempfile.gettempdir()) / "ottla-test-ports", os.O_RDWR | os.O_CREAT, 0o666)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
