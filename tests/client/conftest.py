"""The brokers of the client's tests: Ottla's own, and Apache Kafka where it can be had.

A test that asks for `broker` (or a module's own fixture that takes `broker_kind`) runs against both. What legitimately
differs is in `kafka_differences`, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker_process import BrokerProcess
from tests.client.kafka_differences import KAFKA, reason_for
from tests.interop.kafka_tools import fetch_kafka_libs
from tests.kafka_process import KafkaProcess

OTTLA = "ottla"

# One worker runs all tests of one Kafka, which takes long to start.
KINDS = [OTTLA, pytest.param(KAFKA, marks=pytest.mark.xdist_group("apache-kafka"))]

QUICK_GROUPS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "2500",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "200",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec is None or callspec.params.get("broker_kind") != KAFKA:
            continue
        reason = reason_for(item.path.stem, getattr(item, "originalname", item.name))
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", params=KINDS)
def broker_kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    """Apache Kafka, started once; groups are as quick as those of the brokers of ours that are tested beside it."""
    settings = {
        **QUICK_GROUPS,
        "group.coordinator.rebalance.protocols": "classic,consumer",
        "group.consumer.migration.policy": "bidirectional",
    }
    process = KafkaProcess(fetch_kafka_libs(), tmp_path_factory.mktemp("kafka"), settings).start()
    yield process
    process.stop()


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest, broker_kind: str) -> Iterator[BrokerProcess | KafkaProcess]:
    """One broker for all tests of a worker; they use topics of their own (`new_topic`)."""
    if broker_kind == KAFKA:
        yield request.getfixturevalue("kafka_broker")
        return
    process = BrokerProcess(request.getfixturevalue("tmp_path_factory").mktemp("broker")).start()
    yield process
    code = process.stop()
    assert code == 0, "\n".join(process.log_lines)
    assert process.tracebacks() == []
