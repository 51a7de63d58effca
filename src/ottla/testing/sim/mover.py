"""An operator of a simulated cluster who cannot leave it alone: partitions are moved, and moves called off again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.testing.sim.clients import SimClient
from ottla.wire.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)

_PAUSE_S = 3.0
_FEWEST_REPLICAS = 2
"""With less, one broker that is away would be reason enough for a producer to stand still."""


class SimMover(SimClient):
    def __init__(
        self,
        name: str,
        brokers: list[str],
        draw: Random,
        note: Callable[[str], None],
        broker_ids: Sequence[int],
        partitions: Sequence[TopicPartition],
    ) -> None:
        super().__init__(name, brokers, draw)
        self._note = note
        self._broker_ids = broker_ids
        self._partitions = partitions

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.draw.uniform(0.1, 2.0) * _PAUSE_S)
            tp = self.draw.choice(self._partitions)
            replicas = self._any_replicas() if self.draw.random() < 0.8 else None
            try:
                await self._move(tp, replicas)
            except KafkaError:
                # Somebody who is away, or is not the controller. It does not matter which move it is.
                continue

    def _any_replicas(self) -> list[int]:
        count = self.draw.randint(_FEWEST_REPLICAS, len(self._broker_ids))
        return self.draw.sample(list(self._broker_ids), count)

    async def _move(self, tp: TopicPartition, replicas: list[int] | None) -> None:
        wanted = ReassignablePartition(partition_index=tp.partition, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=tp.topic, partitions=[wanted])])
        response = await self.ask(self.any_broker(), request, AlterPartitionReassignmentsResponse)
        for topic in response.responses:
            for answer in topic.partitions:
                if answer.error_code == ErrorCode.NONE:
                    self.done_so_far += 1
                    self._note(f"move: {tp} {'stays' if replicas is None else f'goes to {replicas}'}")
