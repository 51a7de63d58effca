"""ottla groups on a broker: where groups are, and where they are sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ottla as client
from ottla.base.errors import ErrorCode, KafkaError
from ottla.cli.failures import UsageError
from ottla.cli.groups.kafka_text import OffsetRow, listing_lines, member_lines, offset_lines, state_lines
from ottla.cli.groups.resetting import parse_duration_ms, read_plan
from ottla.cli.groups.work import _tell_deletions_as_kafka, explained
from ottla.client.core.admin.types import MemberDescription
from ottla.client.core.metadata import BrokerAddress
from tests.unit.cli.commands import Commands
from tests.waiting import PATIENCE_S, run_async


@pytest.fixture
def group(ottla: Commands, filled: str) -> str:
    """A group without members that is at 1 in both partitions of `filled`."""
    name = f"group-of-{filled}"
    ottla.shown("groups", "reset-offsets", name, "--topic", filled, "--to-offset", "1", "--execute")
    return name


@pytest.fixture
def member(ottla: Commands, filled: str, group: str) -> Iterator[str]:
    """The id of a member that has all partitions of `filled`."""
    with client.Consumer(
        bootstrap_servers=ottla.server, group_id=group, group_instance_id="worker-1", client_id="reader"
    ) as consumer:
        consumer.subscribe([filled])
        assert consumer.poll(timeout=PATIENCE_S)
        yield ottla.json("groups", "describe", group, "--members")[0]["consumer_id"]


def test_offsets_and_lag_of_a_group_without_members(ottla: Commands, filled: str, group: str) -> None:
    code, shown, error = ottla("groups", "describe", group)
    assert (code, error) == (0, f"Consumer group '{group}' has no active members.\n")
    cells = [line.split() for line in shown.splitlines()]
    assert cells[0][3:6] == ["CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    assert cells[1:] == [[group, filled, str(partition), "1", "5", "4", "-", "-", "-"] for partition in range(2)]
    (first, _) = ottla.json("groups", "--describe", "--group", group)
    assert (first["current_offset"], first["log_end_offset"], first["lag"]) == (1, 5, 4)
    assert ottla.json("groups", "describe", group, "--state")[0]["state"] == "Empty"


def test_a_group_with_a_member(ottla: Commands, filled: str, group: str, member: str) -> None:
    rows = ottla.json("groups", "describe", group)
    assert [(row["consumer_id"], row["client_id"]) for row in rows] == [(member, "reader")] * 2
    shown = ottla.shown("groups", "describe", group, "--members", "--verbose").splitlines()
    assert shown[1].split() == [group, member, "worker-1", "/127.0.0.1", "reader", "2", "(0,1)"]
    assert ottla.shown("groups", "describe", "--state", "--group", group).split()[-2:] == ["Stable", "1"]
    assert group in ottla.shown("groups", "list", "--state", "stable")
    assert group not in ottla.shown("groups", "list", "--state", "empty")
    for verb in (("reset-offsets", group, "--topic", filled, "--to-earliest", "--execute"), ("delete", group)):
        code, _, error = ottla("groups", *verb)
        assert code == 1 and member in error
    assert ottla("groups", "delete-offsets", group, "--topic", filled)[0] == 1
    removed = ottla.shown("groups", "remove-members", group, "--instance-id", "worker-1")
    assert removed == f"Removed worker-1 from group '{group}'.\n"


def test_every_strategy_shows_what_it_would_do(ottla: Commands, group: str) -> None:
    found = {}
    wanted = {
        "--to-earliest": 0,
        "--to-latest": 5,
        "--to-current": 1,
        "--to-offset 3": 3,
        "--to-offset 99": 5,
        "--shift-by 2": 3,
        "--shift-by -2": 0,
        "--to-datetime 2022-01-01T00:00:00.000": 2,
        "--to-datetime 2099-01-01T00:00:00.000+02:00": 5,
        "--by-duration P10000D": 0,
        "--by-duration P99999999999D": 0,
    }
    for strategy in wanted:
        shown = ottla.shown("groups", "reset-offsets", group, "--all-topics", *strategy.split(), "-o", "tsv")
        rows = [line.split("\t") for line in shown.splitlines()]
        (found[strategy],) = {int(row[3]) for row in rows if row[0] == group}
    assert found == wanted
    assert {row["current_offset"] for row in ottla.json("groups", "describe", group)} == {1}


def test_what_is_said_besides_does_not_get_among_the_rows(ottla: Commands, filled: str, group: str) -> None:
    late = ("groups", "reset-offsets", group, "--topic", filled, "--to-datetime", "2099-01-01")
    warnings = [f"WARN {filled}-{number} has no record that young. It is reset to its end" for number in (0, 1)]
    code, shown, error = ottla(*late, "-o", "json")
    assert (code, [row["new_offset"] for row in json.loads(shown)]) == (0, [5, 5])
    assert error.splitlines() == [*warnings, "Nothing was changed: this is what --execute would do."]
    assert ottla(*late, "--export")[:2] == (0, f"{filled},0,5\n{filled},1,5\n")


def test_offsets_go_out_to_a_file_and_come_back(ottla: Commands, filled: str, group: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_text(ottla.shown("groups", "reset-offsets", group, "--all-topics", "--to-current", "--export"))
    assert plan.read_text() == f"{filled},0,1\n{filled},1,1\n"
    ottla.shown("groups", "reset-offsets", group, "--topic", f"{filled}:1", "--to-latest", "--execute")
    assert [row["lag"] for row in ottla.json("groups", "describe", group)] == [4, 0]
    ottla.shown("groups", "reset-offsets", group, "--from-file", str(plan), "--execute")
    assert [row["lag"] for row in ottla.json("groups", "describe", group)] == [4, 4]


def test_offsets_and_groups_are_deleted(ottla: Commands, filled: str, group: str) -> None:
    ottla.shown("groups", "delete-offsets", group, "--topic", f"{filled}:0")
    assert [row["partition"] for row in ottla.json("groups", "describe", group)] == [1]
    assert ottla("groups", "delete", group) == (0, f"Deleted group '{group}'.\n", "")
    assert ottla("groups", "delete", group)[0] == 1


def test_what_does_not_exist_is_named_with_the_nearest_name(ottla: Commands, filled: str, group: str) -> None:
    wrong = f"{group}x"
    assert ottla("groups", "describe", wrong) == (
        1,
        "",
        f"consumer group '{wrong}' does not exist; did you mean '{group}'?\n",
    )
    for arguments in (["delete-offsets", "--topic", filled], ["reset-offsets", "--all-topics", "--to-latest"]):
        code, shown, error = ottla("groups", arguments[0], wrong, *arguments[1:])
        assert (code, shown) == (1, "")
        assert error == f"consumer group '{wrong}' does not exist; did you mean '{group}'?\n"
    code, _, error = ottla("groups", "reset-offsets", group, "--topic", f"{filled}s", "--to-latest")
    assert code == 1 and error.startswith(f"topic '{filled}s' does not exist; did you mean '")
    code, _, error = ottla("groups", "reset-offsets", group, "--topic", f"{filled}:9", "--to-latest")
    assert (code, error) == (1, f"topic '{filled}' has no partition 9; it has 2\n")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["describe"],
        ["discribe", "g"],
        ["list", "--describe"],
        ["describe", "g", "--members", "--offsets"],
        ["list", "--state", "bogus"],
        ["reset-offsets", "g", "--topic", "t"],
        ["reset-offsets", "g", "--to-latest"],
        ["reset-offsets", "g", "--topic", "t", "--to-latest", "--to-earliest"],
        ["reset-offsets", "g", "--topic", "t", "--to-latest", "--execute", "--dry-run"],
        ["delete-offsets", "g"],
        ["list", "--zookeeper", "localhost:2181"],
    ],
    ids=" ".join,
)
def test_wrong_use_is_exit_code_2(ottla: Commands, arguments: list[str]) -> None:
    code, shown, error = ottla("groups", *arguments)
    assert (code, shown) == (2, "")
    assert error.splitlines()[-1].startswith("Error: ")


def test_an_unreachable_broker_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert Commands("127.0.0.1:1", capsys)("groups", "list")[0] == 1


def test_durations_and_plans_from_files(tmp_path: Path) -> None:
    assert parse_duration_ms("P1DT2H3M4.5S") == 93_784_500
    assert parse_duration_ms("PT1H") == 3_600_000
    short = {"250ms": 250, "90s": 90_000, "30m": 1_800_000, "2h": 7_200_000, "7d": 604_800_000, "1D": 86_400_000}
    assert {text: parse_duration_ms(text) for text in short} == short
    for wrong in ("P", "PT", "1x", ""):
        with pytest.raises(UsageError, match="no duration"):
            parse_duration_ms(wrong)
    plan = tmp_path / "plan.csv"
    plan.write_text("g,t,0,5\nother,t,0,7\n\n")
    assert read_plan(plan, "g", several=True) == {("t", 0): 5}
    plan.write_text("t,0\n")
    with pytest.raises(UsageError, match="line 1"):
        read_plan(plan, "g", several=False)


def test_tables_are_as_wide_as_kafkas() -> None:
    row = OffsetRow("g-empty", "pay", 2, 10, 11, None, None, None)
    assert offset_lines([row]) == [
        "GROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG             CONSUMER-ID"
        "     HOST            CLIENT-ID",
        "g-empty         pay             2          10              11              1               -          "
        "     -               -",
    ]
    coordinator = BrokerAddress(3, "127.0.0.1", 40123)
    assert state_lines("g-empty", coordinator, "", "Empty", 0) == [
        "GROUP                     COORDINATOR (ID)          ASSIGNMENT-STRATEGY  STATE           #MEMBERS",
        "g-empty                   127.0.0.1:40123  (3)                           Empty           0",
    ]
    assert listing_lines([("g-ship", "Classic", "Empty")], types=True, states=True) == [
        "GROUP                     TYPE                 STATE               ",
        "g-ship                    Classic              Empty               ",
    ]
    member = MemberDescription("r-one-1", None, "r-one", "/127.0.0.1", frozenset())
    assert member_lines("g-reb", [member], verbose=True) == [
        "GROUP           CONSUMER-ID     HOST            CLIENT-ID       #PARTITIONS     ASSIGNMENT",
        "g-reb           r-one-1         /127.0.0.1      r-one           0               -",
    ]


def test_what_is_said_of_groups_that_could_not_be_deleted() -> None:
    members = {"busy": ["m-1", "m-2"], "left": []}

    async def list_groups() -> list[SimpleNamespace]:
        return [SimpleNamespace(group_id=name) for name in ("busy", "left", "payments")]

    async def describe_groups(groups: list[str]) -> SimpleNamespace:
        found = {
            group: SimpleNamespace(members=[SimpleNamespace(member_id=name) for name in members[group]])
            for group in groups
            if group in members
        }
        return SimpleNamespace(results=found)

    admin: Any = SimpleNamespace(list_groups=list_groups, describe_groups=describe_groups)
    codes = {
        "payment": ErrorCode.GROUP_ID_NOT_FOUND,
        "busy": ErrorCode.NON_EMPTY_GROUP,
        "left": ErrorCode.NON_EMPTY_GROUP,
        "gone": ErrorCode.NON_EMPTY_GROUP,
        "secret": ErrorCode.GROUP_AUTHORIZATION_FAILED,
    }
    errors = {group: KafkaError(f"why {group}", code=code) for group, code in codes.items()}
    assert run_async(explained(admin, errors)).message == (
        "consumer group 'payment' does not exist; did you mean 'payments'?; group 'busy' still has members: m-1, m-2; "
        "why left; why gone; why secret"
    )


def test_deletions_are_told_in_the_words_of_kafkas_tool(capsys: pytest.CaptureFixture[str]) -> None:
    _tell_deletions_as_kafka(["a", "b"], {})
    assert capsys.readouterr().out == "Deletion of requested consumer groups ('a, b') was successful.\n"
    errors = {"c": KafkaError("busy", code=ErrorCode.NON_EMPTY_GROUP)}
    _tell_deletions_as_kafka([], errors)
    alone = capsys.readouterr().out.splitlines()
    assert alone[:2] == ["", "Error: Deletion of some consumer groups failed:"] and len(alone) == 3
    assert alone[2].startswith(
        "* Group 'c' could not be deleted due to: java.util.concurrent.ExecutionException: "
        "org.apache.kafka.common.errors.GroupNotEmptyException: "
    )
    _tell_deletions_as_kafka(["a", "b"], errors)
    both = capsys.readouterr().out.splitlines()
    assert both == [*alone, "", "These consumer groups were deleted successfully: 'a'b', '"]
