"""What `ottla topics` and kafka-topics.sh ask brokers and print of their answers, which are scripted."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import Uuid
from ottla.client.core.admin.outcomes import Outcomes
from ottla.client.core.admin.types import (
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    NewPartitions,
    NewTopic,
    TopicDescription,
)
from ottla.client.core.topic_info import PartitionInfo
from ottla.client.errors import ClientError
from tests.unit.cli.scripted import Answering, Scripted

KAFKA = "kafka-topics.sh"
FAILURE = "Error while executing topic command : "
JAVA = "org.apache.kafka.common.errors."


class Cluster:
    """Topics `t` of two partitions and `u` of one, both led by broker 1."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.errors: dict[str, ClientError] = {}
        self.documents: dict[str, str | None] = {}
        self.hides_settings = False

    def _done(self, names: Any) -> Any:
        return Outcomes({name: self.errors.get(getattr(name, "name", name)) for name in names})

    async def describe_topics(self) -> Any:
        infos = [PartitionInfo(index, 1, 0, (1,), (1,), ()) for index in range(2)]
        counts = {"t": 2, "u": 1}
        return Outcomes({n: TopicDescription(n, Uuid(bytes(16)), False, tuple(infos[:c])) for n, c in counts.items()})

    async def create_topics(self, topics: list[NewTopic]) -> Any:
        self.asked += topics
        return self._done([topic.name for topic in topics])

    async def delete_topics(self, names: list[str]) -> Any:
        self.asked.append(names)
        return self._done(names)

    async def incremental_alter_configs(self, changes: Mapping[ConfigResource, list[ConfigChange]]) -> Any:
        self.asked.append(changes)
        return self._done(changes)

    async def create_partitions(self, totals: Mapping[str, NewPartitions]) -> Any:
        self.asked.append(totals)
        return self._done(totals)

    async def describe_configs(
        self, resources: list[ConfigResource], *, keys: list[str] | None = None, include_documentation: bool = False
    ) -> Any:
        self.asked.append((resources, keys, include_documentation))
        found = {name: SimpleNamespace(documentation=text) for name, text in self.documents.items()}
        hidden = ClientError("may not be seen", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return Outcomes(dict.fromkeys(resources, hidden if self.hides_settings else found))

    async def api_versions(self) -> Any:
        return Outcomes({})


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def run(cluster: Cluster, answering: Answering) -> Scripted:
    return answering(cluster)


def refused(code: ErrorCode, text: str, told: str | None = None) -> ClientError:
    """`told` is the broker's own text."""
    error = ClientError(text, code=code)
    error.broker_message = told
    return error


# Creating


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ([], NewTopic("new", -1, -1, [], {})),
        (["--partitions", "3"], NewTopic("new", 3, -1, [], {})),
        (["--replication-factor", "2"], NewTopic("new", -1, 2, [], {})),
        (["--partitions", "1", "--replication-factor", "1"], NewTopic("new", 1, 1, [], {})),
        (["--replica-assignment", "1:2,2:3"], NewTopic("new", -1, -1, [[1, 2], [2, 3]], {})),
    ],
)
def test_what_is_created(run: Scripted, cluster: Cluster, arguments: list[str], asked: NewTopic) -> None:
    assert run("topics", "create", "new", *arguments) == (0, "Created topic new.\n", "")
    assert cluster.asked == [asked]


def test_settings_that_nothing_acts_on_are_told(run: Scripted, cluster: Cluster) -> None:
    cluster.documents = {"b": "Of old. No effect here: nobody reads it.", "a": "Acts.", "c": None}
    settings = ("--config", "b=2", "--config", "a=1")
    code, shown, error = run("topics", "create", "new", *settings)
    assert (code, shown) == (0, "Created topic new.\n")
    assert cluster.asked == [
        NewTopic("new", -1, -1, [], {"b": "2", "a": "1"}),
        ([ConfigResource.topic("new")], ["a", "b"], True),
    ]
    assert error == "WARNING: b has no effect: nobody reads it.\n"
    cluster.hides_settings = True
    assert run("topics", "create", "new", *settings) == (0, "Created topic new.\n", "")
    cluster.asked.clear()
    assert run(KAFKA, "--create", "--topic", "new", *settings) == (0, "Created topic new.\n", "")
    assert len(cluster.asked) == 1


@pytest.mark.parametrize(("name", "warned"), [("a.b", True), ("a_b", True), ("a-b", False)])
def test_names_that_could_collide(run: Scripted, name: str, warned: bool) -> None:
    ours = "WARNING: metrics cannot tell '.' from '_' in topic names; it is best to use only one of them.\n"
    kafkas = (
        "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
        "To avoid issues it is best to use either, but not both.\n"
    )
    made = f"Created topic {name}.\n"
    assert run("topics", "create", name) == (0, made, ours * warned)
    assert run(KAFKA, "--create", "--topic", name) == (0, kafkas * warned + made, "")


def test_a_topic_that_is_there(run: Scripted, cluster: Cluster) -> None:
    cluster.errors = {"t": refused(ErrorCode.TOPIC_ALREADY_EXISTS, "topic t: is there")}
    assert run("topics", "create", "t") == (1, "", "topic t: is there\n")
    assert run("topics", "create", "t", "--if-not-exists") == (0, "", "")
    text = "Topic 't' already exists."
    log = f"ERROR {JAVA}TopicExistsException: {text}\n (org.apache.kafka.tools.TopicCommand)\n"
    assert run(KAFKA, "--create", "--topic", "t") == (1, f"{FAILURE}{text}\n", log)
    assert run(KAFKA, "--create", "--topic", "t", "--if-not-exists") == (0, "", "")


def test_a_topic_that_may_not_be(run: Scripted, cluster: Cluster) -> None:
    cluster.errors = {"t": refused(ErrorCode.INVALID_PARTITIONS, "topic t: too few", "too few")}
    assert run("topics", "create", "t", "--if-not-exists") == (1, "", "topic t: too few\n")
    log = f"ERROR {JAVA}InvalidPartitionsException: too few\n (org.apache.kafka.tools.TopicCommand)\n"
    assert run(KAFKA, "--create", "--topic", "t", "--if-not-exists") == (1, f"{FAILURE}too few\n", log)


# Changing


def test_settings_are_changed_and_partitions_added(run: Scripted, cluster: Cluster) -> None:
    changes = [ConfigChange("a", "1"), ConfigChange("b", "2"), ConfigChange("c", None, ConfigOperation.DELETE)]
    arguments = ("--config", "a=1", "--config", "b=2", "--delete-config", "c", "--partitions", "3")
    told = "Updated config for topic t.\nUpdated config for topic u.\n"
    assert run("topics", "alter", ".", *arguments) == (0, told, "")
    assert cluster.asked == [
        {ConfigResource.topic("t"): changes, ConfigResource.topic("u"): changes},
        {"t": NewPartitions(3, []), "u": NewPartitions(3, [])},
    ]


def test_new_partitions_have_what_follows_the_old_ones(run: Scripted, cluster: Cluster) -> None:
    placed = ("--partitions", "4", "--replica-assignment", "1,2,3,4")
    assert run("topics", "alter", "t|u", *placed) == (0, "", "")
    assert run(KAFKA, "--alter", "--topic", "t", *placed) == (0, "", "")
    new = {"t": NewPartitions(4, [[3], [4]]), "u": NewPartitions(4, [[2], [3], [4]])}
    assert cluster.asked == [new, {"t": new["t"]}]


def test_changes_that_are_refused(run: Scripted, cluster: Cluster) -> None:
    cluster.errors = {"u": refused(ErrorCode.INVALID_CONFIG, "topic u: no")}
    assert run("topics", "alter", ".", "--delete-config", "c", "--partitions", "3") == (1, "", "topic u: no\n")
    assert len(cluster.asked) == 1
    assert run("topics", "alter", ".", "--partitions", "3") == (1, "", "topic u: no\n")


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ("2", "Topic already has 2 partitions."),
        ("1", "Topic currently has 2 partitions, which is higher than the requested 1."),
    ],
)
def test_kafkas_words_for_partitions_that_are_not_more(run: Scripted, cluster: Cluster, wanted: str, told: str) -> None:
    log = f"ERROR {JAVA}InvalidPartitionsException: {told}\n (org.apache.kafka.tools.TopicCommand)\n"
    assert run(KAFKA, "--alter", "--topic", "t", "--partitions", wanted) == (1, f"{FAILURE}{told}\n", log)
    assert cluster.asked == []
    assert run("topics", "alter", "t", "--partitions", wanted)[0] == 0
    assert cluster.asked == [{"t": NewPartitions(int(wanted), [])}]


# Deleting


def test_topics_are_deleted(run: Scripted, cluster: Cluster) -> None:
    assert run("topics", "delete", "t") == (0, "", "")
    code, shown, error = run("topics", "delete", ".")
    assert (code, shown) == (2, "") and "'.' matches 2 topic(s):\n  t\n  u\nDelete them?" in error
    assert run("topics", "delete", ".", "--yes") == (0, "Deleted topic t.\nDeleted topic u.\n", "")
    assert run(KAFKA, "--delete", "--topic", ".") == (0, "", "")
    assert run("topics", "delete", "none", "--if-exists") == (0, "", "")
    assert cluster.asked == [["t"], ["t", "u"], ["t", "u"], []]


@pytest.mark.parametrize("verb", ["delete", "describe"])
def test_topics_that_are_not_there(run: Scripted, cluster: Cluster, verb: str) -> None:
    assert run("topics", verb, "tt") == (1, "", "topic 'tt' does not exist; did you mean 't'?\n")
    text = "Topic 'Optional[tt]' does not exist as expected"
    log = f"ERROR {JAVA}UnknownTopicOrPartitionException: {text}\n (org.apache.kafka.tools.TopicCommand)\n"
    assert run(KAFKA, f"--{verb}", "--topic", "tt") == (1, f"{FAILURE}{text}\n", log)
    assert cluster.asked == []
