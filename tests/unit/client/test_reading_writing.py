"""Writing batches and reading them back, against brokers none of us wrote."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest

from ottla.base.errors import CorruptBatchError, ErrorCode, KafkaError
from ottla.base.types import NIL_UUID, TopicPartition
from ottla.client.cluster import Cluster
from ottla.client.reading import EARLIEST, LATEST, Isolation, PartitionReader, find_offset
from ottla.client.writing import write_batch
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.control import end_transaction_marker
from ottla.wire.apis.fetch import (
    AbortedTransaction,
    FetchablePartitionResponse,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
)
from ottla.wire.apis.metadata import MetadataRequest, MetadataResponsePartition, MetadataResponseTopic

from .scripted_broker import ScriptedBroker

_names = itertools.count()


def run(mock_cluster: str, scenario: Callable[[Cluster, str], Awaitable[None]]) -> None:
    async def wrapped() -> None:
        cluster = await Cluster.connect(mock_cluster, client_id="test")
        try:
            name = f"topic-{next(_names)}"
            await cluster.topic(name, create_missing=True)
            await scenario(cluster, name)
        finally:
            cluster.close()

    asyncio.run(wrapped())


def values(*texts: str) -> list[tuple[bytes | None, bytes | None, tuple[()], int]]:
    return [(None, text.encode(), (), 1000 + index) for index, text in enumerate(texts)]


@pytest.mark.parametrize("codec", list(Codec))
def test_what_is_written_is_read(mock_cluster: str, codec: Codec) -> None:
    async def scenario(cluster: Cluster, name: str) -> None:
        target = TopicPartition(name, 1)
        assert await write_batch(cluster, target, build_batch(values("a", "b"), codec=codec)) == 0
        assert await write_batch(cluster, target, build_batch(values("c"), codec=codec)) == 2
        reader = PartitionReader(cluster, {target: 0})
        fetched = []
        while reader.positions[target] < 3:
            fetched += await reader.read()
        assert [(item.record.offset, item.record.value) for item in fetched] == [(0, b"a"), (1, b"b"), (2, b"c")]

    run(mock_cluster, scenario)


def test_reading_starts_inside_a_batch(mock_cluster: str) -> None:
    async def scenario(cluster: Cluster, name: str) -> None:
        target = TopicPartition(name, 0)
        await write_batch(cluster, target, build_batch(values("a", "b", "c")))
        fetched = await PartitionReader(cluster, {target: 2}).read()
        assert [item.record.value for item in fetched] == [b"c"]

    run(mock_cluster, scenario)


def test_several_partitions_on_several_brokers(mock_cluster: str) -> None:
    async def scenario(cluster: Cluster, name: str) -> None:
        targets = [TopicPartition(name, partition) for partition in range(3)]
        for target in targets:
            await write_batch(cluster, target, build_batch(values(str(target.partition))))
        reader = PartitionReader(cluster, dict.fromkeys(targets, 0))
        seen: set[bytes | None] = set()
        while len(seen) < 3:
            seen |= {item.record.value for item in await reader.read()}
        assert seen == {b"0", b"1", b"2"}

    run(mock_cluster, scenario)


def test_first_and_last_offsets(mock_cluster: str) -> None:
    async def scenario(cluster: Cluster, name: str) -> None:
        target = TopicPartition(name, 0)
        await write_batch(cluster, target, build_batch(values("a", "b")))
        assert await find_offset(cluster, target, EARLIEST) == 0
        assert await find_offset(cluster, target, LATEST) == 2

    run(mock_cluster, scenario)


def test_without_acks_nothing_is_waited_for(mock_cluster: str) -> None:
    async def scenario(cluster: Cluster, name: str) -> None:
        target = TopicPartition(name, 0)
        assert await write_batch(cluster, target, build_batch(values("a")), acks=0) == -1

    run(mock_cluster, scenario)


def fetch_scripted(
    answer: Callable[[FetchRequest], FetchablePartitionResponse], isolation: Isolation = Isolation.READ_UNCOMMITTED
) -> tuple[list[bytes | None], int]:
    """What one read gives, and the position after it, when the broker answers with `answer`."""

    async def scenario() -> tuple[list[bytes | None], int]:
        async with ScriptedBroker() as broker:
            target = TopicPartition("t", 0)
            partition = MetadataResponsePartition(partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1])
            topic = MetadataResponseTopic(name="t", partitions=[partition])
            broker.on(MetadataRequest, lambda _: broker.metadata(topics=[topic]))
            broker.on(
                FetchRequest,
                lambda request: FetchResponse(
                    responses=[FetchableTopicResponse(topic="t", topic_id=NIL_UUID, partitions=[answer(request)])]
                ),
            )
            cluster = await Cluster.connect(broker.address, client_id="test")
            try:
                await cluster.refresh(["t"])
                reader = PartitionReader(cluster, {target: 0}, isolation=isolation)
                return [item.record.value for item in await reader.read()], reader.positions[target]
            finally:
                cluster.close()

    return asyncio.run(scenario())


def transactional(base_offset: int, producer_id: int, *texts: str) -> bytes:
    return build_batch(
        values(*texts),
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


TRANSACTIONS = b"".join(
    [
        transactional(0, 7, "aborted"),
        transactional(1, 8, "kept"),
        end_transaction_marker(7, 0, False, 0, 1, base_offset=2),
        transactional(3, 7, "kept too"),
        end_transaction_marker(7, 0, True, 0, 1, base_offset=4),
        end_transaction_marker(8, 0, True, 0, 1, base_offset=5),
    ]
)


@pytest.mark.parametrize(
    ("isolation", "expected"),
    [
        (Isolation.READ_COMMITTED, [b"kept", b"kept too"]),
        (Isolation.READ_UNCOMMITTED, [b"aborted", b"kept", b"kept too"]),
    ],
)
def test_aborted_transactions_are_hidden_from_committed_readers(isolation: Isolation, expected: list[bytes]) -> None:
    found, position = fetch_scripted(
        lambda _: FetchablePartitionResponse(
            records=TRANSACTIONS, aborted_transactions=[AbortedTransaction(producer_id=7, first_offset=0)]
        ),
        isolation,
    )
    assert found == expected
    assert position == 6


def test_a_leader_that_moved_is_asked_again() -> None:
    answers = iter(
        [
            FetchablePartitionResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
            FetchablePartitionResponse(records=build_batch(values("a"))),
        ]
    )
    assert fetch_scripted(lambda _: next(answers)) == ([b"a"], 1)


def test_an_offset_out_of_range_is_an_error() -> None:
    with pytest.raises(KafkaError, match="t-0") as caught:
        fetch_scripted(lambda _: FetchablePartitionResponse(error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_damaged_batch_is_noticed() -> None:
    damaged = bytearray(build_batch(values("a")))
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatchError, match="fails its checksum"):
        fetch_scripted(lambda _: FetchablePartitionResponse(records=bytes(damaged)))


def test_a_batch_that_is_cut_short_waits_for_the_next_read() -> None:
    whole = build_batch(values("a"))
    cut = build_batch(values("b"), base_offset=1)[:-3]
    assert fetch_scripted(lambda _: FetchablePartitionResponse(records=whole + cut)) == ([b"a"], 1)
