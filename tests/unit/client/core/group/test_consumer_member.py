"""A member of a KIP-848 group: what it tells the coordinator, when, and what it makes of the answers."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition, Uuid
from ottla.client.core.consumer.offset_requests import Membership
from ottla.client.core.consumer.options import ConsumerSettings
from ottla.client.core.group.classic_member import Verdict
from ottla.client.core.group.consumer_member import ConsumerGroupMember
from ottla.client.errors import ClientError, FencedInstanceError
from ottla.wire.apis.consumer_group_heartbeat import (
    AssignedTopicPartitions,
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedTopicPartitions,
)

ID, OTHER_ID = Uuid(bytes(15) + b"\x01"), Uuid(bytes(15) + b"\x02")
IDS = {"t": ID, "u": OTHER_ID}
NOTHING: frozenset[TopicPartition] = frozenset()
TOPICS = frozenset({"t"})


def new_member(**settings: object) -> ConsumerGroupMember:
    own = {"bootstrap.servers": "h:1", "group.id": "g", "heartbeat.interval.ms": 3000, "retry.backoff.ms": 100}
    return ConsumerGroupMember(ConsumerSettings.parse({**own, **settings}), "me")


def joined(**settings: object) -> ConsumerGroupMember:
    member = new_member(**settings)
    member.heartbeat_request(TOPICS, NOTHING, IDS, 0)
    assert member.answered(ConsumerGroupHeartbeatResponse(member_epoch=4, heartbeat_interval_ms=50), 10) is Verdict.FINE
    return member


def said(request: ConsumerGroupHeartbeatRequest) -> dict[str, object]:
    """What is in a request beyond who sends it."""
    default = ConsumerGroupHeartbeatRequest()
    names = (
        "instance_id",
        "rack_id",
        "rebalance_timeout_ms",
        "server_assignor",
        "subscribed_topic_names",
        "topic_partitions",
    )
    return {name: getattr(request, name) for name in names if getattr(request, name) != getattr(default, name)}


def test_who_joins_names_everything_and_a_member_what_has_changed() -> None:
    settings = {
        "group.instance.id": "i",
        "client.rack": "r",
        "max.poll.interval.ms": 77,
        "group.remote.assignor": "range",
    }
    member = new_member(**settings)
    assert not member.is_member and member.membership() == Membership("g")
    everything = {
        "instance_id": "i",
        "rack_id": "r",
        "rebalance_timeout_ms": 77,
        "server_assignor": "range",
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    for _ in range(2):
        request = member.heartbeat_request(TOPICS, NOTHING, IDS, 0)
        assert (request.group_id, request.member_id, request.member_epoch) == ("g", "me", 0)
        assert said(request) == everything, "as long as it has not joined"
    member.answered(ConsumerGroupHeartbeatResponse(member_epoch=4, heartbeat_interval_ms=50), 0)
    assert member.is_member and member.membership() == Membership("g", 4, "me", "i")
    request = member.heartbeat_request(TOPICS, NOTHING, IDS, 0)
    assert (request.member_epoch, said(request)) == (4, {})
    more = TOPICS | {"a"}
    assert said(member.heartbeat_request(more, NOTHING, IDS, 0)) == {"subscribed_topic_names": ["a", "t"]}
    owned = frozenset(
        {TopicPartition("t", 2), TopicPartition("t", 0), TopicPartition("u", 1), TopicPartition("gone", 0)}
    )
    assert said(member.heartbeat_request(more, owned, IDS, 0)) == {
        "topic_partitions": [
            OwnedTopicPartitions(topic_id=ID, partitions=[0, 2]),
            OwnedTopicPartitions(topic_id=OTHER_ID, partitions=[1]),
        ]
    }
    assert said(member.heartbeat_request(more, owned, IDS, 0)) == {}
    member.resend(0)
    assert set(said(member.heartbeat_request(more, owned, IDS, 0))) == set(everything)


def test_heartbeats_come_in_the_coordinators_rhythm_or_when_there_is_something_to_tell() -> None:
    member = new_member()
    assert member.heartbeat_due_ms(TOPICS, NOTHING) == 0
    member.heartbeat_request(TOPICS, NOTHING, IDS, 100)
    assert member.heartbeat_due_ms(TOPICS, NOTHING) == 3100, "its own rhythm, until the coordinator has said"
    assert member.heartbeat_due_ms(TOPICS | {"u"}, NOTHING) == 3100, "there is nothing to tell before it has joined"
    member.answered(ConsumerGroupHeartbeatResponse(member_epoch=1, heartbeat_interval_ms=50), 200)
    assert member.heartbeat_due_ms(TOPICS, NOTHING) == 250
    assert member.heartbeat_due_ms(TOPICS | {"u"}, NOTHING) == 0
    assert member.heartbeat_due_ms(TOPICS, frozenset({TopicPartition("t", 0)})) == 0
    member.heartbeat_request(TOPICS, NOTHING, IDS, 300)
    assert member.heartbeat_due_ms(TOPICS, NOTHING) == 350


@pytest.mark.parametrize(
    ("code", "verdict", "says_all_again"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Verdict.AGAIN, True),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, Verdict.FIND_COORDINATOR, True),
        (ErrorCode.NOT_COORDINATOR, Verdict.FIND_COORDINATOR, True),
        (ErrorCode.UNKNOWN_MEMBER_ID, Verdict.LOST, False),
        (ErrorCode.FENCED_MEMBER_EPOCH, Verdict.LOST, False),
    ],
)
def test_errors_that_pass(code: ErrorCode, verdict: Verdict, says_all_again: bool) -> None:
    member = joined()
    member.heartbeat_request(TOPICS, NOTHING, IDS, 1000)
    assert member.answered(ConsumerGroupHeartbeatResponse(error_code=code), 1000) is verdict
    assert member.epoch == 4, "whoever runs the member forgets it, once what it holds is given up"
    if says_all_again:
        member.heartbeat_interval_ms = 10_000
        assert member.heartbeat_request(TOPICS, NOTHING, IDS, 1000).subscribed_topic_names == ["t"]
        member.answered(ConsumerGroupHeartbeatResponse(error_code=code), 1000)
        assert member._next_heartbeat_ms == 1100


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (ErrorCode.FENCED_INSTANCE_ID, FencedInstanceError, "another consumer uses i"),
        (ErrorCode.UNRELEASED_INSTANCE_ID, FencedInstanceError, "give every consumer its own"),
        (ErrorCode.UNSUPPORTED_VERSION, ClientError, "set group.protocol=classic"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, ClientError, "not you"),
    ],
)
def test_errors_that_do_not(code: ErrorCode, kind: type[ClientError], words: str) -> None:
    member = joined(**{"group.instance.id": "i"})
    with pytest.raises(kind, match=words) as refusal:
        member.answered(ConsumerGroupHeartbeatResponse(error_code=code, error_message="not you"), 0)
    assert refusal.value.code is code
    assert refusal.value.message.startswith("heartbeat in group g: ")


def test_the_target_is_known_as_soon_as_its_topics_are() -> None:
    member = joined()
    assert member.wanted({ID: "t"}) is None
    entries = [AssignedTopicPartitions(topic_id=ID, partitions=[0, 3])]
    answer = ConsumerGroupHeartbeatResponse(
        member_id="named", member_epoch=5, assignment=Assignment(topic_partitions=entries)
    )
    member.answered(answer, 0)
    assert (member.member_id, member.epoch) == ("named", 5)
    assert member.wanted({}) is None
    assert member.wanted({ID: "t"}) == {TopicPartition("t", 0), TopicPartition("t", 3)}
    member.answered(ConsumerGroupHeartbeatResponse(member_epoch=6), 0)
    assert member.member_id == "named"
    assert member.wanted({ID: "t"}) == {TopicPartition("t", 0), TopicPartition("t", 3)}, "no news is no change"
    member.answered(ConsumerGroupHeartbeatResponse(member_epoch=6, assignment=Assignment()), 0)
    assert member.wanted({}) == frozenset()


def test_who_is_lost_joins_anew_at_once() -> None:
    member = joined()
    member.forget()
    assert not member.is_member and member.wanted({ID: "t"}) is None
    assert member.heartbeat_due_ms(TOPICS, NOTHING) == 0
    assert member.leave_request() is None, "the coordinator knows it no more"
    request = member.heartbeat_request(TOPICS, NOTHING, IDS, 0)
    assert (request.member_id, request.member_epoch, request.subscribed_topic_names) == ("me", 0, ["t"])


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_a_static_member_leaves_for_a_while(instance_id: str | None, epoch: int) -> None:
    member = new_member(**{"group.instance.id": instance_id} if instance_id else {})
    assert member.leave_request() is None, "nobody has heard of it"
    member.heartbeat_request(TOPICS, NOTHING, IDS, 0)
    request = member.leave_request()
    assert request is not None
    assert (request.group_id, request.member_id, request.member_epoch) == ("g", "me", epoch)
    assert request.instance_id == instance_id
