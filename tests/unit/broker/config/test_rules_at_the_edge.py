"""Rules between settings, at the values where they begin and end to hold; and how listeners are written."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ottla.base.errors import InvalidConfigError
from ottla.base.options import Update
from ottla.broker.config.broker_config import BrokerConfig, check_dynamic
from ottla.broker.config.listeners import (
    Listener,
    check_advertised,
    check_ports,
    host_name,
    parse_listeners,
    parse_protocol_map,
)

KEY = "listeners"
PROTOCOLS = {"A": "PLAINTEXT", "B": "SSL"}
OVERRIDES = "max.connections.per.ip.overrides"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("a:5", {"a": 5}),
        (" a : 5 , ::1:0,", {"a": 5, "::1": 0}),
    ],
)
def test_addresses_with_a_limit_of_their_own(text: str, found: dict[str, int]) -> None:
    assert BrokerConfig({OVERRIDES: text}).max_connections_per_ip_overrides == found


@pytest.mark.parametrize("text", ["a", "5", "a:", ":5", ":", "a:x", "a:-1", "a:1.5", "b:1,a"])
def test_an_address_without_a_limit_is_a_mistake(text: str) -> None:
    with pytest.raises(InvalidConfigError, match="is not of the form address:count") as caught:
        BrokerConfig({OVERRIDES: text})
    assert caught.value.key == OVERRIDES


@pytest.mark.parametrize(
    "settings",
    [
        {"replica.fetch.wait.max.ms": "30000", "replica.lag.time.max.ms": "30000"},
        {"broker.id": "0"},
        {"broker.id": "1000"},
        {"broker.id": "7", "node.id": "7"},
        {"broker.id": "1001", "broker.id.generation.enable": "false"},
        {"broker.id": "8", "reserved.broker.max.id": "8"},
        {"log.retention.ms": "1"},
        {"log.retention.ms": "-1"},
        {"group.coordinator.rebalance.protocols": "consumer,classic"},
        {"listeners": "A://h:1,B://h:2", "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"},
        {"listeners": "PLAINTEXT://h:65535"},
        {"listeners": "PLAINTEXT://h:0"},
    ],
)
def test_what_is_just_right(settings: dict[str, str]) -> None:
    BrokerConfig(settings)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"replica.fetch.wait.max.ms": "30001", "replica.lag.time.max.ms": "30000"}, "replica.fetch.wait.max.ms"),
        ({"broker.id": "9", "reserved.broker.max.id": "8"}, "broker.id"),
        ({"broker.id": "-2", "broker.id.generation.enable": "false"}, "broker.id"),
        ({"node.id": "-1", "broker.id.generation.enable": "false"}, "broker.id"),
        ({"broker.id": "-1", "node.id": "5"}, "node.id"),
        ({"log.retention.ms": "0"}, "log.retention.ms"),
        ({"group.coordinator.rebalance.protocols": "consumer"}, "group.coordinator.rebalance.protocols"),
        ({"listeners": "PLAINTEXT://h:65536"}, "listeners"),
        ({"control.plane.listener.name": "CONTROL"}, "control.plane.listener.name"),
        ({"control.plane.listener.name": "plaintext"}, "control.plane.listener.name"),
    ],
)
def test_what_is_just_wrong(settings: dict[str, str], key: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        BrokerConfig(settings)
    assert caught.value.key == key


def test_the_controller_may_have_a_listener_of_its_own() -> None:
    settings = {"listeners": "A://h:1,B://h:2", "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}
    loaded = BrokerConfig({**settings, "control.plane.listener.name": "b", "inter.broker.listener.name": "a"})
    assert (loaded.control_plane_listener_name, loaded.inter_broker_listener_name) == ("B", "A")
    assert BrokerConfig(settings).control_plane_listener_name == "A"


def test_every_interface_is_advertised_by_the_name_of_the_machine() -> None:
    text = "A://:1,B://0.0.0.0:2,C://[::]:3,D://h:4"
    names = ",".join(f"{name}:PLAINTEXT" for name in "ABCD")
    advertised = BrokerConfig({"listeners": text, "listener.security.protocol.map": names}).advertised_listeners
    assert [(each.host, each.port) for each in advertised] == [
        *((host_name(), port) for port in (1, 2, 3)),
        ("h", 4),
    ]


@pytest.mark.parametrize(
    ("name", "alone", "in_a_cluster"),
    [
        ("offsets.topic.replication.factor", 1, 3),
        ("transaction.state.log.replication.factor", 1, 3),
        ("transaction.state.log.min.isr", 1, 2),
        ("num.partitions", 1, 1),
    ],
)
def test_what_a_broker_by_itself_does_by_default(name: str, alone: int, in_a_cluster: int) -> None:
    for settings, expected in (({}, alone), ({"ottla.cluster.dir": "c"}, in_a_cluster)):
        loaded = BrokerConfig(settings)
        assert (loaded[name], loaded.default(name)) == (expected, expected)


@pytest.mark.parametrize(
    ("selector", "reads"),
    [("LeaderSelector", False), ("RackAwareReplicaSelector", True)],
)
def test_consumers_are_sent_to_their_rack_by_one_selector(selector: str, reads: bool) -> None:
    name = f"org.apache.kafka.common.replica.{selector}"
    assert BrokerConfig({"replica.selector.class": name}).reads_from_closest_replica is reads
    assert not BrokerConfig({}).reads_from_closest_replica


@pytest.mark.parametrize("layer", ["cluster_wide", "per_broker"])
def test_a_layer_takes_away_what_says_the_same_thing_below_it(layer: str) -> None:
    below = {"log.retention.ms": "5", "log.roll.ms": "6"}
    above = BrokerConfig(below, **{layer: {"log.retention.hours": "1"}})  # type: ignore[arg-type]
    assert (above.retention_ms, above.roll_ms) == (3_600_000, 6)


def test_a_limit_of_a_listener_is_found_whatever_its_case() -> None:
    loaded = BrokerConfig({"listener.name.OutSide.max.connections": "7", "listener.name.inside.max.connections": "8"})
    limits = [loaded.of_listener(name, "max.connections") for name in ("OUTSIDE", "INSIDE", "OTHER")]
    assert limits == [7, 8, None]
    assert loaded.of_listener("OUTSIDE", "max.connection.creation.rate") is None


@pytest.mark.parametrize(
    ("name", "for_all", "for_one"),
    [
        ("listener.name.a.max.connections", True, True),
        ("listener.name.a.max.connection.creation.rate", True, True),
        ("listener.name.a.ssl.keystore.location", False, True),
        ("max.connections", True, True),
        ("listeners", False, True),
        ("num.partitions", False, False),
    ],
)
def test_for_whom_a_setting_can_be_changed(name: str, for_all: bool, for_one: bool) -> None:
    for allowed, may in ((Update.CLUSTER_WIDE, for_all), (Update.PER_BROKER, for_one and not for_all)):
        if may:
            check_dynamic(name, (allowed,))
        else:
            with pytest.raises(InvalidConfigError):
                check_dynamic(name, (allowed,))


def test_layers_take_what_is_for_them() -> None:
    base = BrokerConfig({"listeners": "PLAINTEXT://h:1"})
    changed = base.with_dynamic(cluster_wide={}, per_broker={"listeners": "PLAINTEXT://h:2", "max.connections": "5"})
    assert (changed.listeners[0].port, changed["max.connections"]) == (2, 5)


@pytest.mark.parametrize(
    ("name", "is_refused"),
    [
        ("listener.name.a.ssl.protocol", True),
        ("listener.name.a.principal.builder.class", True),
        ("listener.name.a.sasl.mechanism", True),
        ("listener.name.a.plain.sasl.jaas.config", True),
        ("listener.name.a.no.ssl.of.mine", False),
        ("rsm.config.ssl.protocol", False),
    ],
)
def test_which_settings_of_a_listener_feign_protection(name: str, is_refused: bool) -> None:
    assert [error.key for error in BrokerConfig({name: "x"}).refusals()] == [name] * is_refused


def test_settings_that_are_known_by_their_prefix_only_do_nothing() -> None:
    names = ["listener.name.a.max.connections", "listener.name.a.other", "rsm.config.max.connections"]
    loaded = BrokerConfig(dict.fromkeys(names, "1"))
    assert [unused.name for unused in loaded.unused_settings()] == names[1:]


# Listeners


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a:plaintext", {"A": "PLAINTEXT"}),
        (
            " A : SSL,, B:SASL_SSL ,C:SASL_PLAINTEXT,D:PLAINTEXT",
            {"A": "SSL", "B": "SASL_SSL", "C": "SASL_PLAINTEXT", "D": "PLAINTEXT"},
        ),
        ("A", None),
        ("A:TLS", None),
        ("A:SSL,a:PLAINTEXT", None),
    ],
)
def test_protocols_of_listeners(text: str, found: dict[str, str] | None) -> None:
    if found is None:
        with pytest.raises(InvalidConfigError):
            parse_protocol_map(KEY, text)
    else:
        assert parse_protocol_map(KEY, text) == found


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("a://h:0", "h", 0),
        ("A://:65535/", "", 65535),
        ("A://[::1]:9", "::1", 9),
        ("A://[]:9", "", 9),
    ],
)
def test_a_listener(text: str, host: str, port: int) -> None:
    assert parse_listeners(KEY, f" , {text},", PROTOCOLS) == [Listener("A", "PLAINTEXT", host, port)]


def test_two_listeners_have_two_names() -> None:
    found = parse_listeners(KEY, "A://h:1,B://h:2", PROTOCOLS)
    assert [(each.name, each.protocol) for each in found] == [("A", "PLAINTEXT"), ("B", "SSL")]
    with pytest.raises(InvalidConfigError, match="A is given twice"):
        parse_listeners(KEY, "B://h:3,A://h:1,a://h:2", PROTOCOLS)


@pytest.mark.parametrize(
    ("hosts", "ports", "is_right"),
    [
        (("a", "a"), (1, 2), True),
        (("a", "b"), (1, 1), True),
        (("a", "a"), (0, 0), True),
        (("a", "a"), (1, 1), False),
    ],
)
def test_who_may_share_a_port(hosts: tuple[str, str], ports: tuple[int, int], is_right: bool) -> None:
    listeners = [Listener(name, "SSL", host, port) for name, host, port in zip("AB", hosts, ports, strict=True)]
    if is_right:
        check_ports(KEY, listeners)
    else:
        with pytest.raises(InvalidConfigError, match="A and B cannot share port 1"):
            check_ports(KEY, listeners)


@pytest.mark.parametrize(
    ("listener", "words"),
    [
        (Listener("A", "SSL", "h", 1), None),
        (Listener("A", "SSL", "", 1), None),
        (Listener("B", "SSL", "h", 1), "B is not one of the listeners"),
        (Listener("A", "SSL", "0.0.0.0", 1), "cannot connect to 0.0.0.0"),
        (Listener("A", "SSL", "::", 1), "cannot connect to ::"),
    ],
)
def test_what_may_be_advertised(listener: Listener, words: str | None) -> None:
    bound = [Listener("A", "SSL", "h", 9)]
    if words is None:
        check_advertised([listener], bound)
    else:
        with pytest.raises(InvalidConfigError, match=words):
            check_advertised([listener], bound)


# Places


def test_of_several_mistakes_those_of_the_file_come_first(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes(b"a.b=1\nbroker.id=x\n")
    with pytest.raises(InvalidConfigError) as caught:
        BrokerConfig.load(file, ["=5", "num.partitions=x", " broker.rack = r "], {"OTTLA_BROKER_ID": "y"})
    lines = caught.value.message.splitlines()
    assert [line.split(":")[0].removeprefix(str(file)) for line in lines[:2]] == [
        ", line 1",
        "the environment variable OTTLA_BROKER_ID",
    ]
    assert [line.split()[0] for line in lines[2:]] == ["--override", "num.partitions"]


def test_a_file_that_is_no_text_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidConfigError, match="is not a text file in UTF-8"):
        BrokerConfig.load(file)


def test_variables_that_are_for_clients_are_no_settings() -> None:
    loaded = BrokerConfig.load(None, [" broker.rack = r "], {"OTTLA_BOOTSTRAP_SERVERS": "h:1", "OTHER": "x"})
    assert (loaded["broker.rack"], loaded.ignored_environment) == ("r", ())


@pytest.mark.parametrize(("resolves", "name"), [(True, "this-machine"), (False, "localhost")])
def test_the_name_of_a_machine_counts_if_it_resolves(
    monkeypatch: pytest.MonkeyPatch, resolves: bool, name: str
) -> None:
    def resolve(host: str, port: object) -> list[object]:
        assert (host, port) == ("this-machine", None)
        if not resolves:
            raise OSError("unknown host")
        return []

    machine = SimpleNamespace(gethostname=lambda: "this-machine", getaddrinfo=resolve)
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "socket", machine)
        found = host_name()
    assert found == name
