"""Scripts that test suites of Kafka call: clients that tell what they do as JSON, latency, a cluster's id, a broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.kafka_names import server
from ottla.cli.kafka_names.scripts import run_script
from ottla.cli.kafka_names.verifiable_consumer import _assignor
from tests.broker_process import BrokerProcess
from tests.ports import free_port
from tests.unit.cli.commands import Commands
from tests.waiting import PATIENCE_S, repeat_until

Events = list[dict[str, Any]]
Told = Callable[..., Events]
PRODUCER, CONSUMER = "kafka-verifiable-producer.sh", "kafka-verifiable-consumer.sh"


@pytest.fixture
def told(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> Told:
    """The events of a client, without their times."""

    def events(script: str, *arguments: str) -> Events:
        assert run_script(script, ["--bootstrap-server", broker.bootstrap, *arguments]) == 0
        return read_events(capsys.readouterr().out)

    return events


def read_events(text: str) -> Events:
    events = [json.loads(line) for line in text.splitlines()]
    assert all(list(event)[:2] == ["timestamp", "name"] and event.pop("timestamp") > 0 for event in events)
    return events


def test_what_a_producer_tells(told: Told, new_topic: str) -> None:
    start, *sent, end, figures = told(PRODUCER, "--topic", new_topic, "--max-messages", "2")
    place = {"topic": new_topic, "partition": 0}
    assert (start, end) == ({"name": "startup_complete"}, {"name": "shutdown_complete"})
    assert sent == [
        {"name": "producer_send_success", "key": None, "value": str(number), "offset": number, **place}
        for number in (0, 1)
    ]
    assert figures.pop("avg_throughput") > 0
    assert figures == {"name": "tool_data", "sent": 2, "acked": 2, "target_throughput": -1}
    options = ("--max-messages", "3", "--value-prefix", "7", "--repeating-keys", "2", "--throughput", "1000")
    events = told(PRODUCER, "--topic", new_topic, "--acks", "1", "--message-create-time", "1700000000000", *options)
    assert [(event["key"], event["value"]) for event in events[1:4]] == [("0", "7.0"), ("1", "7.1"), ("0", "7.2")]


def test_what_a_consumer_tells(told: Told, ottla: Commands, filled: str) -> None:
    whole = [{"topic": filled, "partition": number} for number in (0, 1)]
    group = ("--topic", filled, "--group-id", f"group-of-{filled}")
    start, come, *read, gone, end = told(CONSUMER, *group, "--max-messages", "4", "--verbose")
    assert (start["name"], end["name"]) == ("startup_complete", "shutdown_complete")
    assert come == {"name": "partitions_assigned", "partitions": whole}
    assert gone == {"name": "partitions_revoked", "partitions": whole}
    records = [event for event in read if event["name"] == "record_data"]
    assert len(records) == 4 and all(event["value"] == str(event["offset"]) for event in records)
    spans = [span for event in read if event["name"] == "records_consumed" for span in event["partitions"]]
    assert sum(span["count"] for span in spans) == 4
    committed = [event for event in read if event["name"] == "offsets_committed"]
    assert committed and all(event["success"] for event in committed)
    reached = {offset["partition"]: offset["offset"] for event in committed for offset in event["offsets"]}
    rows = ottla.json("groups", "describe", group[-1])
    assert {row["partition"]: row["current_offset"] for row in rows if row["current_offset"] is not None} == reached
    assert sum(reached.values()) == 4


def test_a_consumer_that_commits_by_itself(told: Told, filled: str) -> None:
    group = ("--topic", filled, "--group-id", f"own-{filled}", "--group-protocol", "CONSUMER", "--enable-autocommit")
    names = {event["name"] for event in told(CONSUMER, *group, "--max-messages", "1")}
    assert names == {
        "startup_complete",
        "partitions_assigned",
        "records_consumed",
        "partitions_revoked",
        "shutdown_complete",
    }


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("org.apache.kafka.clients.consumer.RangeAssignor", "range"),
        ("org.apache.kafka.clients.consumer.RoundRobinAssignor", "roundrobin"),
        ("org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "cooperative-sticky"),
        ("sticky", "sticky"),
    ],
)
def test_assignors_have_the_names_of_javas_classes(name: str, short: str) -> None:
    assert _assignor(name) == short


def test_a_producer_that_is_stopped_tells_its_end(broker: BrokerProcess, new_topic: str, tmp_path: Path) -> None:
    told = tmp_path / "events"
    command = [sys.executable, "-m", "ottla.cli.kafka_names.scripts", PRODUCER, "--throughput", "100"]
    with told.open("w") as output:
        producer = subprocess.Popen(
            [*command, "--topic", new_topic, "--bootstrap-server", broker.bootstrap], stdout=output
        )
    try:
        repeat_until(lambda: "producer_send_success" in told.read_text())
        producer.send_signal(signal.SIGTERM)
        assert producer.wait(PATIENCE_S) == 0
    finally:
        producer.kill()
        producer.wait(PATIENCE_S)
    events = read_events(told.read_text())
    assert [event["name"] for event in events[-2:]] == ["shutdown_complete", "tool_data"]
    assert events[-1]["sent"] == events[-1]["acked"] == len(events) - 3


def test_what_is_missing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    server_option = ["--bootstrap-server", "127.0.0.1:1"]
    for script, says in ((PRODUCER, "argument --topic is required"), (CONSUMER, "argument --topic is required")):
        assert run_script(script, server_option) == 1
        assert capsys.readouterr().err == f"{says}\n"
    assert run_script(CONSUMER, [*server_option, "--topic", "t"]) == 1
    assert capsys.readouterr().err == "argument --group-id is required\n"
    assert run_script(PRODUCER, [*server_option, "--topic", "t"]) == 1
    assert capsys.readouterr().err.startswith("cannot reach 127.0.0.1:1: ")


def test_latency_and_the_id_of_the_cluster(ottla: Commands, new_topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    measure = [ottla.server, new_topic, "3", "all", "10"]
    assert run_script("kafka-e2e-latency.sh", measure) == 0
    created, first, average, shares = capsys.readouterr().out.splitlines()
    assert created.startswith(f'Topic "{new_topic}" does not exist. Will create topic with 1 partition(s)')
    assert first.startswith("0\t") and average.startswith("Avg latency: ") and average.endswith(" ms")
    assert shares.startswith("Percentiles: 50th = ") and ", 99th = " in shares and ", 99.9th = " in shares
    for wrong, says in ((measure[:4], "USAGE: "), ([*measure[:3], "0", "10"], "Latency testing requires")):
        assert run_script("kafka-e2e-latency.sh", wrong) == 1
        assert capsys.readouterr().err.startswith(says)
    cluster_id = ottla.json("cluster", "status")["cluster_id"]
    assert run_script("kafka-cluster.sh", ["cluster-id", "--bootstrap-server", ottla.server]) == 0
    assert capsys.readouterr().out == f"Cluster ID: {cluster_id}\n"
    assert run_script("kafka-cluster.sh", ["bogus"]) == 1


def test_a_broker_is_started_behind_and_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    properties = tmp_path / "server.properties"
    properties.write_text(f"listeners=PLAINTEXT://127.0.0.1:{port}\n")
    monkeypatch.setenv("LOG_DIR", str(tmp_path / "logs"))
    own = f"log.dirs={tmp_path / 'data'}"
    running = server._running
    # Brokers of others are not for this test to stop.
    monkeypatch.setattr(server, "_running", lambda: [pid for pid in running() if is_of(pid, own)])
    assert run_script(server.STOP, []) == 1
    assert capsys.readouterr().out == "No kafka server to stop\n"
    assert run_script(server.START, ["-daemon", str(properties), "--override", own]) == 0
    output = tmp_path / "logs" / "kafkaServer.out"
    try:
        repeat_until(lambda: f"is listening on PLAINTEXT://127.0.0.1:{port}" in output.read_text())
    finally:
        assert run_script(server.STOP, []) == 0
    repeat_until(lambda: "all logs are closed" in output.read_text())
    repeat_until(lambda: all(os.waitpid(pid, os.WNOHANG)[0] for pid in server._running()))
    assert run_script(server.START, []) == 1
    assert capsys.readouterr().err.startswith("USAGE: ./kafka-server-start.sh [-daemon] server.properties")


def is_of(process_id: int, word: str) -> bool:
    return word.encode() in Path(f"/proc/{process_id}/cmdline").read_bytes().split(b"\0")


def test_a_signal_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNAL", "NONSENSE")
    with pytest.raises(server.UsageError, match="SIGNAL 'NONSENSE' is no signal"):
        server.main([], server.STOP)
