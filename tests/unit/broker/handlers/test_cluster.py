"""What is told of the cluster: its brokers, moves of partitions, coordinators, pages of partitions, producer ids."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, ProtocolError
from ottla.base.types import TopicPartition
from ottla.broker.coordinators.producer_ids import BLOCK_SIZE
from ottla.broker.dispatch import Dispatch
from ottla.broker.handlers import BETWEEN_BROKERS, all_handlers, client_handlers
from ottla.machines.cluster.image import NO_LEADER, BrokerImage
from ottla.wire.api_keys import ApiKey
from ottla.wire.apis.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.wire.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.apis.controlled_shutdown import ControlledShutdownRequest
from ottla.wire.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.apis.describe_cluster import DescribeClusterRequest
from ottla.wire.apis.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from ottla.wire.apis.find_coordinator import FindCoordinatorRequest
from ottla.wire.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from ottla.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.header import encode_request_frame
from tests.log_lines import messages_of
from tests.unit.broker.local_connection import connected
from tests.unit.broker.running_broker import RunningBroker, running_broker
from tests.waiting import repeat_until

OTHER = 999
MISSING = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    settings = {"max_request_partition_size_limit": 5, "offsets_topic_num_partitions": 1, "broker_rack": "here"}
    with running_broker(tmp_path_factory.mktemp("broker") / "data", **settings) as running:
        for name in ("a", "b"):
            topic = CreatableTopic(name=name, num_partitions=3, replication_factor=1)
            assert running.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics[0].error_code == 0
        yield running


@pytest.fixture
def neighbour(broker: RunningBroker) -> Iterator[BrokerImage]:
    """Another broker, which is only on a listener that clients of this one do not know."""
    image = broker.broker.image
    (endpoint,) = image.brokers[broker.broker.broker_id].endpoints
    image.brokers[OTHER] = BrokerImage(OTHER, (endpoint._replace(listener="INSIDE"),), None)
    image.generation += 1
    yield image.brokers[OTHER]
    del image.brokers[OTHER]
    image.generation += 1


# Brokers


def test_brokers_are_named_to_those_who_can_reach_them(broker: RunningBroker, neighbour: BrokerImage) -> None:
    own = broker.broker.image.brokers[broker.broker.broker_id]
    (endpoint,) = own.endpoints
    cluster = broker.ask(DescribeClusterRequest())
    assert (cluster.error_code, cluster.cluster_id) == (0, broker.broker.image.cluster_id)
    assert cluster.controller_id == own.broker_id
    metadata = broker.ask(MetadataRequest(topics=[]))
    assert (metadata.cluster_id, metadata.controller_id) == (cluster.cluster_id, own.broker_id)
    expected = [(own.broker_id, endpoint.host, endpoint.port, "here")]
    assert [(each.broker_id, each.host, each.port, each.rack) for each in cluster.brokers] == expected
    assert [(each.node_id, each.host, each.port, each.rack) for each in metadata.brokers] == expected


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [
        (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (1, ErrorCode.NONE),
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_there_are_endpoints_of_brokers_only(broker: RunningBroker, endpoint_type: int, code: ErrorCode) -> None:
    assert broker.ask(DescribeClusterRequest(endpoint_type=endpoint_type)).error_code == code


@pytest.mark.parametrize(
    ("leader", "version", "code", "named"),
    [
        (OTHER, 5, ErrorCode.LEADER_NOT_AVAILABLE, OTHER),
        (OTHER, 6, ErrorCode.LISTENER_NOT_FOUND, OTHER),
        (OTHER + 1, 6, ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER),
        (NO_LEADER, 13, ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER),
    ],
)
def test_a_leader_that_cannot_be_reached(
    broker: RunningBroker, neighbour: BrokerImage, leader: int, version: int, code: ErrorCode, named: int
) -> None:
    image = broker.broker.image
    partitions = image.topics["a"].partitions
    before = partitions[1]
    partitions[1] = before._replace(leader=leader, leader_epoch=7, offline=(before.leader,))
    image.generation += 1
    try:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="a")], allow_auto_topic_creation=False)
        (topic,) = broker.ask(asked, version).topics
        (described,) = broker.ask(pages_of("a")).topics
    finally:
        partitions[1] = before
        image.generation += 1
    assert [part.error_code for part in topic.partitions] == [0, code, 0]
    shown = next(part for part in topic.partitions if part.partition_index == 1)
    assert (shown.leader_id, shown.offline_replicas) == (named, [before.leader])
    page = described.partitions[1]
    assert (page.error_code == ErrorCode.LISTENER_NOT_FOUND) is (leader == OTHER)
    assert (page.leader_id, page.leader_epoch, page.offline_replicas) == (named, 7, [before.leader])
    assert (page.replica_nodes, page.isr_nodes) == (list(before.replicas), list(before.isr))


def test_the_broker_s_own_topics_are_called_internal(broker: RunningBroker) -> None:
    find = FindCoordinatorRequest(coordinator_keys=["g"], key_type=0)
    repeat_until(lambda: broker.ask(find).coordinators[0].error_code == 0)
    names = "a", "__consumer_offsets", "__transaction_state"
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=n) for n in names], allow_auto_topic_creation=False)
    assert [(t.name, t.is_internal, t.error_code) for t in broker.ask(asked).topics] == [
        ("a", False, 0),
        ("__consumer_offsets", True, 0),
        ("__transaction_state", True, MISSING),
    ]
    assert [topic.is_internal for topic in broker.ask(pages_of("a", "__consumer_offsets")).topics] == [True, False]


# Pages of partitions


def pages_of(*names: str, limit: int = 100, cursor: tuple[str, int] | None = None) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


@pytest.mark.parametrize(
    ("limit", "cursor", "shown", "following"),
    [
        (2, None, {"a": [0, 1]}, ("a", 2)),
        (3, None, {"a": [0, 1, 2]}, ("b", 0)),
        (4, None, {"a": [0, 1, 2], "b": [0]}, ("b", 1)),
        (5, None, {"a": [0, 1, 2], "b": [0, 1]}, ("b", 2)),
        (6, None, {"a": [0, 1, 2], "b": [0, 1]}, ("b", 2)),
        (6, ("a", 0), {"a": [0, 1, 2], "b": [0, 1]}, ("b", 2)),
        (5, ("a", 1), {"a": [1, 2], "b": [0, 1, 2]}, None),
        (5, ("a", 2), {"a": [2], "b": [0, 1, 2]}, None),
        (5, ("a", 3), {"a": [], "b": [0, 1, 2]}, None),
        (5, ("b", 1), {"b": [1, 2]}, None),
        (2, ("b", 1), {"b": [1, 2]}, None),
        (5, ("aa", 2), {"b": [0, 1, 2]}, None),
        (0, None, {}, ("a", 0)),
    ],
)
def test_a_page_ends_where_it_is_full(
    broker: RunningBroker,
    limit: int,
    cursor: tuple[str, int] | None,
    shown: dict[str, list[int]],
    following: tuple[str, int] | None,
) -> None:
    """With room for five partitions by the broker's own limit."""
    page = broker.ask(pages_of("b", "a", limit=limit, cursor=cursor))
    assert {topic.name: [part.partition_index for part in topic.partitions] for topic in page.topics} == shown
    found = page.next_cursor
    assert (None if found is None else (found.topic_name, found.partition_index)) == following


def test_a_page_says_what_is_wrong_with_a_name(broker: RunningBroker) -> None:
    page = broker.ask(pages_of("nowhere", "a/b", "a"))
    assert [(topic.name, topic.error_code) for topic in page.topics] == [
        ("a", 0),
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("nowhere", MISSING),
    ]
    assert page.topics[0].topic_authorized_operations > 0


# Topics that cannot be made


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"configs": [CreatableTopicConfig(name="retention.ms", value=None)]}, ErrorCode.INVALID_REQUEST),
        ({"configs": [CreatableTopicConfig(name="retention.ms", value="1")] * 2}, ErrorCode.INVALID_REQUEST),
        (
            {
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": [CreatableReplicaAssignment(partition_index=0, broker_ids=[0])] * 2,
            },
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
def test_topics_that_say_things_twice_or_not_at_all(
    broker: RunningBroker, fields: dict[str, Any], code: ErrorCode
) -> None:
    topic = CreatableTopic(**{"name": "odd", "num_partitions": 1, "replication_factor": 1, **fields})
    (answer,) = broker.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics
    assert (answer.error_code, answer.configs) == (code, None)


# Moves


def test_moves_are_listed_while_they_last(broker: RunningBroker) -> None:
    own = broker.broker.broker_id
    state = broker.broker.controller.state
    tp = TopicPartition("a", 1)
    before = state.partition(tp)
    assert before is not None

    def listed(asked: list[tuple[str, list[int]]] | None) -> list[tuple[object, ...]]:
        topics = (
            None
            if asked is None
            else [ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes) for name, indexes in asked]
        )
        answer = broker.ask(ListPartitionReassignmentsRequest(topics=topics, timeout_ms=1000))
        assert answer.error_code == 0
        return [
            (topic.name, part.partition_index, part.replicas, part.adding_replicas, part.removing_replicas)
            for topic in answer.topics
            for part in topic.partitions
        ]

    assert listed(None) == []
    state.topics["a"].partitions[1] = before._replace(replicas=(OTHER, own), adding=(OTHER,), removing=(own,))
    try:
        moving = [("a", 1, [OTHER, own], [OTHER], [own])]
        assert listed(None) == moving
        assert listed([("b", [1]), ("a", [0, 1, 1, 9]), ("nowhere", [1])]) == moving
        assert listed([("a", [0]), ("b", [1])]) == []
        assert listed([]) == []
    finally:
        state.topics["a"].partitions[1] = before


def test_moves_that_cannot_be_begun_are_refused_one_by_one(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    own = broker.broker.broker_id
    caplog.set_level(logging.INFO)
    asked = [
        ReassignableTopic(
            name="a",
            partitions=[
                ReassignablePartition(partition_index=index, replicas=replicas)
                for index, replicas in ((0, [own]), (1, [OTHER]), (2, None), (9, [own]), (0, [own]))
            ],
        )
    ]
    answer = broker.ask(AlterPartitionReassignmentsRequest(topics=asked, timeout_ms=1000))
    assert (answer.error_code, answer.error_message) == (0, None)
    (topic,) = answer.responses
    assert [(part.partition_index, part.error_code, bool(part.error_message)) for part in topic.partitions] == [
        (0, 0, False),
        (1, ErrorCode.INVALID_REPLICA_ASSIGNMENT, True),
        (2, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, True),
        (9, MISSING, True),
    ]
    said = [each for each in messages_of(caplog, "ottla.broker.handlers") if not each.startswith("a-0 ")]
    assert [each.split(": ")[0] for each in said] == [f"a-{index} is not moved" for index in (1, 2, 9)]
    assert f"a-0 is to have replicas [{own}]" in messages_of(caplog, "ottla.broker.handlers")


# Coordinators


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(
    ("key", "key_type", "code"),
    [
        ("g", 0, ErrorCode.NONE),
        ("", 0, ErrorCode.NONE),
        ("", 1, ErrorCode.INVALID_REQUEST),
        ("g", 2, ErrorCode.INVALID_REQUEST),
    ],
)
def test_where_a_coordinator_is(broker: RunningBroker, version: int, key: str, key_type: int, code: ErrorCode) -> None:
    keys: dict[str, Any] = {"key": key} if version == 3 else {"coordinator_keys": [key]}
    request = FindCoordinatorRequest(key_type=key_type, **keys)

    def ask() -> Any:
        answer = broker.ask(request, version)
        return answer if version == 3 else answer.coordinators[0]

    repeat_until(lambda: ask().error_code == code)
    found = ask()
    own = broker.broker.image.brokers[broker.broker.broker_id]
    where = (own.broker_id, own.endpoints[0].host, own.endpoints[0].port) if not code else (-1, "", -1)
    assert (found.node_id, found.host, found.port, bool(found.error_message)) == (*where, bool(code))


def test_a_coordinator_that_clients_cannot_reach_is_not_named(broker: RunningBroker, neighbour: BrokerImage) -> None:
    find = FindCoordinatorRequest(coordinator_keys=["g"], key_type=0)
    repeat_until(lambda: broker.ask(find).coordinators[0].error_code == 0)
    partitions = broker.broker.image.topics["__consumer_offsets"].partitions
    before = partitions[0]
    try:
        for leader in (OTHER, NO_LEADER):
            partitions[0] = before._replace(leader=leader)
            (found,) = broker.ask(find).coordinators
            assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    finally:
        partitions[0] = before


# Between brokers


def test_a_registered_broker_gets_a_block_of_producer_ids(broker: RunningBroker) -> None:
    own = broker.broker.broker_id
    epoch = broker.broker.controller.state.brokers[own].epoch

    def asked(broker_id: int, broker_epoch: int) -> tuple[int, int, int]:
        answer = broker.ask(AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch))
        return answer.error_code, answer.producer_id_start, answer.producer_id_len

    code, first, length = asked(own, epoch)
    assert (code, length) == (0, BLOCK_SIZE)
    assert asked(own, epoch) == (0, first + BLOCK_SIZE, BLOCK_SIZE)
    assert asked(OTHER, epoch)[0] == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert asked(own, epoch - 1)[0] == ErrorCode.STALE_BROKER_EPOCH


def test_a_broker_that_is_not_there_cannot_go(broker: RunningBroker) -> None:
    answer = broker.ask(ControlledShutdownRequest(broker_id=OTHER, broker_epoch=1))
    assert (answer.error_code, answer.remaining_partitions) == (ErrorCode.BROKER_NOT_AVAILABLE, [])


def test_what_only_brokers_send_is_served_to_nobody_where_there_is_one(broker: RunningBroker) -> None:
    assert set(all_handlers()) - set(client_handlers()) == BETWEEN_BROKERS
    assert set(broker.broker.handlers) == set(client_handlers())
    answer = broker.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
    assert [api.api_key for api in answer.api_keys] == sorted(client_handlers())


@pytest.mark.parametrize(
    ("name", "version", "code"),
    [
        ("a", "1", 0),
        ("librdkafka-2.a", "1.0-rc.1", 0),
        ("", "1", ErrorCode.INVALID_REQUEST),
        ("a", "", ErrorCode.INVALID_REQUEST),
        ("a-", "1", ErrorCode.INVALID_REQUEST),
        ("a", ".1", ErrorCode.INVALID_REQUEST),
        ("a b", "1", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_software_may_be_called(broker: RunningBroker, name: str, version: str, code: int) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    assert broker.ask(request, 3).error_code == code
    assert broker.ask(ApiVersionsRequest(), 2).error_code == 0


@pytest.mark.parametrize(("version", "is_known"), [(0, True), (3, True), (4, True), (5, False), (32767, False)])
def test_whoever_is_newer_is_told_in_the_oldest_version_which_versions_there_are(
    broker: RunningBroker, version: int, is_known: bool
) -> None:
    """KIP-511: the header and all after it may have a form that is not known here."""
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    frame = bytearray(encode_request_frame(request, min(version, 4), 77, "tester")[4:])
    frame[2:4] = version.to_bytes(2, "big")
    dispatch = Dispatch(broker.broker, broker.broker.handlers)
    (reply,) = dispatch.handle(connected(broker.broker), memoryview(frame))
    assert reply[4:8] == (77).to_bytes(4, "big")
    answer, end = ApiVersionsResponse.decode(memoryview(reply), version if is_known else 0, 8)
    assert end == len(reply)
    own = [(api.min_version, api.max_version) for api in answer.api_keys if api.api_key == ApiKey.API_VERSIONS]
    assert (answer.error_code, own) == (0 if is_known else ErrorCode.UNSUPPORTED_VERSION, [(0, 4)])
    assert is_known or len(answer.api_keys) == 1


@pytest.mark.parametrize(("index", "code"), [(-1, ErrorCode.INVALID_REQUEST), (0, ErrorCode.NONE)])
def test_a_page_begins_at_a_partition_that_can_be(broker: RunningBroker, index: int, code: ErrorCode) -> None:
    if code:
        with pytest.raises(ProtocolError, match="the cursor's partition is -1, which is negative"):
            broker.ask(pages_of("b", "a", cursor=("a", index)))
    else:
        assert [topic.name for topic in broker.ask(pages_of("b", "a", cursor=("a", index))).topics] == ["a", "b"]
