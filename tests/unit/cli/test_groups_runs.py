"""What `ottla groups` and kafka-consumer-groups print of what brokers say, which is scripted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition, Uuid
from ottla.client.core.admin.outcomes import Outcomes
from ottla.client.core.admin.types import GroupDescription, GroupListing, MemberDescription, TopicDescription
from ottla.client.core.metadata import BrokerAddress
from ottla.client.core.topic_info import PartitionInfo
from ottla.client.errors import ClientError
from tests.unit.cli.scripted import Answering, Scripted

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
KAFKA = "kafka-consumer-groups.sh"
MEMBERS = (
    MemberDescription("m-1", "w-1", "reader", "h1", frozenset([U0, T1, T0])),
    MemberDescription("m-2", None, "other", "/h2", frozenset()),
)
STATES = {"idle": "Empty", "busy": "Stable", "moving": "PreparingRebalance", "gone": "Dead"}


class Cluster:
    """Four groups; `busy` has members and has committed, its log ends with 9."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.errors: dict[Any, ClientError] = {}
        self.committed = {T0: 5, T1: 9}
        self.ended = {T0: 9, T1: 9}

    async def list_groups(self) -> list[GroupListing]:
        types = {"busy": "consumer"}
        return [GroupListing(name, "", state, types.get(name, "classic")) for name, state in STATES.items()]

    async def describe_groups(self, groups: Sequence[str]) -> Any:
        found: dict[str, GroupDescription | ClientError] = {}
        for name in groups:
            if name in STATES:
                members = MEMBERS if name == "busy" else ()
                found[name] = GroupDescription(name, "classic", STATES[name], "consumer", "range", members)
            else:
                found[name] = ClientError("no such group", code=ErrorCode.GROUP_ID_NOT_FOUND)
        return Outcomes({**found, **{name: error for name, error in self.errors.items() if name in groups}})

    async def list_group_offsets(self, groups: list[str]) -> Any:
        at = {tp: SimpleNamespace(offset=offset) for tp, offset in self.committed.items()}
        return Outcomes({group: at if group == "busy" else {} for group in groups})

    async def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> Any:
        gone = ClientError("gone", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return Outcomes({tp: SimpleNamespace(offset=self.ended[tp]) if tp in self.ended else gone for tp in wanted})

    async def find_group_coordinators(self, groups: list[str]) -> Any:
        return {group: BrokerAddress(3, "host", 9092) for group in groups}

    async def describe_topics(self) -> Any:
        infos = tuple(PartitionInfo(index, 1, 0, (1,), (1,), ()) for index in range(2))
        return Outcomes({"t": TopicDescription("t", Uuid(bytes(16)), False, infos)})

    def _done(self, wanted: Sequence[Any]) -> Any:
        return Outcomes({one: self.errors.get(one) for one in wanted})

    async def delete_groups(self, groups: list[str]) -> Any:
        self.asked.append(groups)
        return self._done(groups)

    async def delete_group_offsets(self, group: str, partitions: list[TopicPartition]) -> Any:
        self.asked.append((group, partitions))
        return self._done(partitions)

    async def remove_members(self, group: str, member_ids: Any, *, instance_ids: list[str]) -> Any:
        self.asked.append((group, member_ids, instance_ids))
        return self._done(member_ids or instance_ids or ["m-1", "m-2"] * (group == "busy"))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def run(cluster: Cluster, answering: Answering) -> Scripted:
    return answering(cluster)


def refusal(code: ErrorCode, text: str = "refused") -> ClientError:
    return ClientError(text, code=code)


# Lists


def test_names_alone_or_with_types_and_states(run: Scripted) -> None:
    names = "idle\nbusy\nmoving\ngone\n"
    assert run("groups", "list") == run(KAFKA, "--list") == (0, names, "")
    assert run(KAFKA, "--list", "--type")[1].splitlines()[:3] == [
        f"{'GROUP':<25} {'TYPE':<20}",
        f"{'idle':<25} {'Classic':<20}",
        f"{'busy':<25} {'Consumer':<20}",
    ]
    assert run(KAFKA, "--list", "--state", "stable,dead")[1].splitlines() == [
        f"{'GROUP':<25} {'STATE':<20}",
        f"{'busy':<25} {'Stable':<20}",
        f"{'gone':<25} {'Dead':<20}",
    ]
    assert run("groups", "list", "--type", "consumer", "-o", "tsv")[1] == "group\ttype\tstate\nbusy\tConsumer\tStable\n"
    assert run("groups", "list", "--state", "empty", "--type", "consumer", "-o", "json")[1] == "[]\n"


def test_a_call_may_take_as_long_as_is_said(run: Scripted) -> None:
    run("groups", "list")
    run("groups", "list", "--timeout", "77")
    assert [config["default.api.timeout.ms"] for config in run.configs] == ["5000", "77"]


# Descriptions

OFFSETS = [
    ["busy", "t", "0", "5", "9", "4", "m-1", "/h1", "reader"],
    ["busy", "t", "1", "9", "9", "0", "m-1", "/h1", "reader"],
    ["busy", "u", "0", "-", "-", "-", "m-1", "/h1", "reader"],
    ["busy", "-", "-", "-", "-", "-", "m-2", "/h2", "other"],
]


def test_where_members_are_in_their_partitions(run: Scripted) -> None:
    code, shown, error = run("groups", "describe", "busy")
    assert (code, error) == (0, "")
    assert [line.split() for line in shown.splitlines()[1:]] == OFFSETS
    assert run(KAFKA, "--describe", "--group", "busy") == (0, "\n" + shown.rstrip("\n"), "")
    rows = json.loads(run("groups", "describe", "busy", "--offsets", "-o", "json")[1])
    assert [["-" if cell is None else str(cell) for cell in row.values()] for row in rows] == OFFSETS
    assert list(rows[0])[3:7] == ["current_offset", "log_end_offset", "lag", "consumer_id"]


def test_several_groups_are_described_one_below_the_other(run: Scripted, cluster: Cluster) -> None:
    code, shown, error = run("groups", "describe", "busy", "moving", "idle", "--state")
    assert (code, error.splitlines()) == (
        0,
        ["Warning: Consumer group 'moving' is rebalancing.", "Consumer group 'idle' has no active members."],
    )
    blocks = shown.split("\n\n")
    assert [block.splitlines()[1].split() for block in blocks] == [
        ["busy", "host:9092", "(3)", "range", "Stable", "2"],
        ["moving", "host:9092", "(3)", "range", "PreparingRebalance", "0"],
        ["idle", "host:9092", "(3)", "range", "Empty", "0"],
    ]
    kafka = run(KAFKA, "--describe", "--group", "busy", "--group", "moving", "--state")
    assert kafka[1] == "".join(f"\n{block.rstrip()}\n" for block in blocks[:2])
    assert kafka[2] == "\nWarning: Consumer group 'moving' is rebalancing.\n"
    assert run("groups", "describe", "idle", "gone") == (0, "", "Consumer group 'idle' has no active members.\n")
    assert run("groups", "describe", "moving", "--state", "-o", "json")[2] == ""


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"])
def test_groups_that_are_being_divided_anew_are_warned_of(
    run: Scripted, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    monkeypatch.setitem(STATES, "moving", state)
    assert run("groups", "describe", "moving")[2] == "Warning: Consumer group 'moving' is rebalancing.\n"


def test_every_group_there_is(run: Scripted) -> None:
    rows = json.loads(run("groups", "describe", "--all-groups", "--state", "-o", "json")[1])
    assert [(row["group"], row["state"], row["members"]) for row in rows] == [
        ("idle", "Empty", 0),
        ("busy", "Stable", 2),
        ("moving", "PreparingRebalance", 0),
        ("gone", "Dead", 0),
    ]
    first = {"coordinator": "host:9092", "coordinator_id": 3, "assignor": "range", "type": "classic"}
    assert first.items() <= rows[0].items()


def test_members_and_what_they_have(run: Scripted) -> None:
    shown = run("groups", "describe", "busy", "--members", "--verbose")[1]
    assert [line.split() for line in shown.splitlines()] == [
        ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT"],
        ["busy", "m-1", "w-1", "/h1", "reader", "3", "(0,1),", "(0)"],
        ["busy", "m-2", "/h2", "other", "0", "-"],
    ]
    lines = run("groups", "describe", "busy", "--members")[1].splitlines()
    assert [line.split()[-1] for line in lines] == ["#PARTITIONS", "3", "0"] and {line[-1] for line in lines} == {" "}
    first, second = json.loads(run("groups", "describe", "busy", "--members", "-o", "json")[1])
    assert list(first.values()) == ["busy", "m-1", "w-1", "/h1", "reader", 3, ["t-0", "t-1", "u-0"]]
    assert (second["instance_id"], second["partitions"], second["assignment"]) == (None, 0, [])


def test_a_group_that_is_not_there(run: Scripted) -> None:
    told = "consumer group 'bussy' does not exist; did you mean 'busy'?; consumer group 'xyz' does not exist\n"
    code, shown, error = run("groups", "describe", "bussy", "busy", "xyz")
    assert (code, error) == (1, told) and len(shown.splitlines()) == 5
    said = "\nError: Consumer group 'bussy' does not exist.\n"
    assert run(KAFKA, "--describe", "--group", "bussy") == (0, said, "")
    code, shown, error = run(KAFKA, "--describe", "--group", "bussy", "--members")
    assert (code, error) == (0, "") and shown.startswith(f"{said}\nGROUP           CONSUMER-ID ")


def test_a_group_that_may_not_be_seen(run: Scripted, cluster: Cluster) -> None:
    cluster.errors = {"busy": refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)}
    assert run("groups", "describe", "busy") == (1, "", "refused\n")
    failed = "\nError: Executing consumer group command failed due to "
    code, shown, error = run(KAFKA, "--describe", "--group", "busy")
    assert (code, error) == (0, "")
    assert shown == f"{failed}org.apache.kafka.common.errors.GroupAuthorizationException: refused\n"


def test_files_that_kafkas_tool_cannot_use(run: Scripted, tmp_path: Path) -> None:
    reset = ("--reset-offsets", "--group", "g", "--execute", "--from-file")
    failed = "\nError: Executing consumer group command failed due to "
    code, shown, error = run(KAFKA, *reset, str(tmp_path / "none"))
    assert (code, shown, error) == (0, f"{failed}java.io.IOException: Unable to read file {tmp_path / 'none'}\n", "")


# Deletions


def test_groups_are_deleted(run: Scripted, cluster: Cluster) -> None:
    assert run("groups", "delete", "a", "b") == (0, "Deleted group 'a'.\nDeleted group 'b'.\n", "")
    cluster.errors = {"b": refusal(ErrorCode.NON_EMPTY_GROUP)}
    assert run("groups", "delete", "a", "b") == (1, "Deleted group 'a'.\n", "refused\n")
    code, shown, error = run("groups", "delete", "a", "b", "-o", "json")
    assert (code, error) == (1, "refused\n")
    assert json.loads(shown) == [
        {"group": "a", "deleted": True, "error": None},
        {"group": "b", "deleted": False, "error": "refused"},
    ]
    assert run("groups", "delete", "a", "-o", "tsv")[1] == "group\tdeleted\terror\na\ttrue\t-\n"
    code, shown, error = run(KAFKA, "--delete", "--group", "a", "--group", "b")
    assert (code, error) == (0, "") and "* Group 'b' could not be deleted due to: " in shown
    assert run(KAFKA, "--delete", "--group", "a")[1].endswith(" ('a') was successful.\n")


def test_offsets_of_partitions_are_forgotten(run: Scripted, cluster: Cluster) -> None:
    rows = "group\ttopic\tpartition\tstatus\ng\tt\t0\tdeleted\ng\tt\t1\tdeleted\n"
    assert run("groups", "delete-offsets", "g", "--topic", "t", "-o", "tsv") == (0, rows, "")
    assert cluster.asked == [("g", [T0, T1])]
    cluster.errors = {T1: refusal(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)}
    code, shown, error = run("groups", "delete-offsets", "g", "--topic", "t", "-o", "tsv")
    assert (code, shown) == (1, rows.replace("1\tdeleted", "1\trefused"))
    assert error == "offsets of group 'g' could not be deleted: refused\n"
    cluster.errors[T0] = refusal(ErrorCode.GROUP_ID_NOT_FOUND)
    told = "consumer group 'buzy' does not exist; did you mean 'busy'?\n"
    assert run("groups", "delete-offsets", "buzy", "--topic", "t") == (1, "", told)


def test_how_kafkas_tool_tells_of_forgotten_offsets(run: Scripted, cluster: Cluster) -> None:
    def told() -> list[str]:
        code, shown, error = run(KAFKA, "--delete-offsets", "--group", "g", "--topic", "t")
        assert (code, error) == (0, "")
        return shown.split("\n")

    head = f"{'TOPIC':<30} {'PARTITION':<15} {'STATUS':<15}"
    places = [f"{'t':<30} {number:<15} " for number in (0, 1)]
    done = f"{'Successful':<15}"
    assert told() == [
        "Request succeed for deleting offsets with topic t group g",
        "",
        head + places[0] + done + places[1] + done,
    ]
    cluster.errors = {T1: refusal(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)}
    partly = told()
    assert partly[:2] == ["", "Error: Encounter some partition level error, see the follow-up details:"]
    why = "Error: :org.apache.kafka.common.errors.GroupSubscribedToTopicException: Deleting offsets of a topic is "
    assert partly[3].startswith(head + places[0] + done + places[1] + why)
    cluster.errors = {T0: refusal(ErrorCode.GROUP_ID_NOT_FOUND)}
    assert told()[:2] == ["", "Error: 'g' does not exist."]


# Members


def test_members_are_taken_out(run: Scripted, cluster: Cluster) -> None:
    def removed(*names: str) -> str:
        return "".join(f"Removed {name} from group 'busy'.\n" for name in names)

    assert run("groups", "remove-members", "busy") == (0, removed("m-1", "m-2"), "")
    assert run("groups", "remove-members", "busy", "--instance-id", "w-1") == (0, removed("w-1"), "")
    assert run("groups", "remove-members", "busy", "--member-id", "m-2") == (0, removed("m-2"), "")
    assert cluster.asked == [("busy", None, []), ("busy", None, ["w-1"]), ("busy", ["m-2"], [])]
    assert run("groups", "remove-members", "idle") == (0, "Group 'idle' has no members.\n", "")
    rows = "group\tremoved\nbusy\tm-1\nbusy\tm-2\n"
    assert run("groups", "remove-members", "busy", "-o", "tsv") == (0, rows, "")


def test_members_that_cannot_be_taken_out(run: Scripted, cluster: Cluster) -> None:
    cluster.errors = {name: refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"no {name}") for name in ("x", "y")}
    named = ("--member-id", "x", "--member-id", "m-1", "--member-id", "y")
    told = "Removed m-1 from group 'busy'.\n"
    assert run("groups", "remove-members", "busy", *named) == (1, told, "x: no x; y: no y\n")
    assert run("groups", "remove-members", "busy", "--member-id", "x") == (1, "", "x: no x\n")
    assert run("groups", "remove-members", "buzy") == (
        1,
        "",
        "consumer group 'buzy' does not exist; did you mean 'busy'?\n",
    )
