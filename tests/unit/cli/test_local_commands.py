"""Commands that run something on this machine: which numbers they take, and what they pass on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.own_thread import patch_own_thread

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from ottla.base.errors import StartError
from ottla.cli.demo import running as demo_running
from ottla.cli.main import main
from ottla.cli.zookeeper import ensemble
from ottla.cli.zookeeper import running as zookeeper_running
from ottla.cli.zookeeper.ensemble import Server, command, servers, until_serving, write_settings
from tests.waiting import run_async, until

Passed = list[tuple[Any, ...]]


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> Passed:
    """What would have been run."""
    found: Passed = []

    def take(name: str) -> Callable[..., None]:
        return lambda *arguments, **named: found.append((name, *arguments, *named.items()))

    monkeypatch.setattr(demo_running, "run", take("demo"))
    monkeypatch.setattr(zookeeper_running, "run", take("zookeeper"))
    return found


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("demo", ("demo", 9092, "data", 200, None)),
        ("demo --port 0 --rate 1 --duration 0.5 --data d", ("demo", 0, "d", 1, 0.5)),
        ("demo --port 65535 --rate 100000", ("demo", 65535, "data", 100_000, None)),
        ("zookeeper start", ("zookeeper", 1, 2181, "data/zookeeper", ("restarts", True))),
        ("zookeeper start --nodes 9 --port 65500", ("zookeeper", 9, 65500, "data/zookeeper", ("restarts", True))),
        ("zookeeper start --port 1 --data d --no-restart", ("zookeeper", 1, 1, "d", ("restarts", False))),
    ],
)
def test_what_is_run(passed: Passed, arguments: str, expected: tuple[Any, ...]) -> None:
    assert main(arguments.split()) == 0
    assert passed == [expected]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("demo --rate 0", "--rate must be from 1 to 100000"),
        ("demo --rate 100001", "--rate must be from 1 to 100000"),
        ("demo --port -1", "--port -1 is no port"),
        ("demo --port 65536", "--port 65536 is no port"),
        ("zookeeper start --nodes 0", "--nodes must be from 1 to 9"),
        ("zookeeper start --nodes 10", "--nodes must be from 1 to 9"),
        ("zookeeper start --port 0", "--port must be from 1 to 65500"),
        ("zookeeper start --port 65501", "--port must be from 1 to 65500"),
        ("zookeeper start x", "'x' is not understood"),
    ],
)
def test_numbers_that_are_too_small_or_too_large(
    passed: Passed, arguments: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments.split()) == 2
    assert capsys.readouterr().err.endswith(f"Error: {told}\n") and passed == []


# ZooKeeper


def test_every_setting_of_a_server(tmp_path: Path) -> None:
    (server,) = servers(1, 2181)
    path = write_settings(server, [server], tmp_path / "deep" / "1")
    assert path == tmp_path / "deep" / "1" / "zoo.cfg"
    assert path.read_text().splitlines() == [
        f"dataDir={tmp_path / 'deep' / '1'}",
        "clientPort=2181",
        "clientPortAddress=127.0.0.1",
        "tickTime=2000",
        "initLimit=10",
        "syncLimit=5",
        "maxClientCnxns=0",
        "admin.enableServer=false",
        "4lw.commands.whitelist=srvr,ruok",
        "autopurge.purgeInterval=1",
    ]


def test_every_word_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    names = [
        *("zookeeper-3.9", "zookeeper-jute-3.9", "metrics-core-4", "snappy-java-1"),
        *("slf4j-api-2", "log4j-slf4j2-impl-2", "log4j-api-2", "log4j-core-2"),
    ]
    for name in [*names, "zookeeper-3.10", "other-1"]:
        (jars / f"{name}.jar").touch()
    spec: Any = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    monkeypatch.setattr(ensemble, "find_java", lambda: Path("/java"))
    assert command(tmp_path / "zoo.cfg", "other-") == [
        *("/java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx256m"),
        f"-Dlog4j2.configurationFile={tmp_path / 'log4j2.properties'}",
        "-Dzookeeper.jmx.log4j.disable=true",
        "-cp",
        ":".join(str(jars / f"{name}.jar") for name in ["zookeeper-3.10", *names[1:], "other-1"]),
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        str(tmp_path / "zoo.cfg"),
    ]
    for name in ("zookeeper-3.10", "zookeeper-3.9"):
        (jars / f"{name}.jar").unlink()
    with pytest.raises(StartError, match=f"^PySpark's jars in {jars} hold no zookeeper$"):
        command(tmp_path / "zoo.cfg")


def test_programs_of_an_ensemble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper_running, "command", lambda settings: ["java", str(settings)])
    three = servers(3, 2181)
    program = zookeeper_running._program(three[1], three, tmp_path)
    place = tmp_path / "server-2"
    assert (program.name, program.command) == ("ZooKeeper server 2", ["java", str(place / "zoo.cfg")])
    assert (program.directory, program.log_file) == (place, tmp_path / "server-2.log")
    assert program.dies_with_parent
    assert isinstance(program.until_ready, partial)
    assert (program.until_ready.func, program.until_ready.args) == (until_serving, (2182,))
    assert "server.3=127.0.0.1:2188:2189" in (place / "zoo.cfg").read_text().splitlines()
    assert (place / "myid").read_text() == "2\n"


def test_an_ensemble_is_looked_after_in_a_directory_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[list[str], bool]] = []

    async def supervise(programs: list[Any], *, restarts: bool, announce: Callable[[], None]) -> None:
        asked.append(([program.name for program in programs], restarts))
        announce()
        with pytest.raises(StartError):
            await zookeeper_running._run([Server(1, 1, 2, 3)], tmp_path / "zk", restarts=True)

    monkeypatch.setattr(zookeeper_running, "supervise", supervise)
    monkeypatch.setattr(zookeeper_running, "command", lambda settings: [str(settings)])
    for _ in range(2):  # The first has left it when it ended.
        zookeeper_running.run(2, 2181, str(tmp_path / "zk"), restarts=False)
        assert capsys.readouterr().out.splitlines() == [
            "ottla: ZooKeeper server 1 is listening on 127.0.0.1:2181",
            "ottla: ZooKeeper server 2 is listening on 127.0.0.1:2182",
            f"ottla: data and logs are in {tmp_path / 'zk'}; Ctrl-C stops it",
            "ottla: for brokers: zookeeper.connect=127.0.0.1:2181,127.0.0.1:2182",
        ]
    assert asked == [(["ZooKeeper server 1", "ZooKeeper server 2"], False)] * 2


def test_a_server_that_says_nothing_does_not_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        ended: list[bytes] = []

        async def keep_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            ended.append(await reader.read())
            writer.close()

        listener = await asyncio.start_server(keep_silent, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        assert not await ensemble._is_serving(port)
        await until(lambda: ended == [b"srvr"])  # Nobody is left waiting.
        listener.close()
        await listener.wait_closed()
        assert not await ensemble._is_serving(port)

    monkeypatch.setattr(ensemble, "_ANSWER_S", 0.01)
    run_async(test())


@pytest.mark.parametrize(
    ("answer", "serves"),
    [
        (b"Zookeeper version: 3.9", True),
        (b"This ZooKeeper instance is not currently serving requests", False),
        (b"", False),
        (None, False),
    ],
)
def test_nobody_stays_connected_who_only_asks(
    answer: bytes | None, serves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []

    async def test() -> None:
        reader = asyncio.StreamReader()
        if answer is not None:
            reader.feed_data(answer)
            reader.feed_eof()

        async def open_connection(host: str, port: int) -> Any:
            calls.append((host, port))
            return reader, SimpleNamespace(write=calls.append, close=lambda: calls.append("closed"))

        patch_own_thread(monkeypatch, asyncio, "open_connection", open_connection)
        assert await ensemble._is_serving(2181) is serves

    monkeypatch.setattr(ensemble, "_ANSWER_S", 60 if answer is not None else 0)
    run_async(test())
    assert calls == [("127.0.0.1", 2181), b"srvr", "closed"]
