"""Producers of several libraries, with records of one size, against the same broker in the same run.

python -m bench.client_produce LIBRARY PORT TOPIC MESSAGES VALUE_BYTES

Every library waits for all in-sync replicas, lingers as long as the others, and is otherwise as it comes. The time runs
until the last record is acknowledged. Prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable

from bench.cases import (
    CLIENT_ARROW_SEND_SHARES,
    CLIENT_ARROW_TARGETS,
    CLIENT_ROW_TARGETS,
    CLIENT_SEND_LIMIT,
    ClientCase,
)
from bench.stopwatch import Spent, Stopwatch

CHUNK = 10_000
LINGER_MS = 5


def ottla_send(servers: str, topic: str, messages: int, value: bytes) -> Spent:
    import ottla

    with ottla.Producer(bootstrap_servers=servers, linger_ms=LINGER_MS) as producer:
        producer.send(topic, value).result(10)
        watch = Stopwatch()
        send = producer.send
        for _ in range(messages):
            send(topic, value)
        producer.flush()
        return watch.read()


def ottla_send_many(servers: str, topic: str, messages: int, value: bytes) -> Spent:
    import ottla

    with ottla.Producer(bootstrap_servers=servers, linger_ms=LINGER_MS) as producer:
        producer.send(topic, value).result(10)
        chunk = [value] * CHUNK
        watch = Stopwatch()
        for _ in range(messages // CHUNK):
            producer.send_many(topic, chunk)
        producer.flush()
        return watch.read()


def ottla_aio(servers: str, topic: str, messages: int, value: bytes) -> Spent:
    import ottla

    async def run() -> Spent:
        async with ottla.aio.Producer(bootstrap_servers=servers, linger_ms=LINGER_MS) as producer:
            await producer.send_and_wait(topic, value)
            watch = Stopwatch()
            send = producer.send
            for number in range(messages):
                await send(topic, value)
                if number % 1000 == 0:
                    await asyncio.sleep(0)
            await producer.flush()
            return watch.read()

    return asyncio.run(run())


def ottla_arrow(servers: str, topic: str, messages: int, value: bytes) -> Spent:
    import pyarrow as pa

    import ottla

    table = pa.table({"value": pa.array([value] * CHUNK, pa.binary())})
    with ottla.Producer(bootstrap_servers=servers, linger_ms=LINGER_MS) as producer:
        producer.send_arrow(topic, table[:1]).result(10)
        watch = Stopwatch()
        for _ in range(messages // CHUNK):
            producer.send_arrow(topic, table)
        producer.flush()
        return watch.read()


def ottla_arrow_aio(servers: str, topic: str, messages: int, value: bytes) -> Spent:
    import pyarrow as pa

    import ottla

    table = pa.table({"value": pa.array([value] * CHUNK, pa.binary())})

    async def run() -> Spent:
        async with ottla.aio.Producer(bootstrap_servers=servers, linger_ms=LINGER_MS) as producer:
            await (await producer.send_arrow(topic, table[:1]))
            watch = Stopwatch()
            for _ in range(messages // CHUNK):
                await producer.send_arrow(topic, table)
            await producer.flush()
            return watch.read()

    return asyncio.run(run())


def _confluent(servers: str, topic: str, messages: int, value: bytes, send: Callable[[object], None]) -> Spent:
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
    producer.produce(topic, value)
    producer.flush(10)
    watch = Stopwatch()
    send(producer)
    if producer.flush(60):
        raise RuntimeError("not everything was acknowledged within a minute")
    return watch.read()


def confluent_produce(servers: str, topic: str, messages: int, value: bytes) -> Spent:
    def send(producer: object) -> None:
        produce = producer.produce  # type: ignore[attr-defined]
        for _ in range(messages):
            produce(topic, value)

    return _confluent(servers, topic, messages, value, send)


def confluent_produce_with_reports(servers: str, topic: str, messages: int, value: bytes) -> Spent:
    """With a callback for each message, which is told where it was stored: what the futures of ours tell."""
    told = 0

    def take_report(error: object, message: object) -> None:
        nonlocal told
        told += 1

    def send(producer: object) -> None:
        produce, poll = producer.produce, producer.poll  # type: ignore[attr-defined]
        for number in range(messages):
            produce(topic, value, on_delivery=take_report)
            if number % 1000 == 0:
                poll(0)

    spent = _confluent(servers, topic, messages, value, send)
    if told != messages:
        raise RuntimeError(f"{told} of {messages} messages were reported")
    return spent


def confluent_produce_batch(servers: str, topic: str, messages: int, value: bytes) -> Spent:
    def send(producer: object) -> None:
        chunk = [{"value": value}] * CHUNK
        for _ in range(messages // CHUNK):
            producer.produce_batch(topic, chunk)  # type: ignore[attr-defined]
            producer.poll(0)  # type: ignore[attr-defined]

    return _confluent(servers, topic, messages, value, send)


def kafka_python(servers: str, topic: str, messages: int, value: bytes) -> Spent:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=servers, linger_ms=LINGER_MS, acks="all")
    producer.send(topic, value).get(10)
    watch = Stopwatch()
    for _ in range(messages):
        producer.send(topic, value)
    producer.flush()
    spent = watch.read()
    producer.close()
    return spent


def aiokafka(servers: str, topic: str, messages: int, value: bytes) -> Spent:
    from aiokafka import AIOKafkaProducer

    async def run() -> Spent:
        async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=LINGER_MS, acks="all") as producer:
            await producer.send_and_wait(topic, value)
            watch = Stopwatch()
            for _ in range(messages):
                await producer.send(topic, value)
            await producer.flush()
            return watch.read()

    return asyncio.run(run())


LIBRARIES: dict[str, Callable[[str, str, int, bytes], Spent]] = {
    "ottla": ottla_send,
    "ottla-many": ottla_send_many,
    "ottla-aio": ottla_aio,
    "ottla-arrow": ottla_arrow,
    "ottla-arrow-aio": ottla_arrow_aio,
    "confluent-kafka": confluent_produce,
    "confluent-kafka-batch": confluent_produce_batch,
    "confluent-kafka-reports": confluent_produce_with_reports,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}

CASES = (
    ClientCase("send", "our producer, send()", "ottla", "confluent-kafka", CLIENT_ROW_TARGETS),
    ClientCase("send", "our producer, send()", "ottla", "confluent-kafka-reports"),
    ClientCase("send", "our producer, send()", "ottla", "kafka-python"),
    ClientCase("many", "our producer, send_many()", "ottla-many", "confluent-kafka-batch", CLIENT_ROW_TARGETS),
    ClientCase("aio", "our asyncio producer, send()", "ottla-aio", "confluent-kafka"),
    ClientCase("aio", "our asyncio producer, send()", "ottla-aio", "aiokafka"),
    ClientCase("arrow", "our producer, send_arrow()", "ottla-arrow", "confluent-kafka", CLIENT_ARROW_TARGETS),
    ClientCase("arrow", "our producer, send_arrow()", "ottla-arrow", CLIENT_SEND_LIMIT, CLIENT_ARROW_SEND_SHARES),
    ClientCase("arrow-aio", "our asyncio producer, send_arrow()", "ottla-arrow-aio", "confluent-kafka"),
    ClientCase("arrow-aio", "our asyncio producer, send_arrow()", "ottla-arrow-aio", "aiokafka"),
)


def main() -> None:
    library, port, topic, count, value_bytes = sys.argv[1:]
    messages = int(count)
    spent = LIBRARIES[library](f"127.0.0.1:{port}", topic, messages, b"v" * int(value_bytes))
    print(json.dumps({"messages_per_s": messages / spent.wall_s, "cpu_us": spent.cpu_s / messages * 1e6}))


if __name__ == "__main__":
    main()
