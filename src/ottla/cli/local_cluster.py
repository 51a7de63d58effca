"""`ottla start --brokers N`: a cluster on this machine, a process for each broker, looked after until Ctrl-C.

This process serves the metadata store and starts brokers again that have died. It holds no records.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ottla.base.errors import StartError
from ottla.log.dir_claim import lock_directory
from ottla.metadata.served.server import StoreServer

FIRST_ID = 1
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30
_RESTART_S, _RESTART_S_MAX = 0.2, 10.0
_STEADY_S = 3
"""A broker that ran this long was started well, and is started again at once."""
_STARTED = b"is listening on"
_LOG_TAIL_LINES = 5


class ClusterOptions(NamedTuple):
    brokers: int
    port: int
    data: Path
    restarts: bool
    overrides: Sequence[str] = ()
    properties: Path | None = None


def run_cluster(options: ClusterOptions) -> int:
    """Runs until SIGINT or SIGTERM; returns the exit code."""
    try:
        return asyncio.run(_run(options))
    except StartError as e:
        print(f"ottla: cannot start: {e}", file=sys.stderr)
        return 1


async def _run(options: ClusterOptions) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    lock = lock_directory(options.data)
    store = await StoreServer.start(options.data)
    brokers = [_BrokerProcess(FIRST_ID + place, options) for place in range(options.brokers)]
    try:
        await _start_all(brokers)
        _announce(options)
        watching = [asyncio.create_task(broker.look_after(stop)) for broker in brokers]
        await stop.wait()
        print("ottla: stopping", flush=True)
        await asyncio.gather(*(broker.stop() for broker in brokers))
        await asyncio.gather(*watching)
    finally:
        for broker in brokers:
            broker.kill()
        await store.close()
        os.close(lock)
    return 0


async def _start_all(brokers: Sequence[_BrokerProcess]) -> None:
    """Raises the StartError of the first that cannot start; the others are not waited for."""
    starting = [asyncio.create_task(broker.start()) for broker in brokers]
    try:
        await asyncio.gather(*starting)
    except BaseException:
        for task in starting:
            task.cancel()
        await asyncio.gather(*starting, return_exceptions=True)
        raise


def _announce(options: ClusterOptions) -> None:
    addresses = [f"127.0.0.1:{options.port + place}" for place in range(options.brokers)]
    for place, address in enumerate(addresses):
        print(f"ottla: broker {FIRST_ID + place} is listening on {address}")
    print(f"ottla: a cluster of {options.brokers} brokers, data and logs in {options.data}; Ctrl-C stops it")
    print(f"ottla: bootstrap servers: {','.join(addresses)}", flush=True)


class _BrokerProcess:
    def __init__(self, broker_id: int, options: ClusterOptions) -> None:
        self._broker_id = broker_id
        self._options = options
        self._directory = options.data / f"broker-{broker_id}"
        self._log_file = options.data / f"broker-{broker_id}.log"
        self._process: asyncio.subprocess.Process | None = None
        self._started_s = 0.0

    async def start(self) -> None:
        """Returns when the broker can be connected to; raises StartError if it never can."""
        self._directory.mkdir(parents=True, exist_ok=True)
        with self._log_file.open("ab") as log_file:
            self._process = await asyncio.create_subprocess_exec(
                *self._command(), stdout=asyncio.subprocess.PIPE, stderr=log_file, start_new_session=True
            )
        self._started_s = time.monotonic()
        (self._directory / "pid").write_text(f"{self._process.pid}\n")
        try:
            await asyncio.wait_for(self._until_listening(), START_TIMEOUT_S)
        except TimeoutError:
            raise StartError(
                f"broker {self._broker_id} did not start within {START_TIMEOUT_S} s{self._tail()}"
            ) from None

    def _command(self) -> list[str]:
        options = self._options
        settings = [
            # All stop together: the last has nobody to hand over to, and need not try for long.
            "controlled.shutdown.retry.backoff.ms=200",
            *options.overrides,
            f"broker.id={self._broker_id}",
            f"listeners=PLAINTEXT://127.0.0.1:{options.port + self._broker_id - FIRST_ID}",
            f"log.dirs={self._directory}",
            f"ottla.cluster.dir={options.data}",
        ]
        command = [sys.executable, "-m", "ottla", "start"]
        if options.properties is not None:
            command.append(str(options.properties))
        for setting in settings:
            command += ["--override", setting]
        return command

    async def _until_listening(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        while _STARTED not in (line := await self._process.stdout.readline()):
            if not line:
                raise StartError(f"broker {self._broker_id} did not start{self._tail()}")

    def _tail(self) -> str:
        with suppress(OSError):
            lines = self._log_file.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
            return "".join(f"\n  {line}" for line in (*lines, f"All of it is in {self._log_file}."))
        return ""

    async def look_after(self, stop: asyncio.Event) -> None:
        """Starts the broker again whenever it has died."""
        wait_s = _RESTART_S
        while not stop.is_set():
            assert self._process is not None
            code = await self._process.wait()
            if stop.is_set():
                return
            print(f"ottla: broker {self._broker_id} {_ending(code)}{self._tail()}", file=sys.stderr, flush=True)
            if not self._options.restarts:
                return
            wait_s = _RESTART_S if time.monotonic() - self._started_s > _STEADY_S else min(wait_s * 2, _RESTART_S_MAX)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), wait_s)
                return
            try:
                await self.start()
                print(f"ottla: broker {self._broker_id} was started again", file=sys.stderr, flush=True)
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
            print(f"ottla: broker {self._broker_id} does not stop and is killed", file=sys.stderr, flush=True)
            self.kill()
            await process.wait()

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()


def _ending(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
