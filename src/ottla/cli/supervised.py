"""Processes that a command starts and looks after until Ctrl-C: what local brokers and local ZooKeepers share."""

from __future__ import annotations

import asyncio
import ctypes
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ottla.base.errors import StartError

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30
_RESTART_S, _RESTART_S_MAX = 0.2, 10.0
_STEADY_S = 3
"""A process that ran this long was started well, and is started again at once."""
_LOG_TAIL_LINES = 5
_PR_SET_PDEATHSIG = 1


class Program(NamedTuple):
    name: str
    """As messages call it."""
    command: Sequence[str]
    directory: Path
    """Made if it is missing; the process id is written there."""
    log_file: Path
    until_ready: Callable[[asyncio.subprocess.Process], Awaitable[None]]
    """Raises EOFError if the process ends before."""
    dies_with_parent: bool = False
    """For programs that cannot notice by themselves that nobody looks after them any more."""


async def supervise(programs: Sequence[Program], *, restarts: bool, announce: Callable[[], None]) -> None:
    """Runs all of them until SIGINT or SIGTERM. Raises StartError if one cannot be started; then none is left."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    processes = [_SupervisedProcess(program) for program in programs]
    try:
        await _start_all(processes)
        announce()
        watching = [asyncio.create_task(process.look_after(stop, restarts=restarts)) for process in processes]
        await stop.wait()
        print("ottla: stopping", flush=True)
        await asyncio.gather(*(process.stop() for process in processes))
        await asyncio.gather(*watching)
    finally:
        for process in processes:
            process.kill()


async def _start_all(processes: Sequence[_SupervisedProcess]) -> None:
    """Raises the StartError of the first that cannot start; the others are not waited for."""
    starting = [asyncio.create_task(process.start()) for process in processes]
    try:
        await asyncio.gather(*starting)
    except BaseException:
        for task in starting:
            task.cancel()
        await asyncio.gather(*starting, return_exceptions=True)
        raise


class _SupervisedProcess:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._name = program.name
        self._process: asyncio.subprocess.Process | None = None
        self._started_s = 0.0

    async def start(self) -> None:
        """Returns when the process does its work; raises StartError if it never does."""
        program = self._program
        program.directory.mkdir(parents=True, exist_ok=True)
        with program.log_file.open("ab") as log_file:
            self._process = await asyncio.create_subprocess_exec(
                *program.command,
                stdout=asyncio.subprocess.PIPE,
                stderr=log_file,
                start_new_session=True,
                preexec_fn=_end_with_parent if program.dies_with_parent else None,
            )
        self._started_s = time.monotonic()
        (program.directory / "pid").write_text(f"{self._process.pid}\n")
        try:
            await asyncio.wait_for(program.until_ready(self._process), START_TIMEOUT_S)
        except EOFError:
            raise StartError(f"{self._name} did not start{self._tail()}") from None
        except TimeoutError:
            raise StartError(f"{self._name} did not start within {START_TIMEOUT_S} s{self._tail()}") from None

    def _tail(self) -> str:
        with suppress(OSError):
            lines = self._program.log_file.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
            return "".join(f"\n  {line}" for line in (*lines, f"All of it is in {self._program.log_file}."))
        return ""

    async def look_after(self, stop: asyncio.Event, *, restarts: bool) -> None:
        """Starts the process again whenever it has died."""
        wait_s = _RESTART_S
        while not stop.is_set():
            assert self._process is not None
            code = await self._process.wait()
            if stop.is_set():
                return
            print(f"ottla: {self._name} {_ending(code)}{self._tail()}", file=sys.stderr, flush=True)
            if not restarts:
                return
            wait_s = _RESTART_S if time.monotonic() - self._started_s > _STEADY_S else min(wait_s * 2, _RESTART_S_MAX)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), wait_s)
                return
            try:
                await self.start()
                print(f"ottla: {self._name} was started again", file=sys.stderr, flush=True)
            except StartError as e:
                print(f"ottla: {e}", file=sys.stderr, flush=True)

    async def stop(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
        except TimeoutError:
            print(f"ottla: {self._name} does not stop and is killed", file=sys.stderr, flush=True)
            self.kill()
            await process.wait()

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()


def _ending(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _load_prctl() -> Callable[[int, int], int] | None:
    if sys.platform != "linux":
        return None
    prctl: Callable[[int, int], int] = ctypes.CDLL(None).prctl
    return prctl


_prctl = _load_prctl()
"""Found before there are children: between fork and exec nothing may be loaded."""


def _end_with_parent() -> None:
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
