"""A broker on which transactions time out in less time than people would allow."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker_process import BrokerProcess
from tests.raw_client import RawClient

QUICK_TRANSACTIONS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.state.log.num.partitions": "4",
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
}


@pytest.fixture(scope="session")
def txn_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("transactions"), dict(QUICK_TRANSACTIONS)).start()
    yield process
    code = process.stop()
    assert code == 0, "\n".join(process.log_lines)
    assert process.tracebacks() == []


@pytest.fixture
def raw(txn_broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(txn_broker.port) as client:
        yield client
