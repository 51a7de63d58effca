"""How kazoo's thread hands over what it has to say, and how it connects.

Kazoo has a thread for watches and one for results, so that the two overtake each other. Here both go to the event loop
through one queue: a watch is heard of before the answer that shows the change, as ZooKeeper promises.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kazoo.exceptions import SessionClosedRequireSaslError
from kazoo.handlers.threading import SequentialThreadingHandler

log = logging.getLogger(__name__)


class LoopQueue:
    """What is put in by any thread is done on the event loop, in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._waiting: list[Callable[[], object]] = []

    def put(self, work: Callable[[], object]) -> None:
        with self._lock:
            self._waiting.append(work)
            is_first = len(self._waiting) == 1
        if is_first:
            with suppress(RuntimeError):  # the loop is closed: nobody is there who could want to know
                self._loop.call_soon_threadsafe(self._do_all)

    def _do_all(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for work in waiting:
            try:
                work()
            except Exception:
                log.exception("an answer of ZooKeeper could not be dealt with")


class LoopHandler(SequentialThreadingHandler):  # type: ignore[misc]
    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, connect_timeout_ms: int, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__()
        self.queue = self.callback_queue = self.completion_queue = LoopQueue(loop)
        self.last_problem: str | None = None
        """Why the last attempt to connect failed."""
        self._connect_timeout_s = connect_timeout_ms / 1000
        self._tls = tls

    @property
    def running(self) -> bool:
        # If it were ever false, kazoo would call back from its own thread.
        return True

    def start(self) -> None:
        """There are no threads to start but that of the connection, which kazoo starts itself."""

    def stop(self) -> None:
        """Nor are there any to stop."""

    def spawn(self, func: Callable[..., object], *args: Any, **kwargs: Any) -> Any:
        """Kazoo's thread ends with this exception; the store hears of it as the end of the session."""

        def run() -> None:
            with suppress(SessionClosedRequireSaslError):
                func(*args, **kwargs)

        return super().spawn(run)

    def create_connection(self, *, address: tuple[str, int], hostname: str, **others: Any) -> socket.socket:
        """Within a share of the session's time, so that one dead server does not cost the session."""
        try:
            connected = socket.create_connection(address, self._connect_timeout_s)
            try:
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._tls is not None:
                    connected = self._tls.wrap_socket(connected, server_hostname=hostname)
            except BaseException:
                connected.close()
                raise
        except OSError as e:
            self.last_problem = f"{address[0]}:{address[1]}: {e.strerror or e}"
            raise
        self.last_problem = None
        return connected
