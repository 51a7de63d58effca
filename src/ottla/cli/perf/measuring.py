"""The runs of `ottla perf`: a producer, a consumer, or both, and what is told of them while they run."""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import sys
import time
from argparse import Namespace
from array import array
from collections.abc import Callable, Coroutine
from datetime import datetime
from pathlib import Path
from typing import Any

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.cli.failures import UsageError
from ottla.cli.session import client_config, missing_topic, read_config
from ottla.client.aio.consumer.consumer import Consumer
from ottla.client.aio.producer.producer import Producer
from ottla.client.core.producer.batch import RecordMetadata
from ottla.client.errors import ClientError

_MB = 1 << 20
_LIVE_REPORT_S = 0.5
_PERCENTILES = (50.0, 95.0, 99.0, 99.9)
_HEADER = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
    "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)
_DETAILED_HEADER = _HEADER.replace("start.time, end.time", "time, threadId")


def percentile(ordered: array[float], share: float) -> float:
    """Of values in order: the one that `share` percent are not above."""
    return ordered[min(int(len(ordered) * share / 100), len(ordered) - 1)] if ordered else 0.0


class Latencies:
    """What was acknowledged, and after how long: all of it, and since the last report."""

    def __init__(self) -> None:
        self.all_ms = array("d")
        self._window = 0
        self.errors: list[ClientError] = []
        self.bytes = 0
        self._window_bytes = 0

    def acknowledged(self, sent_at: float, size: int) -> Callable[[RecordMetadata | None, ClientError | None], None]:
        def note(_: RecordMetadata | None, error: ClientError | None) -> None:
            if error is not None:
                self.errors.append(error)
                return
            self.all_ms.append((time.perf_counter() - sent_at) * 1000)
            self.bytes += size

        return note

    def window(self, seconds: float) -> str:
        recent = self.all_ms[self._window :]
        size = self.bytes - self._window_bytes
        self._window, self._window_bytes = len(self.all_ms), self.bytes
        count = len(recent)
        mean = sum(recent) / count if count else 0.0
        return (
            f"{count} records sent, {count / seconds:.1f} records/sec ({size / seconds / _MB:.2f} MB/sec), "
            f"{mean:.1f} ms avg latency, {max(recent, default=0.0):.1f} ms max latency."
        )

    def total(self, seconds: float) -> dict[str, float]:
        ordered = array("d", sorted(self.all_ms))
        count = len(ordered)
        return {
            "records": count,
            "records_per_second": count / seconds,
            "mb_per_second": self.bytes / seconds / _MB,
            "avg_ms": sum(ordered) / count if count else float("nan"),
            "max_ms": ordered[-1] if count else 0.0,
            **{f"p{share:g}_ms": percentile(ordered, share) for share in _PERCENTILES},
        }


def total_line(total: dict[str, float]) -> str:
    shares = ", ".join(f"{total[f'p{share:g}_ms']:.0f} ms {share:g}th" for share in _PERCENTILES)
    return (
        f"{total['records']:.0f} records sent, {total['records_per_second']:.6f} records/sec "
        f"({total['mb_per_second']:.2f} MB/sec), {total['avg_ms']:.2f} ms avg latency, "
        f"{total['max_ms']:.2f} ms max latency, {shares}."
    )


def payloads(options: Namespace) -> Callable[[int], bytes]:
    if options.payload_file is not None:
        path = Path(options.payload_file)
        if options.kafka:
            print(f"Reading payloads from: {path.absolute()}")
        delimiter = options.payload_delimiter.replace("\\n", "\n").encode()
        lines = [line for line in path.read_bytes().split(delimiter) if line]
        if not lines:
            raise UsageError(f"{path} is empty")
        if options.kafka:
            print(f"Number of messages read: {len(lines)}")
        return lambda _: random.choice(lines)
    if options.payload_monotonic:
        return lambda number: str(number).encode()
    fixed = bytes(random.choices(range(65, 91), k=options.record_size))
    return lambda _: fixed


def _tell(text: str, options: Namespace) -> None:
    """A line of its own every few seconds; at a terminal one line that is written over."""
    if options.output in ("json", "tsv"):
        return
    if _is_live(options):
        print(f"\r\x1b[K{text}", end="", flush=True)
    else:
        print(text, flush=True)


def _is_live(options: Namespace) -> bool:
    return sys.stdout.isatty() and not options.kafka


def _report_s(options: Namespace) -> float:
    asked_s: float = options.reporting_interval / 1000
    return min(asked_s, _LIVE_REPORT_S) if _is_live(options) else asked_s


def _producer(options: Namespace) -> Producer[bytes, bytes]:
    own = {"linger.ms": "0", **options.props}
    if options.transactional_id:
        own["transactional.id"] = options.transactional_id
    servers = options.bootstrap_server or read_config(options.command_config).get("bootstrap.servers", "")
    return Producer(client_config(options.command_config, servers, "perf-producer-client", **own))


async def produce(options: Namespace) -> None:
    payload = payloads(options)
    latencies = Latencies()
    report_s = _report_s(options)
    async with _producer(options) as producer:
        if options.transactional_id:
            await producer.init_transactions()
            await producer.begin_transaction()
        started = reported = begun = time.perf_counter()
        for number in range(options.num_records):
            value = payload(number)
            now = time.perf_counter()
            if options.throughput > 0:
                ahead_s = number / options.throughput - (now - started)
                if ahead_s > 0:
                    await asyncio.sleep(ahead_s)
                    now = time.perf_counter()
            note = latencies.acknowledged(now, len(value))
            await producer.send(options.topic, value, on_delivery=note)
            if options.transactional_id and (now - begun) * 1000 >= options.transaction_duration_ms:
                await producer.commit_transaction()
                await producer.begin_transaction()
                begun = time.perf_counter()
            if now - reported >= report_s:
                _tell(latencies.window(now - reported), options)
                reported = now
        if options.transactional_id:
            await producer.commit_transaction()
        await producer.flush()
        total = latencies.total(time.perf_counter() - started)
    _show_total(total, total_line(total), options)
    if latencies.errors and not options.kafka:
        raise KafkaError(f"{len(latencies.errors)} records were not written: {latencies.errors[0].message}")


def _show_total(total: dict[str, float], line: str, options: Namespace) -> None:
    if options.output == "json":
        # What was not measured is no number in JSON.
        print(json.dumps({name: None if math.isnan(value) else value for name, value in total.items()}))
    elif options.output == "tsv":
        print("\t".join(total))
        print("\t".join(f"{value:.3f}" for value in total.values()))
    else:
        print(f"\r\x1b[K{line}" if _is_live(options) else line)


async def consume(options: Namespace) -> None:
    config = client_config(
        options.command_config,
        options.bootstrap_server,
        "perf-consumer-client",
        **{
            "group.id": options.group or f"perf-consumer-{random.randrange(100_000)}",
            "auto.offset.reset": "latest" if options.from_latest else "earliest",
            "max.partition.fetch.bytes": str(options.fetch_size),
        },
    )
    header = _DETAILED_HEADER if options.show_detailed_stats else _HEADER
    if options.output in ("kafka", "table") and not options.hide_header:
        print(header, flush=True)
    count = size = 0
    started_at = datetime.now()
    async with Consumer(config) as consumer:
        if not options.kafka:
            await _check_topic(consumer, options.topic)
        consumer.subscribe([options.topic])
        started = last = time.perf_counter()
        joined: float | None = None
        reported, reported_count, reported_size = started, 0, 0
        while count < options.num_records:
            records = await consumer.poll(0.1, 10_000)
            now = time.perf_counter()
            if records:
                joined = joined or now
                count += len(records)
                size += sum(len(record.value or b"") + len(record.key or b"") for record in records)
                last = now
            elif (now - last) * 1000 > options.timeout:
                print(
                    "WARNING: Exiting before consuming the expected number of messages: timeout "
                    f"({options.timeout} ms) exceeded. You can use the --timeout option to increase the timeout.",
                    file=sys.stdout if options.kafka else sys.stderr,
                )
                break
            if options.show_detailed_stats and (now - reported) * 1000 >= options.reporting_interval:
                spent = now - reported
                part = rates(size - reported_size, count - reported_count, spent, (joined or now) - started)
                print(f"{_stamp(datetime.now())}, 0, {part}", flush=True)
                reported, reported_count, reported_size = now, count, size
            elif _is_live(options) and now - reported >= _LIVE_REPORT_S:
                _tell(f"{count} records read, {count / (now - started):.1f} records/sec", options)
                reported = now
        ended = time.perf_counter()
    seconds = ended - started
    if options.show_detailed_stats:
        return
    line = f"{_stamp(started_at)}, {_stamp(datetime.now())}, {rates(size, count, seconds, (joined or ended) - started)}"
    total = {"records": count, "records_per_second": count / seconds, "mb_per_second": size / seconds / _MB}
    _show_total(total, line, options)


async def _check_topic(consumer: Consumer[bytes | None, bytes | None], topic: str) -> None:
    """One that is not there would only be waited for."""
    known = await consumer.list_topics()
    if topic not in known:
        raise KafkaError(missing_topic(topic, known), code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def rates(size: int, count: int, seconds: float, joining_s: float) -> str:
    fetching_s = max(seconds - joining_s, 0.001)
    return (
        f"{size / _MB:.4f}, {size / _MB / seconds:.4f}, {count}, {count / seconds:.4f}, {joining_s * 1000:.0f}, "
        f"{fetching_s * 1000:.0f}, {size / _MB / fetching_s:.4f}, {count / fetching_s:.4f}"
    )


def _stamp(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}:{moment.microsecond // 1000:03}"


async def latency(options: Namespace) -> None:
    """One record at a time: from just before it is sent until it is read."""
    config = client_config(options.command_config, options.bootstrap_server, "perf-latency-client")
    times_ms = array("d")
    count = min(options.num_records, 100_000)
    async with Consumer({**config, "auto.offset.reset": "latest"}) as consumer, _producer(options) as producer:
        partitions = await producer.partitions_for(options.topic)
        consumer.assign([TopicPartition(options.topic, number) for number in partitions])
        for partition in consumer.assignment:
            await consumer.position(partition)
        reported = time.perf_counter()
        for number in range(count):
            value = os.urandom(max(options.record_size, 8))
            sent = time.perf_counter()
            await producer.send(options.topic, value, partition=partitions[number % len(partitions)])
            while not any(record.value == value for record in await consumer.poll(options.timeout / 1000)):
                if (time.perf_counter() - sent) * 1000 > options.timeout:
                    raise KafkaError(f"record {number} was not read within {options.timeout} ms")
            now = time.perf_counter()
            times_ms.append((now - sent) * 1000)
            if options.kafka:
                if number % 1000 == 0:
                    print(f"{number}\t{times_ms[-1]}", flush=True)
            elif now - reported >= _report_s(options):
                _tell(f"{number + 1} records, {times_ms[-1]:.2f} ms the last one", options)
                reported = now
    ordered = array("d", sorted(times_ms))
    total = {
        "records": float(count),
        "avg_ms": sum(ordered) / count,
        "max_ms": ordered[-1],
        **{f"p{share:g}_ms": percentile(ordered, share) for share in _PERCENTILES},
    }
    if options.kafka:
        shares = ", ".join(f"{share:g}th = {total[f'p{share:g}_ms']:.0f}" for share in (50.0, 99.0, 99.9))
        print(f"Avg latency: {total['avg_ms']:.4f} ms\nPercentiles: {shares}")
        return
    shares = ", ".join(f"{share:g}th = {total[f'p{share:g}_ms']:.2f}" for share in _PERCENTILES)
    _show_total(
        total, f"Avg latency: {total['avg_ms']:.4f} ms\nPercentiles (ms): {shares}, max = {ordered[-1]:.2f}", options
    )


WORK: dict[str, Callable[[Namespace], Coroutine[Any, Any, None]]] = {
    "produce": produce,
    "consume": consume,
    "latency": latency,
}
