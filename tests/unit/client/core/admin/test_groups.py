"""Calls about groups, without a broker: what is asked in which version, and what an answer says of each group."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.admin.groups import (
    alter_group_offsets_call,
    delete_group_offsets_call,
    delete_groups_call,
    describe_classic_groups_call,
    describe_consumer_groups_call,
    explain_strangers,
    list_group_offsets_call,
    list_groups_call,
    remove_members_call,
)
from ottla.client.core.admin.outcomes import Outcomes, admin_error
from ottla.client.core.admin.types import GroupDescription, GroupListing, MemberDescription
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.client.core.group.protocol import encode_assignment, encode_subscription
from ottla.client.errors import ClientError
from ottla.wire.apis import consumer_group_describe, describe_groups
from ottla.wire.apis.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from ottla.wire.apis.leave_group import LeaveGroupResponse, MemberResponse
from ottla.wire.apis.list_groups import ListedGroup, ListGroupsResponse
from ottla.wire.apis.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.apis.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.wire.apis.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED


def code_of(answer: object) -> ErrorCode:
    assert isinstance(answer, ClientError)
    return answer.code


def test_groups_are_listed_by_state_and_type_where_a_broker_can() -> None:
    call = list_groups_call(7, ["Stable"], ["classic"])
    request = call.build([7], 5)
    assert (request.states_filter, request.types_filter) == (["Stable"], ["classic"])
    assert list_groups_call(7, ["Stable"], []).build([7], 4).states_filter == ["Stable"]
    assert list_groups_call(7, [], []).build([7], 0).states_filter == []
    listed = ListedGroup(group_id="g", protocol_type="consumer", group_state="Stable", group_type="classic")
    assert call.read(ListGroupsResponse(groups=[listed])) == {7: [GroupListing("g", "consumer", "Stable", "classic")]}
    refused = call.read(ListGroupsResponse(error_code=DENIED))
    assert code_of(refused[7]) is DENIED and "broker 7" in str(refused[7])


def test_a_group_of_the_consumer_protocol() -> None:
    wire = consumer_group_describe

    def assigned(*partitions: int) -> consumer_group_describe.DescribedAssignment:
        return wire.DescribedAssignment(
            topic_partitions=[wire.DescribedTopicPartitions(topic_name="t", partitions=list(partitions))]
        )

    member = wire.DescribedMember(
        member_id="m",
        instance_id="i",
        member_epoch=4,
        client_id="c",
        client_host="/h",
        subscribed_topic_names=["t"],
        assignment=assigned(0),
        target_assignment=assigned(0, 1),
    )
    group = wire.DescribedGroup(
        group_id="g",
        group_state="Reconciling",
        group_epoch=5,
        assignment_epoch=6,
        assignor_name="range",
        members=[member],
    )
    gone = wire.DescribedGroup(group_id="gone", error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message="nowhere")
    call = describe_consumer_groups_call()
    assert call.build(["g", "gone"], 0).group_ids == ["g", "gone"]
    answers = call.read(wire.ConsumerGroupDescribeResponse(groups=[group, gone]))
    expected = MemberDescription("m", "i", "c", "/h", frozenset({T0}), frozenset({T0, T1}), 4, frozenset({"t"}))
    assert answers["g"] == GroupDescription("g", "consumer", "Reconciling", "consumer", "range", (expected,), 5, 6)
    assert code_of(answers["gone"]) is ErrorCode.GROUP_ID_NOT_FOUND and "nowhere" in str(answers["gone"])


@pytest.mark.parametrize(
    ("state", "code", "expected"),
    [
        ("Stable", 0, None),
        ("Empty", 0, None),
        ("Dead", 0, ErrorCode.GROUP_ID_NOT_FOUND),
        ("Dead", DENIED, DENIED),
        ("", DENIED, DENIED),
    ],
)
def test_a_classic_group(state: str, code: int, expected: ErrorCode | None) -> None:
    member = describe_groups.DescribedGroupMember(
        member_id="m", group_instance_id="i", client_id="c", client_host="/h", member_assignment=encode_assignment([T1])
    )
    group = describe_groups.DescribedGroup(
        group_id="g",
        group_state=state,
        error_code=code,
        protocol_type="consumer",
        protocol_data="range",
        members=[member],
    )
    answer = describe_classic_groups_call().read(describe_groups.DescribeGroupsResponse(groups=[group]))["g"]
    if expected is not None:
        assert code_of(answer) is expected
        return
    found = MemberDescription("m", "i", "c", "/h", frozenset({T1}))
    assert answer == GroupDescription("g", "classic", state, "consumer", "range", (found,))


def test_groups_are_deleted_one_by_one() -> None:
    call = delete_groups_call()
    assert call.build(["a", "b"], 2).groups_names == ["a", "b"]
    results = [
        DeletableGroupResult(group_id="a"),
        DeletableGroupResult(group_id="b", error_code=ErrorCode.NON_EMPTY_GROUP),
    ]
    answers = call.read(DeleteGroupsResponse(results=results))
    assert answers["a"] is None and code_of(answers["b"]) is ErrorCode.NON_EMPTY_GROUP


@pytest.mark.parametrize(("reason", "told"), [(None, "removed by an administrator"), ("because", "because")])
def test_members_are_removed_by_either_name(reason: str | None, told: str) -> None:
    call = remove_members_call("g", {"i"}, reason)
    request = call.build(["i", "m"], 3)
    assert request.group_id == "g"
    members = [(member.member_id, member.group_instance_id, member.reason) for member in request.members]
    assert members == [("", "i", told), ("m", None, told)]
    answers = call.read(
        LeaveGroupResponse(
            members=[
                MemberResponse(member_id="known by the broker", group_instance_id="i"),
                MemberResponse(member_id="m", error_code=ErrorCode.UNKNOWN_MEMBER_ID),
                # One that has an instance id, and was not asked for by it.
                MemberResponse(member_id="n", group_instance_id="other"),
            ]
        )
    )
    assert answers.keys() == {"i", "m", "n"}
    assert answers["i"] is None and answers["n"] is None
    assert code_of(answers["m"]) is ErrorCode.UNKNOWN_MEMBER_ID
    with pytest.raises(ClientError, match="group g"):
        call.read(LeaveGroupResponse(error_code=DENIED))


def test_that_members_of_the_other_protocol_cannot_be_removed_is_explained() -> None:
    unknown, other = admin_error(ErrorCode.UNKNOWN_MEMBER_ID), admin_error(DENIED)
    outcomes: Outcomes[str, None] = Outcomes({"a": None, "b": unknown, "c": other})

    def group(kind: str) -> GroupDescription:
        return GroupDescription("g", kind, "Stable", "consumer", "range", ())

    for nothing_to_explain in (None, group("classic")):
        assert explain_strangers(outcomes, nothing_to_explain) is outcomes
    explained = explain_strangers(outcomes, group("consumer"))
    assert explained.results == {"a": None}
    assert "KIP-848" in explained.errors["b"].message and explained.errors["b"].code is ErrorCode.UNKNOWN_MEMBER_ID
    assert explained.errors["c"] is other


@pytest.mark.parametrize("partitions", [None, [T0, T1]])
@pytest.mark.parametrize("version", [2, 6, 7, 8, 9])
def test_offsets_of_a_group_are_asked_for_in_any_version(partitions: list[TopicPartition] | None, version: int) -> None:
    request = list_group_offsets_call("g", partitions, require_stable=True).build(["g"], version)
    part = request.groups[0] if version >= 8 else request
    assert (part.group_id, request.require_stable) == ("g", version >= 7)
    shown = None if part.topics is None else [(topic.name, topic.partition_indexes) for topic in part.topics]
    assert shown == (None if partitions is None else [("t", [0, 1])])
    lax = list_group_offsets_call("g", partitions, require_stable=False).build(["g"], version)
    assert lax.require_stable is False
    assert list_group_offsets_call("g", [T0], require_stable=False).build(["g"], 1).group_id == "g"


def test_offsets_of_a_group() -> None:
    call = list_group_offsets_call("g", None, require_stable=False)

    def response(code: int = 0, **entry: int) -> OffsetFetchResponse:
        entries = [
            OffsetFetchResponsePartitions(
                partition_index=0, committed_offset=5, committed_leader_epoch=1, metadata="x"
            ),
            OffsetFetchResponsePartitions(**{"partition_index": 1, "committed_offset": -1, **entry}),
        ]
        topic = OffsetFetchResponseTopics(name="t", partitions=entries)
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", error_code=code, topics=[topic])])

    assert call.read(response()) == {"g": {T0: OffsetAndMetadata(5, "x", 1)}}
    assert code_of(call.read(response(DENIED))["g"]) is DENIED
    bad = call.read(response(error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT))["g"]
    assert code_of(bad) is ErrorCode.UNSTABLE_OFFSET_COMMIT and "t-1" in str(bad)


@pytest.mark.parametrize(
    ("code", "has_members"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, True),
        (ErrorCode.ILLEGAL_GENERATION, True),
        (ErrorCode.STALE_MEMBER_EPOCH, True),
        (ErrorCode.INVALID_REQUEST, False),
        (ErrorCode.UNKNOWN_SERVER_ERROR, False),
    ],
)
def test_offsets_of_a_group_with_members_cannot_be_altered(code: ErrorCode, has_members: bool) -> None:
    call = alter_group_offsets_call("g", {T0: OffsetAndMetadata(5), T1: OffsetAndMetadata(6)})
    request = call.build([T1], 8)
    assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("g", -1, "")
    assert [(p.partition_index, p.committed_offset) for p in request.topics[0].partitions] == [(1, 6)]
    entries = [
        OffsetCommitResponsePartition(partition_index=0),
        OffsetCommitResponsePartition(partition_index=1, error_code=code),
    ]
    answers = call.read(OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=entries)]))
    assert answers[T0] is None and code_of(answers[T1]) is code
    assert ("stop them before" in str(answers[T1])) is has_members
    assert "group g, t-1" in str(answers[T1])


def test_offsets_are_deleted() -> None:
    call = delete_group_offsets_call("g")
    request = call.build([T0, T1], 0)
    assert request.group_id == "g"
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in request.topics] == [("t", [0, 1])]
    entries = [
        OffsetDeleteResponsePartition(partition_index=0),
        OffsetDeleteResponsePartition(partition_index=1, error_code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
    ]
    answers = call.read(OffsetDeleteResponse(topics=[OffsetDeleteResponseTopic(name="t", partitions=entries)]))
    assert answers[T0] is None and code_of(answers[T1]) is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    with pytest.raises(ClientError, match="group g"):
        call.read(OffsetDeleteResponse(error_code=DENIED))


@pytest.mark.parametrize(
    ("protocol_type", "assignment", "metadata", "partitions", "topics"),
    [
        ("consumer", encode_assignment([T0, T1]), encode_subscription(["t", "u"], [], -1), {T0, T1}, {"t", "u"}),
        ("consumer", encode_assignment([T1]), b"", {T1}, set()),
        ("consumer", b"", encode_subscription(["u"], [], -1), set(), {"u"}),
        # What a member says of itself may be anything; the rest is shown all the same.
        ("consumer", b"\x00", encode_subscription(["u"], [], -1), set(), set()),
        ("consumer", encode_assignment([T0]), b"\x00", {T0}, set()),
        ("connect", encode_assignment([T0]), encode_subscription(["t"], [], -1), set(), set()),
    ],
)
def test_what_members_of_a_classic_group_say_of_themselves(
    protocol_type: str, assignment: bytes, metadata: bytes, partitions: set[TopicPartition], topics: set[str]
) -> None:
    member = describe_groups.DescribedGroupMember(
        member_id="m", client_id="c", client_host="/h", member_assignment=assignment, member_metadata=metadata
    )
    group = describe_groups.DescribedGroup(
        group_id="g", group_state="Stable", protocol_type=protocol_type, protocol_data="range", members=[member]
    )
    call = describe_classic_groups_call()
    assert call.build(["g", "h"], 5).groups == ["g", "h"]
    found = call.read(describe_groups.DescribeGroupsResponse(groups=[group]))["g"]
    shown = MemberDescription("m", None, "c", "/h", frozenset(partitions), subscribed_topics=frozenset(topics))
    assert found == GroupDescription("g", "classic", "Stable", protocol_type, "range", (shown,))
