"""Heartbeats on their own: what is full, what a member owns, and what its subscription becomes (KIP-848)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import Uuid
from ottla.machines.groups.consumer.member import ClassicMetadata, Subscription
from ottla.machines.groups.consumer.requests import is_full, owned_partitions, validate
from ottla.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest as Request
from ottla.wire.apis.consumer_group_heartbeat import OwnedTopicPartitions

TOPIC, OTHER = (Uuid(bytes(15) + bytes([n])) for n in (1, 2))


def full(**changes: Any) -> Request:
    fields: dict[str, Any] = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    return Request(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"rebalance_timeout_ms": 0}, True),
        ({"rebalance_timeout_ms": -2}, True),
        ({"rebalance_timeout_ms": -1}, False),
        ({"subscribed_topic_names": None}, False),
        ({"subscribed_topic_names": []}, True),
        ({"subscribed_topic_names": None, "subscribed_topic_regex": "t"}, True),
        ({"subscribed_topic_names": None, "subscribed_topic_regex": ""}, True),
        ({"subscribed_topic_regex": "t"}, True),
        ({"topic_partitions": None}, False),
    ],
)
def test_a_full_heartbeat_says_everything(changes: dict[str, Any], expected: bool) -> None:
    assert is_full(full(**changes)) is expected


def test_a_member_that_lists_nothing_owns_nothing_and_one_that_does_not_list_says_nothing() -> None:
    assert owned_partitions(full(topic_partitions=None)) is None
    assert owned_partitions(full()) == frozenset()
    listed = [OwnedTopicPartitions(topic_id=TOPIC, partitions=[0, 2]), OwnedTopicPartitions(topic_id=OTHER)]
    assert owned_partitions(full(topic_partitions=listed)) == frozenset({(TOPIC, 0), (TOPIC, 2)})


@pytest.mark.parametrize(
    ("request_", "version", "code"),
    [
        (full(), 1, None),
        (full(member_epoch=-2, instance_id="i"), 1, None),
        (full(member_epoch=-1), 1, None),
        (full(member_epoch=-3, instance_id="i"), 1, ErrorCode.INVALID_REQUEST),
        (full(member_epoch=-2), 1, ErrorCode.INVALID_REQUEST),
        (full(member_id=""), 0, None),
        (full(member_id=""), 1, ErrorCode.INVALID_REQUEST),
        (full(member_id="", member_epoch=1), 0, ErrorCode.INVALID_REQUEST),
        (full(member_id="", member_epoch=-1), 0, ErrorCode.INVALID_REQUEST),
        (full(rebalance_timeout_ms=0), 1, None),
        (full(rebalance_timeout_ms=-1), 1, ErrorCode.INVALID_REQUEST),
        (full(subscribed_topic_names=None, subscribed_topic_regex="t"), 1, None),
        (full(subscribed_topic_names=None, subscribed_topic_regex=""), 1, None),
        (full(subscribed_topic_names=None), 1, ErrorCode.INVALID_REQUEST),
        (Request(group_id="g", member_id="m", member_epoch=1), 1, None),
        (Request(group_id=" ", member_id="m", member_epoch=1), 1, ErrorCode.INVALID_REQUEST),
        (Request(group_id="g", member_id="m", member_epoch=1, instance_id="\t"), 1, ErrorCode.INVALID_REQUEST),
        (Request(group_id="g", member_id="m", member_epoch=1, rack_id=" "), 1, ErrorCode.INVALID_REQUEST),
        (full(server_assignor="range"), 1, None),
        (full(server_assignor="uniform"), 1, ErrorCode.UNSUPPORTED_ASSIGNOR),
        (full(subscribed_topic_regex="("), 1, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ],
)
def test_the_rules_that_hold_whatever_the_group_is(request_: Request, version: int, code: ErrorCode | None) -> None:
    try:
        validate(request_, version, ["range"])
    except KafkaError as error:
        assert error.code is code
    else:
        assert code is None


BEFORE = Subscription(
    topic_names=frozenset({"old"}),
    topic_regex="o.*",
    server_assignor="range",
    instance_id="i",
    rack_id="r",
    client_id="client",
    client_host="/1.2.3.4",
    rebalance_timeout_ms=5,
    classic=ClassicMetadata(6, ()),
)


def test_what_a_heartbeat_leaves_out_stays_as_it_was() -> None:
    after = BEFORE.updated(Request(group_id="g", member_id="m", member_epoch=1), "new client", "/5.6.7.8")
    assert (after.topic_names, after.topic_regex, after.server_assignor) == (frozenset({"old"}), "o.*", "range")
    assert (after.instance_id, after.rack_id, after.rebalance_timeout_ms) == ("i", "r", 5)
    assert (after.client_id, after.client_host) == ("new client", "/5.6.7.8")
    assert after.classic is None, "it speaks the protocol of KIP-848 now"


def test_what_a_heartbeat_says_takes_the_place_of_what_was() -> None:
    request = full(
        subscribed_topic_names=[],
        subscribed_topic_regex="",
        server_assignor="uniform",
        instance_id="j",
        rack_id="s",
        rebalance_timeout_ms=0,
    )
    after = BEFORE.updated(request, "", "")
    assert (after.topic_names, after.topic_regex, after.server_assignor) == (frozenset(), None, "uniform")
    assert (after.instance_id, after.rack_id, after.rebalance_timeout_ms) == ("j", "s", 0)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (Subscription(frozenset({"old"}), "o.*"), False),
        (Subscription(frozenset({"old"}), "o.*", server_assignor="uniform", rack_id="s"), False),
        (Subscription(frozenset({"new"}), "o.*"), True),
        (Subscription(frozenset({"old"}), "n.*"), True),
        (Subscription(frozenset({"old"}), None), True),
    ],
)
def test_only_names_and_patterns_are_wishes_for_topics(other: Subscription, expected: bool) -> None:
    assert BEFORE.wants_other_topics_than(other) is expected
