"""kcat against a real broker."""

from __future__ import annotations

import pytest

from tests.broker_process import BrokerProcess
from tests.interop.contract import ClientContract
from tests.interop.dataset import SAMPLES, offset_at_time
from tests.interop.peers.confluent import ConfluentKafka, make_topic
from tests.interop.peers.kcat import KCAT, WHY_MISSING, Kcat, run

pytestmark = [pytest.mark.interop, pytest.mark.skipif(KCAT is None, reason=WHY_MISSING)]


class TestKcat(ClientContract):
    peer = Kcat()


def test_topics_are_listed(broker: BrokerProcess, new_topic: str) -> None:
    make_topic(broker.bootstrap, new_topic, 3)
    listing = run("-L", "-b", broker.bootstrap).decode()
    assert f'topic "{new_topic}" with 3 partitions:' in listing
    assert f"at 127.0.0.1:{broker.port} (controller)" in listing


def test_offsets_are_asked_by_time(broker: BrokerProcess, new_topic: str) -> None:
    ConfluentKafka().write(broker.bootstrap, new_topic, SAMPLES)
    time_of_fifth = SAMPLES[5].timestamp_ms
    assert time_of_fifth is not None
    for asked, expected in (
        (-2, 0),
        (-1, len(SAMPLES)),
        (time_of_fifth, offset_at_time(SAMPLES, time_of_fifth)),
    ):
        answer = run("-Q", "-b", broker.bootstrap, "-t", f"{new_topic}:0:{asked}").decode()
        assert answer.split() == [new_topic, "[0]", "offset", str(expected)]
