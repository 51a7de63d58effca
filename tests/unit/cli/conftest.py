from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer


@pytest.fixture(scope="session")
def mock_cluster() -> Iterator[str]:
    """Bootstrap servers of librdkafka's mock cluster: brokers none of us wrote. They live in this process."""
    holder = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 1, "log_level": 0})
    brokers = holder.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    holder.flush(1)
