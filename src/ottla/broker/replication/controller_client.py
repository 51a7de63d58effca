"""What this broker asks of the controller, which may be itself."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.controller.alter_partition import alter_partition
from ottla.broker.controller.controller import Controller
from ottla.broker.replication.peers import Peers
from ottla.machines.cluster.controller import ShutdownAsked
from ottla.machines.cluster.image import ClusterImage
from ottla.machines.cluster.topics import NewTopic
from ottla.wire.apis.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from ottla.wire.apis.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from ottla.wire.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_WORK = "controller"


class ControllerClient:
    def __init__(
        self,
        image: ClusterImage,
        controller: Controller,
        peers: Peers,
        *,
        timeout_ms: int = 30_000,
        topic_timeout_ms: int = 30_000,
    ) -> None:
        """How long an answer may take, and how long a new topic may take to be there."""
        self._image = image
        self._controller = controller
        self._peers = peers
        self._timeout_ms = timeout_ms
        self._topic_timeout_ms = topic_timeout_ms

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        if self._controller.is_active:
            return await alter_partition(self._controller, request)
        return await self._peers.request(
            self._image.controller_id, request, AlterPartitionResponse, work=_WORK, timeout_ms=self._timeout_ms
        )

    async def relieve(self, broker_id: int, broker_epoch: int) -> Sequence[TopicPartition]:
        """Has others take over what this broker leads; returns what nobody could. Raises KafkaError if it was not
        asked for, or the controller did not answer."""
        if self._controller.is_active:
            asked = ShutdownAsked(broker_id, broker_epoch)
            remaining: tuple[TopicPartition, ...] = await self._controller.submit(asked)
            return remaining
        response = await self._peers.request(
            self._image.controller_id,
            ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch),
            ControlledShutdownResponse,
            work=_WORK,
            timeout_ms=self._timeout_ms,
        )
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(code=ErrorCode(response.error_code))
        return [TopicPartition(left.topic_name, left.partition_index) for left in response.remaining_partitions]

    async def create_topic(self, new: NewTopic) -> None:
        """Of another broker that is the controller. Raises KafkaError if it is not created."""
        topic = CreatableTopic(
            name=new.name,
            num_partitions=new.partitions,
            replication_factor=new.replication_factor,
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in new.configs.items()],
        )
        response = await self._peers.request(
            self._image.controller_id,
            CreateTopicsRequest(topics=[topic], timeout_ms=self._topic_timeout_ms),
            CreateTopicsResponse,
            work=_WORK,
            timeout_ms=self._timeout_ms,
        )
        (created,) = response.topics
        if created.error_code != ErrorCode.NONE:
            raise KafkaError(created.error_message or "", code=ErrorCode(created.error_code))
