"""What a mirror reads when topics come and go between its batches, with topics in memory and no broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from ottla.base.types import TopicPartition
from ottla.spark import stream_reader
from ottla.spark.data_loss import DataLossError
from ottla.spark.mirror.reader import MirrorReader
from ottla.spark.mirror.settings import TopicNames
from ottla.spark.offsets import Offsets, from_json, to_json
from ottla.spark.options import SourceOptions
from ottla.spark.source_schema import source_columns, source_schema
from tests.unit.spark.test_stream_reader import Topics, ranges_of

A, B, LEFT_OUT = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("other", 0)


class World:
    def __init__(self) -> None:
        self.copied: list[dict[str, int]] = []
        target: Any = SimpleNamespace(names=TopicNames("t"), ensure=self.copied.append)
        options = {"kafka.bootstrap.servers": "h:1", "subscribePattern": "t", "startingOffsets": "earliest"}
        columns = source_columns(source_schema(include_headers=True))
        topics: Any = Topics()
        topics.earliest = {A: 0, B: 2}
        self.reader = MirrorReader(SourceOptions.for_stream(options), columns, target)
        self.reader._topics = topics

    def tasks(self, begun: Offsets, ended: Offsets) -> list[list[tuple[str, int, int, int]]]:
        return [ranges_of([task]) for task in self.reader.partitions(to_json(begun), to_json(ended))]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(stream_reader, "_IDLE_WAIT_S", 0.0)
    return World()


def test_each_partition_is_a_task_of_its_own(world: World) -> None:
    assert world.tasks({A: 6, B: 3}, {A: 10, B: 4}) == [[("t", 0, 6, 10)], [("t", 1, 3, 4)]]
    assert world.copied == [{"t": 2}]


def test_what_is_new_is_read_from_where_it_begins(world: World) -> None:
    assert world.tasks({A: 6}, {A: 10, B: 4}) == [[("t", 0, 6, 10)], [("t", 1, 2, 4)]]
    assert world.tasks({}, {B: 4}) == [[("t", 1, 2, 4)]]
    assert world.copied == [{"t": 2}, {"t": 2}]


def test_what_was_taken_out_of_the_choice_is_no_loss(world: World) -> None:
    assert world.tasks({A: 6, LEFT_OUT: 3}, {A: 10}) == [[("t", 0, 6, 10)]]


def test_what_is_gone_is_a_loss(world: World) -> None:
    with pytest.raises(DataLossError, match="t-1 is gone, and was read up to offset 3"):
        world.tasks({A: 6, B: 3}, {A: 10})
    with pytest.raises(DataLossError, match="t-0 was read up to offset 6 and now ends at 5"):
        world.tasks({A: 6, B: 3}, {A: 5, B: 3})


def test_a_batch_ends_in_the_chosen_topics(world: World) -> None:
    def end_after(start: Offsets) -> Offsets:
        return from_json(world.reader.latestOffset(to_json(start), ReadAllAvailable()))

    assert end_after({A: 6, LEFT_OUT: 3}) == {A: 10, B: 4}
    assert end_after({LEFT_OUT: 3}) == {A: 10, B: 4}
    assert world.copied == [], "topics are made when a batch is planned"
