"""In-sync sets that leaders ask for (AlterPartition, KIP-497): the controller's side, for the wire and for itself."""

from __future__ import annotations

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.controller.controller import Controller
from ottla.machines.cluster.controller import IsrAsked, ProposedIsr
from ottla.wire.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    AlterPartitionResponseTopic,
)


async def alter_partition(controller: Controller, request: AlterPartitionRequest) -> AlterPartitionResponse:
    try:
        controller.require_active()
        names = {topic.topic_id: name for name, topic in controller.state.topics.items()}
        asked = [
            (TopicPartition(names.get(topic.topic_id, ""), partition.partition_index), partition)
            for topic in request.topics
            for partition in topic.partitions
        ]
        proposals = tuple(
            ProposedIsr(tp, partition.leader_epoch, partition.partition_epoch, _isr(partition))
            for tp, partition in asked
        )
        outcome = await controller.submit(IsrAsked(request.broker_id, request.broker_epoch, proposals))
    except KafkaError as e:
        return AlterPartitionResponse(error_code=e.code)
    answers = {tp: _answer(controller, tp, code) for tp, code in outcome.items()}
    return AlterPartitionResponse(
        topics=[
            AlterPartitionResponseTopic(
                topic_id=topic.topic_id,
                partitions=[
                    answers[TopicPartition(names.get(topic.topic_id, ""), partition.partition_index)]
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _isr(partition: AlterPartitionRequestPartition) -> tuple[int, ...]:
    return tuple(partition.new_isr) or tuple(member.broker_id for member in partition.new_isr_with_epochs)


def _answer(controller: Controller, tp: TopicPartition, code: ErrorCode) -> AlterPartitionResponsePartition:
    state = controller.state.partition(tp)
    if code != ErrorCode.NONE or state is None:
        return AlterPartitionResponsePartition(
            partition_index=tp.partition, error_code=code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    return AlterPartitionResponsePartition(
        partition_index=tp.partition,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        partition_epoch=state.partition_epoch,
    )
