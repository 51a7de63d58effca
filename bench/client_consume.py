"""Consumers of several libraries, records of 100 bytes from one partition, against the same broker in the same run.

python -m bench.client_consume LIBRARY PORT TOPIC MESSAGES

Every library reads from the beginning without committing, takes up to 10,000 records at a time where it can, and looks
at each value. The time runs from the first record. Prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable

CHUNK = 10_000


class Meter:
    """Counts from the first batch on: connecting is not what is compared."""

    def __init__(self, messages: int) -> None:
        self._left = messages
        self._begun_s = 0.0
        self._counted = 0

    def count(self, values: list[bytes | None]) -> bool:
        """Whether there are more to come."""
        if not self._begun_s:
            self._begun_s = time.perf_counter()
        else:
            self._counted += len(values)
        self._left -= len(values)
        return self._left > 0

    def result(self) -> float:
        return self._counted / (time.perf_counter() - self._begun_s)


def ottla_poll(servers: str, topic: str, messages: int) -> float:
    import ottla

    meter = Meter(messages)
    with ottla.Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        while meter.count([record.value for record in consumer.poll(1.0, CHUNK)]):
            pass
        return meter.result()


def ottla_aio(servers: str, topic: str, messages: int) -> float:
    import ottla

    async def run() -> float:
        meter = Meter(messages)
        async with ottla.aio.Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0)])
            while meter.count([record.value for record in await consumer.poll(1.0, CHUNK)]):
                pass
            return meter.result()

    return asyncio.run(run())


def confluent(servers: str, topic: str, messages: int) -> float:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    meter = Meter(messages)
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            # Otherwise the consumer stops fetching for a second whenever this program is slower than the broker.
            "fetch.queue.backoff.ms": 1,
            "queued.min.messages": 1_000_000,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    while meter.count([message.value() for message in consumer.consume(CHUNK, timeout=1.0)]):
        pass
    rate = meter.result()
    consumer.close()
    return rate


def kafka_python(servers: str, topic: str, messages: int) -> float:
    from kafka import KafkaConsumer, TopicPartition

    meter = Meter(messages)
    consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.assign([TopicPartition(topic, 0)])
    going = True
    while going:
        for records in consumer.poll(1000, CHUNK).values():
            going = meter.count([record.value for record in records])
    rate = meter.result()
    consumer.close()
    return rate


def aiokafka(servers: str, topic: str, messages: int) -> float:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def run() -> float:
        meter = Meter(messages)
        async with AIOKafkaConsumer(
            bootstrap_servers=servers, auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            going = True
            while going:
                for records in (await consumer.getmany(timeout_ms=1000, max_records=CHUNK)).values():
                    going = meter.count([record.value for record in records])
            return meter.result()

    return asyncio.run(run())


LIBRARIES: dict[str, Callable[[str, str, int], float]] = {
    "ottla": ottla_poll,
    "ottla-aio": ottla_aio,
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}

PAIRS = (
    ("client-consume-poll", "our consumer, poll()", "ottla", "confluent-kafka"),
    ("client-consume-poll", "our consumer, poll()", "ottla", "kafka-python"),
    ("client-consume-aio", "our asyncio consumer, poll()", "ottla-aio", "aiokafka"),
)
"""Name and title of a row, our side, and the other."""

SLOW = {"kafka-python": 5, "aiokafka": 5}
"""By how much fewer messages the slower libraries get, so that a run stays short."""


def main() -> None:
    library, port, topic, count = sys.argv[1:]
    rate = LIBRARIES[library](f"127.0.0.1:{port}", topic, int(count))
    print(json.dumps({"messages_per_s": rate}))


if __name__ == "__main__":
    main()
