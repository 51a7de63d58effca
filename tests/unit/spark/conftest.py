from __future__ import annotations

from collections.abc import Iterator

import pytest

import ottla
from ottla.testing import EmbeddedBroker


@pytest.fixture(scope="session")
def cluster() -> Iterator[EmbeddedBroker]:
    """One broker in the process of the tests, for all of them: topics and groups have names of their own."""
    with EmbeddedBroker(config={"num.partitions": 1}) as broker:
        yield broker


@pytest.fixture(scope="session")
def other_cluster() -> Iterator[EmbeddedBroker]:
    """A second one, to which the first is mirrored."""
    with EmbeddedBroker(config={"num.partitions": 1}) as broker:
        yield broker


@pytest.fixture(scope="session")
def admin(cluster: EmbeddedBroker) -> Iterator[ottla.Admin]:
    with ottla.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        yield admin
