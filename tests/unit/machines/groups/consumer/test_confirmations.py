"""When a heartbeat shows what a member holds that was told to give something up (KIP-848)."""

from __future__ import annotations

import pytest

from ottla.base.types import Uuid
from ottla.machines.groups.consumer.confirmations import Confirmations
from ottla.machines.groups.consumer.member import ConsumerMember, CurrentAssignment, MemberState
from ottla.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, OwnedTopicPartitions

TOPIC = Uuid(bytes(range(16)))
UNREVOKED = CurrentAssignment(2, 1, MemberState.UNREVOKED)
STABLE = CurrentAssignment(2, 1, MemberState.STABLE)
HERE, ELSEWHERE = object(), object()


def heartbeat(*owned: int, is_full: bool = True, lists: bool = True) -> ConsumerGroupHeartbeatRequest:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1)
    if is_full:
        request.rebalance_timeout_ms = 1_000
        request.subscribed_topic_names = ["t"]
    if lists:
        request.topic_partitions = [OwnedTopicPartitions(topic_id=TOPIC, partitions=list(owned))]
    return request


def held(*indexes: int) -> frozenset[tuple[Uuid, int]]:
    return frozenset((TOPIC, index) for index in indexes)


NOT_LISTING = heartbeat(is_full=False, lists=False)


@pytest.mark.parametrize(
    ("request_", "connection", "expected"),
    [
        (heartbeat(1), HERE, held(1)),
        (heartbeat(1), ELSEWHERE, None),
        (heartbeat(1, is_full=False), HERE, held(1)),
        (heartbeat(1, is_full=False), ELSEWHERE, held(1)),
        (NOT_LISTING, HERE, held(1, 2)),
        (NOT_LISTING, ELSEWHERE, held(1, 2)),
    ],
)
def test_a_full_heartbeat_confirms_only_on_the_connection_of_the_last_reply(
    request_: ConsumerGroupHeartbeatRequest, connection: object, expected: object
) -> None:
    confirmations = Confirmations()
    confirmations.answered("m", UNREVOKED, heartbeat(1, 2), HERE)
    assert confirmations.owned_by_now(ConsumerMember("m", current=UNREVOKED), request_, connection) == expected
    assert confirmations.owned_by_now(ConsumerMember("n", current=UNREVOKED), heartbeat(1), HERE) is None


def test_who_has_nothing_to_give_up_holds_what_it_says() -> None:
    member = ConsumerMember("m", current=STABLE)
    assert Confirmations().owned_by_now(member, heartbeat(1), HERE) == held(1)
    assert Confirmations().owned_by_now(member, NOT_LISTING, HERE) is None


@pytest.mark.parametrize("is_removed", [True, False])
def test_what_was_listed_before_is_forgotten_with_what_was_to_give_up(is_removed: bool) -> None:
    confirmations, member = Confirmations(), ConsumerMember("m", current=UNREVOKED)
    confirmations.answered("m", UNREVOKED, heartbeat(1, 2), HERE)
    if is_removed:
        confirmations.forget("m")
    else:
        confirmations.answered("m", STABLE, heartbeat(1), HERE)
    assert confirmations.owned_by_now(member, heartbeat(1), HERE) is None
    assert confirmations.owned_by_now(member, NOT_LISTING, HERE) is None


def test_the_last_list_stays_while_heartbeats_do_not_list() -> None:
    confirmations, member = Confirmations(), ConsumerMember("m", current=UNREVOKED)
    confirmations.answered("m", UNREVOKED, heartbeat(1, 2), HERE)
    confirmations.answered("m", UNREVOKED, NOT_LISTING, ELSEWHERE)
    assert confirmations.owned_by_now(member, NOT_LISTING, HERE) == held(1, 2)
    assert confirmations.owned_by_now(member, heartbeat(1), HERE) is None
    assert confirmations.owned_by_now(member, heartbeat(1), ELSEWHERE) == held(1)
