"""A flow that is moved: which checkpoint it goes on from, who is told what, and what a cut-off leaves to the next."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

import ottla
from ottla.base.types import TopicPartition
from ottla.spark.offset_places import EARLIEST, LATEST, AtEdge, AtOffsets
from ottla.spark.pipeline import Pipeline
from ottla.spark.pipeline.flows.checkpoints import FlowCheckpoint, PlannedBatch
from ottla.spark.pipeline.flows.running import FlowBusyError, flows_run, is_being_moved
from ottla.spark.pipeline.model import Model
from ottla.spark.pipeline.moves import reset
from ottla.spark.pipeline.moves.checkpoint_exchange import CheckpointExchange
from ottla.spark.pipeline.moves.positions import MoveError, directory_of, find_position
from ottla.spark.pipeline.moves.reset import reset_flow
from ottla.spark.pipeline.moves.showing import show_position
from ottla.spark.pipeline.parts import MovedFlow
from ottla.testing import EmbeddedBroker

NOW_MS = 1_700_000_000_000
STAMP = datetime.fromtimestamp(NOW_MS / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
OWN = json.dumps({"batchWatermarkMs": 7, "batchTimestampMs": 8, "conf": {"kept": "1", "set": "2"}})


# The exchange


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A checkpoint with one file in it."""
    made = tmp_path / "f"
    made.mkdir()
    (made / "metadata").write_text('{"id": "old"}')
    return made


def prepared(directory: Path, own: str = OWN) -> CheckpointExchange:
    exchange = CheckpointExchange(directory, NOW_MS)
    exchange.prepare(PlannedBatch("v1", own, ('{"t":{"0":5}}',)), {"t": "id"}, {"set": "3", "other": "4"})
    return exchange


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.parent.iterdir())


def test_the_new_checkpoint_holds_nothing_but_where_to_go_on(directory: Path) -> None:
    exchange = prepared(directory)
    assert names(directory) == ["f", "f.new"]
    aside = exchange.carry_out()
    assert aside == directory.with_name(f"f.before-{STAMP}")
    assert names(directory) == sorted(["f", aside.name, "f.moving"])
    assert is_being_moved(str(directory))
    assert (aside / "metadata").read_text() == '{"id": "old"}'
    checkpoint = FlowCheckpoint(None, str(directory))
    state, planned = checkpoint.state(), checkpoint.planned(0)
    assert state is not None and planned is not None
    assert (len(state.query_id), state.committed, state.begun) == (36, -1, 0)
    assert (planned.version, planned.sources) == ("v1", ('{"t":{"0":5}}',))
    conf = {"kept": "1", "set": "3"}
    assert json.loads(planned.own) == {"batchWatermarkMs": 0, "batchTimestampMs": NOW_MS, "conf": conf}
    assert checkpoint.topic_ids() == {"t": "id"}
    exchange.finish()
    exchange.finish()
    assert names(directory) == ["f", aside.name]


def test_a_state_without_settings_gets_none(directory: Path) -> None:
    prepared(directory, "{}").carry_out()
    planned = FlowCheckpoint(None, str(directory)).planned(0)
    assert planned is not None and json.loads(planned.own)["conf"] == {}


def test_old_checkpoints_have_names_of_their_own(directory: Path) -> None:
    first = prepared(directory).carry_out()
    second = prepared(directory).carry_out()
    third = prepared(directory).carry_out()
    assert [path.name for path in (first, second, third)] == [f"f.before-{STAMP}{end}" for end in ("", "-2", "-3")]


def test_what_was_only_prepared_is_thrown_away(directory: Path) -> None:
    assert prepared(directory).take_back() is None
    assert names(directory) == ["f"]
    assert (directory / "metadata").read_text() == '{"id": "old"}'


def test_an_exchange_that_was_cut_off_between_its_steps_is_undone(directory: Path) -> None:
    aside = prepared(directory).carry_out()
    directory.rename(directory.with_name("f.new"))
    assert CheckpointExchange(directory, NOW_MS).take_back() is None
    assert (directory / "metadata").read_text() == '{"id": "old"}'
    assert not aside.exists() and names(directory) == ["f", "f.moving"]


def test_one_that_was_cut_off_before_its_first_step_is_as_if_it_had_not_begun(directory: Path) -> None:
    exchange = prepared(directory)
    directory.with_name("f.moving").write_text(json.dumps({"aside": str(directory.with_name("f.aside"))}))
    assert exchange.take_back() is None
    assert names(directory) == ["f", "f.moving"]


def test_one_that_was_carried_out_is_told(directory: Path) -> None:
    aside = prepared(directory).carry_out()
    assert CheckpointExchange(directory, NOW_MS).take_back() == aside
    assert aside.exists() and directory.exists()


def test_a_checkpoint_that_is_gone_altogether_is_no_hindrance(directory: Path) -> None:
    directory.with_name("f.moving").write_text(json.dumps({"aside": str(directory.with_name("f.aside"))}))
    for path in [*directory.iterdir()]:
        path.unlink()
    directory.rmdir()
    assert CheckpointExchange(directory, NOW_MS).take_back() is None
    assert names(directory) == ["f.moving"]


# A reset


class Sink:
    rewritten_rows = "they are there twice"

    def __init__(self) -> None:
        self.moved: list[MovedFlow] = []
        self.obstacle: str | None = None
        self.error: Exception | None = None

    def obstacle_to_move(self) -> str | None:
        return self.obstacle

    def flow_moved(self, moved: MovedFlow) -> None:
        if self.error is not None:
            raise self.error
        self.moved.append(moved)

    def check(self) -> list[str]:
        return []

    def writer(self, frame: Any, *, flow: Any) -> Any: ...


class World:
    """A flow that has read five of the ten records of partition 0, and both of partition 1."""

    def __init__(self, cluster: EmbeddedBroker, admin: ottla.Admin, directory: Path) -> None:
        self.admin = admin
        self.topic = cluster.new_topic(partitions=2)
        self.first, self.second = (TopicPartition(self.topic, partition) for partition in range(2))
        with ottla.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for partition, count in ((0, 10), (1, 2)):
                for _ in range(count):
                    producer.send(self.topic, b"v", partition=partition)
            producer.flush()
        self.directory = directory / "f"
        self.sink = Sink()
        made = Pipeline("shop", kafka={"bootstrap.servers": cluster.bootstrap_servers}, checkpoint=str(directory))
        made.source("in", kind="topic", topic=self.topic)
        made.sink("out", kind="console")
        made.flow("in", "out", name="f", group_id=f"g-{self.topic}")
        self.model: Model = made.model()
        object.__setattr__(self.model.sinks["out"], "part", self.sink)

    @property
    def flow(self) -> Any:
        return self.model.flows["f"]

    def checkpoint(
        self, *, begun: int = 3, committed: int = 3, version: str = "v1", lines: tuple[str, ...] = ()
    ) -> None:
        (self.directory / "offsets").mkdir(parents=True)
        (self.directory / "commits").mkdir()
        (self.directory / "metadata").write_text(json.dumps({"id": "old-query"}))
        for batch in range(committed, begun + 1):
            text = "\n".join((version, OWN, *(lines or (self.line(5 + batch - committed, 2),))))
            (self.directory / "offsets" / str(batch)).write_text(text)
        (self.directory / "commits" / str(committed)).write_text("")

    def line(self, first: int, second: int) -> str:
        return json.dumps({self.topic: {"0": first, "1": second}})

    def reset(self, offsets: Mapping[int, int] | int, *, dry_run: bool = False) -> reset.Move:
        if isinstance(offsets, int):
            return reset_flow(self.model, "f", AtEdge(offsets), dry_run=dry_run)
        named = {TopicPartition(self.topic, one): offset for one, offset in offsets.items()}
        return reset_flow(self.model, "f", AtOffsets(named), dry_run=dry_run)

    def group(self) -> dict[int, int]:
        name = f"g-{self.topic}"
        return {one.partition: at.offset for one, at in self.admin.list_group_offsets([name])[name].items()}

    def names(self) -> list[str]:
        return sorted(path.name for path in self.directory.parent.iterdir() if path.is_dir())


@pytest.fixture
def world(cluster: EmbeddedBroker, admin: ottla.Admin, tmp_path: Path) -> World:
    return World(cluster, admin, tmp_path)


def test_a_flow_goes_on_where_it_is_told(world: World) -> None:
    world.checkpoint()
    dry = world.reset({0: 3, 1: 2}, dry_run=True)
    assert dry.aside is None and world.names() == ["f"] and world.group() == {}
    move = world.reset({0: 3, 1: 2})
    assert dict(move.before) == {world.first: 5, world.second: 2}
    assert dict(move.after) == {world.first: 3, world.second: 2}
    assert dict(move.ends) == {world.first: 10, world.second: 2}
    assert (move.read_again, move.passed_over) == (2, 0)
    assert move.notes == dry.notes == ("2 offsets are read again: they are there twice",)
    assert move.aside is not None and world.names() == ["f", move.aside.name]
    assert not is_being_moved(str(world.directory))
    position = find_position(world.model, world.flow)
    assert dict(position.state.position) == {world.first: 3, world.second: 2}
    assert (position.state.committed, position.is_in_a_batch) == (-1, False)
    (moved,) = world.sink.moved
    assert (moved.sink_id, moved.old_query_id, moved.new_query_id) == ("shop-f", "old-query", position.state.query_id)
    assert moved.sources == position.last.sources
    assert world.group() == {0: 3, 1: 2}
    topic_id = world.admin.describe_topics([world.topic])[world.topic].topic_id
    assert FlowCheckpoint(None, str(world.directory)).topic_ids() == {world.topic: str(topic_id)}


def test_what_a_move_means_is_told(world: World) -> None:
    world.checkpoint(begun=4)
    (world.directory / "state").mkdir()
    move = world.reset({0: 8, 1: 9}, dry_run=True)
    assert (move.read_again, move.passed_over) == (0, 3)
    assert move.notes == (
        f"{world.second} holds 0 to 2: 9 is not there, 2 is the nearest",
        "batch 4 was begun and is not known to be done: some of its rows may be in the sink already",
        "3 offsets are passed over: the flow never reads them",
        "its memory (windows, joins, repetitions) starts empty, with what comes from there on",
    )
    assert world.reset({0: 5}, dry_run=True).notes == move.notes[1:2] + move.notes[3:]


@pytest.mark.parametrize(("edge", "after"), [(EARLIEST, [0, 0]), (LATEST, [10, 2])])
def test_a_flow_is_moved_to_an_edge(world: World, edge: int, after: list[int]) -> None:
    world.checkpoint()
    assert list(world.reset(edge, dry_run=True).after.values()) == after


def test_a_source_without_topics_yet_stays_as_it_is(world: World) -> None:
    world.checkpoint(lines=("{}", world.line(5, 2)))
    world.reset({0: 1})
    planned = FlowCheckpoint(None, str(world.directory)).planned(0)
    assert planned is not None and planned.sources[0] == "{}"
    assert find_position(world.model, world.flow).sources[0] is None


@pytest.mark.parametrize(
    ("checkpoint", "obstacle", "told"),
    [
        ({"version": "v2"}, None, "is of a kind that cannot be moved here"),
        ({}, "it is a heap", "flow f cannot be moved: it is a heap"),
        ({"lines": ("7",)}, None, "reads something else than topics"),
    ],
)
def test_a_flow_that_cannot_be_moved(world: World, checkpoint: dict[str, Any], obstacle: str | None, told: str) -> None:
    world.checkpoint(**checkpoint)
    world.sink.obstacle = obstacle
    with pytest.raises(MoveError, match=told):
        world.reset({0: 3})
    assert world.names() == ["f"] and world.sink.moved == []


def test_partitions_that_the_flow_does_not_read_are_refused(world: World) -> None:
    world.checkpoint()
    with pytest.raises(MoveError, match=f"the flow does not read {world.topic}-2"):
        world.reset({0: 1, 2: 1, 3: 1})
    assert world.names() == ["f"]


def test_a_flow_that_runs_is_not_moved(world: World) -> None:
    world.checkpoint()
    with flows_run(world.model), pytest.raises(FlowBusyError, match="flow f is running"):
        world.reset({0: 3})


def test_a_reset_that_was_cut_off_is_completed_by_the_next(world: World) -> None:
    world.checkpoint()
    world.sink.error = RuntimeError("killed")
    with pytest.raises(RuntimeError):
        world.reset({0: 3})
    assert is_being_moved(str(world.directory)) and world.sink.moved == []
    world.sink.error = None
    assert world.reset({0: 3}, dry_run=True).read_again == 0
    assert not is_being_moved(str(world.directory))
    (moved,) = world.sink.moved
    assert moved.old_query_id == "old-query" and len(world.names()) == 2


def test_a_group_that_others_read_with_keeps_its_place(world: World) -> None:
    """Lag tools see the new place with the next run."""
    world.checkpoint()
    with ottla.Consumer(
        bootstrap_servers=world.model.kafka["bootstrap.servers"], group_id=f"g-{world.topic}"
    ) as member:
        member.subscribe([world.topic])
        while not member.assignment:
            member.poll(0.05)
        assert world.reset({0: 3}).aside is not None
        assert world.group().get(0) != 3


def test_where_a_flow_is(world: World, tmp_path: Path) -> None:
    with pytest.raises(MoveError, match="flow f has not run yet"):
        show_position(world.model, world.flow)
    world.checkpoint(begun=4)
    shown = show_position(world.model, world.flow)
    assert (shown.batch, dict(shown.position)) == (3, {world.first: 5, world.second: 2})
    assert dict(shown.ends) == {world.first: 10, world.second: 2}
    shown.write_group(f"mine-{world.topic}")
    found = world.admin.list_group_offsets([f"mine-{world.topic}"])[f"mine-{world.topic}"]
    assert {one: at.offset for one, at in found.items()} == dict(shown.position)
    (world.directory / "commits" / "3").unlink()
    with pytest.raises(MoveError, match="has not finished a batch yet"):
        show_position(world.model, world.flow)
    (world.directory / "metadata").write_text("{")
    with pytest.raises(MoveError, match="cannot be read"):
        find_position(world.model, world.flow)
    (world.directory / "metadata").write_text('{"id": "q"}')
    for path in (world.directory / "offsets").iterdir():
        path.unlink()
    with pytest.raises(MoveError, match="has not run yet"):
        find_position(world.model, world.flow)


def test_a_checkpoint_elsewhere_is_not_moved(world: World) -> None:
    object.__setattr__(world.flow, "checkpoint", "s3://bucket/f")
    with pytest.raises(MoveError, match="has its checkpoint at s3://bucket/f, not in a directory of this machine"):
        directory_of(world.flow)


def test_the_old_checkpoint_is_named_by_the_time_it_was_set_aside(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reset, "time", SimpleNamespace(time=lambda: NOW_MS / 1000))
    world.checkpoint()
    aside = world.reset({0: 3}).aside
    assert aside is not None and aside.name == "f.before-20231114T221320Z"
    planned = FlowCheckpoint(None, str(world.directory)).planned(0)
    assert planned is not None and json.loads(planned.own)["batchTimestampMs"] == 1_700_000_000_000


def test_every_name_for_an_old_checkpoint_may_be_taken_but_one(directory: Path) -> None:
    for end in ("", *(f"-{number}" for number in range(2, 99))):
        directory.with_name(f"f.before-{STAMP}{end}").mkdir()
    assert prepared(directory).carry_out().name == f"f.before-{STAMP}-99"


def test_each_source_of_a_flow_is_moved_and_shown(world: World) -> None:
    world.checkpoint(lines=(world.line(5, 2), "{}", world.line(4, 1)))
    move = world.reset({0: 1, 1: 1})
    planned = FlowCheckpoint(None, str(world.directory)).planned(0)
    assert planned is not None and planned.sources[1] == "{}"
    assert (
        dict(move.after)
        == {world.first: 1, world.second: 1}
        == dict(find_position(world.model, world.flow).state.position)
    )
    assert planned.sources[0] == planned.sources[2]
