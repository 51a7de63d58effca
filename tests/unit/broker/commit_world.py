"""A broker with groups of every kind, whose offset commits can be sent the short and the long way."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ottla.base.acls import AclPermission
from ottla.base.clock import ManualClock
from ottla.base.errors import ErrorCode
from ottla.broker.admission import AccessRules
from ottla.broker.authorizer import Operation, ResourceType
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.coordinators.runtime import Shard
from ottla.broker.dispatch import Dispatch
from ottla.broker.handler import RequestContext
from ottla.broker.internal_topics import ensure_internal_topic
from ottla.broker.node import Broker
from ottla.broker.startup import Surroundings, start_broker
from ottla.broker.table_authorizer import Rule, TableAuthorizer
from ottla.machines.cluster.topic_names import GROUP_METADATA_TOPIC
from ottla.machines.cluster.topics import NewTopic
from ottla.machines.groups import record_types
from ottla.machines.groups.shard import GroupShard
from ottla.net.service import Deferred
from ottla.records.batch import BatchHeader, iter_headers
from ottla.records.reader import Record, read_records
from ottla.wire.apis import response_class
from ottla.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.header import encode_request_frame, read_request_header, read_response_header
from ottla.wire.message import Request
from ottla.wire.stored.consumer_offsets import OffsetCommitKey
from tests.unit.broker.local_connection import connected
from tests.waiting import in_time, run_async

LONG, SHORT = "-a", "-b"
TOPICS = ["orders", "clicks"]
HIDDEN = "hidden"
KINDS = ["simple", "classic", "consumer"]
SHARDS = 5
SESSION_MS = 1_800_000
"""No member times out, however long the examples take."""
CONFIG = {
    "offsets.topic.num.partitions": str(SHARDS),
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.max.session.timeout.ms": str(SESSION_MS),
    "offset.metadata.max.bytes": "10",
}


class World:
    """A broker with a pair of groups of each kind, of which one is asked the long way and one the short way."""

    def __init__(self, broker: Broker, clock: ManualClock) -> None:
        self.broker = broker
        self.clock = clock
        self.dispatch = Dispatch(broker, broker.handlers)
        self.connection = connected(broker)
        self.members: dict[str, tuple[str, int]] = {}
        """By group id: member id and generation."""

    @classmethod
    async def start(cls, directory: Path, *rules: Rule) -> World:
        config = BrokerConfig({**CONFIG, "log.dirs": str(directory / "data")})
        clock = ManualClock()
        allowed = [Rule(AclPermission.ALLOW, Operation.ALL, kind) for kind in (ResourceType.TOPIC, ResourceType.GROUP)]
        access = AccessRules(authorizer=TableAuthorizer([*allowed, *rules]))
        world = cls(await start_broker(config, Surroundings(clock=clock, access=access)), clock)
        for topic in (*TOPICS, HIDDEN):
            await world.broker.topic_admin.create(NewTopic(topic, 2, 1))
        await ensure_internal_topic(world.broker, GROUP_METADATA_TOPIC)
        await _until(lambda: len(world.broker.groups.runtime.active_shards()) == SHARDS)
        return world

    async def join(self) -> None:
        for way in (LONG, SHORT):
            await self._join_classic(f"classic{way}")
            beat = ConsumerGroupHeartbeatRequest(
                group_id=f"consumer{way}",
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=TOPICS,
                topic_partitions=[],
            )
            reply = await self.ask(beat, 0)
            self.members[f"consumer{way}"] = (reply.member_id, reply.member_epoch)

    async def _join_classic(self, group_id: str) -> None:
        join = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
        )
        joined = await self.ask(join, 3)
        member = (joined.member_id, joined.generation_id)
        self.members[group_id] = member
        mine = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")
        await self.ask(
            SyncGroupRequest(group_id=group_id, member_id=member[0], generation_id=member[1], assignments=[mine]),
            3,
        )

    async def ask(self, request: Request, version: int) -> Any:
        outcome = self.short(request, version)
        self.dispatch.settle()
        if isinstance(outcome, Deferred):
            await _until(lambda: outcome.is_complete)
        return reply_of(outcome, request.API_KEY, version)

    def short(self, request: Request, version: int) -> Any:
        return self.dispatch.handle(self.connection, frame_of(request, version))

    def long(self, request: Request, version: int) -> Any:
        frame = frame_of(request, version)
        api_key, version, correlation_id, client_id, position = read_request_header(frame)
        context = RequestContext(
            self.broker, self.connection, api_key, version, correlation_id, client_id, frame, position
        )
        return self.broker.handlers[api_key].handle(context)

    def shard(self, group_id: str) -> Shard[GroupShard]:
        return self.broker.groups.runtime.shard_for(group_id)

    def batches(self, group_id: str) -> list[tuple[BatchHeader, list[tuple[str, int, Any]]]]:
        """Of every batch that has offsets of the group: topic, partition and value of each."""
        data = self._log_bytes(group_id)
        found = []
        for position, header in iter_headers(data):
            records = []
            assert header.record_count
            for record in read_records(data[position : position + header.size], header):
                assert record.key is not None
                parsed = record_types.parse(record.key, record.value)
                if parsed is not None and isinstance(parsed[0], OffsetCommitKey) and parsed[0].group == group_id:
                    records.append((parsed[0].topic, parsed[0].partition, parsed[1]))
                    assert record.timestamp == getattr(parsed[1], "commit_timestamp", record.timestamp)
            if records:
                found.append((header, records))
        return found

    def _log_bytes(self, group_id: str) -> memoryview:
        log = self.shard(group_id).partition.log
        return memoryview(b"".join(os.pread(s.log.fd, s.size, 0) for s in log.segments.all()))

    def stored(self, group_id: str) -> list[Record]:
        """Every record of the shard's log."""
        data = self._log_bytes(group_id)
        found = [(data[position : position + header.size], header) for position, header in iter_headers(data)]
        return [record for batch, header in found for record in read_records(batch, header)]

    def records(self, group_id: str) -> list[tuple[str, int, Any]]:
        return [record for _, records in self.batches(group_id) for record in records]


async def _until(is_so: Callable[[], bool]) -> None:
    async def wait() -> None:
        while not is_so():
            await asyncio.sleep(0.001)

    await in_time(wait())


def frame_of(request: Request, version: int) -> memoryview:
    return memoryview(bytearray(encode_request_frame(request, version, 77, "test")[4:]))


def reply_of(outcome: Any, api_key: int, version: int) -> Any:
    if isinstance(outcome, Deferred):
        assert outcome.pieces is not None, "the long way has waited for nothing"
        outcome = outcome.pieces
    frame = b"".join(outcome)[4:]
    correlation_id, position = read_response_header(frame, api_key, version)
    assert correlation_id == 77
    return response_class(api_key).decode(frame, version, position)[0]


def commit(
    group_id: str,
    *topics: tuple[str, list[tuple[int, int, str | None]]],
    member: tuple[str, int] = ("", -1),
    **fields: Any,
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group_id,
        member_id=member[0],
        generation_id_or_member_epoch=member[1],
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=offset % 3 - 1,
                        committed_metadata=metadata,
                    )
                    for index, offset, metadata in partitions
                ],
            )
            for name, partitions in topics
        ],
        **fields,
    )


def plain(group_id: str, offset: int, member: tuple[str, int] = ("", -1)) -> OffsetCommitRequest:
    return commit(group_id, ("orders", [(0, offset, "")]), member=member)


def error_of(reply: list[bytes], version: int = 7) -> ErrorCode:
    response = reply_of(reply, OffsetCommitRequest.API_KEY, version)
    return ErrorCode(response.topics[0].partitions[0].error_code)


def run(tmp_path: Path, scenario: Callable[[World], Any], *rules: Rule) -> None:
    async def start() -> None:
        world = await World.start(tmp_path, *rules)
        try:
            await scenario(world)
        finally:
            await world.broker.stop()

    run_async(start())
