"""Groups and their offsets: committed, read, forgotten with their topics, deleted; and names that are none."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.wire.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.apis.delete_groups import DeleteGroupsRequest
from ottla.wire.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.apis.describe_groups import DescribeGroupsRequest
from ottla.wire.apis.find_coordinator import FindCoordinatorRequest
from ottla.wire.apis.heartbeat import HeartbeatRequest
from ottla.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.apis.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.apis.list_groups import ListGroupsRequest
from ottla.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.apis.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from ottla.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.unit.broker.running_broker import RunningBroker, running_broker
from tests.waiting import repeat_until

_numbers = itertools.count()
MISSING = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    settings = {"offsets_topic_num_partitions": 4, "group_initial_rebalance_delay_ms": 0}
    with running_broker(tmp_path_factory.mktemp("broker") / "data", **settings) as running:
        find = FindCoordinatorRequest(coordinator_keys=["g"], key_type=0)
        # The first question makes the topic of groups.
        repeat_until(lambda: running.ask(find).coordinators[0].error_code == 0)
        make_topic(running, "kept")
        yield running


@pytest.fixture
def group() -> str:
    return f"group-{next(_numbers)}"


def make_topic(broker: RunningBroker, name: str) -> None:
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1)
    assert broker.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics[0].error_code == 0


def commit(
    broker: RunningBroker, group: str, version: int | None = None, **topics: dict[int, int]
) -> dict[str, list[int]]:
    request = OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="m")
                    for index, offset in offsets.items()
                ],
            )
            for name, offsets in topics.items()
        ],
    )
    response = broker.ask(request, version)
    return {topic.name: [part.error_code for part in topic.partitions] for topic in response.topics}


def committed(broker: RunningBroker, group: str, topic: str | None = None) -> Any:
    topics = None if topic is None else [OffsetFetchRequestTopics(name=topic, partition_indexes=[0, 1])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])
    (answer,) = broker.ask(request).groups
    assert answer.error_code == 0
    return {
        (found.name, part.partition_index): part.committed_offset
        for found in answer.topics
        for part in found.partitions
    }


@pytest.mark.parametrize("version", [2, 5, 9])
def test_offsets_are_committed_by_partition(broker: RunningBroker, group: str, version: int) -> None:
    codes = commit(broker, group, version, kept={0: 5, 1: 0, 2: 7}, nowhere={0: 1})
    assert codes == {"kept": [0, 0, MISSING], "nowhere": [MISSING]}
    assert committed(broker, group, "kept") == {("kept", 0): 5, ("kept", 1): 0}
    assert committed(broker, group) == {("kept", 0): 5, ("kept", 1): 0}
    assert committed(broker, group, "nowhere") == {("nowhere", 0): -1, ("nowhere", 1): -1}


def test_offsets_go_with_their_topic_and_no_others(broker: RunningBroker, group: str) -> None:
    name = f"gone-{next(_numbers)}"
    make_topic(broker, name)
    commit(broker, group, **{name: {0: 5}, "kept": {0: 6}})
    make_topic(broker, f"another-{next(_numbers)}")
    assert committed(broker, group) == {(name, 0): 5, ("kept", 0): 6}
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=10_000)
    assert broker.ask(request).responses[0].error_code == 0
    repeat_until(lambda: (name, 0) not in committed(broker, group), lambda: None)
    assert committed(broker, group) == {("kept", 0): 6}


def test_offsets_are_deleted(broker: RunningBroker, group: str) -> None:
    commit(broker, group, kept={0: 5, 1: 6})
    wanted = [
        OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=1)])
        for name in ("kept", "nowhere")
    ]
    answer = broker.ask(OffsetDeleteRequest(group_id=group, topics=wanted))
    assert answer.error_code == 0
    assert {topic.name: [part.error_code for part in topic.partitions] for topic in answer.topics} == {
        "kept": [0],
        "nowhere": [MISSING],
    }
    assert committed(broker, group) == {("kept", 0): 5}
    unknown = broker.ask(OffsetDeleteRequest(group_id="nobody", topics=wanted))
    assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def joined(broker: RunningBroker, group: str) -> str:
    """The id of the only member of a group."""
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    request.member_id = broker.ask(request).member_id
    member_id: str = broker.ask(request).member_id
    assignment = SyncGroupRequestAssignment(member_id=member_id, assignment=b"all")
    reply = broker.ask(
        SyncGroupRequest(
            group_id=group,
            generation_id=1,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[assignment],
        )
    )
    assert (reply.error_code, reply.assignment) == (0, b"all")
    return member_id


def test_a_group_from_its_first_member_to_its_end(broker: RunningBroker, group: str) -> None:
    member_id = joined(broker, group)
    (found,) = broker.ask(DescribeGroupsRequest(groups=[group])).groups
    assert (found.error_code, found.group_state, found.protocol_type, found.protocol_data) == (
        0,
        "Stable",
        "consumer",
        "range",
    )
    (member,) = found.members
    assert (member.member_id, member.client_id, member.member_assignment) == (member_id, "tester", b"all")
    assert group in {listed.group_id for listed in broker.ask(ListGroupsRequest(states_filter=["Stable"])).groups}
    assert group not in {listed.group_id for listed in broker.ask(ListGroupsRequest(states_filter=["Empty"])).groups}
    beat = HeartbeatRequest(group_id=group, generation_id=1, member_id=member_id)
    assert broker.ask(beat).error_code == 0
    assert broker.ask(DeleteGroupsRequest(groups_names=[group])).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    left = broker.ask(LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member_id)]))
    assert [answer.error_code for answer in left.members] == [0]
    assert broker.ask(beat).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    results = broker.ask(DeleteGroupsRequest(groups_names=[group, "nobody"])).results
    assert {answer.group_id: answer.error_code for answer in results} == {
        group: 0,
        "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
    }


@pytest.mark.parametrize(
    ("version", "code", "state"), [(5, ErrorCode.NONE, "Dead"), (6, ErrorCode.GROUP_ID_NOT_FOUND, "Dead")]
)
def test_a_group_that_is_not_there_is_dead_or_not_found(
    broker: RunningBroker, version: int, code: ErrorCode, state: str
) -> None:
    (found,) = broker.ask(DescribeGroupsRequest(groups=["nobody"]), version).groups
    assert (found.error_code, found.group_state) == (code, state)


@pytest.mark.parametrize(("version", "asked", "told"), [(2, False, False), (3, False, False), (3, True, True)])
def test_what_may_be_done_with_a_group_is_told_to_who_asks(
    broker: RunningBroker, group: str, version: int, asked: bool, told: bool
) -> None:
    request = DescribeGroupsRequest(groups=[group], include_authorized_operations=asked)
    (found,) = broker.ask(request, version).groups
    assert (found.authorized_operations > 0) is told


@pytest.mark.parametrize(
    "request_",
    [
        HeartbeatRequest(group_id="", generation_id=1, member_id="m"),
        SyncGroupRequest(group_id="", generation_id=1, member_id="m"),
        JoinGroupRequest(group_id="", session_timeout_ms=10_000, protocol_type="consumer"),
        LeaveGroupRequest(group_id="", members=[MemberIdentity(member_id="m")]),
    ],
    ids=lambda request: type(request).__name__,
)
def test_members_need_a_group_with_a_name(broker: RunningBroker, request_: Any) -> None:
    assert broker.ask(request_).error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_a_member_is_told_if_its_offsets_cannot_be_written(
    broker: RunningBroker, group: str, monkeypatch: pytest.MonkeyPatch, failure: ErrorCode, told: ErrorCode
) -> None:
    """Never a word of a log that it does not know."""

    def fail(*_: object, **__: object) -> None:
        raise KafkaError(code=failure)

    with monkeypatch.context() as patch:
        patch.setattr(broker.broker.replicas, "append_own", fail)
        assert commit(broker, group, kept={0: 5}) == {"kept": [told]}
    repeat_until(lambda: commit(broker, group, kept={0: 6}) == {"kept": [ErrorCode.NONE]})


def test_groups_that_are_not_loaded_are_told_one_by_one(broker: RunningBroker) -> None:
    runtime = broker.broker.groups.runtime
    loading = "loading"
    names = (f"other-{number}" for number in range(100))
    other = next(name for name in names if runtime.partition_for(name) != runtime.partition_for(loading))
    shard: Any = runtime.shard_for(loading)
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    words = KafkaError(code=code).message
    shard.is_loaded = False
    try:
        classic = broker.ask(DescribeGroupsRequest(groups=[loading, other])).groups
        consumer = broker.ask(ConsumerGroupDescribeRequest(group_ids=[loading, other])).groups
    finally:
        shard.is_loaded = True
    for first, second in (classic, consumer):
        assert (first.group_id, first.error_code, first.error_message) == (loading, code, words)
        assert (second.group_id, second.error_code) == (other, ErrorCode.GROUP_ID_NOT_FOUND)
