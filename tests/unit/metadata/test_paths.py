"""The nodes of the store: what was written is read again, in the JSON that Kafka's tools know."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.types import NIL_UUID, Endpoint, TopicPartition, uuid_from_text
from ottla.metadata import paths
from ottla.metadata.paths import BrokerNode, PartitionStateNode, TopicNode

LISTENERS = st.sampled_from(("PLAINTEXT", "SSL", "INTERNAL"))
HOSTS = st.sampled_from(("127.0.0.1", "::1", "host.example"))
PROTOCOLS = st.sampled_from(("PLAINTEXT", "SSL"))


@given(
    endpoints=st.lists(
        st.tuples(st.builds(Endpoint, LISTENERS, HOSTS, st.integers(1, 65535)), PROTOCOLS),
        unique_by=lambda pair: pair[0].listener,
    ),
    rack=st.none() | st.text(),
    first_epoch=st.none() | st.integers(0, 2**63 - 1),
    is_clean=st.booleans(),
)
def test_a_broker_is_read_as_it_was_written(
    endpoints: list[tuple[Endpoint, str]], rack: str | None, first_epoch: int | None, is_clean: bool
) -> None:
    node = BrokerNode(endpoints, rack, first_epoch, is_clean)
    data = node.encode(5)
    assert BrokerNode.decode(data) == node
    value = json.loads(data)
    assert (value["version"], value["timestamp"], value.get("rack")) == (5, "5", rack)
    assert ("rack" in value) == (rack is not None)
    assert ("first_epoch" in value, "clean_shutdown" in value) == (first_epoch is not None, is_clean)
    plain = [(endpoint.host, endpoint.port) for endpoint, protocol in endpoints if protocol == "PLAINTEXT"]
    assert (value["host"], value["port"]) == (plain[0] if plain else (None, -1))


TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAKg"
TOPIC = TopicNode(uuid_from_text(TOPIC_ID), {1: [3], 0: [1, 2]}, adding={0: [2]}, removing={1: [4]})
STATE = PartitionStateNode(leader=2, leader_epoch=7, isr=[2, 1], controller_epoch=9)


@pytest.mark.parametrize(
    ("data", "as_kafka_writes_it", "decode", "value"),
    [
        (
            TOPIC.encode(),
            {
                "version": 3,
                "topic_id": TOPIC_ID,
                "partitions": {"0": [1, 2], "1": [3]},
                "adding_replicas": {"0": [2]},
                "removing_replicas": {"1": [4]},
            },
            TopicNode.decode,
            TOPIC,
        ),
        (
            STATE.encode(),
            {"version": 1, "leader": 2, "leader_epoch": 7, "isr": [2, 1], "controller_epoch": 9},
            PartitionStateNode.decode,
            STATE,
        ),
        (
            paths.encode_controller(2, 5),
            {"version": 2, "brokerid": 2, "timestamp": "5", "kraftControllerEpoch": -1},
            paths.decode_controller,
            2,
        ),
        (
            paths.encode_config({"b": "2", "a": "1"}),
            {"version": 1, "config": {"a": "1", "b": "2"}},
            paths.decode_config,
            {"a": "1", "b": "2"},
        ),
        (
            paths.encode_config_change("topics/t"),
            {"version": 2, "entity_path": "topics/t"},
            paths.decode_config_change,
            "topics/t",
        ),
        (paths.encode_cluster_id("x"), {"version": "1", "id": "x"}, paths.decode_cluster_id, "x"),
        (paths.encode_features(), {"features": {}, "version": 2, "status": 1}, None, None),
        (paths.encode_log_dir_event(2), {"version": 1, "broker": 2, "event": 1}, paths.decode_log_dir_event, 2),
        (
            paths.encode_reassignments({TopicPartition("t", 1): (3, 2)}),
            {"version": 1, "partitions": [{"topic": "t", "partition": 1, "replicas": [3, 2]}]},
            paths.decode_reassignments,
            {TopicPartition("t", 1): (3, 2)},
        ),
        (
            paths.encode_producer_id_block(2, 1000, 1999),
            {"version": 1, "broker": 2, "block_start": "1000", "block_end": "1999"},
            paths.decode_producer_id_block,
            (1000, 1999),
        ),
        (
            paths.encode_producer_id_block(2, 2**63 - 1000, 2**63 - 1),
            {"version": 1, "broker": 2, "block_start": str(2**63 - 1000), "block_end": str(2**63 - 1)},
            paths.decode_producer_id_block,
            (2**63 - 1000, 2**63 - 1),
        ),
    ],
)
def test_nodes_have_the_fields_of_kafka(
    data: bytes, as_kafka_writes_it: dict[str, Any], decode: Callable[[bytes], object] | None, value: object
) -> None:
    assert json.loads(data) == as_kafka_writes_it
    assert b" " not in data
    if decode is not None:
        assert decode(data) == value


def test_a_topic_of_an_old_cluster_has_no_id_and_moves_nothing() -> None:
    assert TopicNode.decode(b'{"version":1,"partitions":{"0":[1]}}') == TopicNode(NIL_UUID, {0: [1]}, {}, {})


def test_names_that_could_be_mistaken_for_paths_are_quoted() -> None:
    assert paths.group_config("a/b<default>") == "/config/groups/a%2Fb%3Cdefault%3E"
    assert paths.topic_config("a.b") == "/config/topics/a.b"
    assert paths.broker_config(None) == "/config/brokers/<default>"
    assert paths.broker_config(0) == "/config/brokers/0"


def test_nodes_lie_where_kafkas_do() -> None:
    assert (paths.topic("t"), paths.partition_state("t", 3)) == (
        "/brokers/topics/t",
        "/brokers/topics/t/partitions/3/state",
    )
    moves = json.dumps({"partitions": [{"topic": "t", "partition": 0}, {"topic": "u", "partition": 2}]}).encode()
    assert paths.decode_partitions(moves) == [("t", 0), ("u", 2)]


@pytest.mark.parametrize(
    ("decode", "data", "words"),
    [
        (TopicNode.decode, b"\xff{", "it holds no JSON"),
        (TopicNode.decode, b"[1]", "it holds no JSON object"),
        (TopicNode.decode, b"{}", "it has no partitions"),
        (TopicNode.decode, b'{"partitions":{"x":[1]}}', "its partitions are not lists by partition"),
        (TopicNode.decode, b'{"partitions":{"0":["1"]}}', "its partitions are not lists of numbers"),
        (TopicNode.decode, b'{"partitions":{},"topic_id":"short"}', "its topic_id is none"),
        (TopicNode.decode, b'{"partitions":{"0":[]}}', "its partition 0 has no replicas"),
        (TopicNode.decode, b'{"partitions":{"0":[1,1]}}', r"its partition 0 has the replicas \[1, 1\]"),
        (TopicNode.decode, b'{"partitions":{"0":[-1]}}', r"its partition 0 has the replicas \[-1\]"),
        (TopicNode.decode, b'{"partitions":{"2147483648":[1]}}', "its partitions are not lists by partition"),
        (TopicNode.decode, b'{"partitions":{"0":[2147483648]}}', "its partitions are not lists of numbers"),
        pytest.param(TopicNode.decode, b"[" * 100_000, "it is nested too deeply", id="nested"),
        (TopicNode.decode, b'{"partitions":{"-1":[1]}}', "its partitions are not lists by partition"),
        (TopicNode.decode, b'{"partitions":[[1]]}', "its partitions are not lists by partition"),
        (TopicNode.decode, b'{"partitions":{"0":{"1":1}}}', "its partitions are not lists of numbers"),
        (TopicNode.decode, b'{"partitions":{"0":[-2147483649]}}', "its partitions are not lists of numbers"),
        (TopicNode.decode, b'{"partitions":{},"adding_replicas":{"0":1}}', "its adding_replicas are not lists of num"),
        (TopicNode.decode, b'{"partitions":{},"topic_id":null}', "its topic_id is no text"),
        (PartitionStateNode.decode, b'{"leader":"--1","isr":[]}', "its leader is no whole number"),
        (PartitionStateNode.decode, b'{"leader":-2147483649,"isr":[]}', "its leader is no whole number of 32 bits"),
        (paths.decode_controller_epoch, b"-2147483649", "is no whole number of 32 bits"),
        (paths.decode_controller_epoch, b"7 ", "is no whole number"),
        (paths.decode_producer_id_block, b'{"block_start":-9223372036854775809}', "its block_start is no whole number"),
        (paths.decode_producer_id_block, b'{"block_start":"0","block_end":9223372036854775808}', "its block_end is no"),
        (paths.decode_cluster_id, b'{"id":"\\ud800"}', "its id is no text"),
        (paths.decode_cluster_id, b'{"id":"a\\udfffb"}', "its id is no text"),
        (paths.decode_config, b'{"config":{"\\ud800":"a"}}', "its config is no object of texts"),
        (paths.decode_config, b'{"config":["a"]}', "its config is no object of texts"),
        (BrokerNode.decode, b'{"endpoints":["SSL://h:1",7]}', "its endpoints are no list of texts"),
        (BrokerNode.decode, b'{"endpoints":["SSL://h:"]}', "is no address"),
        (PartitionStateNode.decode, b'{"leader":2147483648,"isr":[]}', "its leader is no whole number"),
        (BrokerNode.decode, b'{"endpoints":5}', "its endpoints are no list of texts"),
        (BrokerNode.decode, b'{"endpoints":["SSL://h:1"],"rack":7}', "its rack is no text"),
        (BrokerNode.decode, b'{"endpoints":["SSL://h:1"],"first_epoch":"x"}', "its first_epoch is no whole number"),
        (BrokerNode.decode, b'{"endpoints":["SSL://h:123456"]}', "is no address"),
        (paths.decode_controller_epoch, b"", "'' is no whole number"),
        (paths.decode_controller_epoch, b"seven", "'seven' is no whole number"),
        (paths.decode_controller_epoch, b"2147483648", "is no whole number of 32 bits"),
        (PartitionStateNode.decode, b'{"leader":true,"isr":[]}', "its leader is no whole number"),
        (BrokerNode.decode, b'{"endpoints":["here"],"listener_security_protocol_map":{}}', "'here' is no address"),
        (BrokerNode.decode, b'{"host":null}', "its host is no text"),
        (paths.decode_config, b'{"config":{"a":1}}', "its config is no object of texts"),
        (paths.decode_config_change, b'{"version":2}', "its entity_type is no text"),
        (paths.decode_controller, b"{}", "its brokerid is no whole number"),
    ],
)
def test_what_a_node_should_not_hold_is_named(decode: Callable[[bytes], Any], data: bytes, words: str) -> None:
    with pytest.raises(paths.MalformedNodeError, match=words):
        decode(data)


NODES: list[tuple[Callable[[bytes], object], dict[str, Any]]] = [
    (TopicNode.decode, json.loads(TOPIC.encode())),
    (PartitionStateNode.decode, json.loads(STATE.encode())),
    (
        BrokerNode.decode,
        {
            **json.loads(BrokerNode([(Endpoint("SSL", "h", 1), "SSL")], "r", 5).encode(5)),
            "listener_security_protocol_map": {"SSL": "SSL"},
        },
    ),
    (paths.decode_controller, json.loads(paths.encode_controller(2, 5))),
    (paths.decode_config, {"version": 1, "config": {"a": "1"}}),
    (paths.decode_config_change, {"version": 1, "entity_path": "a", "entity_type": "topics", "entity_name": "t"}),
    (paths.decode_cluster_id, {"version": "1", "id": "x"}),
    (paths.decode_producer_id_block, json.loads(paths.encode_producer_id_block(2, 1000, 1999))),
    (paths.decode_log_dir_event, json.loads(paths.encode_log_dir_event(2))),
    (paths.decode_partitions, {"version": 1, "partitions": [{"topic": "t", "partition": 0}]}),
    (paths.decode_reassignments, {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}),
]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(("-", "٣", "9" * 5000))
GARBAGE = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5)


@pytest.mark.parametrize(("decode", "good"), NODES)
@given(data=st.data())
def test_whatever_a_node_holds_it_is_read_or_named(
    decode: Callable[[bytes], object], good: dict[str, Any], data: st.DataObject
) -> None:
    """Any field, or the whole, replaced by anything that JSON can say; and what is read can be sent to brokers."""
    name = data.draw(st.sampled_from([*good, None]))
    garbage = data.draw(GARBAGE)
    text = json.dumps(garbage if name is None else {**good, name: garbage})
    decode(json.dumps({**good, "unknown": garbage}).encode())
    try:
        found = decode(text.encode())
    except paths.MalformedNodeError as e:
        assert str(e)
    else:
        assert_sendable(found)


@given(st.binary())
def test_what_is_no_json_is_named(data: bytes) -> None:
    for decode in (*(decode for decode, _ in NODES), paths.decode_controller_epoch):
        try:
            decode(data)
        except paths.MalformedNodeError as e:
            assert str(e)


def assert_sendable(value: Any) -> None:
    match value:
        case int():
            assert -(2**63) <= value < 2**63
        case str():
            value.encode()
        case dict():
            for each in (*value.keys(), *value.values()):
                assert_sendable(each)
        case list() | tuple():
            for each in value:
                assert_sendable(each)


def test_nodes_of_older_versions_are_read() -> None:
    first = b'{"version":1,"host":"h","port":9092,"jmx_port":-1,"timestamp":"5"}'
    assert BrokerNode.decode(first) == BrokerNode([(Endpoint("PLAINTEXT", "h", 9092), "PLAINTEXT")], None)
    third = b'{"version":3,"host":"h","port":1,"endpoints":["SSL://h:1"],"rack":"r","timestamp":"5"}'
    assert BrokerNode.decode(third) == BrokerNode([(Endpoint("SSL", "h", 1), "SSL")], "r")
    assert paths.decode_config_change(b'{"version":1,"entity_type":"topics","entity_name":"t"}') == "topics/t"
    assert paths.decode_controller(b'{"version":1,"brokerid":3,"timestamp":"5"}') == 3
    assert paths.decode_config(b"") == {}


def test_a_broker_in_all_its_fields() -> None:
    endpoints = [(Endpoint("INTERNAL", "::1", 9093), "SSL"), (Endpoint("CLIENTS", "h", 9092), "PLAINTEXT")]
    assert json.loads(BrokerNode(endpoints, None).encode(5)) == {
        "version": 5,
        "host": "h",
        "port": 9092,
        "jmx_port": -1,
        "timestamp": "5",
        "endpoints": ["INTERNAL://[::1]:9093", "CLIENTS://h:9092"],
        "listener_security_protocol_map": {"INTERNAL": "SSL", "CLIENTS": "PLAINTEXT"},
        "features": {},
    }
    assert BrokerNode.decode(BrokerNode(endpoints, "", 0).encode(5)) == BrokerNode(endpoints, "", 0, False)


MIN = -(2**31)


@pytest.mark.parametrize(
    ("decode", "data", "value"),
    [
        (PartitionStateNode.decode, {"leader": MIN, "leader_epoch": "-1", "isr": [], "controller_epoch": 2**31 - 1},
         PartitionStateNode(MIN, -1, [], 2**31 - 1)),
        (TopicNode.decode, {"partitions": {"0": [0], str(2**31 - 1): [2**31 - 1, 0]}},
         TopicNode(NIL_UUID, {0: [0], 2**31 - 1: [2**31 - 1, 0]}, {}, {})),
        (TopicNode.decode, {"partitions": {}}, TopicNode(NIL_UUID, {}, {}, {})),
        (TopicNode.decode, {"partitions": {}, "removing_replicas": {"0": [-(2**31)]}},
         TopicNode(NIL_UUID, {}, {}, {0: [-(2**31)]})),
        (paths.decode_controller_epoch, 2**31 - 1, 2**31 - 1),
        (paths.decode_controller_epoch, -(2**31), -(2**31)),
        (paths.decode_producer_id_block, {"block_start": str(-(2**63)), "block_end": 2**63 - 1}, (-(2**63), 2**63 - 1)),
        (paths.decode_cluster_id, {"id": "\ud7ff\ue000"}, "\ud7ff\ue000"),
        (BrokerNode.decode, {"endpoints": ["A://h:65535"], "rack": None, "first_epoch": 2**63 - 1, "clean_shutdown": 1},
         BrokerNode([(Endpoint("A", "h", 65535), "A")], None, 2**63 - 1, False)),
        (BrokerNode.decode, {"endpoints": ["A://h:0"], "listener_security_protocol_map": {"B": "SSL"}},
         BrokerNode([(Endpoint("A", "h", 0), "A")], None, None, False)),
        (BrokerNode.decode, {"endpoints": []}, BrokerNode([], None)),
    ],
)  # fmt: skip
def test_what_is_just_allowed_is_read(decode: Callable[[bytes], Any], data: object, value: object) -> None:
    assert decode(json.dumps(data).encode()) == value


def test_parents_come_before_their_children_and_nothing_is_missing_that_brokers_rely_on() -> None:
    known = list(paths.PERSISTENT_PATHS)
    for number, path in enumerate(known):
        above = path.rpartition("/")[0]
        assert not above or above in known[:number]
    listed_by_kafka = {
        "/consumers", "/brokers/ids", "/brokers/topics", "/config/changes", "/admin/delete_topics", "/brokers/seqid",
        "/isr_change_notification", "/latest_producer_id_block", "/log_dir_event_notification", "/config/topics",
        "/config/clients", "/config/users", "/config/brokers", "/config/ips",
    }  # fmt: skip
    parents = {"/brokers", "/config", "/admin", "/cluster"}
    assert set(known) == listed_by_kafka | parents
