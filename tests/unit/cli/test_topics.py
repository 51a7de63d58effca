"""ottla topics: which options make sense, and how a description looks."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ottla.base.types import NIL_UUID, Uuid, uuid_to_text
from ottla.cli.failures import UsageError
from ottla.cli.main import main
from ottla.cli.rows import Output
from ottla.cli.topics import Filters, _eligible_leaders, parse_assignment
from ottla.cli.topics_output import Description, kafka_lines, partition_matches, show
from ottla.client.core.admin.types import TopicDescription
from ottla.client.core.topic_info import PartitionInfo
from tests.ports import free_port
from tests.waiting import run_async

EVERYTHING = Filters(False, False, False, False, False)
ID = Uuid(bytes(range(16)))
DESCRIBE_TOPIC_PARTITIONS = 75


def test_assignments() -> None:
    assert parse_assignment("1:2,2:3") == [[1, 2], [2, 3]]
    for bad, words in (("1:x", "form 1:2,2:3"), ("1:1", "on one broker"), ("1:2,3", "different numbers")):
        with pytest.raises(UsageError, match=words):
            parse_assignment(bad)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "exactly one of create, list"),
        (["--list", "--create"], "exactly one of"),
        (["remove", "t"], "exactly one of"),
        (["create"], "which topic to create"),
        (["create", "t", "--topic", "u"], "named twice"),
        (["alter", "t"], "--alter needs --partitions"),
        (["describe", "--config", "a=b"], "--config is for create and alter only"),
        (["delete", "t", "--partitions", "3"], "--partitions is for create and alter only"),
        (["create", "t", "--if-exists"], "--if-exists is for alter and delete and describe only"),
        (["alter", "t", "--partitions", "3", "--replication-factor", "2"], "--replication-factor is for create only"),
        (["create", "t", "--partition", "3"], "unrecognized arguments: --partition 3; did you mean '--partitions'?"),
        (["create", "t", "--config", "a"], "name=value"),
        (["create", "t", "--partitions", "1", "--replica-assignment", "1"], "leave --partitions"),
    ],
)
def test_options_that_make_no_sense_are_one_sentence(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topics", *arguments]) == 2
    assert words in capsys.readouterr().err.splitlines()[-1]


def test_no_broker(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    assert main(["topics", "--list", "--bootstrap-server", f"127.0.0.1:{port}"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"cannot reach 127.0.0.1:{port}: ")
    assert error.endswith("Is a broker running? Start one with `ottla start`.\n")


def test_a_bad_address_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topics", "--list", "--bootstrap-server", "nonsense:x"]) == 2
    assert capsys.readouterr().err == "bootstrap.servers: 'nonsense:x' is not of the form host:port\n"


HEALTHY = PartitionInfo(0, 1, 5, (1, 2), (1, 2), ())
BEHIND = PartitionInfo(1, 2, 5, (2, 1), (2,), ())
LEADERLESS = PartitionInfo(2, -1, 5, (3,), (3,), (3,))


@pytest.mark.parametrize(
    ("filters", "min_isr", "expected"),
    [
        (EVERYTHING, 1, [0, 1, 2]),
        (EVERYTHING._replace(under_replicated=True), 1, [1]),
        (EVERYTHING._replace(unavailable=True), 1, [2]),
        (EVERYTHING._replace(under_min_isr=True), 2, [1, 2]),
        (EVERYTHING._replace(at_min_isr=True), 2, [0]),
    ],
)
def test_partition_filters(filters: Filters, min_isr: int, expected: list[int]) -> None:
    chosen = [
        info.partition for info in (HEALTHY, BEHIND, LEADERLESS) if partition_matches(info, filters, {1, 2}, min_isr)
    ]
    assert chosen == expected


def description(**overrides: str) -> Description:
    topic = TopicDescription("t", ID, False, (HEALTHY, BEHIND, LEADERLESS))
    return Description(
        topic, [HEALTHY, LEADERLESS], {name.replace("_", "."): value for name, value in overrides.items()}
    )


def test_kafkas_lines() -> None:
    assert list(kafka_lines([description(segment_bytes="20", retention_ms="1")], EVERYTHING)) == [
        f"Topic: t\tTopicId: {uuid_to_text(ID)}\tPartitionCount: 3\tReplicationFactor: 2\t"
        "Configs: retention.ms=1,segment.bytes=20",
        "\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1,2",
        "\tTopic: t\tPartition: 2\tLeader: none\tReplicas: 3\tIsr: 3",
    ]


def test_partition_filters_leave_topic_lines_out_and_override_filters_partition_lines() -> None:
    assert all(line.startswith("\t") for line in kafka_lines([description()], EVERYTHING._replace(unavailable=True)))
    only_topics = list(kafka_lines([description(a="1")], EVERYTHING._replace(with_overrides=True)))
    assert len(only_topics) == 1
    assert only_topics[0].startswith("Topic: t\t")


def test_a_broker_without_topic_ids() -> None:
    old = description()._replace(topic=TopicDescription("t", NIL_UUID, False, (HEALTHY,)))
    assert "\tTopicId: \t" in next(kafka_lines([old], EVERYTHING))


@pytest.mark.parametrize("output", [Output.TABLE, Output.JSON])
def test_other_forms_hold_the_same_facts(output: Output, capsys: pytest.CaptureFixture[str]) -> None:
    show([description(retention_ms="1")], EVERYTHING, output)
    shown = capsys.readouterr().out
    for fact in ("t", uuid_to_text(ID), "retention.ms", "1"):
        assert fact in shown


@pytest.mark.parametrize(
    ("answers", "known"),
    [
        ([], "N/A"),
        ([{3, DESCRIBE_TOPIC_PARTITIONS}], ""),
        ([{3}], "N/A"),
        ([{3, DESCRIBE_TOPIC_PARTITIONS}, {3}], "N/A"),
    ],
    ids=["no answer", "new", "old", "one of each"],
)
def test_eligible_leaders_are_known_if_every_broker_can_say(answers: list[set[int]], known: str) -> None:
    class Brokers:
        async def api_versions(self) -> SimpleNamespace:
            return SimpleNamespace(results=dict(enumerate(answers)))

    assert run_async(_eligible_leaders(Brokers())) == f"\tElr: {known}\tLastKnownElr: {known}"  # type: ignore[arg-type]
