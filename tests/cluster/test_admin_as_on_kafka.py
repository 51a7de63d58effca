"""Moves and elections on our brokers, by the tests that Apache Kafka is asked with: our clients, and others' beside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import kafka
import pytest
from confluent_kafka import admin as foreign

from ottla.testing import EmbeddedBroker, EmbeddedCluster
from tests.client.admin_shells import Make, until
from tests.client.test_admin_cluster import SETTINGS
from tests.client.test_admin_cluster import (
    test_a_leader_is_elected_that_is_not_in_sync as test_a_leader_is_elected_that_is_not_in_sync,
)
from tests.client.test_admin_cluster import (
    test_each_reassignment_has_its_own_outcome as test_each_reassignment_has_its_own_outcome,
)
from tests.client.test_admin_cluster import (
    test_leaders_are_elected_wherever_it_is_needed as test_leaders_are_elected_wherever_it_is_needed,
)
from tests.client.test_admin_cluster import test_partitions_are_moved as test_partitions_are_moved
from tests.client.test_admin_cluster import test_preferred_leaders_are_elected as test_preferred_leaders_are_elected


class Pair(NamedTuple):
    """What those tests need to know of a cluster."""

    first: EmbeddedBroker
    second: EmbeddedBroker
    bootstrap: str


@pytest.fixture(scope="module")
def cluster() -> Iterator[Pair]:
    kept = {name: value for name, value in SETTINGS.items() if name.startswith(("replica.", "auto."))}
    with EmbeddedCluster(2, config=kept) as made:
        yield Pair(made[1], made[2], made[1].bootstrap_servers)


@pytest.fixture(params=["sync", "aio"])
def admin(request: pytest.FixtureRequest, cluster: Pair) -> Iterator[Any]:
    make = Make(request.param)
    found = make(cluster.bootstrap)
    until(lambda: len(found.describe_cluster().brokers) == 2)
    yield found
    make.close()


@pytest.fixture(scope="module")
def librdkafka(cluster: Pair) -> foreign.AdminClient:
    return foreign.AdminClient({"bootstrap.servers": cluster.bootstrap})


@pytest.fixture(scope="module")
def kafka_python(cluster: Pair) -> Iterator[Any]:
    client = kafka.KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    yield client
    client.close()
