"""A real ZooKeeper for tests: servers out of PySpark's jars, each stopped or killed by its process id."""

from __future__ import annotations

import importlib.util
import itertools
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.base.errors import StartError
from ottla.cli.zookeeper.ensemble import Server, command, servers, write_settings
from tests.ports import free_ports

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30
_TICK_MS = 500
"""Sessions can be as short as two of these."""

_numbers = itertools.count()


class ZooKeeperProcesses:
    """An ensemble. `start` waits until it serves; servers are numbered from 1 on.

    `given` are servers elsewhere than on loopback; `prefix` makes the command that runs the one of this number there.
    """

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 1,
        settings: Mapping[str, str] | None = None,
        java_options: str = "",
        given: Sequence[Server] = (),
        prefix: Callable[[int], list[str]] = lambda number: [],
    ) -> None:
        self._directory = directory
        self._environment = {**os.environ, "JAVA_TOOL_OPTIONS": java_options}
        self.settings = {"tickTime": str(_TICK_MS), **(settings or {})}
        self._prefix = prefix
        self.servers = list(given) or servers(nodes, free_ports(3 * nodes))
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def connect(self) -> str:
        return ",".join(f"{server.host}:{server.port}" for server in self.servers)

    def new_cluster(self) -> str:
        """A `zookeeper.connect` with a path that nobody uses yet."""
        return f"{self.connect}/test-{os.getpid()}-{next(_numbers)}"

    def start(self, *extra_jars: str) -> ZooKeeperProcesses:
        for server in self.servers:
            self.start_one(server.number, *extra_jars)
        self.wait_until_serving()
        return self

    def start_one(self, number: int, *extra_jars: str) -> None:
        server = self.servers[number - 1]
        directory = self._directory / f"server-{number}"
        settings = write_settings(server, self.servers, directory, self.settings)
        with self._log_file(number).open("ab") as log:
            self._running[number] = subprocess.Popen(
                [*self._prefix(number), *command(settings, *extra_jars)],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=self._environment,
            )

    def wait_until_serving(self) -> None:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        for number, process in self._running.items():
            while not _is_serving(self.servers[number - 1]):
                if process.poll() is not None or time.monotonic() > deadline_s:
                    log = self._log_file(number).read_text()
                    self.kill()
                    raise RuntimeError(f"ZooKeeper server {number} did not start:\n{log}")
                time.sleep(0.05)

    def leader(self) -> int:
        (number,) = [number for number in self._running if b"Mode: leader" in _ask(self.servers[number - 1])]
        return number

    def pid(self, number: int) -> int:
        return self._running[number].pid

    def kill(self, *numbers: int) -> None:
        """All of them, if none is named."""
        for number in numbers or tuple(self._running):
            process = self._running.pop(number)
            process.send_signal(signal.SIGKILL)
            process.wait(STOP_TIMEOUT_S)

    def _log_file(self, number: int) -> Path:
        self._directory.mkdir(parents=True, exist_ok=True)
        return self._directory / f"server-{number}.log"


def _ask(server: Server) -> bytes:
    answer = b""
    with suppress(OSError), socket.create_connection((server.host, server.port), 1) as connection:
        connection.sendall(b"srvr")
        while part := connection.recv(65_536):
            answer += part
    return answer


def _is_serving(server: Server) -> bool:
    return _ask(server).startswith(b"Zookeeper version")


def require_zookeeper(directory: Path) -> None:
    """Skips the test if no ZooKeeper can run here."""
    if importlib.util.find_spec("kazoo") is None:
        pytest.skip("kazoo is not installed")
    try:
        command(directory / "zoo.cfg")
    except StartError as e:
        pytest.skip(str(e))
