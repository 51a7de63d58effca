"""Consumers of several libraries, records of one size from one partition, against the same broker in the same run.

python -m bench.client_consume LIBRARY PORT TOPIC MESSAGES

Every library reads from the beginning without committing, takes up to 10,000 records at a time where it can, and looks
at each value. The time runs from the first record. Prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable

from bench.cases import CLIENT_ARROW_READ_SHARES, CLIENT_ARROW_TARGETS, CLIENT_LIMIT, CLIENT_ROW_TARGETS, ClientCase
from bench.stopwatch import Stopwatch

CHUNK = 10_000

Result = dict[str, float]


class Meter:
    """Counts from the first batch on: connecting is not what is compared."""

    def __init__(self, messages: int) -> None:
        self._left = messages
        self._watch: Stopwatch | None = None
        self._counted = 0

    def count(self, values: list[bytes | None]) -> bool:
        """Whether there are more to come."""
        return self.count_rows(len(values))

    def count_rows(self, rows: int) -> bool:
        if self._watch is not None:
            self._counted += rows
        elif rows:
            self._watch = Stopwatch()
        self._left -= rows
        return self._left > 0

    def result(self) -> Result:
        assert self._watch is not None
        spent = self._watch.read()
        return {"messages_per_s": self._counted / spent.wall_s, "cpu_us": spent.cpu_s / self._counted * 1e6}


def ottla_poll(servers: str, topic: str, messages: int) -> Result:
    import ottla

    meter = Meter(messages)
    with ottla.Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        while meter.count([record.value for record in consumer.poll(1.0, CHUNK)]):
            pass
        return meter.result()


def ottla_aio(servers: str, topic: str, messages: int) -> Result:
    import ottla

    async def run() -> Result:
        meter = Meter(messages)
        async with ottla.aio.Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0)])
            while meter.count([record.value for record in await consumer.poll(1.0, CHUNK)]):
                pass
            return meter.result()

    return asyncio.run(run())


def ottla_arrow(servers: str, topic: str, messages: int) -> Result:
    import ottla

    meter = Meter(messages)
    with ottla.Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        while meter.count_rows(len(consumer.poll_arrow(1.0)["value"])):
            pass
        return meter.result()


def ottla_arrow_aio(servers: str, topic: str, messages: int) -> Result:
    import ottla

    async def run() -> Result:
        meter = Meter(messages)
        async with ottla.aio.Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0)])
            while meter.count_rows(len((await consumer.poll_arrow(1.0))["value"])):
                pass
            return meter.result()

    return asyncio.run(run())


def confluent(servers: str, topic: str, messages: int) -> Result:
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
    result = meter.result()
    consumer.close()
    return result


def kafka_python(servers: str, topic: str, messages: int) -> Result:
    from kafka import KafkaConsumer, TopicPartition

    meter = Meter(messages)
    consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.assign([TopicPartition(topic, 0)])
    going = True
    while going:
        for records in consumer.poll(1000, CHUNK).values():
            going = meter.count([record.value for record in records])
    result = meter.result()
    consumer.close()
    return result


def aiokafka(servers: str, topic: str, messages: int) -> Result:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def run() -> Result:
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


def bare(servers: str, topic: str, messages: int) -> Result:
    from bench.bare_reader import read_bare

    meter = Meter(messages)
    read_bare(int(servers.rpartition(":")[2]), topic, meter.count_rows)
    return meter.result()


LIBRARIES: dict[str, Callable[[str, str, int], Result]] = {
    "ottla": ottla_poll,
    "ottla-aio": ottla_aio,
    "ottla-arrow": ottla_arrow,
    "ottla-arrow-aio": ottla_arrow_aio,
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    CLIENT_LIMIT: bare,
}

CASES = (
    ClientCase("poll", "our consumer, poll()", "ottla", "confluent-kafka", CLIENT_ROW_TARGETS),
    ClientCase("poll", "our consumer, poll()", "ottla", "kafka-python"),
    ClientCase("aio", "our asyncio consumer, poll()", "ottla-aio", "confluent-kafka", CLIENT_ROW_TARGETS),
    ClientCase("aio", "our asyncio consumer, poll()", "ottla-aio", "aiokafka"),
    ClientCase("arrow", "our consumer, poll_arrow()", "ottla-arrow", "confluent-kafka", CLIENT_ARROW_TARGETS),
    ClientCase("arrow-aio", "our asyncio consumer, poll_arrow()", "ottla-arrow-aio", "aiokafka"),
    ClientCase("poll", "our consumer, poll()", "ottla", CLIENT_LIMIT),
    ClientCase("arrow", "our consumer, poll_arrow()", "ottla-arrow", CLIENT_LIMIT, CLIENT_ARROW_READ_SHARES),
)


def main() -> None:
    library, port, topic, count = sys.argv[1:]
    print(json.dumps(LIBRARIES[library](f"127.0.0.1:{port}", topic, int(count))))


if __name__ == "__main__":
    main()
