"""How far a micro-batch of a source goes, with topics in memory and no broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.spark.sleeping_clock import SleepingClock

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from ottla.base.types import TopicPartition, Uuid
from ottla.spark import stream_reader
from ottla.spark.data_loss import DataLossError
from ottla.spark.mirror.reader import MirrorReader
from ottla.spark.mirror.settings import TopicNames
from ottla.spark.offsets import Offsets, from_json, to_json, to_placed_json
from ottla.spark.options import SourceOptions
from ottla.spark.source_schema import source_columns, source_schema
from ottla.spark.stream_reader import StreamReader
from ottla.spark.topic_offsets import Logs

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
ID, OTHER_ID = Uuid(bytes(15) + b"\x01"), Uuid(bytes(15) + b"\x02")
ALL = ReadAllAvailable()


class Topics:
    def __init__(self, **ends: int) -> None:
        self.earliest: Offsets = {A: 0, B: 0}
        self.latest: Offsets = {A: 10, B: 4}
        self.topic_id = ID
        self.starts = 0

    def logs(self) -> Logs:
        return Logs(dict(self.earliest), dict(self.latest), {"t": self.topic_id})

    first_logs = logs

    def starting(self, logs: Logs) -> Offsets:
        self.starts += 1
        return dict(logs.earliest)


def made(**options: str) -> tuple[Any, Topics]:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "startingOffsets": "earliest", **options}
    reader: Any = StreamReader(SourceOptions.for_stream(given), source_columns(source_schema(include_headers=False)))
    reader._topics = Topics()
    return reader, reader._topics


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_reader, "_IDLE_WAIT_S", 0.0)


def end_after(reader: Any, start: Offsets, limit: Any = ALL) -> Offsets:
    return from_json(reader.latestOffset(to_json(start), limit))


def test_where_it_starts_is_asked_once() -> None:
    reader, topics = made()
    assert from_json(reader.initialOffset()) == {A: 0, B: 0}
    topics.earliest = {A: 5, B: 0}
    assert from_json(reader.initialOffset()) == {A: 0, B: 0}
    assert topics.starts == 1
    assert from_json(reader.reportLatestOffset()) == {A: 10, B: 4}
    assert made()[0].reportLatestOffset() is None


def test_all_there_is_or_as_much_as_allowed() -> None:
    reader, _ = made()
    assert end_after(reader, {A: 2, B: 0}) == {A: 10, B: 4}
    limited = end_after(reader, {A: 2, B: 0}, ReadMaxRows(6))
    assert sum(limited.values()) - 2 == 6 and limited[A] <= 10 and limited[B] <= 4


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ALL),
        ({"maxOffsetsPerTrigger": "5"}, ReadMaxRows(5)),
        ({"minOffsetsPerTrigger": "3"}, ReadMinRows(3)),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "3"}, ReadMaxRows(5)),
    ],
)
def test_the_limit_that_is_asked_for(options: dict[str, str], limit: Any) -> None:
    found: Any = made(**options)[0].getDefaultReadLimit()
    assert type(found) is type(limit)
    assert getattr(found, "max_rows", None) == getattr(limit, "max_rows", None)
    assert getattr(found, "min_rows", None) == getattr(limit, "min_rows", None)


def test_too_little_is_waited_for_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [1000.0]
    monkeypatch.setattr(stream_reader, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(stream_reader, "_IDLE_WAIT_S", -1.0)
    reader, topics = made(minOffsetsPerTrigger="10", maxTriggerDelay="2s")
    start: Offsets = {A: 8, B: 4}
    few = ReadMinRows(10)
    assert end_after(reader, start, few) == {A: 10, B: 4}, "the first one is not waited for"
    start = {A: 10, B: 4}
    topics.latest = {A: 19, B: 4}
    assert end_after(reader, start, few) == start
    now_s[0] += 1.999
    assert end_after(reader, start, few) == start
    topics.latest = {A: 20, B: 4}
    assert end_after(reader, start, few) == {A: 20, B: 4}, "that is enough"
    topics.latest = {A: 21, B: 4}
    start = {A: 20, B: 4}
    now_s[0] += 1
    assert end_after(reader, start, few) == start
    now_s[0] += 1
    assert end_after(reader, start, few) == {A: 21, B: 4}, "it has waited long enough"
    topics.latest = {A: 22, B: 4}
    assert end_after(reader, {A: 21, B: 4}, ALL) == {A: 22, B: 4}, "who wants all there is does not wait"


def test_who_wants_what_is_there_now_stops_there() -> None:
    reader, topics = made()
    reader.prepareForTriggerAvailableNow()
    topics.latest = {A: 50, B: 4, TopicPartition("t", 2): 3}
    topics.earliest[TopicPartition("t", 2)] = 0
    assert end_after(reader, {A: 2, B: 0}) == {A: 10, B: 4}
    assert end_after(reader, {A: 10, B: 4}) == {A: 10, B: 4}
    assert end_after(reader, {A: 30, B: 4}) == {A: 30, B: 4}, "it was further before a restart"


def test_a_query_that_starts_at_the_end_begins_with_an_empty_batch() -> None:
    reader, topics = made(startingOffsets="latest")
    topics.starting = lambda logs: dict(logs.latest)  # type: ignore[method-assign]
    start = from_json(reader.initialOffset())
    topics.latest = {A: 30, B: 4}
    assert end_after(reader, start) == start
    assert reader.partitions(to_json(start), to_json(start)) == []
    assert end_after(reader, start) == {A: 30, B: 4}
    tasks = reader.partitions(to_json(start), to_json({A: 30, B: 4}))
    assert ranges_of(tasks) == [("t", 0, 10, 30)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SleepingClock:
    made = SleepingClock()
    monkeypatch.setattr(stream_reader, "time", made)
    monkeypatch.setattr(stream_reader, "_IDLE_WAIT_S", 0.5)
    monkeypatch.setattr(stream_reader, "_IDLE_PAUSE_S", 0.25)
    return made


def test_where_nothing_is_new_it_is_looked_again_for_a_while(clock: SleepingClock) -> None:
    reader, topics = made()
    end: Offsets = {A: 10, B: 4}
    assert end_after(reader, end) == end
    assert clock.sleeps == [0.25] * 3, "it is over once it has waited longer than that"
    assert end_after(reader, {A: 9, B: 4}) == end
    assert len(clock.sleeps) == 3
    looks = iter([10, 10, 11, 12])
    logs = topics.logs

    def look() -> Logs:
        topics.latest = {A: next(looks), B: 4}
        return logs()

    topics.logs = look  # type: ignore[method-assign]
    assert end_after(reader, end) == {A: 11, B: 4}, "what came meanwhile"
    assert len(clock.sleeps) == 5


def test_who_wants_what_is_there_now_waits_for_nothing(clock: SleepingClock) -> None:
    reader, _ = made()
    reader.prepareForTriggerAvailableNow()
    assert end_after(reader, {A: 10, B: 4}) == {A: 10, B: 4}
    assert clock.sleeps == []


def test_who_wants_what_is_there_now_gets_it_however_little_it_is(clock: SleepingClock) -> None:
    reader, _ = made(minOffsetsPerTrigger="10", maxTriggerDelay="2s")
    reader.prepareForTriggerAvailableNow()
    for start, end in (({A: 8, B: 4}, {A: 10, B: 4}), ({A: 9, B: 4}, {A: 10, B: 4})):
        assert end_after(reader, start, ReadMinRows(10)) == end


@pytest.mark.parametrize(("fewest", "is_enough"), [("3", True), ("4", True), ("5", False)])
def test_what_is_enough_does_not_wait(clock: SleepingClock, fewest: str, is_enough: bool) -> None:
    reader, topics = made(minOffsetsPerTrigger=fewest, maxTriggerDelay="1h")
    start: Offsets = {A: 10, B: 4}
    end_after(reader, {A: 9, B: 4}, ReadMinRows(int(fewest)))
    topics.latest = {A: 14, B: 4}
    found = end_after(reader, start, ReadMinRows(int(fewest)))
    assert found == ({A: 14, B: 4} if is_enough else start)
    assert bool(clock.sleeps) is not is_enough


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ({}, {A: 3}, [("t", 0, 0, 3)]),
        ({A: 3}, {A: 3}, []),
        ({A: 3}, {A: 4, B: 2}, [("t", 0, 3, 4), ("t", 1, 0, 2)]),
    ],
)
def test_the_ranges_of_a_micro_batch(start: Offsets, end: Offsets, expected: list[Any]) -> None:
    for fails in ("true", "false"):
        reader, _ = made(failOnDataLoss=fails)
        assert ranges_of(reader.partitions(to_json(start), to_json(end))) == expected


@pytest.mark.parametrize("starting", ["latest", "earliest"])
def test_only_the_first_micro_batch_of_a_query_that_starts_at_the_end_is_empty(starting: str) -> None:
    reader, topics = made(startingOffsets=starting)
    topics.starting = lambda logs: {A: 5, B: 4}  # type: ignore[method-assign]
    start = from_json(reader.initialOffset())
    first = end_after(reader, start)
    assert first == (start if starting == "latest" else {A: 10, B: 4})
    assert end_after(reader, start) == {A: 10, B: 4}
    resumed, _ = made(startingOffsets=starting)
    assert end_after(resumed, start) == {A: 10, B: 4}, "one that goes on from a checkpoint does not start"


def test_all_that_was_made_anew_is_told_once() -> None:
    reader, topics = made()
    ids = {"t": ID, "a": ID}
    logs = topics.logs
    topics.logs = lambda: logs()._replace(topic_ids=dict(ids))  # type: ignore[method-assign]
    end_after(reader, {A: 2, B: 0})
    ids.update(t=OTHER_ID, a=OTHER_ID, new=ID)
    with pytest.raises(DataLossError, match=r"lost: the topic a was deleted and made anew; the topic t was deleted"):
        end_after(reader, {A: 2, B: 0})
    assert end_after(reader, {A: 2, B: 0}) == {A: 10, B: 4}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"earliest": {A: 5, B: 0}}, "t-0"),
        ({"latest": {A: 1, B: 4}}, "t-0"),
        ({"topic_id": OTHER_ID}, "the topic t was deleted and made anew"),
    ],
)
def test_what_is_lost_is_told_or_passed_over(change: dict[str, Any], words: str) -> None:
    for fails in (True, False):
        reader, topics = made(failOnDataLoss=str(fails).lower())
        end_after(reader, {A: 2, B: 0})
        for name, value in change.items():
            setattr(topics, name, value)
        if fails:
            with pytest.raises(DataLossError, match=words):
                end_after(reader, {A: 2, B: 0})
        else:
            end_after(reader, {A: 2, B: 0})


def test_ranges_that_have_gone_or_shrunk_end_a_careful_query() -> None:
    reader, _ = made()
    with pytest.raises(DataLossError, match="t-1 is gone, and was read up to offset 4"):
        reader.partitions(to_json({A: 2, B: 4}), to_json({A: 10}))
    with pytest.raises(DataLossError, match="t-0 was read up to offset 5 and now ends at 3"):
        reader.partitions(to_json({A: 5, B: 4}), to_json({A: 3, B: 4}))
    careless, _ = made(failOnDataLoss="false")
    tasks = careless.partitions(to_json({A: 5, B: 1}), to_json({A: 3, B: 4}))
    assert ("t", 1, 1, 4) in ranges_of(tasks)


def test_ranges_are_split_as_asked_for() -> None:
    for options, count in (({}, 1), ({"minPartitions": "7"}, 7), ({"maxRecordsPerPartition": "2"}, 7)):
        reader, _ = made(**options)
        tasks = reader.partitions(to_json({A: 0, B: 0}), to_json({A: 10, B: 4}))
        assert len(tasks) == count
        assert sum(end - start for _, _, start, end in ranges_of(tasks)) == 14


def test_a_task_reads_small_ranges_together_and_a_large_one_alone() -> None:
    reader, _ = made()
    tasks = reader.partitions(to_json({A: 0, B: 0}), to_json({A: 5_000, B: 4}))
    assert [ranges_of([task]) for task in tasks] == [[("t", 0, 0, 5_000)], [("t", 1, 0, 4)]]
    tasks = reader.partitions(to_json({A: 0, B: 0}), to_json({A: 999, B: 5_000}))
    assert [ranges_of([task]) for task in tasks] == [[("t", 0, 0, 999), ("t", 1, 0, 5_000)]]


def test_the_batch_that_ends_where_a_query_was_moved_to_holds_nothing() -> None:
    reader, topics = made()
    moved = to_placed_json({A: 6, B: 1})
    assert reader.partitions(reader.initialOffset(), moved) == []
    topics.latest = {A: 12, B: 4}
    end = reader.latestOffset(moved, ALL)
    assert from_json(end) == {A: 12, B: 4}
    assert ranges_of(reader.partitions(moved, end)) == [("t", 0, 6, 12), ("t", 1, 1, 4)]


def test_a_mirror_that_was_moved_copies_nothing_of_what_lies_before() -> None:
    copied: list[dict[str, int]] = []
    target: Any = SimpleNamespace(names=TopicNames("t"), ensure=copied.append)
    options = {"kafka.bootstrap.servers": "h:1", "subscribePattern": "t", "startingOffsets": "earliest"}
    columns = source_columns(source_schema(include_headers=True))
    reader: Any = MirrorReader(SourceOptions.for_stream(options), columns, target)
    reader._topics = Topics()
    moved = to_placed_json({A: 6, B: 1})
    assert reader.partitions(reader.initialOffset(), moved) == []
    assert copied == [{"t": 2}]
    end = reader.latestOffset(moved, ALL)
    assert ranges_of(reader.partitions(moved, end)) == [("t", 0, 6, 10), ("t", 1, 1, 4)]


def ranges_of(partitions: list[Any]) -> list[tuple[str, int, int, int]]:
    return [(*one.topic_partition, one.start_offset, one.end_offset) for task in partitions for one in task.ranges]
