"""Requests to the coordinators of groups and transactions, with the error each must get.

Most of them speak for a member or a transaction nobody knows: that is answered at once, in every version, and leaves
nothing behind. What members and transactions do is tested with clients.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from ottla.base.errors import ErrorCode
from ottla.wire.api_keys import ApiKey
from ottla.wire.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.apis.delete_groups import DeleteGroupsRequest
from ottla.wire.apis.describe_groups import DescribeGroupsRequest
from ottla.wire.apis.describe_transactions import DescribeTransactionsRequest
from ottla.wire.apis.end_txn import EndTxnRequest
from ottla.wire.apis.find_coordinator import FindCoordinatorRequest
from ottla.wire.apis.heartbeat import HeartbeatRequest
from ottla.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.apis.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.apis.list_groups import ListGroupsRequest
from ottla.wire.apis.list_transactions import ListTransactionsRequest
from ottla.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.apis.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from ottla.wire.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.wire.apis.sync_group import SyncGroupRequest
from ottla.wire.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.apis.write_txn_markers import WriteTxnMarkersRequest
from ottla.wire.message import Request

NOBODY = "nobody"
UNKNOWN_PRODUCER = 2**40

LOADING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
"""What a client that asks for the first time gets until the coordinator is there: it asks again."""


class CoordinatorType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


class Asked(NamedTuple):
    request: Callable[[str, int], Request]
    """From the name of a topic, which serves as that of a group too, and a version."""
    error: Callable[[int], ErrorCode] = lambda version: ErrorCode.NONE


def always(code: ErrorCode) -> Callable[[int], ErrorCode]:
    return lambda version: code


def find_coordinator(name: str, version: int) -> Request:
    if version >= 4:
        return FindCoordinatorRequest(coordinator_keys=[name, f"{name}-2"])
    return FindCoordinatorRequest(key=name)


def join_group(name: str, version: int) -> Request:
    return JoinGroupRequest(
        group_id=name,
        session_timeout_ms=1,
        rebalance_timeout_ms=1,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def leave_group(name: str, version: int) -> Request:
    if version >= 3:
        return LeaveGroupRequest(group_id=name, members=[MemberIdentity(member_id=NOBODY)])
    return LeaveGroupRequest(group_id=name, member_id=NOBODY)


def offset_commit(name: str, version: int) -> Request:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    return OffsetCommitRequest(group_id=name, topics=[OffsetCommitRequestTopic(name=name, partitions=[partition])])


def offset_fetch(name: str, version: int) -> Request:
    if version >= 8:
        asked = OffsetFetchRequestTopics(name=name, partition_indexes=[0])
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=[asked])])
    return OffsetFetchRequest(group_id=name, topics=[OffsetFetchRequestTopic(name=name, partition_indexes=[0])])


def offset_delete(name: str, version: int) -> Request:
    topic = OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    return OffsetDeleteRequest(group_id=name, topics=[topic])


def consumer_group_heartbeat(name: str, version: int) -> Request:
    return ConsumerGroupHeartbeatRequest(
        group_id=f"{name}-{version}",
        member_id="me",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[name],
        topic_partitions=[],
    )


def add_partitions_to_txn(name: str, version: int) -> Request:
    topics = [AddPartitionsToTxnTopic(name=name, partitions=[0])]
    if version < 4:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=UNKNOWN_PRODUCER,
            v3_and_below_topics=topics,
        )
    transaction = AddPartitionsToTxnTransaction(transactional_id=name, producer_id=UNKNOWN_PRODUCER, topics=topics)
    return AddPartitionsToTxnRequest(transactions=[transaction])


def txn_offset_commit(name: str, version: int) -> Request:
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    topic = TxnOffsetCommitRequestTopic(name=name, partitions=[partition])
    return TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=name,
        producer_id=UNKNOWN_PRODUCER,
        member_id=NOBODY if version >= 3 else "",
        generation_id=1 if version >= 3 else -1,
        topics=[topic],
    )


COORDINATED: dict[int, Asked] = {
    ApiKey.FIND_COORDINATOR: Asked(find_coordinator),
    ApiKey.JOIN_GROUP: Asked(join_group, always(ErrorCode.INVALID_SESSION_TIMEOUT)),
    ApiKey.SYNC_GROUP: Asked(
        lambda name, v: SyncGroupRequest(
            group_id=name,
            generation_id=1,
            member_id=NOBODY,
            protocol_type="consumer" if v >= 5 else None,
            protocol_name="range" if v >= 5 else None,
        ),
        always(ErrorCode.UNKNOWN_MEMBER_ID),
    ),
    ApiKey.HEARTBEAT: Asked(
        lambda name, v: HeartbeatRequest(group_id=name, generation_id=1, member_id=NOBODY),
        always(ErrorCode.UNKNOWN_MEMBER_ID),
    ),
    ApiKey.LEAVE_GROUP: Asked(leave_group, always(ErrorCode.UNKNOWN_MEMBER_ID)),
    ApiKey.LIST_GROUPS: Asked(lambda name, v: ListGroupsRequest()),
    ApiKey.DESCRIBE_GROUPS: Asked(
        lambda name, v: DescribeGroupsRequest(groups=[name]),
        # An unknown group was a dead one until KIP-1043 gave it an error.
        lambda version: ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE,
    ),
    ApiKey.DELETE_GROUPS: Asked(
        lambda name, v: DeleteGroupsRequest(groups_names=[name]), always(ErrorCode.GROUP_ID_NOT_FOUND)
    ),
    ApiKey.OFFSET_COMMIT: Asked(offset_commit),
    ApiKey.OFFSET_FETCH: Asked(offset_fetch),
    ApiKey.OFFSET_DELETE: Asked(offset_delete, always(ErrorCode.GROUP_ID_NOT_FOUND)),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Asked(consumer_group_heartbeat),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Asked(
        lambda name, v: ConsumerGroupDescribeRequest(group_ids=[name]), always(ErrorCode.GROUP_ID_NOT_FOUND)
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: Asked(add_partitions_to_txn, always(ErrorCode.INVALID_PRODUCER_ID_MAPPING)),
    ApiKey.ADD_OFFSETS_TO_TXN: Asked(
        lambda name, v: AddOffsetsToTxnRequest(transactional_id=name, producer_id=UNKNOWN_PRODUCER, group_id=name),
        always(ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ),
    ApiKey.END_TXN: Asked(
        lambda name, v: EndTxnRequest(transactional_id=name, producer_id=UNKNOWN_PRODUCER),
        always(ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ),
    ApiKey.TXN_OFFSET_COMMIT: Asked(txn_offset_commit, always(ErrorCode.INVALID_PRODUCER_ID_MAPPING)),
    ApiKey.DESCRIBE_TRANSACTIONS: Asked(
        lambda name, v: DescribeTransactionsRequest(transactional_ids=[name]),
        always(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
    ),
    ApiKey.LIST_TRANSACTIONS: Asked(lambda name, v: ListTransactionsRequest()),
    ApiKey.WRITE_TXN_MARKERS: Asked(lambda name, v: WriteTxnMarkersRequest()),
}
