"""The short way of an offset commit gives what the long way gives: the same replies, records, offsets and timers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from ottla.broker.startup import start_broker
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
from ottla.wire.apis.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
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
        world = cls(await start_broker(config, clock=clock, access=access), clock)
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


# The law

_partitions = st.tuples(
    st.sampled_from([0, 0, 0, 1, 2, -1]), st.integers(0, 2**40), st.sampled_from(["", "a note", None, "n" * 11])
)
_topics = st.tuples(st.sampled_from([*TOPICS, *TOPICS, HIDDEN, "none"]), st.lists(_partitions, max_size=3))
_usual = st.tuples(st.just("orders"), st.tuples(_partitions).map(list)).map(lambda topic: [topic])
_requests = st.tuples(
    st.sampled_from(KINDS),
    st.sampled_from(["mine", "mine", "nobody", "stranger", "late"]),
    st.one_of(_usual, _usual, st.lists(_topics, max_size=3)),
    st.integers(2, 9),
    st.sampled_from([None, None, None, "instance"]),
    st.sampled_from([-1, -1, 1000]),
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, asyncio.AbstractEventLoop]]:
    loop = asyncio.new_event_loop()
    hidden = Rule(AclPermission.DENY, Operation.READ, ResourceType.TOPIC, HIDDEN)
    world = loop.run_until_complete(World.start(tmp_path_factory.mktemp("broker"), hidden))
    loop.run_until_complete(world.join())
    yield world, loop
    loop.run_until_complete(world.broker.stop())
    loop.close()


def _as_member(world: World, group_id: str, who: str) -> tuple[str, int]:
    member_id, generation = world.members.get(group_id, ("", -1))
    return {
        "mine": (member_id, generation),
        "nobody": ("", -1),
        "stranger": ("stranger", generation),
        "late": (member_id, generation + 1),
    }[who]


@settings(max_examples=80, deadline=None)
@given(turns=st.lists(st.lists(_requests, min_size=1, max_size=6), min_size=1, max_size=4))
def test_both_ways_are_the_same(world: tuple[World, asyncio.AbstractEventLoop], turns: list[list[Any]]) -> None:
    async def compare() -> None:
        here = world[0]
        for turn in turns:
            here.clock.advance(5)
            expected, got = [], []
            for kind, who, topics, version, instance_id, retention_ms in turn:
                fields: dict[str, Any] = {}
                if version >= 7:
                    fields["group_instance_id"] = instance_id
                elif version < 5:
                    fields["retention_time_ms"] = retention_ms
                for way, ask, replies in ((LONG, here.long, expected), (SHORT, here.short, got)):
                    group_id = kind + way
                    request = commit(group_id, *topics, member=_as_member(here, group_id, who), **fields)
                    replies.append((ask(request, version), version))
            here.dispatch.settle()
            for one, other in zip(expected, got, strict=True):
                assert reply_of(other[0], 8, other[1]) == reply_of(one[0], 8, one[1])
        for kind in KINDS:
            assert here.records(kind + SHORT) == here.records(kind + LONG)
            offsets = [
                here.shard(group_id).machine._offsets.of_group(group_id) for group_id in (kind + LONG, kind + SHORT)
            ]
            stored = [{where: kept._replace(log_offset=0) for where, kept in group.items()} for group in offsets]
            assert stored[0] == stored[1]

    world[1].run_until_complete(compare())


# What it is for


def test_the_commits_of_a_turn_are_one_batch(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.ask(plain("g", 1), 7)
        replies = [world.short(plain("g", offset), version) for offset, version in ((2, 7), (3, 9), (4, 6))]
        assert replies == [[], [], []], "they wait for the end of the turn"
        assert len(world.records("g")) == 1
        world.dispatch.settle()
        header, records = world.batches("g")[-1]
        assert [value.offset for _, _, value in records] == [2, 3, 4]
        assert header.record_count == 3
        shard = world.shard("g")
        assert shard.last_offset == header.last_offset == shard.partition.log.high_watermark - 1
        assert shard.machine._offsets.of_group("g")["orders", 0].log_offset == header.last_offset

    run(tmp_path, scenario)


def test_who_asks_in_the_same_turn_sees_what_was_committed_before(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.ask(plain("g", 1), 7)
        committed = world.short(plain("g", 5), 7)
        assert committed == []
        asked = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="orders", partition_indexes=[0])])
        reply = await world.ask(asked, 5)
        assert reply.topics[0].partitions[0].committed_offset == 5
        assert error_of(committed) is ErrorCode.NONE

    run(tmp_path, scenario)


def test_a_member_that_commits_begins_its_session_anew(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.join()
        for kind, is_renewed in (("classic", True), ("consumer", False)):
            group_id = kind + SHORT
            timers = world.shard(group_id).timers
            before = dict(timers)
            replies = [world.short(plain(group_id, 1, world.members[group_id]), 9) for _ in range(2)]
            assert replies == [[], []]
            world.dispatch.settle()
            assert timers.keys() == before.keys()
            assert [key for key in timers if timers[key] is not before[key]] == [key for key in before if is_renewed]

    run(tmp_path, scenario)


def test_what_does_not_fit_into_a_batch_is_stored_in_another(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.ask(plain("g", 1), 7)
        log = world.shard("g").partition.log
        log.update_config(replace(log.config, max_message_bytes=200))
        outcomes = [world.short(plain("g", offset), 7) for offset in range(2, 8)]
        world.dispatch.settle()
        assert {error_of(outcome) for outcome in outcomes} == {ErrorCode.NONE}
        assert [value.offset for _, _, value in world.records("g")] == [1, 2, 3, 4, 5, 6, 7]
        assert all(header.size <= 200 for header, _ in world.batches("g"))
        too_large = world.short(commit("g", ("orders", [(0, 9, "n" * 10)] * 3)), 7)
        world.dispatch.settle()
        assert error_of(too_large) is ErrorCode.NONE, "a decision may take several batches"
        assert [value.offset for _, _, value in world.records("g")][-3:] == [9, 9, 9]
        assert [record.offset for record in world.stored("g")] == list(range(log.log_end_offset))

    run(tmp_path, scenario)


def test_a_failed_write_is_told_to_everybody_it_concerns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        await world.ask(plain("g", 1), 7)
        shard = world.shard("g")
        replies = [world.short(plain("g", offset), 7) for offset in (2, 3)]
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", _no_space)
            world.dispatch.settle()
        assert [error_of(reply) for reply in replies] == [ErrorCode.NOT_COORDINATOR] * 2
        assert shard.is_dropped
        assert shard.machine._offsets.of_group("g")["orders", 0].offset == 1
        later = world.short(plain("g", 4), 7)
        world.dispatch.settle()
        assert error_of(later) is ErrorCode.NOT_COORDINATOR

    run(tmp_path, scenario)


def _no_space(*_: Any) -> int:
    raise OSError(28, "No space left on device")


def test_a_shard_that_is_dropped_meanwhile_has_committed_nothing(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.ask(plain("g", 1), 7)
        shard = world.shard("g")
        reply = world.short(plain("g", 2), 7)
        world.broker.groups.runtime.partition_removed(shard.index)
        log_end_offset = shard.partition.log.log_end_offset
        world.dispatch.settle()
        assert error_of(reply) is ErrorCode.NOT_COORDINATOR
        assert shard.partition.log.log_end_offset == log_end_offset

    run(tmp_path, scenario)


def test_rules_that_change_count_for_the_next_commit(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        authorizer = world.broker.authorizer
        assert isinstance(authorizer, TableAuthorizer)
        assert error_of(await _settled(world, plain("g", 1))) is ErrorCode.NONE
        group = Rule(AclPermission.DENY, Operation.READ, ResourceType.GROUP, "g")
        allowed = authorizer.rules
        authorizer.replace([*allowed, group])
        assert error_of(await _settled(world, plain("g", 2))) is ErrorCode.GROUP_AUTHORIZATION_FAILED
        authorizer.replace([*allowed, Rule(AclPermission.DENY, Operation.READ, ResourceType.TOPIC, "orders")])
        assert error_of(await _settled(world, plain("g", 3))) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert [value.offset for _, _, value in world.records("g")] == [1]

    run(tmp_path, scenario)


def test_a_topic_that_has_gone_counts_for_the_next_commit(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        assert error_of(await _settled(world, plain("g", 1))) is ErrorCode.NONE
        assert error_of(await _settled(world, plain("g", 2))) is ErrorCode.NONE
        await world.broker.topic_admin.delete("orders")
        assert error_of(await _settled(world, plain("g", 3))) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(tmp_path, scenario)


def test_what_a_connection_repeats_is_judged_anew(tmp_path: Path) -> None:
    """Only its group, topic and partition are remembered, neither what the group is like nor another connection's."""

    async def scenario(world: World) -> None:
        group_id = f"classic{SHORT}"
        await world.join()
        member = world.members[group_id]
        for offset in (1, 2):
            assert error_of(await _settled(world, plain(group_id, offset, member))) is ErrorCode.NONE
        await world.ask(LeaveGroupRequest(group_id=group_id, members=[MemberIdentity(member_id=member[0])]), 4)
        assert error_of(await _settled(world, plain(group_id, 3, member))) is ErrorCode.UNKNOWN_MEMBER_ID
        too_long = commit("g", ("orders", [(0, 4, "n" * 11)]))
        assert error_of(await _settled(world, plain("g", 4))) is ErrorCode.NONE
        assert error_of(await _settled(world, too_long)) is ErrorCode.OFFSET_METADATA_TOO_LARGE

    run(tmp_path, scenario)


async def _settled(world: World, request: OffsetCommitRequest) -> Any:
    outcome = world.short(request, 7)
    world.dispatch.settle()
    return outcome
