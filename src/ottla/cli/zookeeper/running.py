"""What `ottla zookeeper start` does: servers are started, announced, and looked after."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path

from ottla.cli.failures import errors_told
from ottla.cli.supervised import Program, supervise
from ottla.cli.zookeeper.ensemble import Server, command, servers, until_serving, write_settings
from ottla.log.dir_claim import lock_directory


def run(nodes: int, port: int, data: str, *, restarts: bool) -> None:
    with errors_told():
        asyncio.run(_run(servers(nodes, port), Path(data).expanduser().absolute(), restarts=restarts))


async def _run(ensemble: list[Server], data: Path, *, restarts: bool) -> None:
    lock = lock_directory(data)
    try:
        programs = [_program(server, ensemble, data) for server in ensemble]
        await supervise(programs, restarts=restarts, announce=lambda: _announce(ensemble, data))
    finally:
        os.close(lock)


def _program(server: Server, ensemble: list[Server], data: Path) -> Program:
    directory = data / f"server-{server.number}"
    return Program(
        f"ZooKeeper server {server.number}",
        command(write_settings(server, ensemble, directory)),
        directory,
        data / f"server-{server.number}.log",
        partial(until_serving, server.port),
        dies_with_parent=True,
    )


def _announce(ensemble: list[Server], data: Path) -> None:
    for server in ensemble:
        print(f"ottla: ZooKeeper server {server.number} is listening on 127.0.0.1:{server.port}")
    print(f"ottla: data and logs are in {data}; Ctrl-C stops it")
    addresses = ",".join(f"127.0.0.1:{server.port}" for server in ensemble)
    print(f"ottla: for brokers: zookeeper.connect={addresses}", flush=True)
