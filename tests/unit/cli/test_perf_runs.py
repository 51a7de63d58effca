"""What `ottla perf` does while it runs: what it sends and reads, when it waits, reports and gives up. The clock and
the cluster are scripted: a second lasts as long as the test says."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.cli.perf import measuring
from ottla.cli.perf.measuring import consume, latency, produce
from ottla.client.errors import ClientError
from tests.own_thread import patch_own_thread
from tests.waiting import run_async

MB = 1 << 20
START_S = 100.0
A_TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"
COLUMNS = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, "
    "fetch.nMsg.sec"
)


class Cluster:
    """A producer and a consumer at once. To send takes a quarter of a second, and so long it is until the answer."""

    def __init__(self) -> None:
        self.now = START_S
        self.configs: list[dict[str, str]] = []
        self.calls: list[Any] = []
        self.pauses: list[float] = []
        self.refused: set[int] = set()
        self.sent: list[bytes] = []
        self.polls: list[list[Any]] = []
        """What comes at each poll, which takes half a second; nothing after the last."""
        self.polled: list[tuple[float, int]] = []
        self.topics = ["t"]
        self.assignment: list[TopicPartition] = []

    def open(self, config: dict[str, str]) -> Self:
        self.configs.append(config)
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    async def init_transactions(self) -> None:
        self.calls.append("init")

    async def begin_transaction(self) -> None:
        self.calls.append("begin")

    async def commit_transaction(self) -> None:
        self.calls.append("commit")

    async def flush(self) -> None:
        self.calls.append("flush")
        self.now += 1

    async def send(self, topic: str, value: bytes, *, partition: int | None = None, on_delivery: Any = None) -> None:
        self.calls.append((topic, value if on_delivery else partition))
        self.sent.append(value)
        self.now += 0.25
        if on_delivery is not None:
            on_delivery(None, ClientError("too large") if len(self.sent) in self.refused else None)

    async def list_topics(self) -> list[str]:
        return self.topics

    def subscribe(self, topics: list[str]) -> None:
        self.calls.append(topics)

    async def poll(self, timeout_s: float, max_records: int = 0) -> list[Any]:
        self.polled.append((timeout_s, max_records))
        self.now += 0.5
        return self.polls.pop(0) if self.polls else []

    async def partitions_for(self, topic: str) -> list[int]:
        return [0, 1]

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.assignment = partitions

    async def position(self, partition: TopicPartition) -> None:
        self.calls.append(partition)


class Echo(Cluster):
    """Each record is read at the second poll after it was sent, together with one of somebody else."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []
        self.slow = 0
        """Which of the records takes a second longer."""

    async def poll(self, timeout_s: float, max_records: int = 0) -> list[Any]:
        self.waits.append(timeout_s)
        is_second = len(self.waits) % 2 == 0
        self.now += 1.5 if is_second and len(self.sent) == self.slow else 0.5
        return [record(b"of others"), *([record(self.sent[-1])] if is_second else [])]


def record(value: bytes | None, key: bytes | None = None) -> Any:
    return SimpleNamespace(value=value, key=key)


def in_place(monkeypatch: pytest.MonkeyPatch, made: Cluster) -> Any:
    patch_own_thread(monkeypatch, time, "perf_counter", lambda: made.now)
    patch_own_thread(monkeypatch, asyncio, "sleep", made.sleep)
    monkeypatch.setattr(measuring, "Producer", made.open)
    monkeypatch.setattr(measuring, "Consumer", made.open)
    return made


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Any:
    return in_place(monkeypatch, Cluster())


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> Any:
    return in_place(monkeypatch, Echo())


def options(**given: Any) -> Namespace:
    usual: dict[str, Any] = {
        "topic": "t",
        "bootstrap_server": "h:1",
        "command_config": None,
        "props": {},
        "transactional_id": None,
        "payload_file": None,
        "payload_monotonic": True,
        "record_size": 10,
        "num_records": 4,
        "throughput": -1.0,
        "transaction_duration_ms": 500,
        "reporting_interval": 500,
        "timeout": 1000,
        "output": "json",
        "kafka": False,
        "group": "g",
        "from_latest": False,
        "fetch_size": 7,
        "hide_header": False,
        "show_detailed_stats": False,
    }
    return Namespace(**{**usual, **given})


# Writing


def test_records_are_sent_and_told_of_now_and_then(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run_async(produce(options(output="table")))
    assert cluster.calls == [("t", b"0"), ("t", b"1"), ("t", b"2"), ("t", b"3"), "flush"]
    assert cluster.pauses == []
    report, total = capsys.readouterr().out.splitlines()
    assert report.startswith("3 records sent, 6.0 records/sec (0.00 MB/sec), 250.0 ms avg latency")
    # Two seconds: the last of it was waited for, too.
    assert total.startswith("4 records sent, 2.000000 records/sec (0.00 MB/sec), 250.00 ms avg latency")


def test_reports_begin_anew_after_each(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run_async(produce(options(output="table", num_records=6)))
    told = [line.partition(" (")[0] for line in capsys.readouterr().out.splitlines()]
    assert told[:2] == ["3 records sent, 6.0 records/sec", "2 records sent, 4.0 records/sec"] and len(told) == 3


def test_records_wait_for_their_turn_if_there_is_a_limit(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run_async(produce(options(num_records=3, throughput=2.0)))
    assert cluster.pauses == [0.25, 0.25]
    # The time in which a record was not sent yet is none of its latency.
    assert json.loads(capsys.readouterr().out)["max_ms"] == 250
    cluster.pauses.clear()
    run_async(produce(options(num_records=3, throughput=0.0)))
    assert cluster.pauses == []


def test_a_transaction_ends_when_it_has_lasted_long_enough(cluster: Any) -> None:
    run_async(produce(options(num_records=5, transactional_id="x")))
    assert [call if isinstance(call, str) else int(call[1]) for call in cluster.calls] == [
        *("init", "begin", 0, 1, 2),
        *("commit", "begin", 3, 4),
        *("commit", "flush"),
    ]
    assert cluster.configs[0]["transactional.id"] == "x"


def test_what_was_not_written_is_an_error_in_the_end(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.refused = {2, 3}
    with pytest.raises(KafkaError) as error:
        run_async(produce(options()))
    assert error.value.message == "2 records were not written: too large"
    assert json.loads(capsys.readouterr().out)["records"] == 2
    cluster.refused = {5}
    run_async(produce(options(kafka=True, output="kafka")))


def test_settings_of_the_producer(cluster: Any, tmp_path: Path) -> None:
    file = tmp_path / "settings"
    file.write_text("bootstrap.servers=from-file:1\nacks=1\n")
    run_async(produce(options(props={"linger.ms": "5"})))
    run_async(produce(options(bootstrap_server="", command_config=str(file))))
    first, second = cluster.configs
    assert {"linger.ms": "5", "bootstrap.servers": "h:1", "client.id": "perf-producer-client"}.items() <= first.items()
    assert {"linger.ms": "0", "bootstrap.servers": "from-file:1", "acks": "1"}.items() <= second.items()
    assert "transactional.id" not in first


# Reading


def test_records_are_counted_until_there_are_enough(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.polls = [[], [record(bytes(MB)), record(None, bytes(MB))], [record(bytes(MB), bytes(MB)), record(None)], []]
    run_async(consume(options(output="table")))
    assert cluster.calls == [["t"]] and len(cluster.polls) == 1
    assert cluster.polled == [(0.1, 10_000)] * 3
    header, line = capsys.readouterr().out.splitlines()
    assert header == f"start.time, end.time, {COLUMNS}"
    # 4 MB in 1.5 s, of which a second went by before the first record.
    numbers = "4.0000, 2.6667, 4, 2.6667, 1000, 500, 8.0000, 8.0000"
    assert re.fullmatch(rf"{A_TIME}, {A_TIME}, {numbers}", line)


def test_what_programs_are_told_of_reading(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.polls = [[record(bytes(MB))] * 5]
    run_async(consume(options()))
    assert json.loads(capsys.readouterr().out) == {"records": 5, "records_per_second": 10, "mb_per_second": 10}


@pytest.mark.parametrize(
    ("given", "header"),
    [
        ({"output": "kafka"}, "start.time, end.time"),
        ({"output": "kafka", "hide_header": True}, None),
        ({"output": "table", "show_detailed_stats": True}, "time, threadId"),
        ({"output": "json"}, None),
    ],
)
def test_the_names_of_columns_come_first(
    cluster: Any, given: dict[str, Any], header: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    run_async(consume(options(timeout=0, **given)))
    shown = [line for line in capsys.readouterr().out.splitlines() if COLUMNS in line]
    assert shown == ([] if header is None else [f"{header}, {COLUMNS}"])


@pytest.mark.parametrize("kafka", [True, False])
def test_reading_ends_if_nothing_comes_for_too_long(
    cluster: Any, kafka: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.polls = [[], [record(b"x")], [], [], []]
    run_async(consume(options(kafka=kafka, output="kafka" if kafka else "table")))
    assert cluster.polls == [] and cluster.now == START_S + 2.5
    said = capsys.readouterr()
    warning = "WARNING: Exiting before consuming the expected number of messages: timeout (1000 ms) exceeded."
    assert (warning in said.out, warning in said.err) == (kafka, not kafka)
    assert said.out.splitlines()[-1].endswith("0.0000, 0.0000, 1, 0.4000, 1000, 1500, 0.0000, 0.6667")


def test_details_are_told_at_intervals(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    two = [record(bytes(MB)), record(b"")]
    cluster.polls = [two[:1], two, two, two[:1]]
    run_async(consume(options(num_records=6, reporting_interval=1000, show_detailed_stats=True)))
    lines = capsys.readouterr().out.splitlines()
    numbers = [
        "2.0000, 2.0000, 3, 3.0000, 500, 500, 4.0000, 6.0000",
        "2.0000, 2.0000, 3, 3.0000, 500, 500, 4.0000, 6.0000",
    ]
    assert len(lines) == 2
    for line, shown in zip(lines, numbers, strict=True):
        assert re.fullmatch(rf"{A_TIME}, 0, {shown}", line)


def test_before_the_first_record_all_time_went_into_joining(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run_async(consume(options(reporting_interval=1000, show_detailed_stats=True)))
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith("0, 0.0000, 0.0000, 0, 0.0000, 1000, 1, 0.0000, 0.0000")


def test_whoever_looks_on_sees_how_far_the_reading_is(
    cluster: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    cluster.polls = [[record(b"x")], [record(b"x")] * 3]
    run_async(consume(options(output="table", hide_header=True)))
    shown = capsys.readouterr().out.split("\r\x1b[K")
    assert shown[1:3] == ["1 records read, 2.0 records/sec", "4 records read, 4.0 records/sec"]


def test_settings_of_the_consumer(cluster: Any) -> None:
    run_async(consume(options(timeout=0)))
    run_async(consume(options(timeout=0, from_latest=True, group=None)))
    first, second = cluster.configs
    expected = {
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "max.partition.fetch.bytes": "7",
        "bootstrap.servers": "h:1",
        "client.id": "perf-consumer-client",
    }
    assert expected.items() <= first.items()
    assert second["auto.offset.reset"] == "latest"
    assert re.fullmatch(r"perf-consumer-\d{1,5}", second["group.id"])


def test_a_topic_that_is_not_there_is_not_waited_for(cluster: Any) -> None:
    cluster.topics = ["table"]
    with pytest.raises(KafkaError) as refusal:
        run_async(consume(options(topic="tables")))
    assert refusal.value.message == "topic 'tables' does not exist; did you mean 'table'?"
    assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    run_async(consume(options(topic="tables", kafka=True, timeout=0)))
    assert cluster.calls == [["tables"]]


# From end to end


def test_one_record_at_a_time_goes_from_end_to_end(echo: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run_async(latency(options(num_records=3, timeout=2000, record_size=20, output="table", reporting_interval=2000)))
    places = [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert echo.assignment == places
    assert echo.calls == [*places, ("t", 0), ("t", 1), ("t", 0)]
    assert {len(value) for value in echo.sent} == {20} and len(set(echo.sent)) == 3
    assert set(echo.waits) == {2.0}
    assert capsys.readouterr().out.splitlines() == [
        "2 records, 1250.00 ms the last one",
        "Avg latency: 1250.0000 ms",
        "Percentiles (ms): 50th = 1250.00, 95th = 1250.00, 99th = 1250.00, 99.9th = 1250.00, max = 1250.00",
    ]
    reading, writing = echo.configs
    assert (reading["auto.offset.reset"], reading["client.id"]) == ("latest", "perf-latency-client")
    assert writing["client.id"] == "perf-producer-client"


def test_times_from_end_to_end_are_summed_up(echo: Any, capsys: pytest.CaptureFixture[str]) -> None:
    echo.slow = 3
    run_async(latency(options(num_records=3, timeout=2000, record_size=1)))
    total = json.loads(capsys.readouterr().out)
    assert total["avg_ms"] == pytest.approx(1250 + 1000 / 3)
    assert (total["records"], total["max_ms"], total["p50_ms"], total["p99.9_ms"]) == (3, 2250, 1250, 2250)
    # Shorter ones could not be told from those of others.
    assert {len(value) for value in echo.sent} == {8}


def test_how_kafkas_tool_tells_of_it(echo: Any, capsys: pytest.CaptureFixture[str]) -> None:
    echo.slow = 2
    run_async(latency(options(num_records=1002, timeout=2000, kafka=True, output="kafka")))
    assert capsys.readouterr().out.splitlines() == [
        "0\t1250.0",
        "1000\t1250.0",
        "Avg latency: 1250.9980 ms",
        "Percentiles: 50th = 1250, 99th = 1250, 99.9th = 1250",
    ]


def test_a_record_that_does_not_come_back_in_time_ends_it(echo: Any) -> None:
    run_async(latency(options(num_records=1, timeout=750)))
    with pytest.raises(KafkaError) as late:
        run_async(latency(options(num_records=1, timeout=749)))
    assert late.value.message == "record 0 was not read within 749 ms"
