"""Which orders of the controller a broker follows: rules about epochs and identities alone.

An order that was overtaken by a newer one, or that is meant for another topic of the same name, changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ottla.base.errors import ErrorCode
from ottla.base.types import NIL_UUID, Uuid

NO_EPOCH = -1
EPOCH_DURING_DELETE = -2
"""Deleting a topic raises no leader epoch, so this stands above all of them."""


class HeldReplica(NamedTuple):
    """What a broker knows of a replica that it has."""

    topic_id: Uuid
    leader_epoch: int
    has_role: bool = True
    """False from the loss of a session until the controller's next word: then its old role is news, too."""
    is_offline: bool = False


def why_role_refused(
    broker_id: int, held: HeldReplica | None, topic_id: Uuid, leader_epoch: int, replicas: Collection[int]
) -> ErrorCode:
    """Of one partition in LeaderAndIsr. A role the broker has already is refused as stale, as Kafka does: the
    controller repeats itself after failovers, and a leader must not start over for it."""
    if held is not None:
        if held.is_offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if NIL_UUID not in (topic_id, held.topic_id) and topic_id != held.topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if leader_epoch < held.leader_epoch or (leader_epoch == held.leader_epoch and held.has_role):
            return ErrorCode.STALE_CONTROLLER_EPOCH
    return ErrorCode.NONE if broker_id in replicas else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def why_stop_refused(held: HeldReplica | None, leader_epoch: int) -> ErrorCode:
    """Of one partition in StopReplica."""
    if held is None or leader_epoch in (NO_EPOCH, EPOCH_DURING_DELETE) or leader_epoch >= held.leader_epoch:
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH
