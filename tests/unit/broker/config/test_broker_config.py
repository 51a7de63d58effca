"""A broker's configuration: where values come from, what follows from them, and what is refused before start."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla.base.errors import InvalidConfigError
from ottla.base.options import OneOf, Update
from ottla.broker.config.broker_config import BROKER_OPTIONS, BrokerConfig
from ottla.broker.config.keys.reasons import NOT_YET
from ottla.broker.config.listeners import Listener
from ottla.broker.config.sources import environment_name, kafka_setting

SECURITY = (
    *("connection.failed.authentication.", "connections.max.reauth.", "allow.everyone.", "super.users"),
    *("delegation.token.", "password.encoder.", "controller.quota."),
)


def config(**settings: str) -> BrokerConfig:
    return BrokerConfig({name.replace("_", "."): value for name, value in settings.items()})


def refusal(settings: dict[str, str]) -> InvalidConfigError:
    with pytest.raises(InvalidConfigError) as caught:
        BrokerConfig(settings)
    return caught.value


def test_the_command_line_beats_the_environment_beats_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nlog.segment.bytes=1000\nbroker.id=7\n")
    loaded = BrokerConfig.load(
        file,
        ["num.partitions=4"],
        {"OTTLA_NUM_PARTITIONS": "3", "OTTLA_LOG_SEGMENT_BYTES": "2000", "HOME": "/nowhere"},
    )
    assert (loaded["num.partitions"], loaded["log.segment.bytes"], loaded["broker.id"]) == (4, 2000, 7)
    assert loaded["num.io.threads"] == 8


def test_an_override_may_hold_equals_signs() -> None:
    loaded = BrokerConfig.load(None, ["broker.rack=room=2"])
    assert loaded["broker.rack"] == "room=2"


def test_an_override_without_a_value_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="not of the form name=value"):
        BrokerConfig.load(None, ["num.partitions"])


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        BrokerConfig.load(tmp_path / "absent.properties")
    assert caught.value.message == f"cannot read {tmp_path / 'absent.properties'}: no such file or directory"


def test_an_error_in_a_file_names_the_file_and_the_line(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("\nlog.dirs=\\u12\n")
    with pytest.raises(InvalidConfigError, match=r"server\.properties, line 2: log\.dirs"):
        BrokerConfig.load(file)


def test_a_foreign_variable_with_our_prefix_is_ignored_with_a_notice() -> None:
    loaded = BrokerConfig.load(None, [], {"OTTLA_SERVICE_HOST": "10.0.0.1"})
    assert loaded.given == frozenset()
    assert any("OTTLA_SERVICE_HOST" in notice for notice in loaded.notices())


def test_every_setting_has_a_variable_of_its_own() -> None:
    assert len({environment_name(name) for name in BROKER_OPTIONS}) == len(BROKER_OPTIONS)


def test_variables_of_kafkas_images_are_taken_unless_our_own_say_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=1\nlog.retention.hours=1\nmin.insync.replicas=1\n")
    environ = {
        "KAFKA_NUM_PARTITIONS": "2",
        "OTTLA_NUM_PARTITIONS": "3",
        "KAFKA_LOG_DIRS": str(tmp_path / "logs"),
        "KAFKA_CFG_LOG_RETENTION_HOURS": "5",
        "KAFKA_MIN_INSYNC_REPLICAS": "4",
        "KAFKA_ZOOKEEPER_CLIENTCNXNSOCKET": "some.Class",
        "KAFKA_LISTENER_NAME_PLAINTEXT_MAX_CONNECTIONS": "7",
    }
    loaded = BrokerConfig.load(file, ["min.insync.replicas=6"], environ)
    names = ("num.partitions", "log.retention.hours", "min.insync.replicas")
    assert [loaded.integer(name) for name in names] == [3, 5, 6]
    assert loaded.log_dirs == [tmp_path / "logs"]
    assert loaded.of_listener("PLAINTEXT", "max.connections") == 7
    assert loaded["zookeeper.clientCnxnSocket"] == "some.Class"
    assert loaded.ignored_environment == ()


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_LOG_DIRS", "log.dirs"),
        ("KAFKA_CFG_LOG_DIRS", "log.dirs"),
        ("KAFKA_A__DASH_B", "a-dash.b"),
        ("KAFKA_A___LINE_B", "a_line.b"),
        ("KAFKA_ZOOKEEPER_CLIENTCNXNSOCKET", "zookeeper.clientcnxnsocket"),
    ],
)
def test_underscores_in_variables_of_kafkas_images(variable: str, name: str) -> None:
    assert kafka_setting(variable) == name


def test_variables_that_are_there_by_chance_stop_no_broker() -> None:
    quiet = ["HEAP_OPTS", "OPTS", "JMX_OPTS", "JMX_PORT", "LOG4J_OPTS", "LOG4J_ROOT_LOGLEVEL", "VERSION", "HOME"]
    environ = {f"KAFKA_{name}": "anything" for name in quiet}
    assert BrokerConfig.load(None, [], environ).notices() == []
    (notice,) = BrokerConfig.load(None, [], {**environ, "KAFKA_SERVICE_HOST": "10.0.0.1"}).notices()
    assert notice == "environment variables that are no settings: KAFKA_SERVICE_HOST"


def test_a_bad_value_in_a_variable_of_kafkas_images_is_told_with_its_name() -> None:
    with pytest.raises(InvalidConfigError, match=r"variable KAFKA_NUM_PARTITIONS: num\.partitions must"):
        BrokerConfig.load(None, [], {"KAFKA_NUM_PARTITIONS": "many"})


@pytest.mark.parametrize(
    ("settings", "key", "words"),
    [
        ({"num.partition": "3"}, "num.partition", "did you mean num.partitions?"),
        ({"num.partitions": "0"}, "num.partitions", "must be at least 1"),
        ({"listeners": "127.0.0.1:9092"}, "listeners", "NAME://host:port"),
        ({"listeners": "PLAINTEXT://h:70000"}, "listeners", "NAME://host:port"),
        ({"listeners": ""}, "listeners", "at least one"),
        ({"listeners": "EXTERNAL://h:1"}, "listeners", "which protocol EXTERNAL stands for"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "listeners", "given twice"),
        ({"listeners": "PLAINTEXT://a:1,SSL://a:1"}, "listeners", "cannot share port 1"),
        ({"advertised.listeners": "SSL://a:1"}, "advertised.listeners", "not one of the listeners"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "advertised.listeners", "cannot connect to 0.0.0.0"),
        ({"listener.security.protocol.map": "A:B"}, "listener.security.protocol.map", "NAME:PROTOCOL"),
        ({"listeners": "SSL://a:1"}, "inter.broker.listener.name", "not one of the advertised"),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "inter.broker.listener.name",
            "cannot both be set",
        ),
        ({"broker.id": "1", "node.id": "2"}, "node.id", "differ"),
        ({"broker.id": "1001"}, "broker.id", "0 to 1000"),
        ({"broker.id": "-2"}, "broker.id", "0 to 1000"),
        ({"broker.id.generation.enable": "false"}, "broker.id", "must be set"),
        ({"log.dirs": ","}, "log.dirs", "at least one directory"),
        ({"log.retention.minutes": "0"}, "log.retention.ms", "-1 (for ever)"),
        ({"replica.fetch.wait.max.ms": "40000"}, "replica.fetch.wait.max.ms", "must not exceed"),
        ({"max.connections.per.ip.overrides": "host"}, "max.connections.per.ip.overrides", "address:count"),
    ],
)
def test_what_cannot_work_is_refused_and_named(settings: dict[str, str], key: str, words: str) -> None:
    error = refusal(settings)
    assert error.key == key
    assert words in error.message
    assert "\n" not in error.message


def test_listeners() -> None:
    loaded = BrokerConfig(
        {
            "listeners": "INSIDE://:9092, OUTSIDE://[::1]:0",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SSL",
            "inter.broker.listener.name": "inside",
            "advertised.listeners": "INSIDE://broker-1:9092",
        }
    )
    assert loaded.listeners == [Listener("INSIDE", "PLAINTEXT", "", 9092), Listener("OUTSIDE", "SSL", "::1", 0)]
    assert str(loaded.listeners[1]) == "OUTSIDE://[::1]:0"
    assert loaded.advertised_listeners == [Listener("INSIDE", "PLAINTEXT", "broker-1", 9092)]
    assert loaded.inter_broker_listener_name == "INSIDE"


def test_an_empty_host_is_advertised_by_name() -> None:
    (listener,) = BrokerConfig({"listeners": "PLAINTEXT://0.0.0.0:9092"}).advertised_listeners
    assert not listener.binds_every_interface
    assert BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:1"}).advertised_listeners[0].host == "127.0.0.1"


def test_the_listener_between_brokers_follows_its_protocol() -> None:
    loaded = BrokerConfig({"listeners": "A://h:1,B://h:2", "listener.security.protocol.map": "A:SSL,B:PLAINTEXT"})
    assert loaded.inter_broker_listener_name == "B"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, None), ({"broker.id": "-1"}, None), ({"broker.id": "0"}, 0), ({"node.id": "5"}, 5)],
)
def test_broker_id(settings: dict[str, str], expected: int | None) -> None:
    assert BrokerConfig(settings).broker_id == expected


def test_log_dirs_beats_log_dir() -> None:
    assert config(log_dir="/one").log_dirs == [Path("/one")]
    assert config(log_dir="/one", log_dirs="/two, /three").log_dirs == [Path("/two"), Path("/three")]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_retention_by_the_finest_unit(settings: dict[str, str], expected: int) -> None:
    assert BrokerConfig(settings).retention_ms == expected


def test_roll_jitter_and_flush_by_the_finest_unit() -> None:
    coarse = config(log_roll_hours="2", log_roll_jitter_hours="1", log_flush_scheduler_interval_ms="9")
    assert (coarse.roll_ms, coarse.roll_jitter_ms, coarse.flush_ms) == (7_200_000, 3_600_000, 9)
    fine = config(
        log_roll_hours="2",
        log_roll_ms="5",
        log_roll_jitter_ms="6",
        log_flush_interval_ms="7",
        log_flush_scheduler_interval_ms="9",
    )
    assert (fine.roll_ms, fine.roll_jitter_ms, fine.flush_ms) == (5, 6, 7)


def test_one_broker_gets_internal_topics_it_can_create() -> None:
    name = "offsets.topic.replication.factor"
    assert BrokerConfig({})[name] == 1
    assert BrokerConfig({name: "2"})[name] == 2
    assert BrokerConfig({"zookeeper.connect": "zk:2181"})[name] == 3
    assert BrokerConfig({"ottla.cluster.dir": "cluster"})[name] == 3


def test_settings_that_do_nothing_are_named_with_the_reason() -> None:
    loaded = config(num_io_threads="4", num_partitions="2", broker_session_timeout_ms="1")
    assert [unused.name for unused in loaded.unused_settings()] == ["broker.session.timeout.ms", "num.io.threads"]
    assert "one event loop" in loaded.unused_settings()[1].reason
    deprecated = config(log_message_timestamp_difference_max_ms="1")
    assert any("is deprecated; use `log.message.timestamp.before.max.ms`" in notice for notice in deprecated.notices())


def test_all_idle_settings_are_one_sentence() -> None:
    loaded = config(num_io_threads="4", num_network_threads="2", log_local_retention_ms="1")
    (sentence,) = loaded.notices()
    assert sentence == (
        "settings without effect in this version: log.local.retention.ms (nothing is tiered here); "
        "num.io.threads, num.network.threads (one event loop serves the whole broker)"
    )


@pytest.mark.parametrize(
    ("settings", "key", "words"),
    [
        ({"listeners": "SSL://h:1", "inter.broker.listener.name": "SSL"}, "listeners", "SSL://h:1 asks for SSL"),
        ({"listeners": "PLAINTEXT://h:1,SASL_SSL://h:2"}, "listeners", "SASL_SSL://h:2 asks for SASL_SSL"),
        (
            {
                "listeners": "PLAINTEXT://h:1,IN://h:2",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,IN:SASL_PLAINTEXT",
            },
            "listeners",
            "IN://h:2 asks for SASL_PLAINTEXT",
        ),
        (
            {
                "listeners": "A://h:1",
                "listener.security.protocol.map": "A:SSL",
                "security.inter.broker.protocol": "SSL",
            },
            "security.inter.broker.protocol",
            "plain text only",
        ),
        ({"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}, "authorizer.class.name", "access rules"),
        ({"principal.builder.class": "x.Y"}, "principal.builder.class", "anonymous"),
        ({"password.encoder.secret": "hunter2"}, "password.encoder.secret", "encrypts none"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "sasl.enabled.mechanisms", "authenticates nobody"),
        ({"ssl.keystore.location": "/k.pem"}, "ssl.keystore.location", "no TLS"),
        ({"ssl.client.auth": "required"}, "ssl.client.auth", "no TLS"),
        ({"listener.name.in.ssl.keystore.location": "/k"}, "listener.name.in.ssl.keystore.location", "plain text"),
        ({"listener.name.in.plain.sasl.jaas.config": "x"}, "listener.name.in.plain.sasl.jaas.config", "plain text"),
        ({"create.topic.policy.class.name": "x.Y"}, "create.topic.policy.class.name", "Java classes"),
        ({"zookeeper.ssl.cipher.suites": "TLS_X"}, "zookeeper.ssl.cipher.suites", "Java's names"),
        ({"zookeeper.ssl.crl.enable": "true"}, "zookeeper.ssl.crl.enable", "revocation lists"),
        ({"process.roles": "broker"}, "process.roles", "no KRaft"),
        ({"controller.quorum.voters": "1@h:1"}, "controller.quorum.voters", "no KRaft"),
        ({"remote.log.storage.system.enable": "true"}, "remote.log.storage.system.enable", "nothing is tiered"),
    ],
)
def test_what_would_feign_protection_or_a_place_for_data_is_refused(
    settings: dict[str, str], key: str, words: str
) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        BrokerConfig.load(None, [f"{name}={value}" for name, value in settings.items()])
    refusals = {e.key: e.message for e in BrokerConfig(settings).refusals()}
    assert words in refusals[key]
    assert refusals[key] in caught.value.message
    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"zookeeper.connect": "zk:x"}, "zookeeper.connect: 'zk:x' is not of the form host:port"),
        ({"ottla.cluster.dir": "/c"}, "zookeeper.connect and ottla.cluster.dir cannot both be set"),
        ({"zookeeper.set.acl": "true"}, "nothing that ZooKeeper could know this broker by"),
        ({"ottla.zookeeper.credentials": "hunter2"}, "ottla.zookeeper.credentials is not of the form user:password"),
        (
            {"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.keystore.location": "/k.jks"},
            "zookeeper.ssl.keystore.location: /k.jks has another form, but only PEM files can be read",
        ),
        (
            {
                "zookeeper.ssl.client.enable": "true",
                "zookeeper.ssl.truststore.location": "/t.pem",
                "zookeeper.ssl.truststore.type": "PKCS12",
            },
            "zookeeper.ssl.truststore.location: /t.pem has PKCS12",
        ),
        ({"zookeeper.ssl.enabled.protocols": "TLSv1"}, "may only name TLSv1.2, TLSv1.3"),
    ],
)
def test_settings_about_zookeeper_make_sense_together(settings: dict[str, str], words: str) -> None:
    refused = refusal({"zookeeper.connect": "zk:2181/kafka", **settings})
    assert words in refused.message and "hunter2" not in refused.message


@pytest.mark.parametrize(
    "settings",
    [
        {"authorizer.class.name": ""},
        {"ssl.client.auth": "none"},
        {"security.inter.broker.protocol": "PLAINTEXT"},
        {"process.roles": ""},
        {"remote.log.storage.system.enable": "false"},
        {"listener.name.plaintext.max.connections": "5"},
        {"super.users": "User:admin"},
    ],
)
def test_what_feigns_nothing_is_accepted(settings: dict[str, str]) -> None:
    assert BrokerConfig(settings).refusals() == []


def test_a_running_broker_refuses_them_too() -> None:
    with pytest.raises(InvalidConfigError, match="no TLS"):
        config().with_dynamic(cluster_wide={}, per_broker={"ssl.keystore.location": "/k.pem"})


def test_no_setting_is_refused_at_its_default() -> None:
    assert [option.name for option in BROKER_OPTIONS.values() if option.refusal(option.default)] == []
    assert [option.name for option in BROKER_OPTIONS.values() if option.refused and option.no_effect] == []


def test_only_what_belongs_to_security_is_still_to_act() -> None:
    """Client quotas are a part of it; all other settings that do nothing are of something that Ottla has not."""
    idle = [option.name for option in BROKER_OPTIONS.values() if re.search(r"\byet\b", option.no_effect or "")]
    assert {name for name in idle if not name.startswith(SECURITY)} == set()
    assert {BROKER_OPTIONS[name].no_effect for name in idle} == {NOT_YET}


def test_everything_that_is_wrong_is_told_at_once_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.id=1\n\nnum.partitions=0\nnum.partition=3\nlog.dirs=\\u12\n")
    with pytest.raises(InvalidConfigError) as caught:
        BrokerConfig.load(file, ["log.segment.bytes=many"], {"OTTLA_NUM_IO_THREADS": "x"})
    assert caught.value.message.splitlines() == [
        f"{file}, line 3: num.partitions must be at least 1, but was '0'",
        f"{file}, line 4: unknown broker setting num.partition; did you mean num.partitions?",
        f"{file}, line 5: log.dirs: \\u must be followed by four hexadecimal digits",
        "the environment variable OTTLA_NUM_IO_THREADS: num.io.threads must be a whole number, but was 'x'",
        "log.segment.bytes must be a whole number, but was 'many'",
    ]


def test_rules_between_settings_are_told_at_once_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("replica.fetch.wait.max.ms=40000\nlisteners=nowhere\nlog.dirs=,\n")
    with pytest.raises(InvalidConfigError) as caught:
        BrokerConfig.load(file)
    assert [line.split(": ")[0] for line in caught.value.message.splitlines()] == [
        f"{file}, line 1",
        f"{file}, line 2",
        f"{file}, line 3",
    ]


def test_an_override_takes_the_place_of_a_line(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=1\n")
    with pytest.raises(InvalidConfigError) as caught:
        BrokerConfig.load(file, ["num.partitions=0"])
    assert caught.value.message == "num.partitions must be at least 1, but was '0'"


@pytest.mark.parametrize(
    "release",
    ["0.8.2", "0.10.0.0", "0.10.0-IV1", "0.10.2.1", "0.11.0", "1.0", "1.1.1", "2.8-IV1", "3.0-IV1", "3.9", "3.9.1"],
)
def test_releases_of_kafka(release: str) -> None:
    assert config(inter_broker_protocol_version=release)["inter.broker.protocol.version"] == release


@pytest.mark.parametrize("release", ["", "3", "0.10", "0.12.0", "2.9", "3.0-IV9", "newest", "0.9.0-IV0"])
def test_what_was_never_a_release_of_kafka(release: str) -> None:
    assert "must be a Kafka release" in refusal({"log.message.format.version": release}).message


def test_every_default_obeys_its_own_rule() -> None:
    for option in BROKER_OPTIONS.values():
        if option.valid is not None and option.default is not None:
            assert option.valid.problem(option.default) is None, option.name
        if isinstance(option.valid, OneOf):
            assert option.default in option.valid.allowed, option.name


def test_listener_settings_are_accepted_unseen() -> None:
    name = "listener.name.outside.ssl.keystore.location"
    assert BrokerConfig({name: "/k.pem"})[name] == "/k.pem"


def test_dynamic_layers() -> None:
    base = config(log_retention_ms="1000", num_partitions="2")
    changed = base.with_dynamic(
        cluster_wide={"log.retention.ms": "2000", "message.max.bytes": "5"}, per_broker={"message.max.bytes": "6"}
    )
    assert (changed.retention_ms, changed["message.max.bytes"], changed["num.partitions"]) == (2000, 6, 2)
    assert base.retention_ms == 1000
    assert changed.with_dynamic(cluster_wide={}, per_broker={})["message.max.bytes"] == 1048588


def test_only_dynamic_settings_can_be_changed() -> None:
    with pytest.raises(InvalidConfigError, match=r"num\.partitions can only be set at start"):
        config().with_dynamic(cluster_wide={}, per_broker={"num.partitions": "2"})
    with pytest.raises(InvalidConfigError, match="listeners can only be set for one broker"):
        config().with_dynamic(cluster_wide={"listeners": "PLAINTEXT://:1"}, per_broker={})
    assert BROKER_OPTIONS["log.retention.hours"].update is Update.READ_ONLY
