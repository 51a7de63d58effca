"""Records that are under way while the broker is killed: stored once, in order, whatever replies were lost."""

from __future__ import annotations

import pytest

from ottla.client import sync
from tests.broker_process import BrokerProcess
from tests.client.producers import values_of

RECORDS = 60_000
KILLED_AFTER = (15_000, 30_000, 45_000)


@pytest.mark.crash
def test_every_record_is_stored_once_and_in_order(own_broker: BrokerProcess) -> None:
    own_broker.start()
    values = [b"%07d" % number for number in range(RECORDS)]
    with sync.Producer(bootstrap_servers=own_broker.bootstrap, batch_size=4096, linger_ms=0) as producer:
        futures = []
        for number, value in enumerate(values):
            futures.append(producer.send("t", value))
            if number in KILLED_AFTER:
                # An older record is acknowledged first: the kill then meets a producer in full swing.
                futures[number - 10_000].result(60)
                own_broker.kill()
                own_broker.start()
        producer.flush(60)
        offsets = [future.result(0).offset for future in futures]
    assert values_of(own_broker.bootstrap, "t") == values
    assert all(offset in (-1, number) for number, offset in enumerate(offsets))
