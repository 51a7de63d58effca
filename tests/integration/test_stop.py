"""A broker that is told to stop while clients wait for it."""

from __future__ import annotations

from ottla.wire.apis.fetch import FetchPartition, FetchResponse
from tests.broker_process import BrokerProcess
from tests.integration.calls import batch, create_topic, fetch_request, list_offset, produce
from tests.raw_client import RawClient

LONG_POLL_MS = 600_000


def test_a_long_poll_is_answered_before_the_broker_goes(own_broker: BrokerProcess) -> None:
    own_broker.start()
    with RawClient(own_broker.port) as client, RawClient(own_broker.port) as waiting:
        create_topic(client, "quiet")
        produce(client, "quiet", batch(b"one"))
        wanted = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1_000_000)
        # The second one must not begin a wait of its own when the first is answered.
        for _ in range(2):
            waiting.send(fetch_request({"quiet": [wanted]}, max_wait_ms=LONG_POLL_MS), 11)
        # Replies to later requests: by now the broker has read the fetches too.
        for _ in range(3):
            assert list_offset(client, "quiet", -1).offset == 1
        assert own_broker.stop() == 0
        reply = waiting.receive(FetchResponse, 11)
        partition = reply.responses[0].partitions[0]
        assert (partition.error_code, partition.high_watermark, partition.records) == (0, 1, b"")
        assert waiting.is_closed_by_broker()
    assert own_broker.tracebacks() == []
