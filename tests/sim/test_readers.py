"""Readers of a simulated cluster: from where they read, whom they ask, and what must not be gone."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition, Uuid
from ottla.records.batch import iter_headers
from ottla.records.builder import build_batch
from ottla.testing.sim.checks import ViolationError
from ottla.testing.sim.clients import SimReader
from ottla.wire.apis.fetch import FetchablePartitionResponse, FetchableTopicResponse, FetchRequest, FetchResponse
from ottla.wire.apis.metadata import MetadataRequest
from tests.sim.answering import AnsweringCluster, Told, for_a_while, metadata

TP = TopicPartition("safe", 1)
TOPIC_ID = Uuid(bytes(range(16)))
LEADERS = metadata(TOPIC_ID, lambda: [(1, 4), (2, 7)])


def fetched(
    code: ErrorCode = ErrorCode.NONE, records: bytes | None = b"", *, of_all: ErrorCode = ErrorCode.NONE
) -> FetchResponse:
    answer = FetchablePartitionResponse(partition_index=1, error_code=code, records=records)
    return FetchResponse(
        error_code=of_all, responses=[FetchableTopicResponse(topic="safe", topic_id=TOPIC_ID, partitions=[answer])]
    )


def batch(base: int, count: int = 2) -> bytes:
    return build_batch([(None, b"v", (), 1)] * count, base_offset=base)


def reading(*answers: Callable[[], FetchResponse | None], seconds: float = 9.0) -> Any:
    """A reader that is answered so, in turn, and then hears of nothing new."""
    in_order = iter(answers)

    def answer(name: str, request: FetchRequest) -> FetchResponse | None:
        return next(in_order, lambda: None)()

    cluster = AnsweringCluster({MetadataRequest: LEADERS, FetchRequest: answer})
    told = Told()
    reader = SimReader("r", cluster.names, Random(5), told.checks, TP)
    assert reader.position == 0
    return cluster, told, reader, lambda: cluster.run(reader.party, lambda: for_a_while(reader.run(), seconds))


def positions(cluster: AnsweringCluster) -> list[int]:
    found = []
    for name, request in cluster.asked(FetchRequest):
        (topic,) = request.topics
        (partition,) = topic.partitions
        assert name == "broker-2" and topic.topic_id == TOPIC_ID
        assert (partition.partition, partition.current_leader_epoch, partition.partition_max_bytes) == (1, 7, 1 << 20)
        assert (request.max_wait_ms, request.min_bytes) == (300, 1)
        found.append(partition.fetch_offset)
    return found


def test_a_reader_reads_on_behind_what_it_has_read() -> None:
    cluster, told, reader, run = reading(
        lambda: fetched(records=batch(0) + batch(2, 3)),
        lambda: fetched(records=None),
        lambda: FetchResponse(),
        lambda: fetched(records=batch(2, 3) + batch(5)),
    )
    run()
    assert positions(cluster)[:5] == [0, 5, 5, 5, 7]
    assert told.read == [
        (TP, header) for data in (batch(0), batch(2, 3), batch(5)) for _, header in iter_headers(data)
    ], "a batch that begins before the position was read before"
    assert reader.position == 7


@pytest.mark.parametrize(
    ("trouble", "asks_again"),
    [
        (fetched(ErrorCode.NOT_LEADER_OR_FOLLOWER, batch(0)), True),
        (fetched(of_all=ErrorCode.UNKNOWN_TOPIC_ID, records=batch(0)), True),
        (FetchResponse(error_code=ErrorCode.UNKNOWN_TOPIC_ID), True),
        (None, True),
        (fetched(records=None), False),
        (FetchResponse(), False),
    ],
    ids=["not the leader", "unknown topic", "unknown topic alone", "no answer", "no records", "no topic"],
)
def test_a_reader_asks_who_leads_after_any_trouble(trouble: FetchResponse | None, asks_again: bool) -> None:
    asked: list[int] = []

    def good() -> FetchResponse:
        asked.append(len(cluster.asked(MetadataRequest)))
        return fetched(records=batch(0))

    cluster, told, _, run = reading(lambda: trouble, lambda: trouble, good)
    run()
    assert (asked[0] > 2) is asks_again and (asked[0] == 1) is not asks_again
    assert positions(cluster)[:4] == [0, 0, 0, 2]
    assert [header.base_offset for _, header in told.read] == [0]


def test_a_reader_in_trouble_waits_before_it_tries_again() -> None:
    trouble = [lambda: fetched(ErrorCode.NOT_LEADER_OR_FOLLOWER)] * 1000
    cluster, _, _, run = reading(*trouble, seconds=5)
    run()
    assert 20 < len(positions(cluster)) < 100


def test_what_was_read_must_not_go_out_of_range() -> None:
    *_, run = reading(lambda: fetched(records=batch(0)), lambda: fetched(ErrorCode.OFFSET_OUT_OF_RANGE))
    with pytest.raises(ViolationError, match="safe-1: offset 2 was read before, and is out of range now"):
        run()


def test_what_may_be_lost_may_go_out_of_range() -> None:
    cluster, told, _, run = reading(lambda: fetched(ErrorCode.OFFSET_OUT_OF_RANGE), lambda: fetched(records=batch(0)))
    told.checks.excused.add(TP)
    run()
    assert positions(cluster)[:3] == [0, 0, 2]
