"""How often and how much of what passes a bad network is cut, refused and held back, as it is drawn."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from ottla.testing import CALM, FaultProxy, NetworkFaults
from ottla.testing import proxy as proxies
from ottla.testing.proxy import NetworkFigures
from tests.waiting import repeat_until

PATIENCE_S = 20


class Sink:
    """A server that keeps what it gets, and answers each byte with one."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self.listener.getsockname()
        self.received: list[bytearray] = []
        """By connection."""
        self.ended = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(PATIENCE_S)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                self.received.append(bytearray())
                threading.Thread(target=self._answer, args=(connection, self.received[-1]), daemon=True).start()

    def _answer(self, connection: socket.socket, received: bytearray) -> None:
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(65536):
                received += data
                connection.sendall(data)
        self.ended.release()


@pytest.fixture
def sink() -> Iterator[Sink]:
    sink = Sink()
    yield sink
    sink.close()


def connect(proxy: FaultProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE_S)


def end_of(connection: socket.socket) -> str:
    """How the peer ended it."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        return "reset"
    return "closed"


def send_one(proxy: FaultProxy) -> str:
    """A byte on a connection of its own, which somebody ends."""
    with connect(proxy) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(b"x")
        return end_of(connection)


def test_a_network_is_calm_and_has_done_nothing_unless_told_otherwise() -> None:
    assert NetworkFaults() == CALM == NetworkFaults(None, None, 0.0, 0.0, 0.0, 0, None)
    assert NetworkFigures() == NetworkFigures(0, 0, 0, 0, 0, 0, 0, 0)
    assert NetworkFigures(cut_in_requests=1, cut_in_replies=2, cut_on_demand=4).cut == 7
    assert FaultProxy().seed == 0


def silent_end(proxy: FaultProxy) -> str:
    """How a connection ends on which nothing is sent: what could not arrive would itself be a reason for a reset."""
    try:
        with connect(proxy) as connection:
            return end_of(connection)
    except ConnectionResetError:
        return "reset"


def test_who_is_refused_never_gets_to_the_broker_and_half_of_the_ends_are_polite(sink: Sink) -> None:
    with FaultProxy(NetworkFaults(refused_share=1.0), forward_to=sink.address, seed=3) as proxy:
        ends = [silent_end(proxy) for _ in range(40)]
        assert 10 <= ends.count("reset") <= 30
        assert proxy.figures.refused == proxy.figures.connections == 40
        assert sink.received == []


def test_the_share_of_connections_that_is_refused(sink: Sink) -> None:
    with FaultProxy(NetworkFaults(refused_share=0.3), forward_to=sink.address, seed=3) as proxy:
        served = 0
        for _ in range(40):
            with contextlib.suppress(OSError), connect(proxy) as connection:
                connection.sendall(b"x")
                served += connection.recv(1) == b"x"
        assert proxy.figures.refused == 40 - served and len(sink.received) == served
        assert 4 <= proxy.figures.refused <= 20


def test_connections_to_nobody_are_reset() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    with FaultProxy(forward_to=address) as proxy:
        assert {silent_end(proxy) for _ in range(5)} == {"reset"}
        assert proxy.cut_all() == 0


def test_what_is_open_ends_with_the_proxy(sink: Sink) -> None:
    with FaultProxy(forward_to=sink.address) as proxy:
        connection = connect(proxy)
        connection.sendall(b"x")
        assert connection.recv(1) == b"x"
        (thread,) = [thread for thread in threading.enumerate() if thread.name == "ottla-proxy"]
        assert thread.daemon, "a test that forgets to stop it can end"
        proxy.hold()
        waiting = connect(proxy)
        assert proxy.cut_all() == 1, "the other one has no connection to the broker yet"
        another = connect(proxy)
    with connection, waiting, another:
        end_of(connection)
        assert (end_of(waiting), end_of(another)) == ("reset", "reset")
    assert not thread.is_alive() and sink.ended.acquire(timeout=PATIENCE_S)
    with pytest.raises(RuntimeError, match="not running"):
        proxy.cut_all()


def test_a_proxy_that_does_not_get_its_port_does_not_run() -> None:
    proxy = FaultProxy()
    with proxy:
        port = proxy.port
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(OSError):
            proxy.start()
        with pytest.raises(RuntimeError, match="not running"):
            proxy.broker_settings()
    with proxy:
        assert proxy.port == port


def test_connections_that_have_ended_are_not_cut(sink: Sink) -> None:
    with FaultProxy(forward_to=sink.address) as proxy:
        with connect(proxy) as connection:
            connection.sendall(b"1")
            assert connection.recv(1) == b"1"
            assert proxy.cut_all() == proxy.figures.cut_on_demand == proxy.figures.cut == 1
            end_of(connection)
        repeat_until(lambda: proxy.cut_all() == 0)


@pytest.mark.parametrize(("mean", "least", "most"), [(1, 15, 31), (100, 0, 3)])
def test_how_many_connections_are_cut_before_their_first_byte(sink: Sink, mean: int, least: int, most: int) -> None:
    """The mean is that of an exponential distribution: 1 - 1/e of them, for a mean of one byte."""
    with FaultProxy(NetworkFaults(request_bytes_until_cut=mean), forward_to=sink.address, seed=1) as proxy:
        without = 0
        for _ in range(40):
            with contextlib.suppress(OSError), connect(proxy) as connection:
                connection.sendall(b"x")
                try:
                    without += connection.recv(1) == b""
                except ConnectionResetError:
                    without += 1
        assert least <= without <= most


def test_what_still_fits_passes_before_the_cut(sink: Sink) -> None:
    with FaultProxy(NetworkFaults(request_bytes_until_cut=1000), forward_to=sink.address, seed=2) as proxy:
        data = bytes(range(250)) * 100
        for _ in range(30):
            with connect(proxy) as connection, contextlib.suppress(OSError):
                connection.sendall(data)
                end_of(connection)
            assert sink.ended.acquire(timeout=PATIENCE_S)
        assert all(data.startswith(received) for received in sink.received)
        lengths = [len(received) for received in sink.received]
        assert 650 < sum(lengths) / 30 < 1500
        assert proxy.figures.cut_in_requests == proxy.figures.cut == 30


def test_how_far_it_is_to_the_cut_is_drawn_once(sink: Sink) -> None:
    """And again only for a network that is as bad as another."""
    with FaultProxy(NetworkFaults(request_bytes_until_cut=1 << 40), forward_to=sink.address) as proxy:
        with connect(proxy) as connection:
            for number in range(20):
                connection.sendall(b"x")
                assert connection.recv(1) == b"x"
                if number == 9:
                    proxy.faults = CALM
            proxy.faults = NetworkFaults(request_bytes_until_cut=1, reply_bytes_until_cut=1)
            with contextlib.suppress(OSError):
                while True:
                    connection.sendall(b"x" * 50)
                    if not connection.recv(50):
                        break
        assert proxy.figures.cut == 1


def test_a_cut_comes_after_all_or_nothing_of_a_piece_of_one_byte(sink: Sink) -> None:
    with FaultProxy(NetworkFaults(cut_share=1.0), forward_to=sink.address, seed=1) as proxy:
        for _ in range(40):
            send_one(proxy)
            assert sink.ended.acquire(timeout=PATIENCE_S)
        assert proxy.figures.cut == proxy.figures.connections == 40
        passed = sum(map(len, sink.received))
    assert 12 <= passed <= 24, "one may be lost with its connection"


@pytest.mark.parametrize(("share", "least", "most"), [(0.5, 8, 30), (0.05, 0, 8)])
def test_the_share_of_pieces_after_which_a_connection_is_cut(sink: Sink, share: float, least: int, most: int) -> None:
    with FaultProxy(NetworkFaults(cut_share=share), forward_to=sink.address, seed=1) as proxy:
        for _ in range(20):
            with connect(proxy) as connection, contextlib.suppress(OSError):
                connection.sendall(b"x")
                connection.recv(1)
        assert least <= proxy.figures.cut <= most


def test_how_long_pieces_are_held_back(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses_s: list[float] = []
    sleep = asyncio.sleep

    async def recorded(seconds: float) -> None:
        pauses_s.append(seconds)
        await sleep(0)

    def paused(faults: NetworkFaults, size: int, times: int) -> list[float]:
        pauses_s.clear()
        with FaultProxy(faults, forward_to=sink.address, seed=1) as proxy, connect(proxy) as connection:
            for _ in range(times):
                connection.sendall(b"x" * size)
                left = size
                while left:
                    left -= len(connection.recv(left))
        return sorted(pauses_s)

    monkeypatch.setattr(proxies, "asyncio", SimpleNamespace(**(vars(asyncio) | {"sleep": recorded})))
    drawn = paused(NetworkFaults(delayed_share=1.0, delay_ms_max=1), 1, 50)
    assert len(drawn) == 100 and 0 <= drawn[0] < 0.0002 and 0.0008 < drawn[-1] <= 0.001
    assert paused(NetworkFaults(bytes_per_second=1000), 1, 3) == [0.001] * 6, "in each direction"
    both = paused(NetworkFaults(delayed_share=1.0, delay_ms_max=1, bytes_per_second=100), 1, 20)
    assert 0.01 <= both[0] < both[-1] <= 0.011
    assert paused(NetworkFaults(delayed_share=1.0), 1, 5) == [], "for no time at all"
    assert paused(CALM, 1, 5) == []
