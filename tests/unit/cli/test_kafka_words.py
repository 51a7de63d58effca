"""Kafka's scripts in this process: what they refuse, and what they print of log directories and speed."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from array import array
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from ottla.cli.failures import UsageError
from ottla.cli.kafka_names.scripts import run_script
from ottla.cli.perf.measuring import (
    Latencies,
    _report_s,
    _show_total,
    _stamp,
    _tell,
    payloads,
    percentile,
    rates,
    total_line,
)
from ottla.client.errors import ClientError
from tests.unit.cli.commands import Commands, Said

Script = Callable[..., Said]


@pytest.fixture
def script(ottla: Commands, capsys: pytest.CaptureFixture[str]) -> Script:
    def run(name: str, *arguments: str) -> Said:
        code = run_script(name, ["--bootstrap-server", ottla.server, *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--create"], 'Missing required argument "[topic]"'),
        (["--alter", "--partitions", "2"], 'Missing required argument "[topic]"'),
        (["--delete"], 'Missing required argument "[topic]"'),
        (["--alter", "--topic", "t", "--config", "a=b"], "the kafka-configs CLI supports altering topic configs"),
        (["--alter", "--topic", "t"], 'Missing required argument "[partitions]"'),
        (
            ["--alter", "--topic", "t", "--partitions", "2", "--replication-factor", "1"],
            'Option "[replication-factor]" can\'t be used with option "[alter]"',
        ),
        (
            ["--create", "--topic", "t", "--replica-assignment", "1", "--partitions", "1"],
            'Option "[replica-assignment]" can\'t be used with option "[partitions]"',
        ),
        (
            ["--delete", "--topic", "t", "--partitions", "2"],
            'Option "[partitions]" can\'t be used with option "[delete]"',
        ),
        (["--list", "--if-not-exists"], 'Option "[if-not-exists]" can\'t be used with option "[list]"'),
        (
            ["--describe", "--unavailable-partitions", "--topics-with-overrides"],
            'Option "[unavailable-partitions]" can\'t be used with option "[topics-with-overrides]"',
        ),
        (["--list", "--bootstrap-server", "x:1"], "Found multiple arguments for option bootstrap-server, but you"),
        (["--list", "--nonsense"], "nonsense is not a recognized option"),
        (["--list", "--exclude"], "exclude is not a recognized option"),
        (["--create", "--topic", "t", "--partitions", "many"], "Cannot parse argument 'many' of option partitions"),
        (["--list", "--topic"], "Option topic requires an argument"),
        (["--create", "--topic", "t", "--config", "a"], "Error while executing topic command : --config 'a' is not"),
    ],
)
def test_what_kafka_topics_refuses(script: Script, arguments: list[str], says: str) -> None:
    code, out, error = script("kafka-topics.sh", *arguments)
    assert code == 1
    assert says in out + error


def test_a_plan_with_a_directory_that_is_not_there(
    script: Script, filled: str, ottla: Commands, tmp_path: Path
) -> None:
    (broker_id,) = {int(row["broker"]) for row in ottla.json("log-dirs", "describe", filled)}
    planned = {"topic": filled, "partition": 0, "replicas": [broker_id], "log_dirs": ["/no/such/dir"]}
    (tmp_path / "plan.json").write_text(json.dumps({"version": 1, "partitions": [planned]}))
    plan = ("--reassignment-json-file", str(tmp_path / "plan.json"), "--execute")
    code, out, error = script("kafka-reassign-partitions.sh", *plan)
    assert (code, error) == (1, "")
    assert out.splitlines()[-1] == f"Error: Failed to alter dir for {filled}-0-{broker_id}"
    code, _, error = ottla("reassign", *plan)
    assert (code, error.startswith(f"Failed to alter dir for {filled}-0-{broker_id}: ")) == (1, True)
    assert error.endswith(" the log directory is not one of this broker's\n")


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("kafka-consumer-groups.sh", ["--list", "--members"], "Option(s) [members] are unavailable given other"),
        ("kafka-consumer-groups.sh", ["--describe"], "[reset-offsets], [describe], [delete], [list]"),
        ("kafka-consumer-groups.sh", [], "--list, --describe, --delete, --reset-offsets, --delete-offsets\n"),
        (
            "kafka-configs.sh",
            ["--alter", "--entity-type", "topics", "--entity-default", "--add-config", "retention.ms=1"],
            "an entity name must be specified with --alter of topics",
        ),
        (
            "kafka-configs.sh",
            ["--describe", "--broker", "abc"],
            "The entity name for brokers must be a valid integer broker id, but it is: abc",
        ),
        (
            "kafka-configs.sh",
            ["--alter", "--broker-logger", "1001", "--add-config", "no.such=DEBUG"],
            "Invalid broker logger(s): no.such",
        ),
        ("kafka-get-offsets.sh", ["--time", "yesterday"], "Error occurred: --time 'yesterday' is no time"),
        ("kafka-get-offsets.sh", ["--topic", "t", "--topic-partitions", "t:0"], "Error occurred: --topic-partitions"),
        ("kafka-leader-election.sh", ["--election-type", "odd"], "Cannot parse argument 'odd' of option election-type"),
        ("kafka-consumer-perf-test.sh", ["--topic", "t"], 'Missing required argument "[messages]"'),
        (
            "kafka-reassign-partitions.sh",
            ["--generate", "--broker-list", "1,1", "--topics-to-move-json-file", "f"],
            "Error: Broker list contains duplicate entries: [1]",
        ),
        ("kafka-transactions.sh", ["find-hanging", "--broker-id", "9"], "broker 9 does not exist; there are 1001"),
        (
            "kafka-console-consumer.sh",
            ["--topic", "t", "--group", "a", "--consumer-property", "group.id=b"],
            "do not match. Detected group ids: 'a', 'b'",
        ),
        (
            "kafka-console-consumer.sh",
            ["--topic", "t", "--from-beginning", "--consumer-property", "auto.offset.reset=latest"],
            "Can't simultaneously specify --from-beginning and 'auto.offset.reset=latest', please remove one option",
        ),
        ("kafka-console-producer.sh", ["--topic", "t", "--line-reader", "no.Such"], "--line-reader 'no.Such': lines"),
        (
            "kafka-console-producer.sh",
            ["--topic", "t", "--property", "parse.key=true", "--property", "null.marker=\t"],
            "org.apache.kafka.common.KafkaException: null.marker and key.separator may not be equal",
        ),
    ],
)
def test_what_other_scripts_refuse(script: Script, name: str, arguments: list[str], says: str) -> None:
    code, out, error = script(name, *arguments)
    assert code == 1
    assert says in out + error


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("kafka-topics.sh", ["--list"], "--bootstrap-server must be specified"),
        (
            "kafka-console-producer.sh",
            ["--topic", "t"],
            "Missing required option(s) [bootstrap-server]",
        ),
        (
            "kafka-consumer-perf-test.sh",
            ["--topic", "t", "--messages", "1"],
            "Missing required option(s) [bootstrap-server]",
        ),
        ("kafka-reassign-partitions.sh", ["--list"], "Please specify --bootstrap-server"),
        ("kafka-consumer-groups.sh", ["--list"], 'Missing required argument "[bootstrap-server]"'),
    ],
)
def test_without_a_server_each_script_says_what_kafkas_does(
    capsys: pytest.CaptureFixture[str], name: str, arguments: list[str], says: str
) -> None:
    try:
        code = run_script(name, arguments)
    except SystemExit as e:
        code = e.code
    said = capsys.readouterr()
    assert code == 1
    assert says in (said.out + said.err).splitlines()


def test_words_without_a_dash_say_nothing_to_kafkas_scripts(script: Script, filled: str) -> None:
    code, out, _ = script("kafka-topics.sh", "--list", "no-such-topic")
    assert code == 0
    assert filled in out.splitlines()


def test_a_test_of_kafkas_reads_that_the_consumer_is_done(script: Script, filled: str) -> None:
    arguments = ("--topic", filled, "--from-beginning", "--max-messages", "1", "--property", "print.value=false")
    assert script("kafka-console-consumer.sh", *arguments, "--enable-systest-events")[:2] == (0, "shutdown_complete\n")


def test_log_directories(script: Script, ottla: Commands, filled: str) -> None:
    rows = ottla.json("log-dirs", "describe", filled)
    code, out, error = script("kafka-log-dirs.sh", "--describe", "--topic-list", filled)
    broker = rows[0]["broker"]
    lines = out.splitlines()
    assert (code, error) == (0, "")
    assert lines[:2] == [
        "Querying brokers for log directories information",
        f"Received log directory information from brokers {broker}",
    ]
    assert json.loads(lines[2]) == {
        "version": 1,
        "brokers": [
            {
                "broker": broker,
                "logDirs": [
                    {
                        "partitions": [
                            {
                                "partition": f"{filled}-{row['partition']}",
                                "size": row["size"],
                                "offsetLag": 0,
                                "isFuture": False,
                            }
                            for row in rows
                        ],
                        "error": None,
                        "logDir": rows[0]["log_dir"],
                    }
                ],
            }
        ],
    }


# Speed


def test_percentiles() -> None:
    values = array("d", range(1, 101))
    assert [percentile(values, share) for share in (0.0, 50.0, 99.0, 99.9, 100.0)] == [1, 51, 100, 100, 100]
    assert percentile(array("d"), 50.0) == 0.0


def test_latencies_of_a_window_and_of_all() -> None:
    latencies = Latencies()
    assert latencies.window(2.0) == (
        "0 records sent, 0.0 records/sec (0.00 MB/sec), 0.0 ms avg latency, 0.0 ms max latency."
    )
    latencies.all_ms.extend([1.0, 3.0])
    latencies.bytes = 4 << 20
    assert latencies.window(2.0) == (
        "2 records sent, 1.0 records/sec (2.00 MB/sec), 2.0 ms avg latency, 3.0 ms max latency."
    )
    latencies.all_ms.append(8.0)
    latencies.bytes += 1 << 20
    assert latencies.window(1.0) == (
        "1 records sent, 1.0 records/sec (1.00 MB/sec), 8.0 ms avg latency, 8.0 ms max latency."
    )
    total = latencies.total(2.0)
    assert (total["records"], total["records_per_second"], total["mb_per_second"]) == (3, 1.5, 2.5)
    assert (total["avg_ms"], total["max_ms"], total["p50_ms"], total["p99.9_ms"]) == (4.0, 8.0, 3.0, 8.0)
    assert total_line(total) == (
        "3 records sent, 1.500000 records/sec (2.50 MB/sec), 4.00 ms avg latency, 8.00 ms max latency, "
        "3 ms 50th, 8 ms 95th, 8 ms 99th, 8 ms 99.9th."
    )
    assert Latencies().total(1.0)["max_ms"] == 0.0


def test_what_was_not_written_counts_as_an_error_only() -> None:
    latencies = Latencies()
    note = latencies.acknowledged(0.0, 7)
    note(None, ClientError("no"))
    assert (len(latencies.errors), len(latencies.all_ms), latencies.bytes) == (1, 0, 0)
    note(None, None)
    assert (len(latencies.errors), len(latencies.all_ms), latencies.bytes) == (1, 1, 7)


def test_rates_of_reading_leave_out_the_time_of_joining() -> None:
    assert rates(4 << 20, 100, 4.0, 2.0) == "4.0000, 1.0000, 100, 25.0000, 2000, 2000, 2.0000, 50.0000"
    assert rates(1 << 20, 1, 1.0, 1.0) == "1.0000, 1.0000, 1, 1.0000, 1000, 1, 1000.0000, 1000.0000"
    assert _stamp(datetime(2024, 1, 2, 3, 4, 5, 67_890)) == "2024-01-02 03:04:05:067"


def test_payloads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def options(**given: object) -> Namespace:
        usual = {"payload_file": None, "payload_delimiter": "\\n", "payload_monotonic": False, "record_size": 5}
        return Namespace(**{**usual, "kafka": "", **given})

    fixed = payloads(options())(0)
    assert len(fixed) == 5 and fixed.isalpha() and fixed.isupper()
    assert payloads(options())(1) is not None
    assert [payloads(options(payload_monotonic=True))(number) for number in (0, 17)] == [b"0", b"17"]
    file = tmp_path / "lines"
    file.write_bytes(b"a\n\nb\n")
    chosen = payloads(options(payload_file=str(file), kafka="kafka-producer-perf-test.sh"))
    assert {chosen(0) for _ in range(100)} == {b"a", b"b"}
    assert capsys.readouterr().out == f"Reading payloads from: {file}\nNumber of messages read: 2\n"
    payloads(options(payload_file=str(file)))
    assert capsys.readouterr().out == ""
    file.write_bytes(b"\n")
    with pytest.raises(UsageError, match="is empty"):
        payloads(options(payload_file=str(file)))


@pytest.mark.parametrize(
    ("output", "told", "total"),
    [
        ("table", "half\n", "all\n"),
        ("kafka", "half\n", "all\n"),
        ("json", "", '{"a": 1.0}\n'),
        ("tsv", "", "a\n1.000\n"),
    ],
)
def test_only_people_are_told_how_far_it_is(
    capsys: pytest.CaptureFixture[str], output: str, told: str, total: str
) -> None:
    options = Namespace(output=output, kafka="")
    _tell("half", options)
    assert capsys.readouterr().out == told
    _show_total({"a": 1.0}, "all", options)
    assert capsys.readouterr().out == total


def test_a_terminal_is_told_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    options = Namespace(kafka="", reporting_interval=5000)
    assert _report_s(options) == 5.0
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert _report_s(options) == 0.5
    assert _report_s(Namespace(kafka="", reporting_interval=100)) == 0.1
    assert _report_s(Namespace(kafka="kafka-producer-perf-test.sh", reporting_interval=5000)) == 5.0
