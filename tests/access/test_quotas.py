"""Quotas on real sockets: a client over its limit is answered at once, and then not read for as long as it was told."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from ottla.broker.admission import AccessRules
from ottla.broker.quotas import QuotaEntity, QuotaLimits
from ottla.testing import EmbeddedBroker
from ottla.wire.apis.api_versions import ApiVersionsRequest
from ottla.wire.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.apis.produce import ProduceResponse
from tests.integration.calls import batch, produce_request
from tests.raw_client import RawClient

TOPIC = "slow"
FAST, SLOW = "fast", "slow"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    # A second of samples: a client is at its limit soon, and below it again soon.
    config = {"quota.window.num": 2, "quota.window.size.seconds": 1}
    limits = {QuotaEntity(None, SLOW): 4000.0}
    with EmbeddedBroker(config=config, access=AccessRules(quotas=QuotaLimits(limits, limits))) as broker:
        broker.create_topic(TOPIC)
        yield broker


def test_a_throttled_producer_is_not_read(broker: EmbeddedBroker) -> None:
    request = produce_request(TOPIC, bytes(batch(b"v" * 6000)))
    with RawClient(broker.port, client_id=SLOW) as client:
        began_s = time.monotonic()
        client.send(request, 9)
        client.send(ApiVersionsRequest(), 0)
        reply = client.receive(ProduceResponse, 9)
        assert reply.responses[0].partition_responses[0].error_code == 0
        # 6,000 bytes and some more in a window of one second are half as much again as is allowed.
        assert 500 <= reply.throttle_time_ms <= 600
        client.receive_frame()
        assert time.monotonic() - began_s >= reply.throttle_time_ms / 1000
    with RawClient(broker.port, client_id=FAST) as other:
        reply = other.call(request, 9)
        assert isinstance(reply, ProduceResponse)
        assert reply.throttle_time_ms == 0


def test_a_throttled_consumer_gets_its_records_later(broker: EmbeddedBroker) -> None:
    with RawClient(broker.port, client_id=FAST) as filler:
        for _ in range(4):
            filler.call(produce_request(TOPIC, bytes(batch(b"v" * 3000))), 9)
    offset, throttles_ms, deadline_s = 0, 0, time.monotonic() + 60
    with RawClient(broker.port, client_id=SLOW) as client:
        while offset < 4:
            wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=3500)
            topics = [FetchTopic(topic=TOPIC, partitions=[wanted])]
            reply = client.call(FetchRequest(max_wait_ms=100, min_bytes=1, topics=topics), 12)
            assert isinstance(reply, FetchResponse)
            assert time.monotonic() < deadline_s
            if reply.throttle_time_ms:
                assert reply.responses == []
                throttles_ms += 1
            else:
                offset += 1
    assert throttles_ms
