"""The bad network: bytes pass unchanged until they do not, and what went wrong is counted."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.testing import CALM, EmbeddedBroker, FaultProxy, NetworkFaults

PATIENCE_S = 20


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A server that sends back what it gets."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65536):
                    connection.sendall(data)
            except OSError:
                return

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(PATIENCE_S)


def connect(proxy: FaultProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE_S)


def echoed(proxy: FaultProxy, data: bytes) -> bytes:
    """What comes back on a connection of its own before it ends, or all."""
    received = b""
    with contextlib.suppress(OSError), connect(proxy) as connection:
        connection.sendall(data)
        while len(received) < len(data) and (piece := connection.recv(65536)):
            received += piece
    return received


DATA = bytes(range(256)) * 1000


def test_a_calm_network_changes_nothing(echo: tuple[str, int]) -> None:
    with FaultProxy(forward_to=echo) as proxy:
        assert echoed(proxy, DATA) == DATA
        assert proxy.figures.cut == 0
        assert proxy.figures.request_bytes == proxy.figures.reply_bytes == len(DATA)


@pytest.mark.parametrize("direction", ["request", "reply"])
def test_connections_are_cut_at_any_byte_and_alike_with_the_same_seed(echo: tuple[str, int], direction: str) -> None:
    faults = NetworkFaults(**{f"{direction}_bytes_until_cut": 100})

    def lengths(seed: int) -> list[int]:
        with FaultProxy(faults, seed=seed, forward_to=echo) as proxy:
            found = []
            for _ in range(12):
                came = 0
                with contextlib.suppress(OSError), connect(proxy) as connection:
                    # One byte at a time: each is echoed before the next is sent.
                    connection.sendall(b"x")
                    while connection.recv(1):
                        came += 1
                        connection.sendall(b"x")
                found.append(came)
            assert getattr(proxy.figures, f"cut_in_{'requests' if direction == 'request' else 'replies'}") == 12
            return found

    first = lengths(1)
    assert len(set(first)) > 6
    assert lengths(1) == first
    assert lengths(2) != first


def test_refused_delayed_cut_and_slow(echo: tuple[str, int]) -> None:
    with FaultProxy(NetworkFaults(refused_share=1.0), forward_to=echo) as proxy:
        assert echoed(proxy, b"x") == b""
        assert proxy.figures.refused == 1
        proxy.faults = NetworkFaults(delayed_share=1.0, delay_ms_max=5)
        assert echoed(proxy, DATA) == DATA
        assert proxy.figures.delayed > 0
        proxy.faults = NetworkFaults(cut_share=1.0)
        assert len(echoed(proxy, DATA)) < len(DATA)
        assert proxy.figures.cut == 1
        proxy.faults = NetworkFaults(bytes_per_second=10_000_000)
        assert echoed(proxy, DATA) == DATA


@pytest.mark.parametrize(("share", "fewest", "most"), [(0.0, 0, 0), (0.5, 10, 90), (1.0, 100, 100)])
def test_the_share_that_is_delayed(echo: tuple[str, int], share: float, fewest: int, most: int) -> None:
    with FaultProxy(NetworkFaults(delayed_share=share), forward_to=echo, seed=1) as proxy, connect(proxy) as connection:
        for _ in range(50):
            connection.sendall(b"x")
            assert connection.recv(1) == b"x"
        assert fewest <= proxy.figures.delayed <= most


def test_cut_held_and_released_on_demand(echo: tuple[str, int]) -> None:
    with FaultProxy(forward_to=echo) as proxy, connect(proxy) as connection:
        connection.sendall(b"1")
        assert connection.recv(1) == b"1"
        proxy.hold()
        connection.sendall(b"2")
        connection.settimeout(0.1)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        proxy.release()
        connection.settimeout(PATIENCE_S)
        assert connection.recv(1) == b"2"
        assert proxy.cut_all() == 1
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1) == b""


def test_while_it_holds_nobody_learns_that_the_other_side_is_gone() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, FaultProxy(forward_to=listener.getsockname()) as proxy, connect(proxy) as connection:
        accepted, _ = listener.accept()
        proxy.hold()
        accepted.close()
        listener.close()
        with connect(proxy) as late:
            for one in (connection, late):
                one.settimeout(0.1)
                with pytest.raises(TimeoutError):
                    one.recv(1)
            proxy.release()
            for one in (connection, late):
                one.settimeout(PATIENCE_S)
                with contextlib.suppress(ConnectionResetError):
                    assert one.recv(1) == b""


def test_a_proxy_has_one_life_at_a_time() -> None:
    proxy = FaultProxy()
    with pytest.raises(RuntimeError, match="not running"):
        proxy.broker_settings()
    with proxy:
        with pytest.raises(RuntimeError, match="already"):
            proxy.start()
        port = proxy.port
        # Nobody is behind it.
        assert echoed(proxy, b"x") == b""
    proxy.stop()
    with proxy:
        assert proxy.port == port


def test_the_broker_behind_it_sends_clients_back_the_way_they_came(
    ottla: EmbeddedBroker, ottla_network: FaultProxy
) -> None:
    assert ottla.bootstrap_servers != ottla_network.bootstrap_servers
    producer = Producer({"bootstrap.servers": ottla_network.bootstrap_servers, "linger.ms": 0})
    ottla_network.faults = NetworkFaults(request_bytes_until_cut=20_000, reply_bytes_until_cut=5_000)
    for number in range(500):
        producer.produce("t", b"%0100d" % number)
        if number % 10 == 0:
            assert producer.flush(PATIENCE_S) == 0
    ottla_network.faults = CALM
    assert producer.flush(PATIENCE_S) == 0
    assert ottla_network.figures.cut > 0
    before = ottla_network.figures.connections
    direct = Consumer({"bootstrap.servers": ottla.bootstrap_servers, "group.id": "g"})
    try:
        assert direct.get_watermark_offsets(TopicPartition("t", 0), timeout=PATIENCE_S)[1] >= 500
    finally:
        direct.close()
    assert ottla_network.figures.connections == before
