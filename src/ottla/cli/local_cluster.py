"""`ottla start --brokers N`: a cluster on this machine, a process for each broker, looked after until Ctrl-C.

This process serves the metadata store, unless the brokers have a ZooKeeper, and starts brokers again that have died. It
holds no records.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ottla.base.errors import StartError
from ottla.cli.supervised import Program, supervise
from ottla.log.dir_claim import lock_directory
from ottla.metadata.served.server import StoreServer

FIRST_ID = 1
_STARTED = b"is listening on"


class ClusterOptions(NamedTuple):
    brokers: int
    port: int
    data: Path
    restarts: bool
    overrides: Sequence[str] = ()
    properties: Path | None = None
    serves_store: bool = True
    """Whether this process is the metadata store, too."""


def run_cluster(options: ClusterOptions) -> int:
    """Runs until SIGINT or SIGTERM; returns the exit code."""
    try:
        asyncio.run(_run(options))
    except StartError as e:
        print(f"ottla: cannot start: {e}", file=sys.stderr)
        return 1
    return 0


async def _run(options: ClusterOptions) -> None:
    lock = lock_directory(options.data)
    store = await StoreServer.start(options.data) if options.serves_store else None
    try:
        brokers = [_broker(FIRST_ID + place, options) for place in range(options.brokers)]
        await supervise(brokers, restarts=options.restarts, announce=lambda: _announce(options))
    finally:
        if store is not None:
            await store.close()
        os.close(lock)


def _announce(options: ClusterOptions) -> None:
    addresses = [f"127.0.0.1:{options.port + place}" for place in range(options.brokers)]
    for place, address in enumerate(addresses):
        print(f"ottla: broker {FIRST_ID + place} is listening on {address}")
    print(f"ottla: a cluster of {options.brokers} brokers, data and logs in {options.data}; Ctrl-C stops it")
    print(f"ottla: bootstrap servers: {','.join(addresses)}", flush=True)


def _broker(broker_id: int, options: ClusterOptions) -> Program:
    directory = options.data / f"broker-{broker_id}"
    return Program(
        f"broker {broker_id}",
        _command(broker_id, directory, options),
        directory,
        options.data / f"broker-{broker_id}.log",
        _until_listening,
    )


def _command(broker_id: int, directory: Path, options: ClusterOptions) -> list[str]:
    settings = [
        # All stop together: the last has nobody to hand over to, and need not try for long.
        "controlled.shutdown.retry.backoff.ms=200",
        *options.overrides,
        f"broker.id={broker_id}",
        f"listeners=PLAINTEXT://127.0.0.1:{options.port + broker_id - FIRST_ID}",
        f"log.dirs={directory}",
        *([f"ottla.cluster.dir={options.data}"] if options.serves_store else []),
    ]
    command = [sys.executable, "-m", "ottla", "start"]
    if options.properties is not None:
        command.append(str(options.properties))
    for setting in settings:
        command += ["--override", setting]
    return command


async def _until_listening(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    while _STARTED not in (line := await process.stdout.readline()):
        if not line:
            raise EOFError
