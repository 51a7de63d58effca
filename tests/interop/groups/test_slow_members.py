"""A member whose program does not poll ends its membership when max.poll.interval.ms is over, and its group goes on."""

from __future__ import annotations

import threading
import time

import confluent_kafka
import pytest

from tests.broker_process import BrokerProcess
from tests.interop.groups.clients import HEARTBEAT_MS, KIP_848, Seat, confluent_settings
from tests.interop.groups.conftest import KIP_848_SESSION_MS
from tests.interop.groups.scene import Scene, wait_until, write_records
from tests.interop.groups.test_members_come_and_go import PARTITIONS, all_of, expected
from tests.interop.peers.confluent import LOG, make_topic
from tests.waiting import repeat_until

pytestmark = pytest.mark.interop

POLL_INTERVAL_MS = 1_500
SESSION_MS = 1_000


@pytest.mark.parametrize("client", ["confluent-range", KIP_848])
def test_a_member_that_does_not_poll_makes_room(group_broker: BrokerProcess, new_topic: str, client: str) -> None:
    make_topic(group_broker.bootstrap, new_topic, PARTITIONS)
    write_records(group_broker.bootstrap, new_topic, PARTITIONS, 10)
    group = f"{new_topic}-group"
    assigned = threading.Event()
    with Scene(group_broker, group, client) as scene:
        seat: Seat = scene.seat("idle", session_timeout_ms=SESSION_MS, max_poll_interval_ms=POLL_INTERVAL_MS)
        idle = confluent_kafka.Consumer(confluent_settings(seat), logger=LOG)
        idle.subscribe([new_topic], on_assign=lambda *_: assigned.set())
        repeat_until(assigned.is_set, lambda: idle.poll(0.05))
        last_poll_s = time.monotonic()
        assert scene.describe()[1] == ["idle"]
        wait_until(lambda: scene.describe()[1] == [], lambda: str(scene.describe()))
        # It beats all the while, so only its own clock can have ended its membership. The classic protocol says that it
        # leaves; with the new one the library falls silent until the program polls again.
        took_ms = (time.monotonic() - last_poll_s) * 1000
        session_ms = KIP_848_SESSION_MS if client == KIP_848 else 0
        assert POLL_INTERVAL_MS + session_ms - 2 * HEARTBEAT_MS <= took_ms
        scene.join("busy", topics=(new_topic,))
        scene.settle({"busy"}, all_of(new_topic))
        wait_until(lambda: scene.ledger.consumed() == expected(new_topic, 10), lambda: str(scene.ledger.consumed()))
        idle.close()
