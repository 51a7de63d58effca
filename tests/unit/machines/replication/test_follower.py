"""What a follower does with its leader's answers, and where it cuts a log that went another way."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ErrorCode
from ottla.log.leader_epochs import EpochStart, LeaderEpochs
from ottla.machines.replication.follower import (
    NOT_TOLD_YET,
    Append,
    AskOffsets,
    BackOff,
    Fetched,
    StartAnew,
    Truncate,
    after_fetch,
    after_offsets,
    fork_offset,
)


@dataclass
class Log:
    """A log as the epochs of its records, one letter of history per offset."""

    history: list[int] = field(default_factory=list)
    log_start_offset: int = 0
    led_epoch: int = -1
    """A leader notes its epoch before it has written anything."""

    @property
    def log_end_offset(self) -> int:
        return len(self.history)

    @property
    def epochs(self) -> LeaderEpochs:
        starts = [
            EpochStart(epoch, offset)
            for offset, epoch in enumerate(self.history)
            if offset == 0 or self.history[offset - 1] != epoch
        ]
        if self.led_epoch > (starts[-1].epoch if starts else -1):
            starts.append(EpochStart(self.led_epoch, self.log_end_offset))
        return LeaderEpochs(Path("unused"), starts)


def test_what_came_is_stored() -> None:
    assert after_fetch(Fetched(ErrorCode.NONE, first_offset=3), Log([0, 0, 0])) == Append()
    assert after_fetch(Fetched(ErrorCode.NONE), Log([0, 0, 0])) == Append()


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_a_leader_that_cannot_answer_is_asked_again_later(code: ErrorCode) -> None:
    assert after_fetch(Fetched(code), Log([0])) == BackOff(code)


@pytest.mark.parametrize(
    ("code", "is_usual"),
    [
        (ErrorCode.UNKNOWN_TOPIC_ID, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, True),
        (ErrorCode.FENCED_LEADER_EPOCH, True),
        (ErrorCode.KAFKA_STORAGE_ERROR, False),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, False),
        (ErrorCode.INVALID_REQUEST, False),
    ],
)
def test_what_every_new_topic_and_election_brings_is_told_only_if_it_lasts(code: ErrorCode, is_usual: bool) -> None:
    assert (code in NOT_TOLD_YET) == is_usual


def test_out_of_range_asks_for_the_leaders_bounds_first() -> None:
    assert after_fetch(Fetched(ErrorCode.OFFSET_OUT_OF_RANGE), Log([0] * 9)) == AskOffsets()
    assert after_offsets(0, 5, Log([0] * 9)) == Truncate(5), "an unclean leader has lost its tail"
    assert after_offsets(20, 30, Log([0] * 9)) == StartAnew(20), "retention went past this copy"
    assert after_offsets(0, 9, Log([0] * 9)) == Append()
    assert after_offsets(9, 9, Log([0] * 9)) == Append(), "the leader's log begins where this one ends"
    assert after_offsets(10, 10, Log([0] * 9)) == StartAnew(10)
    assert after_offsets(0, 8, Log([0] * 9)) == Truncate(8)


def test_an_empty_copy_of_a_log_that_begins_within_a_batch_takes_the_whole_batch() -> None:
    empty = Log([0] * 7, log_start_offset=7)
    assert after_fetch(Fetched(ErrorCode.NONE, first_offset=5), empty) == StartAnew(5)
    assert after_fetch(Fetched(ErrorCode.NONE, first_offset=7), empty) == Append()


@pytest.mark.parametrize(
    ("mine", "leader_epoch", "leader_end_offset", "expected"),
    [
        ([0, 0, 0, 0], 0, 2, 2),  # the same epoch, which ended earlier at the leader
        ([0, 0, 1, 1], 0, 3, 2),  # the leader has more of epoch 0, this copy's ended at 2
        ([0, 0, 2, 2], 1, 5, 2),  # the leader's epoch 1 is unknown here: cut to where the last common one ended
        ([0, 0, 0], 0, 9, 3),  # nothing to cut
        ([], 0, 4, 0),
        ([0, 0], 0, 0, 0),  # nothing is common
        ([0, 0], -1, 1, 1),
    ],
)
def test_where_histories_part(mine: list[int], leader_epoch: int, leader_end_offset: int, expected: int) -> None:
    assert fork_offset(leader_epoch, leader_end_offset, Log(mine)) == expected
    fetched = Fetched(ErrorCode.NONE, leader_epoch, leader_end_offset)
    assert after_fetch(fetched, Log(mine)) == Truncate(expected)


def common_prefix(one: list[int], other: list[int]) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def cut(copy: Log, leading: Log) -> None:
    """What a follower and a leader do with each other until the follower may append."""
    for _ in range(len(copy.history) + 2):
        latest = copy.epochs.latest_epoch
        if latest < 0:
            return
        epoch, end_offset = leading.epochs.end_offset_for(latest, leading.log_end_offset)
        assert epoch >= 0, "a leader knows of the newest epoch, its own"
        if epoch == latest and end_offset >= copy.log_end_offset:
            return
        offset = fork_offset(epoch, end_offset, copy)
        assert offset < copy.log_end_offset or copy.led_epoch >= 0, "it would ask for ever"
        copy.history, copy.led_epoch = copy.history[:offset], -1


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=20))
def test_cutting_ends_at_what_both_have(steps: list[tuple[int, int, int, bool]]) -> None:
    """Three logs, a new leader in every step that appends a little, and others that fetch a little of it or nothing:
    one who iterates keeps all that is common and nothing else, after any number of leader changes (KIP-279)."""
    logs = [Log(), Log(), Log()]
    for epoch, (leader, appended, fetched, both) in enumerate(steps):
        leading = logs[leader]
        leading.led_epoch = epoch
        leading.history = leading.history + [epoch] * appended
        for number in (1, 2) if both else (1,):
            copy = logs[(leader + number) % 3]
            kept = common_prefix(leading.history, copy.history)
            cut(copy, leading)
            assert copy.history == leading.history[:kept]
            copy.history = copy.history + leading.history[kept : kept + fetched]
