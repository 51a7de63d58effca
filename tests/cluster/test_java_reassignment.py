"""Kafka's own ReassignPartitionsCommand and LeaderElectionCommand on our brokers: they say what they say on Kafka's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import EmbeddedCluster
from tests.cluster.test_java_tools import send
from tests.interop.kafka_tools import KafkaToolError, KafkaTools
from tests.interop.kafka_tools import kafka_commands_fixture as kafka_commands_fixture
from tests.waiting import repeat_until

pytestmark = pytest.mark.timeout(300)

TOOLS = "org.apache.kafka.tools"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config={"auto.create.topics.enable": False}) as made:
        yield made


class Command:
    """Kafka's tool, with plans written as values."""

    def __init__(self, tools: KafkaTools, cluster: EmbeddedCluster, directory: Path) -> None:
        self._tools = tools
        self._servers = ["--bootstrap-server", cluster.bootstrap_servers]
        self._directory = directory

    def reassign(self, *arguments: str) -> str:
        return self._tools.run(f"{TOOLS}.reassign.ReassignPartitionsCommand", *self._servers, *arguments)

    def elect(self, *arguments: str) -> str:
        return self._tools.run(f"{TOOLS}.LeaderElectionCommand", *self._servers, *arguments)

    def file(self, *partitions: dict[str, Any]) -> list[str]:
        path = self._directory / "plan.json"
        path.write_text(json.dumps({"version": 1, "partitions": partitions}))
        return ["--reassignment-json-file", str(path)]


@pytest.fixture
def command(cluster: EmbeddedCluster, kafka_commands: KafkaTools, tmp_path: Path) -> Command:
    return Command(kafka_commands, cluster, tmp_path)


def planned(topic: str, partition: int, *replicas: int) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "replicas": list(replicas)}


def test_partitions_are_moved_as_on_kafka(cluster: EmbeddedCluster, command: Command) -> None:
    cluster.create_topic("mv", replicas={0: [1, 2], 1: [2, 3]})
    assert command.reassign("--list") == "No partition reassignments found.\n"
    plan = command.file({**planned("mv", 0, 3, 1), "log_dirs": ["any", "any"]}, planned("mv", 1, 1, 2))
    assert command.reassign(*plan, "--execute") == (
        "Current partition replica assignment\n\n"
        '{"version":1,"partitions":[{"topic":"mv","partition":0,"replicas":[1,2],"log_dirs":["any","any"]},'
        '{"topic":"mv","partition":1,"replicas":[2,3],"log_dirs":["any","any"]}]}\n\n'
        "Save this to use as the --reassignment-json-file option during rollback\n"
        "Successfully started partition reassignments for mv-0,mv-1\n"
    )
    repeat_until(lambda: cluster.isr_of("mv", 0) == {1, 3} and cluster.isr_of("mv", 1) == {1, 2})
    assert command.reassign(*plan, "--verify") == (
        "Status of partition reassignment:\n"
        "Reassignment of partition mv-0 is completed.\n"
        "Reassignment of partition mv-1 is completed.\n\n"
        "Clearing broker-level throttles on brokers 1,2,3\n"
        "Clearing topic-level throttles on topic mv\n"
    )
    assert (cluster.leader_of("mv", 0), cluster.leader_of("mv", 1)) == (1, 2), "whoever leads and stays leads on"
    assert command.elect("--election-type", "preferred", "--all-topic-partitions").startswith(
        "Successfully completed leader election (PREFERRED) for partitions mv-"
    )
    assert (cluster.leader_of("mv", 0), cluster.leader_of("mv", 1)) == (3, 1)
    assert command.elect("--election-type", "preferred", "--topic", "mv", "--partition", "0") == (
        "Valid replica already elected for partitions mv-0\n"
    )


def test_a_throttled_move_is_listed_and_called_off(cluster: EmbeddedCluster, command: Command) -> None:
    cluster.create_topic("big", replicas={0: [1], 1: [1]})
    for partition in (0, 1):
        send(cluster, "big", [bytes(100_000)] * 20, partition)
    plan = command.file(planned("big", 0, 2), planned("big", 1, 1, 3))
    said = command.reassign(*plan, "--execute", "--throttle", "30000")
    assert said.endswith(
        "The inter-broker throttle limit was set to 30000 B/s\n"
        "Successfully started partition reassignments for big-0,big-1\n"
    )
    assert command.reassign("--list") == (
        "Current partition reassignments:\n"
        "big-0: replicas: 2,1. adding: 2. removing: 1.\n"
        "big-1: replicas: 1,3. adding: 3.\n"
    )
    # The tool does not call off moves that only add.
    assert "Successfully cancelled partition reassignment for: big-0" in command.reassign(*plan, "--cancel")
    assert command.reassign("--list") in (
        "Current partition reassignments:\nbig-1: replicas: 1,3. adding: 3.\n",
        "No partition reassignments found.\n",
    )
    repeat_until(lambda: cluster.isr_of("big", 1) == {1, 3})
    assert cluster.isr_of("big", 0) == {1}


def test_what_cannot_be_is_refused(cluster: EmbeddedCluster, command: Command) -> None:
    with pytest.raises(
        KafkaToolError,
        match=r"Error completing leader election \(PREFERRED\) for partition: nope-0: .*"
        r"UnknownTopicOrPartitionException: The partition does not exist.",
    ):
        command.elect("--election-type", "preferred", "--topic", "nope", "--partition", "0")
    with pytest.raises(KafkaToolError, match="UnknownTopicOrPartitionException: Topic nope not found"):
        command.reassign(*command.file(planned("nope", 0, 1, 2)), "--execute")
