from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator

import pytest

from ottla.net.server_connection import HELD_ROOM_BYTES
from ottla.net.turns import LINGERING_POLLS, SKIPPED_AT_MOST, TURNS_PER_CALLBACK, EpollTurns
from ottla.wire.frame import SHARED_BUFFER_BYTES
from tests.waiting import join

from .conftest import ScriptedService, StartServer, framed


def test_what_many_connections_ask_in_one_turn_is_settled_at_once(start_server: StartServer) -> None:
    running = start_server()
    clients = [running.client() for _ in range(20)]
    for client in clients:
        assert client.ask(b"hello") == b"hello"
    running.service.settled.clear()
    with running.one_turn():
        for number, client in enumerate(clients):
            client.send(b"staged:%d" % number, b"staged:again:%d" % number)
    for number, client in enumerate(clients):
        assert [client.receive(), client.receive()] == [b"staged:%d" % number, b"staged:again:%d" % number]
    assert running.service.settled == [40]


def test_requests_stay_as_they_were_until_they_are_settled(start_server: StartServer) -> None:
    """More than the shared buffer holds, with frames that are cut by the end of a read among them."""
    running = start_server()
    size = (SHARED_BUFFER_BYTES - HELD_ROOM_BYTES) // 5
    clients = [running.client() for _ in range(12)]
    for client in clients:
        assert client.ask(b"hello") == b"hello"
    bodies = [b"staged:%02d:" % number + bytes([number]) * (size + number) for number in range(len(clients))]
    with running.one_turn():
        for client, body in zip(clients, bodies, strict=True):
            client.socket.sendall(framed(body) + framed(body)[:3000])
    for client, body in zip(clients, bodies, strict=True):
        assert client.receive() == body
    with running.one_turn():
        for client, body in zip(clients, bodies, strict=True):
            client.socket.sendall(framed(body)[3000:])
    for client, body in zip(clients, bodies, strict=True):
        assert client.receive() == body


def test_other_requests_of_the_turn_keep_the_order_of_each_connection(start_server: StartServer) -> None:
    running = start_server()
    clients = [running.client() for _ in range(3)]
    for client in clients:
        assert client.ask(b"hello") == b"hello"
    with running.one_turn():
        clients[0].send(b"staged:a", b"echo", b"staged:b")
        clients[1].send(b"later:x", b"staged:c")
        clients[2].send(b"staged:d", b"bad")
    assert [clients[0].receive() for _ in range(3)] == [b"staged:a", b"echo", b"staged:b"]
    assert clients[2].receive() == b"staged:d"
    assert clients[2].is_closed_by_server()
    running.complete("x", [framed(b"x done")])
    assert [clients[1].receive(), clients[1].receive()] == [b"x done", b"staged:c"]


def test_replies_that_cannot_be_settled_close_their_connections_only(start_server: StartServer) -> None:
    running = start_server()
    clients = [running.client() for _ in range(3)]
    for client in clients:
        assert client.ask(b"hello") == b"hello"
    running.service.is_settling_broken = True
    with running.one_turn():
        clients[0].send(b"staged:a")
        clients[1].send(b"staged:b")
        clients[2].send(b"echo")
    assert clients[2].receive() == b"echo"
    assert clients[0].is_closed_by_server()
    assert clients[1].is_closed_by_server()
    running.service.is_settling_broken = False
    assert clients[2].ask(b"staged:c") == b"staged:c"


def test_a_reply_that_cannot_be_settled_closes_a_connection_that_is_alone(start_server: StartServer) -> None:
    running = start_server()
    for body in (b"staged:a", b"staged:" + bytes(SHARED_BUFFER_BYTES)):
        client = running.client()
        assert client.ask(b"hello") == b"hello"
        running.service.is_settling_broken = True
        client.send(body)
        assert client.is_closed_by_server()
        running.service.is_settling_broken = False
    assert running.client().ask(b"staged:b") == b"staged:b"


def test_settled_replies_that_a_socket_does_not_take_follow_later(start_server: StartServer) -> None:
    """Replies of 12 MB to a client that does not read, in pieces that are as large as the requests."""
    running = start_server()
    client = running.client(receive_buffer_bytes=8192)
    bodies = [b"staged:%d:" % number + bytes(60_000) for number in range(200)]
    sender = threading.Thread(target=lambda: [client.send(body) for body in bodies])
    sender.start()
    for body in bodies:
        assert client.receive() == body
    join(sender)


@pytest.fixture
def turns(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> Iterator[EpollTurns]:
    loop = new_loop()
    turns = EpollTurns(loop, ScriptedService(), lambda: None)
    yield turns
    turns.close()
    turns.close()
    loop.close()


@pytest.fixture
def readable() -> Iterator[list[int]]:
    """Descriptors that are ready to be read."""
    pipes = [os.pipe() for _ in range(3)]
    for _, write_end in pipes:
        os.write(write_end, b"x")
    yield [read_end for read_end, _ in pipes]
    for pipe in pipes:
        for fd in pipe:
            os.close(fd)


def run_one_turn(turns: EpollTurns) -> None:
    loop = turns._loop
    for _ in range(3):
        loop.call_soon(loop.stop)
        loop.run_forever()


def test_before_the_first_turn_nobody_shares_it_and_nothing_waits(turns: EpollTurns) -> None:
    assert (turns.is_shared, turns.has_unsettled) == (False, False)


def test_a_socket_that_was_forgotten_in_this_turn_is_left_alone(turns: EpollTurns, readable: list[int]) -> None:
    called: list[int] = []

    def forget_the_others(fd: int) -> None:
        called.append(fd)
        for other in readable:
            turns.forget(other)

    for fd in readable:
        turns.watch_readable(fd, lambda fd=fd: forget_the_others(fd))  # type: ignore[misc]
    run_one_turn(turns)
    assert len(called) == 1


def test_one_socket_that_fails_does_not_keep_the_others_from_their_turn(
    turns: EpollTurns, readable: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    served: set[int] = set()

    def fail() -> None:
        turns.forget(readable[0])
        raise ZeroDivisionError

    turns.watch_readable(readable[0], fail)
    for fd in readable[1:]:
        turns.watch_readable(fd, lambda fd=fd: served.add(fd))  # type: ignore[misc]
    run_one_turn(turns)
    assert served == set(readable[1:])
    assert "a socket could not be served" in caplog.text


def test_a_member_that_joins_outside_of_a_turn_gets_its_end_soon(turns: EpollTurns) -> None:
    class Member:
        ended = 0

        def end_turn(self) -> None:
            self.ended += 1

    member = Member()
    turns.join(member)
    assert member.ended == 0
    run_one_turn(turns)
    assert member.ended == 1


def test_a_socket_that_is_always_ready_leaves_room_for_others(turns: EpollTurns, readable: list[int]) -> None:
    loop = turns._loop
    events: list[str] = []

    def serve() -> None:
        if not events:
            loop.call_soon(events.append, "other")
        events.append("served")
        if len(events) > 2 * TURNS_PER_CALLBACK:
            turns.forget(readable[0])
            loop.stop()

    turns.watch_readable(readable[0], serve)
    loop.run_forever()
    assert events.index("other") == TURNS_PER_CALLBACK


def test_sockets_that_share_a_turn_get_one_each_time(turns: EpollTurns, readable: list[int]) -> None:
    loop = turns._loop
    events: list[str] = []

    def serve() -> None:
        if not events:
            loop.call_soon(events.append, "other")
            loop.call_soon(loop.stop)
        events.append("served")

    for fd in readable:
        turns.watch_readable(fd, serve)
    loop.run_forever()
    assert events.index("other") == len(readable)


def test_turns_that_are_closed_by_what_they_serve_end(turns: EpollTurns, readable: list[int]) -> None:
    loop = turns._loop
    failures: list[object] = []
    loop.set_exception_handler(lambda _, context: failures.append(context))

    def serve() -> None:
        turns.close()
        loop.call_soon(loop.stop)

    turns.watch_readable(readable[0], serve)
    loop.run_forever()
    assert not failures


class _Polls:
    """Stands in front of a server's poll: counts, and has the next request come when it was asked so many times."""

    def __init__(self, turns: EpollTurns, request: Callable[[], None]) -> None:
        self.count = 0
        self.request_at: int | None = None
        self._poll, self._request = turns._poll, request
        turns._poll = self

    def __call__(self, timeout: float = -1, max_events: int = -1) -> list[tuple[int, int]]:
        self.count += 1
        if self.count == self.request_at:
            self._request()
        return self._poll(timeout, max_events)


def test_the_next_request_of_a_client_alone_is_waited_for_as_long_as_that_is_of_use(turns: EpollTurns) -> None:
    read_end, write_end = os.pipe()
    served: list[bytes] = []
    turns.watch_readable(read_end, lambda: served.append(os.read(read_end, 1)))
    polls = _Polls(turns, lambda: os.write(write_end, b"b") and None)

    def polls_after(request: bytes) -> int:
        before = polls.count
        os.write(write_end, request)
        turns._run()
        return polls.count - before

    # One poll finds the request, one finds no other, and then comes what is said to be worth waiting.
    assert polls_after(b"a") == 2 + LINGERING_POLLS
    assert [polls_after(b"a") for _ in range(4)] == [2, 2 + LINGERING_POLLS, 2, 2]
    polls_after(b"a")
    polls.request_at = polls.count + 2 + LINGERING_POLLS // 2
    served.clear()
    polls_after(b"a")
    assert served == [b"a", b"b"], "the second came while it was waited for, and needed no way through the loop"
    in_vain = [polls_after(b"a") > 2 for _ in range(5 * SKIPPED_AT_MOST)]
    assert sum(in_vain) < 20, "who never comes in time is hardly waited for any more"
    for fd in (read_end, write_end):
        turns.forget(fd)
        os.close(fd)
