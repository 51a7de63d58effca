from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from ottla import Producer as OttlaProducer
from tests.broker_process import BrokerProcess
from tests.unit.cli.commands import Commands
from tests.unit.cli.scripted import Answering, Scripted


@pytest.fixture(scope="session")
def mock_cluster() -> Iterator[str]:
    """Bootstrap servers of librdkafka's mock cluster: brokers none of us wrote. They live in this process."""
    holder = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 1, "log_level": 0})
    brokers = holder.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    holder.flush(1)


@pytest.fixture
def ottla(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> Commands:
    """Commands against our own broker."""
    return Commands(broker.bootstrap, capsys)


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Answering:
    """Commands that ask an administrative client of the test's own."""
    return lambda admin: Scripted(admin, monkeypatch, capsys)


@pytest.fixture
def filled(broker: BrokerProcess, ottla: Commands, new_topic: str) -> str:
    """A topic of two partitions with five records in each, of the years 2020 and (from the third on) 2024."""
    ottla.shown("topics", "create", new_topic, "--partitions", "2")
    with OttlaProducer(bootstrap_servers=broker.bootstrap) as producer:
        for partition in range(2):
            for number in range(5):
                time_ms = 1_577_836_800_000 if number < 2 else 1_704_067_200_000
                producer.send(new_topic, b"%d" % number, partition=partition, timestamp_ms=time_ms + number)
        producer.flush()
    return new_topic
