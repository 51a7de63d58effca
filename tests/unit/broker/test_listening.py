"""Where a broker listens, what it allows those who connect, and how both change while it runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.base.errors import StartError
from ottla.base.types import Endpoint
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.listening import Listening, connection_limits
from ottla.broker.quotas import ByteRate
from ottla.net.limits import OS_DEFAULT, ConnectionLimits, CreationRate, ListenerLimits
from tests.log_lines import messages_of

PROTOCOLS = {"listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT"}
NO_LIMIT = 2_147_483_647


def config(listeners: str, **settings: str) -> BrokerConfig:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return BrokerConfig({"listeners": listeners, "inter.broker.listener.name": "A", **PROTOCOLS, **given})


class Server:
    """Gives out ports from 1001 on, and keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.taken: set[int] = set()

    def bind(self, name: str, host: str, port: int, *, backlog: int) -> int:
        if port in self.taken:
            raise StartError(f"port {port} is taken")
        self.told.append(("bind", name, host, port, backlog))
        return port or 1000 + len(self.told)

    def unbind(self, name: str) -> None:
        self.told.append(("unbind", name))

    def set_limits(self, limits: ConnectionLimits) -> None:
        self.told.append(limits.max_connections)

    def start_accepting(self) -> None:
        self.told.append("accept")

    def news(self) -> list[Any]:
        told, self.told = self.told, []
        return told


def listening(server: Server, config: BrokerConfig) -> tuple[Listening, list[list[Endpoint]]]:
    found = Listening(server, config)  # type: ignore[arg-type]
    moves: list[list[Endpoint]] = []
    found.on_moved = lambda: moves.append(found.endpoints)
    return found, moves


def test_every_listener_is_bound_and_told_with_the_port_it_got() -> None:
    server = Server()
    found, _ = listening(server, config("A://h:0,B://g:7", socket_listen_backlog_size="9"))
    assert server.news() == [("bind", "A", "h", 0, 9), ("bind", "B", "g", 7, 9)]
    assert found.endpoints == [Endpoint("A", "h", 1001), Endpoint("B", "g", 7)]
    advertised = config("A://h:0,B://g:7", advertised_listeners="A://public:0,B://public:80")
    found, _ = listening(Server(), advertised)
    assert found.endpoints == [Endpoint("A", "public", 1001), Endpoint("B", "public", 80)]
    with pytest.raises(StartError, match="port 7 is taken"):
        taken = Server()
        taken.taken.add(7)
        listening(taken, config("A://h:0,B://g:7"))


def test_listeners_come_and_go_and_the_others_stay(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    found, moves = listening(server, config("A://h:0,B://g:7"))
    server.news()
    with caplog.at_level("INFO"):
        for listeners, news, endpoints in (
            ("A://h:0,B://g:7", ["accept"], None),
            (
                "A://h:0,B://g:8,C://f:6",
                [("unbind", "B"), ("bind", "B", "g", 8, 50), ("bind", "C", "f", 6, 50), "accept"],
                [Endpoint("A", "h", 1001), Endpoint("B", "g", 8), Endpoint("C", "f", 6)],
            ),
            ("A://h:1001,C://f:6", [("unbind", "B"), "accept"], [Endpoint("A", "h", 1001), Endpoint("C", "f", 6)]),
        ):
            found.reconfigured(config(listeners))
            assert [each for each in server.news() if not isinstance(each, int)] == news
            assert moves == ([] if endpoints is None else [endpoints])
            moves.clear()
    assert messages_of(caplog, "ottla.broker.listening") == [
        "listener B://g:7 is closed",
        "listener B://g:8 is open",
        "listener C://f:6 is open",
        "listener B://g:8 is closed",
    ]


def test_a_listener_that_cannot_be_bound_is_named_and_left_out_until_it_can(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server()
    found, moves = listening(server, config("A://h:5"))
    server.taken.add(7)
    for _ in range(2):
        found.reconfigured(config("A://h:5,B://g:7"))
        assert (found.endpoints, moves) == ([Endpoint("A", "h", 5)], [])
    assert messages_of(caplog, "ottla.broker.listening") == ["port 7 is taken"] * 2
    server.taken.clear()
    found.reconfigured(config("A://h:5,B://g:7"))
    assert found.endpoints == [Endpoint("A", "h", 5), Endpoint("B", "g", 7)]


@pytest.mark.parametrize(
    "setting",
    [
        "max.connections",
        "max.connections.per.ip",
        "max.connection.creation.rate",
        "listener.name.b.max.connections",
        "listener.name.a.max.connection.creation.rate",
    ],
)
def test_new_limits_are_told_once(setting: str) -> None:
    server = Server()
    found, _ = listening(server, config("A://h:5,B://g:7"))
    server.news()
    for value, count in (("3", 1), ("3", 0), ("4", 1)):
        found.reconfigured(config("A://h:5,B://g:7", **{setting: value}))
        limits = [each for each in server.news() if isinstance(each, int)]
        assert len(limits) == count
        assert setting != "max.connections" or limits == [int(value)] * count
    found.reconfigured(config("A://h:5,B://g:7", **{setting: "4", "max.connections.per.ip.overrides": "h:1"}))
    assert len([each for each in server.news() if isinstance(each, int)]) == 1


def test_limits_without_settings_are_those_of_kafka() -> None:
    limits = connection_limits(config("A://h:5"))
    assert limits == ConnectionLimits(
        max_request_bytes=104_857_600,
        max_connections=NO_LIMIT,
        max_connections_per_ip=NO_LIMIT,
        max_connections_per_ip_overrides={},
        creation_rate=None,
        by_listener={"A": ListenerLimits(max_connections=NO_LIMIT, creation_rate=None)},
        protected_listener="A",
        max_idle_ms=600_000,
        send_buffer_bytes=1_048_576,
        receive_buffer_bytes=OS_DEFAULT,
    )


def test_limits_are_those_of_the_settings() -> None:
    given = {
        "inter.broker.listener.name": "B",
        "socket.request.max.bytes": "1001",
        "max.connections": "1002",
        "max.connections.per.ip": "1003",
        "max.connections.per.ip.overrides": "h:1004",
        "max.connection.creation.rate": "5",
        "connections.max.idle.ms": "1006",
        "socket.send.buffer.bytes": "2000000",
        "socket.receive.buffer.bytes": "102400",
        "listener.name.a.max.connections": "1007",
        "listener.name.b.max.connection.creation.rate": "0",
        "quota.window.num": "3",
        "quota.window.size.seconds": "2",
    }
    limits = connection_limits(config("A://h:5,B://g:6", **given))
    rates: dict[str | None, CreationRate | None] = {
        None: limits.creation_rate,
        **{name: each.creation_rate for name, each in limits.by_listener.items()},
    }
    assert replace(limits, creation_rate=None, by_listener={}) == ConnectionLimits(
        max_request_bytes=1001,
        max_connections=1002,
        max_connections_per_ip=1003,
        max_connections_per_ip_overrides={"h": 1004},
        creation_rate=None,
        by_listener={},
        protected_listener="B",
        max_idle_ms=1006,
        send_buffer_bytes=2_000_000,
        receive_buffer_bytes=102_400,
    )
    assert {name: each.max_connections for name, each in limits.by_listener.items()} == {"A": 1007, "B": NO_LIMIT}
    assert rates["A"] is None
    for name, per_second in ((None, 5), ("B", 1)):
        rate, same = rates[name], ByteRate(per_second, samples=3, window_ms=2000)
        assert isinstance(rate, ByteRate)
        steps = [(1, 0), (8, 100), (30, 1999), (2, 2000), (40, 4100), (1, 9000)]
        assert [rate.record(*step) for step in steps] == [same.record(*step) for step in steps]
        assert rate.most_in_window == same.most_in_window == 4 * per_second
