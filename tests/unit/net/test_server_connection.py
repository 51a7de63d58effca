from __future__ import annotations

import gc
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.base.types import FileSlice
from ottla.net.connection_context import ConnectionContext
from ottla.net.limits import ConnectionLimits
from ottla.net.server_connection import (
    REQUESTS_PER_TURN,
    UNSENT_BYTES_PER_TURN,
    ClientConnection,
)
from ottla.net.service import Outcome
from ottla.net.turns import Turns
from ottla.wire.frame import SHARED_BUFFER_BYTES
from tests.waiting import PATIENCE_S, join

from .conftest import RunningServer, ScriptedService, StartServer, StoredFile, framed


def wait_handled(running: RunningServer, count: int) -> None:
    running.wait_until(lambda: len(running.service.handled) == count)


def test_a_holding_reply_keeps_later_requests_waiting(start_server: StartServer) -> None:
    running = start_server()
    client = running.client()
    client.send(b"first", b"hold:a", b"second")
    assert client.receive() == b"first"
    client.send(b"third")
    assert running.client().ask(b"others go on") == b"others go on"
    assert running.service.handled == [b"first", b"hold:a", b"others go on"]
    running.complete("a", [framed(b"held")])
    assert [client.receive() for _ in range(3)] == [b"held", b"second", b"third"]


def test_a_two_phase_reply_lets_later_requests_go_on_but_keeps_the_order(start_server: StartServer) -> None:
    running = start_server()
    client = running.client()
    client.send(b"later:a", b"echo", b"later:b", b"silent", b"end")
    wait_handled(running, 5)
    running.complete("b", [framed(b"b done")])
    running.complete("a", [framed(b"a done")])
    assert [client.receive() for _ in range(4)] == [b"a done", b"echo", b"b done", b"end"]


def test_a_deferred_completed_before_it_is_returned(start_server: StartServer) -> None:
    client = start_server().client()
    client.send(b"instant:1", b"instant:2", b"x")
    assert [client.receive() for _ in range(3)] == [b"instant:1", b"instant:2", b"x"]


def test_staged_replies_are_settled_together_and_in_order(start_server: StartServer) -> None:
    running = start_server()
    client = running.client()
    client.send(b"staged:1", b"staged:2", b"echo", b"silent", b"staged:3", b"later:a", b"staged:4", b"staged:5")
    wait_handled(running, 8)
    assert [client.receive() for _ in range(4)] == [b"staged:1", b"staged:2", b"echo", b"staged:3"]
    running.complete("a", [framed(b"a done")])
    assert [client.receive() for _ in range(3)] == [b"a done", b"staged:4", b"staged:5"]
    assert not running.service.staged
    assert sum(running.service.settled) == 5
    assert 0 not in running.service.settled


@pytest.mark.parametrize("end", [b"bad", b"crash"])
def test_what_was_staged_is_settled_though_a_later_request_fails(start_server: StartServer, end: bytes) -> None:
    running = start_server()
    client = running.client()
    client.send(b"staged:1", b"staged:2", end)
    assert [client.receive() for _ in range(2)] == [b"staged:1", b"staged:2"]
    assert not running.service.staged


def test_what_was_staged_is_settled_though_the_service_closes(start_server: StartServer) -> None:
    running = start_server()
    client = running.client()
    client.send(b"staged:1", b"close")
    running.wait_until(lambda: running.service.closed_ids != [])
    assert not running.service.staged


def test_an_empty_completion_sends_nothing(start_server: StartServer) -> None:
    running = start_server()
    client = running.client()
    client.send(b"hold:a", b"next")
    wait_handled(running, 1)
    running.complete("a", [])
    assert client.receive() == b"next"


@pytest.mark.parametrize(
    "bodies",
    [[b"echo"], [b"staged:1"], [b"staged:1", b"staged:2", b"echo", b"staged:3"], [b"big:300000", b"staged:1"]],
)
def test_what_is_sent_is_counted(start_server: StartServer, bodies: list[bytes]) -> None:
    running = start_server()
    client = running.client()
    client.send(*bodies)
    received = sum(4 + len(client.receive()) for _ in bodies)
    running.wait_until(lambda: running.server.stats.sent_bytes_total == received)


def test_completing_twice_is_an_error(start_server: StartServer) -> None:
    running = start_server()
    client = running.client()
    client.send(b"later:a")
    wait_handled(running, 1)
    running.complete("a", [framed(b"1")])
    with pytest.raises(RuntimeError, match="twice"):
        running.complete("a", [framed(b"2")])
    assert client.receive() == b"1"


@pytest.mark.parametrize("kind", [b"hold", b"later"])
def test_a_closed_connection_abandons_what_is_due_once(start_server: StartServer, kind: bytes) -> None:
    running = start_server()
    client = running.client()
    client.send(kind + b":a")
    wait_handled(running, 1)
    client.close()
    running.wait_until(lambda: running.service.abandoned == ["a"])
    running.complete("a", [framed(b"nobody hears this")])
    assert running.service.abandoned == ["a"]
    assert len(running.service.closed_ids) == 1


def test_a_late_protocol_failure_closes(start_server: StartServer) -> None:
    running = start_server()
    client = running.client()
    client.send(b"hold:a")
    wait_handled(running, 1)
    running.call(lambda: running.service.deferred["a"].close_connection())
    assert client.is_closed_by_server()


def test_too_many_waiting_replies_hold_the_connection(start_server: StartServer) -> None:
    running = start_server(max_deferred_per_connection=3)
    client = running.client()
    client.send(b"later:a", b"1", b"2", b"3", b"4")
    wait_handled(running, 3)
    assert running.client().ask(b"others") == b"others"
    assert running.service.handled == [b"later:a", b"1", b"2", b"others"]
    running.complete("a", [framed(b"a done")])
    assert [client.receive() for _ in range(5)] == [b"a done", b"1", b"2", b"3", b"4"]


def test_too_many_late_replies_hold_the_connection(start_server: StartServer) -> None:
    running = start_server(max_deferred_per_connection=3)
    client = running.client()
    client.send(b"wait:a", b"wait:b", b"wait:c")
    wait_handled(running, 3)
    client.send(b"1")
    assert running.client().ask(b"others") == b"others"
    assert b"1" not in running.service.handled
    running.call(lambda: running.service.fill("b", b"b done"))
    assert running.client().ask(b"others") == b"others"
    assert b"1" not in running.service.handled, "the first one is still missing"
    running.call(lambda: running.service.fill("a", b"a done"))
    assert [client.receive() for _ in range(2)] == [b"a done", b"b done"]
    wait_handled(running, 6)
    running.call(lambda: running.service.fill("c", b"c done"))
    assert [client.receive() for _ in range(2)] == [b"c done", b"1"]


def test_late_replies_to_a_peer_that_has_gone_are_dropped(start_server: StartServer) -> None:
    running = start_server()
    client = running.client()
    client.send(b"wait:a", b"wait:b")
    wait_handled(running, 2)
    client.close()
    running.wait_until(lambda: not running.server.connections())
    running.call(lambda: running.service.fill("a", b"a done"))
    assert running.client().ask(b"others") == b"others"


def test_a_muted_connection_is_answered_but_not_read_on(start_server: StartServer) -> None:
    running = start_server()
    client = running.client()
    client.send(b"mute:1", b"after")
    assert client.receive() == b"mute:1"
    assert client.receive() == b"after"
    (connection,) = running.call(running.server.connections)
    running.call(lambda: connection.mute(3_600_000))
    client.send(b"waits")
    assert running.client().ask(b"others") == b"others"
    assert b"waits" not in running.service.handled


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kinds=st.lists(
        st.sampled_from(["echo", "hold", "later", "silent", "staged", "wait", "wait"]), min_size=1, max_size=20
    ),
    cut=st.integers(0, 20),
    chance=st.randoms(use_true_random=False),
)
def test_replies_come_in_the_order_of_requests(
    start_server: StartServer, kinds: list[str], cut: int, chance: random.Random
) -> None:
    running = start_server(max_deferred_per_connection=4)
    client = running.client()
    bodies = [f"{kind}:{n}".encode() for n, kind in enumerate(kinds)]
    order = chance.sample(range(len(kinds)), len(kinds))
    client.send(*bodies[:cut])
    client.send(*bodies[cut:])
    expected = [body for body in bodies if not body.startswith(b"silent")]
    open_names = [body.split(b":")[1].decode() for body in bodies if body[:4] in (b"hold", b"late", b"wait")]

    def complete_one() -> bool:
        ready = [name for name in open_names if name in {**running.service.deferred, **running.service.late}]
        if ready:
            name = min(ready, key=lambda ready_name: order[int(ready_name)])
            open_names.remove(name)
            kind = kinds[int(name)]
            body = f"{kind}:{name}".encode()
            if kind == "wait":
                running.service.fill(name, body)
            else:
                running.service.deferred.pop(name).complete([framed(body)])
        return not open_names

    running.wait_until(complete_one)
    assert [client.receive() for _ in expected] == expected
    client.close()


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Path, bytes]:
    path = tmp_path / "segment.log"
    content = os.urandom(3_000_000)
    path.write_bytes(content)
    return path, content


@pytest.mark.parametrize("length", [1, 4096, 8192, 8193, 100_000, 3_000_000])
def test_file_slices_arrive_as_the_bytes_of_the_file(
    start_server: StartServer, stored: tuple[Path, bytes], length: int
) -> None:
    running = start_server()
    running.service.file = StoredFile(stored[0])
    client = running.client()
    position = len(stored[1]) - length
    client.send(b"x", b"slice:%d:%d" % (position, length), b"y")
    assert client.receive() == b"x"
    assert client.receive() == stored[1][position:]
    assert client.receive() == b"y"


def test_many_large_slices_to_a_slow_reader(start_server: StartServer, stored: tuple[Path, bytes]) -> None:
    running = start_server()
    running.service.file = StoredFile(stored[0])
    client = running.client(receive_buffer_bytes=8192)
    client.send(*[b"slice:%d:2000000" % n for n in range(10)])
    for n in range(10):
        assert client.receive() == stored[1][n : n + 2_000_000]


def test_a_file_deleted_while_queued_is_sent_whole(start_server: StartServer, stored: tuple[Path, bytes]) -> None:
    running = start_server()
    running.service.file = StoredFile(stored[0])
    client = running.client()
    client.send(b"slice:0:3000000", b"slice:0:3000000", b"slice:1000000:2000000")
    wait_handled(running, 3)
    stored[0].unlink()
    running.service.file = None
    gc.collect()
    assert client.receive() == stored[1]
    assert client.receive() == stored[1]
    assert client.receive() == stored[1][1_000_000:]


@pytest.mark.parametrize("length", [2_000, 200_000])
def test_a_truncated_file_closes_the_connection(
    start_server: StartServer, stored: tuple[Path, bytes], length: int
) -> None:
    running = start_server()
    running.service.file = StoredFile(stored[0])
    os.truncate(stored[0], 1_000)
    client, other = running.client(), running.client()
    client.send(b"slice:0:%d" % length)
    with pytest.raises((EOFError, ConnectionError)):
        client.receive()
    assert other.ask(b"here") == b"here"


def test_a_peer_that_does_not_read_is_not_read_either(start_server: StartServer) -> None:
    running = start_server()
    stuck = running.client(receive_buffer_bytes=8192)
    sender = threading.Thread(target=lambda: stuck.send(*[b"big:500000"] * 2_000))
    sender.start()
    join(sender)
    other = running.client()
    for _ in range(20):
        assert other.ask(b"unaffected") == b"unaffected"
    asked = running.service.handled.count(b"big:500000")
    # Two seconds' worth would be a gigabyte: only what fits the socket and one turn's bound may have been made.
    assert asked < 40
    (connection, _) = running.call(running.server.connections)
    assert running.call(lambda: connection._replies.unsent_bytes) < 2_000_000
    assert len(stuck.receive()) == 500_000
    assert len(stuck.receive()) == 500_000
    stuck.close()
    running.wait_until(lambda: running.server.stats.open_connections == 1)


def test_large_requests_of_a_slow_reader_are_answered_in_order(start_server: StartServer) -> None:
    running = start_server()
    client = running.client(receive_buffer_bytes=8192)
    bodies = [bytes([n]) * 150_000 for n in range(60)]
    sender = threading.Thread(target=client.send, args=bodies)
    sender.start()
    received = [client.receive() for _ in bodies]
    join(sender)
    assert received == bodies


def test_the_reply_to_a_large_request_does_not_wait_for_the_requests_behind_it(start_server: StartServer) -> None:
    running = start_server()
    other_end_received = threading.Event()

    def wait_for_client(connection: ClientConnection, frame: memoryview) -> Outcome:
        if bytes(frame[:4]) == b"wait":
            assert other_end_received.wait(10)
        return [framed(bytes(frame[:4]))]

    running.service.handle = wait_for_client  # type: ignore[method-assign]
    client = running.client()
    all_sent = threading.Event()
    running.loop.call_soon_threadsafe(all_sent.wait)
    client.send(b"large" * 40_000, b"wait")
    all_sent.set()
    assert client.receive() == b"larg"
    other_end_received.set()
    assert client.receive() == b"wait"


def test_one_pipelining_client_does_not_starve_others(start_server: StartServer) -> None:
    running = start_server()
    greedy, modest = running.client(), running.client()
    assert greedy.ask(b"a") == b"a"
    assert modest.ask(b"b") == b"b"
    is_held, both_sent = threading.Event(), threading.Event()

    def hold() -> None:
        is_held.set()
        assert both_sent.wait(PATIENCE_S)

    running.loop.call_soon_threadsafe(hold)
    # Otherwise turns may be spent on what the one has sent before the other has sent anything.
    assert is_held.wait(PATIENCE_S)
    greedy.send(*[b"silent"] * 10_000)
    modest.send(b"modest")
    both_sent.set()
    assert modest.receive() == b"modest"
    assert running.service.handled.index(b"modest") <= 2 + 2 * REQUESTS_PER_TURN
    running.wait_until(lambda: running.service.handled.count(b"silent") == 10_000)


class _StuckSocket:
    """Gives one read of `received`, and refuses to send twice, which is once for the two attempts of a flush."""

    def __init__(self, received: bytes) -> None:
        self.received = received
        self.refusals = 2
        self.sent = b""

    def receive_into(self, buffer: memoryview) -> int:
        if not self.received:
            raise BlockingIOError
        count = min(len(buffer), len(self.received))
        buffer[:count] = self.received[:count]
        self.received = self.received[count:]
        return count

    def send(self, data: bytes | memoryview, flags: int) -> int:
        if self.refusals:
            self.refusals -= 1
            raise BlockingIOError
        self.sent += data
        return len(data)

    def send_file(self, file_slice: FileSlice, max_bytes: int) -> int:
        raise AssertionError("no files here")

    def peer_has_closed(self) -> bool:
        return False

    def fileno(self) -> int:
        return 7

    def close(self) -> None: ...


class _Loop:
    """An event loop as far as turns need one; the test does what the loop would do."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.later: list[tuple[float, Callable[[], None]]] = []

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None: ...

    def remove_reader(self, fd: int) -> None: ...

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self.later.append((delay_s, callback))

    def run_soon(self, at_most: int = 100) -> None:
        for _ in range(at_most):
            if self.soon:
                self.soon.pop(0)()


class _Watches(Turns):
    """Remembers what the one socket is watched for, and leaves it to the test when that happens."""

    reader: Callable[[], None] | None = None
    writer: Callable[[], None] | None = None

    def watch_readable(self, fd: int, callback: Callable[[], None]) -> None:
        self.reader, self.writer = callback, None

    def watch_writable(self, fd: int, callback: Callable[[], None]) -> None:
        self.reader, self.writer = None, callback

    def forget(self, fd: int) -> None:
        self.reader = self.writer = None


Watched = tuple[_Loop, _Watches, ScriptedService, ConnectionContext]


@pytest.fixture
def watched() -> Watched:
    loop, service = _Loop(), ScriptedService()
    context = ConnectionContext(loop, service, ConnectionLimits(), lambda _: None, _Watches)  # type: ignore[arg-type]
    assert isinstance(context.turns, _Watches)
    return loop, context.turns, service, context


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_socket_that_was_stuck_for_a_moment_is_read_again(watched: Watched, is_alone: bool) -> None:
    loop, watches, _, context = watched
    large = framed(b"x" * 2 * SHARED_BUFFER_BYTES)
    channel = _StuckSocket(large + large + framed(b"behind them"))
    connection = ClientConnection(context, channel, connection_id=1, listener="L", peer_host="127.0.0.1", peer_port=1)
    connection.open()
    watches.is_shared = not is_alone
    assert watches.reader is not None
    watches.reader()
    loop.run_soon()
    while watches.writer is not None:
        watches.writer()
        loop.run_soon()
    for _ in range(3):
        assert watches.reader is not None, "nobody would ever read the rest"
        watches.reader()
        loop.run_soon()
    assert channel.sent == large + large + framed(b"behind them")


@pytest.mark.parametrize("is_alone", [True, False])
def test_who_is_alone_is_answered_at_once_and_others_at_the_end_of_the_turn(watched: Watched, is_alone: bool) -> None:
    loop, watches, _, context = watched
    channel = _StuckSocket(framed(b"x"))
    channel.refusals = 0
    connection = ClientConnection(context, channel, connection_id=1, listener="L", peer_host="127.0.0.1", peer_port=1)
    connection.open()
    watches.is_shared = not is_alone
    assert watches.reader is not None
    watches.reader()
    assert channel.sent == (framed(b"x") if is_alone else b"")
    loop.run_soon()
    assert channel.sent == framed(b"x")


def test_replies_behind_a_late_one_do_not_keep_the_loop_spinning(watched: Watched) -> None:
    loop, watches, service, context = watched
    big = [framed(b"big:%d" % UNSENT_BYTES_PER_TURN)] * 2
    channel = _StuckSocket(b"".join([framed(b"later:a"), *big, framed(b"end")]))
    channel.refusals = 0
    connection = ClientConnection(context, channel, connection_id=1, listener="L", peer_host="127.0.0.1", peer_port=1)
    connection.open()
    assert watches.reader is not None
    watches.reader()
    loop.run_soon(at_most=10)
    assert not loop.soon, "nothing can happen before the late reply is there"
    assert len(service.handled) == 2
    service.deferred["a"].complete([framed(b"a done")])
    loop.run_soon(at_most=10)
    assert not loop.soon
    assert len(service.handled) == 4
    assert channel.sent.startswith(framed(b"a done"))
    assert channel.sent.endswith(framed(b"end"))


def test_late_replies_behind_a_later_one_are_enough_at_some_time(watched: Watched) -> None:
    loop, watches, service, context = watched
    channel = _StuckSocket(framed(b"later:a") + framed(b"later:b"))
    channel.refusals = 0
    connection = ClientConnection(context, channel, connection_id=1, listener="L", peer_host="127.0.0.1", peer_port=1)
    connection.open()
    assert watches.reader is not None
    watches.reader()
    loop.run_soon(at_most=10)
    service.deferred["b"].complete([bytes(UNSENT_BYTES_PER_TURN)])
    loop.run_soon(at_most=10)
    channel.received = framed(b"more")
    if watches.reader is not None:
        watches.reader()
        loop.run_soon(at_most=10)
    assert len(service.handled) == 2, "what is ready cannot be sent, so no more is made ready"
    service.deferred["a"].complete([framed(b"a done")])
    for _ in range(3):
        loop.run_soon(at_most=10)
        if watches.reader is not None:
            watches.reader()
    assert len(service.handled) == 3
    assert channel.sent.endswith(framed(b"more"))


def test_a_muted_connection_goes_on_when_the_time_of_every_mute_is_over(watched: Watched) -> None:
    loop, watches, service, context = watched
    channel = _StuckSocket(framed(b"mute:250") + framed(b"after"))
    channel.refusals = 0
    connection = ClientConnection(context, channel, connection_id=1, listener="L", peer_host="127.0.0.1", peer_port=1)
    connection.open()

    def goes_on() -> None:
        loop.run_soon()
        if watches.reader is not None:
            watches.reader()
            loop.run_soon()

    goes_on()
    assert (service.handled, channel.sent) == ([b"mute:250"], framed(b"mute:250")), "its reply is not held back"
    connection.mute(40)
    assert [delay_s for delay_s, _ in loop.later] == [0.25, 0.04]
    loop.later[1][1]()
    goes_on()
    assert service.handled == [b"mute:250"], "the other time is not over"
    loop.later[0][1]()
    goes_on()
    assert service.handled == [b"mute:250", b"after"]
    channel.received = framed(b"more")
    goes_on()
    assert channel.sent == framed(b"mute:250") + framed(b"after") + framed(b"more")
