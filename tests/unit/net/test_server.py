from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import struct
import threading
import time

import pytest

from ottla.base.errors import StartError
from ottla.net.limits import ConnectionLimits, ListenerLimits
from ottla.net.server import Server, is_same_machine
from tests.waiting import join, run_async

from .conftest import Client, RunningServer, ScriptedService, StartServer, framed


def test_echo(start_server: StartServer) -> None:
    assert start_server().client().ask(b"hello") == b"hello"


def test_frames_byte_by_byte(start_server: StartServer) -> None:
    client = start_server().client()
    client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in framed(b"one") + framed(b"") + framed(b"two"):
        client.socket.sendall(bytes([byte]))
    client.send(b"three")
    assert client.receive() == b"one"
    assert client.receive() == b""
    assert client.receive() == b"two"
    assert client.receive() == b"three"


def test_a_thousand_requests_in_one_go(start_server: StartServer) -> None:
    client = start_server().client()
    bodies = [b"%d" % n for n in range(1000)]
    client.send(*bodies)
    assert [client.receive() for _ in bodies] == bodies


def test_large_frames_between_small_ones(start_server: StartServer) -> None:
    client = start_server().client()
    large = os.urandom(5_000_000)
    bodies = [b"before", large, b"after", large[:300_000], b"end"]
    sender = threading.Thread(target=client.send, args=bodies)
    sender.start()
    received = [client.receive() for _ in bodies]
    join(sender)
    assert received == bodies


@pytest.mark.parametrize("length", [-1, -(2**31), 1001, 2**31 - 1, 0x47455420])
def test_a_length_out_of_range_closes_only_that_connection(start_server: StartServer, length: int) -> None:
    running = start_server(max_request_bytes=1000)
    good, bad = running.client(), running.client()
    assert good.ask(b"x" * 1000) == b"x" * 1000
    bad.socket.sendall(struct.pack(">i", length) + b"anything")
    assert bad.is_closed_by_server()
    assert good.ask(b"still here") == b"still here"
    assert running.call(lambda: running.server.stats.protocol_errors_total) == 1


@pytest.mark.parametrize("command", [b"bad", b"crash", b"close"])
def test_a_failing_request_closes_only_its_connection(start_server: StartServer, command: bytes) -> None:
    running = start_server()
    good, bad = running.client(), running.client()
    bad.send(command, b"never handled")
    assert bad.is_closed_by_server()
    assert good.ask(b"still here") == b"still here"
    assert b"never handled" not in running.service.handled
    assert len(running.service.closed_ids) == 1


def test_replies_to_earlier_requests_leave_before_a_protocol_error_closes(start_server: StartServer) -> None:
    client = start_server().client()
    client.send(b"good", b"bad")
    assert client.receive() == b"good"
    assert client.is_closed_by_server()


def test_protocol_errors_cannot_fill_the_log(start_server: StartServer, caplog: pytest.LogCaptureFixture) -> None:
    running = start_server()
    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            client = running.client()
            client.send(b"bad")
            assert client.is_closed_by_server()
    shown = [record for record in caplog.records if "the request is not one" in record.getMessage()]
    assert len(shown) == 10


def test_a_request_without_reply_does_not_disturb_the_order(start_server: StartServer) -> None:
    client = start_server().client()
    client.send(b"silent", b"one", b"silent", b"two", b"silent")
    assert client.receive() == b"one"
    assert client.receive() == b"two"
    assert client.ask(b"three") == b"three"


def test_small_replies_leave_at_once(start_server: StartServer) -> None:
    """Nagle's algorithm would keep them until the one before is confirmed."""
    running = start_server()
    assert running.client().ask(b"1") == b"1"
    (connection,) = running.call(running.server.connections)
    with socket.socket(fileno=os.dup(connection._channel.fileno())) as accepted:
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def test_total_limit_of_connections(start_server: StartServer) -> None:
    running = start_server(max_connections=2)
    first, second = running.client(), running.client()
    assert first.ask(b"1") == b"1"
    assert second.ask(b"2") == b"2"
    assert running.client().is_closed_by_server()
    first.close()
    running.wait_until(lambda: running.server.stats.open_connections == 1)
    assert running.client().ask(b"4") == b"4"
    assert running.server.stats.refused_total == 1


def test_limit_of_connections_per_address_and_its_override(start_server: StartServer) -> None:
    running = start_server(max_connections_per_ip=1)
    assert running.client().ask(b"1") == b"1"
    assert running.client().is_closed_by_server()
    generous = start_server(max_connections_per_ip=0, max_connections_per_ip_overrides={"127.0.0.1": 2})
    assert generous.client().ask(b"1") == b"1"
    assert generous.client().ask(b"2") == b"2"
    assert generous.client().is_closed_by_server()


def test_idle_connections_are_closed_and_busy_ones_are_not(start_server: StartServer) -> None:
    running = start_server()
    idle, busy = running.client(), running.client()
    assert idle.ask(b"once") == b"once"
    for _ in range(8):
        running.call(running.server.sweep_idle)
        assert busy.ask(b"again") == b"again"
    assert running.server.stats.closed_idle_total == 0, "eight eighths of the time may have begun a moment too early"
    running.call(running.server.sweep_idle)
    assert idle.is_closed_by_server()
    assert busy.ask(b"here") == b"here"
    assert running.server.stats.closed_idle_total == 1


@pytest.mark.parametrize("max_idle_ms", [1, 40])
def test_the_idle_timer_runs_by_itself(start_server: StartServer, max_idle_ms: int) -> None:
    client = start_server(max_idle_ms=max_idle_ms).client()
    assert client.is_closed_by_server()


def test_stop_lets_replies_leave_and_refuses_new_connections(start_server: StartServer) -> None:
    running = start_server()
    client = running.client()
    client.send(b"later:a", b"echo")
    running.wait_until(lambda: len(running.service.handled) == 2)
    stopping = threading.Thread(target=running.stop, args=(10_000,))
    stopping.start()
    running.wait_until(lambda: not running.server._listeners)
    running.complete("a", [framed(b"late")])
    assert client.receive() == b"late"
    assert client.receive() == b"echo"
    assert client.is_closed_by_server()
    join(stopping)
    with pytest.raises(ConnectionRefusedError):
        Client(running.port)


def test_stop_does_not_wait_longer_than_its_grace(start_server: StartServer) -> None:
    running = start_server()
    client = running.client()
    client.send(b"hold:never")
    running.wait_until(lambda: "never" in running.service.deferred)
    running.stop(grace_ms=1)
    assert client.is_closed_by_server()
    assert running.service.abandoned == ["never"]


def test_a_taken_port_and_an_unknown_host_are_said_in_one_sentence() -> None:
    async def run() -> None:
        server = Server(ScriptedService(), limits=ConnectionLimits())
        port = server.listen("PLAINTEXT", "127.0.0.1", 0)
        with pytest.raises(StartError, match=rf"127\.0\.0\.1:{port}: the port is in use already"):
            server.listen("PLAINTEXT", "127.0.0.1", port)
        with pytest.raises(StartError, match="the host name is not known"):
            server.listen("PLAINTEXT", "no-such-host.invalid", 0)
        server.close()

    run_async(run())


def test_several_listeners_tell_connections_apart(start_server: StartServer) -> None:
    running = start_server()
    other_port = running.call(lambda: running.server.listen("INTERNAL", "localhost", 0))
    client = Client(other_port)
    running.clients.append(client)
    assert client.ask(b"x") == b"x"
    (connection,) = running.call(running.server.connections)
    assert (connection.listener, connection.peer_host) == ("INTERNAL", "127.0.0.1")
    assert connection.peer_port == client.socket.getsockname()[1]


def test_accepting_survives_running_out_of_descriptors(
    start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    running = start_server()
    first = running.client()
    assert first.ask(b"1") == b"1"
    waiting = socket.socket()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                spare.append(os.dup(0))
        with caplog.at_level(logging.ERROR):
            waiting.settimeout(10)
            waiting.connect(("127.0.0.1", running.port))
            running.wait_until(lambda: running.server._is_short_of_resources)
            assert first.ask(b"still") == b"still"
    finally:
        for fd in spare:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    waiting.sendall(framed(b"accepted after all"))
    assert waiting.recv(100) == framed(b"accepted after all")
    waiting.close()
    assert len([record for record in caplog.records if "cannot accept" in record.getMessage()]) == 1


@pytest.mark.parametrize(
    ("peer_host", "own_host", "expected"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("::ffff:127.0.0.5", "::ffff:127.0.0.1", True),
        ("::1", "::1", True),
        ("10.0.0.7", "10.0.0.7", True),
        ("10.0.0.8", "10.0.0.7", False),
        ("fe80::1", "fe80::2", False),
    ],
)
def test_a_peer_with_our_own_address_is_on_this_machine(peer_host: str, own_host: str, expected: bool) -> None:
    assert is_same_machine(peer_host, own_host) is expected


class _SlowPace:
    """Every connection but the first makes the next ones wait."""

    def __init__(self) -> None:
        self.recorded = 0

    def record(self, size: int, now_ms: int) -> int:
        self.recorded += size
        return 150 if self.recorded > 1 else 0


@pytest.mark.parametrize("of_listener", [True, False])
def test_connections_that_come_too_fast_wait_and_are_served(start_server: StartServer, of_listener: bool) -> None:
    pace = _SlowPace()
    own = {"PLAINTEXT": ListenerLimits(creation_rate=pace)} if of_listener else {}
    running = start_server(by_listener=own, creation_rate=None if of_listener else pace)
    began_s = time.monotonic()
    for number in range(4):
        body = b"%d" % number
        assert running.client().ask(body) == body
    assert time.monotonic() - began_s >= 0.3, "the third and the fourth have waited"
    assert (pace.recorded, running.server.stats.accepted_total, running.server.stats.refused_total) == (4, 4, 0)


@pytest.mark.parametrize("of_listener", [True, False])
def test_the_shortest_pause_puts_off_those_who_wait_already(start_server: StartServer, of_listener: bool) -> None:
    turn = 0
    accepted_in: list[int] = []

    class Pace:
        def record(self, size: int, now_ms: int) -> int:
            accepted_in.append(turn)
            asyncio.get_running_loop().call_soon(end_turn)
            return 1

    def end_turn() -> None:
        nonlocal turn
        turn += 1

    own = {"PLAINTEXT": ListenerLimits(creation_rate=Pace())} if of_listener else {}
    running = start_server(by_listener=own, creation_rate=None if of_listener else Pace())
    with running.one_turn():
        clients = [running.client() for _ in range(3)]
    assert [client.ask(b"a") for client in clients] == [b"a"] * 3
    assert accepted_in == [0, 1, 2]


def test_the_listener_between_brokers_is_served_however_many_connections_there_are(start_server: StartServer) -> None:
    running = start_server(max_connections=1, protected_listener="BROKERS")

    def add_listener() -> int:
        return running.server.listen("BROKERS", "127.0.0.1", 0)

    port = running.call(add_listener)
    outsider = running.client()
    assert outsider.ask(b"a") == b"a"
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(framed(b"b"))
        assert peer.recv(100) == framed(b"b")
        assert outsider.is_closed_by_server()
        assert running.client().is_closed_by_server()


def listen_also(running: RunningServer, name: str) -> Client:
    """A client of one more listener."""
    return client_on(running, running.call(lambda: running.server.listen(name, "127.0.0.1", 0)))


def client_on(running: RunningServer, port: int) -> Client:
    client = Client(port)
    running.clients.append(client)
    return client


def test_the_protected_listener_alone_is_bound_like_any_other(start_server: StartServer) -> None:
    running = start_server(max_connections=1, protected_listener="PLAINTEXT")
    first = running.client()
    assert first.ask(b"a") == b"a"
    assert running.client().is_closed_by_server()
    assert first.ask(b"b") == b"b"


def test_where_all_connections_are_protected_no_more_come(start_server: StartServer) -> None:
    running = start_server(max_connections=1, protected_listener="BROKERS")
    port = running.call(lambda: running.server.listen("BROKERS", "127.0.0.1", 0))
    first = client_on(running, port)
    assert first.ask(b"a") == b"a"
    assert client_on(running, port).is_closed_by_server()
    assert first.ask(b"b") == b"b"


def test_a_listener_may_have_a_limit_of_its_own(start_server: StartServer) -> None:
    running = start_server(max_connections=4, by_listener={"INSIDE": ListenerLimits(max_connections=1)})
    port = running.call(lambda: running.server.listen("INSIDE", "127.0.0.1", 0))
    outside = [running.client() for _ in range(2)]
    assert [client.ask(b"a") for client in outside] == [b"a"] * 2
    assert client_on(running, port).ask(b"b") == b"b"
    assert client_on(running, port).is_closed_by_server()
    assert running.client().ask(b"c") == b"c"
    assert running.client().is_closed_by_server()


def test_a_listener_that_goes_takes_its_connections_along(start_server: StartServer) -> None:
    running = start_server()
    port = running.call(lambda: running.server.listen("INSIDE", "127.0.0.1", 0))
    outside, inside = running.client(), client_on(running, port)
    assert [client.ask(b"a") for client in (outside, inside)] == [b"a"] * 2
    running.call(lambda: running.server.unbind("INSIDE"))
    assert inside.is_closed_by_server()
    assert outside.ask(b"b") == b"b" and running.client().ask(b"c") == b"c"
    with pytest.raises(ConnectionRefusedError):
        Client(port)
    assert running.call(lambda: running.server.bind("INSIDE", "127.0.0.1", port)) == port


def test_when_fewer_are_allowed_those_go_that_were_idle_the_longest(start_server: StartServer) -> None:
    running = start_server(protected_listener="BROKERS")
    brokers = listen_also(running, "BROKERS")
    assert brokers.ask(b"a") == b"a"
    idle, busy, new = (running.client() for _ in range(3))
    assert [client.ask(b"a") for client in (idle, busy)] == [b"a"] * 2
    running.call(running.server.sweep_idle)
    assert [client.ask(b"a") for client in (busy, new)] == [b"a"] * 2

    def allow(count: int) -> int:
        running.server.set_limits(ConnectionLimits(max_connections=count, protected_listener="BROKERS"))
        return running.server.stats.open_connections

    assert running.call(lambda: allow(4)) == 4
    assert running.call(lambda: allow(3)) == 3
    assert idle.is_closed_by_server()
    assert [client.ask(b"b") for client in (busy, new, brokers)] == [b"b"] * 3
    assert running.client().is_closed_by_server()
    assert running.call(lambda: allow(0)) == 1
    assert brokers.ask(b"c") == b"c", "brokers stay"


def test_who_comes_too_fast_for_all_holds_up_no_brokers(start_server: StartServer) -> None:
    """The pace is no matter of the protected listener, and those of the others wait together."""

    class Pace:
        recorded = 0

        def record(self, size: int, now_ms: int) -> int:
            self.recorded += size
            return 600_000

    pace = Pace()
    running = start_server(protected_listener="BROKERS", creation_rate=pace)
    ports = [
        running.call(lambda name=name: running.server.listen(name, "127.0.0.1", 0))  # type: ignore[misc]
        for name in ("BROKERS", "INSIDE")
    ]
    brokers = [client_on(running, ports[0]) for _ in range(2)]
    assert [client.ask(b"a") for client in brokers] == [b"a"] * 2 and pace.recorded == 0
    assert running.client().ask(b"b") == b"b" and pace.recorded == 1
    waiting = [running.client(), client_on(running, ports[1])]
    assert client_on(running, ports[0]).ask(b"c") == b"c"
    assert (running.server.stats.accepted_total, pace.recorded) == (4, 1)
    running.call(running.server.close)
    assert all(client.is_closed_by_server() for client in waiting)


def test_without_a_limit_of_idleness_nobody_looks(start_server: StartServer) -> None:
    running = start_server(max_idle_ms=0)
    assert running.client().ask(b"a") == b"a"
    assert running.server._sweep_timer is None
    assert start_server(max_idle_ms=1000).server._sweep_timer is not None
