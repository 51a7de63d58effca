"""Processes that are measured: the broker, the limits, the mock cluster. Each is stopped when its block ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.frames import ask_api_versions
from bench.programs import Programs

BROKER_COMMAND = [sys.executable, "-m", "ottla.cli.main", "start"]
GUARDED_COMMAND = [sys.executable, "-m", "bench.guarded_broker"]
STOP_TIMEOUT_S = 30
PARTITIONS = 8
"""Of every topic on the broker. The mock cluster has four."""


@dataclass(frozen=True)
class Peer:
    name: str
    port: int
    process: subprocess.Popen[str]
    started_in_ms: float = 0.0

    def cpu_s(self) -> float:
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def rss_mb(self) -> float:
        return float(psutil.Process(self.process.pid).memory_info().rss / 1e6)

    def peak_rss_mb(self) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
        raise RuntimeError("the kernel does not say what the peak of the memory was")


@contextmanager
def running(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def _announcing_its_port(name: str, command: list[str]) -> Iterator[Peer]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    with running(process):
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.strip().isdigit():
            raise RuntimeError(f"the {name} did not start: {' '.join(command)}")
        yield Peer(name, int(line), process)


def sink(programs: Programs, directory: Path, reply_bytes: int) -> AbstractContextManager[Peer]:
    return _announcing_its_port("sink", [*programs.limits, "sink", str(directory), str(reply_bytes)])


def source(programs: Programs, file: Path, reply_bytes: int) -> AbstractContextManager[Peer]:
    return _announcing_its_port("source", [*programs.limits, "source", str(file), str(reply_bytes)])


def mock_cluster() -> AbstractContextManager[Peer]:
    return _announcing_its_port("mock", [sys.executable, "-m", "bench.mock_cluster"])


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@contextmanager
def broker(directory: Path, *, is_guarded: bool = False, settings: dict[str, str] | None = None) -> Iterator[Peer]:
    """A broker as a user would start it, or one with rules and quotas, or with other `settings`.

    `started_in_ms` runs until it has answered its first client.
    """
    port = free_port()
    overrides = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(directory),
        "num.partitions": str(PARTITIONS),
        "log.segment.delete.delay.ms": "0",
        **(settings or {}),
    }
    program = GUARDED_COMMAND if is_guarded else BROKER_COMMAND
    command = [*program, *(part for item in overrides.items() for part in ("--override", "=".join(item)))]
    log = directory.with_suffix(".out")
    begun_s = time.perf_counter()
    # An installed package is compiled once. Without its cache every start would be measured with compiling it.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, text=True, env=environment)
    with running(process):
        started_in_ms = first_answer(process, port, begun_s, 30)
        if started_in_ms is None:
            raise RuntimeError(f"the broker did not start:\n{log.read_text()[-2000:]}")
        yield Peer("broker", port, process, started_in_ms)


def first_answer(process: subprocess.Popen[str], port: int, begun_s: float, timeout_s: float) -> float | None:
    """The milliseconds from `begun_s` until a client was answered; None if the process ended or took too long."""
    while time.perf_counter() < begun_s + timeout_s and process.poll() is None:
        try:
            ask_api_versions(port)
        except OSError:
            time.sleep(0.002)
            continue
        return (time.perf_counter() - begun_s) * 1000
    return None
