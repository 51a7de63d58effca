"""How it is put into words what became of a batch."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.client.core.producer.batch import Batch, copy_of
from ottla.client.core.producer.results import PartitionResult, cause_of, cause_unsaid, too_late
from ottla.client.errors import ClientError


@pytest.mark.parametrize(
    ("code", "message", "node_id", "cause"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, None, 5, "NOT_LEADER_OR_FOLLOWER from broker 5"),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved", 0, "NOT_LEADER_OR_FOLLOWER (moved) from broker 0"),
        (ErrorCode.NETWORK_EXCEPTION, "lost", None, "lost"),
        (ErrorCode.NETWORK_EXCEPTION, None, None, "NETWORK_EXCEPTION"),
        (ErrorCode.NETWORK_EXCEPTION, "", None, "NETWORK_EXCEPTION"),
        (9999, None, 5, "error code 9999 from broker 5"),
        (9999, "odd", 5, "error code 9999 (odd) from broker 5"),
    ],
)
def test_why_a_batch_is_sent_again(code: int, message: str | None, node_id: int | None, cause: str) -> None:
    assert cause_of(PartitionResult(code, message=message), node_id) == cause


@pytest.mark.parametrize(
    ("leader_id", "is_in_flight", "cause"),
    [
        (-1, False, "the partition has no leader that is known"),
        (-1, True, "the partition has no leader that is known"),
        (0, True, "no answer from broker 0 yet"),
        (5, False, "it waited for its turn at broker 5"),
    ],
)
def test_what_a_batch_waits_for_of_which_nothing_was_heard(leader_id: int, is_in_flight: bool, cause: str) -> None:
    assert cause_unsaid(leader_id, is_in_flight=is_in_flight) == cause


@pytest.mark.parametrize(("attempts", "fate"), [(0, "it was never sent"), (1, "it may have been stored")])
@pytest.mark.parametrize("is_transactional", [True, False])
def test_a_batch_that_is_too_late_says_what_may_have_become_of_it(
    attempts: int, fate: str, is_transactional: bool
) -> None:
    batch = Batch("t", 3, (0,), opened_ms=0, deadline_ms=0)
    batch.attempts = attempts
    error = too_late(batch, 250, "lost", is_transactional=is_transactional)
    assert error.message == f"t-3: not acknowledged within delivery.timeout.ms (250 ms); {fate}; last: lost"
    assert error.requires_abort is is_transactional


def test_a_result_says_nothing_that_a_reply_has_not_said() -> None:
    assert PartitionResult(3) == (3, -1, -1, None, None, ())


def test_every_waiter_gets_an_exception_of_its_own_with_the_same_reason() -> None:
    error = ClientError("no", code=ErrorCode.INVALID_REQUEST)
    error.__cause__ = ValueError("why")
    copied = copy_of(error)
    assert copied is not error and copied.__cause__ is error.__cause__
    assert (type(copied), copied.code, copied.message) == (ClientError, ErrorCode.INVALID_REQUEST, "no")
