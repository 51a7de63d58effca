"""Settings that every client has."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import InvalidConfigError
from ottla.client.core.admin.options import ADMIN_OPTIONS, AdminSettings
from ottla.client.core.consumer.options import ConsumerSettings
from ottla.client.core.producer.options import ProducerSettings
from ottla.client.core.settings import backoff_ms, merge_settings, parse_bootstrap_servers, parse_settings
from ottla.client.core.timeouts import seconds


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        (["a:1"], [("a", 1)]),
        (["a:1", " b:2", ""], [("a", 1), ("b", 2)]),
        (["[::1]:3"], [("::1", 3)]),
        (["host"], [("host", 9092)]),
        (["[fe80::1%eth0]"], [("fe80::1%eth0", 9092)]),
        (["10.0.0.1:5", "my_broker-1.local:6"], [("10.0.0.1", 5), ("my_broker-1.local", 6)]),
    ],
)
def test_bootstrap_servers(servers: list[str], expected: list[tuple[str, int]]) -> None:
    assert parse_bootstrap_servers(servers) == expected


@pytest.mark.parametrize(
    "servers",
    [
        [],
        [""],
        ["a:b"],
        [":1"],
        ["a:0"],
        ["a:65536"],
        ["a:1", "b:x"],
        ["9092"],
        ["a:1:2"],
        ["::1"],
        ["http://a:9092"],
        ["a b:1"],
        ["[a:1"],
        ["a:"],
    ],
)
def test_bad_bootstrap_servers(servers: list[str]) -> None:
    with pytest.raises(InvalidConfigError, match="host:port"):
        parse_bootstrap_servers(servers)


@pytest.mark.parametrize("kind", [ProducerSettings, ConsumerSettings, AdminSettings])
def test_what_is_known_of_connections(kind: Any) -> None:
    settings = kind.parse(
        {
            "bootstrap.servers": "a:1",
            "connections.max.idle.ms": -1,
            "send.buffer.bytes": 131072,
            "receive.buffer.bytes": 65536,
            "socket.connection.setup.timeout.max.ms": 20_000,
            "client.dns.lookup": "use_all_dns_ips",
            "metadata.recovery.strategy": "rebootstrap",
        }
    ).client
    assert (settings.connection_idle_ms, settings.connect_timeout_max_ms) == (-1, 20_000)
    assert (settings.send_buffer_bytes, settings.receive_buffer_bytes) == (131072, 65536)


@pytest.mark.parametrize(
    ("kind", "name", "hint"),
    [
        (ProducerSettings, "key.serializer", "key_serializer="),
        (ProducerSettings, "value_serializer", "value_serializer="),
        (ProducerSettings, "partitioner.class", "partitioner="),
        (ProducerSettings, "interceptor.classes", "interceptors="),
        (ConsumerSettings, "value.deserializer", "value_deserializer="),
        (ConsumerSettings, "interceptor.classes", "interceptors="),
        (AdminSettings, "metric.reporters", "no metrics"),
    ],
)
def test_what_is_a_class_in_java_has_a_keyword_here(kind: Any, name: str, hint: str) -> None:
    with pytest.raises(InvalidConfigError, match=hint):
        kind.parse({"bootstrap.servers": "a:1", name: object()})


@pytest.mark.parametrize("config", ["x", [("linger.ms", 1)], 5, {1: 2}])
def test_settings_that_are_no_mapping(config: Any) -> None:
    with pytest.raises(InvalidConfigError, match="setting"):
        merge_settings(config, {})


@pytest.mark.parametrize(("text", "reason"), [("\ud800", "has no UTF-8 form"), ("x" * 40_000, "at most 32767 bytes")])
@pytest.mark.parametrize("name", ["client.id", "transactional.id"])
def test_names_that_no_request_has_room_for(name: str, text: str, reason: str) -> None:
    with pytest.raises(InvalidConfigError, match=reason):
        ProducerSettings.parse({"bootstrap.servers": "a:1", name: text})


@pytest.mark.parametrize(("port", "is_one"), [("1", True), ("65535", True), ("65536", False), ("0", False)])
def test_ports_have_bounds(port: str, is_one: bool) -> None:
    if is_one:
        assert parse_bootstrap_servers([f"a:{port}"]) == [("a", int(port))]
    else:
        with pytest.raises(InvalidConfigError, match="not of the form host:port"):
            parse_bootstrap_servers([f"a:{port}"])


@pytest.mark.parametrize("name", ["metric.reporters", "auto.include.jmx.reporter", "enable.metrics.push"])
@pytest.mark.parametrize("kind", [ProducerSettings, ConsumerSettings, AdminSettings])
def test_no_client_reports_metrics(kind: Any, name: str) -> None:
    with pytest.raises(InvalidConfigError, match="this client reports no metrics"):
        kind.parse({"bootstrap.servers": "a:1", name: "true"})


def test_names_have_as_many_bytes_as_a_request_has_room_for() -> None:
    fitting = "ü" * 16_383 + "x"
    assert ProducerSettings.parse({"bootstrap.servers": "a:1", "client.id": fitting}).client.client_id == fitting
    with pytest.raises(InvalidConfigError, match="at most 32767 bytes, but has 32768"):
        ProducerSettings.parse({"bootstrap.servers": "a:1", "client.id": fitting + "x"})
    servers = ",".join(["broker-with-a-long-name:9092"] * 2000)
    assert len(ProducerSettings.parse({"bootstrap.servers": servers}).client.bootstrap_servers) == 2000


def test_settings_and_keywords_are_one_mapping_and_nothing_is_given_twice() -> None:
    assert merge_settings(None, {}) == {}
    assert merge_settings({"a.b": 1}, {"c_d": 2}) == {"a.b": 1, "c.d": 2}
    with pytest.raises(InvalidConfigError, match=r"a\.b is given twice, as a setting and as the keyword a_b") as raised:
        merge_settings({"a.b": 1}, {"a_b": 1})
    assert raised.value.key == "a.b"
    given = {"a.b": 1}
    merge_settings(given, {"c_d": 2})
    assert given == {"a.b": 1}, "the user's own stays as it is"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("bootstrap.fail.fast", True, True),
        ("bootstrap.fail.fast", False, False),
        ("bootstrap.fail.fast", "true", True),
        ("retry.backoff.ms", 7, 7),
        ("retry.backoff.ms", "7", 7),
        ("bootstrap.servers", ["a:1", "b:2"], ("a:1", "b:2")),
        ("bootstrap.servers", ("a:1", "b:2"), ("a:1", "b:2")),
        ("bootstrap.servers", "a:1,b:2", ("a:1", "b:2")),
        ("client.id", "x", "x"),
    ],
)
def test_values_are_given_in_their_own_types_or_as_text(name: str, value: Any, expected: Any) -> None:
    parsed = parse_settings(ADMIN_OPTIONS, {"bootstrap.servers": "x:1", name: value})
    assert parsed[name] == expected


@pytest.mark.parametrize("value", [object(), ["a:1", 2], b"a:1", {"a:1"}, {}])
def test_values_of_other_types_are_refused(value: Any) -> None:
    kind = type(value).__name__
    with pytest.raises(InvalidConfigError, match=rf"bootstrap\.servers cannot be a value of type {kind}"):
        parse_settings(ADMIN_OPTIONS, {"bootstrap.servers": value})


def test_pauses_double_twenty_times_at_the_most() -> None:
    assert [backoff_ms(attempt, 1, 10**9) for attempt in (-1, 0, 1, 2, 20, 21, 22, 90)] == [
        0,
        0,
        1,
        2,
        2**19,
        2**20,
        2**20,
        2**20,
    ]


@pytest.mark.parametrize(
    ("given", "expected"), [(None, 1e9), (0, 0.0), (-1, 0.0), (2.5, 2.5), (1e9, 1e9), (2e9, 1e9), (float("inf"), 1e9)]
)
def test_a_timeout_is_a_number_of_seconds_or_as_long_as_it_takes(given: float | None, expected: float) -> None:
    assert seconds(given) == expected


@pytest.mark.parametrize("given", [float("nan"), "5", object()])
def test_what_is_no_timeout(given: Any) -> None:
    with pytest.raises(ValueError, match="a timeout is a number of seconds, but was"):
        seconds(given)


def test_every_setting_of_connections_is_found_under_its_name() -> None:
    numbers = {
        "request.timeout.ms": 11,
        "retry.backoff.ms": 12,
        "retry.backoff.max.ms": 13,
        "reconnect.backoff.ms": 14,
        "reconnect.backoff.max.ms": 15,
        "socket.connection.setup.timeout.ms": 16,
        "socket.connection.setup.timeout.max.ms": 17,
        "connections.max.idle.ms": 18,
        "send.buffer.bytes": 19,
        "receive.buffer.bytes": 20,
        "metadata.max.age.ms": 21,
    }
    given = {"bootstrap.servers": "a:1", "bootstrap.fail.fast": True, "client.id": "me", **numbers}
    assert AdminSettings.parse(given).client == (("a:1",), True, "me", *range(11, 22))


def test_what_holds_for_connections_if_nothing_is_said() -> None:
    expected = (("a:1",), False, "", 30_000, 100, 1000, 50, 1000, 10_000, 30_000, 540_000, -1, -1, 300_000)
    for kind in (ProducerSettings, ConsumerSettings, AdminSettings):
        assert kind.parse({"bootstrap.servers": "a:1"}).client == expected
    assert AdminSettings.parse({"bootstrap.servers": "a:1"}).api_timeout_ms == 60_000


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("request.timeout.ms", 1),
        ("retry.backoff.ms", 0),
        ("retry.backoff.max.ms", 0),
        ("reconnect.backoff.ms", 0),
        ("reconnect.backoff.max.ms", 0),
        ("socket.connection.setup.timeout.ms", 1),
        ("socket.connection.setup.timeout.max.ms", 1),
        ("send.buffer.bytes", -1),
        ("receive.buffer.bytes", -1),
        ("metadata.max.age.ms", 0),
        ("default.api.timeout.ms", 0),
    ],
)
def test_the_least_that_can_be_asked_for(name: str, least: int) -> None:
    assert parse_settings(ADMIN_OPTIONS, {"bootstrap.servers": "a:1", name: least})[name] == least
    with pytest.raises(InvalidConfigError, match=f"at least {least}") as refusal:
        parse_settings(ADMIN_OPTIONS, {"bootstrap.servers": "a:1", name: least - 1})
    assert refusal.value.key == name


@pytest.mark.parametrize(("idle_ms", "is_fine"), [(1, True), (0, False), (-1, True), (-2, False)])
def test_connections_are_closed_after_some_time_or_never(idle_ms: int, is_fine: bool) -> None:
    given = {"bootstrap.servers": "a:1", "connections.max.idle.ms": idle_ms}
    if is_fine:
        assert AdminSettings.parse(given).client.connection_idle_ms == idle_ms
    else:
        with pytest.raises(InvalidConfigError) as refusal:
            AdminSettings.parse(given)
        assert refusal.value.key == "connections.max.idle.ms"
