"""Plans that name log directories, by our command and by Kafka's own tool, on our brokers and on Apache Kafka's: the
same words, and the replicas in the same places."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from ottla import Admin, ConfigResource, NewTopic
from ottla.client.core.admin.types import ConfigSource
from tests.cluster.processes_on_zookeeper import IDS, KAFKA, OTTLA, ProcessesOnZooKeeper
from tests.cluster.test_reassignment import read_all
from tests.interop.kafka_tools import KafkaToolError, KafkaTools
from tests.interop.kafka_tools import kafka_commands_fixture as kafka_commands_fixture
from tests.waiting import PATIENCE_S, repeat_until
from tests.zookeeper_process import ZooKeeperProcesses

pytestmark = pytest.mark.timeout(300)

JAVA_TOOL = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
DIRECTORY_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
UNDONE = "None of the specified partition reassignments are active."
WARNING = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
)


class Scene:
    """A cluster with two log directories for each broker, and a tool."""

    def __init__(self, cluster: ProcessesOnZooKeeper, admin: Admin, java: KafkaTools | None, directory: Path) -> None:
        self.cluster = cluster
        self.admin = admin
        self._java = java
        self.is_ours = java is None
        self._plan = directory / "plan.json"

    def reassign(self, *arguments: str, **partitions: Any) -> str:
        code, said = self.try_to_reassign(*arguments, **partitions)
        assert code == 0, said
        return said

    def try_to_reassign(self, *arguments: str, topic: str, **partitions: dict[int, str]) -> tuple[int, str]:
        """`p0={1: "any"}` is what is planned for partition 0."""
        plan = [
            {
                "topic": topic,
                "partition": int(name.removeprefix("p")),
                "replicas": list(places),
                "log_dirs": list(places.values()),
            }
            for name, places in partitions.items()
        ]
        self._plan.write_text(json.dumps({"version": 1, "partitions": plan}))
        words = [*arguments, "--bootstrap-server", self.cluster.servers, "--reassignment-json-file", str(self._plan)]
        if self._java is not None:
            try:
                return 0, self._java.run(JAVA_TOOL, *words)
            except KafkaToolError as e:
                return 1, str(e)
        done = subprocess.run(
            [sys.executable, "-m", "ottla", "reassign", *words],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def create(self, topic: str, *assignments: list[int], record_bytes: int, records: int) -> None:
        self.admin.create_topics([NewTopic(topic, assignments=list(assignments))]).check()
        producer = confluent_kafka.Producer({"bootstrap.servers": self.cluster.servers, "acks": "all", "log_level": 0})
        for number in range(records):
            for partition in range(len(assignments)):
                producer.produce(topic, b"%06d" % number + bytes(record_bytes), partition=partition)
            if number % 10 == 0:
                assert producer.flush(PATIENCE_S) == 0
        assert producer.flush(PATIENCE_S) == 0

    def holders(self, topic: str, partition: int = 0) -> set[str]:
        """Directories of all brokers in which the replica is, complete."""
        everywhere = [path for broker_id in IDS for path in self.cluster.log_dirs_of(broker_id)]
        return {str(path) for path in everywhere if (path / f"{topic}-{partition}").exists()}

    def dir_of(self, broker_id: int, number: int) -> str:
        return str(self.cluster.log_dirs_of(broker_id)[number - 1])

    def here_and_there(self, topic: str, partition: int = 0) -> tuple[str, str]:
        """The directory of broker 1 that has the replica, and the other."""
        (here,) = self.holders(topic, partition)
        (there,) = {self.dir_of(1, 1), self.dir_of(1, 2)} - {here}
        return here, there


@pytest.fixture(scope="module", params=[OTTLA, KAFKA])
def cluster(
    request: pytest.FixtureRequest, zookeeper: ZooKeeperProcesses, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProcessesOnZooKeeper]:
    kinds = dict.fromkeys(IDS, request.param)
    made = ProcessesOnZooKeeper(tmp_path_factory.mktemp("cluster"), zookeeper.new_cluster(), kinds, log_dirs=2)
    try:
        made.begin()
        yield made
    finally:
        made.end()


@pytest.fixture(params=["ours", "Kafka's"])
def scene(request: pytest.FixtureRequest, cluster: ProcessesOnZooKeeper, tmp_path: Path) -> Iterator[Scene]:
    java = request.getfixturevalue("kafka_commands") if request.param == "Kafka's" else None
    with cluster.admin() as admin:
        yield Scene(cluster, admin, java, tmp_path)


def begun(topic: str, current: dict[int, list[int]], *said: str) -> str:
    partitions = [
        {"topic": topic, "partition": partition, "replicas": replicas, "log_dirs": ["any"] * len(replicas)}
        for partition, replicas in current.items()
    ]
    plan = json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))
    save = "Save this to use as the --reassignment-json-file option during rollback"
    return "\n".join(["Current partition replica assignment", "", plan, "", save, *said, ""])


def moving(path: str, replica: str, broker_id: int) -> str:
    return f"Successfully started moving log directory to {path} for replica {replica} with broker {broker_id} "


def status(*lines: str) -> str:
    return "\n".join(["Status of partition reassignment:", *lines, ""])


def cleared(topic: str) -> tuple[str, str]:
    return "Clearing broker-level throttles on brokers 1,2,3", f"Clearing topic-level throttles on topic {topic}"


def sorted_lines(text: str) -> list[str]:
    """Kafka's tool names replicas in the order in which brokers have them."""
    return sorted(text.splitlines())


def test_replicas_come_into_the_directories_that_are_named(scene: Scene, new_topic: str) -> None:
    """One partition changes its broker; of the other, one replica changes its directory only, and one is new."""
    scene.create(new_topic, [1], [1], record_bytes=1000, records=200)
    here, there = scene.here_and_there(new_topic, 1)
    plan = {"p0": {2: scene.dir_of(2, 2)}, "p1": {1: there, 3: scene.dir_of(3, 1)}}
    said = scene.reassign("--execute", topic=new_topic, **plan)
    expected = begun(
        new_topic,
        {0: [1], 1: [1]},
        f"Successfully started partition reassignments for {new_topic}-0,{new_topic}-1",
        moving(scene.dir_of(2, 2), f"{new_topic}-0", 2),
        moving(there, f"{new_topic}-1", 1),
        moving(scene.dir_of(3, 1), f"{new_topic}-1", 3),
    )
    assert sorted_lines(said) == sorted_lines(expected)
    repeat_until(lambda: scene.holders(new_topic, 0) == {scene.dir_of(2, 2)})
    repeat_until(lambda: scene.holders(new_topic, 1) == {there, scene.dir_of(3, 1)})
    done = [
        *(f"Reassignment of partition {new_topic}-{index} is completed." for index in (0, 1)),
        *(f"Reassignment of replica {new_topic}-{name} completed successfully." for name in ("1-1", "0-2", "1-3")),
        *cleared(new_topic),
    ]
    repeat_until(lambda: scene.reassign("--verify", topic=new_topic, **plan) == status(*done))
    assert len(read_all(scene.cluster.servers, new_topic, 2)) == 400
    # What has come to rest elsewhere, and what is not there at all.
    assert scene.reassign("--verify", topic=new_topic, p1={1: here, 3: "any"}) == status(
        f"Reassignment of partition {new_topic}-1 is completed.",
        f"Partition {new_topic}-1 on broker 1 is not being moved from log dir {there} to {here}.",
        *cleared(new_topic),
    )
    assert scene.reassign("--verify", topic=new_topic, p0={3: scene.dir_of(3, 1)}) == status(
        f"There is no active reassignment of partition {new_topic}-0, but replica set is 2 rather than 3.",
        f"Partition {new_topic}-0 is not found in any live log dir on broker 3. "
        "There is likely an offline log directory on the broker.",
    )


def test_a_directory_that_does_not_exist_is_refused(scene: Scene, new_topic: str) -> None:
    scene.create(new_topic, [1], record_bytes=10, records=1)
    before = scene.holders(new_topic)
    code, said = scene.try_to_reassign("--execute", topic=new_topic, p0={1: "/no/such/dir"})
    assert (code, f"Failed to alter dir for {new_topic}-0-1" in said) == (1, True)
    assert scene.holders(new_topic) == before
    if scene.is_ours:
        # Kafka's tool asks for the directory when the move to the other broker has begun.
        code, said = scene.try_to_reassign("--execute", topic=new_topic, p0={2: "/no/such/dir"})
        assert (code, f"Failed to alter dir for {new_topic}-0-2" in said) == (1, True)
        assert "Successfully started" not in said
        assert scene.admin.list_partition_reassignments() == {}
        assert scene.holders(new_topic) == before


def test_copies_between_directories_are_throttled_and_called_off(scene: Scene, new_topic: str) -> None:
    scene.create(new_topic, [1], record_bytes=100_000, records=100)
    here, there = scene.here_and_there(new_topic)
    name, limit = f"{new_topic}-0", "--replica-alter-log-dirs-throttle"

    def rates() -> dict[int, str | None]:
        found = scene.admin.describe_configs([ConfigResource.broker(broker_id) for broker_id in IDS]).results
        return {
            broker_id: configs[DIRECTORY_RATE].value
            for broker_id in IDS
            if DIRECTORY_RATE in (configs := found[ConfigResource.broker(broker_id)])
            and configs[DIRECTORY_RATE].source is ConfigSource.BROKER
        }

    def started(limit_bytes: int) -> str:
        return begun(
            new_topic,
            {0: [1]},
            WARNING,
            f"The replica-alter-dir throttle limit was set to {limit_bytes} B/s",
            f"Successfully started partition reassignment for {name}",
            moving(there, name, 1),
        )

    def is_moving() -> bool:
        return any((Path(there)).glob(f"{name}.*-future"))

    completed = f"Reassignment of partition {name} is completed."
    assert scene.reassign("--execute", limit, "20000", topic=new_topic, p0={1: there}) == started(20_000)
    assert rates() == {1: "20000"}, "of brokers that copy between their directories"
    assert scene.reassign("--verify", topic=new_topic, p0={1: there}) == status(
        completed, f"Reassignment of replica {name}-1 is still in progress."
    )
    assert scene.reassign("--verify", topic=new_topic, p0={1: here}) == status(
        completed, f"Partition {name} on broker 1 is being moved to log dir {there} instead of {here}."
    )
    assert is_moving()
    said = scene.reassign("--cancel", topic=new_topic, p0={1: there})
    assert said == "\n".join([UNDONE, moving(here, name, 1), *cleared(new_topic), ""])
    repeat_until(lambda: not is_moving())
    assert (scene.holders(new_topic), rates()) == ({here}, {})
    scene.reassign("--execute", limit, "20000", topic=new_topic, p0={1: there})
    # The same plan again lets the copy go on, faster.
    said = scene.reassign("--execute", "--additional", limit, "100000000", topic=new_topic, p0={1: there})
    assert said == started(100_000_000)
    repeat_until(lambda: scene.holders(new_topic) == {there})
    done = status(completed, f"Reassignment of replica {name}-1 completed successfully.", *cleared(new_topic))
    repeat_until(lambda: scene.reassign("--verify", topic=new_topic, p0={1: there}) == done)
    assert rates() == {}
    assert len(read_all(scene.cluster.servers, new_topic, 1)) == 100
