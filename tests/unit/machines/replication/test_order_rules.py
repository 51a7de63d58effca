"""Which of the controller's orders are followed, by epochs and identities."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import NIL_UUID, Uuid
from ottla.machines.replication.order_rules import HeldReplica, why_role_refused, why_stop_refused

THIS, OTHER = Uuid(bytes(range(16))), Uuid(bytes(range(1, 17)))
HELD = HeldReplica(THIS, leader_epoch=5)


@pytest.mark.parametrize(
    ("held", "topic_id", "epoch", "replicas", "code"),
    [
        (None, THIS, 0, [1, 2], ErrorCode.NONE),
        (None, THIS, 0, [2, 3], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (HELD, THIS, 6, [1, 2], ErrorCode.NONE),
        (HELD, THIS, 5, [1, 2], ErrorCode.STALE_CONTROLLER_EPOCH),
        (HELD, THIS, 4, [1, 2], ErrorCode.STALE_CONTROLLER_EPOCH),
        (HELD, THIS, 6, [2, 3], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (HELD, OTHER, 6, [1, 2], ErrorCode.INCONSISTENT_TOPIC_ID),
        (HELD, OTHER, 4, [1, 2], ErrorCode.INCONSISTENT_TOPIC_ID),
        (HELD, NIL_UUID, 6, [1, 2], ErrorCode.NONE),
        (HELD._replace(topic_id=NIL_UUID), OTHER, 6, [1, 2], ErrorCode.NONE),
        (HELD._replace(has_role=False), THIS, 5, [1, 2], ErrorCode.NONE),
        (HELD._replace(has_role=False), THIS, 4, [1, 2], ErrorCode.STALE_CONTROLLER_EPOCH),
        (HELD._replace(is_offline=True), THIS, 6, [1, 2], ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_roles(held: HeldReplica | None, topic_id: Uuid, epoch: int, replicas: list[int], code: ErrorCode) -> None:
    assert why_role_refused(1, held, topic_id, epoch, replicas) == code


@pytest.mark.parametrize(
    ("held", "epoch", "code"),
    [
        (None, 0, ErrorCode.NONE),
        (HELD, 6, ErrorCode.NONE),
        (HELD, 5, ErrorCode.NONE),
        (HELD, 4, ErrorCode.FENCED_LEADER_EPOCH),
        (HELD, -1, ErrorCode.NONE),
        (HELD, -2, ErrorCode.NONE),
    ],
)
def test_stops(held: HeldReplica | None, epoch: int, code: ErrorCode) -> None:
    assert why_stop_refused(held, epoch) == code
