"""`ottla reassign` and `ottla cluster add-broker` on a broker that is alone: nothing moves, everything is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.cli.reassign.cluster_view import ClusterView
from ottla.cli.reassign.plan_file import plan_json
from ottla.cli.reassign.scaling import _check, _share, _table
from tests.unit.cli.commands import Commands


@pytest.fixture
def own_id(ottla: Commands, filled: str) -> int:
    plan = json.loads(ottla.shown("reassign", "generate", "--topic", filled, "--replication-factor", "1"))
    assert [entry["partition"] for entry in plan["partitions"]] == [0, 1]
    (broker_id,) = {broker for entry in plan["partitions"] for broker in entry["replicas"]}
    return int(broker_id)


def plan_file(tmp_path: Path, topic: str, own_id: int) -> tuple[str, str]:
    """The plan that changes nothing, its path and its text."""
    text = plan_json({TopicPartition(topic, number): (own_id,) for number in (0, 1)})
    (tmp_path / "plan.json").write_text(text)
    return str(tmp_path / "plan.json"), text


def cleared(topic: str, own_id: int) -> str:
    return f"Clearing broker-level throttles on broker {own_id}\nClearing topic-level throttles on topic {topic}\n"


def test_a_plan_is_begun_watched_and_verified(ottla: Commands, filled: str, own_id: int, tmp_path: Path) -> None:
    path, text = plan_file(tmp_path, filled, own_id)
    assert ottla("reassign", "list") == (0, "No partition reassignments found.\n", "")
    begun = (
        f"Current partition replica assignment\n\n{text}\n\n"
        "Save this to use as the --reassignment-json-file option during rollback\n"
        "Warning: You must run --verify periodically, until the reassignment completes, "
        "to ensure the throttle is removed.\n"
        "The inter-broker throttle limit was set to 1000 B/s\n"
        "The replica-alter-dir throttle limit was set to 2000 B/s\n"
        f"Successfully started partition reassignments for {filled}-0,{filled}-1\n"
    )
    limits = ("--throttle", "1000", "--replica-alter-log-dirs-throttle", "2000")
    watched = "2 of 2 partitions moved, 0.0 MB of 0.0 MB copied\n"
    assert ottla("reassign", "execute", path, *limits, "--wait") == (0, begun + cleared(filled, own_id), watched)
    assert ottla("configs", "describe", "topics", filled)[1] == f"Dynamic configs for topic {filled} are:\n"
    done = "Status of partition reassignment:\n" + "".join(
        f"Reassignment of partition {filled}-{number} is completed.\n" for number in (0, 1)
    )
    assert ottla("reassign", "verify", path) == (0, f"{done}\n{cleared(filled, own_id)}", "")
    assert ottla("reassign", "--verify", "--reassignment-json-file", path, "--preserve-throttles")[1] == f"{done}\n"


def test_throttles_stay_until_they_are_cleared(ottla: Commands, filled: str, own_id: int, tmp_path: Path) -> None:
    path, _ = plan_file(tmp_path, filled, own_id)
    ottla.shown("reassign", "execute", path, "--throttle", "1234")
    throttles = {row["setting"]: row["value"] for row in ottla.json("configs", "describe", "topics", filled)}
    assert throttles == {
        "leader.replication.throttled.replicas": f"0:{own_id},1:{own_id}",
        "follower.replication.throttled.replicas": "",
    }
    rates = {row["setting"]: row["value"] for row in ottla.json("configs", "describe", "brokers", str(own_id))}
    assert rates == {"leader.replication.throttled.rate": "1234", "follower.replication.throttled.rate": "1234"}
    none = "None of the specified partition reassignments are active.\n"
    assert ottla("reassign", "cancel", path, "--preserve-throttles") == (0, none, "")
    assert ottla.json("configs", "describe", "brokers", str(own_id))
    assert ottla("reassign", "cancel", path) == (0, none + cleared(filled, own_id), "")
    assert ottla.json("configs", "describe", "brokers", str(own_id)) == []


def test_replicas_that_are_elsewhere(ottla: Commands, filled: str, own_id: int, tmp_path: Path) -> None:
    """A plan for another cluster, and one that names a log directory."""
    replicas = {"topic": filled, "partition": 0, "replicas": [own_id], "log_dirs": ["/nowhere"]}
    wanted = {"topic": filled, "partition": 1, "replicas": [own_id + 1]}
    (tmp_path / "plan.json").write_text(json.dumps({"version": 1, "partitions": [replicas, wanted]}))
    shown = ottla.shown("reassign", "verify", str(tmp_path / "plan.json")).splitlines()
    assert shown[1:3] == [
        f"Reassignment of partition {filled}-0 is completed.",
        f"There is no active reassignment of partition {filled}-1, "
        f"but replica set is {own_id} rather than {own_id + 1}.",
    ]
    assert shown[3].startswith(f"Partition {filled}-0 on broker {own_id} is not being moved from log dir /")
    assert shown[3].endswith(" to /nowhere.")


def test_a_plan_in_kafkas_words(ottla: Commands, filled: str, own_id: int, tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text(json.dumps({"version": 1, "topics": [{"topic": filled}]}))
    options = ("--generate", "--topics-to-move-json-file", str(tmp_path / "topics.json"))
    text = plan_file(tmp_path, filled, own_id)[1]
    assert ottla("reassign", *options, "--broker-list", f"{own_id},99") == (
        0,
        f"Current partition replica assignment\n{text}\n\nProposed partition reassignment configuration\n{text}\n",
        "",
    )


@pytest.mark.parametrize(
    ("arguments", "exit_code", "says"),
    [
        ([], 2, "name exactly one of generate, execute, verify, cancel, list"),
        (["move"], 2, "name exactly one of"),
        (["list", "--verify"], 2, "name exactly one of"),
        (["execute"], 2, "which plan to execute is not said"),
        (["verify"], 2, "which plan to verify is not said"),
        (["cancel"], 2, "which plan to cancel is not said"),
        (["list", "--throttle", "1"], 2, "are for execute only"),
        (["generate", "--wait"], 2, "are for execute only"),
        (["generate", "--additional"], 2, "are for execute only"),
        (["generate", "--timeout", "1"], 2, "are for execute only"),
        (["generate", "--replica-alter-log-dirs-throttle", "1"], 2, "are for execute only"),
        (["--generate", "--topic", "t"], 2, "--generate needs"),
        (["--generate", "--broker-list", "1"], 2, "--generate needs"),
        (["generate", "--broker-list", "1,x"], 2, "'1,x' is not of the form 1,2,3"),
        (["generate", "--broker-list", "2,1,2,1"], 2, "duplicate entries: [1, 2]"),
        (["generate", "--replication-factor", "0", "--topic", "t"], 2, "--replication-factor must be at least 1"),
        (["execute", "no-plan", "--throttle", "0"], 2, "--throttle must be at least 1"),
        (["generate", "--topic", "no-such-topic"], 1, "Topic no-such-topic not found."),
    ],
)
def test_what_makes_no_sense(ottla: Commands, arguments: list[str], exit_code: int, says: str) -> None:
    code, out, error = ottla("reassign", *arguments)
    assert (code, out) == (exit_code, "")
    assert says in error


def test_an_empty_plan_is_not_begun(ottla: Commands, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"version": 1, "partitions": []}')
    code, out, error = ottla("reassign", "execute", str(tmp_path / "plan.json"))
    assert (code, out) == (1, "")
    assert "Partition reassignment list cannot be empty" in error


# Brokers that come and go

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
VIEW = ClusterView({1: None, 2: None, 3: None}, {T0: (1, 2), T1: (2, 9)}, {T0: 1, T1: 2})


def test_a_broker_has_its_share_already(ottla: Commands, filled: str, own_id: int) -> None:
    code, out, error = ottla("cluster", "add-broker", str(own_id))
    assert (code, error) == (0, "")
    assert out.startswith(f"Nothing has to move: broker {own_id} holds ")


@pytest.mark.parametrize(
    ("broker_id", "leaves", "says"),
    [
        (1, True, None),
        (9, True, None),
        (3, True, "broker 3 holds no replicas, so it can be stopped as it is"),
        (3, False, None),
        (9, False, r"broker 9 is not in the cluster \(alive are 1, 2, 3\); start it first, with broker.id=9"),
    ],
)
def test_who_may_come_and_go(broker_id: int, leaves: bool, says: str | None) -> None:
    if says is None:
        _check(VIEW, broker_id, leaves=leaves)
    else:
        with pytest.raises(KafkaError, match=says) as refusal:
            _check(VIEW, broker_id, leaves=leaves)
        code = ErrorCode.REPLICA_NOT_AVAILABLE if leaves else ErrorCode.BROKER_NOT_AVAILABLE
        assert refusal.value.code is code


def test_what_is_shown_before_anything_moves() -> None:
    assert [_share(VIEW.replicas, broker_id) for broker_id in (1, 2, 3)] == [
        "1 of 4 replicas",
        "2 of 4 replicas",
        "0 of 4 replicas",
    ]
    wanted = {T0: (1, 2), T1: (3, 2)}
    lines = _table(VIEW, wanted, {T1: (3, 2)}, 2_345_678).splitlines()
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]
    assert rows == [
        ["1", "1", "1", "1", "1"],
        ["2", "2", "2", "1", "0"],
        ["3", "0", "1", "0", "1"],
        ["9", "1", "0", "0", "0"],
    ]
    assert lines[-1] == "1 of 2 partitions change; 1 copies, about 2.3 MB."
