"""One cursor: every move it can make, and what is left of what it knew before."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.consumer.cursors import NO_EPOCH, NOBODY, Cursor, Cursors, OffsetAndMetadata, Stage
from ottla.client.core.consumer.options import EARLIEST
from ottla.client.errors import ClientError, LogTruncationError, NoOffsetError, UnassignedPartitionError

FIRST, SECOND, THIRD = (TopicPartition("t", number) for number in range(3))


def busy(offset: int = 5) -> Cursor:
    """One that knows and waits for all sorts of things."""
    cursor = Cursor(FIRST)
    cursor.seek(offset, 3)
    cursor.leader_epoch = 4
    cursor.chunks.append(None)  # type: ignore[arg-type]
    cursor.complain(ClientError("no"))
    cursor.is_held_up = True
    cursor.not_before_ms = 1000
    cursor.preferred_replica = 2
    return cursor


@pytest.mark.parametrize("move", [lambda cursor: cursor.seek(9), lambda cursor: cursor.request_reset(EARLIEST)])
def test_whoever_is_moved_forgets_what_was_known_of_the_old_place(move: Any) -> None:
    cursor = busy()
    turn = cursor.turn
    move(cursor)
    assert cursor.turn > turn, "answers to earlier questions are void"
    assert not cursor.chunks and cursor.error is None and not cursor.is_held_up
    assert cursor.not_before_ms == 0 and cursor.preferred_replica < 0


def test_a_seek_is_where_the_next_record_and_the_next_fetch_are() -> None:
    cursor = busy()
    cursor.seek(0)
    assert (cursor.position, cursor.fetch_offset) == (0, 0)
    assert cursor.position_epoch == cursor.fetch_epoch == cursor.leader_epoch == NO_EPOCH
    assert cursor.stage is Stage.READY and cursor.has_position
    cursor.leader_epoch = 4
    cursor.seek(7, 0)
    assert (cursor.position_epoch, cursor.fetch_epoch, cursor.leader_epoch) == (0, 0, NO_EPOCH)


def test_a_reset_is_for_a_time() -> None:
    cursor = busy()
    cursor.request_reset(EARLIEST)
    assert cursor.stage is Stage.AWAITS_RESET and cursor.reset_timestamp == EARLIEST
    assert not cursor.has_position


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("position", [-1, 0, 1])
def test_there_is_a_position_once_it_is_known(stage: Stage, position: int) -> None:
    cursor = Cursor(FIRST)
    assert not cursor.has_position and cursor.lag is None
    cursor.stage, cursor.position = stage, position
    is_known = stage not in (Stage.AWAITS_COMMITTED, Stage.AWAITS_RESET)
    assert cursor.has_position is (is_known and position >= 0)


@pytest.mark.parametrize(
    ("position", "end_offset", "lag"), [(-1, 5, None), (0, -1, None), (0, 0, 0), (0, 5, 5), (5, 5, 0), (6, 5, 0)]
)
def test_the_lag_is_what_is_left_to_read(position: int, end_offset: int, lag: int | None) -> None:
    cursor = Cursor(FIRST)
    cursor.position, cursor.end_offset = position, end_offset
    assert cursor.lag == lag


@pytest.mark.parametrize(("epoch", "expected"), [(NO_EPOCH, None), (0, 0), (7, 7)])
def test_what_would_be_committed(epoch: int, expected: int | None) -> None:
    cursor = Cursor(FIRST)
    cursor.seek(3, None if epoch < 0 else epoch)
    assert cursor.committable() == OffsetAndMetadata(3, "", expected)


def test_it_is_fetched_from_when_nothing_stands_in_the_way() -> None:
    obstacles: list[dict[str, Any]] = [
        {"is_paused": True},
        {"in_flight_to": 0},
        {"not_before_ms": 101},
        *({"stage": stage} for stage in Stage if stage is not Stage.READY),
    ]
    for obstacle in ({}, {"not_before_ms": 100}, {"in_flight_to": NOBODY}, *obstacles):
        cursor = Cursor(FIRST)
        cursor.seek(0)
        for name, value in obstacle.items():
            setattr(cursor, name, value)
        assert cursor.can_fetch(100, chunks_max=1) is (obstacle not in obstacles), obstacle
    cursor = Cursor(FIRST)
    cursor.seek(0)
    cursor.chunks.append(None)  # type: ignore[arg-type]
    assert not cursor.can_fetch(0, chunks_max=1) and cursor.can_fetch(0, chunks_max=2)


# Errors


def test_an_error_is_told_once_and_another_one_again() -> None:
    cursor = Cursor(FIRST)
    cursor.seek(0)
    cursor.complain(ClientError("first", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    assert cursor.ends_a_poll and cursor.can_fetch(0, chunks_max=1), "it may pass"
    cursor.error_is_told = True
    assert not _ends_a_poll(cursor)
    cursor.complain(ClientError("again", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    assert cursor.error_is_told
    cursor.complain(ClientError("other", code=ErrorCode.INVALID_REQUEST))
    assert cursor.ends_a_poll and cursor.error.message == "other"
    cursor.error_is_told = True
    cursor.halt(ClientError("for good"))
    assert not cursor.error_is_told and cursor.stage is Stage.HALTED
    cursor.error_is_told = True
    assert cursor.ends_a_poll, "it will not pass"


def _ends_a_poll(cursor: Cursor) -> bool:
    return cursor.ends_a_poll


# Leaders


@pytest.mark.parametrize("stage", Stage)
def test_only_who_has_read_something_asks_a_new_leader(stage: Stage) -> None:
    cursor = busy()
    cursor.stage = stage
    cursor.take_leader_epoch(6)
    is_concerned = stage in (Stage.READY, Stage.AWAITS_VALIDATION)
    assert cursor.leader_epoch == (6 if is_concerned else 4)
    assert (cursor.preferred_replica < 0) is is_concerned
    assert cursor.stage is (Stage.AWAITS_VALIDATION if is_concerned else stage)


@pytest.mark.parametrize(
    ("fetch_epoch", "before", "told", "is_asked"),
    [
        (3, 3, 3, False),
        (3, 3, NO_EPOCH, False),
        (3, 2, 3, False),
        (3, 3, 4, True),
        (3, 3, 2, True),
        (0, 0, 1, True),
        (NO_EPOCH, 3, 4, False),
        (NO_EPOCH, 3, 2, False),
    ],
)
def test_a_leader_is_asked_if_it_may_hold_something_else(
    fetch_epoch: int, before: int, told: int, is_asked: bool
) -> None:
    cursor = Cursor(FIRST)
    cursor.seek(5)
    cursor.fetch_epoch, cursor.leader_epoch, cursor.preferred_replica = fetch_epoch, before, 2
    cursor.take_leader_epoch(told)
    assert (cursor.stage is Stage.AWAITS_VALIDATION) is is_asked
    is_news = told not in (NO_EPOCH, before)
    assert cursor.leader_epoch == (told if is_news else before)
    assert (cursor.preferred_replica < 0) is is_news


def validating(position: int = 5, fetch_offset: int = 8) -> Cursor:
    cursor = Cursor(FIRST)
    cursor.seek(position, 3)
    cursor.fetch_offset = fetch_offset
    cursor.take_leader_epoch(4)
    cursor.error = ClientError("no")
    assert cursor.stage is Stage.AWAITS_VALIDATION
    return cursor


@pytest.mark.parametrize(("epoch", "end_offset"), [(3, 8), (3, 9), (0, 8)])
def test_a_leader_that_agrees_is_read_from(epoch: int, end_offset: int) -> None:
    cursor = validating()
    cursor.take_validation(epoch, end_offset, reset=EARLIEST)
    assert cursor.stage is Stage.READY and cursor.error is None
    assert (cursor.position, cursor.fetch_offset, cursor.leader_epoch) == (5, 8, 4)


@pytest.mark.parametrize(
    ("epoch", "end_offset", "agreed"),
    [(3, 7, 5), (3, 5, 5), (3, 4, 4), (3, 0, 0), (0, 4, 4), (-1, 9, None), (3, -1, None), (-1, -1, None)],
)
def test_what_a_leader_does_not_have_is_read_from_where_it_agrees_or_as_the_reset_says(
    epoch: int, end_offset: int, agreed: int | None
) -> None:
    cursor = validating()
    cursor.take_validation(epoch, end_offset, reset=EARLIEST)
    if agreed is None:
        assert cursor.stage is Stage.AWAITS_RESET and cursor.reset_timestamp == EARLIEST
    else:
        assert (cursor.stage, cursor.position, cursor.fetch_offset) == (Stage.READY, agreed, agreed)
        assert (cursor.position_epoch, cursor.leader_epoch) == (epoch, 4), "that leader was asked"
    cursor = validating()
    cursor.take_validation(epoch, end_offset, reset=None)
    assert cursor.stage is Stage.HALTED and isinstance(cursor.error, LogTruncationError)
    assert cursor.error.offset == (-1 if agreed is None else agreed)
    assert cursor.error.message == "t-0: the log was cut below offset 8" + (
        "" if agreed is None else f"; what was read agrees with it up to {agreed}"
    )


def test_an_answer_that_nobody_waits_for_changes_nothing() -> None:
    cursor = Cursor(FIRST)
    cursor.seek(5, 3)
    cursor.take_validation(-1, -1, reset=EARLIEST)
    assert (cursor.stage, cursor.position) == (Stage.READY, 5)


def test_without_a_reset_nothing_committed_is_an_error() -> None:
    cursor = Cursor(FIRST)
    cursor.take_committed(None, reset=None)
    assert isinstance(cursor.error, NoOffsetError) and cursor.error.topic_partition == FIRST
    assert "auto.offset.reset is none" in cursor.error.message
    cursor.take_committed(OffsetAndMetadata(0), reset=None)
    assert cursor.can_fetch(0, chunks_max=1) and cursor.position == 0


# All of them


def test_cursors_are_found_by_their_partitions() -> None:
    cursors = Cursors()
    assert len(cursors) == 0 and cursors.topics == set() and cursors.committable() == {}
    cursors.replace([FIRST, SECOND, FIRST])
    assert len(cursors) == 2 and FIRST in cursors and THIRD not in cursors
    assert cursors.partitions == {FIRST, SECOND} and cursors.topics == {"t"}
    first, second = cursors.all()
    assert cursors.of(FIRST) is cursors.find(FIRST) is first and cursors.find(THIRD) is None
    assert cursors.chosen(None) == [first, second] and cursors.chosen([SECOND]) == [second]
    with pytest.raises(UnassignedPartitionError, match="t-2 is not assigned to this consumer"):
        cursors.chosen([FIRST, THIRD])
    first.seek(4, 0)
    assert cursors.committable() == {FIRST: OffsetAndMetadata(4, "", 0)}
    assert cursors.committable([SECOND, THIRD]) == {}
    assert cursors.committable([FIRST, THIRD]) == {FIRST: OffsetAndMetadata(4, "", 0)}
    cursors.add([THIRD, FIRST])
    assert cursors.all()[:2] == [first, second] and THIRD in cursors
    cursors.remove([FIRST])
    assert cursors.partitions == {SECOND, THIRD} and cursors.of(SECOND) is second
    cursors.add([FIRST])
    assert cursors.of(FIRST) is not first, "who comes again knows nothing of the time before"


def test_a_partition_that_has_just_come_has_no_place_and_nothing_in_its_way() -> None:
    cursor = Cursor(FIRST)
    state = {name: getattr(cursor, name) for name in Cursor.__slots__ if name not in ("classes", "chunks")}
    assert state == {
        "topic_partition": FIRST,
        "stage": Stage.AWAITS_COMMITTED,
        "position": -1,
        "position_epoch": -1,
        "fetch_offset": -1,
        "fetch_epoch": -1,
        "leader_epoch": -1,
        "reset_timestamp": 0,
        "error": None,
        "error_is_told": False,
        "is_paused": False,
        "is_held_up": False,
        "in_flight_to": -1,
        "not_before_ms": 0,
        "end_offset": -1,
        "log_start_offset": -1,
        "preferred_replica": -1,
        "preferred_until_ms": 0,
        "turn": 0,
    }
    assert not cursor.chunks
