"""What a task reads of its ranges, and what it does when records do not come: on a clock that only polls move."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")
pa = pytest.importorskip("pyarrow")

from pyspark.sql.datasource import InputPartition  # noqa: E402

from ottla.base.types import TopicPartition  # noqa: E402
from ottla.client.errors import OffsetOutOfRangeError  # noqa: E402
from ottla.spark import range_reader  # noqa: E402
from ottla.spark.data_loss import DataLossError  # noqa: E402
from ottla.spark.offsets import OffsetRange  # noqa: E402
from ottla.spark.options import SourceOptions  # noqa: E402
from ottla.spark.range_reader import MissingRecordsError, RangePartition, RangeReader  # noqa: E402
from ottla.spark.source_schema import source_columns, source_schema  # noqa: E402

A, B, C = (TopicPartition("t", index) for index in range(3))
COLUMNS = source_columns(source_schema(include_headers=False))
POLL_TIMEOUT_MS = 5000


class Broker:
    """Logs with a record at each offset but `unseen` ones, read by a consumer that gives a few of them at a time."""

    def __init__(self) -> None:
        self.bounds: dict[TopicPartition, tuple[int, int]] = {A: (0, 20), B: (0, 20), C: (0, 20)}
        self.unseen: set[int] = set()
        self.silent: set[TopicPartition] = set()
        self.per_poll = 4
        self.now_s = 100.0
        self.positions: dict[TopicPartition, int] = {}
        self.assigned: list[list[TopicPartition]] = []
        self.asked: list[TopicPartition] = []
        self.polls = 0
        self.deleted_later: dict[TopicPartition, int] = {}
        """How far logs are deleted once somebody has polled twice."""

    # A consumer

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.assigned.append(partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.positions[partition] = offset

    def position(self, partition: TopicPartition) -> int:
        return self.positions[partition]

    def poll_arrow(self, timeout_s: float, *, columns: Sequence[str]) -> Any:
        self.polls += 1
        if self.polls > 2:
            for partition, begins in self.deleted_later.items():
                self.bounds[partition] = (begins, self.bounds[partition][1])
        sending = [one for one in self.assigned[-1] if one in self.bounds and one not in self.silent]
        for partition in sending:
            begins, ends = self.bounds[partition]
            if not begins <= self.positions[partition] <= ends:
                raise OffsetOutOfRangeError("not there", topic_partition=partition)
        rows: list[tuple[TopicPartition, int]] = []
        for partition in sending:
            at = self.positions[partition]
            reached = self.positions[partition] = min(at + self.per_poll, self.bounds[partition][1])
            rows += [(partition, offset) for offset in range(at, reached) if offset not in self.unseen]
        if not rows:
            self.now_s += timeout_s
        return pa.record_batch(
            {
                "key": pa.array([None] * len(rows), pa.binary()),
                "value": pa.array([str(offset).encode() for _, offset in rows], pa.binary()),
                "topic": pa.array([partition.topic for partition, _ in rows], pa.string()),
                "partition": pa.array([partition.partition for partition, _ in rows], pa.int32()),
                "offset": pa.array([offset for _, offset in rows], pa.int64()),
                "timestamp": pa.array([1000] * len(rows), pa.timestamp("ms", "UTC")),
                "timestampType": pa.array([0] * len(rows), pa.int32()),
            }
        )

    # What the module takes from elsewhere

    def monotonic(self) -> float:
        return self.now_s

    @contextmanager
    def consumer_for(self, settings: object) -> Iterator[Broker]:
        yield self

    def log_bounds(self, settings: object, partition: TopicPartition) -> tuple[int, int] | None:
        self.asked.append(partition)
        return self.bounds.get(partition)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()
    monkeypatch.setattr(range_reader, "time", made)
    monkeypatch.setattr(range_reader, "consumer_for", made.consumer_for)
    monkeypatch.setattr(range_reader, "log_bounds", made.log_bounds)
    return made


def read(*ranges: OffsetRange, fail: bool = True) -> list[tuple[int, int]]:
    """Partitions and offsets of the rows."""
    reader = RangeReader({}, COLUMNS, POLL_TIMEOUT_MS, fail)
    batches = list(reader.read(RangePartition(ranges)))
    assert all(batch.schema == COLUMNS.arrow_schema and batch.num_rows for batch in batches)
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert all(row["value"] == str(row["offset"]).encode() for row in rows)
    return [(row["partition"], row["offset"]) for row in rows]


def of(partition: TopicPartition, offsets: Sequence[int]) -> list[tuple[int, int]]:
    return [(partition.partition, offset) for offset in offsets]


@pytest.mark.parametrize(("start", "end"), [(0, 20), (0, 1), (3, 8), (3, 7), (5, 6), (19, 20), (4, 4)])
def test_exactly_the_range_is_read(broker: Broker, start: int, end: int) -> None:
    assert read(OffsetRange(A, start, end)) == of(A, range(start, end))
    assert broker.asked == [], "nothing was amiss"


def test_records_that_nobody_is_shown_are_passed_over(broker: Broker) -> None:
    broker.unseen = {*range(4, 8), 9, *range(14, 20)}
    shown = [offset for offset in range(2, 18) if offset not in broker.unseen]
    assert read(OffsetRange(A, 2, 18)) == of(A, shown)


def test_small_ranges_are_read_together(broker: Broker) -> None:
    rows = read(OffsetRange(A, 2, 5), OffsetRange(B, 0, 4), OffsetRange(C, 7, 8))
    assert sorted(rows) == of(A, range(2, 5)) + of(B, range(4)) + of(C, [7])
    assert broker.assigned == [[A, B, C]]
    assert broker.polls == 1


def test_a_range_that_goes_on_is_read_together_with_others_to_its_end(broker: Broker) -> None:
    rows = read(OffsetRange(A, 0, 10), OffsetRange(B, 0, 2))
    assert sorted(rows) == of(A, range(10)) + of(B, range(2))
    assert broker.assigned == [[A, B]]


def test_what_does_not_come_with_the_others_is_read_alone(broker: Broker) -> None:
    broker.bounds[B] = (3, 20)
    rows = read(OffsetRange(A, 2, 5), OffsetRange(B, 1, 6), OffsetRange(C, 7, 8), fail=False)
    assert sorted(rows) == of(A, range(2, 5)) + of(B, range(3, 6)) + of(C, [7])
    assert broker.assigned == [[A, B, C], [A], [B], [C]]


def test_a_silent_partition_keeps_the_others_waiting_only_for_a_while(broker: Broker) -> None:
    broker.silent = {B}
    with pytest.raises(MissingRecordsError):
        read(OffsetRange(A, 2, 5), OffsetRange(B, 1, 6))
    assert broker.assigned == [[A, B], [B]]


def test_spark_may_have_no_range_to_read(broker: Broker) -> None:
    assert list(RangeReader({}, COLUMNS, POLL_TIMEOUT_MS, True).read(InputPartition(None))) == []
    assert broker.assigned == []


@pytest.mark.parametrize(
    ("bounds", "told", "rows"),
    [
        ((5, 20), "t-0 holds offsets 5 up to 20, and 2 up to 8 were to be read", range(5, 8)),
        ((8, 20), "t-0 holds offsets 8 up to 20", []),
        ((9, 20), "t-0 holds offsets 9 up to 20", []),
        ((5, 5), "t-0 holds offsets 5 up to 5", []),
        ((0, 1), "t-0 holds offsets 0 up to 1", []),
        (None, "t-0 is gone", []),
    ],
)
def test_records_that_are_gone(broker: Broker, bounds: tuple[int, int] | None, told: str, rows: Sequence[int]) -> None:
    if bounds is None:
        del broker.bounds[A]
    else:
        broker.bounds[A] = bounds
    with pytest.raises(DataLossError, match=told):
        read(OffsetRange(A, 2, 8))
    assert read(OffsetRange(A, 2, 8), fail=False) == of(A, rows)


def test_an_end_that_is_not_there_any_more(broker: Broker) -> None:
    broker.bounds[A] = (0, 6)
    with pytest.raises(DataLossError, match="holds offsets 0 up to 6, and 6 up to 8 were to be read"):
        read(OffsetRange(A, 2, 8))
    assert read(OffsetRange(A, 2, 8), fail=False) == of(A, range(2, 6))


def test_records_that_are_deleted_while_they_are_read(broker: Broker) -> None:
    broker.deleted_later = {A: 13}
    assert read(OffsetRange(A, 0, 15), fail=False) == of(A, [*range(8), 13, 14])


def test_a_broker_that_has_records_and_does_not_send_them(broker: Broker) -> None:
    broker.silent = {A}
    with pytest.raises(MissingRecordsError, match=r"t-0: nothing came for 5000 ms at 2, before 8; check that"):
        read(OffsetRange(A, 2, 8))
    began_s = broker.now_s
    assert read(OffsetRange(A, 2, 8), fail=False) == []
    assert POLL_TIMEOUT_MS <= (broker.now_s - began_s) * 1000 < POLL_TIMEOUT_MS + 500
    assert len(broker.asked) > 2, "meanwhile it was looked at what has become of the log"


def test_whoever_reads_a_range_is_not_given_another_one() -> None:
    own = {"auto.offset.reset": "none", "allow.auto.create.topics": "false"}
    base = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
    plain = RangeReader.of(SourceOptions.for_stream(base), COLUMNS)
    assert own.items() <= plain.consumer.items()
    assert plain.fail_on_data_loss is True
    given = {**base, "kafka.max.partition.fetch.bytes": "7", "failOnDataLoss": "false"}
    told = RangeReader.of(SourceOptions.for_stream(given), COLUMNS)
    assert told.consumer["max.partition.fetch.bytes"] == "7"
    assert plain.consumer["max.partition.fetch.bytes"] == str(4 << 20)
    assert told.fail_on_data_loss is False


@pytest.fixture
def exact(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """Polls take a time that adds up without rounding."""
    monkeypatch.setattr(range_reader, "_POLL_S", 0.125)
    return broker


def test_a_silent_broker_is_asked_once_a_second_and_not_for_ever(exact: Broker) -> None:
    exact.silent = {A}
    assert read(OffsetRange(A, 2, 8), fail=False) == []
    assert (exact.asked, exact.polls, exact.now_s) == ([A] * 4, 41, 105.125)


def test_what_moves_is_waited_for_anew(exact: Broker) -> None:
    """Each record comes after a silence in which it is looked once at what has become of the log."""
    sent = exact.poll_arrow
    silences = [0] * 3

    def poll_arrow(timeout_s: float, *, columns: Sequence[str]) -> Any:
        at = exact.positions[A]
        if silences[at] < 16:
            silences[at] += 1
            exact.silent = {A}
        else:
            exact.silent = set()
        return sent(timeout_s, columns=columns)

    exact.poll_arrow = poll_arrow  # type: ignore[method-assign]
    exact.per_poll = 1
    assert read(OffsetRange(A, 0, 3)) == of(A, range(3))
    assert (exact.asked, exact.now_s) == ([A] * 3, 106.0)


def test_small_ranges_are_waited_for_a_second_together(exact: Broker) -> None:
    exact.silent = {B}
    assert sorted(read(OffsetRange(A, 0, 3), OffsetRange(B, 0, 3), fail=False)) == of(A, range(3))
    assert exact.assigned == [[A, B], [B]]
    # Five polls until A has no more, eight that bring nothing, and those for B alone.
    assert (exact.polls, exact.now_s, exact.asked) == (5 + 8 + 41, 106.125, [B] * 4)


def test_an_offset_that_is_gone_is_looked_at_without_waiting(exact: Broker) -> None:
    exact.bounds[A] = (5, 20)
    assert read(OffsetRange(A, 2, 8), fail=False) == of(A, range(5, 8))
    assert (exact.asked, exact.polls, exact.now_s) == ([A], 2, 100.0)


def test_what_a_partition_is_shown_as() -> None:
    made = RangePartition([OffsetRange(A, 0, 1), OffsetRange(C, 5, 6)])
    assert made.value == "t-0, t-2"
    assert made.ranges == (OffsetRange(A, 0, 1), OffsetRange(C, 5, 6))


def test_settings_may_be_secret_and_are_not_shown() -> None:
    assert "secret" not in repr(RangeReader({"sasl.password": "secret"}, COLUMNS, 1, True))
