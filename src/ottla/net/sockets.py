"""What the calling side of a connection does with a socket itself, and what a refusal looks like."""

from __future__ import annotations

import errno
import math
import re
import select
import socket
from collections.abc import Iterable

_ERRNO = re.compile(r"\[Errno (\d+)\]")


def why_not_connected(error: OSError | UnicodeError) -> str:
    # A UnicodeError says that it cannot be a name: a part of it is empty, or too long.
    if isinstance(error, socket.gaierror | UnicodeError):
        return "the host name is not known"
    return "nothing listens there (connection refused)" if _is_refusal(error) else error.strerror or str(error)


def _is_refusal(error: OSError) -> bool:
    """Where a name has several addresses, asyncio has put what each of them said into one text."""
    codes = {int(code) for code in _ERRNO.findall(str(error))}
    return isinstance(error, ConnectionRefusedError) or codes == {errno.ECONNREFUSED}


def send_now(sock: socket.socket, parts: list[bytes | memoryview]) -> list[bytes | memoryview]:
    """Sends as much as the socket takes; returns what is left. An error is left for the event loop to find."""
    try:
        sent = sock.sendmsg(parts)
    except OSError:
        return parts
    left: list[bytes | memoryview] = []
    for part in parts:
        if sent < len(part):
            left.append(memoryview(part)[sent:])
        sent = max(0, sent - len(part))
    return left


def wait_readable(sockets: Iterable[socket.socket], wait_s: float) -> bool:
    """Whether one of them has something to receive, or an error to tell, within that time."""
    poller = select.poll()
    for sock in sockets:
        poller.register(sock, select.POLLIN)
    return bool(poller.poll(math.ceil(wait_s * 1000)))
