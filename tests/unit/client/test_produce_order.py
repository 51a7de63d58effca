"""Requests are written in the order in which they were made, whichever way each of them takes."""

from __future__ import annotations

from ottla import aio
from ottla.records.batch import read_header
from ottla.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.apis.metadata import MetadataRequest, MetadataResponsePartition, MetadataResponseTopic
from ottla.wire.apis.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.waiting import run_async

from .scripted_broker import ScriptedBroker

TOPIC = "ordered"
BATCHES = 4


def stored(request: ProduceRequest) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    PartitionProduceResponse(index=part.index, base_offset=0) for part in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


async def send_batches(broker: ScriptedBroker) -> None:
    async with broker:
        topic = MetadataResponseTopic(
            name=TOPIC,
            partitions=[
                MetadataResponsePartition(partition_index=index, leader_id=1, leader_epoch=0) for index in range(2)
            ],
        )
        broker.on(MetadataRequest, lambda _: broker.metadata(topics=[topic]))
        broker.on(InitProducerIdRequest, lambda _: InitProducerIdResponse(producer_id=7, producer_epoch=0))
        broker.on(ProduceRequest, stored)
        async with aio.Producer(bootstrap_servers=broker.address, batch_size=1_000, linger_ms=10_000) as producer:
            for partition in range(2):
                await producer.send(TOPIC, b"connected", partition=partition)
                await producer.flush()
            # Without a pause for the loop, so that all of them are taken out at once.
            for _ in range(BATCHES):
                await producer.send(TOPIC, bytes(900), partition=0)
            await producer.send(TOPIC, bytes(900), partition=1)
            await producer.flush()


def test_a_request_of_one_batch_does_not_overtake_one_of_several() -> None:
    broker = ScriptedBroker()
    run_async(send_batches(broker))
    shapes = []
    sequences: dict[int, list[int]] = {0: [], 1: []}
    for request in broker.asked(ProduceRequest):
        parts = request.topic_data[0].partition_data
        shapes.append(len(parts))
        for part in parts:
            sequences[part.index].append(read_header(part.records).base_sequence)
    assert shapes[2:] == [2] + [1] * (BATCHES - 1), "one request of two batches, then those with one"
    assert sequences == {0: list(range(1 + BATCHES)), 1: [0, 1]}
