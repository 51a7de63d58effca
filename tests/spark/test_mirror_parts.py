"""Reader and writer of a mirror, asked the way Spark asks them, against brokers and without a Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable

import ottla
from ottla.client.core.producer.encoded_batch import SentRows
from ottla.spark.data_loss import DataLossError
from ottla.spark.mirror.data_source import MirrorDataSource, mirror_options
from ottla.spark.mirror.group_offsets import MapReader
from ottla.spark.mirror.settings import Mirror, TopicNames
from ottla.spark.mirror.target_topics import create_map_topic
from ottla.spark.mirror.writer import MirroredRows
from ottla.testing import EmbeddedBroker
from tests.spark.sources import offsets_of, read_tasks

ALL = ReadAllAvailable()
NAMES = TopicNames("never")


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[EmbeddedBroker, EmbeddedBroker]]:
    with EmbeddedBroker() as west, EmbeddedBroker() as east:
        yield west, east


class Pair:
    """Two clusters, and mirrors from one to the other with a prefix."""

    def __init__(self, west: EmbeddedBroker, east: EmbeddedBroker) -> None:
        self.west, self.east = (
            {"bootstrap.servers": broker.bootstrap_servers, "default.api.timeout.ms": "20000"}
            for broker in (west, east)
        )

    def mirror(self, pattern: str, *, name: str = "m") -> Mirror:
        names = TopicNames.of((), pattern, (), prefix="west.", target_prefix="east.")
        return Mirror(name, self.west, self.east, names, False)

    def reader(self, pattern: str, **options: str) -> Any:
        """Any of the kind `MirrorReader`."""
        mirror = self.mirror(pattern)
        given = {
            **{f"kafka.{name}": text for name, text in self.west.items()},
            "subscribepattern": mirror.names.pattern,
            "startingoffsets": "earliest",
            "includeheaders": "true",
            **options,
            **mirror_options(mirror),
        }
        source = MirrorDataSource(given)
        return source.streamReader(source.schema())

    def make(self, topic: str, partitions: int = 1) -> None:
        with ottla.Admin(self.west) as admin:
            admin.create_topics([ottla.NewTopic(topic, partitions)]).check()

    def send(self, topic: str, count: int, partition: int = 0) -> None:
        with ottla.Producer(bootstrap_servers=self.west["bootstrap.servers"]) as producer:
            for number in range(count):
                producer.send(topic, b"%d" % number, partition=partition)

    def delete_before(self, topic: str, offset: int) -> None:
        with ottla.Admin(self.west) as admin:
            admin.delete_records({ottla.TopicPartition(topic, 0): offset}).check()

    def copies(self) -> dict[str, int]:
        with ottla.Admin(self.east) as admin:
            return {topic.name: len(topic.partitions) for topic in admin.describe_topics().results.values()}


@pytest.fixture
def pair(clusters: tuple[EmbeddedBroker, EmbeddedBroker]) -> Pair:
    return Pair(*clusters)


def test_topics_are_there_before_their_first_batch_and_grow(pair: Pair, new_topic: str) -> None:
    copy = f"west.{new_topic}"
    pair.make(new_topic, 2)
    pair.send(new_topic, 3)
    reader = pair.reader(f"{new_topic}.*")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert copy not in pair.copies()
    tasks = reader.partitions(start, end)
    assert pair.copies()[copy] == 2, "an empty partition is one, too"
    assert offsets_of(read_tasks(reader, tasks)) == {0: [0, 1, 2]}

    with ottla.Admin(pair.west) as admin:
        admin.create_partitions({new_topic: 4}).check()
    pair.make(f"{new_topic}-too", 3)
    pair.send(new_topic, 2, partition=3)
    grown = reader.latestOffset(end, ALL)
    tasks = reader.partitions(end, grown)
    assert (pair.copies()[copy], pair.copies()[f"{copy}-too"]) == (4, 3)
    assert offsets_of(read_tasks(reader, tasks)) == {3: [0, 1]}
    repeated = pair.reader(f"{new_topic}.*").partitions(end, grown)
    assert [vars(task) for task in repeated] == [vars(task) for task in tasks], "a batch that comes again is the same"


def test_the_choice_of_topics_may_change(pair: Pair, new_topic: str) -> None:
    """Neither is what was taken out a loss, nor what had been deleted of a topic before it was chosen."""
    old, new = f"{new_topic}-old", f"{new_topic}-new"
    for topic in (old, new):
        pair.make(topic)
        pair.send(topic, 10)
    pair.delete_before(new, 4)
    first = pair.reader(old)
    start = first.initialOffset()
    end = first.latestOffset(start, ALL)
    assert end == {old: {"0": 10}}
    second = pair.reader(new)
    changed = second.latestOffset(end, ALL)
    assert changed == {new: {"0": 10}}
    tasks = second.partitions(end, changed)
    assert offsets_of(read_tasks(second, tasks)) == {0: [4, 5, 6, 7, 8, 9]}


def test_what_is_deleted_before_it_was_copied_is_a_loss(pair: Pair, new_topic: str) -> None:
    pair.make(new_topic)
    pair.send(new_topic, 10)
    reader = pair.reader(new_topic)
    start = reader.initialOffset()
    pair.delete_before(new_topic, 4)
    with pytest.raises(DataLossError, match="now begins at 4"):
        reader.latestOffset(start, ALL)
    lenient = pair.reader(new_topic, failondataloss="false")
    end = lenient.latestOffset(start, ALL)
    assert offsets_of(read_tasks(lenient, lenient.partitions(start, end))) == {0: [4, 5, 6, 7, 8, 9]}


def batch(topic: str, offsets: list[int]) -> Any:
    return pa.RecordBatch.from_pydict(
        {
            "topic": [topic] * len(offsets),
            "partition": pa.array([0] * len(offsets), pa.int32()),
            "offset": offsets,
            "value": [b"%d" % offset for offset in offsets],
        }
    )


def test_the_map_is_committed_with_the_copies_or_not_at_all(pair: Pair, new_topic: str) -> None:
    mirror = pair.mirror(new_topic, name=new_topic)
    create_map_topic(pair.east, mirror.map_topic)
    with ottla.Admin(pair.east) as admin:
        admin.create_topics([ottla.NewTopic(f"west.{new_topic}", 1)]).check()
    source = ottla.TopicPartition(new_topic, 0)
    reader = MapReader(mirror, pair.east)
    with ottla.Producer(
        bootstrap_servers=pair.east["bootstrap.servers"], transactional_id=f"writer-{new_topic}"
    ) as producer:
        producer.init_transactions()
        for offsets, is_committed in (([100, 101, 103], False), ([100, 101, 103, 104, 109], True)):
            producer.begin_transaction()
            rows = MirroredRows([batch(f"west.{new_topic}", offsets)], mirror.names, mirror.map_topic)
            assert rows.send(producer) == len(offsets)
            producer.commit_transaction() if is_committed else producer.abort_transaction()
    # Three records and a marker were before them, and nobody saw these.
    known = reader.read()
    reader.close()
    assert {offset: known.translate(source, offset) for offset in (99, 100, 102, 103, 105, 109, 200)} == {
        99: None,
        100: 4,
        102: 6,
        103: 6,
        105: 8,
        109: 8,
        200: 9,
    }


@pytest.mark.parametrize("sent", [SentRows(5, -1, -1), SentRows(5, 42, 44), SentRows(5, 40, 60)])
def test_rows_whose_place_is_not_quite_known_are_not_in_the_map(sent: SentRows) -> None:
    """After a lost reply the first offset may be that of a later part; and others may have written between."""
    rows = MirroredRows([], NAMES, "map")
    one = batch("t", [1, 2, 3, 4, 5])
    rows._stored(rows._note(one), {ottla.TopicPartition("t", 0): sent})
    assert rows._runs == []
    rows._stored(rows._note(one), {ottla.TopicPartition("t", 0): SentRows(5, 40, 44)})
    assert rows._runs == [(1, 40, 5)]
