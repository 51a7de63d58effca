"""Mirrors between Ottla and Apache Kafka, both ways at once, judged by a foreign client byte for byte."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from confluent_kafka import Consumer, TopicPartition

import ottla
from ottla.cli.pipeline import main as pipeline_command
from ottla.client.core.admin.types import ConfigResource, ConfigSource
from ottla.spark.pipeline import Pipeline, SpecError
from tests.broker_process import BrokerProcess
from tests.interop.kafka_tools import fetch_kafka_libs
from tests.interop.peers.confluent import make_topic, producer
from tests.kafka_process import KafkaProcess
from tests.spark.mirrors import Seen, contents, read_topic
from tests.spark.pipelines import Recorder
from tests.waiting import join, repeat_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.spark.pipeline.runner import Runner

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "mirroring" / "pipeline.yaml"
DESCRIPTION = """\
name: twoway
clusters:
  west: {{bootstrap.servers: "{west}"}}
  east: {{bootstrap.servers: "{east}", compression.type: zstd}}
mirrors:
  to-east: {{from: west, to: east, pattern: "m-.*", exclude: [".*-skipped"]}}
  to-west: {{from: east, to: west, pattern: "m-.*"}}
  prefixed:
    from: west
    to: east
    topics: [p-orders]
    rename: prefix
    groups: {{pattern: "mirrored-.*", interval: 500 ms}}
"""
MIRRORS = ("to-east", "to-west", "prefixed")
BOTH, COMPACTED, STAMPED, SKIPPED, PREFIXED = "m-both", "m-compacted", "m-stamped", "m-skipped", "p-orders"
NEW = "m-new"
TIME_MS = 1_700_000_000_000
KEPT = {"retention.ms": "-1"}
HEADERS = [("a", b"1"), ("a", b""), ("b", None), ("ü", b"\x00\xff")]


def fill(bootstrap: str, topic: str, partitions: int, *, mark: bytes, no_key: bytes | None = None) -> None:
    """Everything a record can have, and a transaction that is aborted between two that are committed."""
    sender = producer(bootstrap, transactional_id=f"fill-{topic}-{mark.decode()}")
    sender.init_transactions(30)
    for number, is_committed in enumerate((True, False, True)):
        sender.begin_transaction()
        for partition in range(partitions):
            for index in range(5):
                stamp = TIME_MS + 100 * number + index
                value = mark + b" %d %d" % (number, index) + bytes(range(256))
                sender.produce(topic, value, b"k%d" % index, partition, timestamp=stamp, headers=HEADERS)
            sender.produce(topic, None, b"\xff\x00", partition, timestamp=TIME_MS)
            sender.produce(topic, b"", no_key, partition, timestamp=TIME_MS + 7)
            sender.produce(topic, b"v", b"", partition, timestamp=TIME_MS - 1, headers=[("only", None)])
        sender.commit_transaction(30) if is_committed else sender.abort_transaction(30)


@dataclass
class TwoWay:
    """An Ottla in the west, a Kafka in the east, and a pipeline that mirrors both ways."""

    west: str
    east: str
    path: Path
    spark: SparkSession

    def run(self, while_running: Callable[[], None] | None = None) -> None:
        pipeline = Pipeline.from_file(self.path)
        if while_running is None:
            pipeline.run(self.spark, once=True)
            return
        started: list[Runner] = []
        recorder = Recorder()
        failures: list[BaseException] = []

        def run() -> None:
            try:
                pipeline.run(self.spark, on_start=started.append, observer=recorder)
            except BaseException as e:
                failures.append(e)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            repeat_until(lambda: bool(failures) or all("started" in recorder.of(name) for name in MIRRORS))
            while_running()
        finally:
            for runner in started:
                runner.stop()
            join(thread)
        assert not failures

    def topic(self, where: str, topic: str) -> dict[int, list[Seen]]:
        bootstrap = getattr(self, where)
        with ottla.Admin(bootstrap_servers=bootstrap) as admin:
            count = len(admin.describe_topics([topic])[topic].partitions)
        return read_topic(bootstrap, topic, range(count))

    def names(self, where: str) -> set[str]:
        with ottla.Admin(bootstrap_servers=getattr(self, where)) as admin:
            return {name for name in admin.list_topics() if "m-" in name or "p-" in name or "mirror" in name}

    def cluster_id(self, where: str) -> bytes:
        with ottla.Admin(bootstrap_servers=getattr(self, where)) as admin:
            return str(admin.describe_cluster().cluster_id).encode()


@pytest.fixture(scope="module")
def two_way(
    spark: SparkSession, spark_broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TwoWay]:
    directory = tmp_path_factory.mktemp("mirror")
    # Records of long ago roll a segment each, and what is copied is compared record by record.
    kafka = KafkaProcess(fetch_kafka_libs(), directory / "kafka", {"log.cleaner.enable": "false"}).start()
    try:
        west, east = spark_broker.bootstrap, kafka.bootstrap
        path = directory / "twoway.yaml"
        path.write_text(DESCRIPTION.format(west=west, east=east))
        for bootstrap in (west, east):
            make_topic(bootstrap, BOTH, 3, KEPT)
            fill(bootstrap, BOTH, 3, mark=b"west" if bootstrap == west else b"east")
        make_topic(west, COMPACTED, 2, {"cleanup.policy": "compact", "flush.messages": "7"})
        fill(west, COMPACTED, 2, mark=b"compacted", no_key=b"needed")
        make_topic(east, STAMPED, 1, {"message.timestamp.type": "LogAppendTime", **KEPT})
        fill(east, STAMPED, 1, mark=b"stamped")
        make_topic(west, PREFIXED, 2, KEPT)
        fill(west, PREFIXED, 2, mark=b"prefixed")
        make_topic(west, SKIPPED, 1)
        made = TwoWay(west, east, path, spark)
        made.run()
        yield made
    finally:
        kafka.stop()


def test_copies_are_byte_for_byte_and_in_order(two_way: TwoWay) -> None:
    for here, there, topic in (("west", "east", COMPACTED), ("east", "west", STAMPED)):
        originals, copies = two_way.topic(here, topic), two_way.topic(there, topic)
        assert originals.keys() == copies.keys()
        for partition, records in originals.items():
            assert len(records) == 16, "an aborted transaction is no part of it"
            assert contents(copies[partition]) == contents(records)
            assert {seen.origin for seen in copies[partition]} == {two_way.cluster_id(here)}


def test_both_ways_under_the_same_name_nothing_comes_back(two_way: TwoWay) -> None:
    for here, there in (("west", "east"), ("east", "west")):
        for records in two_way.topic(here, BOTH).values():
            own = [seen for seen in records if seen.origin is None]
            copied = [seen for seen in records if seen.origin is not None]
            assert {seen.origin for seen in copied} == {two_way.cluster_id(there)}
            assert (len(own), len(copied)) == (16, 16)
            own_marks, copied_marks = ({(seen.value or b"")[:4] for seen in part} for part in (own, copied))
            assert here.encode() in own_marks and there.encode() not in own_marks
            assert there.encode() in copied_marks and here.encode() not in copied_marks


def test_with_a_prefix_copies_have_a_name_of_their_own_and_no_header(two_way: TwoWay) -> None:
    assert {name for name in two_way.names("east") if PREFIXED in name} == {f"west.{PREFIXED}"}
    copies = two_way.topic("east", f"west.{PREFIXED}")
    for partition, records in two_way.topic("west", PREFIXED).items():
        assert [seen.content for seen in copies[partition]] == [seen.content for seen in records]


def test_topics_are_made_like_their_originals(two_way: TwoWay) -> None:
    assert SKIPPED not in two_way.names("east")
    settings = {}
    for where, topic in (("east", COMPACTED), ("west", STAMPED)):
        with ottla.Admin(bootstrap_servers=getattr(two_way, where)) as admin:
            described = admin.describe_configs([ConfigResource.topic(topic)])[ConfigResource.topic(topic)]
        set_here = {name: one.value for name, one in described.items() if one.source is ConfigSource.TOPIC}
        settings[topic] = set_here
    assert settings == {
        COMPACTED: {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"},
        STAMPED: {"retention.ms": "-1", "message.timestamp.type": "CreateTime"},
    }
    (stamped,) = two_way.topic("east", STAMPED).values()
    (copied,) = two_way.topic("west", STAMPED).values()
    # When the source took them in is what is kept; librdkafka says 2 for such a time, and 1 for that of a producer.
    assert [seen.timestamp for seen in copied] == [(1, seen.timestamp[1]) for seen in stamped]
    assert {seen.timestamp[0] for seen in stamped} == {2}


def test_a_mirror_shows_as_a_group_on_its_source_alone(two_way: TwoWay) -> None:
    for here, there in (("west", "east"), ("east", "west")):
        group_id = f"ottla-pipeline-twoway-to-{there}"
        with ottla.Admin(bootstrap_servers=getattr(two_way, here)) as admin:
            committed = admin.list_group_offsets([group_id])[group_id]
            partitions = [ottla.TopicPartition(BOTH, partition) for partition in range(3)]
            ends = admin.list_offsets(dict.fromkeys(partitions, ottla.OffsetSpec.LATEST))
        for one in partitions:
            assert 16 <= committed[one].offset <= ends[one].offset
        with ottla.Admin(bootstrap_servers=getattr(two_way, there)) as admin:
            assert group_id not in {group.group_id for group in admin.list_groups()}


def test_the_map_says_where_records_are(two_way: TwoWay) -> None:
    """As documented: JSON with a topic, a partition and runs of offsets."""
    (entries,) = two_way.topic("east", "ottla.mirror.prefixed.offsets").values()
    originals, copies = two_way.topic("west", PREFIXED), two_way.topic("east", f"west.{PREFIXED}")
    covered = {partition: set[int]() for partition in originals}
    for entry in entries:
        named, held = json.loads(entry.key or b""), json.loads(entry.value or b"")
        assert (named["topic"], held["target_topic"]) == (PREFIXED, f"west.{PREFIXED}")
        before = {seen.offset: seen.content for seen in originals[named["partition"]]}
        after = {seen.offset: seen.content for seen in copies[named["partition"]]}
        for source, target, length in held["runs"]:
            for step in range(length):
                assert before[source + step] == after[target + step]
                covered[named["partition"]].add(source + step)
    assert covered == {partition: {seen.offset for seen in records} for partition, records in originals.items()}


class Readers:
    """Groups in the west that have read a part of a topic, and what became of them in the east."""

    STOPPED, AHEAD, ACTIVE, OTHER = "mirrored-stopped", "mirrored-ahead", "mirrored-active", "private"

    def __init__(self, two_way: TwoWay) -> None:
        self.two_way = two_way
        self.copy = f"west.{PREFIXED}"
        self.read = {0: 11, 1: 16}
        """Of each partition so many records, in the second transaction or to the end."""

    def commit(self, bootstrap: str, group_id: str, offsets: dict[ottla.TopicPartition, int]) -> None:
        with ottla.Admin(bootstrap_servers=bootstrap) as admin:
            admin.alter_group_offsets(group_id, offsets).check()

    def read_in_the_west(self) -> None:
        topic = self.two_way.topic("west", PREFIXED)
        for group_id in (self.STOPPED, self.AHEAD, self.ACTIVE, self.OTHER):
            next_offsets = {
                ottla.TopicPartition(PREFIXED, partition): records[self.read[partition] - 1].offset + 1
                for partition, records in topic.items()
            }
            self.commit(self.two_way.west, group_id, next_offsets)

    def goes_on(self, group_id: str) -> dict[int, list[object]]:
        """What a consumer of the group reads in the east, by partition."""
        reader = Consumer({"bootstrap.servers": self.two_way.east, "group.id": group_id, "enable.auto.commit": False})
        try:
            places = [TopicPartition(self.copy, partition) for partition in self.read]
            committed = {place.partition: place.offset for place in reader.committed(places, 30)}
        finally:
            reader.close()
        copies = self.two_way.topic("east", self.copy)
        return {
            partition: [seen.content for seen in records if seen.offset >= committed[partition]]
            for partition, records in copies.items()
            if committed[partition] >= 0
        }


def test_while_it_runs_it_notices_what_is_new_and_groups_follow(two_way: TwoWay) -> None:
    before = {where: two_way.topic(where, BOTH) for where in ("west", "east")}
    readers = Readers(two_way)
    readers.read_in_the_west()
    readers.commit(two_way.east, readers.AHEAD, {ottla.TopicPartition(readers.copy, 0): 100})
    with ottla.Consumer(bootstrap_servers=two_way.east, group_id=readers.ACTIVE, enable_auto_commit=False) as active:
        active.subscribe([readers.copy])
        repeat_until(lambda: bool(active.assignment), lambda: active.poll(0.1))

        def grow() -> None:
            """As a user does it who knows nothing of mirrors."""
            with ottla.Admin(bootstrap_servers=two_way.west) as admin:
                admin.create_partitions({COMPACTED: 3}).check()
            make_topic(two_way.west, NEW, 2, KEPT)
            sender = producer(two_way.west)
            sender.produce(COMPACTED, b"grown", b"key", 2)
            sender.produce(NEW, b"new", None, 1)
            assert sender.flush(30) == 0
            repeat_until(lambda: NEW in two_way.names("east"))
            repeat_until(lambda: len(two_way.topic("east", COMPACTED)) == 3)
            repeat_until(lambda: bool(two_way.topic("east", COMPACTED)[2]))
            repeat_until(lambda: bool(two_way.topic("east", NEW)[1]))

        two_way.run(while_running=grow)
        assert set(active.committed([ottla.TopicPartition(readers.copy, p) for p in readers.read]).values()) == {None}

    assert [seen.value for seen in two_way.topic("east", COMPACTED)[2]] == [b"grown"]
    assert {p: [seen.value for seen in records] for p, records in two_way.topic("east", NEW).items()} == {
        0: [],
        1: [b"new"],
    }
    assert {where: two_way.topic(where, BOTH) for where in ("west", "east")} == before, "it went round"
    originals = two_way.topic("west", PREFIXED)
    left = {p: [seen.content for seen in records[readers.read[p] :]] for p, records in originals.items()}
    assert readers.goes_on(readers.STOPPED) == left
    assert readers.goes_on(readers.AHEAD) == {0: [], 1: left[1]}
    assert readers.goes_on(readers.OTHER) == {}


def test_a_reader_is_switched_over_by_command(two_way: TwoWay, capsys: pytest.CaptureFixture[str]) -> None:
    reader = "mirrored-late"
    partition, copy = ottla.TopicPartition(PREFIXED, 0), ottla.TopicPartition(f"west.{PREFIXED}", 0)
    (first, *_), copies = two_way.topic("west", PREFIXED)[0], two_way.topic("east", copy.topic)[0]
    with ottla.Admin(bootstrap_servers=two_way.west) as admin:
        admin.alter_group_offsets(reader, {partition: first.offset + 3}).check()
    wanted = copies[3].offset

    def command(*arguments: str) -> tuple[int, list[str]]:
        code = pipeline_command(["groups", str(two_way.path), "--mirror", "prefixed", *arguments])
        return code, [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]

    def committed() -> int | None:
        with ottla.Admin(bootstrap_servers=two_way.east) as admin:
            found = admin.list_group_offsets([reader])[reader]
        return found[copy].offset if copy in found else None

    code, shown = command("--group", reader)
    assert (code, committed()) == (0, None), "nothing is done unless asked for"
    assert shown[1:] == [f"{reader} {PREFIXED} 0 {first.offset + 3} {copy.topic} {wanted} - moves"]
    assert command("--group", reader, "--execute")[1][-1] == "moved: 1 of 1 partitions"
    assert committed() == wanted

    with ottla.Admin(bootstrap_servers=two_way.east) as admin:
        admin.alter_group_offsets(reader, {copy: wanted + 5}).check()
    assert command("--group", reader, "--execute")[1][-2].endswith(f"{wanted + 5} is ahead")
    assert committed() == wanted + 5, "it was moved back without being asked for"
    assert command("--group", reader, "--execute", "--rewind")[1][-1] == "moved: 1 of 1 partitions"
    assert committed() == wanted

    assert command("--group", "nobody") == (1, ["group nobody has committed nothing in the topics that are mirrored"])
    assert pipeline_command(["groups", str(two_way.path)]) == 2
    told = capsys.readouterr().err
    assert f"say which mirror with --mirror: {', '.join(sorted(MIRRORS))}" in told


def test_what_would_go_wrong_is_told_before(two_way: TwoWay, tmp_path: Path) -> None:
    def check(before: str = "", after: str = "", *, east: str = two_way.east) -> str:
        path = tmp_path / "wrong.yaml"
        assert before in DESCRIPTION
        path.write_text(DESCRIPTION.replace(before, after, 1).format(west=two_way.west, east=east))
        with pytest.raises(SpecError) as caught:
            Pipeline.from_file(path).check(two_way.spark)
        return str(caught.value)

    assert "'from' and 'to' are the same cluster" in check(east=two_way.west)
    unreachable = check(east="127.0.0.1:1")
    assert "mirror to-east: " in unreachable and "Is a broker running?" in unreachable
    grouped = check('exclude: [".*-skipped"]', "groups: {{names: [g]}}")
    assert f"{BOTH!r} is mirrored both ways under one name" in grouped
    missing = check('pattern: "m-.*", exclude: [".*-skipped"]', "topics: [m-bth]")
    assert "there is no topic 'm-bth'. Did you mean 'm-both'?" in missing


def test_the_example(two_way: TwoWay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEST", two_way.west)
    monkeypatch.setenv("EAST", two_way.east)
    shutil.copy(EXAMPLE, tmp_path)
    for topic in ("shop.orders", "shop.orders.scratch"):
        make_topic(two_way.west, topic, 1)
    sender = producer(two_way.west)
    sender.produce("shop.orders", b"one")
    sender.produce("shop.orders", b"two")
    assert sender.flush(30) == 0
    with ottla.Admin(bootstrap_servers=two_way.west) as admin:
        admin.alter_group_offsets("shop-billing", {ottla.TopicPartition("shop.orders", 0): 1}).check()
    Pipeline.from_file(tmp_path / EXAMPLE.name).run(two_way.spark, once=True)
    first, second = two_way.topic("east", "shop.orders")[0]
    assert (first.value, second.value) == (b"one", b"two")
    with ottla.Admin(bootstrap_servers=two_way.east) as admin:
        assert "shop.orders.scratch" not in admin.list_topics()
        committed = admin.list_group_offsets(["shop-billing"])["shop-billing"]
    assert committed[ottla.TopicPartition("shop.orders", 0)].offset == second.offset
