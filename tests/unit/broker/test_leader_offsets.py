"""Where a leader's log begins and ends, as a follower asks it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.replication.leader_offsets import ask_leader_offsets
from ottla.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

PARTITION: Any = SimpleNamespace(tp=TopicPartition("t", 3), leader_epoch=5)


class Leader:
    """Broker 2, with an answer for each question."""

    def __init__(self, *answers: tuple[int, ErrorCode]) -> None:
        self._answers = list(answers)
        self.asked: list[Any] = []

    async def request(self, broker_id: int, request: Any, response_class: Any, *, work: str, timeout_ms: int) -> Any:
        assert (broker_id, response_class, work, timeout_ms) == (2, ListOffsetsResponse, "fetch-0", 70)
        self.asked.append(request)
        offset, code = self._answers.pop(0)
        found = ListOffsetsPartitionResponse(partition_index=3, offset=offset, error_code=code)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[found])])


def ask(leader: Any) -> tuple[int, int]:
    return asyncio.run(ask_leader_offsets(leader, PARTITION, 2, replica_id=9, work="fetch-0", timeout_ms=70))


def test_the_leader_is_asked_for_both_ends_under_its_epoch() -> None:
    leader = Leader((4, ErrorCode.NONE), (10, ErrorCode.NONE))
    assert ask(leader) == (4, 10)
    assert leader.asked == [
        ListOffsetsRequest(
            replica_id=9,
            topics=[
                ListOffsetsTopic(
                    name="t",
                    partitions=[ListOffsetsPartition(partition_index=3, current_leader_epoch=5, timestamp=timestamp)],
                )
            ],
        )
        for timestamp in (-2, -1)
    ]


@pytest.mark.parametrize("answers_before", [0, 1])
def test_an_error_is_told_with_its_code(answers_before: int) -> None:
    answers = [(4, ErrorCode.NONE)] * answers_before + [(-1, ErrorCode.FENCED_LEADER_EPOCH)]
    with pytest.raises(KafkaError) as refused:
        ask(Leader(*answers))
    assert refused.value.code is ErrorCode.FENCED_LEADER_EPOCH
