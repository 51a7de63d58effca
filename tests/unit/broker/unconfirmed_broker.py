"""A broker whose partitions have a follower that never confirms anything: nothing is committed any more."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.base.types import FileSlice, TopicPartition
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.dispatch import Dispatch
from ottla.broker.node import Broker
from ottla.broker.startup import start_broker
from ottla.machines.cluster.topics import NewTopic
from ottla.net.service import Deferred, Outcome
from ottla.records.builder import NewRecord, build_batch
from ottla.wire.apis import response_class
from ottla.wire.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.apis.end_txn import EndTxnRequest
from ottla.wire.apis.find_coordinator import FindCoordinatorRequest
from ottla.wire.apis.init_producer_id import InitProducerIdRequest
from ottla.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.apis.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from ottla.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.header import encode_request_frame, read_response_header
from ottla.wire.message import Request, Response
from tests.unit.broker.local_connection import connected
from tests.unit.broker.replica_world import change_isr

TOPIC = "t"
NOW_MS = 1_700_000_000_000
SILENT_FOLLOWER = 999
DEADLINE_S = 30

CONFIG = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class Member:
    def __init__(self, member_id: str, generation: int) -> None:
        self.member_id = member_id
        self.generation = generation


class Producer:
    def __init__(self, transactional_id: str, producer_id: int, epoch: int) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequences = [0, 0]


class UnconfirmedBroker:
    def __init__(self, broker: Broker, wait_ms: int) -> None:
        self.broker = broker
        self._wait_ms = wait_ms
        self.dispatch = Dispatch(broker, broker.handlers)
        self.classic = Member("", -1)
        self.consumer = Member("", -1)
        self.open = Producer("open", -1, -1)
        self.idle = Producer("idle", -1, -1)

    @classmethod
    async def start(cls, data_dir: Path, wait_ms: int) -> UnconfirmedBroker:
        """Requests wait so long for the follower before they are refused."""
        config = {**CONFIG, "log.dirs": str(data_dir), "offsets.commit.timeout.ms": str(wait_ms)}
        world = cls(await start_broker(BrokerConfig(config)), wait_ms)
        await world._make_committed_state()
        return world

    async def _make_committed_state(self) -> None:
        """Some of everything that will be there for good."""
        await self.broker.topic_admin.create(NewTopic(TOPIC, 2, 1))
        for key_type in (0, 1):
            await self.call(FindCoordinatorRequest(key="any", key_type=key_type), 3)
        while self.broker.groups.runtime.is_loading or self.broker.transactions.runtime.is_loading:
            await asyncio.sleep(0.001)
        assert not errors_of(await self.produce(b"first", acks=-1))
        assert not errors_of(await self.commit_offset("simple", 5))
        await self._join_groups()
        for producer in (self.open, self.idle):
            made = await self.call(
                InitProducerIdRequest(transactional_id=producer.transactional_id, transaction_timeout_ms=60_000), 4
            )
            producer.producer_id, producer.epoch = made.producer_id, made.producer_epoch
        assert not errors_of(await self.add_partition(self.open, 0))
        assert not errors_of(await self.produce(b"in a transaction", acks=-1, producer=self.open))
        assert not errors_of(await self.add_partition(self.idle, 0))
        assert not errors_of(await self.end(self.idle))

    async def _join_groups(self) -> None:
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"m")]
        join = JoinGroupRequest(
            group_id="classic",
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=protocols,
        )
        joined = await self.call(join, 3)
        assert not errors_of(joined)
        self.classic = Member(joined.member_id, joined.generation_id)
        assert not errors_of(await self.sync(b"everything"))
        beat = ConsumerGroupHeartbeatRequest(
            group_id="consumer", rebalance_timeout_ms=60_000, subscribed_topic_names=[TOPIC], topic_partitions=[]
        )
        begun = await self.call(beat, 0)
        assert not errors_of(begun) and begun.member_id is not None
        self.consumer = Member(begun.member_id, begun.member_epoch)

    # The follower

    async def set_isr(self, *isr: int, epochs_up: int = 0) -> None:
        """Gives every partition this in-sync set, and a new leader epoch if asked for."""
        if not epochs_up:
            for partition in self.broker.replicas:
                change_isr(self.broker.replicas, partition, *isr)
            return
        by_topic: dict[str, LeaderAndIsrTopicState] = {}
        expected: dict[TopicPartition, ErrorCode] = {}
        for partition in self.broker.replicas:
            state = LeaderAndIsrPartitionState(
                partition_index=partition.tp.partition,
                leader=self.broker.broker_id,
                leader_epoch=partition.leader_epoch + epochs_up,
                isr=list(isr),
                partition_epoch=partition.leader.partition_epoch + 1 if partition.leader is not None else 0,
                replicas=list(isr),
            )
            topic = by_topic.setdefault(
                partition.tp.topic,
                LeaderAndIsrTopicState(topic_name=partition.tp.topic, topic_id=partition.topic_id, partition_states=[]),
            )
            topic.partition_states.append(state)
            expected[partition.tp] = ErrorCode.NONE
        request = LeaderAndIsrRequest(
            controller_epoch=self.broker.controller.epoch, topic_states=list(by_topic.values())
        )
        assert await self.broker.replicas.apply_leader_and_isr(request) == expected

    async def freeze(self, epochs_up: int = 0) -> None:
        await self.set_isr(self.broker.broker_id, SILENT_FOLLOWER, epochs_up=epochs_up)

    async def thaw(self) -> None:
        await self.set_isr(self.broker.broker_id)

    # Requests

    def send(self, request: Request, version: int) -> asyncio.Task[Any]:
        """The reply will be the task's result."""
        frame = memoryview(bytearray(encode_request_frame(request, version, 77, "test")[4:]))
        outcome = self.dispatch.handle(connected(self.broker), frame)
        self.dispatch.settle()
        return asyncio.ensure_future(_reply(request, version, outcome))

    async def call(self, request: Request, version: int) -> Any:
        return await asyncio.wait_for(self.send(request, version), DEADLINE_S)

    def produce(
        self, value: bytes, *, acks: int, producer: Producer | None = None, version: int = 9, partition: int = 0
    ) -> asyncio.Task[Any]:
        fields: dict[str, Any] = {}
        if producer is not None:
            fields = {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.epoch,
                "base_sequence": producer.sequences[partition],
                "transactional": True,
            }
            # The other partition is in no transaction that is committed, so nothing is ever appended to it.
            producer.sequences[partition] += partition == 0
        data = PartitionProduceData(
            index=partition, records=build_batch([NewRecord(b"k", value, (), NOW_MS)], **fields)
        )
        request = ProduceRequest(
            transactional_id=producer.transactional_id if producer is not None else None,
            acks=acks,
            timeout_ms=self._wait_ms,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
        )
        return self.send(request, version)

    def commit_offset(self, group: str, offset: int) -> asyncio.Task[Any]:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
        return self.send(OffsetCommitRequest(group_id=group, topics=topics), 5)

    def add_partition(self, producer: Producer, partition: int) -> asyncio.Task[Any]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=producer.transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[partition])],
        )
        return self.send(request, 3)

    def end(self, producer: Producer) -> asyncio.Task[Any]:
        request = EndTxnRequest(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=True,
        )
        return self.send(request, 3)

    def sync(self, assignment: bytes) -> asyncio.Task[Any]:
        mine = SyncGroupRequestAssignment(member_id=self.classic.member_id, assignment=assignment)
        request = SyncGroupRequest(
            group_id="classic",
            generation_id=self.classic.generation,
            member_id=self.classic.member_id,
            assignments=[mine],
        )
        return self.send(request, 3)


async def _reply(request: Request, version: int, outcome: Outcome) -> Response:
    if isinstance(outcome, Deferred):
        while outcome.pieces is None:
            await asyncio.sleep(0.001)
        outcome = outcome.pieces
    while not outcome:
        await asyncio.sleep(0.001)
    frame = b"".join(
        os.pread(piece.file.fd, piece.length, piece.position) if isinstance(piece, FileSlice) else bytes(piece)
        for piece in outcome
    )[4:]
    _, position = read_response_header(frame, request.API_KEY, version)
    response, _ = response_class(request.API_KEY).decode(frame, version, position)
    return response


def errors_of(reply: Any) -> list[ErrorCode]:
    """Every error code anywhere in a reply, but NONE."""
    if isinstance(reply, list):
        return [code for item in reply for code in errors_of(item)]
    found: list[ErrorCode] = []
    for name in getattr(type(reply), "__annotations__", ()):
        value = getattr(reply, name)
        if name.endswith("error_code"):
            found += [ErrorCode(value)] if value else []
        elif not isinstance(value, str | bytes | int):
            found += errors_of(value)
    return found
