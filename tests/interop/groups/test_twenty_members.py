"""Twenty members over a hundred partitions, coming, going and dying while records come in."""

from __future__ import annotations

import random

import pytest

from tests.broker_process import BrokerProcess
from tests.interop.groups.clients import KIP_848
from tests.interop.groups.scene import CommitWatch, Scene, write_records
from tests.interop.groups.test_members_come_and_go import all_of, ends, expected
from tests.interop.peers.confluent import make_topic

pytestmark = pytest.mark.interop

PARTITIONS = 100
MEMBERS = 20
RECORDS = 20
PATIENCE_S = 60


@pytest.mark.parametrize("client", ["confluent-range", "confluent-cooperative", KIP_848])
def test_twenty_members_share_a_hundred_partitions(group_broker: BrokerProcess, new_topic: str, client: str) -> None:
    bootstrap, group = group_broker.bootstrap, f"{new_topic}-group"
    make_topic(bootstrap, new_topic, PARTITIONS)
    write_records(bootstrap, new_topic, PARTITIONS, RECORDS)
    order = random.Random(client)
    everything = all_of(new_topic, PARTITIONS)
    with Scene(group_broker, group, client) as scene, CommitWatch(group_broker, group) as commits:
        names = [f"member-{number:02}" for number in range(MEMBERS)]
        members = {name: scene.join(name, topics=(new_topic,)) for name in names}
        scene.settle(set(names), everything, patience_s=PATIENCE_S)
        assert set(map(len, scene.ledger.shares().values())) == {PARTITIONS // MEMBERS}

        write_records(bootstrap, new_topic, PARTITIONS, RECORDS, first=RECORDS)
        for name in order.sample(names, 8):
            scene.leave(members.pop(name))
        newcomers = [f"newcomer-{number}" for number in range(3)]
        for name in newcomers:
            members[name] = scene.join(name, topics=(new_topic,))
        write_records(bootstrap, new_topic, PARTITIONS, RECORDS, first=2 * RECORDS)
        scene.settle(set(members), everything, patience_s=PATIENCE_S)
        counts = sorted(map(len, scene.ledger.shares().values()))
        assert counts[-1] - counts[0] <= 1
        commits.wait_for(ends(new_topic, 3 * RECORDS, PARTITIONS), patience_s=PATIENCE_S)
    assert scene.ledger.consumed() == expected(new_topic, 3 * RECORDS, PARTITIONS)
