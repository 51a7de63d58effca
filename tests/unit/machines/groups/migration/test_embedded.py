"""The consumers' own protocol, read and written for members that speak the classic one."""

from __future__ import annotations

import pytest

from ottla.machines.groups.migration import embedded
from ottla.wire.stored.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopic,
)
from tests.unit.machines.groups.runner import Topics

TOPICS = Topics()
ORDERS, CLICKS = TOPICS.topic_id("orders"), TOPICS.topic_id("clicks")
assert ORDERS is not None and CLICKS is not None
GONE = type(ORDERS)(bytes(16))
HELD = frozenset({(ORDERS, 0), (ORDERS, 3), (CLICKS, 1)})


@pytest.mark.parametrize(("spoken", "written"), [(0, 0), (1, 1), (2, 2), (3, 3), (7, 3)])
def test_an_assignment_is_written_in_the_version_of_the_members_metadata(spoken: int, written: int) -> None:
    metadata = spoken.to_bytes(2, "big") + ConsumerProtocolSubscription(topics=["orders"]).encode_versioned(0)[2:]
    data = embedded.write_assignment(HELD | {(GONE, 0)}, TOPICS, metadata)
    assert int.from_bytes(data[:2], "big") == written
    topics = ConsumerProtocolAssignment.decode_versioned(data).assigned_partitions
    assert {topic.topic: topic.partitions for topic in topics} == {"orders": [0, 3], "clicks": [1]}
    assert embedded.read_assignment(data, TOPICS) == HELD


def test_topics_that_are_gone_are_nobodys() -> None:
    listed = [
        ConsumerProtocolTopic(topic="orders", partitions=[0, 3]),
        ConsumerProtocolTopic(topic="gone", partitions=[0]),
        ConsumerProtocolTopic(topic="clicks", partitions=[1]),
    ]
    assert embedded.partitions_of(listed, TOPICS) == HELD
    data = ConsumerProtocolAssignment(assigned_partitions=listed).encode_versioned(1)
    assert embedded.read_assignment(data, TOPICS) == HELD
    assert embedded.read_assignment(b"", TOPICS) == frozenset()


def test_of_several_protocols_the_first_one_tells_the_subscription() -> None:
    first, second = (ConsumerProtocolSubscription(topics=[name]).encode_versioned(1) for name in ("orders", "clicks"))
    assert embedded.read_subscription((("range", first), ("sticky", second))).topics == ["orders"]
