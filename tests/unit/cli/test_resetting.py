"""Where groups go on after `ottla groups reset-offsets`, by every strategy. What the cluster knows is scripted."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition as Place
from ottla.base.types import Uuid
from ottla.cli.failures import UsageError
from ottla.cli.groups.resetting import chosen_partitions, parse_duration_ms, plan, read_plan, reset
from ottla.client.core.admin.outcomes import Outcomes
from ottla.client.core.admin.types import OffsetSpec, TopicDescription
from ottla.client.core.topic_info import PartitionInfo
from tests.waiting import run_async

A0, A1, B0 = Place("a", 0), Place("a", 1), Place("b", 0)
FIRST = {A0: 10, A1: 0, B0: 0}
END = {A0: 20, A1: 5, B0: 0}


class Cluster:
    """Two topics; a record of every partition has the time of its offset."""

    def __init__(self) -> None:
        self.committed: dict[str, dict[Place, int]] = {"g": {A0: 15}}
        self.states: dict[str, str] = {"g": "Empty"}
        self.altered: list[tuple[str, dict[Place, int]]] = []
        self.asked_times: list[int] = []

    async def describe_topics(self) -> Any:
        infos = [PartitionInfo(index, 1, 0, (1,), (1,), ()) for index in range(2)]
        found = {"a": TopicDescription("a", Uuid(bytes(16)), False, tuple(infos))}
        found["b"] = TopicDescription("b", Uuid(bytes(16)), False, (infos[0],))
        return Outcomes(found, what="topics")

    async def list_groups(self) -> Any:
        return [SimpleNamespace(group_id=group) for group in self.committed]

    async def list_group_offsets(self, groups: list[str]) -> Any:
        found = {
            group: {one: SimpleNamespace(offset=at) for one, at in self.committed[group].items()}
            for group in groups
            if group in self.committed
        }
        return SimpleNamespace(results=found)

    async def list_offsets(self, wanted: Mapping[Place, int]) -> Any:
        def offset(one: Place, spec: int) -> int:
            if spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST):
                return (FIRST if spec == OffsetSpec.EARLIEST else END)[one]
            self.asked_times.append(spec)
            return -1 if spec >= END[one] else max(spec, FIRST[one])

        return Outcomes(
            {one: SimpleNamespace(offset=offset(one, spec)) for one, spec in wanted.items()}, what="offsets"
        )

    async def describe_groups(self, groups: list[str]) -> Any:
        members = [SimpleNamespace(member_id="m-1", host="/h1"), SimpleNamespace(member_id="m-2", host="/h2")]
        found = {
            group: SimpleNamespace(state=self.states[group], members=members)
            for group in groups
            if group in self.states
        }
        return SimpleNamespace(results=found)

    async def alter_group_offsets(self, group: str, offsets: Mapping[Place, int]) -> Any:
        self.altered.append((group, dict(offsets)))
        return Outcomes(dict.fromkeys(offsets), what="alter")


@pytest.fixture
def cluster() -> Any:
    return Cluster()


def options(strategy: str, *topics: str, kafka: bool = False, **more: Any) -> Namespace:
    own = {"group": ["g"], "output": "tsv", "execute": False, "export": False, strategy: None}
    return Namespace(**{**own, "strategy": strategy, "topic": list(topics), "kafka": kafka, **more})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (options("to_earliest", "a"), {A0: 10, A1: 0}),
        (options("to_latest", "a", "b"), {A0: 20, A1: 5, B0: 0}),
        (options("to_latest"), {A0: 20}),
        (options("to_latest", "a:1"), {A1: 5}),
        (options("to_current", "a"), {A0: 15, A1: 5}),
        (options("to_current"), {A0: 15}),
        (options("to_offset", "a:0", to_offset=12), {A0: 12}),
        (options("to_offset", "a:0", to_offset=10), {A0: 10}),
        (options("to_offset", "a:0", to_offset=20), {A0: 20}),
        (options("shift_by", shift_by=2), {A0: 17}),
        (options("shift_by", shift_by=-3), {A0: 12}),
        (options("to_datetime", "a", to_datetime="1970-01-01T00:00:00.003Z"), {A0: 10, A1: 3}),
    ],
)
def test_where_a_group_is_to_go_on(
    cluster: Any, given: Namespace, expected: dict[Place, int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_async(plan(cluster, "g", given)) == expected
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("offset", "bounded", "how"), [(9, 10, "lower than earliest"), (21, 20, "higher than latest")])
def test_an_offset_that_is_not_there_becomes_the_nearest(
    cluster: Any, offset: int, bounded: int, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_async(plan(cluster, "g", options("to_offset", "a:0", to_offset=offset))) == {A0: bounded}
    told = f"WARN New offset ({offset}) is {how} offset for topic partition a-0. Value will be set to {bounded}\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize("kafka", [False, True])
def test_a_time_after_the_last_record_is_the_end(cluster: Any, kafka: bool, capsys: pytest.CaptureFixture[str]) -> None:
    given = options("to_datetime", "a", to_datetime="1970-01-01T00:00:00.007Z", kafka=kafka)
    assert run_async(plan(cluster, "g", given)) == {A0: 10, A1: 5}
    warned = "\nWarn: Partition 1 from topic a is empty. Falling back to latest known offset.\n"
    ours = "WARN a-1 has no record that young. It is reset to its end\n"
    assert capsys.readouterr() == ((warned, "") if kafka else ("", ours))


def test_a_duration_is_counted_from_now(cluster: Any) -> None:
    before_ms = int(time.time() * 1000)
    run_async(plan(cluster, "g", options("by_duration", "a:0", by_duration="PT1H")))
    assert before_ms <= cluster.asked_times[0] + 3_600_000 <= int(time.time() * 1000)
    run_async(plan(cluster, "g", options("by_duration", "a:0", by_duration="P99999D")))
    assert cluster.asked_times[1] == 0


def test_who_has_no_offsets_has_to_name_topics(cluster: Any) -> None:
    cluster.committed["empty"] = {}
    with pytest.raises(KafkaError, match="consumer group 'empty' has no offsets; --topic says"):
        run_async(plan(cluster, "empty", options("to_latest")))
    with pytest.raises(KafkaError, match="consumer group 'gg' does not exist; did you mean 'g'") as refusal:
        run_async(plan(cluster, "gg", options("to_latest")))
    assert refusal.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert run_async(plan(cluster, "gg", options("to_latest", kafka=True))) == {}
    assert run_async(plan(cluster, "gg", options("to_latest", "b"))) == {B0: 0}
    with pytest.raises(KafkaError, match="Cannot shift offset for partition a-1 since there is no current"):
        run_async(plan(cluster, "g", options("shift_by", "a", shift_by=1)))


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        (["a"], [A0, A1]),
        (["b", "a"], [B0, A0, A1]),
        (["a:1"], [A1]),
        (["a:1,0"], [A0, A1]),
        (["a:1", "a:0"], [A0, A1]),
        (["a:1", "a"], [A0, A1]),
        ([], []),
    ],
)
def test_partitions_are_named(cluster: Any, topics: list[str], expected: list[Place]) -> None:
    assert run_async(chosen_partitions(cluster, topics)) == expected


def test_partitions_that_cannot_be_meant(cluster: Any) -> None:
    for text in ("a:x", "a:", "a:0,", "a:-1"):
        with pytest.raises(UsageError, match="specified in topic arg"):
            run_async(chosen_partitions(cluster, [text]))
    with pytest.raises(KafkaError, match="topic 'a' has no partition 2; it has 2") as refusal:
        run_async(chosen_partitions(cluster, ["a:1,3,2"]))
    assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_file_says_where(cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.csv"
    path.write_text("a, 0, 12\n\n  \na,1,9\n")
    given = options("from_file", from_file=str(path))
    assert run_async(plan(cluster, "g", given)) == {A0: 12, A1: 5}
    assert "higher than latest" in capsys.readouterr().err
    path.write_text("g,a,0,11\nh,a,0,12\n")
    for group, offset in (("g", 11), ("h", 12)):
        assert read_plan(path, group, several=False) == read_plan(path, group, several=True) == {A0: offset}


@pytest.mark.parametrize(
    ("line", "several", "number"),
    [
        ("a,0", False, 1),
        ("a,x,5", False, 1),
        ("a,0,x", False, 1),
        ("a,0,-1", False, 1),
        ("a,0,5", True, 1),
        ("\na,0,5,6,7", False, 2),
    ],
)
def test_a_line_that_is_none(tmp_path: Path, line: str, several: bool, number: int) -> None:
    path = tmp_path / "plan.csv"
    path.write_text(line)
    form = "of the form group,topic,partition,offset" if several else "of the form topic,partition,offset"
    with pytest.raises(UsageError, match=f"line {number}: .*{form}"):
        read_plan(path, "g", several=several)


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("P1D", 86_400_000),
        ("PT1M", 60_000),
        ("PT0.5S", 500),
        ("PT2S", 2000),
        ("pt3h", 10_800_000),
        ("P2DT1S", 172_801_000),
        ("1ms", 1),
        ("0s", 0),
    ],
)
def test_durations(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms


# What is done and shown


def test_nothing_is_changed_unless_it_is_to_be(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run_async(reset(cluster, options("to_latest")))
    shown = capsys.readouterr()
    assert shown.out == "group\ttopic\tpartition\tnew_offset\ng\ta\t0\t20\n"
    assert shown.err == "Nothing was changed: this is what --execute would do.\n"
    assert cluster.altered == []
    run_async(reset(cluster, options("to_latest", execute=True)))
    assert capsys.readouterr() == (shown.out, "")
    assert cluster.altered == [("g", {A0: 20})]


def test_a_plan_can_be_kept_in_a_file(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.committed["h"] = {A1: 1}
    run_async(reset(cluster, options("to_latest", export=True)))
    assert capsys.readouterr().out == "a,0,20\n"
    run_async(reset(cluster, options("to_latest", export=True, group=["g", "h"], kafka=True)))
    assert capsys.readouterr().out == "g,a,0,20\nh,a,1,5\n\n"


def test_kafkas_table(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run_async(reset(cluster, options("to_latest", kafka=True)))
    head = "GROUP".ljust(31) + "TOPIC".ljust(31) + "PARTITION".ljust(11) + "NEW-OFFSET".ljust(15)
    row = "g".ljust(31) + "a".ljust(31) + "0".ljust(11) + "20".ljust(15)
    assert capsys.readouterr().out == f"\n{head}{row}"


@pytest.mark.parametrize(("state", "is_reset"), [("Empty", True), ("Dead", True), ("Stable", False), (None, True)])
def test_a_group_with_members_is_left_alone(
    cluster: Any, state: str | None, is_reset: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.committed["h"] = {A1: 1}
    cluster.states = {"g": "Empty"} if state is None else {"g": "Empty", "h": state}
    given = options("to_latest", group=["h", "g"], execute=True)
    if is_reset:
        run_async(reset(cluster, given))
    else:
        with pytest.raises(KafkaError) as refusal:
            run_async(reset(cluster, given))
        assert refusal.value.code is ErrorCode.NON_EMPTY_GROUP
        told = "group 'h' is Stable; stop its members before its offsets are reset: m-1 on /h1, m-2 on /h2"
        assert refusal.value.message == told
    assert cluster.altered == [*([("h", {A1: 5})] if is_reset else []), ("g", {A0: 20})]
    assert "g\ta\t0\t20" in capsys.readouterr().out
    given.kafka = True
    run_async(reset(cluster, given))
    told = "\nError: Assignments can only be reset if the group 'h' is inactive, but the current state is Stable.\n"
    assert (told in capsys.readouterr().out) is not is_reset
