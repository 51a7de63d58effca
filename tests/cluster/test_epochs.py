"""Requests between brokers that come too late, too early or from nobody: Kafka's error, and nothing changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import Uuid
from ottla.broker.node import Broker
from ottla.net.connection import Connection
from ottla.wire.apis import response_class
from ottla.wire.apis.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.wire.apis.alter_partition import (
    AlterPartitionBrokerState,
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
)
from ottla.wire.apis.controlled_shutdown import ControlledShutdownRequest
from ottla.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.wire.apis.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from ottla.wire.apis.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from ottla.wire.apis.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.wire.message import Request
from tests.cluster.local_cluster import IDS, LocalCluster, in_cluster, send_some

pytestmark = pytest.mark.timeout(120)

TOPIC = "t"
OTHER_ID = Uuid(bytes(range(16)))
OK = ErrorCode.NONE
SAID = ("refused", "cannot take the role", "is not stopped")


class Asker:
    """Knows what is true of a partition, and makes requests that differ from it in one thing."""

    def __init__(self, cluster: LocalCluster) -> None:
        leader = cluster.leader_of(TOPIC)
        assert leader is not None
        self.cluster = cluster
        self.leader = leader
        self.controller = cluster.controller
        self.follower = next(broker for broker in cluster.brokers.values() if broker is not leader)
        copy = cluster.copy(leader, TOPIC)
        assert copy.leader is not None
        self.topic_id = copy.topic_id
        self.epoch = copy.leader_epoch
        self.partition_epoch = copy.leader.partition_epoch
        self.end_offset = copy.log.log_end_offset

    async def ask(self, broker: Broker, request: Request) -> Any:
        connection = await Connection.connect(
            "127.0.0.1", broker.endpoints[0].port, client_id="stranger", connect_timeout_ms=10_000
        )
        try:
            await connection.negotiate()
            return await connection.request(request, response_class(request.API_KEY), timeout_ms=10_000)
        finally:
            connection.close()

    async def roles(self, **given: Any) -> tuple[int, ...]:
        state = LeaderAndIsrPartitionState(
            partition_index=0,
            leader=self.leader.broker_id,
            leader_epoch=given.get("epoch", self.epoch),
            isr=list(IDS),
            partition_epoch=self.partition_epoch,
            replicas=given.get("replicas", list(IDS)),
        )
        topic = LeaderAndIsrTopicState(
            topic_name=TOPIC, topic_id=given.get("topic_id", self.topic_id), partition_states=[state]
        )
        response = await self.ask(self.follower, LeaderAndIsrRequest(**self._head(given), topic_states=[topic]))
        return response.error_code, *(e.error_code for told in response.topics for e in told.partition_errors)

    async def stop(self, **given: Any) -> tuple[int, ...]:
        state = StopReplicaPartitionState(
            partition_index=0, leader_epoch=given.get("epoch", self.epoch), delete_partition=True
        )
        topic = StopReplicaTopicState(topic_name=TOPIC, partition_states=[state])
        response = await self.ask(self.follower, StopReplicaRequest(**self._head(given), topic_states=[topic]))
        return response.error_code, *(error.error_code for error in response.partition_errors)

    async def metadata(self, **given: Any) -> tuple[int, ...]:
        state = UpdateMetadataPartitionState(partition_index=0, leader=-2)
        topic = UpdateMetadataTopicState(topic_name=TOPIC, topic_id=self.topic_id, partition_states=[state])
        response = await self.ask(self.follower, UpdateMetadataRequest(**self._head(given), topic_states=[topic]))
        return (response.error_code,)

    def _head(self, given: dict[str, Any]) -> dict[str, Any]:
        return {
            "controller_id": self.controller.broker_id,
            "controller_epoch": self.controller.controller.epoch + given.get("controller_epoch", 0),
            "broker_epoch": given.get("broker_epoch", self.follower.orders.broker_epoch),
        }

    async def isr(self, to: Broker | None = None, **given: Any) -> tuple[int, ...]:
        members = given.get("isr", {self.leader.broker_id: -1})
        partition = AlterPartitionRequestPartition(
            partition_index=given.get("partition", 0),
            leader_epoch=given.get("epoch", self.epoch),
            partition_epoch=given.get("partition_epoch", self.partition_epoch),
            new_isr_with_epochs=[AlterPartitionBrokerState(broker_id=i, broker_epoch=e) for i, e in members.items()],
        )
        asker = given.get("asker", self.leader)
        request = AlterPartitionRequest(
            broker_id=given.get("broker_id", asker.broker_id),
            broker_epoch=given.get("broker_epoch", asker.orders.broker_epoch),
            topics=[AlterPartitionRequestTopic(topic_id=given.get("topic_id", self.topic_id), partitions=[partition])],
        )
        response = await self.ask(to or self.controller, request)
        return response.error_code, *(p.error_code for topic in response.topics for p in topic.partitions)

    async def shutdown(self, to: Broker, broker_id: int, broker_epoch: int) -> tuple[int, ...]:
        response = await self.ask(to, ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch))
        return (response.error_code,)

    async def producer_ids(self, to: Broker, broker_id: int, broker_epoch: int) -> tuple[int, ...]:
        response = await self.ask(to, AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch))
        return (response.error_code,)

    async def fetch(self, to: Broker | None = None, **given: Any) -> tuple[int, ...]:
        partition = FetchPartition(
            partition=0,
            current_leader_epoch=given.get("epoch", self.epoch),
            fetch_offset=given.get("offset", 0),
            partition_max_bytes=1000,
        )
        request = FetchRequest(
            replica_state=ReplicaState(
                replica_id=given.get("replica", self.follower.broker_id), replica_epoch=given.get("broker_epoch", -1)
            ),
            max_bytes=1000,
            session_epoch=-1,
            topics=[FetchTopic(topic_id=given.get("topic_id", self.topic_id), partitions=[partition])],
        )
        response = await self.ask(to or self.leader, request)
        return response.error_code, *(p.error_code for topic in response.responses for p in topic.partitions)

    def facts(self) -> Any:
        """All that one of these requests could change."""
        copies = [
            (copy.leader_id, copy.leader_epoch, copy.leader and copy.leader.isr, copy.log.log_end_offset)
            for copy in self.cluster.copies(TOPIC)
        ]
        images = [
            (b.image.controller_id, b.image.topics, sorted(b.image.brokers)) for b in self.cluster.brokers.values()
        ]
        state = self.controller.controller.state
        return copies, images, state.topics[TOPIC].partitions, dict(state.stopping)


Row = tuple[str, Callable[[Asker], Awaitable[tuple[int, ...]]], tuple[int, ...]]

ROLES: list[Row] = [
    ("older controller", lambda a: a.roles(epoch=a.epoch + 1, controller_epoch=-1), (11,)),
    ("earlier life", lambda a: a.roles(epoch=a.epoch + 1, broker_epoch=0), (77,)),
    ("same epoch", lambda a: a.roles(), (OK, 11)),
    ("same epoch, life not known", lambda a: a.roles(broker_epoch=-1), (OK, 11)),
    ("older epoch", lambda a: a.roles(epoch=a.epoch - 1), (OK, 11)),
    ("another topic", lambda a: a.roles(epoch=a.epoch + 1, topic_id=OTHER_ID), (OK, 103)),
    ("not a replica", lambda a: a.roles(epoch=a.epoch + 1, replicas=[8, 9]), (OK, 3)),
    ("stop by an older controller", lambda a: a.stop(controller_epoch=-1), (11,)),
    ("stop in an earlier life", lambda a: a.stop(broker_epoch=0), (77,)),
    ("stop of an older epoch", lambda a: a.stop(epoch=a.epoch - 1), (OK, 74)),
    ("metadata of an older controller", lambda a: a.metadata(controller_epoch=-1), (11,)),
    ("metadata for an earlier life", lambda a: a.metadata(broker_epoch=0), (77,)),
]
ISR: list[Row] = [
    ("not the controller", lambda a: a.isr(_other(a, a.controller)), (41,)),
    ("a leader's earlier life", lambda a: a.isr(broker_epoch=0), (77,)),
    ("nobody", lambda a: a.isr(broker_id=9), (77,)),
    ("unknown topic", lambda a: a.isr(topic_id=OTHER_ID), (OK, 100)),
    ("unknown partition", lambda a: a.isr(partition=7), (OK, 3)),
    ("older leader epoch", lambda a: a.isr(epoch=a.epoch - 1), (OK, 74)),
    ("newer leader epoch", lambda a: a.isr(epoch=a.epoch + 1), (OK, 41)),
    ("older partition epoch", lambda a: a.isr(partition_epoch=a.partition_epoch - 1), (OK, 95)),
    ("newer partition epoch", lambda a: a.isr(partition_epoch=a.partition_epoch + 1), (OK, 41)),
    ("not the leader", lambda a: a.isr(asker=a.follower), (OK, 42)),
    ("without the leader", lambda a: a.isr(isr={a.follower.broker_id: -1}), (OK, 42)),
    ("not a replica", lambda a: a.isr(isr={a.leader.broker_id: -1, 9: -1}), (OK, 42)),
    ("restarted member", lambda a: a.isr(isr={a.leader.broker_id: -1, a.follower.broker_id: 1}), (OK, 107)),
    ("shutdown not at the controller", lambda a: a.shutdown(_other(a, a.controller), 1, 1), (41,)),
    ("shutdown of an earlier life", lambda a: a.shutdown(a.controller, a.leader.broker_id, 0), (77,)),
    ("shutdown of nobody", lambda a: a.shutdown(a.controller, 9, 9), (8,)),
    ("producer ids not of the controller", lambda a: a.producer_ids(_other(a, a.controller), 1, 1), (41,)),
    ("producer ids in an earlier life", lambda a: a.producer_ids(a.controller, a.leader.broker_id, 0), (77,)),
    ("producer ids for nobody", lambda a: a.producer_ids(a.controller, 9, 9), (102,)),
]
FETCHES: list[Row] = [
    ("no replica", lambda a: a.fetch(replica=9), (OK, 75)),
    ("no replica, without an epoch", lambda a: a.fetch(replica=9, epoch=-1), (OK, 6)),
    ("older leader epoch", lambda a: a.fetch(epoch=a.epoch - 1), (OK, 74)),
    ("newer leader epoch", lambda a: a.fetch(epoch=a.epoch + 1), (OK, 75)),
    ("beyond the end", lambda a: a.fetch(offset=a.end_offset + 1), (OK, 1)),
    ("an earlier life", lambda a: a.fetch(broker_epoch=1), (OK, 6)),
    ("unknown topic", lambda a: a.fetch(topic_id=OTHER_ID), (OK, 100)),
    ("not the leader", lambda a: a.fetch(a.follower, replica=a.leader.broker_id), (OK, 6)),
]


def _other(asker: Asker, than: Broker) -> Broker:
    return next(broker for broker in asker.cluster.brokers.values() if broker is not than)


def test_what_comes_too_late_too_early_or_from_nobody_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: LocalCluster) -> None:
        await cluster.create(TOPIC)
        leader = cluster.leader_of(TOPIC)
        assert leader is not None
        # A leader and a partition that have been through something: no epoch is 0.
        await cluster.stop(leader.broker_id)
        await cluster.start(leader.broker_id)
        async with cluster.producer() as producer:
            await send_some(producer, TOPIC, 20, "v")
        await cluster.in_sync(TOPIC, 1, *IDS)
        asker = Asker(cluster)
        before = asker.facts()
        wrong = []
        for name, send, expected in [*ROLES, *ISR, *FETCHES]:
            caplog.clear()
            with caplog.at_level("INFO"):
                found = await send(asker)
            lines = [line for record in caplog.records if any(words in (line := record.message) for words in SAID)]
            is_told = "same epoch" not in name and (name, send, expected) not in FETCHES
            if expected != (OK, 100) and len(lines) != is_told:
                wrong.append(f"{name}: said {lines}")
            if found != expected:
                wrong.append(f"{name}: {found}, not {expected}")
            if asker.facts() != before:
                wrong.append(f"{name}: {asker.facts()} was {before}")
                break
        assert not wrong, "\n".join(wrong)
        async with cluster.producer() as producer:
            await send_some(producer, TOPIC, 20, "after")
        await cluster.in_sync(TOPIC, 1, *IDS)
        cluster.assert_identical(TOPIC, 1)

    in_cluster(tmp_path, scenario)


def test_a_block_of_producer_ids_belongs_to_one_broker(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster) -> None:
        await cluster.create(TOPIC)
        asker = Asker(cluster)
        blocks = []
        for broker in (asker.leader, asker.follower):
            epoch = broker.orders.broker_epoch
            request = AllocateProducerIdsRequest(broker_id=broker.broker_id, broker_epoch=epoch)
            given = await asker.ask(asker.controller, request)
            blocks.append(range(given.producer_id_start, given.producer_id_start + given.producer_id_len))
        own = await asker.controller.producer_ids.next()
        assert [len(block) for block in blocks] == [1000, 1000]
        assert len({*blocks[0], *blocks[1], own}) == 2001

    in_cluster(tmp_path, scenario)
