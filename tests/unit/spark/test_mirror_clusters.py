"""What a mirror does in its two clusters: topics it makes and grows, the map it writes and reads, groups it moves."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from pyspark.sql.types import BinaryType, StringType, StructField, StructType

import ottla
from ottla.base.errors import ErrorCode, InvalidConfigError, OttlaError
from ottla.base.types import TopicPartition
from ottla.client.errors import ClientError
from ottla.spark.mirror import group_offsets, group_sync, target_topics
from ottla.spark.mirror.data_source import MIRROR_FORMAT, MirrorDataSource, mirror_options
from ottla.spark.mirror.group_offsets import MapReader
from ottla.spark.mirror.group_sync import GroupSync, open_map
from ottla.spark.mirror.reader import MirrorReader
from ottla.spark.mirror.settings import GroupChoice, Mirror, TopicNames
from ottla.spark.mirror.target_topics import TargetTopics, create_map_topic
from ottla.spark.mirror.writer import MirroredRows, MirrorWriter
from ottla.spark.pipeline.mirrors import MirrorSink
from ottla.spark.pipeline.parts import FlowContext, MovedFlow
from ottla.spark.pipeline.problems import Place, Problem, SpecError
from ottla.spark.pipeline.section import Section
from ottla.spark.sink_rows import Rows
from ottla.spark.sink_transactions import Batch, write_task
from ottla.testing import EmbeddedBroker
from tests.log_lines import lines_of
from tests.waiting import repeat_until

QUERY = "0f8fad5b-d9cb-469f-a165-70867728950e"
NEVER_MS = 3_600_000
_numbers = itertools.count()


class World:
    """Two clusters, and a mirror of topics that begin alike."""

    def __init__(self, west: EmbeddedBroker, east: EmbeddedBroker) -> None:
        self.west, self.east = ({"bootstrap.servers": one.bootstrap_servers} for one in (west, east))
        self.topic = f"shop{next(_numbers)}"
        self.copy = f"west.{self.topic}"

    def mirror(self, *, prefix: str = "west.", groups: str | None = None, **more: Any) -> Mirror:
        names = TopicNames.of((), f"{self.topic}.*", (), prefix=prefix, target_prefix="east.")
        choice = None if groups is None else GroupChoice.of([groups], None, (), NEVER_MS)
        return Mirror(f"m-{self.topic}", self.west, self.east, names, False, choice, **more)

    def create(self, settings: dict[str, str], *topics: ottla.NewTopic) -> None:
        with ottla.Admin(settings) as admin:
            admin.create_topics(topics).check()

    def partitions(self, settings: dict[str, str]) -> dict[str, int]:
        with ottla.Admin(settings) as admin:
            found = {topic.name: len(topic.partitions) for topic in admin.describe_topics().results.values()}
        return {name: count for name, count in found.items() if self.topic in name}

    def own_settings(self, topic: str) -> dict[str, str | None]:
        """Those that were set for the topic itself."""
        resource = ottla.ConfigResource.topic(topic)
        with ottla.Admin(self.east) as admin:
            entries = admin.describe_configs([resource])[resource]
        return {name: entry.value for name, entry in entries.items() if entry.source is ottla.ConfigSource.TOPIC}

    def targets(self) -> TargetTopics:
        return TargetTopics(self.west, self.east, self.mirror().names)

    def copied(self, *offsets: int, partition: int = 0) -> pa.RecordBatch:
        return pa.record_batch(
            {
                "topic": [self.copy] * len(offsets),
                "partition": pa.array([partition] * len(offsets), pa.int32()),
                "offset": pa.array(offsets, pa.int64()),
                "value": [b"v"] * len(offsets),
            }
        )


@pytest.fixture
def world(cluster: EmbeddedBroker, other_cluster: EmbeddedBroker) -> World:
    return World(cluster, other_cluster)


# Topics


def test_copies_are_made_with_the_settings_that_describe_the_data(world: World) -> None:
    set_here = {"retention.ms": "5000", "cleanup.policy": "compact", "flush.messages": "7"}
    late = {"message.timestamp.type": "LogAppendTime"}
    other = f"{world.topic}-other"
    world.create(world.west, ottla.NewTopic(world.topic, 2, configs=set_here), ottla.NewTopic(other, 1, configs=late))
    world.targets().ensure({world.topic: 2, other: 3})
    assert world.partitions(world.east) == {world.copy: 2, f"{world.copy}-other": 3}
    always = {"message.timestamp.type": "CreateTime"}
    assert world.own_settings(world.copy) == {"retention.ms": "5000", "cleanup.policy": "compact", **always}
    assert world.own_settings(f"{world.copy}-other") == always


def test_what_says_how_brokers_keep_data_is_not_copied(world: World) -> None:
    about_data = {
        "cleanup.policy": "compact,delete",
        "compression.type": "lz4",
        "delete.retention.ms": "11",
        "max.compaction.lag.ms": "12",
        "max.message.bytes": "13000",
        "min.cleanable.dirty.ratio": "0.25",
        "min.compaction.lag.ms": "5",
        "retention.bytes": "14000",
        "retention.ms": "15",
        "segment.bytes": "1600000",
        "segment.ms": "17",
    }
    about_brokers = {"flush.ms": "18", "index.interval.bytes": "19", "segment.jitter.ms": "20"}
    world.create(world.west, ottla.NewTopic(world.topic, 1, configs={**about_data, **about_brokers}))
    world.targets().ensure({world.topic: 1})
    assert world.own_settings(world.copy) == {**about_data, "message.timestamp.type": "CreateTime"}


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_PARTITIONS])
def test_what_somebody_else_has_made_meanwhile_is_there(code: ErrorCode) -> None:
    target_topics._check({"t": ClientError("it is", code=code)})
    target_topics._check({})
    lasting = ClientError("no", code=ErrorCode.POLICY_VIOLATION)
    with pytest.raises(ClientError) as refusal:
        target_topics._check({"t": ClientError("it is", code=code), "u": lasting})
    assert refusal.value is lasting


def test_copies_grow_and_never_shrink(world: World) -> None:
    world.create(world.west, ottla.NewTopic(world.topic, 4))
    targets = world.targets()
    for wanted, there in ((1, 1), (3, 3), (2, 3), (3, 3), (4, 4)):
        targets.ensure({world.topic: wanted})
        assert world.partitions(world.east) == {world.copy: there}
        world.targets().ensure({world.topic: wanted})
        assert world.partitions(world.east) == {world.copy: there}


def test_the_target_is_asked_only_for_what_is_not_known_to_be_there(world: World) -> None:
    world.create(world.west, ottla.NewTopic(world.topic, 2))
    targets = world.targets()
    targets.ensure({world.topic: 2})
    targets.target = {"bootstrap.servers": "127.0.0.1:1"}
    targets.ensure({world.topic: 2})
    targets.ensure({world.topic: 1})
    targets.ensure({})
    with pytest.raises(OttlaError):
        targets.ensure({world.topic: 3})


def test_what_cannot_be_made_is_an_error(world: World) -> None:
    with pytest.raises(ClientError) as refusal:
        world.targets().ensure({f"{world.topic}-unknown": 1})
    assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(ClientError) as refusal:
        create_map_topic(world.east, "not/a/name")
    assert refusal.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_topic_of_the_map_is_compacted_and_made_once(world: World) -> None:
    name = world.mirror().map_topic
    create_map_topic(world.east, name)
    create_map_topic(world.east, name)
    assert world.partitions(world.east) == {name: 1}
    assert world.own_settings(name) == {"cleanup.policy": "compact"}


# The map


@pytest.fixture
def written(world: World) -> Iterator[Any]:
    """Writes copies with their map."""
    mirror = world.mirror()
    create_map_topic(world.east, mirror.map_topic)
    world.create(world.east, ottla.NewTopic(world.copy, 2))
    with ottla.Producer({**world.east, "transactional.id": f"writer-{world.topic}"}) as producer:
        producer.init_transactions()

        def write(*batches: pa.RecordBatch, is_committed: bool = True) -> int:
            producer.begin_transaction()
            count = MirroredRows(batches, mirror.names, mirror.map_topic).send(producer)
            producer.commit_transaction() if is_committed else producer.abort_transaction()
            return count

        yield write


def test_the_map_tells_where_copies_are_once_they_are_committed(world: World, written: Any) -> None:
    reader = open_map(world.mirror())
    source = TopicPartition(world.topic, 0)
    assert reader.read().target_of(source) is None
    assert written(world.copied(5, 6, 8), world.copied(9), is_committed=False) == 4
    assert reader.read().target_of(source) is None
    # Four records and a marker are before them.
    assert written(world.copied(5, 6, 8), world.copied(9)) == 4
    known = reader.read()
    assert known.target_of(source) == TopicPartition(world.copy, 0)
    assert [known.translate(source, offset) for offset in (4, 5, 6, 7, 8, 9, 10)] == [None, 5, 6, 7, 7, 8, 9]
    assert written(world.copied(0, partition=1)) == 1
    assert reader.read().translate(TopicPartition(world.topic, 1), 0) == 0
    reader.close()


def test_nothing_is_noted_where_nothing_was_copied(world: World, written: Any) -> None:
    assert written() == 0
    reader = open_map(world.mirror())
    assert reader.read().target_of(TopicPartition(world.topic, 0)) is None
    reader.close()


def test_a_map_that_cannot_be_read_to_its_end_is_an_error(
    world: World, written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(world.copied(0))
    monkeypatch.setattr(group_offsets, "_READ_TIMEOUT_S", -1.0)
    reader = MapReader(world.mirror(), world.east)
    with pytest.raises(OttlaError, match="could not be read to its end"):
        reader.read()
    reader.close()


# Groups


def test_groups_are_translated_at_the_end_and_again_and_again(world: World, written: Any) -> None:
    group = f"readers-of-{world.topic}"
    written(world.copied(5, 6, 7))
    with ottla.Admin(world.west) as west, ottla.Admin(world.east) as east:
        west.create_topics([ottla.NewTopic(world.topic, 1)]).check()
        west.alter_group_offsets(group, {TopicPartition(world.topic, 0): 6}).check()

        def position() -> int | None:
            found = east.list_group_offsets([group])[group].get(TopicPartition(world.copy, 0))
            return None if found is None else found.offset

        once = GroupSync(world.mirror(groups=group), NEVER_MS)
        assert position() is None
        once.close()
        assert position() == 1
        often = GroupSync(world.mirror(groups=group), 1)
        west.alter_group_offsets(group, {TopicPartition(world.topic, 0): 7}).check()
        repeat_until(lambda: position() == 2)
        often.close()


def test_a_failure_is_told_once_until_it_is_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fails = iter([True, True, False, True])
    is_over = []

    class Offsets:
        def __init__(self, mirror: object) -> None: ...

        def chosen_groups(self) -> list[str]:
            is_failing = next(fails, None)
            if is_failing is None:
                is_over.append(True)
            elif is_failing:
                raise OttlaError("it is away")
            return []

        def translate(self, *_: object) -> list[object]:
            return []

        commit = translate

    closed: list[bool] = []
    reader = SimpleNamespace(read=dict, close=lambda: closed.append(True))
    opened = iter([OttlaError("no map"), reader])

    def open_scripted(mirror: object) -> Any:
        found = next(opened)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(group_sync, "GroupOffsets", Offsets)
    monkeypatch.setattr(group_sync, "open_map", open_scripted)
    sync = GroupSync(SimpleNamespace(name="dr"), 1)  # type: ignore[arg-type]
    repeat_until(lambda: bool(is_over))
    assert closed == []
    sync.close()
    assert closed == [True]
    told = [record.getMessage() for record in lines_of(caplog, group_sync.__name__)]
    assert [text.rpartition(": ")[2] for text in told] == ["no map", "it is away"]
    assert all(text.startswith("mirror dr: offsets of groups are not translated") for text in told)
    assert {record.levelno for record in lines_of(caplog, group_sync.__name__)} == {logging.WARNING}


# The format


def test_the_format_knows_its_own_options_from_those_of_topics(world: World) -> None:
    mirror = world.mirror()
    servers = {f"kafka.{name}": text for name, text in world.west.items()}
    source = MirrorDataSource(
        {**servers, "SubscribePattern": mirror.names.pattern, "startingoffsets": "earliest", **mirror_options(mirror)}
    )
    assert (source.name(), MirrorDataSource.name()) == (MIRROR_FORMAT, "ottla-mirror")
    assert "headers" in source.schema().fieldNames()
    reader = source.streamReader(source.schema())
    assert isinstance(reader, MirrorReader)
    assert reader._target == TargetTopics(world.west, world.east, mirror.names)
    columns = StructType([StructField("topic", StringType()), StructField("value", BinaryType())])
    to_east = {f"kafka.{name}": text for name, text in world.east.items()}
    upper = {name.upper() if name == "mirror.prefix" else name: text for name, text in mirror_options(mirror).items()}
    writer = MirrorDataSource({**to_east, "sinkId": "s", **upper}).streamWriter(columns, False)
    assert isinstance(writer, MirrorWriter)
    assert writer._options.producer["bootstrap.servers"] == world.east["bootstrap.servers"]
    rows = writer._rows([])
    assert isinstance(rows, MirroredRows)
    assert (rows._names, rows._map_topic) == (mirror.names, mirror.map_topic)
    for refused in (source.reader, lambda schema: source.writer(schema, False)):
        with pytest.raises(InvalidConfigError, match="a mirror is a stream") as refusal:
            refused(columns)
        assert refusal.value.key == "format"


# The part of a pipeline


def sink_of(mirror: Mirror, *others: Mirror) -> MirrorSink:
    values = {"from": "west", "to": "east", "groups": "g"}
    made = MirrorSink(Section.of(values, Place("p.yaml", 3), "mirror m"), mirror)
    made.know_others([mirror, *others])
    return made


def told(sink: MirrorSink) -> list[str]:
    return [problem.message for problem in sink.check() if isinstance(problem, Problem)]


def test_a_mirror_has_two_clusters_that_answer(world: World) -> None:
    mirror = world.mirror()
    assert told(sink_of(mirror)) == []
    same = Mirror("m", world.west, world.west, mirror.names, False)
    with ottla.Admin(world.west) as admin:
        cluster_id = admin.describe_cluster().cluster_id
    assert told(sink_of(same)) == [f"mirror m: 'from' and 'to' are the same cluster, {cluster_id}"]
    nowhere = {"bootstrap.servers": "127.0.0.1:1"}
    (found,) = told(sink_of(Mirror("m", world.west, nowhere, mirror.names, False)))
    assert found.startswith("mirror m: ") and found.endswith(". Is a broker running?")
    assert told(sink_of(Mirror("m", nowhere, world.east, mirror.names, False))) == [], "its source tells of that"


def test_groups_cannot_be_translated_where_a_topic_is_copied_both_ways(world: World) -> None:
    world.create(world.west, ottla.NewTopic(world.topic, 1))
    there = world.mirror(prefix="", groups="g")
    back = Mirror("b", world.east, world.west, there.names, True)
    (found,) = told(sink_of(there, back))
    assert found.startswith(f"mirror m: {world.topic!r} is mirrored both ways under one name")
    prefixed = TopicNames.of((), f"{world.topic}.*", (), prefix="east.", target_prefix="west.")
    elsewhere = TopicNames.of(["other"], None, (), prefix="", target_prefix="")
    for harmless in (
        sink_of(world.mirror(prefix=""), back),
        sink_of(world.mirror(groups="g"), back),
        sink_of(there),
        sink_of(there, Mirror("b", world.east, world.west, prefixed, True)),
        sink_of(there, Mirror("b", world.east, world.west, elsewhere, True)),
        sink_of(there, Mirror("b", world.west, world.east, there.names, True)),
    ):
        assert told(harmless) == []


def test_all_that_is_copied_is_there_before_the_first_batch(world: World) -> None:
    world.create(world.west, ottla.NewTopic(world.topic, 2), ottla.NewTopic(f"not-{world.topic}", 1))
    mirror = world.mirror()
    sink_of(mirror).prepare()
    assert world.partitions(world.east) == {mirror.map_topic: 1, world.copy: 2}


def test_groups_are_translated_only_if_asked_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sink_of(world.mirror()).start() is None
    create_map_topic(world.east, world.mirror().map_topic)
    background = sink_of(world.mirror(groups="g")).start()
    assert isinstance(background, GroupSync)
    background.close()


class Frame:
    def __init__(self, *columns: StructField) -> None:
        self.schema = StructType(list(columns))
        self.told: dict[str, object] = {}

    @property
    def writeStream(self) -> Frame:
        return self

    def format(self, name: str) -> Frame:
        self.told["format"] = name
        return self

    def options(self, **options: str) -> Frame:
        self.told |= options
        return self


FLOW = FlowContext("shop", "m", "/state", "shop-m", "append")


def test_a_mirror_writes_in_its_own_format(world: World) -> None:
    mirror = world.mirror()
    frame: Any = Frame(StructField("topic", StringType()), StructField("value", BinaryType()))
    sink_of(mirror).writer(frame, flow=FLOW)
    servers = {f"kafka.{name}": text for name, text in world.east.items()}
    assert frame.told == {"format": MIRROR_FORMAT, "sinkId": "shop-m", **servers, **mirror_options(mirror)}
    bad = Mirror("m", world.west, {**world.east, "transaction.timeout.ms": "x"}, mirror.names, False)
    with pytest.raises(SpecError, match=r"mirror m: .*transaction\.timeout\.ms"):
        sink_of(bad).writer(frame, flow=FLOW)


def test_what_is_left_open_and_remembered_of_a_mirror_is_put_away(world: World) -> None:
    sink = sink_of(world.mirror())
    sink_id = f"sink-{world.topic}"
    batch = Batch(f"{sink_id}-{QUERY}", "run", 0, 5)
    world.create(world.east, ottla.NewTopic(world.copy, 1))
    with ottla.Admin(world.east) as admin:

        def open_ones() -> int:
            return sum(sink_id in one.transactional_id for one in admin.list_transactions(states=["Ongoing"]))

        moved = MovedFlow(sink_id, QUERY, "new", ())
        ends: list[Callable[[], None]] = [lambda: sink.flow_moved(moved), lambda: sink.end_left_over(sink_id)]
        for end in ends:
            write_task(world.east, world.east, batch, 0, Rows([world.copied(0)], None))
            assert open_ones() == 1
            end()
            assert open_ones() == 0
        for group in (batch.sink, f"{batch.sink}-0"):
            noted = ottla.OffsetAndMetadata(3, metadata='{"tasks": 1, "run": "r"}')
            admin.alter_group_offsets(group, {TopicPartition(world.copy, 0): noted}).check()
        for committed, keep_plan, left in ((2, False, 2), (3, True, 1), (3, False, 0)):
            sink.forget_batches(sink_id, QUERY, committed, keep_plan=keep_plan)
            assert sum(one.group_id.startswith(sink_id) for one in admin.list_groups()) == left
    assert sink.obstacle_to_move() is None
