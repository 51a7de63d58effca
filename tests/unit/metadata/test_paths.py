"""The nodes of the store: what was written is read again, in the JSON that Kafka's tools know."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.types import NIL_UUID, Endpoint, uuid_from_text
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
    first_epoch=st.none() | st.integers(0),
)
def test_a_broker_is_read_as_it_was_written(
    endpoints: list[tuple[Endpoint, str]], rack: str | None, first_epoch: int | None
) -> None:
    node = BrokerNode(endpoints, rack, first_epoch)
    data = node.encode(5)
    assert BrokerNode.decode(data) == node
    value = json.loads(data)
    assert (value["version"], value["timestamp"], value.get("rack")) == (5, "5", rack)
    assert ("rack" in value) == (rack is not None)
    assert ("first_epoch" in value) == (first_epoch is not None)
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
        (paths.encode_config_change("topics/t"), {"version": 2, "entity_path": "topics/t"}, None, None),
        (paths.encode_cluster_id("x"), {"version": "1", "id": "x"}, paths.decode_cluster_id, "x"),
        (
            paths.encode_producer_id_block(2, 1000, 1999),
            {"version": 1, "broker": 2, "block_start": "1000", "block_end": "1999"},
            paths.decode_producer_id_block,
            (1000, 1999),
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


@pytest.mark.parametrize(
    ("decode", "data", "words"),
    [
        (TopicNode.decode, b"\xff{", "it holds no JSON"),
        (TopicNode.decode, b"[1]", "it holds no JSON object"),
        (TopicNode.decode, b"{}", "it has no partitions"),
        (TopicNode.decode, b'{"partitions":{"x":[1]}}', "its partitions are not lists by partition"),
        (TopicNode.decode, b'{"partitions":{"0":["1"]}}', "its partitions are not lists of numbers"),
        (TopicNode.decode, b'{"partitions":{},"topic_id":"short"}', "its topic_id is none"),
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


def test_nodes_of_older_versions_are_read() -> None:
    first = b'{"version":1,"host":"h","port":9092,"jmx_port":-1,"timestamp":"5"}'
    assert BrokerNode.decode(first) == BrokerNode([(Endpoint("PLAINTEXT", "h", 9092), "PLAINTEXT")], None)
    third = b'{"version":3,"host":"h","port":1,"endpoints":["SSL://h:1"],"rack":"r","timestamp":"5"}'
    assert BrokerNode.decode(third) == BrokerNode([(Endpoint("SSL", "h", 1), "SSL")], "r")
    assert paths.decode_config_change(b'{"version":1,"entity_type":"topics","entity_name":"t"}') == "topics/t"
    assert paths.decode_controller(b'{"version":1,"brokerid":3,"timestamp":"5"}') == 3
    assert paths.decode_config(b"") == {}
