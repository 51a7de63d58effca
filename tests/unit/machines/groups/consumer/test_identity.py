"""Which epochs a member of KIP-848 may speak in: its own, and the last one while it has taken up nothing else."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import Uuid
from ottla.machines.groups.consumer.identity import recognise
from ottla.machines.groups.consumer.member import ConsumerMember, CurrentAssignment
from ottla.machines.groups.consumer.state import ConsumerGroupState
from ottla.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, OwnedTopicPartitions

TOPIC = Uuid(bytes(range(16)))


@pytest.mark.parametrize(
    ("received", "owned", "epochs", "is_known"),
    [
        (5, None, (5, 4), True),
        (5, [9], (5, 4), True),
        (4, [1, 2], (5, 4), True),
        (4, [1], (5, 4), True),
        (4, [], (5, 4), True),
        (4, [1, 2, 3], (5, 4), False),
        (4, [3], (5, 4), False),
        (4, None, (5, 4), False),
        (3, [1], (5, 4), False),
        (6, [1], (5, 4), False),
        (6, [1], (5, 6), False),
    ],
)
def test_a_member_may_have_missed_one_reply_if_it_holds_nothing_else(
    received: int, owned: list[int] | None, epochs: tuple[int, int], is_known: bool
) -> None:
    assigned = frozenset({(TOPIC, 1), (TOPIC, 2)})
    member = ConsumerMember("m", current=CurrentAssignment(*epochs, assigned=assigned))
    state = ConsumerGroupState()
    state.members["m"] = member
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=received)
    if owned is not None:
        request.topic_partitions = [OwnedTopicPartitions(topic_id=TOPIC, partitions=owned)]
    if is_known:
        assert recognise(state, request) is member
        return
    with pytest.raises(KafkaError) as raised:
        recognise(state, request)
    assert raised.value.code is ErrorCode.FENCED_MEMBER_EPOCH
