"""Fixtures for pytest, which finds them where Ottla is installed.

`ottla_broker` is one broker for the whole session, `ottla_fresh` (or `ottla`) one for each test; `ottla_config`,
`ottla_clock` and `ottla_network` shape them. `ottla_cluster` is three brokers for each test. This module is imported by
every run of pytest, so it imports the broker only when a fixture is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ottla.base.clock import ManualClock
    from ottla.testing.cluster import EmbeddedCluster
    from ottla.testing.embedded import EmbeddedBroker
    from ottla.testing.proxy import FaultProxy


@pytest.fixture(scope="session")
def ottla_config() -> Mapping[str, object]:
    """Settings of the brokers, by Kafka's names. Override this fixture to change them."""
    return {}


@pytest.fixture
def ottla_clock() -> ManualClock:
    """A clock that moves only when told to. A test that asks for it has an `ottla` that lives by it."""
    from ottla.base.clock import ManualClock

    return ManualClock()


@pytest.fixture
def ottla_network() -> Iterator[FaultProxy]:
    """A network that can be made bad, in front of the `ottla` of a test that asks for both; calm at first.

    `ottla_network.bootstrap_servers` lead through it, `ottla.bootstrap_servers` past it.
    """
    from ottla.testing.proxy import FaultProxy

    with FaultProxy() as proxy:
        yield proxy


@pytest.fixture(scope="session")
def ottla_broker(ottla_config: Mapping[str, object]) -> Iterator[EmbeddedBroker]:
    """One broker that all tests of the session share; `new_topic` keeps them apart."""
    from ottla.testing.embedded import EmbeddedBroker

    with EmbeddedBroker(config=ottla_config) as broker:
        yield broker


@pytest.fixture
def ottla(ottla_fresh: EmbeddedBroker) -> EmbeddedBroker:
    """`ottla_fresh` by a shorter name, for tests that do not use the module of this name."""
    return ottla_fresh


@pytest.fixture
def ottla_fresh(request: pytest.FixtureRequest, ottla_config: Mapping[str, object]) -> Iterator[EmbeddedBroker]:
    """A broker of the test's own, without any data. `@pytest.mark.ottla({"num.partitions": 3})` adds settings."""
    from ottla.testing.embedded import EmbeddedBroker

    clock: ManualClock | None = None
    if "ottla_clock" in request.fixturenames:
        clock = request.getfixturevalue("ottla_clock")
    network: FaultProxy | None = None
    if "ottla_network" in request.fixturenames:
        network = request.getfixturevalue("ottla_network")
    with EmbeddedBroker(config=_settings_for(request, ottla_config), clock=clock, network=network) as broker:
        yield broker


@pytest.fixture
def ottla_cluster(request: pytest.FixtureRequest, ottla_config: Mapping[str, object]) -> Iterator[EmbeddedCluster]:
    """Three brokers that replicate, the test's own. `@pytest.mark.ottla({"min.insync.replicas": 2})` adds settings."""
    from ottla.testing.cluster import EmbeddedCluster

    with EmbeddedCluster(config=_settings_for(request, ottla_config)) as cluster:
        yield cluster


def _settings_for(request: pytest.FixtureRequest, config: Mapping[str, object]) -> dict[str, object]:
    """Of all tests, and of the marks of this one."""
    settings = dict(config)
    for mark in reversed(list(request.node.iter_markers("ottla"))):
        settings |= _settings_of(mark)
    return settings


def _settings_of(mark: pytest.Mark) -> Mapping[str, object]:
    """As clients take theirs: Kafka's names in a mapping, or keywords in snake_case."""
    from ottla.client.core.settings import merge_settings

    if len(mark.args) > 1:
        raise pytest.UsageError(f"@pytest.mark.ottla takes one mapping of settings, but was given {mark.args}")
    return merge_settings(mark.args[0] if mark.args else None, mark.kwargs)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "ottla(settings): settings of this test's own `ottla` or `ottla_cluster`, by Kafka's names"
    )
