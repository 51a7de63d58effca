"""What brokers of a cluster ask each other about transactions, and what they make of the answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition, Uuid
from ottla.broker.controller.alter_partition import alter_partition
from ottla.broker.coordinators.markers import Marker
from ottla.broker.coordinators.peers import TransactionPeers
from ottla.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from ottla.wire.apis.alter_partition import (
    AlterPartitionBrokerState,
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
)
from ottla.wire.apis.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from tests.waiting import run_async

E = ErrorCode
STATE, A, B, C = (TopicPartition(*each) for each in (("__transaction_state", 7), ("t", 0), ("t", 2), ("u", 1)))
TIMEOUT_MS = 1234


class World:
    """Brokers 1 (this one) and 2, which leads all partitions that have a leader."""

    def __init__(self, answer: Any, leader: int | None = 2) -> None:
        self.asked: list[tuple[int, Any]] = []
        self._answer = answer
        live = None if leader is None else SimpleNamespace(broker_id=leader)
        image: Any = SimpleNamespace(live_leader=lambda tp: live)
        asking: Any = SimpleNamespace(request=self._request)
        self.peers = TransactionPeers(1, image, asking, timeout_ms=TIMEOUT_MS)

    async def _request(self, broker_id: int, request: Any, response: Any, *, work: str, timeout_ms: int) -> Any:
        self.asked.append((broker_id, request))
        assert timeout_ms == TIMEOUT_MS
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.mark.parametrize(("leader", "elsewhere"), [(1, False), (2, True), (None, False)])
def test_who_leads_elsewhere(leader: int | None, elsewhere: bool) -> None:
    assert World(None, leader).peers.leads_elsewhere(A) is elsewhere


def added(**codes: int) -> AddPartitionsToTxnResponse:
    results = [
        AddPartitionsToTxnPartitionResult(partition_index=int(index[1:]), partition_error_code=code)
        for index, code in codes.items()
    ]
    topics = [AddPartitionsToTxnTopicResult(name="t", results_by_partition=results)]
    return AddPartitionsToTxnResponse(
        results_by_transaction=[AddPartitionsToTxnResult(transactional_id="x", topic_results=topics)]
    )


@pytest.mark.parametrize("verify_only", [True, False])
@pytest.mark.parametrize(
    ("answer", "leader", "expected"),
    [
        (
            added(p0=0, p2=E.TRANSACTION_ABORTABLE),
            2,
            {A: E.NONE, B: E.TRANSACTION_ABORTABLE, C: E.COORDINATOR_NOT_AVAILABLE},
        ),
        (
            AddPartitionsToTxnResponse(error_code=E.CLUSTER_AUTHORIZATION_FAILED),
            2,
            dict.fromkeys((A, B, C), E.CLUSTER_AUTHORIZATION_FAILED),
        ),
        (KafkaError(code=E.NETWORK_EXCEPTION), 2, dict.fromkeys((A, B, C), E.COORDINATOR_NOT_AVAILABLE)),
        (None, None, dict.fromkeys((A, B, C), E.COORDINATOR_NOT_AVAILABLE)),
    ],
)
def test_partitions_are_added_or_verified_by_the_coordinator(
    answer: Any, leader: int | None, expected: dict[TopicPartition, ErrorCode], verify_only: bool
) -> None:
    world = World(answer, leader)
    found = run_async(world.peers.add_partitions(STATE, "x", 9, 3, [A, C, B], verify_only=verify_only))
    assert found == expected
    for broker_id, request in world.asked:
        (transaction,) = request.transactions
        assert (broker_id, transaction.transactional_id, transaction.verify_only) == (2, "x", verify_only)
        assert (transaction.producer_id, transaction.producer_epoch) == (9, 3)
        assert [(topic.name, topic.partitions) for topic in transaction.topics] == [("t", [0, 2]), ("u", [1])]
    assert len(world.asked) == (0 if leader is None else 1)


def marked(code: int) -> WriteTxnMarkersResponse:
    partition = WritableTxnMarkerPartitionResult(partition_index=0, error_code=code)
    topics = [WritableTxnMarkerTopicResult(name="t", partitions=[partition])]
    return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=9, topics=topics)])


@pytest.mark.parametrize(
    ("answer", "leader", "code"),
    [
        (marked(0), 2, None),
        (marked(E.NOT_LEADER_OR_FOLLOWER), 2, E.NOT_LEADER_OR_FOLLOWER),
        # It is there, and led by somebody, who is asked next.
        (marked(E.UNKNOWN_TOPIC_OR_PARTITION), 2, E.NOT_LEADER_OR_FOLLOWER),
        (marked(E.TRANSACTION_COORDINATOR_FENCED), 2, E.TRANSACTION_COORDINATOR_FENCED),
        (KafkaError(code=E.NETWORK_EXCEPTION), 2, E.NETWORK_EXCEPTION),
        (None, None, E.LEADER_NOT_AVAILABLE),
    ],
)
def test_a_marker_is_written_by_the_leader_or_it_is_said_why_not(
    answer: Any, leader: int | None, code: ErrorCode | None
) -> None:
    world = World(answer, leader)
    marker = Marker(producer_id=9, producer_epoch=3, commit=True, coordinator_epoch=6)
    if code is None:
        run_async(world.peers.write_marker(A, marker))
        ((broker_id, request),) = world.asked
        (written,) = request.markers
        assert (broker_id, written.producer_id, written.producer_epoch) == (2, 9, 3)
        assert (written.transaction_result, written.coordinator_epoch) == (True, 6)
        assert [(topic.name, topic.partition_indexes) for topic in written.topics] == [("t", [0])]
    else:
        with pytest.raises(KafkaError) as refusal:
            run_async(world.peers.write_marker(A, marker))
        assert refusal.value.code is code


ID, UNKNOWN_ID = Uuid(bytes(15) + b"\x01"), Uuid(bytes(15) + b"\x02")


def test_the_controller_answers_for_each_partition_whose_isr_was_asked_for() -> None:
    states = {
        A: SimpleNamespace(leader=1, leader_epoch=5, isr=(1, 2), partition_epoch=8),
        B: SimpleNamespace(leader=1, leader_epoch=5, isr=(1,), partition_epoch=3),
    }
    events: list[Any] = []

    async def submit(event: Any) -> dict[TopicPartition, ErrorCode]:
        events.append(event)
        return {A: E.NONE, B: E.INVALID_UPDATE_VERSION, TopicPartition("t", 5): E.NONE}

    state = SimpleNamespace(topics={"t": SimpleNamespace(topic_id=ID)}, partition=states.get)
    controller: Any = SimpleNamespace(require_active=lambda: None, state=state, submit=submit)
    asked = [
        AlterPartitionRequestPartition(partition_index=0, leader_epoch=5, partition_epoch=7, new_isr=[1, 2]),
        AlterPartitionRequestPartition(
            partition_index=2, new_isr_with_epochs=[AlterPartitionBrokerState(broker_id=1, broker_epoch=40)]
        ),
        AlterPartitionRequestPartition(partition_index=5),
    ]
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=33,
        topics=[
            AlterPartitionRequestTopic(topic_id=ID, partitions=asked),
            AlterPartitionRequestTopic(topic_id=UNKNOWN_ID, partitions=asked[:1]),
        ],
    )
    response = run_async(alter_partition(controller, request))
    known, unknown = response.topics
    assert [(one.partition_index, one.error_code) for one in known.partitions] == [
        (0, E.NONE),
        (2, E.INVALID_UPDATE_VERSION),
        (5, E.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    fine = known.partitions[0]
    assert (fine.leader_id, fine.leader_epoch, fine.isr, fine.partition_epoch) == (1, 5, [1, 2], 8)
    assert (unknown.topic_id, [one.error_code for one in unknown.partitions]) == (UNKNOWN_ID, [E.UNKNOWN_TOPIC_ID])
    (event,) = events
    assert (event.broker_id, event.broker_epoch) == (1, 33)
    first, second, _ = event.proposals
    assert (first.tp, first.leader_epoch, first.partition_epoch, first.isr) == (A, 5, 7, (1, 2))
    assert (second.tp, second.isr, second.broker_epochs) == (B, (1,), {1: 40})


def test_who_is_not_the_controller_says_so() -> None:
    def refuse() -> None:
        raise KafkaError(code=E.NOT_CONTROLLER)

    controller: Any = SimpleNamespace(require_active=refuse)
    assert run_async(alter_partition(controller, AlterPartitionRequest())).error_code == E.NOT_CONTROLLER
