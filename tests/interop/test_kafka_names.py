"""Kafka's script names: a quick start through them, line by line, and the same answers as Kafka's own tools give.

Where we differ: rows are sorted, where Kafka prints them in the order of a hash table.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import ottla
from ottla.cli.kafka_names.aliases import write_scripts
from ottla.cli.kafka_names.scripts import SCRIPTS
from ottla.cli.main import main
from tests.broker_process import BrokerProcess
from tests.interop.kafka_tools import KafkaTools
from tests.interop.kafka_tools import kafka_commands_fixture as kafka_commands_fixture

pytestmark = pytest.mark.interop

Answer = tuple[int, str, str]
Run = Callable[..., Answer]

JAVA = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-get-offsets.sh": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-log-dirs.sh": "org.apache.kafka.tools.LogDirsCommand",
}


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("bin")
    assert main(["aliases", str(directory)]) == 0
    return directory


@pytest.fixture
def run(scripts: Path, broker: BrokerProcess, tmp_path: Path) -> Run:
    def run_script(name: str, *arguments: str, text: str = "") -> Answer:
        command = [str(scripts / name), "--bootstrap-server", broker.bootstrap, *arguments]
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
        )
        return done.returncode, done.stdout, done.stderr

    return run_script


def test_every_script_is_written_and_none_of_others_written_over(scripts: Path, tmp_path: Path) -> None:
    assert sorted(path.name for path in scripts.iterdir()) == sorted(SCRIPTS)
    assert all(os.access(path, os.X_OK) for path in scripts.iterdir())
    assert write_scripts(scripts) == list(SCRIPTS)
    (tmp_path / "kafka-topics.sh").write_text("#!/bin/sh\necho mine\n")
    assert main(["aliases", str(tmp_path)]) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["kafka-topics.sh"]


def test_a_day_at_a_terminal(run: Run, new_topic: str) -> None:
    """In the order of Kafka's quick start; the words are those Kafka 3.9 prints."""
    group = f"group-{new_topic}"
    topics, groups = "kafka-topics.sh", "kafka-consumer-groups.sh"
    named = ("--topic", new_topic)
    assert run(topics, "--create", *named, "--partitions", "2") == (0, f"Created topic {new_topic}.\n", "")
    code, out, error = run(topics, "--create", *named)
    assert (code, out) == (1, f"Error while executing topic command : Topic '{new_topic}' already exists.\n")
    assert "org.apache.kafka.common.errors.TopicExistsException: " in error
    code, out, _ = run(topics, "--alter", *named, "--partitions", "1")
    shrinks = "Topic currently has 2 partitions, which is higher than the requested 1."
    assert (code, out) == (1, f"Error while executing topic command : {shrinks}\n")
    assert run(topics, "--list", *named) == (0, f"{new_topic}\n", "")
    lines = "h1:v1\tk1\tone\nh1:v1\tk1\ttwo\n"
    properties = ("--property", "parse.key=true", "--property", "parse.headers=true")
    assert run("kafka-console-producer.sh", *named, *properties, text=lines) == (0, "", "")
    shown = ("--property", "print.key=true", "--property", "print.headers=true", "--property", "print.delivery=true")
    read = ("--from-beginning", "--max-messages", "2", "--group", group)
    assert run("kafka-console-consumer.sh", *named, *read, *shown) == (
        0,
        "h1:v1\tk1\tone\nh1:v1\tk1\ttwo\n",
        "Processed a total of 2 messages\n",
    )
    code, out, error = run(groups, "--describe", "--group", group)
    assert (code, error) == (0, f"\nConsumer group '{group}' has no active members.\n")
    assert out.startswith("\nGROUP ") and not out.endswith("\n")
    assert sorted(line.split()[5] for line in out.splitlines()[2:]) == ["0", "0"]
    table = f"\n{'GROUP':<30} {'TOPIC':<30} {'PARTITION':<10} {'NEW-OFFSET':<15}"
    rows = "".join(f"{group:<30} {new_topic:<30} {partition:<10} {0:<15}" for partition in range(2))
    reset = ("--reset-offsets", "--group", group, *named, "--to-earliest")
    assert run(groups, *reset, "--execute") == (0, table + rows, "")
    assert run(groups, *reset)[2].startswith("WARN: No action will be performed as the --execute option is missing.")
    assert run(groups, "--describe", "--group", "nobody")[:2] == (
        0,
        "\nError: Consumer group 'nobody' does not exist.\n",
    )
    assert sum(int(line.split(":")[2]) for line in run("kafka-get-offsets.sh", *named)[1].splitlines()) == 2
    configs = "kafka-configs.sh"
    changed = (0, f"Completed updating config for topic {new_topic}.\n", "")
    assert run(configs, "--alter", *named, "--add-config", "retention.ms=86400000") == changed
    assert run(configs, "--alter", *named, "--delete-config", "retention.ms") == changed
    assert run(configs, "--alter", *named, "--delete-config", "retention.ms") == (
        1,
        "",
        "Invalid config(s): retention.ms\n",
    )
    successes = f"Deletion of requested consumer groups ('{group}') was successful.\n"
    assert run(groups, "--delete", "--group", group) == (0, successes, "")
    assert run(groups, "--delete", "--group", group)[1] == (
        f"\nError: Deletion of some consumer groups failed:\n* Group '{group}' could not be deleted due to: "
        "java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.GroupIdNotFoundException: "
        "The group id does not exist.\n"
    )
    assert run(topics, "--delete", *named) == (0, "", "")
    code, out, _ = run(topics, "--describe", *named)
    missing = f"Error while executing topic command : Topic 'Optional[{new_topic}]' does not exist as expected\n"
    assert (code, out) == (1, missing)
    assert run(groups, "--list", "--describe")[0] == 1
    assert run(topics, "--list", "--zookeeper", "localhost:2181")[0] == 1


def test_records_are_deleted_and_speed_is_measured(
    run: Run, scripts: Path, broker: BrokerProcess, new_topic: str
) -> None:
    assert run("kafka-topics.sh", "--create", "--topic", new_topic)[0] == 0
    perf = [
        str(scripts / "kafka-producer-perf-test.sh"),
        "--topic",
        new_topic,
        "--num-records",
        "20",
        "--record-size",
        "9",
    ]
    properties = ["--throughput", "-1", "--producer-props", f"bootstrap.servers={broker.bootstrap}", "acks=1"]
    done = subprocess.run([*perf, *properties], capture_output=True, text=True, timeout=60, check=True)
    number = r"\d+(\.\d+)?"
    assert re.fullmatch(
        rf"20 records sent, \d+\.\d{{6}} records/sec \({number} MB/sec\), {number} ms avg latency, {number} ms max "
        r"latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99.9th.\n",
        done.stdout,
    )
    plan = Path(scripts.parent / "plan.json")
    plan.write_text(json.dumps({"partitions": [{"topic": new_topic, "partition": 0, "offset": 3}], "version": 1}))
    assert run("kafka-delete-records.sh", "--offset-json-file", str(plan)) == (
        0,
        "Executing records delete operation\nRecords delete operation completed:\n"
        f"partition: {new_topic}-0\tlow_watermark: 3\n",
        "",
    )


@pytest.fixture
def busy_group(broker: BrokerProcess, new_topic: str) -> str:
    """A group without members, with offsets in a topic that has settings of its own."""
    with ottla.Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([ottla.NewTopic(new_topic, 2, 1, configs={"retention.ms": "86400000"})]).check()
        with ottla.Producer(bootstrap_servers=broker.bootstrap) as producer:
            for partition in range(2):
                producer.send(new_topic, b"x" * 10, partition=partition).result()
        admin.alter_group_offsets(f"group-{new_topic}", {ottla.TopicPartition(new_topic, 0): 1}).check()
    return f"group-{new_topic}"


def test_kafkas_own_tools_print_the_same(
    run: Run, kafka_commands: KafkaTools, broker: BrokerProcess, new_topic: str, busy_group: str
) -> None:
    """Byte for byte but for the order of lines, and of objects in a line of JSON."""

    def parts(text: str) -> list[str]:
        return sorted(re.split(r"[\n{}]", text))

    differing = []
    for name, *arguments in (
        ("kafka-topics.sh", "--describe", "--topic", new_topic),
        ("kafka-consumer-groups.sh", "--describe", "--group", busy_group),
        ("kafka-consumer-groups.sh", "--describe", "--group", busy_group, "--state"),
        ("kafka-get-offsets.sh", "--topic", new_topic),
        ("kafka-log-dirs.sh", "--describe", "--topic-list", new_topic),
    ):
        theirs = kafka_commands.run(JAVA[name], "--bootstrap-server", broker.bootstrap, *arguments)
        ours = run(name, *arguments)[1]
        if parts(ours) != parts(theirs):
            differing.append((name, arguments, ours, theirs))
    assert differing == []
