"""Where a flow is and where it could be, by a checkpoint and by what brokers would say."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from ottla.base.types import TopicPartition
from ottla.spark.offset_places import EARLIEST, LATEST, AtEdge, AtGroup, AtOffsets, AtTime
from ottla.spark.pipeline import Pipeline
from ottla.spark.pipeline.flows.checkpoints import CheckpointState, PlannedBatch
from ottla.spark.pipeline.moves import positions, reset
from ottla.spark.pipeline.moves.positions import FlowPosition, MoveError, SourceOffsets, _source_of, find_flow
from ottla.spark.pipeline.moves.reset import Move
from ottla.spark.topic_offsets import Logs

A0, A1, ELSEWHERE = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("elsewhere", 0)
LOGS = Logs({A0: 10, A1: 0}, {A0: 20, A1: 5}, {"a": "id"})  # type: ignore[dict-item]


class Admin:
    def __init__(self) -> None:
        self.committed: dict[TopicPartition, int] = {}
        self.groups = ["g", "gone"]
        self.state = "Empty"
        self.written: list[tuple[str, dict[TopicPartition, int]]] = []

    def list_group_offsets(self, groups: list[str]) -> Any:
        return {group: {tp: SimpleNamespace(offset=at) for tp, at in self.committed.items()} for group in groups}

    def list_groups(self) -> Any:
        return [SimpleNamespace(group_id=group) for group in self.groups]

    def describe_groups(self, groups: list[str]) -> Any:
        return SimpleNamespace(results={group: SimpleNamespace(state=self.state) for group in groups})

    def alter_group_offsets(self, group: str, offsets: Any) -> Any:
        self.written.append((group, {tp: at.offset for tp, at in offsets.items()}))
        return SimpleNamespace(check=lambda: None)


class Asked:
    """What is asked about the places that only brokers know."""

    def __init__(self, options: Any) -> None:
        self.options = options

    def first_logs(self) -> Logs:
        return LOGS

    def starting(self, logs: Logs) -> Any:
        assert logs is LOGS
        return self.options.starting, self.options.starting_at_latest_if_none


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Admin:
    made = Admin()
    monkeypatch.setattr(positions, "TopicOffsets", Asked)
    monkeypatch.setattr(positions, "admin_for", lambda client: made)
    return made


def pipeline(origin: str = "in") -> Any:
    made = Pipeline("p", kafka={"bootstrap.servers": "nowhere:1"}, checkpoint="state")
    made.source("first", kind="topic", topics=["a", "b"])
    made.source("in", kind="topic", topic="a")
    made.source("made", kind="spark", format="rate")
    made.sink("out", kind="console")
    made.flow(origin, "out", name="f")
    return made.model()


@pytest.fixture
def offsets(admin: Admin) -> SourceOffsets:
    return SourceOffsets(pipeline().sources["in"])


def test_a_time_or_an_edge_is_asked_of_brokers(offsets: SourceOffsets) -> None:
    for place in (AtTime(5), AtEdge(EARLIEST)):
        assert offsets.at(place, {}) == (place, True), "where a time is after the last record, that is the end"
    assert offsets.topic_ids == {"a": "id"}


@pytest.mark.parametrize(
    ("given", "current", "expected", "notes"),
    [
        ({A0: 12, A1: 3}, {}, {A0: 12, A1: 3}, []),
        ({A0: 12}, {A0: 11, A1: 4}, {A0: 12, A1: 4}, []),
        ({A0: 12}, {}, {A0: 12, A1: 0}, []),
        ({A0: 10, A1: 5}, {}, {A0: 10, A1: 5}, []),
        ({A0: EARLIEST, A1: LATEST}, {}, {A0: 10, A1: 5}, []),
        ({A0: LATEST, A1: EARLIEST}, {}, {A0: 20, A1: 0}, []),
        ({A0: 9}, {}, {A0: 10, A1: 0}, ["a-0 holds 10 to 20: 9 is not there, 10 is the nearest"]),
        ({A1: 6}, {A0: 12}, {A0: 12, A1: 5}, ["a-1 holds 0 to 5: 6 is not there, 5 is the nearest"]),
    ],
)
def test_offsets_that_are_named(
    offsets: SourceOffsets,
    given: dict[TopicPartition, int],
    current: dict[TopicPartition, int],
    expected: dict[TopicPartition, int],
    notes: list[str],
) -> None:
    assert offsets.at(AtOffsets(given), current) == expected
    assert offsets.notes == notes


def test_the_position_of_a_group(offsets: SourceOffsets, admin: Admin) -> None:
    admin.committed = {A0: 15, ELSEWHERE: 3}
    assert offsets.at(AtGroup("g"), {A1: 4}) == {A0: 15, A1: 0}
    admin.committed = {A0: 25}
    assert offsets.at(AtGroup("g"), {}) == {A0: 20, A1: 0}
    assert len(offsets.notes) == 1


@pytest.mark.parametrize(
    ("group", "told"), [("g", "group g has no position in a"), ("gon", "there is no group 'gon'. Did you mean 'gone'?")]
)
def test_a_group_without_a_position(offsets: SourceOffsets, admin: Admin, group: str, told: str) -> None:
    admin.committed = {ELSEWHERE: 3}
    with pytest.raises(MoveError) as error:
        offsets.at(AtGroup(group), {})
    assert str(error.value) == told


@pytest.mark.parametrize(("state", "is_written"), [("Empty", True), ("Dead", True), ("Stable", False)])
def test_a_group_is_given_a_position_unless_it_has_members(
    offsets: SourceOffsets, admin: Admin, state: str, is_written: bool
) -> None:
    admin.state = state
    if is_written:
        offsets.write_group("g", {A0: 12, ELSEWHERE: 3})
        assert admin.written == [("g", {A0: 12})]
    else:
        with pytest.raises(MoveError, match="group g has members at work"):
            offsets.write_group("g", {A0: 12})
        assert admin.written == []


def test_flows_by_name() -> None:
    assert find_flow(pipeline(), "f").name == "f"
    with pytest.raises(MoveError, match="there is no flow 'ff'"):
        find_flow(pipeline(), "ff")


@pytest.mark.parametrize(
    ("origin", "line", "source"),
    [
        ("in", "{}", None),
        ("in", '{"a": {"0": 3}}', "in"),
        ("first", '{"a": {"0": 3}}', "first"),
        ("made", '{"a": {"0": 3}}', "first"),
        ("in", '{"a": {"0": 3}, "b": {"0": 1}}', "first"),
        ("in", '{"old": {"0": 3}}', "in"),
    ],
)
def test_the_source_that_a_line_of_a_checkpoint_is_about(origin: str, line: str, source: str | None) -> None:
    model = pipeline(origin)
    found = _source_of(model, model.flows["f"], line)
    assert (None if found is None else found.name) == source


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("12", "flow f reads something else than topics, too"),
        ('{"old": {"0": 3}, "b": {"0": 1}}', "holds offsets of b, old, which no source reads any more"),
    ],
)
def test_lines_that_no_source_is_found_for(line: str, told: str) -> None:
    model = pipeline("made")
    with pytest.raises(MoveError, match=told):
        _source_of(model, model.flows["f"], line)


def position(committed: int, begun: int, at: dict[TopicPartition, int], version: str = "v1") -> FlowPosition:
    return FlowPosition(
        pipeline().flows["f"], CheckpointState("q", committed, begun, at), PlannedBatch(version, "{}", ()), ()
    )


@pytest.mark.parametrize(
    ("committed", "begun", "at", "is_in_a_batch"),
    [
        (3, 3, {A0: 1}, False),
        (3, 4, {A0: 1}, True),
        (-1, 0, {}, True),
        (-1, 0, {A0: 1}, False),
        (0, 1, {}, True),
        (0, 1, {A0: 1}, True),
    ],
)
def test_a_batch_that_was_begun_and_is_not_known_to_be_done(
    committed: int, begun: int, at: dict[TopicPartition, int], is_in_a_batch: bool
) -> None:
    assert position(committed, begun, at).is_in_a_batch is is_in_a_batch


# Moves


def test_how_much_is_read_again_and_how_much_never() -> None:
    move = Move("f", {A0: 15, A1: 2, ELSEWHERE: 9}, {A0: 11, A1: 5}, {})
    assert (move.read_again, move.passed_over) == (4, 3)


def test_only_offsets_of_the_flows_own_partitions_can_be_named() -> None:
    ends = {A0: 20, A1: 5}
    reset._check_named(AtOffsets({A0: 1}), ends)
    reset._check_named(AtEdge(LATEST), ends)
    with pytest.raises(MoveError, match="the flow does not read elsewhere-0"):
        reset._check_named(AtOffsets({A0: 1, ELSEWHERE: 1}), ends)


class Sink:
    rewritten_rows = "they are dropped"

    def __init__(self, obstacle: str | None = None) -> None:
        self.obstacle = obstacle

    def obstacle_to_move(self) -> str | None:
        return self.obstacle

    def flow_moved(self, moved: object) -> None:
        raise AssertionError


def model_with(sink: object) -> Any:
    return SimpleNamespace(sinks={"out": SimpleNamespace(part=sink)})


def test_what_keeps_a_flow_where_it_is() -> None:
    reset._check_movable(model_with(Sink()), position(0, 0, {}))
    reset._check_movable(model_with(object()), position(0, 0, {}))
    with pytest.raises(MoveError, match="flow f cannot be moved: it is full"):
        reset._check_movable(model_with(Sink("it is full")), position(0, 0, {}))
    with pytest.raises(MoveError, match="of a kind that cannot be moved"):
        reset._check_movable(model_with(Sink()), position(0, 0, {}, version="v2"))


@pytest.mark.parametrize(
    ("sink", "begun", "after", "has_memory", "notes"),
    [
        (Sink(), 3, 15, False, []),
        (Sink(), 4, 15, False, ["batch 4 was begun and is not known to be done: some of its rows may be in the sink"]),
        (Sink(), 3, 11, False, ["4 offsets are read again: they are dropped"]),
        (object(), 3, 11, False, ["4 offsets are read again: what becomes of rows that are written a second time"]),
        (Sink(), 3, 17, False, ["2 offsets are passed over"]),
        (Sink(), 3, 15, True, ["its memory (windows, joins, repetitions) starts empty"]),
    ],
)
def test_what_a_move_means(
    sink: object,
    begun: int,
    after: int,
    has_memory: bool,
    notes: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reset, "directory_of", lambda flow: tmp_path)
    if has_memory:
        (tmp_path / "state").mkdir()
    found = reset._notes(model_with(sink), position(3, begun, {A0: 15}), Move("f", {A0: 15}, {A0: after}, {A0: 20}))
    assert len(found) == len(notes)
    assert all(note.startswith(beginning) for note, beginning in zip(found, notes, strict=True))
