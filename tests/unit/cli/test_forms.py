"""Commands that have rows to show have them for programs, too: the same fields as JSON and as tab-separated values."""

from __future__ import annotations

from importlib import import_module

import pytest

from ottla.cli.cluster_status import BrokerStatus, ClusterStatus, _print
from ottla.cli.main import COMMANDS
from tests.unit.cli.commands import Commands

ROWS = {
    "topics describe T": "topic topic_id partition leader replicas isr offline",
    "topics list T": "topic",
    "groups list": "group type state",
    "groups reset-offsets G --topic T --to-latest": "group topic partition new_offset",
    "configs describe topics T --all": "type name setting value source",
    "offsets T": "topic partition offset",
    "log-dirs T": "broker log_dir topic partition size offset_lag is_future",
    "delete-records T --partition 0 --before 1": "topic partition first_offset",
    "transactions list": "transactional_id coordinator producer_id state",
    "reassign list": "topic partition replicas adding removing",
    "elect-leaders T --partition 0": "topic partition outcome error",
    "api-versions": "broker address api key min_version max_version usable",
    "cluster status": "broker_id address rack leads replicas in_sync is_alive is_controller",
}
OF_ITS_OWN = {"topics", "cluster"}
"""JSON that is more than rows."""
WITHOUT = {"produce", "dump-log", "consume", "aliases", "completion", "start", "demo", "zookeeper", "pipeline"}
"""They print records, files or what goes on."""
ELSEWHERE = {"acls", "users", "quotas", "perf"}
"""Tested with brokers that serve them, or with what they measure."""


@pytest.mark.parametrize("command", ROWS)
def test_tab_separated_values_have_the_fields_of_json(ottla: Commands, filled: str, command: str) -> None:
    words = [{"T": filled, "G": f"group-of-{filled}"}.get(word, word) for word in command.split()]
    names, *lines = ottla.shown(*words, "-o", "tsv").splitlines()
    assert names.split("\t") == ROWS[command].split()
    assert all(line.count("\t") == names.count("\t") for line in lines)
    if words[0] not in OF_ITS_OWN:
        rows = ottla.json(*words)
        assert len(rows) == len(lines)
        assert all(list(row) == names.split("\t") for row in rows)


def test_no_command_is_left_out() -> None:
    assert {line.split()[0] for line in ROWS} | WITHOUT | ELSEWHERE == set(COMMANDS)
    for name in ROWS:
        parser = import_module(COMMANDS[name.split()[0]].module).parser()
        assert "json, tsv" in parser.format_help() or "json or tsv" in parser.format_help(), name


def test_partitions_of_a_topic_by_line(ottla: Commands, filled: str) -> None:
    (described,) = ottla.json("topics", "describe", filled)
    leader = str(described["partitions"][0]["leader"])
    _, *lines = ottla.shown("topics", "describe", filled, "--output", "tsv").splitlines()
    assert [line.split("\t") for line in lines] == [
        [filled, described["topic_id"], str(partition), leader, leader, leader, ""] for partition in range(2)
    ]
    assert ottla.shown("topics", "list", filled, "-o", "tsv") == f"topic\n{filled}\n"


def test_apis_by_line(ottla: Commands) -> None:
    rows = {row["api"]: row for row in ottla.json("api-versions")}
    assert rows["Metadata"]["address"] == ottla.server
    assert rows["Metadata"]["min_version"] <= rows["Metadata"]["usable"] == rows["Metadata"]["max_version"]


def test_an_election_by_line(ottla: Commands, filled: str) -> None:
    fine = {"topic": filled, "partition": 1, "outcome": "not needed", "error": None}
    assert ottla.json("elect-leaders", filled, "--partition", "1") == [fine]
    code, shown, error = ottla("elect-leaders", filled, "--partition", "2", "-o", "tsv")
    assert (code, error) == (1, "1 replica(s) could not be elected\n")
    assert shown.splitlines()[1].startswith(f"{filled}\t2\tfailed\t")


def test_a_broker_that_is_gone_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    brokers = [BrokerStatus(1, "a:9092", "r", 2, 2, 2), BrokerStatus(2, "", None, 0, 2, 0)]
    _print(ClusterStatus("id", 1, 1, 2, brokers, [], []), "tsv")
    assert capsys.readouterr().out.splitlines()[1:] == [
        "1\ta:9092\tr\t2\t2\t2\ttrue\ttrue",
        "2\t\t-\t0\t2\t0\tfalse\tfalse",
    ]


@pytest.mark.parametrize("verb", ["generate", "verify"])
def test_plans_are_json_anyway(ottla: Commands, verb: str) -> None:
    code, _, error = ottla("reassign", verb, "plan.json", "-o", "json")
    assert code == 2 and "--output is for list only" in error
