"""`ottla zookeeper start`: ZooKeeper servers on this machine, looked after until Ctrl-C."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.supervised import Program, supervise
from ottla.cli.terminal import errors_told, new_app, run_app
from ottla.cli.zookeeper.ensemble import Server, command, servers, until_serving, write_settings
from ottla.log.dir_claim import lock_directory

app = new_app()


@app.callback()
def zookeeper() -> None:
    """Run a real ZooKeeper on this machine, out of the jars that come with PySpark."""


@app.command()
def start(
    nodes: Annotated[int, typer.Option(min=1, max=9, help="how many servers; three survive the loss of one")] = 1,
    port: Annotated[
        int, typer.Option(min=1, max=65_500, help="the first server's; others have the following ones")
    ] = 2181,
    data: Annotated[Path, typer.Option(help="where the servers keep their data and logs")] = Path("data/zookeeper"),
    no_restart: Annotated[bool, typer.Option("--no-restart", help="leave a server that dies dead")] = False,
) -> None:
    """Start ZooKeeper servers and look after them until Ctrl-C."""
    with errors_told():
        asyncio.run(_run(servers(nodes, port), data.expanduser().absolute(), restarts=not no_restart))


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


def main(arguments: list[str]) -> int:
    return run_app(app, "zookeeper", arguments)
