"""What a partition says of itself: who leads it, whom it refuses, and who may append to it."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition, Uuid
from ottla.broker.partition import Partition, leader_to_append, not_leader

E = ErrorCode
LOG: Any = object()


class Leader:
    def __init__(self, *isr: int, min_insync_replicas: int = 1) -> None:
        self.isr = isr
        self.min_insync_replicas = min_insync_replicas
        self.has_enough_replicas = len(isr) >= min_insync_replicas
        self.wakes = 0

    def wake_followers(self) -> None:
        self.wakes += 1


def partition(leader: Any = None) -> Partition:
    made = Partition(TopicPartition("t", 3), Uuid(bytes(range(16))), LOG)
    made.leader = leader
    return made


def test_a_new_partition_has_no_role() -> None:
    made = partition()
    assert (made.tp, made.topic_id, made.log) == (("t", 3), bytes(range(16)), LOG)
    assert (made.leader, made.leader_id, made.leader_epoch, made.leads_since) == (None, -1, -1, -1)
    assert (made.has_role, made.is_offline, made.uncommitted) == (False, False, None)
    assert (made.produce_replies, made.verified_producers, made.waiters, made.is_moved) == ({}, {}, {}, False)
    assert not made.is_following


@pytest.mark.parametrize(
    ("leader", "leader_id", "is_offline", "follows"),
    [
        (None, 0, False, True),
        (None, 2, False, True),
        (None, -1, False, False),
        (None, 2, True, False),
        (Leader(1), 2, False, False),
    ],
)
def test_who_follows(leader: Leader | None, leader_id: int, is_offline: bool, follows: bool) -> None:
    made = partition(leader)
    made.leader_id, made.is_offline = leader_id, is_offline
    assert made.is_following is follows


def test_who_resigns_wakes_its_followers_once() -> None:
    leader = Leader(1)
    made = partition(leader)
    made.resign()
    made.resign()
    assert (made.leader, leader.wakes) == (None, 1)


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (-1, None),
        (0, E.FENCED_LEADER_EPOCH),
        (4, E.FENCED_LEADER_EPOCH),
        (5, None),
        (6, E.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_clients_of_another_leader_are_fenced(epoch: int, code: ErrorCode | None) -> None:
    made = partition()
    made.leader_epoch = 5
    if code is None:
        made.check_leader_epoch(epoch)
    else:
        with pytest.raises(KafkaError) as refused:
            made.check_leader_epoch(epoch)
        assert refused.value.code is code


@pytest.mark.parametrize(("is_offline", "code"), [(False, E.NOT_LEADER_OR_FOLLOWER), (True, E.KAFKA_STORAGE_ERROR)])
@pytest.mark.parametrize("requires_all_replicas", [False, True])
def test_without_a_leader_nothing_is_appended(is_offline: bool, code: ErrorCode, requires_all_replicas: bool) -> None:
    made = partition()
    made.is_offline = is_offline
    assert not_leader(made).code is code
    with pytest.raises(KafkaError) as refused:
        leader_to_append(made, requires_all_replicas)
    assert refused.value.code is code


@pytest.mark.parametrize(("requires_all_replicas", "is_enough"), [(False, False), (True, True), (False, True)])
def test_a_leader_appends(requires_all_replicas: bool, is_enough: bool) -> None:
    leader = Leader(1, 2, min_insync_replicas=2 if is_enough else 3)
    found: Any = leader_to_append(partition(leader), requires_all_replicas)
    assert found is leader


def test_too_few_replicas_are_counted() -> None:
    with pytest.raises(KafkaError, match=r"2 replicas are in sync, min\.insync\.replicas is 3") as refused:
        leader_to_append(partition(Leader(1, 2, min_insync_replicas=3)), True)
    assert refused.value.code is E.NOT_ENOUGH_REPLICAS
