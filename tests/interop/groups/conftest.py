"""A broker on which groups form, and lose members, in less time than people would allow."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.base.errors import ErrorCode
from ottla.wire.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.broker_process import BrokerProcess
from tests.interop.groups.scene import wait_until
from tests.raw_client import RawClient

KIP_848_SESSION_MS = 2_500

QUICK_GROUPS = {
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(KIP_848_SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "200",
}


@pytest.fixture(scope="session")
def group_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("groups"), dict(QUICK_GROUPS)).start()
    yield process
    code = process.stop()
    assert code == 0, "\n".join(process.log_lines)
    assert process.tracebacks() == []


@pytest.fixture
def group(group_broker: BrokerProcess, new_topic: str) -> str:
    """The name of a group whose coordinator is ready."""
    with RawClient(group_broker.port) as client:
        client.call(FindCoordinatorRequest(key=new_topic), 3)
        wait_until(lambda: coordinator_is_there(client, new_topic), lambda: "no coordinator")
    return new_topic


def coordinator_is_there(client: RawClient, group: str) -> bool:
    response = client.call(FindCoordinatorRequest(key=group), 3)
    assert isinstance(response, FindCoordinatorResponse)
    return response.error_code == ErrorCode.NONE
