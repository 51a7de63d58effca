"""What ZooKeeper servers on this machine are started with, and when one is said to serve."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import StartError
from ottla.cli.zookeeper import ensemble
from ottla.cli.zookeeper.ensemble import Server, command, servers, until_serving, write_settings
from tests.waiting import run_async


def test_ports_for_clients_come_first_and_no_two_are_the_same() -> None:
    assert servers(1, 2181) == [Server(1, 2181, 2182, 2183)]
    three = servers(3, 2181)
    assert [(server.number, server.port) for server in three] == [(1, 2181), (2, 2182), (3, 2183)]
    assert sorted(port for server in three for port in server[1:4]) == list(range(2181, 2190))


def read(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def test_a_server_of_several_knows_its_number_and_the_others(tmp_path: Path) -> None:
    three = servers(3, 2181)
    path = write_settings(three[1], three, tmp_path / "deep" / "2")
    settings = read(path)
    assert (tmp_path / "deep" / "2" / "myid").read_text() == "2\n"
    assert (settings["dataDir"], settings["clientPort"]) == (str(path.parent), "2182")
    peers = {name: value for name, value in settings.items() if name.startswith("server.")}
    assert peers == {
        f"server.{server.number}": f"127.0.0.1:{server.quorum_port}:{server.election_port}" for server in three
    }
    assert settings["clientPortAddress"] == "127.0.0.1", "nobody else can reach it"
    assert (path.parent / "log4j2.properties").read_text().startswith("status = error")


def test_a_server_alone_has_no_number_and_takes_other_settings(tmp_path: Path) -> None:
    alone = servers(1, 2181)
    for _ in range(2):
        path = write_settings(alone[0], alone, tmp_path, {"tickTime": "100", "syncLimit": "9"})
    settings = read(path)
    assert not (tmp_path / "myid").exists() and not any(name.startswith("server.") for name in settings)
    assert (settings["tickTime"], settings["syncLimit"], settings["initLimit"]) == ("100", "9", "10")


def test_the_command_names_the_jars_of_pyspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    for name in (*ensemble._JARS, "extra-"):
        (jars / f"{name.replace('[0-9]', '3')}.9.jar").touch()
    spec: Any = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    monkeypatch.setattr(ensemble, "find_java", lambda: Path("/java"))
    made = command(tmp_path / "zoo.cfg", "extra-")
    assert made[0] == "/java" and made[-1] == str(tmp_path / "zoo.cfg")
    classpath = made[made.index("-cp") + 1].split(":")
    assert len(classpath) == len(ensemble._JARS) + 1 and all(Path(jar).exists() for jar in classpath)
    (jars / "extra-.9.jar").unlink()
    with pytest.raises(StartError, match="hold no extra"):
        command(tmp_path / "zoo.cfg", "extra-")
    for missing in (None, SimpleNamespace(submodule_search_locations=[])):
        monkeypatch.setattr("importlib.util.find_spec", lambda name, missing=missing: missing)
        with pytest.raises(StartError, match="comes with PySpark"):
            command(tmp_path / "zoo.cfg")
    monkeypatch.setattr(ensemble, "find_java", lambda: None)
    with pytest.raises(StartError, match="needs Java 17"):
        command(tmp_path / "zoo.cfg")


def test_a_server_serves_when_it_says_so() -> None:
    """Without a quorum it answers something else, and before that nothing."""

    async def test() -> None:
        answers = [b"This ZooKeeper instance is not currently serving requests\n", b"Zookeeper version: 3.9\n"]
        asked: list[bytes] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append(await reader.readexactly(4))
            writer.write(answers.pop(0))
            writer.close()

        process: Any = SimpleNamespace(returncode=None)
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        await until_serving(port, process)
        assert asked == [b"srvr", b"srvr"]
        server.close()
        await server.wait_closed()
        process.returncode = 1
        with pytest.raises(EOFError):
            await until_serving(port, process)

    run_async(test())
