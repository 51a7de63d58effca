"""The network of `make chaos` that is made of namespaces, without brokers: who reaches whom, how much comes through,
and that nothing is left of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.cluster.chaos import namespaces
from tests.cluster.chaos.cluster import CLIENTS
from tests.cluster.chaos.namespaces import Namespaces, why_not
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.timeout(120)

_ECHO = """
import socket, sys, threading
def serve(server):
    while True:
        connection, _ = server.accept()
        with connection:
            while data := connection.recv(65536):
                connection.sendall(data)
for port in sys.argv[2:]:
    server = socket.create_server((sys.argv[1], int(port)))
    threading.Thread(target=serve, args=(server,), daemon=True).start()
print("listening", flush=True)
threading.Event().wait()
"""
_ASK = """
import socket, sys, time
host, port, size, timeout_s = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
began_s = time.monotonic()
try:
    with socket.create_connection((host, port), timeout_s) as connection:
        connection.sendall(bytes(size))
        while size:
            size -= len(connection.recv(size)) or size
    print(time.monotonic() - began_s)
except TimeoutError:
    print("nothing")
"""
_SILENCE_S = 1
_ONE, _OTHER, _THIRD = 1, 2, 3


class Echo:
    """In the place of a broker: returns what it is sent, on all of a broker's listeners."""

    def __init__(self, network: Namespaces, broker_id: int) -> None:
        self._network = network
        found = re.findall(r"(\w+)://([^:]+):(\d+)", network.listeners(broker_id)["listeners"])
        self._host = found[0][1]
        self.ports = {name: port for name, _, port in found}
        command = [*network.command(broker_id), sys.executable, "-c", _ECHO, self._host, *self.ports.values()]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None and self.process.stdout.readline() == b"listening\n"

    def answers(self, who: int, listener: str = "INTERNAL") -> bool:
        return self._ask(who, listener, 1, PATIENCE_S) != "nothing"

    def is_silent(self, who: int, listener: str = "INTERNAL") -> bool:
        return self._ask(who, listener, 1, _SILENCE_S) == "nothing"

    def seconds(self, who: int, size: int) -> float:
        return float(self._ask(who, "INTERNAL", size, PATIENCE_S))

    def _ask(self, who: int, listener: str, size: int, timeout_s: float) -> str:
        place = [] if who == CLIENTS else self._network.command(who)
        asked = (self._host, self.ports[listener], str(size), str(timeout_s))
        return subprocess.run(
            [*place, sys.executable, "-c", _ASK, *asked], stdout=subprocess.PIPE, text=True, check=True
        ).stdout.strip()


@pytest.fixture(autouse=True)
def require_namespaces() -> None:
    if why_not():
        pytest.skip(why_not())


@pytest.fixture
def network() -> Iterator[Namespaces]:
    with Namespaces() as made:
        yield made


@pytest.fixture
def one(network: Namespaces) -> Iterator[Echo]:
    yield from _echo(network, _ONE)


@pytest.fixture
def other(network: Namespaces) -> Iterator[Echo]:
    yield from _echo(network, _OTHER)


def _echo(network: Namespaces, broker_id: int) -> Iterator[Echo]:
    echo = Echo(network, broker_id)
    yield echo
    echo.process.kill()
    echo.process.communicate()


def test_a_cut_is_of_connections_one_makes_to_the_other_until_it_heals(
    network: Namespaces, one: Echo, other: Echo
) -> None:
    network.cut = {(_OTHER, _ONE)}
    assert one.is_silent(_OTHER)
    assert one.answers(_THIRD) and other.answers(_ONE)
    network.cut = set()
    assert one.answers(_OTHER)


def test_clients_are_cut_off_and_the_judge_is_not(network: Namespaces, one: Echo) -> None:
    network.cut = {(CLIENTS, _ONE)}
    assert one.is_silent(CLIENTS, "PLAINTEXT")
    assert one.answers(CLIENTS, "JUDGE") and one.answers(_OTHER)
    assert network.address(_ONE) == (network.host(_ONE), int(one.ports["JUDGE"]))


def test_every_link_loses_packets_but_the_judges(network: Namespaces, one: Echo) -> None:
    network.loss = 1.0
    assert one.is_silent(_OTHER) and one.is_silent(CLIENTS, "PLAINTEXT")
    assert one.answers(CLIENTS, "JUDGE")
    network.loss = 0.3
    assert one.answers(_OTHER)


def test_a_slow_link_carries_so_many_bytes_per_second(network: Namespaces, one: Echo) -> None:
    network.bytes_per_s = {(_OTHER, _ONE): 100_000}
    assert one.seconds(_OTHER, 200_000) > 1.8
    # Rules are written anew, so a second change meets the queues of the first.
    network.bytes_per_s = {(_OTHER, _ONE): 50_000, (_THIRD, _ONE): 50_000}
    network.bytes_per_s = {}
    assert one.answers(_OTHER)


def test_two_networks_are_apart() -> None:
    with Namespaces() as first, Namespaces() as second:
        assert first.host(_ONE) != second.host(_ONE)


def test_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    before = _all_there_is()
    with pytest.raises(ZeroDivisionError), Namespaces():
        assert _all_there_is() != before
        _ = 1 / 0
    assert _all_there_is() == before

    def run(*command: str, said: str = "") -> str:
        if "netns add" in " ".join(command) and "zookeeper2" in command[-1]:
            raise subprocess.CalledProcessError(1, command, stderr="no more")
        return really_run(*command, said=said)

    really_run = namespaces._run
    monkeypatch.setattr(namespaces, "_run", run)
    with pytest.raises(subprocess.CalledProcessError), Namespaces():
        pass
    assert _all_there_is() == before


def test_what_a_run_has_left_that_was_killed_is_removed_by_the_next_one() -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    dead, alive = f"ottla-{ended.pid}-0-router", f"ottla-{os.getpid()}-other-router"
    for name in (dead, alive):
        subprocess.run(["ip", "netns", "add", name], check=True)
    with Namespaces():
        left = subprocess.run(["ip", "netns", "list"], stdout=subprocess.PIPE, text=True, check=True).stdout
    subprocess.run(["ip", "netns", "del", alive], check=True)
    assert alive in left and dead not in left


def test_what_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*command: str, said: str = "") -> str:
        if "tc" in command:
            raise subprocess.CalledProcessError(2, command, stderr="Error: Specified qdisc kind is unknown.\nmore")
        return really_run(*command, said=said)

    really_run = namespaces._run
    monkeypatch.setattr(namespaces, "_run", run)
    why_not.cache_clear()
    assert why_not() == "network namespaces do not work: Error: Specified qdisc kind is unknown."
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "iptables-restore" else name)
    why_not.cache_clear()
    assert why_not() == "there is no iptables-restore"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    why_not.cache_clear()
    assert why_not() == "only root makes network namespaces"
    why_not.cache_clear()


def _all_there_is() -> list[str]:
    """Of this process: others may be at work."""
    mine = re.compile(rf"\bot(tla-)?{os.getpid()}-\S*")
    commands = (["ip", "netns", "list"], ["ip", "-o", "link"], ["ip", "route"])
    said = "".join(subprocess.run(each, stdout=subprocess.PIPE, text=True, check=True).stdout for each in commands)
    return [found.group() for found in mine.finditer(said)]
