"""Groups and their offsets: what is asked of coordinators, and what their answers say. Sends nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from ottla.base.errors import DecodeError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.admin.outcomes import Call, Outcomes, admin_error, outcome
from ottla.client.core.admin.types import GroupDescription, GroupListing, MemberDescription
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.client.core.consumer.offset_requests import (
    FIRST_OFFSET_FETCH_BY_GROUP,
    Membership,
    by_topic,
    commit_request,
    read_committed_offsets,
)
from ottla.client.core.group.protocol import PROTOCOL_TYPE, decode_assignment, decode_member
from ottla.client.errors import ClientError
from ottla.wire.apis import consumer_group_describe, describe_groups
from ottla.wire.apis.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.wire.apis.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.wire.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ottla.wire.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

NOT_A_CONSUMER_GROUP = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
"""Answers of ConsumerGroupDescribe after which a group may still be a classic one."""

CLASSIC = "classic"
CONSUMER = "consumer"
_DEAD = "Dead"
_FIRST_STATES_FILTER = 4
_FIRST_TYPES_FILTER = 5
_FIRST_MANY_MEMBERS = 3
_FIRST_ALL_OFFSETS = 2
_FIRST_REQUIRE_STABLE = 7
_REMOVED = "removed by an administrator"


def group_label(group_id: str) -> str:
    return f"group {group_id}"


# Listing


def list_groups_call(node_id: int, states: Collection[str], types: Collection[str]) -> Call[int, list[GroupListing]]:
    def build(nodes: Sequence[int], version: int) -> ListGroupsRequest:
        for wanted, first, what in ((states, _FIRST_STATES_FILTER, "state"), (types, _FIRST_TYPES_FILTER, "type")):
            if wanted and version < first:
                raise admin_error(ErrorCode.UNSUPPORTED_VERSION, f"the broker is too old to filter groups by {what}")
        return ListGroupsRequest(states_filter=list(states), types_filter=list(types))

    def read(response: ListGroupsResponse) -> dict[int, list[GroupListing] | ClientError]:
        groups = [
            GroupListing(group.group_id, group.protocol_type, group.group_state, group.group_type)
            for group in response.groups
        ]
        return {node_id: outcome(response.error_code, groups, where=f"broker {node_id}")}

    return Call("list_groups", ListGroupsRequest, ListGroupsResponse, build, read)


# Describing


def describe_consumer_groups_call() -> Call[str, GroupDescription]:
    wire = consumer_group_describe

    def build(groups: Sequence[str], version: int) -> consumer_group_describe.ConsumerGroupDescribeRequest:
        return wire.ConsumerGroupDescribeRequest(group_ids=list(groups))

    def read(
        response: consumer_group_describe.ConsumerGroupDescribeResponse,
    ) -> dict[str, GroupDescription | ClientError]:
        return {
            group.group_id: outcome(
                group.error_code, _consumer_group(group), group.error_message, where=group_label(group.group_id)
            )
            for group in response.groups
        }

    return Call("describe_groups", wire.ConsumerGroupDescribeRequest, wire.ConsumerGroupDescribeResponse, build, read)


def _consumer_group(group: consumer_group_describe.DescribedGroup) -> GroupDescription:
    return GroupDescription(
        group.group_id,
        CONSUMER,
        group.group_state,
        PROTOCOL_TYPE,
        group.assignor_name,
        tuple(
            MemberDescription(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                _assigned(member.assignment),
                _assigned(member.target_assignment),
                member.member_epoch,
                frozenset(member.subscribed_topic_names),
            )
            for member in group.members
        ),
        group.group_epoch,
        group.assignment_epoch,
    )


def _assigned(assignment: consumer_group_describe.DescribedAssignment) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(entry.topic_name, index) for entry in assignment.topic_partitions for index in entry.partitions
    )


def describe_classic_groups_call() -> Call[str, GroupDescription]:
    wire = describe_groups

    def build(groups: Sequence[str], version: int) -> describe_groups.DescribeGroupsRequest:
        return wire.DescribeGroupsRequest(groups=list(groups))

    def read(response: describe_groups.DescribeGroupsResponse) -> dict[str, GroupDescription | ClientError]:
        answers: dict[str, GroupDescription | ClientError] = {}
        for group in response.groups:
            # Before version 6 a group that does not exist is described as a dead one (KIP-1043).
            code = group.error_code or (ErrorCode.GROUP_ID_NOT_FOUND if group.group_state == _DEAD else 0)
            where = group_label(group.group_id)
            answers[group.group_id] = (
                admin_error(code, group.error_message, where=where) if code else _classic_group(group)
            )
        return answers

    return Call("describe_groups", wire.DescribeGroupsRequest, wire.DescribeGroupsResponse, build, read)


def _classic_group(group: describe_groups.DescribedGroup) -> GroupDescription:
    return GroupDescription(
        group.group_id,
        CLASSIC,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        tuple(_classic_member(member, group.protocol_type) for member in group.members),
    )


def _classic_member(member: describe_groups.DescribedGroupMember, protocol_type: str) -> MemberDescription:
    assignment: frozenset[TopicPartition] = frozenset()
    topics: frozenset[str] = frozenset()
    # Other kinds of groups (Connect, schema registries) put bytes of their own there.
    if protocol_type == PROTOCOL_TYPE:
        try:
            assignment = frozenset(decode_assignment(member.member_assignment)[0])
            if member.member_metadata:
                topics = decode_member(member.member_id, None, member.member_metadata).topics
        except DecodeError:
            # What a member says of itself must not keep the rest of the group from being seen.
            pass
    return MemberDescription(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        assignment,
        subscribed_topics=frozenset(topics),
    )


# Deleting groups, removing members


def delete_groups_call() -> Call[str, None]:
    def build(groups: Sequence[str], version: int) -> DeleteGroupsRequest:
        return DeleteGroupsRequest(groups_names=list(groups))

    def read(response: DeleteGroupsResponse) -> dict[str, ClientError | None]:
        return {
            answer.group_id: outcome(answer.error_code, None, where=group_label(answer.group_id))
            for answer in response.results
        }

    return Call("delete_groups", DeleteGroupsRequest, DeleteGroupsResponse, build, read)


def remove_members_call(group_id: str, instance_ids: Collection[str], reason: str | None) -> Call[str, None]:
    """Keys are member ids, or instance ids where these are in `instance_ids`."""

    def build(members: Sequence[str], version: int) -> LeaveGroupRequest:
        if version < _FIRST_MANY_MEMBERS:
            raise admin_error(ErrorCode.UNSUPPORTED_VERSION, "the broker is too old to remove members (KIP-345)")
        identities = [
            MemberIdentity(
                member_id="" if member in instance_ids else member,
                group_instance_id=member if member in instance_ids else None,
                reason=reason or _REMOVED,
            )
            for member in members
        ]
        return LeaveGroupRequest(group_id=group_id, members=identities)

    def read(response: LeaveGroupResponse) -> dict[str, ClientError | None]:
        if response.error_code:
            raise admin_error(response.error_code, where=group_label(group_id))
        answers: dict[str, ClientError | None] = {}
        for answer in response.members:
            instance_id = answer.group_instance_id
            key = instance_id if instance_id is not None and instance_id in instance_ids else answer.member_id
            answers[key] = outcome(answer.error_code, None, where=f"{group_label(group_id)}, member {key}")
        return answers

    return Call("remove_members", LeaveGroupRequest, LeaveGroupResponse, build, read)


def explain_strangers(outcomes: Outcomes[str, None], group: GroupDescription | None) -> Outcomes[str, None]:
    """The coordinator does not know members, it says; of a group of the consumer protocol, that is not the point."""
    if group is None or group.type != CONSUMER:
        return outcomes
    why = admin_error(
        ErrorCode.UNKNOWN_MEMBER_ID,
        "this is a group of the consumer protocol (KIP-848), whose members cannot be removed: stop them instead",
        where=group_label(group.group_id),
    )
    errors = {
        member: why if error.code is ErrorCode.UNKNOWN_MEMBER_ID else error for member, error in outcomes.errors.items()
    }
    return Outcomes({**outcomes.results, **errors}, what="remove_members")


# Offsets


def list_group_offsets_call(
    group_id: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
) -> Call[str, dict[TopicPartition, OffsetAndMetadata]]:
    topics = None if partitions is None else by_topic(partitions)

    def build(groups: Sequence[str], version: int) -> OffsetFetchRequest:
        if version >= FIRST_OFFSET_FETCH_BY_GROUP:
            group = OffsetFetchRequestGroup(
                group_id=group_id,
                topics=None
                if topics is None
                else [
                    OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name, indexes in topics.items()
                ],
            )
            return OffsetFetchRequest(groups=[group], require_stable=require_stable)
        if topics is None and version < _FIRST_ALL_OFFSETS:
            raise admin_error(ErrorCode.UNSUPPORTED_VERSION, "the broker is too old for this; name partitions")
        return OffsetFetchRequest(
            group_id=group_id,
            topics=None
            if topics is None
            else [OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
            require_stable=require_stable and version >= _FIRST_REQUIRE_STABLE,
        )

    def read(response: OffsetFetchResponse) -> dict[str, dict[TopicPartition, OffsetAndMetadata] | ClientError]:
        committed = read_committed_offsets(response)
        where = group_label(group_id)
        if committed.error_code:
            return {group_id: admin_error(committed.error_code, where=where)}
        for partition, code in committed.errors.items():
            return {group_id: admin_error(code, where=f"{where}, {partition}")}
        return {group_id: {key: found for key, found in committed.offsets.items() if found is not None}}

    return Call("list_group_offsets", OffsetFetchRequest, OffsetFetchResponse, build, read)


def alter_group_offsets_call(
    group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> Call[TopicPartition, None]:
    def build(partitions: Sequence[TopicPartition], version: int) -> OffsetCommitRequest:
        return commit_request(Membership(group_id), {partition: offsets[partition] for partition in partitions})

    def read(response: OffsetCommitResponse) -> dict[TopicPartition, ClientError | None]:
        return {
            (key := TopicPartition(topic.name, answer.partition_index)): outcome(
                answer.error_code, None, _commit_advice(answer.error_code), where=f"{group_label(group_id)}, {key}"
            )
            for topic in response.topics
            for answer in topic.partitions
        }

    return Call("alter_group_offsets", OffsetCommitRequest, OffsetCommitResponse, build, read)


def _commit_advice(code: int) -> str | None:
    if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH):
        return "the group has members; stop them before its offsets are altered"
    return None


def delete_group_offsets_call(group_id: str) -> Call[TopicPartition, None]:
    def build(partitions: Sequence[TopicPartition], version: int) -> OffsetDeleteRequest:
        return OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
                )
                for topic, indexes in by_topic(partitions).items()
            ],
        )

    def read(response: OffsetDeleteResponse) -> dict[TopicPartition, ClientError | None]:
        if response.error_code:
            raise admin_error(response.error_code, where=group_label(group_id))
        return {
            (key := TopicPartition(topic.name, answer.partition_index)): outcome(
                answer.error_code, None, where=f"{group_label(group_id)}, {key}"
            )
            for topic in response.topics
            for answer in topic.partitions
        }

    return Call("delete_group_offsets", OffsetDeleteRequest, OffsetDeleteResponse, build, read)
