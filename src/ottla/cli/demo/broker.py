"""A broker of its own process, for as long as a block lasts."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from ottla.base.errors import StartError

_START_TIMEOUT_S = 30
_STOP_TIMEOUT_S = 30


class OwnBroker:
    def __init__(self, port: int, log_dir: Path) -> None:
        self.bootstrap_servers = f"127.0.0.1:{port}"
        self._log_dir = log_dir
        self._process: subprocess.Popen[bytes] | None = None
        self._output = log_dir.parent / "broker.log"

    def __enter__(self) -> Self:
        self._log_dir.mkdir(parents=True, exist_ok=True)
        settings = {
            "listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "log.dirs": str(self._log_dir),
            # Nobody who tries it out has a second consumer on its way, so the first need not wait for one.
            "group.initial.rebalance.delay.ms": "0",
        }
        command = [sys.executable, "-m", "ottla", "start"]
        for name, value in settings.items():
            command += ["--override", f"{name}={value}"]
        with self._output.open("wb") as output:
            # In a session of its own, because Ctrl-C is for whoever uses the broker: it has to be the last to go.
            self._process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        try:
            self._wait_until_it_listens(self._process)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def wait(self, timeout_s: float) -> None:
        """Returns after a while; StartError if the broker has gone meanwhile."""
        assert self._process is not None
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return
        raise StartError(f"the broker has stopped: {self._last_words()}")

    def _wait_until_it_listens(self, process: subprocess.Popen[bytes]) -> None:
        # Its own word counts: if the port is taken, somebody else would answer there.
        deadline = time.monotonic() + _START_TIMEOUT_S
        while "listening on" not in self._output.read_text(errors="replace"):
            if process.poll() is not None:
                raise StartError(f"the broker did not start: {self._last_words()}")
            if time.monotonic() > deadline:
                raise StartError(f"the broker does not come up; see {self._output}")
            time.sleep(0.05)

    def _last_words(self) -> str:
        lines = self._output.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"see {self._output}"

    def _stop(self) -> None:
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
