"""What the controller tells this broker: roles, replicas to stop, and what the cluster looks like.

The same for orders that come over the wire and for those of a controller in this process. One that was meant for an
earlier life of this broker, or comes from a controller that is not one any more, is refused and changes nothing.

One order at a time: to make a log takes its time, and what two controllers say of one partition, the old and the new,
comes over two connections.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import Endpoint, TopicPartition, Uuid
from ottla.broker.replicas import Replicas
from ottla.machines.cluster.image import BrokerImage, ClusterImage, PartitionImage
from ottla.wire.apis.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from ottla.wire.apis.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from ottla.wire.apis.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from ottla.wire.message import Request, Response

log = logging.getLogger(__name__)

Order = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest


class Orders:
    def __init__(self, replicas: Replicas, image: ClusterImage, *, on_metadata: Callable[[set[str]], None]) -> None:
        """`on_metadata` is told of every update, with the names of the topics that are gone by it."""
        self._replicas = replicas
        self._image = image
        self._on_metadata = on_metadata
        self.broker_epoch = -1
        """Of the registration that is in force."""
        self._turn = asyncio.Lock()

    async def obey(self, request: Request) -> Response:
        async with self._turn:
            match request:
                case LeaderAndIsrRequest():
                    return await self._leader_and_isr(request)
                case StopReplicaRequest():
                    return await self._stop_replica(request)
                case UpdateMetadataRequest():
                    return self._update_metadata(request)
                case _:
                    raise TypeError(f"the controller does not send {type(request).__name__}")

    def _check(self, request: Order) -> None:
        try:
            if 0 <= request.broker_epoch < self.broker_epoch:
                raise KafkaError(code=ErrorCode.STALE_BROKER_EPOCH)
            self._replicas.check_controller(request.controller_epoch)
        except KafkaError as e:
            log.warning(
                "%s of controller %d, epoch %d, for broker epoch %d is refused: %s",
                type(request).__name__.removesuffix("Request"),
                request.controller_id,
                request.controller_epoch,
                request.broker_epoch,
                e.code.name,
            )
            raise

    async def _leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        try:
            self._check(request)
            outcome = await self._replicas.apply_leader_and_isr(request)
        except KafkaError as e:
            return LeaderAndIsrResponse(error_code=e.code)
        return LeaderAndIsrResponse(
            topics=[
                LeaderAndIsrTopicError(
                    topic_id=topic.topic_id,
                    partition_errors=[
                        LeaderAndIsrPartitionError(
                            partition_index=state.partition_index,
                            error_code=outcome[TopicPartition(topic.topic_name, state.partition_index)],
                        )
                        for state in topic.partition_states
                    ],
                )
                for topic in request.topic_states
            ]
        )

    async def _stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        try:
            self._check(request)
            outcome = await self._replicas.apply_stop_replica(request)
        except KafkaError as e:
            return StopReplicaResponse(error_code=e.code)
        return StopReplicaResponse(
            partition_errors=[
                StopReplicaPartitionError(topic_name=tp.topic, partition_index=tp.partition, error_code=code)
                for tp, code in outcome.items()
            ]
        )

    def _update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        try:
            self._check(request)
        except KafkaError as e:
            return UpdateMetadataResponse(error_code=e.code)
        names = {topic.topic_name for topic in request.topic_states}
        before = {name: found.topic_id for name in names if (found := self._image.topics.get(name)) is not None}
        self._image.set_brokers(
            request.controller_id,
            request.controller_epoch,
            [
                BrokerImage(
                    broker.id,
                    tuple(Endpoint(e.listener, e.host, e.port) for e in broker.endpoints),
                    broker.rack,
                )
                for broker in request.live_brokers
            ],
        )
        for topic in request.topic_states:
            for state in topic.partition_states:
                if self._replicas.broker_id not in state.replicas:
                    self._replicas.remove_moved_away(
                        TopicPartition(topic.topic_name, state.partition_index), topic.topic_id, state.leader_epoch
                    )
                self._image.set_partition(
                    TopicPartition(topic.topic_name, state.partition_index),
                    topic.topic_id,
                    PartitionImage(
                        state.leader,
                        state.leader_epoch,
                        state.zk_version,
                        tuple(state.replicas),
                        tuple(state.isr),
                        tuple(state.offline_replicas),
                    ),
                )
        self._on_metadata({name for name in names if self._is_gone(name, before.get(name))})
        return UpdateMetadataResponse()

    def _is_gone(self, name: str, topic_id: Uuid | None) -> bool:
        """Whether the topic that had this id is not there any more, or is another one of the same name by now."""
        topic = self._image.topics.get(name)
        return topic is None or (topic_id is not None and topic.topic_id != topic_id)
