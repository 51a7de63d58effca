"""Clients of a simulated cluster: they go by the protocol, try for ever, and tell the checks what they hear."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import TypeVar

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition, Uuid
from ottla.machines.cluster.topic_names import GROUP_METADATA_TOPIC
from ottla.net.connection import Connection
from ottla.records.batch import iter_headers
from ottla.records.builder import build_batch
from ottla.testing.sim.brokers import PORT
from ottla.testing.sim.checks import Checks, ViolationError
from ottla.testing.sim.loop import Party
from ottla.wire.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from ottla.wire.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.wire.message import Request, Response

R = TypeVar("R", bound=Response)

_TIMEOUT_MS = 2_000
_CONNECT_TIMEOUT_MS = 1_000
_PAUSE_S = 0.1
_ALL, _LEADER_ONLY = -1, 1
_GROUP = 0
_READ_TOPIC = "safe"


class SimClient:
    def __init__(self, name: str, brokers: list[str], draw: Random) -> None:
        self.party = Party(name)
        self.done_so_far: int = 0
        """What was acknowledged: it has to grow again when everything has healed."""
        self.draw = draw
        self._names = brokers
        self._connections: dict[str, Connection] = {}
        self._leaders: dict[TopicPartition, str] = {}
        self._epochs: dict[TopicPartition, int] = {}
        """The newest leader epoch heard of: who tells of an older one is behind (KIP-320)."""
        self._topic_ids: dict[str, Uuid] = {}

    @property
    def is_excused(self) -> bool:
        """Whether what it works with may have been lost."""
        return False

    async def ask(self, broker: str, request: Request, response_class: type[R], *, version: int | None = None) -> R:
        """Raises KafkaError if there is no answer in time."""
        connection = self._connections.get(broker)
        if connection is None or connection.is_closed:
            connection = await Connection.connect(
                broker, PORT, client_id=self.party.name, connect_timeout_ms=_CONNECT_TIMEOUT_MS
            )
            try:
                await connection.negotiate(timeout_ms=_TIMEOUT_MS)
            except BaseException:
                connection.close()
                raise
            self._connections[broker] = connection
        return await connection.request(request, response_class, version=version, timeout_ms=_TIMEOUT_MS)

    def any_broker(self) -> str:
        return self.draw.choice(self._names)

    async def pause(self) -> None:
        await asyncio.sleep(self.draw.uniform(0.2, 1.8) * _PAUSE_S)

    async def leader_of(self, tp: TopicPartition) -> str:
        """The name of the broker that leads, as far as this client has heard."""
        while tp not in self._leaders:
            with suppress(KafkaError):
                await self._learn(tp.topic)
            if tp not in self._leaders:
                await self.pause()
        return self._leaders[tp]

    def epoch_of(self, tp: TopicPartition) -> int:
        return self._epochs.get(tp, -1)

    def forget_leader(self, tp: TopicPartition) -> None:
        self._leaders.pop(tp, None)

    def topic_id(self, topic: str) -> Uuid:
        return self._topic_ids[topic]

    async def _learn(self, topic: str) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        response = await self.ask(self.any_broker(), request, MetadataResponse)
        names = {broker.node_id: broker.host for broker in response.brokers}
        for found in response.topics:
            self._topic_ids[topic] = found.topic_id
            for partition in found.partitions:
                tp = TopicPartition(topic, partition.partition_index)
                if partition.leader_id in names and partition.leader_epoch >= self.epoch_of(tp):
                    self._epochs[tp] = partition.leader_epoch
                    self._leaders[tp] = names[partition.leader_id]

    async def find_coordinator(self, key_type: int) -> str:
        """The name of the broker that coordinates what goes by this client's name."""
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[self.party.name])
        response = await self.ask(self.any_broker(), request, FindCoordinatorResponse)
        (found,) = response.coordinators
        if found.error_code != ErrorCode.NONE:
            raise KafkaError(code=ErrorCode(found.error_code))
        return found.host

    async def create_topic(self, name: str, partitions: int, configs: dict[str, str]) -> None:
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=3,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        while True:
            try:
                response = await self.ask(
                    self.any_broker(), CreateTopicsRequest(topics=[topic], timeout_ms=1_000), CreateTopicsResponse
                )
            except KafkaError:
                await self.pause()
                continue
            if response.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
            await self.pause()


class SimProducer(SimClient):
    """Writes to one partition, batch after batch, each until it is acknowledged."""

    def __init__(self, name: str, brokers: list[str], draw: Random, checks: Checks, tp: TopicPartition) -> None:
        super().__init__(name, brokers, draw)
        self._checks = checks
        self.tp = tp

    @property
    def is_excused(self) -> bool:
        return self.tp in self._checks.excused

    async def run(self) -> None:
        producer_id, epoch = await self._producer_id()
        sequence = 0
        while True:
            count = self.draw.randint(1, 4)
            records = [(b"k", b"%d-%d" % (sequence, number), (), 1_700_000_000_000) for number in range(count)]
            batch = build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
            offset = await self._until_written(batch)
            self._checks.acknowledged(self.tp, offset, producer_id, sequence)
            self.done_so_far += count
            sequence += count
            await self.pause()

    async def _producer_id(self) -> tuple[int, int]:
        while True:
            try:
                request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
                response = await self.ask(self.any_broker(), request, InitProducerIdResponse)
                if response.error_code == ErrorCode.NONE:
                    return response.producer_id, response.producer_epoch
            except KafkaError:
                pass
            await self.pause()

    async def _until_written(self, batch: bytes) -> int:
        while True:
            try:
                code, offset = await write(self, self.tp, batch, _ALL)
            except KafkaError:
                self.forget_leader(self.tp)
                await self.pause()
                continue
            if code == ErrorCode.NONE:
                return offset
            if code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID):
                if self.is_excused:
                    await asyncio.sleep(3600)
                raise ViolationError(f"{self.tp}: {self.party.name} was refused with {ErrorCode(code).name}")
            self.forget_leader(self.tp)
            await self.pause()


async def write(
    client: SimClient, tp: TopicPartition, batch: bytes, acks: int, *, transactional_id: str | None = None
) -> tuple[int, int]:
    """The error code and the base offset of the answer."""
    data = TopicProduceData(name=tp.topic, partition_data=[PartitionProduceData(index=tp.partition, records=batch)])
    request = ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1_000, topic_data=[data])
    response = await client.ask(await client.leader_of(tp), request, ProduceResponse)
    answer = response.responses[0].partition_responses[0]
    return answer.error_code, answer.base_offset


class SimCarelessProducer(SimClient):
    """Writes with acks=1 and forgets: its records make logs differ where they are not committed."""

    def __init__(self, name: str, brokers: list[str], draw: Random, tp: TopicPartition) -> None:
        super().__init__(name, brokers, draw)
        self.tp = tp

    async def run(self) -> None:
        number = 0
        while True:
            number += 1
            batch = build_batch([(b"c", b"%s-%d" % (self.party.name.encode(), number), (), 1_700_000_000_000)])
            try:
                code, _ = await write(self, self.tp, batch, _LEADER_ONLY)
            except KafkaError as e:
                code = e.code
            if code != ErrorCode.NONE:
                self.forget_leader(self.tp)
            await self.pause()


class SimReader(SimClient):
    """Reads one partition from its beginning, for ever."""

    def __init__(self, name: str, brokers: list[str], draw: Random, checks: Checks, tp: TopicPartition) -> None:
        super().__init__(name, brokers, draw)
        self._checks = checks
        self.tp = tp
        self.position = 0

    async def run(self) -> None:
        while True:
            try:
                code, records = await self._fetch()
            except KafkaError as e:
                code, records = e.code, b""
            if code == ErrorCode.OFFSET_OUT_OF_RANGE and self.tp not in self._checks.excused:
                raise ViolationError(f"{self.tp}: offset {self.position} was read before, and is out of range now")
            if code != ErrorCode.NONE:
                self.forget_leader(self.tp)
                await self.pause()
                continue
            for _, header in iter_headers(records):
                if header.base_offset >= self.position:
                    self._checks.was_read(self.tp, header)
                    self.position = header.next_offset

    async def _fetch(self) -> tuple[int, bytes]:
        leader = await self.leader_of(self.tp)
        partition = FetchPartition(
            partition=self.tp.partition,
            current_leader_epoch=self.epoch_of(self.tp),
            fetch_offset=self.position,
            partition_max_bytes=1 << 20,
        )
        request = FetchRequest(
            max_wait_ms=300,
            min_bytes=1,
            topics=[FetchTopic(topic=self.tp.topic, topic_id=self.topic_id(self.tp.topic), partitions=[partition])],
        )
        response = await self.ask(leader, request, FetchResponse)
        if response.error_code != ErrorCode.NONE or not response.responses:
            return response.error_code, b""
        answer = response.responses[0].partitions[0]
        return answer.error_code, bytes(answer.records or b"")


class SimGroup(SimClient):
    """Commits ever higher offsets for one group, and looks whether they are there."""

    def __init__(self, name: str, brokers: list[str], draw: Random, checks: Checks) -> None:
        super().__init__(name, brokers, draw)
        self._checks = checks
        self._coordinator: str | None = None
        self._attempted = 0

    @property
    def is_excused(self) -> bool:
        return any(tp.topic == GROUP_METADATA_TOPIC for tp in self._checks.excused)

    async def run(self) -> None:
        while True:
            self._attempted += 1
            try:
                if await self._commit(self._attempted):
                    self.done_so_far = self._attempted
                    if self.draw.random() < 0.5:
                        await self._look()
            except KafkaError:
                self._coordinator = None
            await self.pause()

    async def _find(self) -> str:
        if self._coordinator is None:
            self._coordinator = await self.find_coordinator(_GROUP)
        return self._coordinator

    async def _commit(self, offset: int) -> bool:
        request = OffsetCommitRequest(
            group_id=self.party.name,
            topics=[
                OffsetCommitRequestTopic(
                    name=_READ_TOPIC,
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
                    ],
                )
            ],
        )
        response = await self.ask(await self._find(), request, OffsetCommitResponse)
        code = response.topics[0].partitions[0].error_code
        if code != ErrorCode.NONE:
            self._coordinator = None
            return False
        return True

    async def _look(self) -> None:
        before = self.done_so_far
        group = OffsetFetchRequestGroup(
            group_id=self.party.name, topics=[OffsetFetchRequestTopics(name=_READ_TOPIC, partition_indexes=[0])]
        )
        response = await self.ask(await self._find(), OffsetFetchRequest(groups=[group]), OffsetFetchResponse)
        (found,) = response.groups
        if found.error_code != ErrorCode.NONE:
            self._coordinator = None
            return
        offset = found.topics[0].partitions[0].committed_offset
        if offset < before and not self.is_excused:
            raise ViolationError(f"group {self.party.name}: {before} was committed, {offset} is there")
