"""acks=all with a follower: both ways give the same, whatever becomes of the partition meanwhile."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.dispatch import Dispatch
from ottla.broker.handler import RequestContext
from ottla.broker.node import Broker
from ottla.broker.partition import Partition
from ottla.broker.startup import start_broker
from ottla.log.stage import NOT_STAGED, Stage
from ottla.machines.cluster.topics import NewTopic
from ottla.net.service import Deferred, LateReply
from ottla.records.builder import NewRecord, build_batch
from ottla.wire.apis.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from ottla.wire.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.wire.header import encode_request_frame, read_request_header, read_response_header
from tests.unit.broker.local_connection import connected
from tests.waiting import run_async, until

NOW_MS = 1_700_000_000_000
LONG, SHORT = "way-a", "way-b"
FOLLOWER = 999
SOON_MS, LATE_MS = 5, 600_000


class _ClosedStage(Stage):
    def add(self, records: memoryview, leader_epoch: int, now_ms: int) -> int:
        return NOT_STAGED


class BothWays:
    """Two topics that the same is done to; the requests of one take the long way."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.dispatch = Dispatch(broker, broker.handlers)
        self.connection = connected(broker)
        self.outcomes: list[tuple[Any, Any, int]] = []
        self.epoch = 0

    async def begin(self) -> None:
        for topic in (LONG, SHORT):
            if topic in self.broker.image.topics:
                await self.broker.topic_admin.delete(topic)
            await self.broker.topic_admin.create(NewTopic(topic, 1, 1))
        self.epoch = max(self.partition(topic).leader_epoch for topic in (LONG, SHORT))
        log = self.partition(LONG).log
        log.stage = _ClosedStage(log, log.stage.rules)
        await self.give_role(self.broker.broker_id, [self.broker.broker_id, FOLLOWER], epoch=self.epoch + 1)
        # Only what follows the first batch of a segment can share a write.
        self.produce([(10, 9, 1, LATE_MS)])
        self.follower_has(1)
        self.dispatch.end_turn()
        self.outcomes.clear()

    def partition(self, topic: str) -> Partition:
        found = self.broker.replicas.find(topic, 0)
        assert found is not None
        return found

    async def give_role(self, leader: int, isr: list[int], *, epoch: int) -> None:
        self.epoch = epoch
        for topic in (LONG, SHORT):
            partition = self.partition(topic)
            state = LeaderAndIsrPartitionState(
                partition_index=0,
                leader=leader,
                leader_epoch=epoch,
                isr=isr,
                partition_epoch=0,
                replicas=[self.broker.broker_id, FOLLOWER],
            )
            request = LeaderAndIsrRequest(
                controller_epoch=self.broker.controller.epoch,
                topic_states=[
                    LeaderAndIsrTopicState(topic_name=topic, topic_id=partition.topic_id, partition_states=[state])
                ],
            )
            told = await self.broker.replicas.apply_leader_and_isr(request)
            assert told == {TopicPartition(topic, 0): ErrorCode.NONE}

    def set_isr(self, *others: int) -> None:
        for topic in (LONG, SHORT):
            partition = self.partition(topic)
            if partition.leader is not None:
                partition.leader.isr_confirmed([self.broker.broker_id, *others], partition.leader.partition_epoch + 1)
                self.broker.replicas.isr_changed(partition)

    def produce(self, requests: list[tuple[int, int, int, int]]) -> None:
        for size, version, acks, timeout_ms in requests:
            records = build_batch([NewRecord(None, b"v" * size, (), NOW_MS)])
            long, short = (_frame(topic, version, records, acks, timeout_ms) for topic in (LONG, SHORT))
            api_key, version, correlation_id, client_id, position = read_request_header(long)
            context = RequestContext(
                self.broker, self.connection, api_key, version, correlation_id, client_id, long, position
            )
            by_handler = self.broker.handlers[api_key].handle(context)
            self.outcomes.append((by_handler, self.dispatch.handle(self.connection, short), timeout_ms))
        self.dispatch.settle()

    def follower_has(self, count: int) -> None:
        for topic in (LONG, SHORT):
            partition = self.partition(topic)
            if partition.leader is not None and FOLLOWER in partition.leader.followers:
                offset = min(partition.log.high_watermark + count, partition.log.log_end_offset)
                self.broker.replicas.follower_fetched(partition, FOLLOWER, offset, 0, broker_epoch=-1)

    def require(self, min_insync_replicas: int) -> None:
        for topic in (LONG, SHORT):
            partition = self.partition(topic)
            if partition.leader is not None:
                partition.leader.set_min_insync_replicas(min_insync_replicas)
                self.broker.replicas.isr_changed(partition)

    async def perform(self, action: tuple[Any, ...]) -> None:
        own = self.broker.broker_id
        match action:
            case ("produce", requests):
                self.produce(requests)
            case ("confirm", count):
                self.follower_has(count)
            case ("require", count):
                self.require(count)
            case ("isr", isr):
                self.set_isr(*isr)
            case ("lead",):
                await self.give_role(own, [own, FOLLOWER], epoch=self.epoch + 1)
            case ("follow",):
                await self.give_role(FOLLOWER, [own, FOLLOWER], epoch=self.epoch + 1)
            case ("wait",):
                await until(
                    lambda: all(
                        _reply(one) is not None and _reply(other) is not None
                        for one, other, timeout_ms in self.outcomes
                        if timeout_ms == SOON_MS
                    )
                )
        self.dispatch.end_turn()

    def check(self) -> None:
        # What was to be answered soon may be late on one way already.
        lasting = [(one, other) for one, other, timeout_ms in self.outcomes if timeout_ms == LATE_MS]
        assert [_reply(one) for one, _ in lasting] == [_reply(other) for _, other in lasting]
        logs = [self.partition(topic).log for topic in (LONG, SHORT)]
        assert logs[0].log_end_offset == logs[1].log_end_offset
        assert logs[0].high_watermark == logs[1].high_watermark
        files = [[(s.base_offset, os.pread(s.log.fd, s.size, 0)) for s in log.segments.all()] for log in logs]
        assert files[0] == files[1]

    def check_all(self) -> None:
        assert [_reply(one) for one, _, _ in self.outcomes] == [_reply(other) for _, other, _ in self.outcomes]


def _frame(topic: str, version: int, records: bytes, acks: int, timeout_ms: int) -> memoryview:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
    request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[data])
    return memoryview(bytearray(encode_request_frame(request, version, 77, "test")[4:]))


def _reply(outcome: Any) -> bytes | None:
    """None while it is not there."""
    pieces = outcome.pieces if isinstance(outcome, Deferred) else outcome
    return b"".join(pieces).replace(SHORT.encode(), LONG.encode()) if pieces else None


def _error(outcome: Any, version: int = 9) -> ErrorCode:
    frame = (_reply(outcome) or b"")[4:]
    _, position = read_response_header(frame, 0, version)
    response, _ = ProduceResponse.decode(frame, version, position)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, asyncio.AbstractEventLoop]]:
    loop = asyncio.new_event_loop()
    directory = tmp_path_factory.mktemp("broker") / "data"
    config = BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory)})
    broker = loop.run_until_complete(start_broker(config))
    yield broker, loop
    loop.run_until_complete(broker.stop())
    loop.close()


_requests = st.tuples(
    st.integers(0, 50), st.integers(7, 11), st.sampled_from([-1, -1, 1]), st.sampled_from([LATE_MS, LATE_MS, SOON_MS])
)
_actions = st.one_of(
    st.tuples(st.just("produce"), st.lists(_requests, min_size=1, max_size=4)),
    st.tuples(st.just("produce"), st.lists(_requests, min_size=1, max_size=4)),
    st.tuples(st.just("confirm"), st.integers(0, 5)),
    st.tuples(st.just("confirm"), st.integers(0, 5)),
    st.tuples(st.just("require"), st.integers(1, 2)),
    st.tuples(st.just("isr"), st.sampled_from([[], [FOLLOWER]])),
    st.just(("lead",)),
    st.just(("follow",)),
    st.just(("wait",)),
)


@settings(max_examples=80, deadline=None)
@given(actions=st.lists(_actions, min_size=1, max_size=12))
def test_both_ways_are_the_same(
    running: tuple[Broker, asyncio.AbstractEventLoop], actions: list[tuple[Any, ...]]
) -> None:
    broker, loop = running

    async def run() -> None:
        ways = BothWays(broker)
        await ways.begin()
        for action in actions:
            await ways.perform(action)
            ways.check()
        await ways.perform(("wait",))
        await ways.perform(("follow",))
        ways.check()
        assert all(_reply(other) is not None for _, other, _ in ways.outcomes), "who leads no more answers everybody"

    loop.run_until_complete(run())


def in_both_ways(tmp_path: Path, scenario: Any) -> None:
    async def run() -> None:
        config = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "data")}
        broker = await start_broker(BrokerConfig(config))
        try:
            ways = BothWays(broker)
            await ways.begin()
            await scenario(ways)
        finally:
            await broker.stop()

    run_async(run())


def test_one_move_of_the_high_watermark_answers_all_that_it_covers(tmp_path: Path) -> None:
    async def scenario(ways: BothWays) -> None:
        await ways.perform(("produce", [(10, 9, -1, LATE_MS)] * 5))
        short = [other for _, other, _ in ways.outcomes]
        assert all(type(reply) is LateReply and not reply for reply in short)
        await ways.perform(("confirm", 3))
        assert [bool(reply) for reply in short] == [True, True, True, False, False]
        assert ways.connection.late_replies == 1, "the connection is told once"
        ways.check()

    in_both_ways(tmp_path, scenario)


def test_a_new_epoch_of_the_same_leader_changes_nothing_for_those_who_wait(tmp_path: Path) -> None:
    """Whenever a follower dies there is one: producers that do not know a repetition would store records twice."""

    async def scenario(ways: BothWays) -> None:
        await ways.perform(("produce", [(10, 9, -1, LATE_MS)] * 3))
        await ways.perform(("lead",))
        ways.dispatch.end_turn()
        short = [other for _, other, _ in ways.outcomes]
        assert not any(short)
        await ways.perform(("produce", [(10, 9, -1, LATE_MS)]))
        await ways.perform(("confirm", 2))
        assert [_error(reply) for reply in short[:2]] == [ErrorCode.NONE] * 2
        ways.check()
        # Whoever has followed meanwhile may have cut its log.
        await ways.perform(("follow",))
        await ways.perform(("lead",))
        ways.dispatch.end_turn()
        assert _error(short[2]) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        ways.check_all()

    in_both_ways(tmp_path, scenario)


def test_those_of_different_patience_are_answered_in_their_own_time(tmp_path: Path) -> None:
    async def scenario(ways: BothWays) -> None:
        await ways.perform(("produce", [(10, 9, -1, LATE_MS), (10, 9, -1, SOON_MS), (10, 9, -1, LATE_MS)]))
        await ways.perform(("wait",))
        short = [other for _, other, _ in ways.outcomes]
        assert [bool(reply) for reply in short] == [False, True, False]
        assert _error(short[1]) is ErrorCode.REQUEST_TIMED_OUT
        await ways.perform(("confirm", 5))
        assert [_error(short[0]), _error(short[2])] == [ErrorCode.NONE] * 2
        ways.check_all()

    in_both_ways(tmp_path, scenario)


def test_too_few_replicas_are_told_where_they_became_too_few_after_the_append(tmp_path: Path) -> None:
    async def scenario(ways: BothWays) -> None:
        ways.require(2)
        await ways.perform(("produce", [(10, 9, -1, LATE_MS)] * 2))
        # In one turn: the follower has the first, and then leaves.
        ways.follower_has(1)
        ways.set_isr()
        ways.dispatch.end_turn()
        short = [other for _, other, _ in ways.outcomes]
        assert [bool(reply) for reply in short] == [True, False]
        assert _error(short[0]) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        ways.check_all()

    in_both_ways(tmp_path, scenario)


def test_a_failed_write_is_told_to_those_it_concerns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(ways: BothWays) -> None:
        def produce(count: int) -> list[Any]:
            records = build_batch([NewRecord(None, b"v", (), NOW_MS)])
            frames = [_frame(SHORT, 9, records, acks=-1, timeout_ms=LATE_MS) for _ in range(count)]
            return [ways.dispatch.handle(ways.connection, frame) for frame in frames]

        written = produce(1)
        ways.dispatch.settle()
        unwritten = produce(3)
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwritev", _no_space)
            ways.dispatch.settle()
        assert [_error(reply) for reply in unwritten] == [ErrorCode.KAFKA_STORAGE_ERROR] * 3
        ways.dispatch.end_turn()
        assert _error(written[0]) is ErrorCode.NOT_LEADER_OR_FOLLOWER, "the directory is gone, and the role with it"

    in_both_ways(tmp_path, scenario)


def _no_space(*_: Any) -> int:
    raise OSError(28, "No space left on device")
