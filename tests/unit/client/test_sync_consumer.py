"""The consumer for threads against librdkafka's mock cluster: polls, closing, and wrong use."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ottla
from ottla.client.errors import ClientClosedError, ConcurrentUseError
from ottla.errors import SubscriptionStateError
from tests.waiting import PATIENCE_S, join, repeat_until

COUNT = 10
_numbers = itertools.count()


@pytest.fixture
def topic(mock_cluster: str) -> str:
    """Of ten records, all in partition 0."""
    name = f"sync-consumer-{next(_numbers)}"
    with ottla.Producer(bootstrap_servers=mock_cluster) as producer:
        for number in range(COUNT):
            producer.send(name, b"%d" % number, partition=0)
        producer.flush()
    return name


@pytest.fixture
def consumer(mock_cluster: str) -> Iterator[ottla.Consumer[Any, Any]]:
    with ottla.Consumer(bootstrap_servers=mock_cluster, group_id="g", auto_offset_reset="earliest") as made:
        yield made


def read(consumer: ottla.Consumer[Any, Any], count: int = COUNT) -> list[int]:
    found: list[int] = []
    repeat_until(lambda: len(found) >= count, lambda: found.extend(r.offset for r in consumer.poll(1.0)))
    return found


@pytest.mark.parametrize("poll", [lambda c: c.poll(0.1), lambda c: c.poll_arrow(0.1)], ids=["records", "arrow"])
def test_a_consumer_with_nothing_to_read_says_so(
    consumer: ottla.Consumer[Any, Any], topic: str, poll: Callable[[Any], object]
) -> None:
    for _ in range(2):
        with pytest.raises(SubscriptionStateError, match="nothing to read"):
            poll(consumer)
    consumer.assign([(topic, 0)])
    assert read(consumer) == list(range(COUNT))


def test_a_poll_takes_no_more_than_it_may(consumer: ottla.Consumer[Any, Any], topic: str) -> None:
    consumer.assign([(topic, 0)])
    found: list[int] = []

    def poll() -> None:
        records = consumer.poll(1.0, max_records=3)
        assert len(records) <= 3
        found.extend(record.offset for record in records)

    repeat_until(lambda: len(found) >= COUNT, poll)
    assert found == list(range(COUNT))
    assert consumer.poll(0.01) == []


def test_columns_come_in_the_order_they_are_asked_for_and_no_more_than_may(
    consumer: ottla.Consumer[Any, Any], topic: str
) -> None:
    consumer.assign([(topic, 0)])
    found: list[int] = []

    def poll() -> None:
        batch = consumer.poll_arrow(1.0, max_records=4, columns=["value", "offset"])
        assert batch.schema.names == ["value", "offset"] and batch.num_rows <= 4
        found.extend(batch.column("offset").to_pylist())

    repeat_until(lambda: len(found) >= COUNT, poll)
    assert found == list(range(COUNT))
    assert consumer.poll_arrow(0.01).num_rows == 0


def test_iteration_goes_on_where_it_was_left(consumer: ottla.Consumer[Any, Any], topic: str) -> None:
    consumer.assign([(topic, 0)])
    first = [record.offset for record in itertools.islice(consumer, 4)]
    assert first == [0, 1, 2, 3]
    assert consumer.position((topic, 0)) == 4
    assert next(iter(consumer)).offset == 4


def test_two_threads_cannot_poll_at_once(consumer: ottla.Consumer[Any, Any], topic: str) -> None:
    consumer.assign([(topic, 0)])
    read(consumer)
    done: list[object] = []
    polling = threading.Thread(target=lambda: done.append(consumer.poll(PATIENCE_S)))
    polling.start()
    repeat_until(consumer._polling.locked)
    for poll in (consumer.poll, consumer.poll_arrow):
        with pytest.raises(ConcurrentUseError, match="another thread"):
            poll(0.0)
    consumer.seek((topic, 0), 9)
    join(polling)
    assert [[record.offset for record in records] for records in done] == [[9]]  # type: ignore[attr-defined]


def test_what_an_interrupted_poll_had_is_read_again(
    consumer: ottla.Consumer[Any, Any], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer.assign([(topic, 0)])
    read(consumer)
    consumer.seek((topic, 0), 0)
    polls = consumer._inner._polls
    take = polls.receive_records

    def take_and_interrupt(*arguments: Any) -> Any:
        take(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(polls, "receive_records", take_and_interrupt)
        patch.setattr(polls, "take_if_quiet", lambda records_max: [])
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(PATIENCE_S)
    assert consumer.position((topic, 0)) == 0
    assert read(consumer) == list(range(COUNT))


def test_after_closing_every_call_says_so(consumer: ottla.Consumer[Any, Any], topic: str) -> None:
    consumer.assign([(topic, 0)])
    consumer.close()
    consumer.close()
    for call in (consumer.poll, consumer.commit, consumer.unsubscribe, lambda: consumer.seek((topic, 0), 1)):
        with pytest.raises(ClientClosedError, match="make another one"):
            call()
