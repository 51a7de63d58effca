"""Settings that every client has."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import InvalidConfigError
from ottla.client.core.admin.options import AdminSettings
from ottla.client.core.consumer.options import ConsumerSettings
from ottla.client.core.producer.options import ProducerSettings
from ottla.client.core.settings import merge_settings, parse_bootstrap_servers


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
