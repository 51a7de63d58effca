"""Transactions from the first request to the last, in versions with and without a new epoch for each (KIP-890)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.machines.transactions.shard import TransactionShard
from ottla.records.builder import build_batch
from ottla.wire.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.apis.describe_transactions import DescribeTransactionsRequest
from ottla.wire.apis.end_txn import EndTxnRequest
from ottla.wire.apis.find_coordinator import FindCoordinatorRequest
from ottla.wire.apis.init_producer_id import InitProducerIdRequest
from ottla.wire.apis.list_transactions import ListTransactionsRequest
from ottla.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.unit.broker.replica_world import change_isr
from tests.unit.broker.running_broker import RunningBroker, running_broker
from tests.waiting import repeat_until, until

_numbers = itertools.count()
LAST_WITHOUT_BUMP, FIRST_WITH_BUMP = 4, 5


SETTINGS = {"offsets_topic_num_partitions": 2, "transaction_state_log_num_partitions": 2}


def find_coordinators(broker: RunningBroker) -> None:
    for kind in (0, 1):
        find = FindCoordinatorRequest(coordinator_keys=["x"], key_type=kind)
        repeat_until(lambda find=find: broker.ask(find).coordinators[0].error_code == 0)  # type: ignore[misc]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("broker") / "data", **SETTINGS) as running:
        find_coordinators(running)
        topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
        assert running.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics[0].error_code == 0
        yield running


class Producer:
    def __init__(self, broker: RunningBroker, name: str | None = None) -> None:
        self.broker = broker
        self.name = name or f"producer-{next(_numbers)}"
        self.id, self.epoch = self.init()

    def init(self) -> tuple[int, int]:
        reply = self.broker.ask(InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000))
        assert reply.error_code == 0
        return reply.producer_id, reply.producer_epoch

    def fields(self, **others: Any) -> dict[str, Any]:
        return {"transactional_id": self.name, "producer_id": self.id, "producer_epoch": self.epoch, **others}

    def add(self, *partitions: int, topic: str = "t") -> list[int]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )
        (answer,) = self.broker.ask(request, 3).results_by_topic_v3_and_below
        return [part.partition_error_code for part in answer.results_by_partition]

    def end(self, version: int, *, committed: bool = True) -> Any:
        return self.broker.ask(EndTxnRequest(**self.fields(committed=committed)), version)

    def described(self) -> Any:
        (state,) = self.broker.ask(DescribeTransactionsRequest(transactional_ids=[self.name])).transaction_states
        return state


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_of_an_old_client_keeps_its_epoch(broker: RunningBroker, committed: bool) -> None:
    producer = Producer(broker)
    assert producer.add(0, 1) == [0, 0]
    state = producer.described()
    assert (state.transaction_state, state.producer_id, state.producer_epoch) == (
        "Ongoing",
        producer.id,
        producer.epoch,
    )
    assert [(topic.topic, sorted(topic.partitions)) for topic in state.topics] == [("t", [0, 1])]
    assert producer.end(LAST_WITHOUT_BUMP, committed=committed).error_code == 0
    wanted = "CompleteCommit" if committed else "CompleteAbort"
    repeat_until(lambda: producer.described().transaction_state == wanted, lambda: None)
    assert producer.described().producer_epoch == producer.epoch
    # Who asks again is told the same.
    assert producer.end(LAST_WITHOUT_BUMP, committed=committed).error_code == 0
    assert producer.end(LAST_WITHOUT_BUMP, committed=not committed).error_code == ErrorCode.INVALID_TXN_STATE


def test_a_transaction_of_a_new_client_ends_with_a_new_epoch(broker: RunningBroker) -> None:
    producer = Producer(broker)
    assert producer.add(0) == [0]
    reply = producer.end(FIRST_WITH_BUMP)
    assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (0, producer.id, producer.epoch + 1)


@pytest.mark.parametrize("version", [LAST_WITHOUT_BUMP, FIRST_WITH_BUMP])
def test_ids_are_not_used_up_by_ends(broker: RunningBroker, version: int) -> None:
    first = Producer(broker)
    first.add(0)
    assert first.end(version).error_code == 0
    assert Producer(broker).id == first.id + 1


def test_a_successor_fences(broker: RunningBroker) -> None:
    producer = Producer(broker)
    successor = Producer(broker, producer.name)
    assert (successor.id, successor.epoch) == (producer.id, producer.epoch + 1)
    assert producer.add(0) == [ErrorCode.PRODUCER_FENCED]
    assert producer.end(LAST_WITHOUT_BUMP).error_code == ErrorCode.PRODUCER_FENCED
    assert successor.add(0) == [0]
    assert successor.end(LAST_WITHOUT_BUMP, committed=False).error_code == 0


def test_one_partition_that_is_not_there_keeps_all_out(broker: RunningBroker) -> None:
    producer = Producer(broker)
    assert producer.add(0, 7) == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert producer.described().transaction_state == "Empty"


def test_offsets_are_part_of_a_transaction(broker: RunningBroker) -> None:
    producer = Producer(broker)
    added = broker.ask(AddOffsetsToTxnRequest(**producer.fields(group_id="g")), 3)
    assert added.error_code == 0
    entries = [TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=5) for index in (0, 7)]
    topic = TxnOffsetCommitRequestTopic(name="t", partitions=entries)
    reply = broker.ask(TxnOffsetCommitRequest(**producer.fields(group_id="g", topics=[topic])), 3)
    assert [part.error_code for part in reply.topics[0].partitions] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert [topic.topic for topic in producer.described().topics] == ["__consumer_offsets"]
    assert producer.end(LAST_WITHOUT_BUMP).error_code == 0


def test_what_became_of_offsets_is_known_after_a_restart(tmp_path: Path) -> None:
    groups = ("committed", "aborted", "open")
    with running_broker(tmp_path / "data", **SETTINGS) as broker:
        find_coordinators(broker)
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        broker.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        for group in groups:
            producer = Producer(broker)
            assert broker.ask(AddOffsetsToTxnRequest(**producer.fields(group_id=group)), 3).error_code == 0
            entry = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)
            wanted = [TxnOffsetCommitRequestTopic(name="t", partitions=[entry])]
            reply = broker.ask(TxnOffsetCommitRequest(**producer.fields(group_id=group, topics=wanted)), 3)
            assert reply.topics[0].partitions[0].error_code == 0
            if group != "open":
                assert producer.end(LAST_WITHOUT_BUMP, committed=group == "committed").error_code == 0
                repeat_until(lambda p=producer: "Complete" in p.described().transaction_state)  # type: ignore[misc]
    with running_broker(tmp_path / "data", **SETTINGS) as broker:
        find_coordinators(broker)
        found = {}
        for group in groups:
            wanted = OffsetFetchRequestGroup(
                group_id=group, topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
            )
            answer = broker.ask(OffsetFetchRequest(groups=[wanted], require_stable=True)).groups[0]
            part = answer.topics[0].partitions[0]
            found[group] = (part.error_code, part.committed_offset)
        assert found == {
            "committed": (0, 5),
            "aborted": (0, -1),
            "open": (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1),
        }


def produced(
    broker: RunningBroker, producer: Producer, epoch: int, version: int = 12, sequence: int = 0
) -> tuple[int, int]:
    """The error code and the offset of one transactional record for t-1."""
    batch = build_batch(
        [(None, b"v", (), 1000)],
        producer_id=producer.id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=1, records=batch)])
    request = ProduceRequest(transactional_id=producer.name, acks=-1, timeout_ms=10_000, topic_data=[data])
    answer = broker.ask(request, version).responses[0].partition_responses[0]
    return answer.error_code, answer.base_offset


def test_the_first_record_of_a_new_client_adds_its_partition(broker: RunningBroker) -> None:
    producer = Producer(broker)
    code, offset = produced(broker, producer, producer.epoch)
    assert (code, offset >= 0) == (0, True)
    state = producer.described()
    assert state.transaction_state == "Ongoing"
    assert [(topic.topic, topic.partitions) for topic in state.topics] == [("t", [1])]
    reply = producer.end(FIRST_WITH_BUMP)
    assert reply.error_code == 0
    assert produced(broker, producer, producer.epoch) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert producer.described().transaction_state != "Ongoing"


LAST_WITHOUT_ADDING = 11
"""From the next version on, a record adds its partition."""


def test_an_old_client_adds_a_partition_before_it_writes(broker: RunningBroker) -> None:
    producer = Producer(broker)
    refusals = {version: produced(broker, producer, producer.epoch, version) for version in (10, LAST_WITHOUT_ADDING)}
    assert refusals == {
        10: (ErrorCode.INVALID_TXN_STATE, -1),
        LAST_WITHOUT_ADDING: (ErrorCode.TRANSACTION_ABORTABLE, -1),
    }
    assert producer.add(1) == [0]
    _, first = produced(broker, producer, producer.epoch, LAST_WITHOUT_ADDING)
    assert produced(broker, producer, producer.epoch, LAST_WITHOUT_ADDING, sequence=1) == (0, first + 1)
    assert producer.end(LAST_WITHOUT_BUMP).error_code == 0


def test_a_partition_need_not_be_added_where_nobody_is_to_check(tmp_path: Path) -> None:
    settings = {**SETTINGS, "transaction_partition_verification_enable": "false"}
    with running_broker(tmp_path / "data", **settings) as broker:
        find_coordinators(broker)
        topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
        assert broker.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics[0].error_code == 0
        producer = Producer(broker)
        assert produced(broker, producer, producer.epoch, LAST_WITHOUT_ADDING) == (0, 0)


def test_transactions_are_listed_by_state_and_producer(broker: RunningBroker) -> None:
    producer = Producer(broker)
    producer.add(1)

    def listed(**filters: Any) -> set[str]:
        reply = broker.ask(ListTransactionsRequest(**filters))
        assert reply.error_code == 0
        return {state.transactional_id for state in reply.transaction_states}

    assert producer.name in listed()
    assert producer.name in listed(state_filters=["Ongoing"], producer_id_filters=[producer.id])
    assert producer.name not in listed(state_filters=["Empty"])
    assert producer.name not in listed(producer_id_filters=[producer.id + 1])
    assert producer.name not in listed(duration_filter=3_600_000)
    assert broker.ask(ListTransactionsRequest(state_filters=["Odd"])).unknown_state_filters == ["Odd"]
    assert producer.end(LAST_WITHOUT_BUMP).error_code == 0


def test_who_has_no_transaction_is_told(broker: RunningBroker) -> None:
    (state,) = broker.ask(DescribeTransactionsRequest(transactional_ids=["nobody"])).transaction_states
    assert state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    request = EndTxnRequest(transactional_id="nobody", producer_id=1, producer_epoch=0)
    assert broker.ask(request).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("timeout_ms", [0, -1, 2**31 - 1])
def test_timeouts_have_bounds(broker: RunningBroker, timeout_ms: int) -> None:
    request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=timeout_ms)
    assert broker.ask(request).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_a_producer_without_transactions_only_wants_an_id(broker: RunningBroker) -> None:
    request = InitProducerIdRequest(transactional_id=None)
    first, second = broker.ask(request), broker.ask(request)
    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert second.producer_id == first.producer_id + 1


# Where nothing can be told or verified


def test_transactions_are_not_listed_before_all_are_known(broker: RunningBroker) -> None:
    shard = broker.broker.transactions.runtime.active_shards()[0]
    vars_of: Any = shard
    vars_of.is_loaded = False
    try:
        answer = broker.ask(ListTransactionsRequest())
    finally:
        vars_of.is_loaded = True
    assert (answer.error_code, answer.transaction_states) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
    assert broker.ask(ListTransactionsRequest()).error_code == 0


@pytest.mark.parametrize(
    ("version", "needs", "used_up"),
    [(FIRST_WITH_BUMP, True, 1), (FIRST_WITH_BUMP, False, 0), (LAST_WITHOUT_BUMP, True, 0)],
)
def test_an_end_takes_a_new_id_only_where_the_epochs_are_used_up(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, version: int, needs: bool, used_up: int
) -> None:
    first = Producer(broker)
    first.add(0)
    monkeypatch.setattr(TransactionShard, "needs_producer_id", lambda shard, name: needs)
    assert first.end(version).error_code == 0
    assert Producer(broker).id == first.id + 1 + used_up


@pytest.mark.parametrize("verifies", [True, False])
def test_offsets_of_old_clients_belong_to_a_transaction_where_that_is_verified(tmp_path: Path, verifies: bool) -> None:
    settings = {**SETTINGS, "transaction_partition_verification_enable": str(verifies).lower()}
    with running_broker(tmp_path / "data", **settings) as broker:
        find_coordinators(broker)
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        assert broker.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics[0].error_code == 0
        producer = Producer(broker)
        entry = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)
        wanted = [TxnOffsetCommitRequestTopic(name="t", partitions=[entry])]
        codes = [
            broker.ask(TxnOffsetCommitRequest(**producer.fields(group_id="g", topics=wanted)), version)
            .topics[0]
            .partitions[0]
            .error_code
            for version in (4, 5)
        ]
        refused = ErrorCode.TRANSACTION_ABORTABLE
        assert codes[0] == (refused if verifies else 0)
        assert codes[1] == 0, "a newer client joins by it"


def test_the_first_record_of_a_transaction_waits_for_replicas_like_any_other(broker: RunningBroker) -> None:
    producer = Producer(broker)
    partition = broker.broker.replicas.led("t", 1)
    end_offset = partition.log.log_end_offset
    batch = build_batch(
        [(None, b"v", (), 1000)],
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=0,
        transactional=True,
    )
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=1, records=batch)])
    request = ProduceRequest(transactional_id=producer.name, acks=-1, timeout_ms=60_000, topic_data=[data])

    async def scenario() -> Any:
        change_isr(broker.broker.replicas, partition, broker.broker.broker_id, 999)
        try:
            waiting = asyncio.ensure_future(broker.answer(request, 12))
            await until(lambda: partition.log.log_end_offset > end_offset)
            await asyncio.sleep(0)
            assert not waiting.done()
        finally:
            change_isr(broker.broker.replicas, partition, broker.broker.broker_id)
        return await waiting

    (answer,) = broker.wait_for(scenario()).responses[0].partition_responses
    assert (answer.error_code, answer.base_offset) == (0, end_offset)
    assert producer.end(FIRST_WITH_BUMP).error_code == 0
