"""What is told of what a client may not touch: beside it what it may is done, and nothing is given away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.base.acls import AclPermission
from ottla.base.errors import ErrorCode
from ottla.base.types import NIL_UUID, Uuid
from ottla.broker.admission import AccessRules
from ottla.broker.authorizer import NOT_REQUESTED, Operation, ResourceType
from ottla.broker.table_authorizer import Rule, TableAuthorizer
from ottla.records.builder import NewRecord, build_batch
from ottla.wire.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.apis.describe_cluster import DescribeClusterRequest
from ottla.wire.apis.describe_log_dirs import DescribeLogDirsRequest
from ottla.wire.apis.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.apis.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.wire.apis.describe_topic_partitions import TopicRequest as PartitionsOf
from ottla.wire.apis.describe_transactions import DescribeTransactionsRequest
from ottla.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.apis.find_coordinator import FindCoordinatorRequest
from ottla.wire.apis.init_producer_id import InitProducerIdRequest
from ottla.wire.apis.list_groups import ListGroupsRequest
from ottla.wire.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.apis.list_transactions import ListTransactionsRequest
from ottla.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.apis.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from ottla.wire.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.wire.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.apis.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.unit.broker.running_broker import RunningBroker, running_broker
from tests.waiting import repeat_until

TOPIC, GROUP, CLUSTER, TRANSACTION = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
ALL = Operation.ALL
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Guarded:
    """A broker with topics `mine` and `other`, and rules that each test chooses."""

    def __init__(self, running: RunningBroker, authorizer: TableAuthorizer) -> None:
        self.running = running
        self.ask = running.ask
        self._authorizer = authorizer

    def allow(self, *allowed: tuple[Operation, ResourceType, str]) -> None:
        self._authorizer.replace([Rule(AclPermission.ALLOW, *each) for each in allowed])

    def allow_everything(self) -> None:
        self.allow(*((ALL, kind, "*") for kind in (TOPIC, GROUP, CLUSTER, TRANSACTION)))

    def topic_id(self, name: str) -> Uuid:
        return self.running.broker.image.topics[name].topic_id

    def make_topic(self, name: str) -> None:
        topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1)
        assert self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics[0].error_code == 0


@pytest.fixture(scope="module")
def _guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    authorizer = TableAuthorizer([])
    settings = {"offsets_topic_num_partitions": 1, "transaction_state_log_num_partitions": 1}
    data = tmp_path_factory.mktemp("broker") / "data"
    with running_broker(data, AccessRules(authorizer), **settings) as running:
        guarded = Guarded(running, authorizer)
        guarded.allow_everything()
        for kind in (0, 1):
            find = FindCoordinatorRequest(coordinator_keys=["x"], key_type=kind)
            repeat_until(lambda find=find: running.ask(find).coordinators[0].error_code == 0)  # type: ignore[misc]
        for name in ("mine", "other"):
            guarded.make_topic(name)
        yield guarded


@pytest.fixture
def guarded(_guarded: Guarded) -> Guarded:
    _guarded.allow_everything()
    return _guarded


# Offsets of groups


def commit(guarded: Guarded, *topics: str, group: str = "g") -> dict[str, int]:
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="m")]
    asked = [OffsetCommitRequestTopic(name=name, partitions=partitions) for name in topics]
    answer = guarded.ask(OffsetCommitRequest(group_id=group, topics=asked))
    return {topic.name: part.error_code for topic in answer.topics for part in topic.partitions}


def test_offsets_of_the_other_topics_are_committed(guarded: Guarded) -> None:
    guarded.allow((Operation.READ, GROUP, "g"), (Operation.READ, TOPIC, "mine"))
    assert commit(guarded, "other", "mine") == {"mine": 0, "other": REFUSED}
    assert commit(guarded, "other") == {"other": REFUSED}
    assert commit(guarded, "mine", group="theirs") == {"mine": ErrorCode.GROUP_AUTHORIZATION_FAILED}


def test_offsets_are_shown_of_topics_the_client_may_know(guarded: Guarded) -> None:
    assert commit(guarded, "mine", "other") == {"mine": 0, "other": 0}
    guarded.allow((Operation.DESCRIBE, GROUP, "g"), (Operation.DESCRIBE, TOPIC, "mine"))

    def shown(topics: list[str] | None) -> list[tuple[object, ...]]:
        asked = None if topics is None else [OffsetFetchRequestTopics(name=t, partition_indexes=[0]) for t in topics]
        (group,) = guarded.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=asked)])).groups
        return [
            (topic.name, part.partition_index, part.committed_offset, part.metadata, part.error_code)
            for topic in group.topics
            for part in topic.partitions
        ]

    assert shown(["other", "mine"]) == [("other", 0, -1, "", REFUSED), ("mine", 0, 5, "m", 0)]
    assert shown(None) == [("mine", 0, 5, "m", 0)]


@pytest.mark.parametrize(("version", "at_the_top", "in_partitions"), [(1, False, True), (2, True, False)])
def test_a_refused_group_is_told_where_the_version_has_room(
    guarded: Guarded, version: int, at_the_top: bool, in_partitions: bool
) -> None:
    guarded.allow((Operation.DESCRIBE, TOPIC, "*"))
    asked = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="mine", partition_indexes=[1])])
    answer = guarded.ask(asked, version)
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert answer.error_code == (code if at_the_top else 0)
    told = [(p.partition_index, p.committed_offset, p.error_code) for t in answer.topics for p in t.partitions]
    assert told == ([(1, -1, code)] if in_partitions else [])


def test_offsets_of_the_other_topics_are_deleted(guarded: Guarded) -> None:
    assert commit(guarded, "mine", "other") == {"mine": 0, "other": 0}
    guarded.allow((Operation.DELETE, GROUP, "*"), (Operation.READ, TOPIC, "mine"))
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    asked = [OffsetDeleteRequestTopic(name=name, partitions=partitions) for name in ("other", "mine")]

    def deleted(group: str) -> tuple[int, dict[str, list[tuple[int, int]]]]:
        answer = guarded.ask(OffsetDeleteRequest(group_id=group, topics=asked))
        found = {t.name: [(p.partition_index, p.error_code) for p in t.partitions] for t in answer.topics}
        return answer.error_code, found

    assert deleted("g") == (0, {"mine": [(0, 0)], "other": [(0, REFUSED)]})
    assert deleted("nobody") == (ErrorCode.GROUP_ID_NOT_FOUND, {})


def test_offsets_in_a_transaction(guarded: Guarded) -> None:
    """Refused topics are told so, whatever becomes of the others."""
    partitions = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)]

    def committed(*topics: str, group: str = "g", transaction: str = "tx") -> dict[str, int]:
        asked = [TxnOffsetCommitRequestTopic(name=name, partitions=partitions) for name in topics]
        request = TxnOffsetCommitRequest(
            transactional_id=transaction, group_id=group, producer_id=1, producer_epoch=0, topics=asked
        )
        return {t.name: p.error_code for t in guarded.ask(request).topics for p in t.partitions}

    guarded.allow((ALL, GROUP, "g"), (ALL, GROUP, ""), (ALL, TRANSACTION, "tx"), (Operation.READ, TOPIC, "mine"))
    unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert committed("other") == {"other": REFUSED}
    assert committed("other", "mine") == {"mine": unknown, "other": REFUSED}
    assert committed("mine", group="theirs") == {"mine": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    assert committed("mine", transaction="theirs") == {"mine": ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    assert committed("mine", group="") == {"mine": ErrorCode.INVALID_GROUP_ID}


# Lists


def test_lists_have_what_the_client_may_know(guarded: Guarded) -> None:
    for group in ("g", "h"):
        commit(guarded, "mine", group=group)
    for name in ("tx", "ty"):
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        assert guarded.ask(request).error_code == 0

    def groups() -> list[str]:
        return [group.group_id for group in guarded.ask(ListGroupsRequest()).groups]

    def transactions() -> set[str]:
        return {state.transactional_id for state in guarded.ask(ListTransactionsRequest()).transaction_states}

    guarded.allow((Operation.DESCRIBE, GROUP, "h"), (Operation.DESCRIBE, TRANSACTION, "ty"))
    assert (groups(), transactions()) == (["h"], {"ty"})
    guarded.allow((Operation.DESCRIBE, CLUSTER, "*"))
    assert {"g", "h"} <= set(groups()) and transactions() == set()
    assert groups() == sorted(groups())


def test_partitions_of_a_transaction_are_shown_to_who_may_know_the_topics(guarded: Guarded) -> None:
    made = guarded.ask(InitProducerIdRequest(transactional_id="shown", transaction_timeout_ms=60_000))
    topics = [AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in ("mine", "other")]

    def added() -> list[tuple[str, int]]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="shown",
            v3_and_below_producer_id=made.producer_id,
            v3_and_below_producer_epoch=made.producer_epoch,
            v3_and_below_topics=topics,
        )
        answers = guarded.ask(request, 3).results_by_topic_v3_and_below
        return [(t.name, p.partition_error_code) for t in answers for p in t.results_by_partition]

    guarded.allow((ALL, TRANSACTION, "*"), (Operation.WRITE, TOPIC, "mine"))
    assert added() == [("mine", ErrorCode.OPERATION_NOT_ATTEMPTED), ("other", REFUSED)]
    guarded.allow_everything()
    assert added() == [("mine", 0), ("other", 0)]
    guarded.allow((Operation.DESCRIBE, TRANSACTION, "*"), (Operation.DESCRIBE, TOPIC, "mine"))
    (state,) = guarded.ask(DescribeTransactionsRequest(transactional_ids=["shown"])).transaction_states
    assert [topic.topic for topic in state.topics] == ["mine"]
    guarded.allow()
    assert [t for _, t in added()] == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2


def test_nobody_writes_to_the_broker_s_own_topics_in_a_transaction(guarded: Guarded) -> None:
    made = guarded.ask(InitProducerIdRequest(transactional_id="own", transaction_timeout_ms=60_000))
    asked = [
        AddPartitionsToTxnTopic(name=name, partitions=[0])
        for name in ("mine", "nowhere", "__consumer_offsets", "__transaction_state")
    ]
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="own",
        v3_and_below_producer_id=made.producer_id,
        v3_and_below_producer_epoch=made.producer_epoch,
        v3_and_below_topics=asked,
    )
    answers = guarded.ask(request, 3).results_by_topic_v3_and_below
    assert [p.partition_error_code for t in answers for p in t.results_by_partition] == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        REFUSED,
        REFUSED,
    ]


# Topics


def test_topics_are_made_by_who_may_and_their_settings_shown_to_who_may_see_them(guarded: Guarded) -> None:
    def made(name: str) -> tuple[object, ...]:
        topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1)
        (answer,) = guarded.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics
        return answer.error_code, answer.topic_config_error_code, answer.num_partitions, answer.configs is None

    guarded.allow((Operation.CREATE, TOPIC, "new-1"))
    assert made("new-2")[0] == REFUSED
    assert made("new-1") == (0, REFUSED, -1, True)
    guarded.allow((Operation.CREATE, CLUSTER, "*"), (Operation.DESCRIBE_CONFIGS, TOPIC, "new-2"))
    assert made("new-2") == (0, 0, 2, False)


@pytest.mark.parametrize(
    ("allowed", "code", "is_named"),
    [
        ([], REFUSED, False),
        ([(Operation.DESCRIBE, TOPIC)], REFUSED, True),
        ([(Operation.DELETE, TOPIC)], ErrorCode.NONE, True),
        ([(Operation.DELETE, CLUSTER)], ErrorCode.NONE, True),
    ],
)
@pytest.mark.parametrize("by_id", [False, True])
def test_who_may_delete_a_topic(
    guarded: Guarded,
    allowed: list[tuple[Operation, ResourceType]],
    code: ErrorCode,
    is_named: bool,
    by_id: bool,
) -> None:
    """Who may not know of it does not learn its name by its id."""
    name = "short-lived"
    if name not in guarded.running.broker.image.topics:
        guarded.make_topic(name)
    topic_id = guarded.topic_id(name)
    guarded.allow(*((operation, kind, "*") for operation, kind in allowed))
    asked = DeleteTopicState(name=None, topic_id=topic_id) if by_id else DeleteTopicState(name=name)
    (answer,) = guarded.ask(DeleteTopicsRequest(topics=[asked], timeout_ms=10_000)).responses
    assert answer.error_code == code
    assert answer.name == (name if is_named or not by_id else None)
    assert answer.topic_id == (topic_id if by_id or not code else NIL_UUID)
    assert (name in guarded.running.broker.image.topics) is bool(code)


def test_whether_there_is_a_topic_to_delete_is_told_to_who_may_know(guarded: Guarded) -> None:
    def code() -> int:
        asked = [DeleteTopicState(name="nowhere")]
        (answer,) = guarded.ask(DeleteTopicsRequest(topics=asked, timeout_ms=10_000)).responses
        return int(answer.error_code)

    guarded.allow((Operation.DESCRIBE, TOPIC, "nowhere"))
    assert code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    guarded.allow()
    assert code() == REFUSED


def test_metadata_names_no_topic_that_the_client_may_not_know(guarded: Guarded) -> None:
    guarded.allow((Operation.DESCRIBE, TOPIC, "mine"))
    asked = [
        MetadataRequestTopic(name="other"),
        MetadataRequestTopic(name=None, topic_id=guarded.topic_id("other")),
        MetadataRequestTopic(name=None, topic_id=guarded.topic_id("mine")),
        MetadataRequestTopic(name="unmade"),
    ]
    answers = guarded.ask(MetadataRequest(topics=asked)).topics
    assert [(found.name, found.error_code, found.topic_id) for found in answers] == [
        ("other", REFUSED, NIL_UUID),
        (None, REFUSED, guarded.topic_id("other")),
        ("mine", 0, guarded.topic_id("mine")),
        ("unmade", REFUSED, NIL_UUID),
    ]
    assert [found.name for found in guarded.ask(MetadataRequest(topics=None)).topics] == ["mine"]


@pytest.mark.parametrize(
    ("allowed", "is_made"),
    [
        ([(Operation.DESCRIBE, TOPIC)], False),
        ([(Operation.DESCRIBE, TOPIC), (Operation.CREATE, TOPIC)], True),
        ([(Operation.DESCRIBE, TOPIC), (Operation.CREATE, CLUSTER)], True),
        ([(Operation.CREATE, CLUSTER)], False),
    ],
)
def test_who_has_a_missing_topic_made(
    guarded: Guarded, allowed: list[tuple[Operation, ResourceType]], is_made: bool
) -> None:
    name = f"made-for-{len(allowed)}-{allowed[-1][1].name}"
    guarded.allow(*((operation, kind, "*") for operation, kind in allowed))
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    (found,) = guarded.ask(request).topics
    assert found.error_code == (0 if is_made else REFUSED)
    assert (name in guarded.running.broker.image.topics) is is_made


def test_pages_of_partitions_leave_out_what_nobody_named(guarded: Guarded) -> None:
    guarded.allow((Operation.DESCRIBE, TOPIC, "mine"))

    def shown(*names: str) -> list[tuple[str, int, int]]:
        request = DescribeTopicPartitionsRequest(
            topics=[PartitionsOf(name=name) for name in names], response_partition_limit=100
        )
        return [(t.name, t.error_code, len(t.partitions)) for t in guarded.ask(request).topics]

    assert shown() == [("mine", 0, 2)]
    assert shown("other", "mine") == [("mine", 0, 2), ("other", REFUSED, 0)]


def test_what_a_client_may_do_with_the_cluster_is_told_to_who_may_describe_it(guarded: Guarded) -> None:
    def told(asked: bool) -> tuple[int, int]:
        one = guarded.ask(DescribeClusterRequest(include_cluster_authorized_operations=asked))
        other = guarded.ask(MetadataRequest(topics=[], include_cluster_authorized_operations=asked), 8)
        return one.cluster_authorized_operations, other.cluster_authorized_operations

    guarded.allow((Operation.DESCRIBE, CLUSTER, "*"), (Operation.ALTER, CLUSTER, "*"))
    mine = 1 << Operation.DESCRIBE | 1 << Operation.ALTER
    assert told(True) == (mine, mine)
    assert told(False) == (NOT_REQUESTED, NOT_REQUESTED)
    guarded.allow((Operation.CREATE, CLUSTER, "*"))
    assert told(True) == (0, 0)


# Partitions


def list_offsets(topic: str) -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=partitions)])


def delete_records(topic: str) -> DeleteRecordsRequest:
    partitions = [DeleteRecordsPartition(partition_index=0, offset=-1)]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=5000)


def producers(topic: str) -> DescribeProducersRequest:
    return DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])


def epoch_ends(topic: str) -> OffsetForLeaderEpochRequest:
    partitions = [OffsetForLeaderPartition(partition=0, leader_epoch=0)]
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=partitions)])


@pytest.mark.parametrize(
    ("request_of", "operation"),
    [
        (list_offsets, Operation.DESCRIBE),
        (delete_records, Operation.DELETE),
        (producers, Operation.READ),
        (epoch_ends, Operation.DESCRIBE),
    ],
)
def test_partitions_of_topics_the_client_may_not_touch(guarded: Guarded, request_of: Any, operation: Operation) -> None:
    def code(topic: str) -> int:
        (found,) = guarded.ask(request_of(topic)).topics
        return int(found.partitions[0].error_code)

    guarded.allow((operation, TOPIC, "mine"), (operation, TOPIC, "nowhere"))
    assert [code(name) for name in ("mine", "other", "nowhere")] == [0, REFUSED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_followers_see_the_ends_of_epochs_of_every_topic(guarded: Guarded) -> None:
    guarded.allow((Operation.CLUSTER_ACTION, CLUSTER, "*"))
    (found,) = guarded.ask(epoch_ends("other")).topics
    assert found.partitions[0].error_code == 0


@pytest.mark.parametrize(
    ("replica", "allowed", "code"),
    [
        (-1, (Operation.READ, TOPIC, "mine"), ErrorCode.NONE),
        (-1, (Operation.CLUSTER_ACTION, CLUSTER, "*"), REFUSED),
        (9, (Operation.READ, TOPIC, "mine"), REFUSED),
        (9, (Operation.CLUSTER_ACTION, CLUSTER, "*"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_clients_read_topics_and_followers_the_cluster(
    guarded: Guarded, replica: int, allowed: tuple[Operation, ResourceType, str], code: ErrorCode
) -> None:
    guarded.allow(allowed)
    partitions = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
    request = FetchRequest(
        replica_id=replica, max_wait_ms=0, session_epoch=-1, topics=[FetchTopic(topic="mine", partitions=partitions)]
    )
    (topic,) = guarded.ask(request, 12).responses
    assert topic.partitions[0].error_code == code


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        (Operation.CLUSTER_ACTION, ErrorCode.NONE),
        (Operation.ALTER, ErrorCode.NONE),
        (Operation.DESCRIBE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
def test_markers_are_written_by_brokers_and_administrators(
    guarded: Guarded, operation: Operation, code: ErrorCode
) -> None:
    guarded.allow((operation, CLUSTER, "*"))
    topics = [
        WritableTxnMarkerTopic(name="mine", partition_indexes=[1, 0]),
        WritableTxnMarkerTopic(name="nowhere", partition_indexes=[0]),
    ]
    marker = WritableTxnMarker(
        producer_id=77, producer_epoch=0, transaction_result=False, topics=topics, coordinator_epoch=0
    )
    (answer,) = guarded.ask(WriteTxnMarkersRequest(markers=[marker])).markers
    assert answer.producer_id == 77
    missing = code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [(t.name, [(p.partition_index, p.error_code) for p in t.partitions]) for t in answer.topics] == [
        ("mine", [(1, code), (0, code)]),
        ("nowhere", [(0, missing)]),
    ]


# Everything else


@pytest.mark.parametrize(
    ("allowed", "code"),
    [
        ((Operation.IDEMPOTENT_WRITE, CLUSTER, "*"), ErrorCode.NONE),
        ((Operation.WRITE, TOPIC, "any"), ErrorCode.NONE),
        ((Operation.READ, TOPIC, "any"), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
def test_who_gets_a_producer_id(
    guarded: Guarded, allowed: tuple[Operation, ResourceType, str], code: ErrorCode
) -> None:
    guarded.allow(allowed)
    assert guarded.ask(InitProducerIdRequest(transactional_id=None)).error_code == code


def test_a_transactional_id_has_a_name(guarded: Guarded) -> None:
    request = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000)
    assert guarded.ask(request).error_code == ErrorCode.INVALID_REQUEST


def test_moves_of_partitions_are_asked_for_by_who_may_alter_the_cluster(guarded: Guarded) -> None:
    guarded.allow((Operation.DESCRIBE, CLUSTER, "*"))
    asked = [ReassignableTopic(name="mine", partitions=[ReassignablePartition(partition_index=1, replicas=[9])])]
    answer = guarded.ask(AlterPartitionReassignmentsRequest(topics=asked, timeout_ms=1000))
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert (answer.error_code, bool(answer.error_message)) == (refused, True)
    assert [(t.name, [(p.partition_index, p.error_code) for p in t.partitions]) for t in answer.responses] == [
        ("mine", [(1, refused)])
    ]


def test_log_directories_are_shown_to_who_may_describe_the_cluster(guarded: Guarded) -> None:
    guarded.allow((Operation.DESCRIBE, TOPIC, "*"))
    answer = guarded.ask(DescribeLogDirsRequest(topics=None))
    assert (answer.error_code, answer.results) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


@pytest.mark.parametrize("version", [3, 11, 12])
@pytest.mark.parametrize("may", [False, True])
def test_records_in_a_transaction_need_the_right_to_its_id(guarded: Guarded, version: int, may: bool) -> None:
    allowed = [(ALL, TOPIC, "mine"), *([(Operation.WRITE, TRANSACTION, "x")] if may else [])]
    guarded.allow(*allowed)
    records = build_batch([NewRecord(None, b"v", (), 1_700_000_000_000)])
    data = [
        TopicProduceData(
            name=name, partition_data=[PartitionProduceData(index=index, records=records) for index in (0, 1)]
        )
        for name in ("mine", "other")
    ]
    request = ProduceRequest(transactional_id="x", acks=1, timeout_ms=1000, topic_data=data)
    answer = guarded.ask(request, version)
    codes = {topic.name: [part.error_code for part in topic.partition_responses] for topic in answer.responses}
    missing = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert codes == {
        "mine": [ErrorCode.NONE if may else missing] * 2,
        "other": [REFUSED if may else missing] * 2,
    }
