"""Kafka's own tools on three of our brokers and on three of Apache Kafka's, on ZooKeeper: both say the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.handlers.config_resources import BROKER
from ottla.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.cluster.processes_on_zookeeper import IDS, KAFKA, OTTLA, ProcessesOnZooKeeper
from tests.cluster.test_java_reassignment import planned
from tests.interop.terminal.kafka_jvm import KafkaJvm
from tests.interop.terminal.kafka_jvm import kafka_jvm_fixture as kafka_jvm_fixture
from tests.interop.terminal.transcript import Said
from tests.raw_client import RawClient
from tests.waiting import repeat_until
from tests.zookeeper_process import ZooKeeperProcesses

pytestmark = pytest.mark.timeout(300)

TOPICS, CONFIGS, LOG_DIRS = "kafka-topics.sh", "kafka-configs.sh", "kafka-log-dirs.sh"
REASSIGN, ELECT = "kafka-reassign-partitions.sh", "kafka-leader-election.sh"
PLAN, ELECTION = "plan.json", "election.json"


_DIFFERENCES = {
    r"TopicId: [\w-]{22}": "TopicId: <id>",
    r"\[\d{4}-\d\d-\d\d [\d:,]+\] |^\tat .*\n": "",
    # Tools ask ours in a way that Kafka serves without ZooKeeper only; there is nothing to say either way.
    r"\tElr: (N/A)?\tLastKnownElr: (N/A)?": "",
    # Ours say where a default in hours comes from.
    r", DEFAULT_CONFIG:log\.(retention|roll)\.hours=168": "",
    # Why a topic is refused is said in other words, and so is which topic is unknown.
    r"(Error while executing topic command : ).*": r"\1<reason>",
    r"(UnknownTopicOrPartitionException: )(this broker .*)?$": r"\1",
}


class Terminal:
    """One cluster, and what the tools have said about it."""

    def __init__(self, jvm: KafkaJvm, cluster: ProcessesOnZooKeeper, directory: Path) -> None:
        self.cluster = cluster
        self.said: dict[str, tuple[int, Any, str]] = {}
        self._jvm = jvm
        self._directory = directory
        directory.mkdir()

    def run(self, script: str, line: str) -> str:
        """Words that end with .json are files beside it."""
        words = [str(self._directory / word) if word.endswith(".json") else word for word in line.split()]
        said = self._jvm.run(script, ["--bootstrap-server", self.cluster.servers, *words])
        self.said[f"{len(self.said)} {script} {line}"] = said.exit_code, self._output(said), self._plain(said.error)
        return said.output

    def until_known(self, broker: str, setting: str, value: str) -> None:
        """Brokers hear of a setting after it was confirmed, and a tool asks any of them about the default of all."""
        resource = DescribeConfigsResource(resource_type=BROKER, resource_name=broker, configuration_keys=[setting])
        for broker_id in [int(broker)] if broker else IDS:
            with RawClient(self.cluster.ports[broker_id]) as client:

                def is_known(client: RawClient = client) -> bool:
                    (found,) = client.call(DescribeConfigsRequest(resources=[resource]), 4).results
                    return [config.value for config in found.configs] == [value]

                repeat_until(is_known)

    def until_verified(self, plan: str) -> None:
        """What is said before is a matter of time."""
        servers = ["--bootstrap-server", self.cluster.servers]
        words = ["--verify", "--preserve-throttles", "--reassignment-json-file", str(self._directory / plan)]
        repeat_until(lambda: "in progress" not in self._jvm.run(REASSIGN, [*servers, *words]).output)

    def write(self, name: str, **content: Any) -> None:
        (self._directory / name).write_text(json.dumps({"version": 1, **content}))

    def _plain(self, text: str) -> str:
        """Without what differs between any two clusters, and between two runs of one tool."""
        for own, name in (
            (str(self.cluster.directory), "<dir>"),
            (str(self._directory), "<files>"),
            (self.cluster.servers, "<servers>"),
        ):
            text = text.replace(own, name)
        for pattern, instead in _DIFFERENCES.items():
            text = re.sub(pattern, instead, text, flags=re.MULTILINE)
        return "".join(f"{_in_order(line)}\n" for line in text.splitlines())

    def _output(self, said: Said) -> Any:
        lines: list[Any] = self._plain(said.output).splitlines()
        for place, line in enumerate(lines):
            if line.startswith('{"brokers"'):
                lines[place] = _log_dirs(line)
            elif "Proposed" in said.output and line.startswith('{"version"'):
                lines[place] = [(each["topic"], sorted(each["replicas"])) for each in json.loads(line)["partitions"]]
        return lines


def _in_order(line: str) -> str:
    """Partitions that a tool takes out of a hash table, and in-sync sets."""
    words, found, listed = line.partition(" for partitions ")
    if found:
        return words + found + ", ".join(sorted(listed.split(", ")))
    return re.sub(r"(?<=Isr: )[\d,]+", lambda isr: ",".join(sorted(isr[0].split(","))), line)


def _log_dirs(line: str) -> Any:
    found = json.loads(line)
    for broker in found["brokers"]:
        for log_dir in broker["logDirs"]:
            log_dir["partitions"].sort(key=lambda each: each["partition"])
    found["brokers"].sort(key=lambda each: each["broker"])
    return found


def play(terminal: Terminal) -> None:
    _topics(terminal)
    _configs(terminal)
    _log_directories(terminal)
    _moves(terminal)
    _elections(terminal)
    terminal.run(TOPICS, "--delete --topic j")
    terminal.run(TOPICS, "--delete --topic j --if-exists")
    terminal.run(TOPICS, "--delete --topic k")
    terminal.run(TOPICS, "--list")


def _topics(terminal: Terminal) -> None:
    for line in (
        "--create --topic j --replica-assignment 1:2,2:3 --config retention.ms=86400000",
        "--create --topic j --partitions 1",
        "--create --topic j --partitions 1 --if-not-exists",
        "--create --topic k --replica-assignment 3:1:2 --config min.insync.replicas=3",
        "--create --topic big --partitions 1 --replication-factor 4",
        "--create --topic new --partitions 1 --config nonsense=1",
        "--list",
        "--describe",
        "--describe --topic j",
        "--describe --topics-with-overrides",
        "--describe --under-replicated-partitions",
        "--describe --unavailable-partitions",
        "--describe --at-min-isr-partitions",
        "--describe --topic nowhere",
        "--alter --topic j --partitions 3 --replica-assignment 1:2,2:3,3:1",
        "--alter --topic j --partitions 2",
        "--alter --topic nowhere --partitions 2",
        "--alter --topic nowhere --partitions 2 --if-exists",
        "--describe --topic j --exclude-internal",
    ):
        terminal.run(TOPICS, line)


def _configs(terminal: Terminal) -> None:
    for line in (
        "--alter --entity-type topics --entity-name j --add-config segment.ms=5000,cleanup.policy=[compact,delete]",
        "--describe --entity-type topics --entity-name j",
        "--alter --entity-type topics --entity-name j --delete-config segment.ms,cleanup.policy",
        "--describe --entity-type topics",
        "--alter --entity-type topics --entity-name j --delete-config max.message.bytes",
        "--describe --entity-type topics --entity-name nowhere",
    ):
        terminal.run(CONFIGS, line)
    default, second = "--entity-type brokers --entity-default", "--entity-type brokers --entity-name 2"
    terminal.run(CONFIGS, f"--alter {default} --add-config message.max.bytes=3000000")
    terminal.until_known("", "message.max.bytes", "3000000")
    terminal.run(CONFIGS, f"--describe {default}")
    terminal.run(CONFIGS, f"--alter {second} --add-config log.cleaner.threads=2")
    terminal.until_known("2", "log.cleaner.threads", "2")
    terminal.run(CONFIGS, f"--describe {second}")
    terminal.run(CONFIGS, f"--alter {second} --delete-config log.cleaner.threads")
    terminal.run(CONFIGS, f"--alter {default} --delete-config message.max.bytes")


def _log_directories(terminal: Terminal) -> None:
    for line in (
        "--describe --topic-list j",
        "--describe --topic-list j,k --broker-list 3,1",
        "--describe --topic-list nowhere --broker-list 1",
        "--describe --topic-list j --broker-list 1,9",
    ):
        terminal.run(LOG_DIRS, line)


def _moves(terminal: Terminal) -> None:
    file = f"--reassignment-json-file {PLAN}"
    terminal.write("topics.json", topics=[{"topic": "k"}])
    # Which of them leads is a matter of chance.
    terminal.run(REASSIGN, "--generate --topics-to-move-json-file topics.json --broker-list 1,2,3")
    terminal.run(REASSIGN, "--generate --topics-to-move-json-file topics.json --broker-list 1,2")
    terminal.run(REASSIGN, "--generate --topics-to-move-json-file topics.json --broker-list 1,1")
    terminal.write(PLAN, partitions=[planned("j", 0, 3, 1), planned("j", 1, 1, 2), planned("k", 0, 2, 3)])
    terminal.run(REASSIGN, "--list")
    terminal.run(REASSIGN, f"--verify {file}")
    terminal.run(REASSIGN, f"--execute {file} --disallow-replication-factor-change")
    terminal.run(REASSIGN, f"--execute {file} --throttle 1000000")
    terminal.until_verified(PLAN)
    terminal.run(REASSIGN, f"--verify {file} --preserve-throttles")
    terminal.run(REASSIGN, f"--verify {file}")
    terminal.run(REASSIGN, f"--cancel {file}")
    terminal.run(TOPICS, "--describe --topic j")
    terminal.run(TOPICS, "--describe --topic k")
    for wrong in (
        planned("j", 0),
        planned("j", 0, 9),
        planned("j", 0, 1, 1),
        planned("j", 7, 1),
        planned("nowhere", 0, 1),
    ):
        terminal.write(PLAN, partitions=[wrong])
        terminal.run(REASSIGN, f"--execute {file}")
    terminal.write(PLAN, partitions=[])
    terminal.run(REASSIGN, f"--execute {file}")
    terminal.run(REASSIGN, f"--execute --verify {file}")
    terminal.run(REASSIGN, "--list --throttle 5")


def _elections(terminal: Terminal) -> None:
    terminal.write(ELECTION, partitions=[{"topic": "j", "partition": 0}, {"topic": "j", "partition": 1}])
    for line in (
        f"--election-type preferred --path-to-json-file {ELECTION}",
        f"--election-type preferred --path-to-json-file {ELECTION}",
        "--election-type preferred --topic k --partition 0",
        "--election-type unclean --topic j --partition 0",
        "--election-type preferred --topic j --partition 9",
        "--election-type preferred --all-topic-partitions",
        "--election-type nonsense --all-topic-partitions",
        "--election-type preferred --topic j",
    ):
        terminal.run(ELECT, line)
    terminal.run(TOPICS, "--describe --topic j")


@pytest.fixture
def terminals(zookeeper: ZooKeeperProcesses, kafka_jvm: KafkaJvm, tmp_path: Path) -> Iterator[dict[str, Terminal]]:
    found: dict[str, Terminal] = {}
    try:
        for kind, name in ((KAFKA, "theirs"), (OTTLA, "ours")):
            cluster = ProcessesOnZooKeeper(tmp_path / name, zookeeper.new_cluster(), dict.fromkeys(IDS, kind))
            found[kind] = Terminal(kafka_jvm, cluster, tmp_path / f"files-{name}")
            cluster.begin()
        yield found
    finally:
        for terminal in found.values():
            terminal.cluster.end()


def test_every_option_does_what_it_does_on_kafka(terminals: dict[str, Terminal]) -> None:
    for terminal in terminals.values():
        play(terminal)
    ours, theirs = (terminals[kind].said for kind in (OTTLA, KAFKA))
    assert {what: (ours[what], theirs[what]) for what in theirs if ours[what] != theirs[what]} == {}
    assert len(theirs) == len(ours)
