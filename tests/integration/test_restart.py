"""A broker that is started again while clients still wait for its replies."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.broker_process import BrokerProcess
from tests.integration.calls import batch, create_topic, list_offset, produce
from tests.raw_client import RawClient


@pytest.mark.parametrize("end", [BrokerProcess.stop, BrokerProcess.kill])
def test_all_batches_in_flight_may_be_sent_again(
    own_broker: BrokerProcess, end: Callable[[BrokerProcess], object]
) -> None:
    def send(client: RawClient, sequence: int) -> tuple[int, int]:
        records = batch(b"record", producer_id=1000, producer_epoch=0, base_sequence=sequence)
        reply = produce(client, "events", records)
        return reply.error_code, reply.base_offset

    own_broker.start()
    with RawClient(own_broker.port) as client:
        create_topic(client, "events")
        assert [send(client, sequence) for sequence in range(5)] == [(0, offset) for offset in range(5)]
    end(own_broker)
    own_broker.start()
    with RawClient(own_broker.port) as client:
        # If the first were out of order, a Java producer would send all of them under another epoch (KIP-360).
        assert [send(client, sequence) for sequence in range(6)] == [(0, offset) for offset in range(6)]
        assert list_offset(client, "events", -1).offset == 6
