"""Asks the controller for other in-sync sets (AlterPartition, KIP-497): one request at a time, with all that waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.partition import Partition
from ottla.broker.tasks import Tasks
from ottla.machines.replication.isr import ProposeIsr
from ottla.wire.apis.alter_partition import (
    AlterPartitionBrokerState,
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
)

log = logging.getLogger(__name__)

RETRY_MS = 100

AskController = Callable[[AlterPartitionRequest], Awaitable[AlterPartitionResponse]]


class IsrChanges:
    def __init__(
        self,
        broker_id: int,
        ask: AskController,
        tasks: Tasks,
        *,
        broker_epoch: Callable[[], int],
        on_changed: Callable[[Partition], None],
    ) -> None:
        """`on_changed` is told of partitions whose set is another one now: what is committed may have moved."""
        self._broker_id = broker_id
        self._ask = ask
        self._tasks = tasks
        self._broker_epoch = broker_epoch
        self._on_changed = on_changed
        self._waiting: dict[TopicPartition, tuple[Partition, ProposeIsr]] = {}
        self._is_asking = False

    def propose(self, partition: Partition, proposal: ProposeIsr) -> None:
        self._waiting[partition.tp] = partition, proposal
        if not self._is_asking:
            self._is_asking = True
            self._tasks.spawn(self._run())

    async def _run(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, {}
                try:
                    response = await self._ask(self._request(waiting))
                    if response.error_code != ErrorCode.NONE:
                        raise KafkaError(code=ErrorCode(response.error_code))
                except (KafkaError, OSError) as e:
                    log.warning("the controller cannot be asked for in-sync sets, next try in %d ms: %s", RETRY_MS, e)
                    self._waiting = {**waiting, **self._waiting}
                    await asyncio.sleep(RETRY_MS / 1000)
                    self._drop_outdated()
                    continue
                self._take(waiting, response)
        finally:
            self._is_asking = False

    def _request(self, waiting: dict[TopicPartition, tuple[Partition, ProposeIsr]]) -> AlterPartitionRequest:
        own = {self._broker_id: self._broker_epoch()}
        topics: dict[str, AlterPartitionRequestTopic] = {}
        for tp, (partition, proposal) in waiting.items():
            topic = topics.setdefault(
                tp.topic, AlterPartitionRequestTopic(topic_name=tp.topic, topic_id=partition.topic_id)
            )
            topic.partitions.append(
                AlterPartitionRequestPartition(
                    partition_index=tp.partition,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[
                        AlterPartitionBrokerState(
                            broker_id=member, broker_epoch={**own, **proposal.broker_epochs}[member]
                        )
                        for member in proposal.isr
                    ],
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )

    def _drop_outdated(self) -> None:
        """Whoever does not lead any more, or leads anew, asks for nothing."""
        self._waiting = {
            tp: (partition, proposal)
            for tp, (partition, proposal) in self._waiting.items()
            if partition.leader is not None and partition.leader.leader_epoch == proposal.leader_epoch
        }

    def _take(
        self, waiting: dict[TopicPartition, tuple[Partition, ProposeIsr]], response: AlterPartitionResponse
    ) -> None:
        topic_ids = {partition.topic_id: tp.topic for tp, (partition, _) in waiting.items()}
        answers = {
            TopicPartition(topic_ids.get(topic.topic_id, topic.topic_name), answer.partition_index): answer
            for topic in response.topics
            for answer in topic.partitions
        }
        for tp, (partition, proposal) in waiting.items():
            self._take_one(partition, proposal, answers.get(tp))

    def _take_one(
        self, partition: Partition, proposal: ProposeIsr, answer: AlterPartitionResponsePartition | None
    ) -> None:
        leader = partition.leader
        if leader is None or leader.leader_epoch != proposal.leader_epoch:
            return
        if answer is not None and answer.error_code == ErrorCode.NONE and answer.leader_epoch != leader.leader_epoch:
            return  # More has been decided since: the role that comes with it says who is in sync.
        if answer is not None and answer.error_code == ErrorCode.NONE:
            before = leader.isr
            leader.isr_confirmed(answer.isr, answer.partition_epoch)
            if leader.isr != before:
                log.info("%s: in sync are now %s, before %s", partition.tp, sorted(leader.isr), sorted(before))
        else:
            code = ErrorCode(answer.error_code).name if answer is not None else "no answer"
            log.info("%s: the controller refused the in-sync set %s: %s", partition.tp, list(proposal.isr), code)
            leader.isr_refused()
        self._on_changed(partition)
