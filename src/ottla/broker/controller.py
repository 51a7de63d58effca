"""The controller: elects partition leaders, keeps the cluster's state in the metadata store, and tells the brokers.

Every write it makes is a commit that checks the controller epoch, so a controller that was replaced without noticing
can change nothing. Brokers learn of its decisions through LeaderAndIsr, UpdateMetadata and StopReplica, sent over a
`BrokerLink`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from ottla.base.clock import Clock
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.cluster_state import ClusterState, PartitionState
from ottla.machines.cluster.election import Elected, elect
from ottla.machines.cluster.image import LEADER_DURING_DELETE, NO_LEADER
from ottla.metadata import paths
from ottla.metadata.store import Check, Create, MetadataStore, NodeExistsError, Operation, Set
from ottla.wire.apis.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from ottla.wire.apis.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from ottla.wire.apis.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.wire.message import Request, Response

log = logging.getLogger(__name__)

SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class BrokerLink(Protocol):
    """How the controller reaches a broker, itself included."""

    async def send(self, broker_id: int, request: Request) -> Response: ...


class Controller:
    def __init__(
        self,
        broker_id: int,
        store: MetadataStore,
        link: BrokerLink,
        clock: Clock,
        *,
        unclean_election_allowed: Callable[[str], bool],
    ) -> None:
        self.broker_id = broker_id
        self.store = store
        self.state = ClusterState()
        self.epoch = -1
        self.mutation = asyncio.Lock()
        """Held by whoever changes the cluster: one decision at a time, each on the result of the last."""
        self._link = link
        self._clock = clock
        self._unclean_election_allowed = unclean_election_allowed
        self._epoch_version = -1
        self._active = False

    @property
    def is_active(self) -> bool:
        return self._active

    def require_active(self) -> None:
        if not self._active:
            raise KafkaError(code=ErrorCode.NOT_CONTROLLER)

    async def campaign(self) -> bool:
        """Tries to become the controller; False if another broker is."""
        node = await self.store.get(paths.CONTROLLER_EPOCH)
        if node is None:
            await self.store.commit([Create(paths.CONTROLLER_EPOCH, b"0")])
            node = await self.store.get(paths.CONTROLLER_EPOCH)
            assert node is not None
        epoch = int(node.data) + 1
        try:
            await self.store.commit(
                [
                    Create(
                        paths.CONTROLLER,
                        paths.encode_controller(self.broker_id, self._clock.wall_ms()),
                        ephemeral=True,
                    ),
                    Set(paths.CONTROLLER_EPOCH, str(epoch).encode(), node.version),
                ]
            )
        except NodeExistsError:
            return False
        self.epoch = epoch
        self._epoch_version = node.version + 1
        await self._take_over()
        return True

    async def commit(self, operations: Sequence[Operation]) -> list[str]:
        """Commits as this controller: refused by the store once another one has been elected."""
        return (await self.store.commit([Check(paths.CONTROLLER_EPOCH, self._epoch_version), *operations]))[1:]

    async def _take_over(self) -> None:
        async with self.mutation:
            self.state = await ClusterState.load(self.store)
            self._active = True
            await self.announce_brokers()
            await self.elect_leaders(self.state.all_partitions())
        log.info("broker %d is the controller, epoch %d", self.broker_id, self.epoch)

    async def elect_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        """Elects a leader where one is needed, in one commit, and announces all of `partitions`.

        A leader of an earlier incarnation is elected anew, under a new epoch: after a crash its log may have lost its
        tail, and only a new epoch tells consumers that had read it (KIP-320).
        """
        partitions = list(partitions)
        operations: list[Operation] = []
        for tp in partitions:
            partition = self.state.partition(tp)
            elected = elect(
                partition.replicas,
                partition.isr,
                self.state.brokers,
                unclean_allowed=self._unclean_election_allowed(tp.topic),
            )
            if elected is None:
                elected = Elected(NO_LEADER, partition.isr)
            elif elected.is_unclean:
                log.warning("%s: broker %d leads although it was not in sync; records may be lost", tp, elected.leader)
            partition.leader, partition.isr = elected.leader, elected.isr
            partition.leader_epoch += 1
            operations.append(self.state_operation(tp, partition))
        if operations:
            await self.commit(operations)
            for tp in partitions:
                self.state.partition(tp).partition_epoch += 1
            await self.announce(partitions)

    def state_operation(self, tp: TopicPartition, partition: PartitionState) -> Operation:
        data = paths.PartitionStateNode(partition.leader, partition.leader_epoch, partition.isr, self.epoch).encode()
        path = paths.partition_state(*tp)
        if partition.partition_epoch < 0:
            return Create(path, data)
        return Set(path, data, partition.partition_epoch)

    async def announce_brokers(self) -> None:
        await self._update_metadata([], self.state.brokers)

    async def announce(self, partitions: Sequence[TopicPartition], *, are_new: bool = False) -> None:
        """Tells the replicas of `partitions` their roles, then every broker who leads."""
        by_broker: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            for replica in self.state.partition(tp).replicas:
                if replica in self.state.brokers:
                    by_broker.setdefault(replica, []).append(tp)
        for broker_id, mine in sorted(by_broker.items()):
            await self._link.send(broker_id, self._leader_and_isr(mine, are_new=are_new))
        await self._update_metadata(partitions, self.state.brokers)

    async def announce_deletion(self, topic: str) -> None:
        """Makes every broker forget the topic, and its replicas delete their logs."""
        state = self.state.topics[topic]
        by_broker: dict[int, list[StopReplicaPartitionState]] = {}
        for index, partition in state.partitions.items():
            for replica in partition.replicas:
                if replica in self.state.brokers:
                    stop = StopReplicaPartitionState(partition_index=index, leader_epoch=-2, delete_partition=True)
                    by_broker.setdefault(replica, []).append(stop)
            partition.leader = LEADER_DURING_DELETE
        await self._update_metadata([TopicPartition(topic, index) for index in state.partitions], self.state.brokers)
        for broker_id, stops in sorted(by_broker.items()):
            request = StopReplicaRequest(
                controller_id=self.broker_id,
                controller_epoch=self.epoch,
                topic_states=[StopReplicaTopicState(topic_name=topic, partition_states=stops)],
            )
            await self._link.send(broker_id, request)

    def _leader_and_isr(self, partitions: Sequence[TopicPartition], *, are_new: bool) -> LeaderAndIsrRequest:
        by_topic: dict[str, list[LeaderAndIsrPartitionState]] = {}
        for tp in partitions:
            partition = self.state.partition(tp)
            by_topic.setdefault(tp.topic, []).append(
                LeaderAndIsrPartitionState(
                    partition_index=tp.partition,
                    controller_epoch=self.epoch,
                    leader=partition.leader,
                    leader_epoch=partition.leader_epoch,
                    isr=partition.isr,
                    partition_epoch=partition.partition_epoch,
                    replicas=partition.replicas,
                    is_new=are_new,
                )
            )
        return LeaderAndIsrRequest(
            controller_id=self.broker_id,
            controller_epoch=self.epoch,
            topic_states=[
                LeaderAndIsrTopicState(
                    topic_name=name, topic_id=self.state.topics[name].topic_id, partition_states=states
                )
                for name, states in by_topic.items()
            ],
        )

    async def _update_metadata(self, partitions: Sequence[TopicPartition], brokers: Iterable[int]) -> None:
        by_topic: dict[str, list[UpdateMetadataPartitionState]] = {}
        for tp in partitions:
            partition = self.state.partition(tp)
            by_topic.setdefault(tp.topic, []).append(
                UpdateMetadataPartitionState(
                    partition_index=tp.partition,
                    controller_epoch=self.epoch,
                    leader=partition.leader,
                    leader_epoch=partition.leader_epoch,
                    isr=partition.isr,
                    zk_version=partition.partition_epoch,
                    replicas=partition.replicas,
                    offline_replicas=[r for r in partition.replicas if r not in self.state.brokers],
                )
            )
        request = UpdateMetadataRequest(
            controller_id=self.broker_id,
            controller_epoch=self.epoch,
            topic_states=[
                UpdateMetadataTopicState(
                    topic_name=name, topic_id=self.state.topics[name].topic_id, partition_states=states
                )
                for name, states in by_topic.items()
            ],
            live_brokers=[_live_broker(broker_id, node) for broker_id, node in sorted(self.state.brokers.items())],
        )
        for broker_id in sorted(brokers):
            await self._link.send(broker_id, request)


def _live_broker(broker_id: int, node: paths.BrokerNode) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        id=broker_id,
        endpoints=[
            UpdateMetadataEndpoint(
                port=endpoint.port,
                host=endpoint.host,
                listener=endpoint.listener,
                security_protocol=SECURITY_PROTOCOLS[protocol],
            )
            for endpoint, protocol in node.endpoints
        ],
        rack=node.rack,
    )
