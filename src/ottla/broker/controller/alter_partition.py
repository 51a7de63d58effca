"""In-sync sets that leaders ask for (AlterPartition, KIP-497): the controller's side, for the wire and for itself."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.controller.controller import Controller
from ottla.machines.cluster.isr_changes import IsrAsked, ProposedIsr
from ottla.wire.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    AlterPartitionResponseTopic,
)

log = logging.getLogger(__name__)


async def alter_partition(controller: Controller, request: AlterPartitionRequest) -> AlterPartitionResponse:
    try:
        controller.require_active()
        names = {topic.topic_id: name for name, topic in controller.state.topics.items()}
        proposals = tuple(
            _proposal(TopicPartition(names[topic.topic_id], partition.partition_index), partition)
            for topic in request.topics
            for partition in topic.partitions
            if topic.topic_id in names
        )
        outcome = await controller.submit(IsrAsked(request.broker_id, request.broker_epoch, proposals))
    except KafkaError as e:
        log.info("in-sync sets that broker %d asks for are refused: %s", request.broker_id, e.code.name)
        return AlterPartitionResponse(error_code=e.code)
    refused = [(tp, code) for tp, code in outcome.items() if code != ErrorCode.NONE]
    if refused:
        tp, code = refused[0]
        log.info(
            "%d of %d in-sync sets that broker %d asks for are refused, such as that of %s: %s",
            len(refused),
            len(outcome),
            request.broker_id,
            tp,
            code.name,
        )
    return AlterPartitionResponse(
        topics=[
            AlterPartitionResponseTopic(
                topic_id=topic.topic_id,
                partitions=[
                    _answer(controller, names.get(topic.topic_id), partition.partition_index, outcome)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _proposal(tp: TopicPartition, asked: AlterPartitionRequestPartition) -> ProposedIsr:
    isr = tuple(asked.new_isr) or tuple(member.broker_id for member in asked.new_isr_with_epochs)
    epochs = {member.broker_id: member.broker_epoch for member in asked.new_isr_with_epochs}
    return ProposedIsr(tp, asked.leader_epoch, asked.partition_epoch, isr, epochs)


def _answer(
    controller: Controller, topic: str | None, index: int, outcome: Mapping[TopicPartition, ErrorCode]
) -> AlterPartitionResponsePartition:
    if topic is None:
        return AlterPartitionResponsePartition(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
    tp = TopicPartition(topic, index)
    state, code = controller.state.partition(tp), outcome[tp]
    if code != ErrorCode.NONE or state is None:
        return AlterPartitionResponsePartition(
            partition_index=index, error_code=code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    return AlterPartitionResponsePartition(
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        partition_epoch=state.partition_epoch,
    )
