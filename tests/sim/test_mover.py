"""Who moves partitions in a simulation: what it asks for, and what it counts as done."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.testing.sim.loop import SimLoop
from ottla.testing.sim.mover import SimMover
from ottla.wire.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

PARTITIONS = [TopicPartition("safe", 0), TopicPartition("lax", 1)]
BROKERS = [1, 2, 3, 4]


class Mover(SimMover):
    """Asks nobody: the test answers, in turn with what it was given."""

    def __init__(self, *answers: ErrorCode | Exception) -> None:
        self.noted: list[str] = []
        super().__init__("mover", ["broker-1"], Random(7), self.noted.append, BROKERS, PARTITIONS)
        self.asked: list[tuple[TopicPartition, list[int] | None]] = []
        self.asked_at_s: list[float] = []
        self._answers = answers

    async def ask(self, *arguments: Any, **_: Any) -> Any:
        (topic,) = arguments[1].topics
        (partition,) = topic.partitions
        answer = self._answers[len(self.asked) % len(self._answers)]
        self.asked.append((TopicPartition(topic.name, partition.partition_index), partition.replicas))
        self.asked_at_s.append(asyncio.get_running_loop().time())
        if isinstance(answer, Exception):
            raise answer
        result = ReassignablePartitionResponse(partition_index=partition.partition_index, error_code=answer)
        return AlterPartitionReassignmentsResponse(
            responses=[ReassignableTopicResponse(name=topic.name, partitions=[result])]
        )


def moved(*answers: ErrorCode | Exception, times: int = 500) -> Mover:
    loop = SimLoop()  # type: ignore[abstract]
    mover = Mover(*answers)
    loop.create_task(mover.run())
    loop.run_while(lambda: len(mover.asked) < times)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert loop.failures == []
    return mover


def test_any_partition_goes_anywhere_and_some_moves_are_called_off() -> None:
    mover = moved(ErrorCode.NONE)
    assert {tp for tp, _ in mover.asked} == set(PARTITIONS)
    replicas = [each for _, each in mover.asked if each is not None]
    assert 0.7 < len(replicas) / len(mover.asked) < 0.9
    assert {len(each) for each in replicas} == {2, 3, 4}, "one alone would be too few"
    assert all(len(set(each)) == len(each) and set(each) <= set(BROKERS) for each in replicas)
    pauses_s = [later - at for at, later in zip(mover.asked_at_s, mover.asked_at_s[1:], strict=False)]
    assert 0.3 <= min(pauses_s) < 0.4 and 5.9 < max(pauses_s) <= 6


def test_what_was_begun_counts_and_is_noted() -> None:
    mover = moved(ErrorCode.NONE, ErrorCode.INVALID_REPLICA_ASSIGNMENT, KafkaError(code=ErrorCode.NOT_CONTROLLER))
    assert mover.done_so_far == len(mover.noted) == (len(mover.asked) + 2) // 3
    begun = mover.asked[::3]
    assert mover.noted == [
        f"move: {tp} {'stays' if replicas is None else f'goes to {replicas}'}" for tp, replicas in begun
    ]
