"""Columns on their way through a broker, with a client none of us wrote at the other end."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.records.compression import Codec
from ottla.testing import EmbeddedBroker
from ottla.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.raw_client import RawClient

pa = pytest.importorskip("pyarrow")

from ottla.records.columns import COLUMN_NAMES, decode_columns, encode_columns  # noqa: E402

ROWS = 500
FIRST_MS = 1_700_000_000_000
BY_CODEC = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.config_name)


def row(number: int) -> dict[str, Any]:
    return {
        "key": None if number % 5 == 0 else b"key %d" % number,
        "value": None if number % 7 == 0 else b"value " * (number % 40),
        "timestamp": FIRST_MS + number * 3,
        "headers": [{"key": "n", "value": b"%d" % number}, {"key": "none", "value": None}] if number % 3 == 0 else None,
    }


@BY_CODEC
def test_a_table_arrives_as_messages(ottla_broker: EmbeddedBroker, codec: Codec) -> None:
    topic = ottla_broker.new_topic("table")
    table = pa.Table.from_pylist([row(number) for number in range(ROWS)])
    batches = list(encode_columns(table, codec=codec, max_batch_size=8_000))
    assert len(batches) > 3
    with RawClient(ottla_broker.port) as client:
        for batch in batches:
            data = PartitionProduceData(index=0, records=batch.make())
            topics = [TopicProduceData(name=topic, partition_data=[data])]
            response: Any = client.call(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics), 9)
            (answer,) = response.responses[0].partition_responses
            assert (answer.error_code, answer.base_offset) == (0, batch.first_row)
    consumer = Consumer({"bootstrap.servers": ottla_broker.bootstrap_servers, "group.id": "table"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = consumer.consume(ROWS, timeout=20)
    consumer.close()
    found = [
        {
            "key": message.key(),
            "value": message.value(),
            "timestamp": message.timestamp()[1],
            "headers": [{"key": key, "value": value} for key, value in message.headers() or ()] or None,
        }
        for message in messages
    ]
    assert found == [row(number) for number in range(ROWS)]


@BY_CODEC
def test_messages_arrive_as_columns(ottla_broker: EmbeddedBroker, codec: Codec) -> None:
    topic = ottla_broker.new_topic("messages")
    settings = {"compression.type": codec.config_name, "linger.ms": 20}
    producer = Producer({"bootstrap.servers": ottla_broker.bootstrap_servers, **settings})
    for number in range(ROWS):
        made = row(number)
        headers = [(header["key"], header["value"]) for header in made["headers"] or ()]
        producer.produce(topic, made["value"], made["key"], 0, timestamp=made["timestamp"], headers=headers)
    assert producer.flush(20) == 0
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000_000)
    request = FetchRequest(
        max_wait_ms=1000,
        min_bytes=1,
        max_bytes=10_000_000,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )
    with RawClient(ottla_broker.port) as client:
        response: Any = client.call(request, 12)
    records = response.responses[0].partitions[0].records
    decoded = decode_columns(records, columns=COLUMN_NAMES, topic=topic, start_offset=3)
    assert decoded.next_offset == ROWS
    expected = [row(number) | {"offset": number, "topic": topic} for number in range(3, ROWS)]
    found = decoded.records.to_pylist()
    for one in found:
        one["timestamp"] = round(one["timestamp"].timestamp() * 1000)
    assert [{name: one[name] for name in expected[0]} for one in found] == expected
