"""Whether a flow may go on from its checkpoint, and what is put away after a good end. A broker, and no Spark."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

import ottla
from ottla.base.errors import OttlaError
from ottla.base.types import TopicPartition
from ottla.spark.group_commits import GroupCommits
from ottla.spark.offsets import to_placed_json
from ottla.spark.pipeline.flows import tidying
from ottla.spark.pipeline.flows.checkpoints import CheckpointState, FlowCheckpoint
from ottla.spark.pipeline.flows.continuity import check_continuity, end_note
from ottla.spark.pipeline.flows.running import moving_note
from ottla.spark.pipeline.flows.tidying import tidy_up
from ottla.spark.pipeline.model import Flow, Source
from ottla.spark.pipeline.problems import Place, SpecError
from ottla.spark.pipeline.section import Entry, Scalar, Section
from ottla.testing import EmbeddedBroker
from tests.log_lines import lines_of

QUERY = "6dfd70cd-0000-0000-0000-000000000000"


class Part:
    """A source of topics."""

    def __init__(self, servers: str, *topics: str, fails: bool = True) -> None:
        self._topics = topics
        self.stream_options = {
            "kafka.bootstrap.servers": servers,
            "subscribe": ",".join(topics),
            "failOnDataLoss": str(fails).lower(),
        }

    def reads(self, topic: str) -> bool:
        return topic in self._topics


def section(title: str, line: int, key: str) -> Section:
    entries = {key: Entry(Scalar("", ""), Place("p.yaml", line + 1), Place("p.yaml", line + 1))}
    return Section(entries, Place("p.yaml", line), title)


class World:
    def __init__(self, cluster: EmbeddedBroker, admin: ottla.Admin, directory: Path) -> None:
        self.cluster = cluster
        self.admin = admin
        self.topic = cluster.new_topic()
        self.directory = directory / "state"
        self.group = f"ottla-pipeline-{self.topic}"
        self.flow = Flow(
            "f", section("flow f", 10, "checkpoint"), "in", "out", "append", str(self.directory), self.group
        )
        self.sources = [self.source(self.topic)]

    def source(self, *topics: str, name: str = "in", fails: bool = True) -> Source:
        part: Any = Part(self.cluster.bootstrap_servers, *topics, fails=fails)
        return Source(name, section(f"source {name}", 3, "topic"), part)

    def checkpoint(self, committed: int = 4, *sources: dict[str, dict[str, int]]) -> None:
        (self.directory / "commits").mkdir(parents=True, exist_ok=True)
        (self.directory / "offsets").mkdir(exist_ok=True)
        (self.directory / "metadata").write_text(json.dumps({"id": QUERY}))
        lines = [json.dumps(one) for one in sources or ({self.topic: {"0": 5}},)]
        (self.directory / "offsets" / str(committed)).write_text("\n".join(("v1", "{}", *lines)))
        (self.directory / "commits" / str(committed)).write_text("")

    def note(self, query_id: str = QUERY, batch: object = 4, metadata: str | None = None) -> None:
        text = json.dumps({"query": query_id, "batch": batch}) if metadata is None else metadata
        noted = ottla.OffsetAndMetadata(1, metadata=text)
        self.admin.alter_group_offsets(self.group, {TopicPartition(self.topic, 0): noted}).check()

    def check(self, *, note: bool = True) -> None:
        model: Any = type("Model", (), {"flows": {"f": self.flow}})
        check_continuity(None, model, {"f": self.sources}, note=note)  # type: ignore[arg-type]

    def problems(self) -> list[str]:
        with pytest.raises(SpecError) as caught:
            self.check()
        return [f"{problem.place.line}: {problem.message}" for problem in caught.value.problems]

    def noted_ids(self) -> dict[str, str]:
        return FlowCheckpoint(None, str(self.directory)).topic_ids()


@pytest.fixture
def world(cluster: EmbeddedBroker, admin: ottla.Admin, tmp_path: Path) -> World:
    return World(cluster, admin, tmp_path)


def test_the_ids_of_topics_are_noted_when_a_flow_starts(world: World) -> None:
    world.check(note=False)
    assert world.noted_ids() == {}
    world.check()
    assert world.noted_ids() == {world.topic: str(world.admin.describe_topics([world.topic])[world.topic].topic_id)}
    world.checkpoint()
    world.check()


def test_a_flow_without_topics_goes_on(world: World) -> None:
    world.sources = []
    world.checkpoint()
    world.check()
    assert world.noted_ids() == {}


def test_a_topic_that_was_made_anew_is_another_one(world: World) -> None:
    world.checkpoint()
    world.check()
    before = world.noted_ids()
    world.admin.delete_topics([world.topic]).check()
    world.admin.create_topics([ottla.NewTopic(world.topic, 1)]).check()
    (told,) = world.problems()
    assert told.startswith(f"4: source in: the checkpoint of flow f, {world.directory}, holds offsets of topic ")
    assert f"{world.topic!r}, which was deleted and created again since: its records are other ones. Start over" in told
    assert world.noted_ids() == before
    world.sources = [world.source(world.topic, fails=False)]
    world.check()


def test_a_topic_that_is_not_read_any_more(world: World) -> None:
    other = world.cluster.new_topic()
    world.checkpoint(4, {world.topic: {"0": 5}}, {other: {"0": 1, "1": 2}})
    second = world.source(world.topic, name="second")
    world.sources = [world.source(world.topic), second]
    (told,) = world.problems()
    assert told.startswith("4: source in: ")
    assert f"of topic {other!r}, which source in, source second does not read any more. Let it read" in told
    world.sources = [world.source(world.topic), world.source(other, name="second")]
    world.check()
    world.sources = [world.source(world.topic), world.source(world.topic, name="second", fails=False)]
    world.check()


@pytest.mark.parametrize(("batch", "is_old"), [(4, False), (5, True)])
def test_an_old_copy_of_a_checkpoint_is_refused(world: World, batch: int, is_old: bool) -> None:
    world.checkpoint(4)
    world.note(batch=batch)
    if is_old:
        (told,) = world.problems()
        assert told.startswith(
            f"11: flow f: its checkpoint {world.directory} ends with batch 4, but batch {batch} was "
        )
        assert told.endswith(f"or delete the group {world.group}, if they are to be written again")
    else:
        world.check()


@pytest.mark.parametrize(
    "noted",
    [
        {"query_id": "another", "batch": 9},
        {"metadata": ""},
        {"metadata": "of my own"},
        {"metadata": "[]"},
        {"metadata": "{}"},
        {"batch": "x"},
    ],
)
def test_what_others_have_noted_says_nothing(world: World, noted: dict[str, Any]) -> None:
    world.checkpoint(4)
    world.note(**noted)
    world.check()


def test_a_move_that_was_cut_off_has_to_be_completed(world: World) -> None:
    moving_note(world.directory).write_text("")
    told = ["11: flow f: `ottla pipeline reset` of flow f was cut off: do it once more, to complete it"]
    assert world.problems() == told
    assert world.noted_ids() == {}
    world.checkpoint()
    world.note(batch=5)
    assert world.problems() == told, "what else is wrong may be otherwise by then"


@pytest.mark.parametrize("metadata", ["{", "{}"])
def test_a_checkpoint_that_cannot_be_read_is_told(world: World, metadata: str) -> None:
    world.checkpoint()
    (world.directory / "metadata").write_text(metadata)
    (told,) = world.problems()
    assert told.startswith(f"11: flow f: its checkpoint {world.directory} cannot be read: ")


# The end


class Sink:
    def __init__(self, error: Exception | None = None) -> None:
        self.forgotten: list[tuple[object, ...]] = []
        self._error = error

    def forget_batches(self, sink_id: str, query_id: str, committed: int, *, keep_plan: bool) -> None:
        if self._error is not None:
            raise self._error
        self.forgotten.append((sink_id, query_id, committed, keep_plan))

    def end_left_over(self, sink_id: str) -> None: ...


class Commits(GroupCommits):
    def __init__(self) -> None:
        self.put_in: list[tuple[str, Any]] = []
        self.flushed = 0

    def put(self, group_id: str, offsets: Any) -> None:
        self.put_in.append((group_id, dict(offsets)))

    def flush(self, timeout_s: float = 0) -> None:
        self.flushed = len(self.put_in)


def tidied(world: World, sink: Sink) -> Commits:
    commits = Commits()
    tidy_up(None, "shop", world.flow, sink, commits)  # type: ignore[arg-type]
    return commits


def test_what_a_good_end_leaves(world: World) -> None:
    world.checkpoint(0)
    sink = Sink()
    commits = tidied(world, sink)
    assert sink.forgotten == [("shop-f", QUERY, 0, False)]
    assert commits.put_in == [
        (
            world.group,
            {
                TopicPartition(world.topic, 0): ottla.OffsetAndMetadata(
                    5, metadata=f'{{"query": "{QUERY}", "batch": 0}}'
                )
            },
        )
    ]
    assert commits.flushed == 1
    assert end_note(CheckpointState("q", 3, 4, {})) == {"query": "q", "batch": 3}


def test_the_plan_is_kept_where_no_group_can_hold_the_note(world: World) -> None:
    world.checkpoint(2, {"rate": {"x": 1}})
    sink = Sink()
    tidied(world, sink)
    assert sink.forgotten == [("shop-f", QUERY, 2, True)]


def test_nothing_is_put_away_before_a_batch_is_done(world: World) -> None:
    sink = Sink()
    assert tidied(world, sink).put_in == []
    world.checkpoint()
    (world.directory / "commits" / "4").unlink()
    assert tidied(world, sink).put_in == []
    assert sink.forgotten == []


@pytest.mark.parametrize("error", [OttlaError("away"), OSError("away"), ValueError("away"), KeyError("away")])
def test_what_cannot_be_put_away_stays(world: World, error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, tidying.__name__)
    world.checkpoint()
    tidied(world, Sink(error))
    assert "helper groups of flow f stay for now" in lines_of(caplog, tidying.__name__)[0].getMessage()


# Checkpoints


@pytest.mark.parametrize("prefix", ["", "file:"])
def test_ids_are_kept_beside_a_checkpoint(tmp_path: Path, prefix: str) -> None:
    checkpoint = FlowCheckpoint(None, f"{prefix}{tmp_path}/deep/er")
    assert checkpoint.topic_ids() == {} and checkpoint.state() is None
    for ids in ({"b": "2", "a": "1"}, {"c": "3"}):
        checkpoint.note_topic_ids(ids)
        assert checkpoint.topic_ids() == ids
    assert [path.name for path in (tmp_path / "deep" / "er").iterdir()] == ["ottla-topics.json"]


class HadoopPath:
    def __init__(self, files: Files, name: str) -> None:
        self.files, self.name = files, name

    def getFileSystem(self, configuration: object) -> Files:
        assert configuration == "configuration"
        return self.files

    def getName(self) -> str:
        return self.name.rpartition("/")[2]

    def getPath(self) -> HadoopPath:
        return self


class Stream:
    def __init__(self, files: Files, name: str) -> None:
        self.files, self.name = files, name
        self.is_closed = False
        files.streams.append(self)

    def write(self, data: bytearray) -> None:
        self.files.content[self.name] = bytes(data).decode()

    def close(self) -> None:
        self.is_closed = True


class Files:
    """A file system of another kind, behind the calls of Java that are made to one."""

    def __init__(self) -> None:
        self.content: dict[str, str] = {}
        self.streams: list[Stream] = []
        self.sparkContext = self
        self._jsc = self
        self._jvm: Any = _Names(
            "org",
            apache=_Names(
                "apache",
                hadoop=_Names("hadoop", fs=_Names("fs", Path=lambda name: HadoopPath(self, name))),
                commons=_Names("commons", io=_Names("io", IOUtils=self)),
            ),
        )

    def hadoopConfiguration(self) -> str:
        return "configuration"

    def exists(self, path: HadoopPath) -> bool:
        return any(name == path.name or name.startswith(f"{path.name}/") for name in self.content)

    def open(self, path: HadoopPath) -> Stream:
        return Stream(self, path.name)

    def create(self, path: HadoopPath, overwrite: bool) -> Stream:
        assert overwrite
        return Stream(self, path.name)

    def toString(self, stream: Stream, encoding: str) -> str:
        assert encoding == "UTF-8"
        return self.content[stream.name]

    def listStatus(self, path: HadoopPath) -> Sequence[HadoopPath]:
        return [HadoopPath(self, name) for name in self.content if name.startswith(f"{path.name}/")]


class _Names:
    def __init__(self, name: str, **below: Any) -> None:
        self.__dict__.update(below)
        self.org = self


def test_a_checkpoint_in_another_file_system() -> None:
    files: Any = Files()
    checkpoint = FlowCheckpoint(files, "s3://bucket/state")
    assert checkpoint.state() is None and checkpoint.topic_ids() == {} and checkpoint.planned(0) is None
    checkpoint.note_topic_ids({"ü": "1"})
    assert checkpoint.topic_ids() == {"ü": "1"}
    files.content |= {
        "s3://bucket/state/metadata": json.dumps({"id": QUERY}),
        "s3://bucket/state/commits/7": "",
        "s3://bucket/state/commits/8": "",
        "s3://bucket/state/commits/.9.crc": "",
        "s3://bucket/state/offsets/8": 'v1\n{}\n{"t":{"0":3}}\n',
        "s3://bucket/state/offsets/9": 'v1\n{}\n{"t":{"0":4}}\n',
    }
    assert checkpoint.state() == CheckpointState(QUERY, 8, 9, {TopicPartition("t", 0): 3})
    planned = checkpoint.planned(9)
    assert planned is not None and planned.text == 'v1\n{}\n{"t":{"0":4}}'
    assert all(stream.is_closed for stream in files.streams)


PLACED = json.dumps(to_placed_json({TopicPartition("t", 0): 3}))


@pytest.mark.parametrize(
    ("lines", "position"),
    [(['{"t":{"0":3}}', "5"], {}), (["5", PLACED, '{"u":{"0":3}}'], {TopicPartition("t", 0): 3})],
)
def test_a_batch_that_is_only_planned_is_no_position_unless_the_flow_was_moved_there(
    tmp_path: Path, lines: Sequence[str], position: dict[TopicPartition, int]
) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text(json.dumps({"id": QUERY}))
    (tmp_path / "offsets" / "0").write_text("\n".join(("v1", "{}", *lines)))
    assert FlowCheckpoint(None, str(tmp_path)).state() == CheckpointState(QUERY, -1, 0, position)
