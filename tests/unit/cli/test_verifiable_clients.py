"""What clients of Kafka's test suites are made with, send, take and tell. The cluster and the time are scripted."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.cli.kafka_names.scripts import run_script
from ottla.cli.kafka_names.verifiable_consumer import _config, parser
from ottla.client.aio.consumer import consumer as consumer_module
from ottla.client.aio.producer import producer as producer_module
from ottla.client.core.producer.batch import RecordMetadata
from ottla.client.errors import ClientError
from tests.own_thread import patch_own_thread

PRODUCER, CONSUMER = "kafka-verifiable-producer.sh", "kafka-verifiable-consumer.sh"
SERVER = ("--bootstrap-server", "h:1")
Events = list[dict[str, Any]]


class Cluster:
    """A producer and a consumer at once. To send takes a tenth of a second; the second record is refused."""

    def __init__(self) -> None:
        self.now = 100.0
        self.configs: list[dict[str, str]] = []
        self.sent: list[tuple[Any, ...]] = []
        self.pauses: list[float] = []
        self.polls: list[list[Any]] = []
        self.polled = 0
        self.subscribed: list[list[str]] = []
        self.committed: list[dict[TopicPartition, int]] = []
        self.refusal: ClientError | None = None

    def __getitem__(self, _: object) -> Self:
        """As the type of a producer of bytes."""
        return self

    def __call__(self, config: dict[str, str]) -> Self:
        self.configs.append(config)
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(round(seconds, 6))
        self.now += seconds

    async def send(
        self, topic: str, value: bytes, key: bytes | None, *, timestamp_ms: int | None, on_delivery: Any
    ) -> None:
        self.sent.append((topic, key, value, timestamp_ms))
        self.now += 0.1
        if len(self.sent) == 2:
            on_delivery(None, ClientError("too large", code=ErrorCode.MESSAGE_TOO_LARGE))
        else:
            on_delivery(RecordMetadata(topic, 3, 40 + len(self.sent), -1), None)

    async def flush(self) -> None:
        self.now += 0.1

    def subscribe(self, topics: list[str], *, listener: Any) -> None:
        self.subscribed.append(topics)
        places = [TopicPartition("t", 1), TopicPartition("t", 0)]
        listener.on_assigned(places)
        listener.on_revoked(places[:1])

    async def poll(self, timeout_s: float) -> list[Any]:
        assert timeout_s == 0.2
        self.polled += 1
        return self.polls.pop(0)

    async def commit(self, offsets: dict[TopicPartition, int]) -> None:
        self.committed.append(offsets)
        if self.refusal is not None:
            raise self.refusal


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(producer_module, "Producer", made)
    monkeypatch.setattr(consumer_module, "Consumer", made)
    patch_own_thread(monkeypatch, time, "perf_counter", lambda: made.now)
    patch_own_thread(monkeypatch, time, "time", lambda: 1700.25)
    patch_own_thread(monkeypatch, asyncio, "sleep", made.sleep)
    return made


@pytest.fixture
def told(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Callable[..., Events]:
    """The events of a script; each begins with the present time and its name."""

    def events(script: str, *arguments: str) -> Events:
        assert run_script(script, [*SERVER, "--topic", "t", *arguments]) == 0
        said = capsys.readouterr()
        assert said.err == ""
        found = [json.loads(line) for line in said.out.splitlines()]
        assert [list(event)[:2] for event in found] == [["timestamp", "name"]] * len(found)
        assert {event.pop("timestamp") for event in found} == {1_700_250}
        return found

    return events


# The producer


def test_each_record_is_told_of_once_it_is_stored_or_is_not(cluster: Cluster, told: Callable[..., Events]) -> None:
    place = {"topic": "t", "partition": 3}
    assert told(PRODUCER, "--max-messages", "3") == [
        {"name": "startup_complete"},
        {"name": "producer_send_success", "key": None, "value": "0", "offset": 41, **place},
        {
            "name": "producer_send_error",
            "key": None,
            "value": "1",
            "topic": "t",
            "exception": "ClientError",
            "message": "too large",
        },
        {"name": "producer_send_success", "key": None, "value": "2", "offset": 43, **place},
        {"name": "shutdown_complete"},
        # Two of three in four tenths of a second.
        {"name": "tool_data", "sent": 3, "acked": 2, "target_throughput": -1, "avg_throughput": pytest.approx(5.0)},
    ]
    assert cluster.sent == [("t", None, b"0", None), ("t", None, b"1", None), ("t", None, b"2", None)]
    assert cluster.pauses == []


def test_events_are_lines_without_blanks(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    run_script(PRODUCER, [*SERVER, "--topic", "ü", "--max-messages", "1"])
    assert capsys.readouterr().out.splitlines()[:2] == [
        '{"timestamp":1700250,"name":"startup_complete"}',
        '{"timestamp":1700250,"name":"producer_send_success","key":null,"value":"0","offset":41,"topic":"ü",'
        '"partition":3}',
    ]


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        (["--max-messages", "0"], []),
        (["--max-messages", "1", "--value-prefix", "0"], [("t", None, b"0.0", None)]),
        (["--max-messages", "1", "--repeating-keys", "0"], [("t", None, b"0", None)]),
        (
            ["--max-messages", "3", "--repeating-keys", "2", "--value-prefix", "7"],
            [("t", b"0", b"7.0", None), ("t", b"1", b"7.1", None), ("t", b"0", b"7.2", None)],
        ),
        (["--max-messages", "2", "--repeating-keys", "1"], [("t", b"0", b"0", None), ("t", b"0", b"1", None)]),
        (
            ["--max-messages", "2", "--message-create-time", "0"],
            [("t", None, b"0", 0), ("t", None, b"1", 1)],
        ),
        (
            ["--max-messages", "2", "--message-create-time", "5000"],
            [("t", None, b"0", 5000), ("t", None, b"1", 5001)],
        ),
    ],
)
def test_what_is_sent(
    cluster: Cluster, told: Callable[..., Events], arguments: list[str], sent: list[tuple[Any, ...]]
) -> None:
    events = told(PRODUCER, *arguments)
    assert cluster.sent == sent
    spoken = [event for event in events if event["name"].startswith("producer_send")]
    assert [(event["key"], event["value"]) for event in spoken] == [
        (None if key is None else key.decode(), value.decode()) for _, key, value, _ in sent
    ]
    assert events[-1]["sent"] == len(sent)


def test_records_wait_for_their_turn(cluster: Cluster, told: Callable[..., Events]) -> None:
    *_, figures = told(PRODUCER, "--max-messages", "3", "--throughput", "4")
    assert cluster.pauses == [0.15, 0.15, 0.15] and figures["target_throughput"] == 4
    cluster.pauses.clear()
    told(PRODUCER, "--max-messages", "2", "--throughput", "20")
    assert cluster.pauses == [0.0, 0.0]
    cluster.pauses.clear()
    told(PRODUCER, "--max-messages", "1", "--throughput", "0")
    assert cluster.pauses == []


def test_settings_of_the_producer(cluster: Cluster, told: Callable[..., Events], tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("retries=5\nlinger.ms=1\n")
    second.write_text("retries=7\nclient.id=me\n")
    none = ("--max-messages", "0")
    told(PRODUCER, *none)
    told(PRODUCER, *none, "--acks", "1")
    told(PRODUCER, *none, "--acks", "0", "--command-config", str(first), "--producer.config", str(second))
    usual = {
        "client.id": "verifiable-producer",
        "bootstrap.servers": "h:1",
        "acks": "-1",
        "retries": "0",
        "enable.idempotence": "false",
    }
    plain, one, files = cluster.configs
    assert usual.items() <= plain.items()
    assert {**usual, "acks": "1"}.items() <= one.items()
    given = {"acks": "0", "retries": "7", "linger.ms": "1", "client.id": "me"}
    assert {**usual, **given}.items() <= files.items()


# The consumer


def record(partition: int, offset: int, value: bytes | None = b"v", key: bytes | None = None) -> Any:
    place = TopicPartition("t", partition)
    return SimpleNamespace(topic="t", partition=partition, offset=offset, key=key, value=value, topic_partition=place)


GROUP = ("--group-id", "g")
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def span(partition: int, count: int, first: int, last: int) -> dict[str, Any]:
    return {"topic": "t", "partition": partition, "count": count, "minOffset": first, "maxOffset": last}


def committed(offsets: dict[int, int], **more: Any) -> dict[str, Any]:
    listed = [{"topic": "t", "partition": partition, "offset": offset} for partition, offset in offsets.items()]
    return {"name": "offsets_committed", "offsets": listed, "success": True, **more}


def test_what_is_assigned_read_and_committed_is_told(cluster: Cluster, told: Callable[..., Events]) -> None:
    cluster.polls = [[record(1, 7), record(0, 4), record(1, 8)], [], [record(0, 5), record(0, 6)]]
    assert told(CONSUMER, *GROUP, "--max-messages", "4") == [
        {"name": "startup_complete"},
        {
            "name": "partitions_assigned",
            "partitions": [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}],
        },
        {"name": "partitions_revoked", "partitions": [{"topic": "t", "partition": 1}]},
        {"name": "records_consumed", "count": 3, "partitions": [span(0, 1, 4, 4), span(1, 2, 7, 8)]},
        committed({0: 5, 1: 9}),
        # Two came, of which one was wanted.
        {"name": "records_consumed", "count": 2, "partitions": [span(0, 1, 5, 5)]},
        committed({0: 6}),
        {"name": "shutdown_complete"},
    ]
    assert (cluster.subscribed, cluster.committed) == ([["t"]], [{T1: 9, T0: 5}, {T0: 6}])


def test_nothing_is_read_if_nothing_is_wanted(cluster: Cluster, told: Callable[..., Events]) -> None:
    told(CONSUMER, *GROUP, "--max-messages", "0")
    assert cluster.polled == 0


def test_each_record_is_told_of_if_asked_for(cluster: Cluster, told: Callable[..., Events]) -> None:
    cluster.polls = [[record(0, 4, b"\xff", b"k"), record(0, 5, None), record(0, 6)]]
    events = told(CONSUMER, *GROUP, "--max-messages", "2", "--verbose", "--enable-autocommit")
    place = {"topic": "t", "partition": 0}
    assert events[3:-1] == [
        {"name": "record_data", "key": "k", "value": "\ufffd", **place, "offset": 4},
        {"name": "record_data", "key": None, "value": None, **place, "offset": 5},
        {"name": "records_consumed", "count": 3, "partitions": [span(0, 2, 4, 5)]},
    ]
    assert cluster.committed == []


def test_a_commit_that_fails_is_told(cluster: Cluster, told: Callable[..., Events]) -> None:
    cluster.polls = [[record(0, 4)]]
    cluster.refusal = ClientError("rebalancing", code=ErrorCode.REBALANCE_IN_PROGRESS)
    *_, event, _ = told(CONSUMER, *GROUP, "--max-messages", "1")
    assert event == committed({0: 5}, success=False, error="rebalancing")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_without_a_limit_it_reads_until_it_is_stopped(
    cluster: Cluster, told: Callable[..., Events], monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    polls = 0

    async def poll(timeout_s: float) -> list[Any]:
        nonlocal polls
        polls += 1
        assert polls < 10_000, "the signal was not heeded"
        if polls == 2:
            signal.raise_signal(number)
        loop = asyncio.get_running_loop()
        passed = loop.create_future()
        loop.call_soon(passed.set_result, None)
        await passed
        return [record(0, 3), record(0, 4)] if polls == 1 else []

    monkeypatch.setattr(cluster, "poll", poll)
    events = told(CONSUMER, *GROUP)
    assert events[3:] == [
        {"name": "records_consumed", "count": 2, "partitions": [span(0, 2, 3, 4)]},
        committed({0: 5}),
        {"name": "shutdown_complete"},
    ]
    assert polls > 1


USUAL = {
    "client.id": "verifiable-consumer",
    "bootstrap.servers": "h:1",
    "group.id": "g",
    "group.protocol": "classic",
    "enable.auto.commit": "false",
    "auto.offset.reset": "earliest",
    "session.timeout.ms": "30000",
}
NEW = {**USUAL, "group.protocol": "consumer"}
del NEW["session.timeout.ms"]
ASSIGNORS = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor, RangeAssignor"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], USUAL),
        (["--session-timeout", "6000"], {**USUAL, "session.timeout.ms": "6000"}),
        (["--enable-autocommit"], {**USUAL, "enable.auto.commit": "true"}),
        (["--reset-policy", "latest"], {**USUAL, "auto.offset.reset": "latest"}),
        (["--group-instance-id", "i"], {**USUAL, "group.instance.id": "i"}),
        (["--group-remote-assignor", "uniform"], USUAL),
        (
            ["--assignment-strategy", ASSIGNORS],
            {**USUAL, "partition.assignment.strategy": "cooperative-sticky,range"},
        ),
        (["--group-protocol", "CONSUMER", "--assignment-strategy", ASSIGNORS], NEW),
        (
            ["--group-protocol", "consumer", "--group-remote-assignor", "uniform"],
            {**NEW, "group.remote.assignor": "uniform"},
        ),
    ],
)
def test_settings_of_the_consumer(arguments: list[str], expected: dict[str, str]) -> None:
    found = _config(parser(CONSUMER).read([*SERVER, "--topic", "t", *GROUP, *arguments]))
    added = ("socket.connection.setup.timeout.ms", "bootstrap.fail.fast")
    assert {name: value for name, value in found.items() if name not in added} == expected


def test_files_with_settings_win(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("group.id=first\nfetch.min.bytes=1\n")
    second.write_text("group.id=second\nauto.offset.reset=none\n")
    files = ("--command-config", str(first), "--consumer.config", str(second))
    found = _config(parser(CONSUMER).read([*SERVER, "--topic", "t", *GROUP, *files]))
    assert {"group.id": "second", "fetch.min.bytes": "1", "auto.offset.reset": "none"}.items() <= found.items()
