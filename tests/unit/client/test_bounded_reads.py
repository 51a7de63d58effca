"""A bounded read into a table: what its bounds mean, and what cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import ottla
from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.aio.consumer.arrow_reading import GROUP_SETTINGS, _milliseconds
from ottla.client.errors import ClientClosedError, ClientError, OffsetOutOfRangeError
from ottla.testing import EmbeddedBroker

pytest.importorskip("pyarrow")

START_MS = 1_700_000_000_000
TOPIC = "table"
EMPTY = "empty"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """With a topic of two partitions: ten records in one, a second apart, and three in the other."""
    with EmbeddedBroker() as running:
        running.create_topic(TOPIC, partitions=2)
        running.create_topic(EMPTY)
        with ottla.Producer(bootstrap_servers=running.bootstrap_servers) as producer:
            for partition, count in ((0, 10), (1, 3)):
                for number in range(count):
                    producer.send(TOPIC, b"%d" % number, partition=partition, timestamp_ms=START_MS + 1000 * number)
        yield running


@pytest.fixture(scope="module")
def consumer(broker: EmbeddedBroker) -> Iterator[ottla.Consumer[Any, Any]]:
    with ottla.Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g", retry_backoff_ms=1) as made:
        yield made


def offsets(table: Any) -> list[tuple[int, int]]:
    return list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


def at(milliseconds: float) -> datetime:
    return datetime.fromtimestamp(START_MS / 1000, UTC) + timedelta(milliseconds=milliseconds)


FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("earliest", "latest", range(10)),
        (0, 10, range(10)),
        (3, 7, range(3, 7)),
        (3, 4, [3]),
        (4, 4, []),
        (7, 3, []),
        (0, 99, range(10)),
        (99, "latest", []),
        ("latest", "latest", []),
        ("latest", "earliest", []),
        (at(3000), at(6000), [3, 4, 5]),
        (at(3000.001), at(6000.001), [4, 5, 6]),
        (at(-1), at(99_000), range(10)),
        (at(99_000), "latest", []),
        ({FIRST: 2}, {FIRST: at(4000)}, [2, 3]),
    ],
)
def test_bounds_are_offsets_names_and_times(
    consumer: ottla.Consumer[Any, Any], start: Any, end: Any, expected: list[int]
) -> None:
    found = consumer.to_arrow([FIRST], start, end, columns=["partition", "offset"])
    assert found.schema.names == ["partition", "offset"]
    assert offsets(found) == [(0, offset) for offset in expected]


def test_a_topic_is_all_its_partitions_one_after_the_other(consumer: ottla.Consumer[Any, Any]) -> None:
    every = [(0, offset) for offset in range(10)] + [(1, offset) for offset in range(3)]
    assert offsets(consumer.to_arrow(TOPIC)) == every
    assert offsets(consumer.to_arrow([SECOND, (TOPIC, 0), SECOND])) == every[10:] + every[:10]
    assert offsets(consumer.to_arrow(TOPIC, {FIRST: 9, SECOND: 1}, {FIRST: "latest", SECOND: 2})) == [(0, 9), (1, 1)]


@pytest.mark.parametrize("what", [EMPTY, []])
def test_nothing_is_a_table_of_the_same_columns(consumer: ottla.Consumer[Any, Any], what: Any) -> None:
    nothing = consumer.to_arrow(what)
    assert nothing.num_rows == 0 and nothing.schema == consumer.to_arrow(TOPIC, 0, 1).schema


def test_a_bounded_read_leaves_the_consumer_where_it_was(consumer: ottla.Consumer[Any, Any]) -> None:
    consumer.assign([SECOND])
    consumer.seek(SECOND, 1)
    assert consumer.to_arrow(TOPIC).num_rows == 13
    assert consumer.assignment == {SECOND} and consumer.position(SECOND) == 1
    consumer.unsubscribe()


@pytest.mark.parametrize(
    ("what", "start", "end", "words"),
    [
        ([TOPIC], 0, 1, "was in the list"),
        ([FIRST], -1, 1, "'latest' or a datetime, but was -1"),
        ([FIRST], 0, "newest", "but was 'newest'"),
        ([FIRST], 1.5, 1, "but was 1.5"),
        ([FIRST, SECOND], {FIRST: 0}, 1, "leave out table-1"),
    ],
)
def test_what_cannot_be_a_bound_or_a_partition(
    consumer: ottla.Consumer[Any, Any], what: Any, start: Any, end: Any, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        consumer.to_arrow(what, start, end)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("nowhere", "there is no topic nowhere"),
        ([("nowhere", 0)], "there is no topic nowhere"),
        ([FIRST, (TOPIC, 2)], "topic table has no partition 2; those it has: 0, 1"),
    ],
)
def test_what_is_not_there_is_not_made_by_reading_it(
    broker: EmbeddedBroker, consumer: ottla.Consumer[Any, Any], what: Any, words: str
) -> None:
    with pytest.raises(ClientError, match=words) as refused:
        consumer.to_arrow(what)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "nowhere" not in consumer.list_topics()


def test_what_is_gone_from_the_log_is_said_to_be(broker: EmbeddedBroker, consumer: ottla.Consumer[Any, Any]) -> None:
    topic = broker.new_topic("shrunk")
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send_many(topic, [b"x"] * 5).result()
    with ottla.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert admin.delete_records({TopicPartition(topic, 0): 3}).check() == {(topic, 0): 3}
    assert offsets(consumer.to_arrow(topic)) == [(0, 3), (0, 4)]
    with pytest.raises(
        OffsetOutOfRangeError, match=r'offset 1 is not in the log any more.*start at "earliest"'
    ) as gone:
        consumer.to_arrow(topic, 1)
    assert gone.value.topic_partition == (topic, 0)


def test_a_read_that_nothing_comes_of_ends(broker: EmbeddedBroker) -> None:
    topic = broker.new_topic("leaderless")
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send_many(topic, [b"x"] * 5).result()
    settings: dict[str, Any] = {"default_api_timeout_ms": 300, "retry_backoff_ms": 5, "fetch_max_wait_ms": 20}
    with ottla.Consumer(bootstrap_servers=broker.bootstrap_servers, **settings) as consumer:
        assert consumer.to_arrow(topic).num_rows == 5
        broker.take_leader_away(topic)
        with pytest.raises(ClientError) as late:
            consumer.to_arrow(topic)
    assert late.value.code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.LEADER_NOT_AVAILABLE)


def test_records_that_are_aborted_are_read_past(broker: EmbeddedBroker) -> None:
    topic = broker.new_topic("aborted")
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="t") as producer:
        with producer.transaction():
            producer.send(topic, b"kept")
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send(topic, b"dropped")
            producer.flush()
            raise ZeroDivisionError
    settings: dict[str, Any] = {"isolation_level": "read_committed"}
    with ottla.Consumer(bootstrap_servers=broker.bootstrap_servers, **settings) as consumer:
        found = consumer.to_arrow(topic)
        assert found["value"].to_pylist() == [b"kept"]
        assert consumer.end_offsets([TopicPartition(topic, 0)]) == {(topic, 0): 4}


def test_who_is_closed_reads_nothing(broker: EmbeddedBroker) -> None:
    consumer: ottla.Consumer[Any, Any] = ottla.Consumer(bootstrap_servers=broker.bootstrap_servers)
    consumer.close()
    with pytest.raises(ClientClosedError):
        consumer.to_arrow(TOPIC)


OF_A_GROUP: dict[str, Any] = {
    "group.id": "g",
    "group.instance.id": "static",
    "group.protocol": "consumer",
    "group.remote.assignor": "uniform",
    "enable.auto.commit": True,
    "partition.assignment.strategy": "range",
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 44_999,
}


@pytest.mark.parametrize("name", OF_A_GROUP)
def test_settings_about_groups_are_none_of_a_bounded_read(broker: EmbeddedBroker, name: str) -> None:
    """They would be refused without a group, or make it a member of one."""
    assert name in GROUP_SETTINGS
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", name: OF_A_GROUP[name]}
    with ottla.Consumer(settings) as consumer:
        assert consumer.to_arrow([FIRST], 8).num_rows == 2


@pytest.mark.parametrize(
    ("time", "milliseconds"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC), 1),
        (datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC), 1),
        (datetime(1970, 1, 1, 0, 0, 0, 1001, tzinfo=UTC), 2),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0),
        (datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC), START_MS + 123),
    ],
)
def test_a_time_is_the_first_millisecond_that_is_not_before_it(time: datetime, milliseconds: int) -> None:
    assert _milliseconds(time) == milliseconds
