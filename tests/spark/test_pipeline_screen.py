"""The screen against the truth: what a running pipeline tells of itself, and what foreign clients find, under load."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

import ottla
from tests.broker_process import BrokerProcess
from tests.waiting import PATIENCE_S, join

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-drivers"), pytest.mark.timeout(400)]

PARTITIONS = 3
BACKLOG = 20_000
MOST = 36_000
"""However slow the machine is: all of it has to be read."""
BAD_EVERY = 100
DESCRIPTION = """\
name: screen
kafka: {{bootstrap.servers: "{bootstrap}"}}
spark: {{master: "local[2]", conf: {{spark.sql.shuffle.partitions: 2}}}}
sources:
  events:
    kind: topic
    topic: screen-events
    format: json
    schema: n BIGINT
    max_offsets_per_trigger: 6000
    dead_letter: screen-unreadable
    dead_letter_partitions: 1
views:
  even: {{sql: SELECT n FROM events WHERE n % 2 = 0}}
sinks:
  even: {{kind: topic, topic: screen-even, format: json, create_partitions: 2}}
flows:
  even: {{from: even, to: even}}
"""
FLOWS = ("even", "events-dead-letters")
COUNTS = ("read", "written", "bad")
Ends = dict[int, int]


class Moment(NamedTuple):
    """Where partitions end, as a foreign client was told between two moments."""

    asked_ms: int
    answered_ms: int
    ends: Ends


class Truth:
    """Sends events, one in a hundred of them unreadable, and asks where their topic ends, all the time."""

    def __init__(self, bootstrap: str) -> None:
        self.sent = 0
        self.moments: list[Moment] = []
        self._bootstrap = bootstrap
        self._is_all_sent = threading.Event()
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=run) for run in (self._send, self._ask)]
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})

    def __enter__(self) -> Truth:
        for _ in range(BACKLOG):
            self._send_one()
        assert self._producer.flush(PATIENCE_S) == 0
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop_sending()
        self._is_over.set()
        join(*self._threads)

    def stop_sending(self) -> None:
        self._is_all_sent.set()
        join(self._threads[0])

    def _send_one(self) -> None:
        number = self.sent
        value = b"{nonsense" if number % BAD_EVERY == 0 else json.dumps({"n": number}).encode()
        self._producer.produce("screen-events", value, partition=number % PARTITIONS)
        self._producer.poll(0)
        self.sent += 1

    def _send(self) -> None:
        while not self._is_all_sent.wait(0.01) and self.sent < MOST:
            for _ in range(10):
                self._send_one()
        assert self._producer.flush(PATIENCE_S) == 0

    def _ask(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        places = [TopicPartition("screen-events", partition) for partition in range(PARTITIONS)]
        while not self._is_over.wait(0.05):
            asked_ms = now_ms()
            futures = admin.list_offsets({place: OffsetSpec.latest() for place in places})
            ends = {place.partition: future.result(30).offset for place, future in futures.items()}
            self.moments.append(Moment(asked_ms, now_ms(), ends))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def read_all(bootstrap: str, topic: str) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "screen-checker",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    waiting = set(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, partition) for partition in waiting])
    values: list[bytes] = []
    while waiting:
        message = consumer.poll(20)
        assert message is not None, f"{topic} could not be read to its end"
        if message.error():
            waiting.discard(message.partition())
        else:
            values.append(message.value())
    consumer.close()
    return values


class Transcript:
    """All a pipeline tells, line by line; `wait_for` reads on until something was told."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.lines: list[dict[str, Any]] = []
        self.heard_ms: list[int] = []

    def wait_for(self, is_told: Callable[[dict[str, Any]], bool]) -> None:
        while not is_told(self._read()):
            pass

    def read_rest(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._keep(line)

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None and self._process.stderr is not None
        line = self._process.stdout.readline()
        assert line, self._process.stderr.read()
        return self._keep(line)

    def _keep(self, line: str) -> dict[str, Any]:
        self.lines.append(json.loads(line))
        self.heard_ms.append(now_ms())
        return self.lines[-1]

    def read_by(self, flow: str) -> int:
        """How many records a flow had read when it was last told of."""
        return max(
            (line["total"]["read"] for line in self.lines if line["flow"] == flow and "total" in line), default=0
        )

    def of(self, flow: str, *events: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["flow"] == flow and line["event"] in events]


def test_what_is_told_is_so(spark_broker: BrokerProcess, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")
    bootstrap = spark_broker.bootstrap
    with ottla.Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([ottla.NewTopic("screen-events", PARTITIONS)]).check()
    path = tmp_path / "screen.yaml"
    path.write_text(DESCRIPTION.format(bootstrap=bootstrap))
    with Truth(bootstrap) as truth:
        process = start("run", path, "--output", "json")
        transcript = Transcript(process)
        try:
            # Until the backlog is read, and a while of the stream that follows it; then to the end.
            transcript.wait_for(lambda line: line["event"] == "progress" and line["total"]["read"] > BACKLOG + 3000)
            truth.stop_sending()
            transcript.wait_for(lambda line: all(transcript.read_by(flow) >= truth.sent for flow in FLOWS))
            process.send_signal(signal.SIGTERM)
            transcript.read_rest()
            process.wait(PATIENCE_S)
        finally:
            errors = end(process)
    assert (process.returncode, errors) == (130, "stopping after the current batch; once more to stop at once\n")
    check_ends(transcript, truth.moments)
    check_lag(transcript)

    endings = {flow: transcript.of(flow, "ended")[0] for flow in FLOWS}
    total = {flow: {count: line["total"][count] for count in COUNTS} for flow, line in endings.items()}
    bad = -(-truth.sent // BAD_EVERY)
    even = len(read_all(bootstrap, "screen-even"))
    assert even == len([n for n in range(truth.sent) if n % 2 == 0 and n % BAD_EVERY])
    assert total["even"] == {"read": truth.sent, "written": even, "bad": bad}
    assert total["events-dead-letters"] == {"read": truth.sent, "written": bad, "bad": bad}
    assert len(read_all(bootstrap, "screen-unreadable")) == bad
    assert {line["lag"] for line in endings.values()} == {0}
    foreign_admin = AdminClient({"bootstrap.servers": bootstrap})
    listed = foreign_admin.list_consumer_groups().result(30)
    assert not listed.errors
    groups = {group.group_id for group in listed.valid if "screen" in group.group_id}
    assert groups - {"screen-checker"} == {f"ottla-pipeline-screen-{flow}" for flow in FLOWS}


def check_ends(transcript: Transcript, moments: list[Moment]) -> None:
    """The ends that were told were the topic's between the moment they were asked for and the moment they were told."""
    checked = 0
    for line, heard_ms in zip(transcript.lines, transcript.heard_ms, strict=True):
        if line.get("end_offsets") is None:
            continue
        told = {int(partition): end for partition, end in line["end_offsets"]["screen-events"].items()}
        before = [moment.ends for moment in moments if moment.answered_ms < line["end_offsets_asked_ms"]]
        after = [moment.ends for moment in moments if moment.asked_ms > heard_ms]
        assert all(told[partition] >= end for partition, end in before[-1].items()) if before else True, line
        assert all(told[partition] <= end for partition, end in after[0].items()) if after else True, line
        checked += bool(before) and bool(after)
    assert checked >= 5


def check_lag(transcript: Transcript) -> None:
    """The lag that was told is what lay between where the flow was and where the topic ended."""
    lags = []
    for line in transcript.of("even", "progress", "status"):
        if line["lag"] is None:
            continue
        position, ends = (line[name]["screen-events"] for name in ("position", "end_offsets"))
        assert line["lag"] == sum(max(ends[partition] - position[partition], 0) for partition in ends)
        assert line["event"] == "status" or sum(position.values()) == line["total"]["read"]
        lags.append(line["lag"])
    assert max(lags) >= BACKLOG - 6000, "what waits at the beginning was told"
    assert len(set(lags)) > 3


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "ottla", "pipeline", *map(str, arguments)]


def end(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    process.kill()
    errors = process.stderr.read()
    process.wait(PATIENCE_S)
    return errors
