"""Fixtures every test may use."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.broker_process import BrokerProcess
from tests.zookeeper_process import ZooKeeperProcesses, require_zookeeper

settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("suite"), max_examples=20)
settings.load_profile("suite")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that runs the tests in the background has Ctrl-C ignored, here and in all that is started from here.
    signal.signal(signal.SIGINT, signal.default_int_handler)

_numbers = itertools.count()


@pytest.fixture(scope="module", autouse=True)
def no_clients_of_spark_left() -> Iterator[None]:
    """Spark's side of Ottla keeps clients for whoever comes next in its process. Their brokers end with a module of
    tests, and clients that look for them in vain would speak in the log of tests that have nothing to do with it."""
    yield
    connections = sys.modules.get("ottla.spark.connections")
    if connections is not None:
        for kept in (connections._admins, connections._idle_consumers):
            while kept:
                kept.popitem()[1].close()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all tests of a worker; they use topics of their own (`new_topic`)."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker")).start()
    yield process
    code = process.stop()
    assert code == 0, "\n".join(process.log_lines)
    assert process.tracebacks() == []


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcesses]:
    """One ZooKeeper server for all tests of a worker; they use paths of their own (`new_cluster`)."""
    directory = tmp_path_factory.mktemp("zookeeper")
    require_zookeeper(directory)
    processes = ZooKeeperProcesses(directory).start()
    yield processes
    processes.kill()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker of the test's own, not yet started: for tests that restart or configure it."""
    process = BrokerProcess(tmp_path / "data")
    yield process
    process.kill()


@pytest.fixture
def new_topic() -> str:
    """A topic name nobody else uses."""
    return f"test-{os.getpid()}-{next(_numbers)}"
