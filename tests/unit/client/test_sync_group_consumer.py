"""The consumer for threads in a group: listeners that are told where it polls, and how it leaves."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

import pytest

import ottla
from ottla import TopicPartition
from ottla.client.core.group.rebalance import RebalanceListener
from ottla.errors import ClientClosedError, CommitFailedError
from ottla.testing import EmbeddedBroker
from tests.waiting import PATIENCE_S, repeat_until


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    name = broker.new_topic("shared")
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send_many(name, [b"0", b"1", b"2"]).result(PATIENCE_S)
    return name


@pytest.fixture
def consumer(broker: EmbeddedBroker, topic: str) -> Iterator[Any]:
    settings: dict[str, Any] = {"auto_offset_reset": "earliest", "retry_backoff_ms": 5, "enable_auto_commit": False}
    with ottla.Consumer(bootstrap_servers=broker.bootstrap_servers, group_id=topic, **settings) as made:
        yield made


class Committing(RebalanceListener):
    """Commits what was read before partitions go, as it may only while they are held."""

    def __init__(self, consumer: Any) -> None:
        self.consumer = consumer
        self.told: list[tuple[str, int]] = []

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.told.append(("assigned", len(self.consumer.assignment)))

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.consumer.commit()
        self.told.append(("revoked", len(partitions)))


def read(consumer: Any, count: int = 3) -> list[int]:
    found: list[int] = []
    repeat_until(lambda: len(found) >= count, lambda: found.extend(record.offset for record in consumer.poll(1.0)))
    return found


def committed(broker: EmbeddedBroker, topic: str) -> list[int]:
    with ottla.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        return [found.offset for found in admin.list_group_offsets([topic])[topic].values()]


@pytest.mark.parametrize("pattern", [False, True])
@pytest.mark.parametrize("end", ["close", "unsubscribe", "subscribe to nothing"])
def test_a_listener_is_told_while_partitions_are_held(
    consumer: Any, broker: EmbeddedBroker, topic: str, end: str, pattern: bool
) -> None:
    listener = Committing(consumer)
    consumer.subscribe(re.compile(re.escape(topic)) if pattern else [topic], listener=listener)
    assert read(consumer) == [0, 1, 2]
    assert listener.told == [("assigned", 1)]
    assert consumer.subscription == {topic}
    match end:
        case "close":
            consumer.close()
        case "unsubscribe":
            consumer.unsubscribe()
        case _:
            consumer.subscribe([])
    assert listener.told == [("assigned", 1), ("revoked", 1)]
    assert consumer.assignment == frozenset()
    assert consumer.subscription == ({topic} if end == "close" else frozenset())
    assert committed(broker, topic) == [3]
    consumer.close()
    assert len(listener.told) == 2, "they have gone already"


def test_arrow_is_polled_for_across_a_rebalance(consumer: Any, topic: str) -> None:
    listener = Committing(consumer)
    consumer.subscribe([topic], listener=listener)
    assert consumer.poll_arrow(PATIENCE_S)["offset"].to_pylist() == [0, 1, 2]
    assert listener.told == [("assigned", 1)]


def test_a_listener_that_fails_fails_the_poll_and_is_not_called_again(consumer: Any, topic: str) -> None:
    calls: list[str] = []

    class Failing(RebalanceListener):
        def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
            calls.append("assigned")
            raise ZeroDivisionError

    consumer.subscribe([topic], listener=Failing())
    with pytest.raises(ZeroDivisionError):
        read(consumer)
    assert read(consumer) == [0, 1, 2]
    assert calls == ["assigned"]


def test_a_listener_with_coroutines_is_refused(consumer: Any, topic: str) -> None:
    class ForTasks(RebalanceListener):
        async def on_assigned(self, partitions: Collection[TopicPartition]) -> None: ...

    consumer.subscribe([topic], listener=ForTasks())
    with pytest.raises(TypeError, match=r"must not have coroutines; use ottla\.aio\.Consumer"):
        read(consumer)
    assert read(consumer) == [0, 1, 2], "its partitions are there all the same"


def test_a_listener_may_close_its_consumer(consumer: Any, topic: str) -> None:
    class Closing(RebalanceListener):
        def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
            consumer.close()

    consumer.subscribe([topic], listener=Closing())
    with pytest.raises(ClientClosedError):
        read(consumer)
    with pytest.raises(ClientClosedError, match="this consumer is closed"):
        consumer.poll()


def test_a_listener_that_fails_at_the_end_does_not_keep_the_consumer_open(consumer: Any, topic: str) -> None:
    class Failing(RebalanceListener):
        def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
            raise ZeroDivisionError

    consumer.subscribe([topic], listener=Failing())
    read(consumer)
    with pytest.raises(ZeroDivisionError):
        consumer.close()
    with pytest.raises(ClientClosedError):
        consumer.poll()
    assert consumer._loop.loop.is_closed()


def test_who_is_interrupted_while_closing_leaves_the_group_all_the_same(
    consumer: Any, broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(deadline_s: float) -> None:
        raise KeyboardInterrupt

    consumer.subscribe([topic])
    read(consumer)
    monkeypatch.setattr(consumer._inner, "_begin_closing", interrupted)
    with pytest.raises(KeyboardInterrupt):
        consumer.close()
    assert consumer._inner._engine.is_closed and consumer._loop.loop.is_closed()
    with ottla.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        repeat_until(lambda: not admin.describe_groups([topic])[topic].members)
    with pytest.raises(ClientClosedError):
        consumer.poll()
    consumer.close()


def test_a_place_in_the_group_is_had_with_the_partitions(consumer: Any, topic: str) -> None:
    consumer.subscribe([topic])
    with pytest.raises(CommitFailedError, match="not in its group now"):
        getattr(consumer, "membership")  # noqa: B009 - asking is enough
    read(consumer)
    assert (consumer.membership.group_id, consumer.membership.is_member) == (topic, True)


def test_in_a_child_process_the_consumer_belongs_to_the_parent(broker: EmbeddedBroker, topic: str) -> None:
    """As after a fork, without one."""
    consumer: Any = ottla.Consumer(bootstrap_servers=broker.bootstrap_servers)
    consumer.assign([(topic, 0)])
    consumer._loop._on_fork()
    for call in (consumer.poll, consumer.poll_arrow, lambda: consumer.seek((topic, 0), 1)):
        with pytest.raises(ottla.errors.ForkedError, match="make a new one in the child"):
            call()
    consumer.close()
    assert not consumer._loop.loop.is_closed(), "that is for the parent to do"
    consumer._loop.stop()
