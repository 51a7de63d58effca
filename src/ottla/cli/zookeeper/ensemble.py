"""What it takes to run ZooKeeper servers on this machine: their jars, their settings, and when they are ready."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ottla.base.errors import StartError
from ottla.spark.class_archive import find_java

_MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_JARS = (
    "zookeeper-[0-9]",
    "zookeeper-jute-",
    "metrics-core-",
    "snappy-java-",
    "slf4j-api-",
    "log4j-slf4j2-impl-",
    "log4j-api-",
    "log4j-core-",
)
"""All that a server without TLS loads; the last four are for its log."""
_JAVA_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx256m")
_LOG_SETTINGS = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.target = SYSTEM_ERR
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c{1}: %m%ex{1}%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""
_POLL_S = 0.05
_ANSWER_S = 1.0
_READY = b"Zookeeper version"
"""A server that has no quorum answers something else."""


class Server(NamedTuple):
    number: int
    port: int
    quorum_port: int
    election_port: int
    host: str = "127.0.0.1"


def servers(count: int, first_port: int) -> list[Server]:
    """Ports for clients first, so that they are the ones a user knows; then two for each among themselves."""
    among = first_port + count
    return [Server(place + 1, first_port + place, among + 2 * place, among + 2 * place + 1) for place in range(count)]


def write_settings(
    server: Server, ensemble: Iterable[Server], directory: Path, extra: Mapping[str, str] | None = None
) -> Path:
    """Writes what a server is started with and returns the path of its settings."""
    directory.mkdir(parents=True, exist_ok=True)
    settings = {
        "dataDir": str(directory),
        "clientPort": str(server.port),
        "clientPortAddress": server.host,
        # Sessions may be twenty of these long, and no shorter than two.
        "tickTime": "2000",
        "initLimit": "10",
        "syncLimit": "5",
        "maxClientCnxns": "0",
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "srvr,ruok",
        "autopurge.purgeInterval": "1",
        **(extra or {}),
    }
    peers = list(ensemble)
    if len(peers) > 1:
        (directory / "myid").write_text(f"{server.number}\n")
        settings |= {f"server.{peer.number}": f"{peer.host}:{peer.quorum_port}:{peer.election_port}" for peer in peers}
    (directory / "log4j2.properties").write_text(_LOG_SETTINGS)
    path = directory / "zoo.cfg"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


def command(settings: Path, *extra_jars: str) -> list[str]:
    """Raises StartError if there is no Java or no PySpark."""
    java = find_java()
    if java is None:
        raise StartError("ZooKeeper needs Java 17 or newer; install it, or set JAVA_HOME to where it is")
    return [
        str(java),
        *_JAVA_OPTIONS,
        f"-Dlog4j2.configurationFile={settings.parent / 'log4j2.properties'}",
        "-Dzookeeper.jmx.log4j.disable=true",
        "-cp",
        ":".join(map(str, _find_jars(*_JARS, *extra_jars))),
        _MAIN_CLASS,
        str(settings),
    ]


def _find_jars(*names: str) -> list[Path]:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise StartError("ZooKeeper comes with PySpark; install it with: pip install 'ottla[spark]'")
    directory = Path(spec.submodule_search_locations[0], "jars")
    jars = []
    for name in names:
        found = sorted(directory.glob(f"{name}*.jar"))
        if not found:
            raise StartError(f"PySpark's jars in {directory} hold no {name.split('-[')[0].rstrip('-')}")
        jars.append(found[0])
    return jars


async def until_serving(port: int, process: asyncio.subprocess.Process) -> None:
    """Returns when the server answers clients; raises EOFError if it ends before."""
    while not await _is_serving(port):
        if process.returncode is not None:
            raise EOFError
        await asyncio.sleep(_POLL_S)


async def _is_serving(port: int) -> bool:
    # A server that is asked too early may keep the connection, and never answer.
    with suppress(OSError, TimeoutError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(b"srvr")
            return (await asyncio.wait_for(reader.read(), _ANSWER_S)).startswith(_READY)
        finally:
            writer.close()
    return False
