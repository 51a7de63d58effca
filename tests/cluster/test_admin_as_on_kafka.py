"""Moves and elections on our brokers, by the tests that Apache Kafka is asked with: our clients, and others' beside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from ottla.testing import EmbeddedBroker, EmbeddedCluster
from tests.client.test_admin_cluster import SETTINGS
from tests.client.test_admin_cluster import admin as admin
from tests.client.test_admin_cluster import kafka_python as kafka_python
from tests.client.test_admin_cluster import librdkafka as librdkafka
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
