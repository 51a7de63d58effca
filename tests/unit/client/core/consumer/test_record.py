"""Records as applications hold them: equal, hashed and pickled with the place they come from."""

from __future__ import annotations

import pickle

import pytest

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.record import AnyRecord, make_record_class
from ottla.records.batch import TimestampType

FIELDS = (7, 1000, b"k", b"v", (("h", b"x"),))


def record(topic: str = "t", partition: int = 3, fields: tuple[object, ...] = FIELDS) -> AnyRecord:
    return make_record_class(topic, partition, TimestampType.CREATE_TIME, 5)(*fields)  # type: ignore[arg-type]


def test_a_record_equals_one_of_the_same_place_and_content() -> None:
    assert record() == record()
    assert hash(record()) == hash(record())
    assert (record() != record()) is False


@pytest.mark.parametrize(
    "other",
    [
        record(topic="u"),
        record(partition=4),
        *(record(fields=(*FIELDS[:n], None, *FIELDS[n + 1 :])) for n in range(len(FIELDS))),
        FIELDS,
    ],
)
def test_and_no_other(other: object) -> None:
    assert record() != other
    assert (record() == other) is False
    assert (other == record()) is False


def test_a_pickled_record_knows_where_it_comes_from() -> None:
    copy = pickle.loads(pickle.dumps(record()))
    assert copy == record()
    assert copy.topic_partition == TopicPartition("t", 3)
    assert (copy.timestamp_type, copy.leader_epoch) == (TimestampType.CREATE_TIME, 5)
