"""What tests of pipelines share: topics with JSON in them, and what came out at the other end."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ottla
from ottla.spark.pipeline.flows.report import FlowReport

TOO_LATE = "Python worker failed to connect back"


class Topics:
    """Topics of one test on the shared broker; their names begin alike."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.bootstrap = bootstrap
        self.prefix = prefix

    def name(self, short: str) -> str:
        return f"{self.prefix}-{short}"

    def create(self, **partitions: int) -> None:
        with ottla.Admin(bootstrap_servers=self.bootstrap) as admin:
            admin.create_topics([ottla.NewTopic(self.name(short), n) for short, n in partitions.items()]).check()

    def send(self, short: str, values: Iterable[Mapping[str, Any] | bytes], *, key: str | None = None) -> None:
        """Objects as JSON, bytes as they are."""
        with ottla.Producer(bootstrap_servers=self.bootstrap) as producer:
            for value in values:
                if isinstance(value, bytes):
                    producer.send(self.name(short), value)
                else:
                    record_key = None if key is None else str(value[key]).encode()
                    producer.send(self.name(short), json.dumps(value).encode(), key=record_key)
            producer.flush()

    def records(self, short: str) -> list[ottla.ConsumerRecord[bytes, bytes]]:
        """All that is committed."""
        with (
            ottla.Admin(bootstrap_servers=self.bootstrap) as admin,
            ottla.Consumer(
                bootstrap_servers=self.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
            ) as consumer,
        ):
            topic = admin.describe_topics([self.name(short)])[self.name(short)]
            partitions = [ottla.TopicPartition(self.name(short), info.partition) for info in topic.partitions]
            consumer.assign(partitions)
            ends = consumer.end_offsets(partitions)
            found: list[ottla.ConsumerRecord[bytes, bytes]] = []
            while any(consumer.position(partition) < end for partition, end in ends.items()):
                found += consumer.poll(0.2)
            return found

    def values(self, short: str) -> list[Any]:
        return [json.loads(record.value or b"null") for record in self.records(short)]


@dataclass
class Recorder:
    """An observer that remembers, but not that a query was started in vain because the machine was too busy: Spark
    gives the process of a source ten seconds to come up."""

    events: list[tuple[str, str]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    reports: dict[str, FlowReport] = field(default_factory=dict)

    def flow_started(self, flow: str) -> None:
        self.events.append(("started", flow))

    def flow_progressed(self, flow: str, report: FlowReport) -> None:
        self.rows[flow] = report.rows.read

    def flow_watched(self, flow: str, report: FlowReport) -> None:
        pass

    def flow_restarting(self, flow: str, error: str, *, failures: int, wait_ms: int) -> None:
        if TOO_LATE in error:
            self.events.remove(("started", flow))
            return
        self.events.append(("restarting", flow))
        self.errors.append(error)

    def flow_failed(self, flow: str, error: str) -> None:
        self.events.append(("failed", flow))
        self.errors.append(error)

    def flow_ended(self, flow: str, report: FlowReport) -> None:
        self.reports[flow] = report
        self.events.append(("ended", flow))

    def of(self, flow: str) -> list[str]:
        return [event for event, name in self.events if name == flow]
