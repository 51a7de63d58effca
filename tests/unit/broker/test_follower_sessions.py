"""What a leader tells a follower that fetches with a session, and when it looks at which partitions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ottla.base.types import FileSlice
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.dispatch import Dispatch
from ottla.broker.node import Broker
from ottla.broker.startup import start_broker
from ottla.machines.cluster.topics import NewTopic
from ottla.net.service import Deferred
from ottla.records.builder import NewRecord, build_batch
from ottla.wire.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.apis.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from ottla.wire.header import encode_request_frame, read_response_header
from tests.unit.broker.local_connection import connected
from tests.waiting import run_async, until

TOPIC, FOLLOWER, VERSION = "t", 999, 12


class Leader:
    """Of two partitions, with a follower that the test plays."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._dispatch = Dispatch(broker, broker.handlers)
        self._session_id = self._session_epoch = 0

    async def begin(self) -> None:
        await self.broker.topic_admin.create(NewTopic(TOPIC, 2, 1))
        own = self.broker.broker_id
        states = [
            LeaderAndIsrPartitionState(
                partition_index=index, leader=own, leader_epoch=5, isr=[own, FOLLOWER], replicas=[own, FOLLOWER]
            )
            for index in (0, 1)
        ]
        topic_id = self.broker.image.topics[TOPIC].topic_id
        state = LeaderAndIsrTopicState(topic_name=TOPIC, topic_id=topic_id, partition_states=states)
        await self.broker.replicas.apply_leader_and_isr(
            LeaderAndIsrRequest(controller_epoch=self.broker.controller.epoch, topic_states=[state])
        )

    def append(self, index: int) -> None:
        now_ms = self.broker.clock.wall_ms()
        records = memoryview(bytearray(build_batch([NewRecord(None, b"v", (), now_ms)])))
        partition = self.broker.replicas.led(TOPIC, index)
        self.broker.replicas.append(partition, records, requires_all_replicas=True, now_ms=now_ms)

    async def fetch(self, wait_ms: int = 20, **offsets: int) -> dict[int, tuple[int, bool]]:
        """Names partitions `p0` and `p1`; returns high watermarks, and whether records came, of those in the reply."""
        asked = [
            FetchPartition(partition=int(name[1:]), fetch_offset=offset, partition_max_bytes=1000)
            for name, offset in offsets.items()
        ]
        request = FetchRequest(
            replica_id=FOLLOWER,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=10_000,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=[FetchTopic(topic=TOPIC, partitions=asked)] if asked else [],
        )
        frame = memoryview(bytearray(encode_request_frame(request, VERSION, 7, "test")[4:]))
        outcome: Any = self._dispatch.handle(connected(self.broker), frame)
        if isinstance(outcome, Deferred):
            await until(lambda: outcome.pieces is not None)
            outcome = outcome.pieces
        data = b"".join(
            os.pread(piece.file.fd, piece.length, piece.position) if isinstance(piece, FileSlice) else bytes(piece)
            for piece in outcome
        )[4:]
        _, position = read_response_header(data, request.API_KEY, VERSION)
        response, _ = FetchResponse.decode(data, VERSION, position)
        assert response.error_code == 0
        self._session_id, self._session_epoch = response.session_id, self._session_epoch + 1
        return {
            answer.partition_index: (answer.high_watermark, bool(answer.records))
            for topic in response.responses
            for answer in topic.partitions
        }


def in_leader(tmp_path: Path, scenario: Any) -> None:
    async def run() -> None:
        config = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "data")}
        broker = await start_broker(BrokerConfig(config))
        try:
            leader = Leader(broker)
            await leader.begin()
            await scenario(leader)
        finally:
            await broker.stop()

    run_async(run())


def test_a_high_watermark_that_the_request_itself_has_moved_is_told_with_the_next_reply(tmp_path: Path) -> None:
    async def scenario(leader: Leader) -> None:
        leader.append(0)
        assert await leader.fetch(p0=0, p1=0) == {0: (0, True), 1: (0, False)}
        leader.append(1)
        assert (await leader.fetch(p0=1))[1] == (0, True)
        assert await leader.fetch(p1=1) == {0: (1, False), 1: (1, False)}
        assert await leader.fetch() == {}, "everything was told"

    in_leader(tmp_path, scenario)


def test_what_was_sent_and_not_asked_beyond_is_sent_again(tmp_path: Path) -> None:
    async def scenario(leader: Leader) -> None:
        leader.append(0)
        await leader.fetch(p0=0, p1=0)
        assert await leader.fetch() == {0: (0, True)}
        assert await leader.fetch() == {0: (0, True)}

    in_leader(tmp_path, scenario)


def test_a_follower_that_waits_is_told_that_its_leader_leads_no_more(tmp_path: Path) -> None:
    async def scenario(leader: Leader) -> None:
        await leader.fetch(p0=0, p1=0)
        await leader.fetch(wait_ms=1)
        leader.broker.parked.loop.call_later(0.01, leader.broker.replicas.drop_roles)
        assert set(await leader.fetch(wait_ms=600_000)) == {0, 1}

    in_leader(tmp_path, scenario)


def test_a_follower_that_has_left_the_in_sync_set_is_looked_at_again(tmp_path: Path) -> None:
    """Although it has everything: with its next request it may join."""

    async def scenario(leader: Leader) -> None:
        replicas = leader.broker.replicas
        proposed: list[Any] = []
        replicas.propose_isr = lambda partition, proposal: proposed.append(partition.tp.partition)
        await leader.fetch(p0=0, p1=0)
        assert await leader.fetch() == {} and proposed == []
        partition = replicas.led(TOPIC, 1)
        assert partition.leader is not None
        partition.leader.isr_confirmed([leader.broker.broker_id], partition.leader.partition_epoch + 1)
        replicas.isr_changed(partition)
        for _ in range(3):
            partition.leader.isr_refused()
            proposed.clear()
            await leader.fetch()
            assert set(proposed) == {1}

    in_leader(tmp_path, scenario)


def test_a_follower_that_was_answered_is_not_woken_any_more(tmp_path: Path) -> None:
    async def scenario(leader: Leader) -> None:
        await leader.fetch(p0=0, p1=0)
        assert await leader.fetch(wait_ms=1) == {}
        parked = leader.broker.parked
        assert not parked._soon
        leader.append(1)
        assert not parked._soon, "nobody waits"
        assert set(await leader.fetch()) == {1}

    in_leader(tmp_path, scenario)
