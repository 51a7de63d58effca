"""Many partitions, many topics, many requests under way: still every record once, and in order per partition."""

from __future__ import annotations

from collections import defaultdict

import pytest
from confluent_kafka import Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import TopicPartition as KafkaPythonPartition

from tests.broker_process import BrokerProcess
from tests.interop.dataset import Received, assert_same, numbered
from tests.interop.peers import aiokafka_client, kafka_python
from tests.interop.peers.confluent import ConfluentKafka, consumer, make_topic, poll_messages, producer, received
from tests.interop.peers.peer import PATIENCE_S
from tests.waiting import run_async

pytestmark = pytest.mark.interop

PARTITIONS = 200
ROUNDS = 3


def write_rounds(broker: BrokerProcess, topic: str, rounds: int = ROUNDS) -> None:
    writer = producer(broker.bootstrap, enable_idempotence=True)
    for number in range(rounds):
        for partition in range(PARTITIONS):
            writer.produce(topic, b"%d" % number, b"%d" % partition, partition)
    assert writer.flush(PATIENCE_S) == 0


def in_order(pairs: list[tuple[int, bytes]], rounds: int = ROUNDS) -> bool:
    by_partition: dict[int, list[bytes]] = defaultdict(list)
    for partition, value in pairs:
        by_partition[partition].append(value)
    return dict(by_partition) == {p: [b"%d" % n for n in range(rounds)] for p in range(PARTITIONS)}


def test_confluent_kafka_reads_200_partitions(broker: BrokerProcess, new_topic: str) -> None:
    make_topic(broker.bootstrap, new_topic, PARTITIONS)
    write_rounds(broker, new_topic)
    reader = consumer(broker.bootstrap, fetch_wait_max_ms=50)
    reader.assign([TopicPartition(new_topic, p, 0) for p in range(PARTITIONS)])
    messages = poll_messages(reader, PARTITIONS * ROUNDS)
    assert in_order([(message.partition(), message.value()) for message in messages])
    # Most partitions are silent now; what comes to one of them still arrives.
    ConfluentKafka().write(broker.bootstrap, new_topic, numbered(1), partition=123)
    (late,) = poll_messages(reader, 1)
    assert (late.partition(), late.offset()) == (123, ROUNDS)
    reader.close()


def test_kafka_python_reads_200_partitions_in_a_fetch_session(broker: BrokerProcess, new_topic: str) -> None:
    """It is the client of these that uses incremental fetches (KIP-227)."""
    make_topic(broker.bootstrap, new_topic, PARTITIONS)
    write_rounds(broker, new_topic)
    reader = kafka_python.consumer(broker.bootstrap, fetch_max_wait_ms=50)
    partitions = [KafkaPythonPartition(new_topic, p) for p in range(PARTITIONS)]
    reader.assign(partitions)
    reader.seek_to_beginning()
    records = kafka_python.poll_records(reader, PARTITIONS * ROUNDS)
    assert in_order([(record.partition, record.value) for record in records])
    for index in (7, 199, 7):
        ConfluentKafka().write(broker.bootstrap, new_topic, numbered(1), partition=index)
        (late,) = kafka_python.poll_records(reader, 1)
        assert (late.partition, late.value) == (index, b"record 0")
    # Some leave the session, others stay.
    reader.assign(partitions[100:])
    for partition in partitions[100:]:
        reader.seek(partition, 0)
    seen = kafka_python.poll_records(reader, 100 * ROUNDS + 1)
    assert {record.partition for record in seen} == set(range(100, PARTITIONS))
    assert len(seen) == 100 * ROUNDS + 1
    reader.close()


def test_aiokafka_reads_200_partitions(broker: BrokerProcess, new_topic: str) -> None:
    make_topic(broker.bootstrap, new_topic, PARTITIONS)
    write_rounds(broker, new_topic)

    async def read() -> list[tuple[int, bytes]]:
        async with aiokafka_client.consumer(broker.bootstrap) as reader:
            partitions = [aiokafka_client.TopicPartition(new_topic, p) for p in range(PARTITIONS)]
            reader.assign(partitions)
            await reader.seek_to_beginning()
            records = await aiokafka_client.poll_records(reader, PARTITIONS * ROUNDS)
            return [(record.partition, record.value) for record in records]

    assert in_order(run_async(read()))


def test_50_topics_at_once(broker: BrokerProcess, new_topic: str) -> None:
    names = [f"{new_topic}-{i}" for i in range(50)]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(name, 2, 1) for name in names]).values():
        future.result(PATIENCE_S)
    writer = producer(broker.bootstrap)
    for name in names:
        for i in range(10):
            writer.produce(name, b"%d" % i, name.encode(), i % 2)
    assert writer.flush(PATIENCE_S) == 0
    reader = consumer(broker.bootstrap)
    reader.assign([TopicPartition(name, p, 0) for name in names for p in range(2)])
    messages = poll_messages(reader, 500)
    reader.close()
    found: dict[tuple[str, int], list[bytes]] = defaultdict(list)
    for message in messages:
        assert message.key() == message.topic().encode()
        found[message.topic(), message.partition()].append(message.value())
    assert dict(found) == {(name, p): [b"%d" % i for i in range(p, 10, 2)] for name in names for p in range(2)}
    for future in admin.delete_topics(names).values():
        future.result(PATIENCE_S)
    assert not set(names) & set(admin.list_topics(timeout=PATIENCE_S).topics)


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_pipelined_producer_keeps_its_order(broker: BrokerProcess, new_topic: str, idempotent: bool) -> None:
    samples = numbered(2000)
    writer = producer(
        broker.bootstrap,
        enable_idempotence=idempotent,
        linger_ms=0,
        batch_num_messages=3,
        max_in_flight_requests_per_connection=5,
    )
    offsets: list[int] = []

    def delivered(error: object, message: Message) -> None:
        assert error is None
        offsets.append(message.offset())

    for key, value, *_ in samples:
        writer.produce(new_topic, value, key, 0, on_delivery=delivered)
    assert writer.flush(PATIENCE_S) == 0
    assert offsets == list(range(2000))
    assert_same(ConfluentKafka().read(broker.bootstrap, new_topic, 2000), samples)


def test_acks_0_and_1_arrive_too(broker: BrokerProcess, new_topic: str) -> None:
    make_topic(broker.bootstrap, new_topic, 2)
    samples = numbered(100)
    for acks in (0, 1):
        writer = producer(broker.bootstrap, acks=acks)
        for key, value, *_ in samples:
            writer.produce(new_topic, value, key, acks)
        assert writer.flush(PATIENCE_S) == 0
        assert_same(ConfluentKafka().read(broker.bootstrap, new_topic, 100, partition=acks), samples)


def test_a_reader_waits_for_the_bytes_it_asked_for(broker: BrokerProcess, new_topic: str) -> None:
    make_topic(broker.bootstrap, new_topic)
    ConfluentKafka().write(broker.bootstrap, new_topic, numbered(1))
    reader = consumer(broker.bootstrap, fetch_min_bytes=20_000, fetch_wait_max_ms=25_000)
    reader.assign([TopicPartition(new_topic, 0, 0)])
    assert reader.poll(0.3) is None
    big = [sample._replace(value=bytes(30_000)) for sample in numbered(1, first=1)]
    ConfluentKafka().write(broker.bootstrap, new_topic, big)
    records: list[Received] = [received(message) for message in poll_messages(reader, 2)]
    reader.close()
    assert_same(records, [*numbered(1), *big])


def test_a_reader_at_the_end_understands_empty_replies(broker: BrokerProcess, new_topic: str) -> None:
    make_topic(broker.bootstrap, new_topic)
    reader = consumer(broker.bootstrap, fetch_wait_max_ms=10, enable_partition_eof=True)
    reader.assign([TopicPartition(new_topic, 0, 0)])
    end = reader.poll(PATIENCE_S)
    assert end is not None and end.error() is not None and end.error().name() == "_PARTITION_EOF"
    assert reader.poll(0.2) is None
    ConfluentKafka().write(broker.bootstrap, new_topic, numbered(1))
    (message,) = poll_messages(reader, 1)
    reader.close()
    assert_same([received(message)], numbered(1))


def test_small_fetches_get_through_large_batches(broker: BrokerProcess, new_topic: str) -> None:
    """A batch larger than all limits comes whole, so a reader with small ones is slow but not stuck (KIP-74)."""
    samples = [sample._replace(value=bytes([i]) * 200_000) for i, sample in enumerate(numbered(5))]
    ConfluentKafka().write(broker.bootstrap, new_topic, samples)
    reader = consumer(broker.bootstrap, max_partition_fetch_bytes=1000, fetch_max_bytes=2000, message_max_bytes=1000)
    reader.assign([TopicPartition(new_topic, 0, 0)])
    assert_same([received(message) for message in poll_messages(reader, 5)], samples)
    reader.close()
