"""The sink and the source in Python, for machines without a C compiler. See native/limits.c for what they do."""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
from pathlib import Path

RECEIVE_BYTES = 1 << 20


def listen() -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(listener.getsockname()[1], flush=True)
    return listener


class Peer:
    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.left = 0
        self.length = b""

    def frames_ended(self, data: memoryview) -> int:
        """How many frames end within these bytes."""
        ended = 0
        at = 0
        while at < len(data):
            if self.left:
                step = min(self.left, len(data) - at)
                at += step
                self.left -= step
                ended += not self.left
                continue
            taken = 4 - len(self.length)
            self.length += bytes(data[at : at + taken])
            at += taken
            if len(self.length) == 4:
                (self.left,) = struct.unpack(">i", self.length)
                self.length = b""
        return ended


def sink(directory: Path, reply_bytes: int) -> None:
    listener = listen()
    reply = struct.pack(">i", reply_bytes - 4) + bytes(reply_bytes - 4)
    buffer = memoryview(bytearray(RECEIVE_BYTES))
    file = os.open(directory / "sink.bin", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    peers: dict[int, Peer] = {}
    poll = select.epoll()
    poll.register(listener.fileno(), select.EPOLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd == listener.fileno():
                accepted, _address = listener.accept()
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peers[accepted.fileno()] = Peer(accepted)
                poll.register(accepted.fileno(), select.EPOLLIN)
                continue
            peer = peers[fd]
            try:
                count = peer.socket.recv_into(buffer)
            except OSError:
                count = 0
            if count:
                os.write(file, buffer[:count])
                due = peer.frames_ended(buffer[:count])
                if due:
                    peer.socket.sendall(reply * due)
                continue
            poll.unregister(fd)
            peers.pop(fd).socket.close()


def source(path: Path, reply_bytes: int) -> None:
    listener = listen()
    file = os.open(path, os.O_RDONLY)
    size = path.stat().st_size
    while True:
        sock, _ = listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        at = 0
        try:
            while sock.recv(65536):
                if at + reply_bytes > size:
                    at = 0
                sock.send(struct.pack(">i", reply_bytes), socket.MSG_MORE)
                end = at + reply_bytes
                while at < end:
                    at += os.sendfile(sock.fileno(), file, at, end - at)
        except OSError:
            pass  # The load has what it wanted and is gone; the next one is waiting.
        sock.close()


if __name__ == "__main__":
    role, place, size_text = sys.argv[1:]
    {"sink": sink, "source": source}[role](Path(place), int(size_text))
