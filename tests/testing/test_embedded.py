"""The embedded broker's life, seen by a client none of us wrote."""

from __future__ import annotations

import tempfile
import time
import unittest
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

import ottla
from ottla import Admin
from ottla.base.errors import ErrorCode, InvalidConfigError, KafkaError, StartError
from ottla.testing import EmbeddedBroker, ManualClock

DAY_MS = 86_400_000


def send(broker: EmbeddedBroker, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(20) == 0


def received(broker: EmbeddedBroker, topic: str, count: int) -> list[tuple[bytes | None, int]]:
    """The value and the timestamp of the first records."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        messages = consumer.consume(count, timeout=20)
        assert [message.error() for message in messages] == [None] * count
        return [(message.value(), message.timestamp()[1]) for message in messages]
    finally:
        consumer.close()


def test_records_there_and_back() -> None:
    with EmbeddedBroker() as broker:
        topic = broker.create_topic("greetings")
        send(broker, topic, b"hello", b"world")
        assert [value for value, _ in received(broker, topic, 2)] == [b"hello", b"world"]


def test_two_brokers_at_once_know_nothing_of_each_other() -> None:
    with EmbeddedBroker() as one, EmbeddedBroker() as other:
        assert one.port != other.port
        for broker, value in ((one, b"one"), (other, b"other")):
            send(broker, broker.create_topic("same"), value)
        assert received(one, "same", 1)[0][0] == b"one"
        assert received(other, "same", 1)[0][0] == b"other"


def test_a_restart_keeps_the_port_and_the_data() -> None:
    with EmbeddedBroker() as broker:
        send(broker, broker.create_topic("kept"), b"before")
        port = broker.port
        broker.restart()
        assert broker.port == port
        send(broker, "kept", b"after")
        assert [value for value, _ in received(broker, "kept", 2)] == [b"before", b"after"]


def test_data_of_its_own_go_and_given_data_stay(tmp_path: Path) -> None:
    broker = EmbeddedBroker().start()
    own = broker.data_dir
    assert own.is_dir()
    broker.stop()
    assert not own.exists()
    broker.stop()
    with EmbeddedBroker(tmp_path / "given") as broker:
        broker.create_topic("kept")
    with EmbeddedBroker(tmp_path / "given") as broker, pytest.raises(KafkaError) as caught:
        broker.create_topic("kept")
    assert caught.value.code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_clock_of_the_tests_own() -> None:
    clock = ManualClock(1_000_000)
    with EmbeddedBroker(clock=clock, config={"log.message.timestamp.type": "LogAppendTime"}) as broker:
        topic = broker.create_topic("timed")
        send(broker, topic, b"first")
        clock.advance(3_600_000)
        send(broker, topic, b"an hour later")
        assert received(broker, topic, 2) == [(b"first", 1_000_000), (b"an hour later", 4_600_000)]


def wait_until(is_so: Callable[[], bool], patience_s: float = 20) -> None:
    deadline = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_committed_offsets_expire_by_the_clock() -> None:
    clock = ManualClock()
    with EmbeddedBroker(clock=clock) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        first = ottla.TopicPartition(broker.create_topic("orders"), 0)
        admin.alter_group_offsets("billing", {first: 0}).check()
        assert list(admin.list_group_offsets(["billing"])["billing"]) == [first]
        clock.advance(8 * DAY_MS)
        wait_until(lambda: not admin.list_group_offsets(["billing"])["billing"])


def test_transactions_and_their_ids_expire_by_the_clock() -> None:
    clock = ManualClock()
    with EmbeddedBroker(clock=clock) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        topic = broker.create_topic("orders")
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x", "log_level": 0})
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce(topic, b"never to be read")
        assert producer.flush(20) == 0
        assert [found.state for found in admin.list_transactions()] == ["Ongoing"]
        clock.advance(120_000)
        wait_until(lambda: [found.state for found in admin.list_transactions()] == ["CompleteAbort"])
        with pytest.raises(KafkaException, match="fenced"):
            producer.commit_transaction(20)
        clock.advance(8 * DAY_MS)
        wait_until(lambda: not admin.list_transactions())


def test_new_topics_have_names_of_their_own_and_settings() -> None:
    with EmbeddedBroker(config={"auto.create.topics.enable": False}) as broker:
        names = {broker.new_topic("orders", partitions=3, config={"cleanup.policy": "compact"}) for _ in range(3)}
        assert len(names) == 3
        cluster = Producer({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=20)
        assert {name for name, topic in cluster.topics.items() if len(topic.partitions) == 3} == names


def test_a_broker_that_cannot_start() -> None:
    with EmbeddedBroker() as running:
        taken = EmbeddedBroker(config={"listeners": f"PLAINTEXT://127.0.0.1:{running.port}"})
        with pytest.raises(StartError, match="in use"):
            taken.start()
        with pytest.raises(StartError):
            EmbeddedBroker(running.data_dir).start()
    with pytest.raises(InvalidConfigError, match=r"num\.partitions"):
        EmbeddedBroker(config={"num.partitions": "many"}).start()


@pytest.mark.parametrize("move", [EmbeddedBroker.take_leader_away, EmbeddedBroker.elect_leader])
def test_partitions_that_are_not_there_have_no_leaders(move: Callable[..., None]) -> None:
    with EmbeddedBroker() as broker:
        with pytest.raises(KafkaError, match="no topic 'nope'; there are: none"):
            move(broker, "nope")
        broker.create_topic("orders", partitions=3)
        broker.create_topic("invoices")
        with pytest.raises(KafkaError, match="no topic 'order'; there are: invoices, orders") as caught:
            move(broker, "order")
        assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(KafkaError, match="'orders' has no partition 3, but 0 to 2"):
            move(broker, "orders", 3)
        move(broker, "orders", 2)


@pytest.mark.parametrize("config", [{"num.partitons": 3}, {"listeners": "PLAINTEXT://192.0.2.1:0"}])
def test_a_broker_that_cannot_start_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, object]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises((InvalidConfigError, StartError)):
        EmbeddedBroker(config=config).start()
    assert list(tmp_path.iterdir()) == []


def test_a_broker_that_is_not_running() -> None:
    broker = EmbeddedBroker()
    with pytest.raises(RuntimeError, match="never started"):
        _ = broker.data_dir
    with pytest.raises(RuntimeError, match="not running"):
        broker.create_topic("too-early")
    with broker, pytest.raises(RuntimeError, match="running already"):
        broker.start()


class TestWithUnittest(unittest.TestCase):
    def setUp(self) -> None:
        self.broker = self.enterContext(EmbeddedBroker())

    def test_it_needs_no_pytest(self) -> None:
        send(self.broker, self.broker.new_topic(), b"x")
