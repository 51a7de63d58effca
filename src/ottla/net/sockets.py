"""What the calling side of a connection does with a socket itself, and what a refusal looks like."""

from __future__ import annotations

import errno
import re
import socket

_ERRNO = re.compile(r"\[Errno (\d+)\]")


def is_refusal(error: OSError) -> bool:
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
