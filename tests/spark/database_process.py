"""A database server for tests: its own data directory, a free port, stopped by its process id."""

from __future__ import annotations

import signal
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self

from tests.ports import free_port

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30


class DatabaseProcess(ABC):
    stop_signal = signal.SIGTERM
    """Ends sessions and leaves the data directory clean."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def prepare(self) -> None:
        """Makes the data directory."""

    @abstractmethod
    def command(self) -> list[str]: ...

    @abstractmethod
    def answers(self) -> bool:
        """Whether a client can connect."""

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def start(self) -> Self:
        if not self.data.exists():
            self.prepare()
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd="/", start_new_session=True
            )
        self._wait_until_ready(self._process)
        return self

    def run(self, command: list[str]) -> None:
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=START_TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.answers():
            if process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                log = (self.directory / "server.log").read_text()
                raise RuntimeError(f"the server did not start:\n{log}")
            time.sleep(0.1)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(self.stop_signal)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """As a crash would end it; `start` has it recover."""
        process, self._process = self._process, None
        assert process is not None
        process.kill()
        process.wait(STOP_TIMEOUT_S)
