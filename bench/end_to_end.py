"""One producer or consumer of confluent-kafka (librdkafka), so that the same driver runs against broker and mock.

python -m bench.end_to_end produce|consume PORT TOPIC PARTITIONS MESSAGES [VALUE_BYTES]

The driver's own cost per message is part of both sides of the ratio, which therefore is nearer to one than the
brokers are. Prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

CHUNK = 10_000


def produce(port: int, topic: str, partitions: int, messages: int, value_bytes: int) -> float:
    """Seconds from the first message to the last acknowledgement, with the connection made before."""
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "linger.ms": 5,
            "queue.buffering.max.messages": messages + CHUNK,
            "acks": 1,
            "log_level": 0,
        }
    )
    producer.list_topics(topic, timeout=10)
    chunk = [{"value": b"v" * value_bytes}] * CHUNK
    begun_s = time.perf_counter()
    for number in range(messages // CHUNK):
        producer.produce_batch(topic, chunk, partition=number % partitions)
        producer.poll(0)
    unsent = producer.flush(60)
    if unsent:
        raise RuntimeError(f"{unsent} messages were not acknowledged within a minute")
    return time.perf_counter() - begun_s


def consume(port: int, topic: str, partitions: int, messages: int) -> float:
    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            # Otherwise the consumer stops fetching for a second whenever this program is slower than the broker.
            "fetch.queue.backoff.ms": 1,
            "queued.min.messages": 1_000_000,
            "log_level": 0,
        }
    )
    consumer.list_topics(topic, timeout=10)
    begun_s = time.perf_counter()
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
    received = 0
    while received < messages:
        batch = consumer.consume(CHUNK, timeout=0.1)
        received += sum(1 for message in batch if message.error() is None)
        if time.perf_counter() - begun_s > 60:
            raise RuntimeError(f"only {received} of {messages} messages came within a minute")
    took_s = time.perf_counter() - begun_s
    consumer.close()
    return took_s


def main() -> None:
    direction, port, topic, partitions, messages, *value_bytes = sys.argv[1:]
    shape = (int(port), topic, int(partitions), int(messages))
    took_s = produce(*shape, int(value_bytes[0]) if value_bytes else 100) if direction == "produce" else consume(*shape)
    print(json.dumps({"messages_per_s": int(messages) / took_s, "seconds": took_s}))


if __name__ == "__main__":
    main()
