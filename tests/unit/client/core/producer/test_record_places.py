"""Where records and many values are added: which partition, which batch, and what if there is no room."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.types import NIL_UUID, TopicPartition
from ottla.client.core.metadata import PartitionLeader, TopicMetadata
from ottla.client.core.producer.accumulator import Accumulator
from ottla.client.core.producer.batch import RECORD_OVERHEAD
from ottla.client.core.producer.options import ProducerSettings
from ottla.client.core.producer.partitioners import key_partition
from ottla.client.core.producer.record_intake import ProducerRecord, RecordIntake
from ottla.client.errors import ClientError, SerializationError
from ottla.records.batch import HEADER_SIZE

LEADERS = {number: PartitionLeader(0, 0) for number in range(3)}
TOPIC = TopicMetadata("t", NIL_UUID, False, LEADERS, (0, 1, 2), 0)
EACH = RECORD_OVERHEAD + 6


def intake(
    *, batch_size: int = 10_000, buffer_memory: int = 100_000, settings: dict[str, Any] | None = None, **options: Any
) -> tuple[RecordIntake, Accumulator]:
    box = Accumulator(
        batch_size=batch_size, buffer_memory=buffer_memory, delivery_timeout_ms=100, random_below=lambda bound: 0
    )
    parsed = ProducerSettings.parse({"bootstrap.servers": "x:1", **(settings or {})})
    return RecordIntake(parsed, box, **options), box


def add(made: RecordIntake, record: ProducerRecord, wall_ms: int = 77) -> Any:
    return made.append(made.prepare(record), TOPIC, 5, wall_ms)


@pytest.mark.parametrize("partition", [0, 1, 2])
def test_a_record_goes_to_the_partition_it_asks_for(partition: int) -> None:
    made, _ = intake()
    batch = add(made, ProducerRecord("t", b"v", b"k", partition=partition))
    assert batch.topic_partition == TopicPartition("t", partition)
    assert batch.records() == [(b"k", b"v", (), 77)]


def test_a_partition_that_is_not_there_is_an_error() -> None:
    made, box = intake()
    with pytest.raises(ClientError, match="topic t has the partitions 0 to 2, and no partition 3"):
        add(made, ProducerRecord("t", b"v", partition=3))
    assert not box.incomplete


def test_a_record_keeps_the_time_it_was_given_even_if_that_is_0() -> None:
    made, box = intake()
    box.lanes = {}
    assert add(made, ProducerRecord("t", b"v", timestamp_ms=0)).timestamp_of(0) == 0
    assert not box.lanes, "its time is none for what comes after it"
    batch = add(made, ProducerRecord("t", b"v"))
    assert batch.timestamp_of(1) == 77 and list(box.lanes) == ["t"]


def test_keys_decide_unless_they_are_to_be_ignored_or_a_partitioner_does() -> None:
    keys = [b"%d" % number for number in range(20)]
    made, _ = intake()
    expected = [key_partition(key, 3) for key in keys]
    assert [add(made, ProducerRecord("t", b"v", key)).partition for key in keys] == expected
    assert len(set(expected)) == 3
    made, _ = intake(settings={"partitioner.ignore.keys": True})
    assert {add(made, ProducerRecord("t", b"v", key)).partition for key in keys} == {0}
    asked: list[Any] = []

    def choose(*arguments: Any) -> int:
        asked.append(arguments)
        return 1

    made, _ = intake(partitioner=choose)
    assert add(made, ProducerRecord("t", b"v", b"k")).partition == 1
    assert add(made, ProducerRecord("t", b"v", b"k", partition=2)).partition == 2
    assert asked == [("t", b"k", b"v", 3, (0, 1, 2))]


@pytest.mark.parametrize("chosen", [-1, None, "1", 2**31])
def test_a_partitioner_that_gives_no_partition(chosen: Any) -> None:
    made, _ = intake(partitioner=lambda *_: chosen)
    with pytest.raises(SerializationError, match="partition must be"):
        add(made, ProducerRecord("t", b"v"))


def test_many_values_go_to_one_batch_after_the_other() -> None:
    values = [b"%06d" % number for number in range(50)]
    made, box = intake(batch_size=HEADER_SIZE + 20 * EACH)
    prepared = made.prepare_values("t", values, 9)
    assert prepared is not None
    batches = []
    start = 0
    while start < len(values):
        place = made.append_values(prepared, start, TOPIC, 5)
        assert place is not None
        batch, first, end = place
        assert [record[1] for record in batch.records()[first:]] == values[start:end]
        batches.append((first, end - start))
        start = end
    assert batches == [(0, 20), (0, 20), (0, 10)]
    assert all(record[3] == 9 for batch in box.incomplete for record in batch.records())
    one = made.prepare_values("t", [b"latest"], 10)
    assert one is not None
    place = made.append_values(one, 0, TOPIC, 5)
    assert place is not None and place[1:] == (10, 1), "there is room in the last one"


def test_without_memory_no_value_is_taken() -> None:
    made, box = intake(batch_size=200, buffer_memory=200)
    prepared = made.prepare_values("t", [b"%06d" % number for number in range(50)], 9)
    assert prepared is not None
    place = made.append_values(prepared, 0, TOPIC, 5)
    assert place is not None and place[1:] == (0, (200 - HEADER_SIZE) // EACH)
    assert made.append_values(prepared, place[2], TOPIC, 5) is None
    box.release(place[0])
    again = made.append_values(prepared, place[2], TOPIC, 5)
    assert again is not None and again[0] is not place[0]
