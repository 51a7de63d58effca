"""Producers of several libraries, one record of 100 bytes after the other, against the same broker in the same run.

python -m bench.client_produce LIBRARY PORT TOPIC MESSAGES

Every library waits for all in-sync replicas, lingers as long as the others, and is otherwise as it comes. The time runs
until the last record is acknowledged. Prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable

VALUE = b"v" * 100
CHUNK = 10_000
LINGER_MS = 5


def ottla_send(servers: str, topic: str, messages: int) -> float:
    import ottla

    with ottla.Producer(bootstrap_servers=servers, linger_ms=LINGER_MS) as producer:
        producer.send(topic, VALUE).result(10)
        begun_s = time.perf_counter()
        send = producer.send
        for _ in range(messages):
            send(topic, VALUE)
        producer.flush()
        return time.perf_counter() - begun_s


def ottla_send_many(servers: str, topic: str, messages: int) -> float:
    import ottla

    with ottla.Producer(bootstrap_servers=servers, linger_ms=LINGER_MS) as producer:
        producer.send(topic, VALUE).result(10)
        chunk = [VALUE] * CHUNK
        begun_s = time.perf_counter()
        for _ in range(messages // CHUNK):
            producer.send_many(topic, chunk)
        producer.flush()
        return time.perf_counter() - begun_s


def ottla_aio(servers: str, topic: str, messages: int) -> float:
    import ottla

    async def run() -> float:
        async with ottla.aio.Producer(bootstrap_servers=servers, linger_ms=LINGER_MS) as producer:
            await producer.send_and_wait(topic, VALUE)
            begun_s = time.perf_counter()
            send = producer.send
            for number in range(messages):
                await send(topic, VALUE)
                if number % 1000 == 0:
                    await asyncio.sleep(0)
            await producer.flush()
            return time.perf_counter() - begun_s

    return asyncio.run(run())


def _confluent(servers: str, topic: str, messages: int, send: Callable[[object], None]) -> float:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": LINGER_MS,
            "enable.idempotence": True,
            "queue.buffering.max.messages": messages + CHUNK,
            "log_level": 0,
        }
    )
    producer.produce(topic, VALUE)
    producer.flush(10)
    begun_s = time.perf_counter()
    send(producer)
    if producer.flush(60):
        raise RuntimeError("not everything was acknowledged within a minute")
    return time.perf_counter() - begun_s


def confluent_produce(servers: str, topic: str, messages: int) -> float:
    def send(producer: object) -> None:
        produce = producer.produce  # type: ignore[attr-defined]
        for _ in range(messages):
            produce(topic, VALUE)

    return _confluent(servers, topic, messages, send)


def confluent_produce_batch(servers: str, topic: str, messages: int) -> float:
    def send(producer: object) -> None:
        chunk = [{"value": VALUE}] * CHUNK
        for _ in range(messages // CHUNK):
            producer.produce_batch(topic, chunk)  # type: ignore[attr-defined]
            producer.poll(0)  # type: ignore[attr-defined]

    return _confluent(servers, topic, messages, send)


def kafka_python(servers: str, topic: str, messages: int) -> float:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=servers, linger_ms=LINGER_MS, acks="all")
    producer.send(topic, VALUE).get(10)
    begun_s = time.perf_counter()
    for _ in range(messages):
        producer.send(topic, VALUE)
    producer.flush()
    took_s = time.perf_counter() - begun_s
    producer.close()
    return took_s


def aiokafka(servers: str, topic: str, messages: int) -> float:
    from aiokafka import AIOKafkaProducer

    async def run() -> float:
        async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=LINGER_MS, acks="all") as producer:
            await producer.send_and_wait(topic, VALUE)
            begun_s = time.perf_counter()
            for _ in range(messages):
                await producer.send(topic, VALUE)
            await producer.flush()
            return time.perf_counter() - begun_s

    return asyncio.run(run())


LIBRARIES: dict[str, Callable[[str, str, int], float]] = {
    "ottla": ottla_send,
    "ottla-many": ottla_send_many,
    "ottla-aio": ottla_aio,
    "confluent-kafka": confluent_produce,
    "confluent-kafka-batch": confluent_produce_batch,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}

PAIRS = (
    ("client-produce-send", "our producer, send()", "ottla", "confluent-kafka"),
    ("client-produce-send", "our producer, send()", "ottla", "kafka-python"),
    ("client-produce-many", "our producer, send_many()", "ottla-many", "confluent-kafka-batch"),
    ("client-produce-aio", "our asyncio producer", "ottla-aio", "aiokafka"),
)
"""Name and title of a row, our side, and the other."""

SLOW = {"kafka-python": 10, "aiokafka": 10}
"""By how much fewer messages the slower libraries get, so that a run stays short."""


def main() -> None:
    library, port, topic, count = sys.argv[1:]
    messages = int(count)
    took_s = LIBRARIES[library](f"127.0.0.1:{port}", topic, messages)
    print(json.dumps({"messages_per_s": messages / took_s, "seconds": took_s}))


if __name__ == "__main__":
    main()
