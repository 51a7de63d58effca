from __future__ import annotations

import socket

from ottla.net.sockets import wait_readable


def test_sockets_are_waited_for_together() -> None:
    near, far = zip(*(socket.socketpair() for _ in range(2)), strict=True)
    try:
        assert not wait_readable(near, 0.001)
        far[1].send(b"news")
        assert wait_readable(near, 30)
        near[1].recv(10)
        assert not wait_readable(near, 0.001)
        far[0].close()
        assert wait_readable(near, 30)
    finally:
        for sock in (*near, *far):
            sock.close()
