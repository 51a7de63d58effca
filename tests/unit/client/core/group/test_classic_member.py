"""Members of groups of both protocols: what each answer asks for, and the bytes members tell each other."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ErrorCode, InvalidConfigError
from ottla.base.types import TopicPartition, Uuid
from ottla.client.core.consumer.options import ConsumerSettings
from ottla.client.core.group.classic_member import ClassicMember, PollTimer, Verdict
from ottla.client.core.group.consumer_member import LEAVING, LEAVING_FOR_A_WHILE, ConsumerGroupMember
from ottla.client.core.group.protocol import (
    GroupAssignor,
    choose_assignors,
    decode_assignment,
    decode_member,
    encode_assignment,
    encode_subscription,
)
from ottla.client.core.group.rebalance import difference
from ottla.client.errors import ClientError, FencedInstanceError
from ottla.wire.apis.consumer_group_heartbeat import (
    AssignedTopicPartitions,
    Assignment,
    ConsumerGroupHeartbeatResponse,
)
from ottla.wire.apis.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla.wire.apis.sync_group import SyncGroupResponse
from ottla.wire.stored.consumer_protocol import ConsumerProtocolSubscription

PARTITIONS = [TopicPartition("t", index) for index in range(8)]


def settings(**given: object) -> ConsumerSettings:
    names = {name.replace("_", "."): value for name, value in given.items()}
    return ConsumerSettings.parse({"bootstrap.servers": "h:1", "group.id": "g", **names})


def member(*assignors: str, **given: object) -> ClassicMember:
    return ClassicMember(settings(**given), choose_assignors(assignors or ("range",), []))


def joined(found: ClassicMember, **fields: object) -> Verdict:
    defaults: dict[str, object] = {"member_id": "me", "generation_id": 3, "protocol_name": "range", "leader": "other"}
    return found.joined(JoinGroupResponse(**{**defaults, **fields}))  # type: ignore[arg-type]


# The classic protocol


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.NONE, Verdict.FINE),
        (ErrorCode.MEMBER_ID_REQUIRED, Verdict.AGAIN_AT_ONCE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Verdict.AGAIN),
        (ErrorCode.REBALANCE_IN_PROGRESS, Verdict.AGAIN),
        (ErrorCode.NOT_COORDINATOR, Verdict.FIND_COORDINATOR),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, Verdict.FIND_COORDINATOR),
        (ErrorCode.UNKNOWN_MEMBER_ID, Verdict.LOST),
    ],
)
def test_answers_to_a_join(code: ErrorCode, verdict: Verdict) -> None:
    found = member()
    assert joined(found, error_code=code) is verdict
    assert found.member_id == ("me" if verdict in (Verdict.FINE, Verdict.AGAIN_AT_ONCE) else "")
    assert found.is_member == (verdict is Verdict.FINE)


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.NONE, Verdict.FINE),
        (ErrorCode.REBALANCE_IN_PROGRESS, Verdict.REJOIN),
        (ErrorCode.ILLEGAL_GENERATION, Verdict.OUTDATED),
        (ErrorCode.UNKNOWN_MEMBER_ID, Verdict.LOST),
        (ErrorCode.NOT_COORDINATOR, Verdict.FIND_COORDINATOR),
    ],
)
def test_answers_to_syncs_and_heartbeats(code: ErrorCode, verdict: Verdict) -> None:
    found = member()
    joined(found)
    answer = SyncGroupResponse(error_code=code, assignment=encode_assignment(PARTITIONS[:2]))
    expected = PARTITIONS[:2] if verdict is Verdict.FINE else []
    assert found.synced(answer, 0) == (verdict, expected)
    assert found.heartbeat_answered(found.heartbeat_request(0), code) is verdict


def test_a_member_that_missed_a_generation_joins_again_as_itself() -> None:
    found = member()
    joined(found)
    assert found.membership().is_member
    found.forget_generation()
    assert not found.is_member
    assert not found.membership().is_member
    assert found.join_request(["t"], []).member_id == "me"
    found.forget()
    assert found.join_request(["t"], []).member_id == ""


def test_errors_nothing_can_be_done_about() -> None:
    with pytest.raises(FencedInstanceError):
        joined(member(group_instance_id="i"), error_code=ErrorCode.FENCED_INSTANCE_ID)
    with pytest.raises(ClientError, match="joining in group g") as refused:
        joined(member(), error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert refused.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
    with pytest.raises(ClientError, match="did not offer"):
        joined(member(), protocol_name="roundrobin")


def test_a_late_answer_to_a_heartbeat_is_ignored() -> None:
    found = member()
    joined(found)
    late = found.heartbeat_request(0)
    joined(found, generation_id=4)
    assert found.heartbeat_answered(late, ErrorCode.ILLEGAL_GENERATION) is Verdict.FINE


def test_heartbeats_are_due_after_the_interval() -> None:
    found = member(heartbeat_interval_ms=100)
    joined(found)
    found.synced(SyncGroupResponse(assignment=b""), 1000)
    assert found.heartbeat_due_ms() == 1100
    found.heartbeat_request(1200)
    assert found.heartbeat_due_ms() == 1300


def test_a_group_is_cooperative_if_all_its_assignors_are() -> None:
    assert member("cooperative-sticky").is_cooperative
    assert not member("range", "cooperative-sticky").is_cooperative


def test_static_members_do_not_leave() -> None:
    found = member()
    assert not found.must_say_good_bye
    joined(found)
    assert found.must_say_good_bye
    request = found.leave_request("me", 5, "bye")
    assert [(entry.member_id, entry.reason) for entry in request.members] == [("me", "bye")]
    assert found.leave_request("me", 2, "bye").member_id == "me"
    static = member(group_instance_id="i")
    joined(static)
    assert not static.must_say_good_bye
    found.forget()
    assert (found.member_id, found.is_member) == ("", False)


@pytest.mark.parametrize(
    ("leads", "skips", "assigns"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_a_leader_that_comes_back_may_be_spared_the_assignment(leads: bool, skips: bool, assigns: bool) -> None:
    found = member()
    joined(found, leader="me" if leads else "other", skip_assignment=skips)
    assert found.must_assign == assigns


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_a_leader_shares_eight_partitions_among_three(name: str) -> None:
    leader = member(name)
    others = {
        member_id: encode_subscription(["t"], [], -1, user_data=choose_assignors([name], [])[0].user_data(["t"]))
        for member_id in ("a", "b", "me")
    }
    joined(
        leader,
        leader="me",
        protocol_name=name,
        members=[JoinGroupResponseMember(member_id=key, metadata=data) for key, data in others.items()],
    )
    assert leader.must_assign
    assert leader.group_topics() == {"t"}
    shares = {key: decode_assignment(data)[0] for key, data in leader.assign({"t": 8}).items()}
    assert sorted(len(share) for share in shares.values()) == [2, 3, 3]
    assert sorted(partition for share in shares.values() for partition in share) == PARTITIONS


def test_sticky_members_remember_what_they_had() -> None:
    (assignor,) = choose_assignors(["sticky"], [])
    assignor.on_assignment(PARTITIONS[5:], None, 4)
    remembered = decode_member("me", None, encode_subscription(["t"], [], -1, user_data=assignor.user_data(["t"])))
    fresh = decode_member("a", None, encode_subscription(["t"], [], -1))
    shares = assignor.assign([fresh, remembered], {"t": 8})
    assert set(PARTITIONS[5:]) <= set(shares["me"])
    foreign = decode_member("me", None, encode_subscription(["t"], [], -1, user_data=b"\x00\x01 other"))
    assert len(assignor.assign([foreign], {"t": 8})["me"]) == 8


def test_assignors_are_found_by_name() -> None:
    class Own(GroupAssignor):
        name = "own"

    assert [found.name for found in choose_assignors(["range", "sticky"], [])] == ["range", "sticky"]
    assert [found.name for found in choose_assignors(["range"], [Own()])] == ["own", "range"]
    assert [found.name for found in choose_assignors(["range", "own"], [Own()])] == ["range", "own"]
    with pytest.raises(InvalidConfigError, match="no assignor is called 'fair'"):
        choose_assignors(["fair"], [])


def test_an_assignor_may_not_invent_members() -> None:
    class Inventive(GroupAssignor):
        name = "inventive"

        def assign(self, members: object, partition_counts: object) -> dict[str, list[TopicPartition]]:
            return {"nobody": PARTITIONS}

    leader = ClassicMember(settings(), [Inventive()])
    joined(leader, leader="me", protocol_name="inventive")
    with pytest.raises(ClientError, match="nobody"):
        leader.assign({"t": 8})


_partitions = st.frozensets(st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 5)))


@given(_partitions, st.integers(-1, 10), st.none() | st.binary(max_size=3), st.none() | st.just("rack"))
def test_subscriptions_and_assignments_come_back(
    owned: frozenset[TopicPartition], generation: int, user_data: bytes | None, rack: str | None
) -> None:
    found = decode_member("m", "i", encode_subscription(["b", "a"], owned, generation, user_data=user_data, rack=rack))
    assert (found.topics, found.owned, found.generation) == ({"a", "b"}, owned, generation)
    assert (found.user_data, found.rack, found.instance_id) == (user_data, rack, "i")
    assert decode_assignment(encode_assignment(owned, user_data)) == (sorted(owned), user_data)


def test_a_cooperative_member_of_an_old_version_says_its_generation_in_its_user_data() -> None:
    told = struct.pack(">i", 7)
    fresh = choose_assignors(["cooperative-sticky"], [])[0].user_data(["t"])
    assert fresh == struct.pack(">i", -1)
    assert decode_member("m", None, encode_subscription(["t"], [], -1, user_data=told)).generation == 7
    assert decode_member("m", None, encode_subscription(["t"], [], 8, user_data=told)).generation == 8
    assert decode_member("m", None, encode_subscription(["t"], [], -1, user_data=told + b"more")).generation == -1
    old = ConsumerProtocolSubscription(topics=["t"], user_data=told).encode_versioned(1)
    assert decode_member("m", None, old).generation == 7


def test_nothing_is_an_assignment_too() -> None:
    assert decode_assignment(b"") == ([], None)


@given(_partitions, _partitions)
def test_a_difference_leads_from_one_to_the_other(
    held: frozenset[TopicPartition], wanted: frozenset[TopicPartition]
) -> None:
    change = difference(held, wanted)
    assert held - change.revoked | change.added == wanted
    assert not change.revoked & wanted
    assert not change.added & held


def test_the_application_must_poll() -> None:
    timer = PollTimer(1000, 0)
    assert not timer.has_expired(999)
    assert timer.has_expired(1000)
    timer.begin(500)
    assert not timer.has_expired(5000)
    timer.end(5000)
    assert (timer.has_expired(5999), timer.has_expired(6000)) == (False, True)
    timer.touch(6000)
    assert timer.due_ms() == 7000


# KIP-848

T_ID = Uuid(b"t" * 16)
NAMES, IDS = {T_ID: "t"}, {"t": T_ID}
TOPICS = frozenset({"t"})
NOTHING: frozenset[TopicPartition] = frozenset()


def heartbeat(epoch: int = 1, partitions: list[int] | None = None, **fields: object) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if partitions is not None:
        assignment = Assignment(topic_partitions=[AssignedTopicPartitions(topic_id=T_ID, partitions=partitions)])
    return ConsumerGroupHeartbeatResponse(
        member_epoch=epoch,
        heartbeat_interval_ms=500,
        assignment=assignment,
        **fields,  # type: ignore[arg-type]
    )


def test_the_first_heartbeat_names_everything_and_later_ones_what_changed() -> None:
    found = ConsumerGroupMember(settings(group_protocol="consumer", client_rack="r"), "id")
    first = found.heartbeat_request(TOPICS, NOTHING, IDS, 0)
    assert (first.member_id, first.member_epoch, first.subscribed_topic_names) == ("id", 0, ["t"])
    assert (first.topic_partitions, first.rack_id, first.rebalance_timeout_ms) == ([], "r", 300_000)
    assert found.answered(heartbeat(1, [0, 1]), 10) is Verdict.FINE
    assert found.heartbeat_due_ms(TOPICS, NOTHING) == 510
    assert found.wanted(NAMES) == {TopicPartition("t", 0), TopicPartition("t", 1)}
    assert found.wanted({}) is None

    quiet = found.heartbeat_request(TOPICS, NOTHING, IDS, 510)
    assert (quiet.subscribed_topic_names, quiet.topic_partitions, quiet.rebalance_timeout_ms) == (None, None, -1)
    owned = frozenset({TopicPartition("t", 0)})
    assert found.heartbeat_due_ms(TOPICS, owned) == 0
    told = found.heartbeat_request(TOPICS, owned, IDS, 520)
    assert told.topic_partitions is not None
    assert [(entry.topic_id, entry.partitions) for entry in told.topic_partitions] == [(T_ID, [0])]


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.FENCED_MEMBER_EPOCH, Verdict.LOST),
        (ErrorCode.UNKNOWN_MEMBER_ID, Verdict.LOST),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Verdict.AGAIN),
        (ErrorCode.NOT_COORDINATOR, Verdict.FIND_COORDINATOR),
    ],
)
def test_answers_to_a_kip_848_heartbeat(code: ErrorCode, verdict: Verdict) -> None:
    found = ConsumerGroupMember(settings(group_protocol="consumer"), "id")
    found.answered(heartbeat(4, [0]), 0)
    assert found.answered(heartbeat(error_code=code), 0) is verdict
    # Whatever was lost on the way, the next request tells it all again.
    if verdict is not Verdict.LOST:
        assert found.heartbeat_request(TOPICS, NOTHING, IDS, 0).subscribed_topic_names == ["t"]


def test_a_fenced_member_joins_anew() -> None:
    found = ConsumerGroupMember(settings(group_protocol="consumer"), "id")
    found.answered(heartbeat(4, [0]), 0)
    assert (found.membership().generation, found.membership().member_id) == (4, "id")
    found.forget()
    assert (found.membership().generation, found.membership().member_id) == (-1, "")
    assert (found.heartbeat_request(TOPICS, NOTHING, IDS, 0).member_epoch, found.target) == (0, None)


@pytest.mark.parametrize("code", [ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID])
def test_an_instance_id_that_another_member_has(code: ErrorCode) -> None:
    found = ConsumerGroupMember(settings(group_protocol="consumer", group_instance_id="i"), "id")
    with pytest.raises(FencedInstanceError) as refused:
        found.answered(heartbeat(error_code=code), 0)
    assert (refused.value.code, refused.value.fatal, refused.value.retriable) == (code, True, False)


def test_a_broker_without_the_protocol_says_what_to_do() -> None:
    found = ConsumerGroupMember(settings(group_protocol="consumer"), "id")
    with pytest.raises(ClientError, match=r"group\.protocol=classic"):
        found.answered(heartbeat(error_code=ErrorCode.UNSUPPORTED_VERSION), 0)


@pytest.mark.parametrize(("instance", "epoch"), [(None, LEAVING), ("i", LEAVING_FOR_A_WHILE)])
def test_leaving_a_kip_848_group(instance: str | None, epoch: int) -> None:
    found = ConsumerGroupMember(settings(group_protocol="consumer", group_instance_id=instance), "id")
    assert found.leave_request() is None
    found.heartbeat_request(frozenset({"t"}), frozenset(), {}, 0)
    for answer in (None, heartbeat(4)):
        if answer is not None:
            found.answered(answer, 0)
        request = found.leave_request()
        assert request is not None
        assert (request.member_id, request.member_epoch) == ("id", epoch)
    found.forget()
    assert found.leave_request() is None
