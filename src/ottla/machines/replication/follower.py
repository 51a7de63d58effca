"""A follower's decisions: what to do with what the leader has answered, and where to cut a log that has diverged.

Pure functions of the answer and the log. A log is never cut to the high watermark alone, which lags behind what was
committed: leader epochs tell where two histories part (KIP-101, KIP-279), and a follower that does not know the
leader's epoch cuts to where its own last common one ended and asks again.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ottla.base.errors import ErrorCode


class EpochHistory(Protocol):
    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch not above `epoch`, and where it ends; (-1, -1) if there is none."""


class FollowedLog(Protocol):
    """What of a log decides."""

    log_start_offset: int
    log_end_offset: int

    @property
    def epochs(self) -> EpochHistory: ...


class Fetched(NamedTuple):
    """A leader's answer for one partition."""

    error_code: int
    diverging_epoch: int = -1
    diverging_end_offset: int = -1
    first_offset: int | None = None
    """Of the first batch that came along."""


class Append(NamedTuple):
    """Store what came, if anything did, and take over the leader's high watermark and start."""


class Truncate(NamedTuple):
    offset: int


class StartAnew(NamedTuple):
    """Drop everything: the log goes on at `offset`."""

    offset: int


class AskOffsets(NamedTuple):
    """Ask the leader where its log begins and ends, and go on with `after_offsets`."""


class BackOff(NamedTuple):
    """Try again after a while: the leader has moved, or this broker is about to hear that it has."""

    error_code: int


NOT_TOLD_YET = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
    }
)
"""With every new topic and every election some brokers hear of it before others. It is worth a line if it lasts."""

Step = Append | Truncate | StartAnew | AskOffsets | BackOff


def after_fetch(fetched: Fetched, log: FollowedLog) -> Step:
    if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return AskOffsets()
    if fetched.error_code != ErrorCode.NONE:
        return BackOff(fetched.error_code)
    if fetched.diverging_end_offset >= 0:
        return Truncate(fork_offset(fetched.diverging_epoch, fetched.diverging_end_offset, log))
    is_empty = log.log_start_offset == log.log_end_offset
    if is_empty and fetched.first_offset is not None and fetched.first_offset < log.log_end_offset:
        # The leader's log begins within a batch, which can only be stored as a whole.
        return StartAnew(fetched.first_offset)
    return Append()


def fork_offset(leader_epoch: int, leader_end_offset: int, log: FollowedLog) -> int:
    """Where to cut, if the leader's largest epoch not above our last one is `leader_epoch` and ends there."""
    epoch, end_offset = log.epochs.end_offset_for(leader_epoch, log.log_end_offset)
    if epoch < 0:
        return min(leader_end_offset, log.log_end_offset)
    if epoch == leader_epoch:
        return min(leader_end_offset, end_offset, log.log_end_offset)
    return min(end_offset, log.log_end_offset)


def after_offsets(leader_start_offset: int, leader_end_offset: int, log: FollowedLog) -> Step:
    """The leader does not have what was asked for: it lost its tail (an unclean election) or its beginning."""
    if leader_end_offset < log.log_end_offset:
        return Truncate(leader_end_offset)
    if leader_start_offset > log.log_end_offset:
        return StartAnew(leader_start_offset)
    return Append()
