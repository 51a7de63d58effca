"""What becomes of a producer's transaction for each answer its coordinators may give."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ottla import TopicPartition, aio
from ottla.base.errors import ErrorCode
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.client.core.consumer.offset_requests import Membership
from ottla.errors import ClientError, ProducerFencedError, TransactionStateError
from ottla.wire.apis.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.wire.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.apis.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.apis.metadata import MetadataRequest, MetadataResponsePartition, MetadataResponseTopic
from ottla.wire.apis.produce import ProduceRequest
from ottla.wire.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.wire.message import Request
from tests.waiting import run_async

from .scripted_broker import ScriptedBroker
from .test_produce_order import stored

E = ErrorCode
TOPIC = "t"
FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


class World:
    """A broker that coordinates everything, and the codes it answers with, by request; without any, all is fine."""

    producer: aio.Producer

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        self.codes: dict[type[Request], list[int]] = {}
        self.added: list[list[int]] = []
        """Codes by partition."""
        self.epoch = -1
        partitions = [
            MetadataResponsePartition(partition_index=index, leader_id=1, leader_epoch=0) for index in range(2)
        ]
        topic = MetadataResponseTopic(name=TOPIC, partitions=partitions)
        broker.on(MetadataRequest, lambda _: broker.metadata(topics=[topic]))
        broker.on(FindCoordinatorRequest, self._found)
        broker.on(InitProducerIdRequest, self._initialized)
        broker.on(AddPartitionsToTxnRequest, self._partitions_added)
        broker.on(
            AddOffsetsToTxnRequest, lambda _: AddOffsetsToTxnResponse(error_code=self._code(AddOffsetsToTxnRequest))
        )
        broker.on(TxnOffsetCommitRequest, self._offsets_committed)
        broker.on(EndTxnRequest, lambda _: EndTxnResponse(error_code=self._code(EndTxnRequest)))
        broker.on(ProduceRequest, stored)

    def _code(self, kind: type[Request]) -> int:
        codes = self.codes.get(kind)
        return codes.pop(0) if codes else 0

    def _found(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        key = request.coordinator_keys[0]
        return FindCoordinatorResponse(
            coordinators=[Coordinator(key=key, node_id=1, host="127.0.0.1", port=self.broker.port)]
        )

    def _initialized(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        code = self._code(InitProducerIdRequest)
        self.epoch += not code
        return InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=self.epoch)

    def _partitions_added(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        codes = self.added.pop(0) if self.added else [0, 0]
        results = [
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=codes[index])
            for topic in request.v3_and_below_topics
            for index in topic.partitions
        ]
        topic = AddPartitionsToTxnTopicResult(name=TOPIC, results_by_partition=results)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])

    def _offsets_committed(self, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
        code = self._code(TxnOffsetCommitRequest)
        partitions = [
            TxnOffsetCommitResponsePartition(partition_index=0),
            TxnOffsetCommitResponsePartition(partition_index=1, error_code=code),
        ]
        return TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(name="in", partitions=partitions)])

    def count(self, kind: type[Request]) -> int:
        return len(self.broker.asked(kind))

    async def begun(self) -> aio.Producer:
        await self.producer.init_transactions()
        await self.producer.begin_transaction()
        return self.producer

    async def transact(self) -> None:
        """One transaction, from the beginning to the end."""
        producer = await self.begun()
        await producer.send(TOPIC, b"x", partition=0)
        await producer.send(TOPIC, b"y", partition=1)
        await producer.send_offsets(OFFSETS, MEMBER)
        await producer.commit_transaction()

    async def refused(self) -> ClientError:
        with pytest.raises(ClientError) as refusal:
            await self.transact()
        return refusal.value


MEMBER = Membership("group", member_id="member", generation=3, instance_id="instance")
OFFSETS: dict[Any, Any] = {("in", 1): OffsetAndMetadata(9, "note", 4), ("in", 0): 5}


@asynccontextmanager
async def world(**settings: object) -> AsyncIterator[World]:
    async with ScriptedBroker() as broker:
        here = World(broker)
        own = {"transactional.id": "tx", "retry.backoff.ms": 1, "transaction.timeout.ms": 12_345, "linger.ms": 0}
        async with aio.Producer({"bootstrap.servers": broker.address, **own, **settings}) as here.producer:
            yield here


def test_what_coordinators_are_asked_for() -> None:
    async def scenario() -> None:
        async with world() as here:
            await here.transact()
        (init,) = here.broker.asked(InitProducerIdRequest)
        assert (init.transactional_id, init.transaction_timeout_ms) == ("tx", 12_345)
        assert (init.producer_id, init.producer_epoch) == (-1, -1), "whatever it was before"
        added = [
            (topic.name, *topic.partitions)
            for one in here.broker.asked(AddPartitionsToTxnRequest)
            for topic in one.v3_and_below_topics
        ]
        assert {partition for _, *partitions in added for partition in partitions} == {0, 1}
        for one in here.broker.asked(AddPartitionsToTxnRequest):
            assert one.v3_and_below_transactional_id == "tx"
            assert (one.v3_and_below_producer_id, one.v3_and_below_producer_epoch) == (7, 0)
        (group,) = here.broker.asked(AddOffsetsToTxnRequest)
        assert (group.transactional_id, group.group_id, group.producer_id, group.producer_epoch) == (
            "tx",
            "group",
            7,
            0,
        )
        (offsets,) = here.broker.asked(TxnOffsetCommitRequest)
        assert (offsets.transactional_id, offsets.producer_id, offsets.producer_epoch) == ("tx", 7, 0)
        member = offsets.group_id, offsets.member_id, offsets.generation_id, offsets.group_instance_id
        assert member == ("group", "member", 3, "instance")
        (topic,) = offsets.topics
        assert [
            (one.partition_index, one.committed_offset, one.committed_metadata, one.committed_leader_epoch)
            for one in topic.partitions
        ] == [(0, 5, "", -1), (1, 9, "note", 4)]
        (end,) = here.broker.asked(EndTxnRequest)
        assert (end.transactional_id, end.producer_id, end.producer_epoch, end.committed) == ("tx", 7, 0, True)
        assert all(one.transactional_id == "tx" for one in here.broker.asked(ProduceRequest))
        searches = {(one.coordinator_keys[0], one.key_type) for one in here.broker.asked(FindCoordinatorRequest)}
        assert searches == {("tx", 1), ("group", 0)}
        assert here.count(FindCoordinatorRequest) == 2, "and they are not looked for again"

    run_async(scenario())


def test_no_version_is_spoken_that_only_clusters_with_a_feature_of_later_understand() -> None:
    """Newer ones than these bump the epoch with every transaction, or add partitions unasked (KIP-890)."""

    async def scenario() -> None:
        async with world() as here:
            await here.transact()
        versions: dict[type[Request], set[int]] = {
            AddPartitionsToTxnRequest: {3},
            AddOffsetsToTxnRequest: {3},
            TxnOffsetCommitRequest: {4},
            EndTxnRequest: {4},
        }
        assert {kind: here.broker.versions[kind] for kind in versions} == versions
        assert all(kind.VERSIONS[-1] > max(spoken) for kind, spoken in versions.items())

    run_async(scenario())


KINDS: list[type[Request]] = [InitProducerIdRequest, AddOffsetsToTxnRequest, TxnOffsetCommitRequest, EndTxnRequest]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    ("code", "is_looked_for"),
    [
        (E.NOT_COORDINATOR, True),
        (E.COORDINATOR_NOT_AVAILABLE, True),
        (E.NETWORK_EXCEPTION, True),
        (E.REQUEST_TIMED_OUT, True),
        (E.COORDINATOR_LOAD_IN_PROGRESS, False),
        (E.CONCURRENT_TRANSACTIONS, False),
    ],
)
def test_what_passes_is_asked_again(kind: type[Request], code: ErrorCode, is_looked_for: bool) -> None:
    async def scenario() -> None:
        async with world() as here:
            here.codes[kind] = [code, code]
            await here.transact()
            assert here.count(kind) == 3
            assert here.count(FindCoordinatorRequest) == (4 if is_looked_for else 2)

    run_async(scenario())


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("code", [E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH])
def test_a_fenced_producer_is_of_no_more_use(kind: type[Request], code: ErrorCode) -> None:
    async def scenario() -> None:
        async with world() as here:
            here.codes[kind] = [code]
            error = await here.refused()
            assert isinstance(error, ProducerFencedError) and error.fatal and not error.requires_abort
            with pytest.raises(ClientError):
                await here.producer.abort_transaction()
            assert (here.count(kind), here.count(EndTxnRequest)) == (1, int(kind is EndTxnRequest))

    run_async(scenario())


@pytest.mark.parametrize(
    ("kind", "code", "meaning"),
    [
        (InitProducerIdRequest, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "fatal"),
        (InitProducerIdRequest, E.INVALID_TRANSACTION_TIMEOUT, "fatal"),
        (AddOffsetsToTxnRequest, E.GROUP_AUTHORIZATION_FAILED, "abort"),
        (AddOffsetsToTxnRequest, E.INVALID_TXN_STATE, "fatal"),
        (TxnOffsetCommitRequest, E.GROUP_AUTHORIZATION_FAILED, "abort"),
        (TxnOffsetCommitRequest, E.ILLEGAL_GENERATION, "abort"),
        (TxnOffsetCommitRequest, E.FENCED_INSTANCE_ID, "abort"),
        (EndTxnRequest, E.TRANSACTION_ABORTABLE, "abort"),
        (EndTxnRequest, E.UNKNOWN_PRODUCER_ID, "abort"),
        (EndTxnRequest, E.INVALID_TXN_STATE, "fatal"),
        (EndTxnRequest, E.INVALID_PRODUCER_ID_MAPPING, "fatal"),
        (EndTxnRequest, E.UNKNOWN_SERVER_ERROR, "fatal"),
    ],
)
def test_what_does_not_pass_ends_the_transaction_or_the_producer(
    kind: type[Request], code: ErrorCode, meaning: str
) -> None:
    async def scenario() -> None:
        async with world() as here:
            here.codes[kind] = [code]
            error = await here.refused()
            assert error.code is code
            assert (error.fatal, error.requires_abort) == (meaning == "fatal", meaning == "abort")
            if kind is TxnOffsetCommitRequest:
                assert "offset of in-1" in str(error)
            if meaning == "fatal":
                with pytest.raises(ClientError):
                    await here.producer.abort_transaction()
                return
            await here.producer.abort_transaction()
            assert here.broker.asked(EndTxnRequest)[-1].committed is False
            await here.producer.begin_transaction()
            await here.producer.send(TOPIC, b"z", partition=0)
            await here.producer.commit_transaction()
            assert here.broker.asked(EndTxnRequest)[-1].committed is True

    run_async(scenario())


def test_the_partition_that_was_refused_is_named_not_those_that_had_to_wait_for_it() -> None:
    async def scenario() -> None:
        async with world(**{"linger.ms": 10_000}) as here:
            producer = await here.begun()
            for partition in range(2):
                await producer.send(TOPIC, b"x", partition=partition)
            here.added = [[E.OPERATION_NOT_ATTEMPTED, E.TOPIC_AUTHORIZATION_FAILED]]
            with pytest.raises(ClientError) as refusal:
                await producer.commit_transaction()
            assert refusal.value.requires_abort and refusal.value.code is E.TOPIC_AUTHORIZATION_FAILED
            assert "t-1" in str(refusal.value)
            assert here.count(ProduceRequest) == 0, "nothing is written to partitions that do not take part"
            await producer.abort_transaction()
            assert here.count(EndTxnRequest) == 0, "there was nothing to end"

    run_async(scenario())


def test_a_transaction_without_anything_in_it_costs_nothing() -> None:
    async def scenario() -> None:
        async with world() as here:
            producer = await here.begun()
            await producer.send_offsets({}, "group")
            await producer.commit_transaction()
            await producer.begin_transaction()
            await producer.abort_transaction()
            assert here.count(AddOffsetsToTxnRequest) == here.count(EndTxnRequest) == 0
            assert here.count(InitProducerIdRequest) == 1
            with pytest.raises(TransactionStateError):
                await producer.init_transactions()
            assert here.count(InitProducerIdRequest) == 1, "a new epoch would shut out what is in flight"

    run_async(scenario())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("init_transactions", "call it again"),
        ("commit_transaction", "may be committed or not"),
        ("abort_transaction", "call it again"),
        ("send_offsets", "abort the transaction"),
    ],
)
def test_a_call_that_takes_too_long_says_why_and_what_to_do(call: str, words: str) -> None:
    async def scenario() -> None:
        async with world(**{"max.block.ms": 200}) as here:
            kinds: dict[str, type[Request]] = {
                "init_transactions": InitProducerIdRequest,
                "send_offsets": AddOffsetsToTxnRequest,
            }
            kind = kinds.get(call, EndTxnRequest)
            here.codes[kind] = [E.COORDINATOR_LOAD_IN_PROGRESS] * 100_000
            producer = here.producer
            with pytest.raises(ClientError, match=rf"{call}\(\) was not done within max.block.ms, 200 ms") as late:
                await producer.init_transactions()
                await producer.begin_transaction()
                if call == "send_offsets":
                    await producer.send_offsets(OFFSETS, "group")
                await producer.send(TOPIC, b"x", partition=0)
                await producer.flush()
                await getattr(producer, call)()
            assert words in str(late.value) and "loading" in str(late.value).lower()
            assert late.value.code is E.REQUEST_TIMED_OUT
            assert late.value.requires_abort is (call == "send_offsets")
            here.codes.clear()
            if call == "init_transactions":
                await here.transact()
            elif call == "send_offsets":
                await producer.abort_transaction()
            else:
                # The same call leads on.
                await getattr(producer, call)()
                assert here.broker.asked(EndTxnRequest)[-1].committed is (call == "commit_transaction")

    run_async(scenario())


def test_who_closes_the_producer_leaves_nothing_open() -> None:
    async def scenario() -> None:
        async with world() as here:
            producer = await here.begun()
            await producer.send(TOPIC, b"x", partition=0)
            await producer.flush()
        (end,) = here.broker.asked(EndTxnRequest)
        assert end.committed is False

    run_async(scenario())
