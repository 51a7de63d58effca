"""A real broker process for tests: started on a free port, stopped or killed by its process id."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path

from tests.ports import free_port

START_TIMEOUT_S = 30
STOP_TIMEOUT_S = 30
_LISTENING = re.compile(r"listening on \w+://([^:]+):(\d+)")


class BrokerProcess:
    """`python -m ottla start` with its data in `data_dir`.

    Its port is kept on restarts, so it is none of those that the system gives to outgoing connections: a client that
    tries again and again while nobody listens would get it one day, and be connected to itself.

    Of several listeners in `overrides`, `port` is the first one's.
    """

    def __init__(self, data_dir: Path, overrides: dict[str, str] | None = None) -> None:
        self.data_dir = data_dir
        self.overrides = overrides or {}
        self.environment: dict[str, str] = {}
        self.prefix: list[str] = []
        """A command that runs another, before the broker's."""
        self.port = free_port()
        self.log_lines: deque[str] = deque(maxlen=1000)
        self._tracebacks: list[str] = []
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> BrokerProcess:
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.data_dir),
            # Records of tests have timestamps of long ago.
            "log.retention.check.interval.ms": "86400000",
            # As in Kafka's sample file: nobody waits three seconds for members that do not come.
            "group.initial.rebalance.delay.ms": "0",
            **self.overrides,
        }
        command = [*self.prefix, sys.executable, "-m", "ottla", "start"]
        for name, value in settings.items():
            command += ["--override", f"{name}={value}"]
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **self.environment},
        )
        listening = threading.Event()
        self._reader = threading.Thread(target=self._read_output, args=(self._process, listening), daemon=True)
        self._reader.start()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not listening.wait(0.05):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError("the broker did not start:\n" + "\n".join(self.log_lines))
        return self

    def _read_output(self, process: subprocess.Popen[str], listening: threading.Event) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.log_lines.append(line.rstrip("\n"))
            if "Traceback" in line:
                self._tracebacks.append(line)
            found = _LISTENING.search(line)
            if found and not listening.is_set():
                self.port = int(found.group(2))
                listening.set()

    def kill(self) -> None:
        """kill -9: what the process had not written is gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, as an operator stops it; returns the exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(number)
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_TIMEOUT_S)
            raise AssertionError("the broker did not stop:\n" + "\n".join(self.log_lines)) from None
        if self._reader is not None:
            self._reader.join(5)
        return code

    def tracebacks(self) -> list[str]:
        return list(self._tracebacks)
