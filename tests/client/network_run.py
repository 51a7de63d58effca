"""Sends records through a network that cuts, refuses and delays, and counts what arrived. All of it, once, in order?

python -m tests.client.network_run --records 1000000 --seed 1 [--client sync|aio] [--exactly-once]

The broker is a process of its own, with a second way in past the bad network. There a client none of us wrote reads
what is stored.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

import ottla
from ottla.records.hashing import partition_for_key
from ottla.testing import CALM, FaultProxy, NetworkFaults
from tests.broker_process import BrokerProcess
from tests.client.copying import copy_with_asyncio, copy_with_threads

PARTITIONS = 8
VALUE_BYTES = 100
_KEYS = [b"key-%d" % number for number in range(1000)]
_PATIENCE_S = 60.0

ROUGH = NetworkFaults(cut_share=0.03, refused_share=0.05, delayed_share=0.05, delay_ms_max=20)
ROUGHER = ROUGH._replace(cut_share=0.15)
"""For a producer alone, whose requests are large and need few pieces."""
SETTINGS: dict[str, object] = {
    "max.in.flight.requests.per.connection": 5,
    "enable.idempotence": True,
    "linger.ms": 5,
    "delivery.timeout.ms": 3_600_000,
    # Short pauses: the network is back at once, and the run should meet many of its faults.
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 100,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
}


def key_of(number: int) -> bytes:
    return _KEYS[number % len(_KEYS)]


def value_of(number: int) -> bytes:
    return b"%0*d" % (VALUE_BYTES, number)


@dataclass
class Outcome:
    records: int
    failed: int
    lost: int
    doubled: int
    reordered: int
    connections: int
    refused: int
    cut_in_requests: int
    cut_in_replies: int
    delayed: int
    seconds: float

    @property
    def is_right(self) -> bool:
        return not (self.failed or self.lost or self.doubled or self.reordered)

    def __str__(self) -> str:
        return (
            f"{self.records} records in {self.seconds:.1f} s over {self.connections} connections "
            f"({self.cut_in_requests} cut in requests, {self.cut_in_replies} in replies, {self.refused} refused, "
            f"{self.delayed} delays): "
            f"{self.failed} given up, {self.lost} lost, {self.doubled} doubled, {self.reordered} out of order"
        )


@dataclass
class Scene:
    proxy: FaultProxy
    broker: BrokerProcess

    def make_topic(self, name: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(_PATIENCE_S)

    def outcome(self, topic: str, records: int, seconds: float, failed: int = 0) -> Outcome:
        stored = read_numbers(self.broker.bootstrap, topic)
        figures = self.proxy.figures
        return Outcome(
            records,
            failed,
            *judge(stored, records),
            figures.connections,
            figures.refused,
            figures.cut_in_requests,
            figures.cut_in_replies,
            figures.delayed,
            seconds,
        )


@contextmanager
def open_scene(data_dir: Path, seed: int) -> Iterator[Scene]:
    with FaultProxy(seed=seed) as proxy:
        settings = {**proxy.broker_settings(), "group.initial.rebalance.delay.ms": "0"}
        broker = BrokerProcess(data_dir, settings).start()
        try:
            yield Scene(proxy, broker)
            assert broker.stop() == 0, "\n".join(broker.log_lines)
            assert broker.tracebacks() == []
        finally:
            broker.kill()


def produce(scene: Scene, client: str, records: int, faults: NetworkFaults = ROUGHER) -> Outcome:
    scene.make_topic("sent")
    settings = {**SETTINGS, "bootstrap.servers": scene.proxy.bootstrap_servers}
    errors: list[Exception] = []
    began_s = time.monotonic()
    if client == "sync":
        with ottla.Producer(settings) as producer:
            scene.proxy.faults = faults
            note_error = _note_error(errors)
            for number in range(records):
                producer.send("sent", value_of(number), key_of(number), on_delivery=note_error)
            producer.flush()
    else:
        asyncio.run(_produce_with_asyncio(scene, settings, records, faults, errors))
    seconds = time.monotonic() - began_s
    scene.proxy.faults = CALM
    return scene.outcome("sent", records, seconds, len(errors))


async def _produce_with_asyncio(
    scene: Scene, settings: dict[str, object], records: int, faults: NetworkFaults, errors: list[Exception]
) -> None:
    note_error = _note_error(errors)
    async with ottla.aio.Producer(settings) as producer:
        scene.proxy.faults = faults
        for number in range(records):
            await producer.send("sent", value_of(number), key_of(number), on_delivery=note_error)
            if number % 100 == 0:
                await asyncio.sleep(0)
        await producer.flush()


def _note_error(errors: list[Exception]) -> Callable[[object, Exception | None], None]:
    def note(metadata: object, error: Exception | None) -> None:
        if error is not None:
            errors.append(error)

    return note


def copy_exactly_once(scene: Scene, client: str, records: int, faults: NetworkFaults = ROUGH) -> Outcome:
    scene.make_topic("source")
    scene.make_topic("copied")
    with ottla.Producer(bootstrap_servers=scene.broker.bootstrap) as producer:
        for number in range(records):
            producer.send("source", value_of(number), key_of(number))
    settings = {**SETTINGS, "bootstrap.servers": scene.proxy.bootstrap_servers}
    began_s = time.monotonic()

    def begin() -> None:
        scene.proxy.faults = faults

    def is_enough(copied: int) -> bool:
        return copied >= records

    if client == "sync":
        copy_with_threads(settings, "source", "copied", is_enough, begin)
    else:
        asyncio.run(copy_with_asyncio(settings, "source", "copied", is_enough, begin))
    seconds = time.monotonic() - began_s
    scene.proxy.faults = CALM
    return scene.outcome("copied", records, seconds)


def judge(stored: list[array[int]], records: int) -> tuple[int, int, int]:
    """How many are lost, doubled and out of order. Numbers grow within each partition, in the order they were sent."""
    counts = bytearray(records)
    doubled = reordered = 0
    for partition, numbers in enumerate(stored):
        highest = -1
        for number in numbers:
            assert partition_for_key(key_of(number), PARTITIONS) == partition, f"{number} is in partition {partition}"
            if counts[number]:
                doubled += 1
            counts[number] = 1
            if number < highest:
                reordered += 1
            highest = max(highest, number)
    return counts.count(0), doubled, reordered


def read_numbers(bootstrap: str, topic: str) -> list[array[int]]:
    """The numbers of the committed records of each partition, as confluent-kafka reads them."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found = [array("q") for _ in range(PARTITIONS)]
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        unfinished = set(range(PARTITIONS))
        deadline_s = time.monotonic() + _PATIENCE_S
        while unfinished:
            messages = consumer.consume(10_000, timeout=1.0)
            if messages:
                deadline_s = time.monotonic() + _PATIENCE_S
            assert time.monotonic() < deadline_s, f"the ends of partitions {sorted(unfinished)} were not reached"
            for message in messages:
                error, partition = message.error(), message.partition()
                assert partition is not None
                if error is None:
                    value = message.value()
                    assert value is not None and len(value) == VALUE_BYTES
                    found[partition].append(int(value))
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    unfinished.discard(partition)
    finally:
        consumer.close()
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.client.network_run", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--client", choices=["sync", "aio"], default="sync")
    parser.add_argument("--exactly-once", action="store_true", help="copy in transactions instead of only sending")
    options = parser.parse_args(arguments)
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="ottla-network-") as directory,
        open_scene(Path(directory) / "data", seed) as scene,
    ):
        run = copy_exactly_once if options.exactly_once else produce
        outcome = run(scene, options.client, options.records)
    print(f"seed {seed}: {outcome}")
    return 0 if outcome.is_right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
