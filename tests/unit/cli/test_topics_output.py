"""What a description of topics is made of: their settings, partitions that are moving, and what a filter leaves."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition, Uuid
from ottla.cli.rows import Output
from ottla.cli.topics import Filters
from ottla.cli.topics_output import describe
from ottla.client.core.admin.types import (
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    PartitionReassignment,
    TopicDescription,
)
from ottla.client.core.topic_info import PartitionInfo
from tests.waiting import run_async

EVERYTHING = Filters(False, False, False, False, False)
FULL = PartitionInfo(0, 1, 5, (1, 2, 3), (1, 2, 3), ())
BEHIND = PartitionInfo(1, 2, 5, (2, 1, 3), (2, 1), (3,))
LEADERLESS = PartitionInfo(2, -1, 5, (3,), (3,), (3,))
GONE = PartitionInfo(3, 9, 5, (9,), (9,), ())


class Brokers:
    """An admin client of brokers 1 to 3, at which topic `t` has some settings."""

    def __init__(self, **settings: str) -> None:
        self.settings = settings
        self.moves: dict[TopicPartition, PartitionReassignment] | KafkaError = {}

    async def describe_configs(self, resources: list[ConfigResource]) -> Any:
        entries = {
            name.replace("_", "."): ConfigEntry(name.replace("_", "."), value, ConfigSource.TOPIC, False, False)
            for name, value in self.settings.items()
        }
        entries["flush.ms"] = ConfigEntry("flush.ms", "5", ConfigSource.DEFAULT, False, False)
        return SimpleNamespace(results={ConfigResource.topic("t"): entries})

    async def describe_cluster(self) -> Any:
        return SimpleNamespace(brokers=dict.fromkeys((1, 2, 3)))

    async def list_partition_reassignments(self) -> dict[TopicPartition, PartitionReassignment]:
        if isinstance(self.moves, KafkaError):
            raise self.moves
        return self.moves


def topic(*partitions: PartitionInfo, name: str = "t") -> TopicDescription:
    return TopicDescription(name, Uuid(bytes(range(16))), False, partitions)


def lines(
    capsys: pytest.CaptureFixture[str], brokers: Any, *topics: TopicDescription, elr: str = "", **filters: bool
) -> list[str]:
    run_async(describe(brokers, list(topics), EVERYTHING._replace(**filters), Output.KAFKA, elr=elr))
    return capsys.readouterr().out.splitlines()


def as_json(capsys: pytest.CaptureFixture[str], brokers: Any, *topics: TopicDescription) -> Any:
    run_async(describe(brokers, list(topics), EVERYTHING, Output.JSON))
    return json.loads(capsys.readouterr().out)


def test_replicas_that_are_being_added_do_not_count_yet(capsys: pytest.CaptureFixture[str]) -> None:
    brokers = Brokers()
    brokers.moves = {
        TopicPartition("t", 0): PartitionReassignment((1, 2, 3), (3,), (1,)),
        TopicPartition("other", 1): PartitionReassignment((1, 2, 3), (3,), (2,)),
    }
    head, first, second = lines(capsys, brokers, topic(FULL, BEHIND), elr="\tElr: ")
    assert "\tPartitionCount: 2\tReplicationFactor: 2\t" in head
    assert first.endswith("\tIsr: 1,2,3\tAdding Replicas: 3\tRemoving Replicas: 1\tElr: ")
    assert second.endswith("\tIsr: 2,1\tElr: ")
    described = as_json(capsys, brokers, topic(FULL), topic(FULL, name="other"), topic(name="empty"))
    assert [each["replication_factor"] for each in described] == [2, 3, 0]


def test_who_may_not_see_moves_sees_topics_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    brokers = Brokers()
    brokers.moves = KafkaError(code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert "ReplicationFactor: 3\t" in lines(capsys, brokers, topic(FULL))[0]


def test_only_settings_of_the_topic_itself_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    brokers = Brokers(retention_ms="1", cleanup_policy="")
    described, other = as_json(capsys, brokers, topic(FULL), topic(FULL, name="other"))
    assert described["configs"] == {"retention.ms": "1", "cleanup.policy": ""}
    assert other["configs"] == {}


def test_a_filter_for_settings_leaves_topics_out_that_have_none(capsys: pytest.CaptureFixture[str]) -> None:
    shown = lines(capsys, Brokers(retention_ms="1"), topic(FULL), topic(FULL, name="other"), with_overrides=True)
    assert [line.split("\t")[0] for line in shown] == ["Topic: t"]


@pytest.mark.parametrize(
    ("wanted", "min_isr", "partitions"),
    [
        ("unavailable", "1", [2, 3]),
        ("under_replicated", "1", [1]),
        ("under_min_isr", "3", [1, 2, 3]),
        ("at_min_isr", "3", [0]),
        ("at_min_isr", "2", [1]),
    ],
)
def test_a_filter_for_partitions_leaves_topics_out_that_have_none(
    capsys: pytest.CaptureFixture[str], wanted: str, min_isr: str, partitions: list[int]
) -> None:
    brokers = Brokers(min_insync_replicas=min_isr)
    shown = lines(capsys, brokers, topic(FULL, BEHIND, LEADERLESS, GONE), topic(name="other"), **{wanted: True})
    assert [line.split("\t")[1:3] for line in shown] == [["Topic: t", f"Partition: {each}"] for each in partitions]


def test_without_a_setting_one_replica_in_sync_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    shown = lines(capsys, Brokers(), topic(FULL, LEADERLESS), at_min_isr=True)
    assert ["Partition: 2" in line for line in shown] == [True]
    assert lines(capsys, Brokers(), topic(FULL, LEADERLESS), under_min_isr=True) == []


def test_a_partition_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    (described,) = as_json(capsys, Brokers(), topic(BEHIND, LEADERLESS))
    assert described["partitions"] == [
        {"partition": 1, "leader": 2, "replicas": [2, 1, 3], "isr": [2, 1], "offline": [3]},
        {"partition": 2, "leader": None, "replicas": [3], "isr": [3], "offline": [3]},
    ]
    assert (described["topic"], described["internal"]) == ("t", False)


def test_a_table_has_a_row_for_each_partition_and_the_settings_below(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    brokers = Brokers(retention_ms="1", cleanup_policy="compact")
    run_async(describe(brokers, [topic(BEHIND, LEADERLESS)], EVERYTHING, Output.TABLE))  # type: ignore[arg-type]
    title, *table, first, second = capsys.readouterr().out.splitlines()
    assert title.split() == ["t", "AAECAwQFBgcICQoLDA0ODw"]
    rows = [[cell.strip() for cell in re.split("[┃│]", line)[1:-1]] for line in table if set(line) & set("┃│")]
    assert rows == [
        ["partition", "leader", "replicas", "in sync", "offline"],
        ["1", "2", "2,1,3", "2,1", "3"],
        ["2", "none", "3", "3", "3"],
    ]
    assert (first, second) == ("  cleanup.policy = compact", "  retention.ms = 1")


def test_partitions_that_are_behind_are_red_in_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    brokers: Any = Brokers(retention_ms="1", cleanup_policy="[bold]x")
    run_async(describe(brokers, [topic(FULL, BEHIND)], EVERYTHING, Output.TABLE))
    lines = capsys.readouterr().out.splitlines()
    # Settings are shown as they are.
    assert lines[-2:] == ["  cleanup.policy = [bold]x", "  retention.ms = 1"]
    assert ["\x1b[31m" in line for line in lines if "2,1" in line or "1,2,3" in line] == [False, True]


def test_rows_of_partitions(capsys: pytest.CaptureFixture[str]) -> None:
    run_async(describe(Brokers(), [topic(BEHIND, LEADERLESS)], EVERYTHING, Output.TSV))  # type: ignore[arg-type]
    assert capsys.readouterr().out.splitlines() == [
        "topic\ttopic_id\tpartition\tleader\treplicas\tisr\toffline",
        "t\tAAECAwQFBgcICQoLDA0ODw\t1\t2\t2,1,3\t2,1\t3",
        "t\tAAECAwQFBgcICQoLDA0ODw\t2\t-\t3\t3\t3",
    ]
