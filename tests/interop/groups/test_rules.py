"""What a group's coordinator answers to members that break the rules, and how a group walks through its states."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from ottla.base.errors import ErrorCode
from ottla.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.wire.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tests.broker_process import BrokerProcess
from tests.interop.groups.raw_member import RawMember
from tests.interop.groups.scene import committed_offsets, describe, wait_until
from tests.interop.peers.confluent import make_topic
from tests.raw_client import RawClient
from tests.waiting import repeat_until

pytestmark = pytest.mark.interop

METADATA_LIMIT = 4096


def state(broker: BrokerProcess, group: str) -> str:
    return describe(broker, group)[0]


@pytest.mark.parametrize("version", range(7))
def test_every_version_finds_the_coordinator(group_broker: BrokerProcess, group: str, version: int) -> None:
    with RawClient(group_broker.port) as client:
        if version < 4:
            one = client.call(FindCoordinatorRequest(key=group), version)
            assert isinstance(one, FindCoordinatorResponse)
            found = [(one.error_code, one.host, one.port)]
        else:
            many = client.call(FindCoordinatorRequest(coordinator_keys=[group, "another"]), version)
            assert isinstance(many, FindCoordinatorResponse)
            assert [item.key for item in many.coordinators] == [group, "another"]
            found = [(item.error_code, item.host, item.port) for item in many.coordinators]
    assert set(found) == {(0, "127.0.0.1", group_broker.port)}


def test_a_group_walks_from_empty_to_stable_and_back(group_broker: BrokerProcess, group: str) -> None:
    port = group_broker.port
    assert state(group_broker, group) == "Dead"  # which is what a group nobody knows was called before KIP-1043
    with RawMember(port, group) as first, RawMember(port, group) as second:
        first.introduce()
        first.send_join()
        wait_until(lambda: state(group_broker, group) == "PreparingRebalance", lambda: state(group_broker, group))
        joined = first.receive_join()
        assert (joined.generation_id, joined.leader, joined.protocol_name) == (1, first.id, "range")
        assert [member.member_id for member in joined.members] == [first.id]
        assert state(group_broker, group) == "CompletingRebalance"
        assert first.sync({first.id: b"mine"}).assignment == b"mine"
        assert state(group_broker, group) == "Stable"

        second.introduce()
        second.send_join()
        wait_until(lambda: state(group_broker, group) == "PreparingRebalance", lambda: state(group_broker, group))
        assert first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        first.send_join()
        as_leader, as_follower = first.receive_join(), second.receive_join()
        assert as_leader.generation_id == as_follower.generation_id == 2
        assert (as_follower.leader, as_follower.members) == (first.id, [])
        assert {member.member_id for member in as_leader.members} == {first.id, second.id}
        second.send_sync()
        assert first.sync({first.id: b"1", second.id: b"2"}).assignment == b"1"
        assert second.receive_sync().assignment == b"2"
        assert state(group_broker, group) == "Stable"
        assert (first.heartbeat(), second.heartbeat()) == (0, 0)

        assert first.leave() == 0
        assert second.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        second.join_alone()
        assert second.generation == 3
        assert second.leave() == 0
    assert state(group_broker, group) == "Empty"


def test_a_member_nobody_knows_is_told_so(group_broker: BrokerProcess, group: str) -> None:
    with RawMember(group_broker.port, group) as member, RawMember(group_broker.port, group) as stranger:
        member.join_alone()
        stranger.id, stranger.generation = "stranger", member.generation
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        assert stranger.heartbeat() == unknown
        assert stranger.sync().error_code == unknown
        assert stranger.leave() == unknown
        stranger.send_join()
        assert stranger.receive_join().error_code == unknown
        assert stranger.commit(group) == unknown
        stranger.id, stranger.generation = "", -1
        assert stranger.commit(group) == unknown  # a group with members takes no commits from outside
        assert member.heartbeat() == 0


def test_a_member_of_an_earlier_generation_is_told_so(group_broker: BrokerProcess, group: str) -> None:
    with RawMember(group_broker.port, group) as member:
        member.join_alone()
        for wrong in (member.generation - 1, member.generation + 1):
            member.generation = wrong
            assert member.heartbeat() == ErrorCode.ILLEGAL_GENERATION
            assert member.sync().error_code == ErrorCode.ILLEGAL_GENERATION
            assert member.commit(group) == ErrorCode.ILLEGAL_GENERATION


def test_the_former_self_of_a_static_member_is_fenced(group_broker: BrokerProcess, group: str) -> None:
    port = group_broker.port
    with RawMember(port, group, instance_id="i") as former, RawMember(port, group, instance_id="i") as present:
        former.join_alone()
        joined = present.join()
        assert (joined.error_code, joined.generation_id) == (0, former.generation)
        assert present.id != former.id
        assert present.sync().assignment == b"all"
        fenced = ErrorCode.FENCED_INSTANCE_ID
        assert former.heartbeat() == fenced
        assert former.sync().error_code == fenced
        assert former.leave() == fenced
        assert former.commit(group) == fenced
        former.send_join()
        assert former.receive_join().error_code == fenced
        assert present.heartbeat() == 0


def test_protocols_must_have_something_in_common(group_broker: BrokerProcess, group: str) -> None:
    port = group_broker.port
    with (
        RawMember(port, group, protocols=("a", "b")) as member,
        RawMember(port, group, protocols=("c",)) as other_protocol,
        RawMember(port, group, protocols=("a",), protocol_type="other") as other_type,
        RawMember(port, group, protocols=()) as none,
    ):
        member.join_alone()
        for refused in (other_protocol, other_type, none):
            refused.send_join()
            assert refused.receive_join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("timeout_ms", [499, 1_800_001])
def test_session_timeouts_have_bounds(group_broker: BrokerProcess, group: str, timeout_ms: int) -> None:
    with RawMember(group_broker.port, group, session_timeout_ms=timeout_ms) as member:
        member.send_join()
        assert member.receive_join().error_code == ErrorCode.INVALID_SESSION_TIMEOUT


def test_commits_are_refused_for_what_is_wrong_with_them(group_broker: BrokerProcess, group: str) -> None:
    make_topic(group_broker.bootstrap, group)
    with RawMember(group_broker.port, group) as member:
        member.join_alone()
        assert member.commit(group, 5, metadata="m" * METADATA_LIMIT) == 0
        too_long = member.commit(group, 6, metadata="m" * (METADATA_LIMIT + 1))
        assert too_long == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert member.commit("no-such-topic", 6) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert member.commit(group, 6, partition=1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert committed_offsets(member.client, group) == {(group, 0): 5}
        member.send_join()
        member.receive_join()
        assert member.commit(group, 6) == ErrorCode.REBALANCE_IN_PROGRESS  # it does not know yet what it owns


def test_commits_from_outside_need_a_group_without_members(group_broker: BrokerProcess, group: str) -> None:
    make_topic(group_broker.bootstrap, group)
    with RawMember(group_broker.port, group) as simple, RawMember(group_broker.port, group) as member:
        assert simple.commit(group, 3) == 0
        simple.generation = 0
        assert simple.commit(group, 9, version=8) == ErrorCode.UNKNOWN_MEMBER_ID
        simple.generation = -1
        assert state(group_broker, group) == "Empty"
        member.join_alone()
        assert simple.commit(group, 9) == ErrorCode.UNKNOWN_MEMBER_ID
        assert member.leave() == 0
        assert simple.commit(group, 4) == 0
        assert committed_offsets(simple.client, group) == {(group, 0): 4}


def test_a_commit_for_a_generation_of_an_unknown_group_is_refused(group_broker: BrokerProcess, group: str) -> None:
    make_topic(group_broker.bootstrap, group)
    with RawMember(group_broker.port, group) as member:
        member.id, member.generation = "somebody", 1
        assert member.commit(group, version=8) == ErrorCode.ILLEGAL_GENERATION
        assert member.commit(group, version=9) == ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_of_a_group_that_is_not_of_consumers_stay_while_it_has_members(
    group_broker: BrokerProcess, group: str
) -> None:
    make_topic(group_broker.bootstrap, group)
    topic = OffsetDeleteRequestTopic(name=group, partitions=[OffsetDeleteRequestPartition(partition_index=0)])

    def delete() -> int:
        response = member.client.call(OffsetDeleteRequest(group_id=group, topics=[topic]), 0)
        assert isinstance(response, OffsetDeleteResponse)
        return response.error_code

    with RawMember(group_broker.port, group) as member:
        member.join_alone()
        assert member.commit(group, 5) == 0
        assert delete() == ErrorCode.NON_EMPTY_GROUP
        assert member.leave() == 0
        assert delete() == 0
        assert committed_offsets(member.client, group) == {}


def test_a_silent_member_is_out_when_its_session_is_over(group_broker: BrokerProcess, group: str) -> None:
    with RawMember(group_broker.port, group, session_timeout_ms=2_000, rebalance_timeout_ms=600_000) as member:
        member.join_alone()
        begun_s = time.monotonic()
        last_s = begun_s
        for _ in range(5):
            time.sleep(0.5)
            # The session begins anew when the broker hears of the member, which is before the member hears back.
            last_s = time.monotonic()
            assert member.heartbeat() == 0
        wait_until(lambda: state(group_broker, group) == "Empty", lambda: state(group_broker, group))
        assert last_s - begun_s >= 2.5
        assert time.monotonic() - last_s >= 2.0
        assert member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_does_not_wait_for_a_silent_member_for_ever(group_broker: BrokerProcess, group: str) -> None:
    port = group_broker.port
    long_ms = 120_000  # so that it is not the session that ends
    with (
        RawMember(port, group, session_timeout_ms=long_ms, rebalance_timeout_ms=1_000) as silent,
        RawMember(port, group, session_timeout_ms=long_ms) as member,
    ):
        silent.join_alone()
        member._rebalance_timeout_ms = 1_000
        begun_s = time.monotonic()
        joined = member.join()
        assert time.monotonic() - begun_s >= 0.9
        assert [item.member_id for item in joined.members] == [member.id]


def test_members_that_never_sync_are_out_after_the_rebalance_timeout(group_broker: BrokerProcess, group: str) -> None:
    with RawMember(group_broker.port, group, session_timeout_ms=120_000, rebalance_timeout_ms=1_000) as member:
        assert member.join().error_code == 0
        begun_s = time.monotonic()
        repeat_until(lambda: member.heartbeat() != 0, lambda: time.sleep(0.1))
        assert time.monotonic() - begun_s >= 0.9
        assert state(group_broker, group) == "Empty"


# KIP-848


@pytest.fixture
def beat(group_broker: BrokerProcess, group: str) -> Callable[..., ConsumerGroupHeartbeatResponse]:
    make_topic(group_broker.bootstrap, group, 4)

    def send(member_id: str, epoch: int, **fields: object) -> ConsumerGroupHeartbeatResponse:
        if epoch == 0:
            joins = {"rebalance_timeout_ms": 5_000, "subscribed_topic_names": [group], "topic_partitions": []}
            fields = joins | fields
        request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **fields)
        with RawClient(group_broker.port) as client:
            response = client.call(request, 1)
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response

    return send


def test_members_of_the_new_kind_are_told_what_is_wrong(
    group_broker: BrokerProcess, group: str, beat: Callable[..., ConsumerGroupHeartbeatResponse]
) -> None:
    joined = beat("m", 0)
    assert (joined.error_code, joined.member_id, joined.member_epoch > 0) == (0, "m", True)
    epoch = joined.member_epoch
    assert joined.assignment is not None
    assert [sorted(topic.partitions) for topic in joined.assignment.topic_partitions] == [[0, 1, 2, 3]]
    assert beat("m", epoch).assignment is None
    assert beat("stranger", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert beat("m", epoch + 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert beat("n", 0, server_assignor="none").error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert beat("", 0).error_code == ErrorCode.INVALID_REQUEST
    assert beat("n", 0, rebalance_timeout_ms=-1).error_code == ErrorCode.INVALID_REQUEST
    assert beat("n", 0, subscribed_topic_regex="(").error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    with RawMember(group_broker.port, group) as member:
        member.id, member.generation = "m", epoch
        assert member.commit(group, 5, version=9) == 0
        member.generation = epoch - 1
        assert member.commit(group, 6, version=9) == ErrorCode.STALE_MEMBER_EPOCH
        assert committed_offsets(member.client, group) == {(group, 0): 5}
    assert beat("m", -1).error_code == 0
    assert describe(group_broker, group, is_kip_848=True)[0] == "Empty"


def test_an_instance_of_the_new_kind_is_not_taken_from_who_has_it(
    beat: Callable[..., ConsumerGroupHeartbeatResponse],
) -> None:
    first = beat("m", 0, instance_id="i")
    assert beat("n", 0, instance_id="i").error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert beat("m", -2, instance_id="i").error_code == 0
    second = beat("n", 0, instance_id="i")
    assert (second.error_code, second.member_epoch) == (0, first.member_epoch)
    assert second.assignment is not None
    assert beat("m", first.member_epoch, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_group_whose_members_are_no_consumers_changes_its_kind_only_while_it_is_empty(
    group_broker: BrokerProcess, group: str, beat: Callable[..., ConsumerGroupHeartbeatResponse]
) -> None:
    def kinds() -> tuple[str, str]:
        return state(group_broker, group), describe(group_broker, group, is_kip_848=True)[0]

    with RawMember(group_broker.port, group) as classic:
        classic.join_alone()
        assert classic.commit(group, 7) == 0
        assert beat("m", 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert classic.leave() == 0

        joined = beat("m", 0)
        assert joined.error_code == 0
        assert kinds() == ("Dead", "Stable")
        assert committed_offsets(classic.client, group) == {(group, 0): 7}
        classic.id, classic.generation = "", -1
        classic.send_join()
        assert classic.receive_join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert beat("m", -1).error_code == 0

        classic.join_alone()
        assert kinds() == ("Stable", "")  # with an error
        assert committed_offsets(classic.client, group) == {(group, 0): 7}
        assert classic.leave() == 0
