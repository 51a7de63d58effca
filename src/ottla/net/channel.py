"""The bytes of one accepted socket: receive, send, and file ranges. No frames and no event loop.

A channel is the seam for encryption: a variant that encrypts offers the same methods and sends file ranges by
reading them. Methods raise BlockingIOError when the socket is not ready, and OSError when it is lost.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from typing import Protocol

from ottla.base.types import FileSlice
from ottla.net.file_views import FileViews

_NO_SENDFILE = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})


class FileTruncatedError(OSError):
    """A file became shorter than a range of it that was promised to a peer: the rest of the reply does not exist."""

    def __init__(self, file_slice: FileSlice) -> None:
        super().__init__(errno.EIO, f"the file ends before byte {file_slice.position + file_slice.length} of a reply")


def read_slice(file_slice: FileSlice) -> bytes:
    data = os.pread(file_slice.file.fd, file_slice.length, file_slice.position)
    if len(data) < file_slice.length:
        raise FileTruncatedError(file_slice)
    return data


class Channel(Protocol):
    receive_into: Callable[[memoryview], int]
    """Zero means that the peer has closed its side."""

    send: Callable[[bytes | memoryview, int], int]
    """Takes socket flags, of which MSG_MORE says that further bytes follow at once."""

    def send_file(self, file_slice: FileSlice, max_bytes: int) -> int:
        """Sends up to `max_bytes` of the range; returns how many bytes went out, never zero."""

    def peer_has_closed(self) -> bool:
        """Whether the end of the stream is the next thing to be read, without reading anything."""

    def fileno(self) -> int: ...

    def close(self) -> None: ...


class PlainChannel:
    """An unencrypted socket. The bound methods of the socket are called directly: nothing stands in between.

    File ranges go to other machines with sendfile. A reader on this machine is woken by every 64 KB that sendfile hands
    over, and empties the socket faster than sendfile fills it: it and we take turns all the time. Sending the range
    from memory, at once, is faster for both sides.
    """

    __slots__ = ("_fd", "_file_views", "_has_sendfile", "_socket", "receive_into", "send")

    def __init__(self, sock: socket.socket, file_views: FileViews, *, is_peer_local: bool) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        self._file_views = file_views
        self._has_sendfile = not is_peer_local
        self.receive_into: Callable[[memoryview], int] = sock.recv_into
        self.send: Callable[[bytes | memoryview, int], int] = sock.send

    def send_file(self, file_slice: FileSlice, max_bytes: int) -> int:
        count = min(file_slice.length, max_bytes)
        if self._has_sendfile:
            try:
                sent = os.sendfile(self._fd, file_slice.file.fd, file_slice.position, count)
            except OSError as e:
                if e.errno not in _NO_SENDFILE:
                    raise
                self._has_sendfile = False
            else:
                if sent == 0:
                    raise FileTruncatedError(file_slice)
                return sent
        return self._send_from_memory(file_slice, count)

    def _send_from_memory(self, file_slice: FileSlice, count: int) -> int:
        view = self._file_views.view(file_slice, count)
        if not view:
            raise FileTruncatedError(file_slice)
        try:
            return self.send(view, 0)
        except OSError as e:
            if e.errno == errno.EFAULT:
                raise FileTruncatedError(file_slice) from e
            raise

    def peer_has_closed(self) -> bool:
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        self._socket.close()
