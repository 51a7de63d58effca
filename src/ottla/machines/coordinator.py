"""The contract between a coordinator's machine and whatever runs it: decide, then replay.

A machine's `decide` methods look at the state and answer with a Decision: records for the coordinator's log, what to do
once they are committed, and timers. Durable state changes only in `replay`, which is given the same records, now or
when the log is loaded, so recovery and live traffic are one path. Soft state that no log keeps (who waits for a
rebalance, which timers run) may change while deciding.

The runner appends a decision's records as one batch, replays them at once, and performs its effects when the high
watermark has passed the batch. If the append fails it throws the whole machine away and loads it again from the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.wire.message import StoredRecord

Token = object
"""Stands for a request that waits for its reply. The machine only keeps it and hands it back."""

TimerKey = tuple[str, ...]
"""What a timer is for, as in ("session", group id, member id). Setting a key again replaces its timer."""


class CoordinatorRecord(NamedTuple):
    """One record of a coordinator's log; a value of None is a tombstone."""

    key: StoredRecord
    key_version: int
    value: StoredRecord | None
    value_version: int = 0

    def encode(self) -> tuple[bytes, bytes | None]:
        value = None if self.value is None else self.value.encode_versioned(self.value_version)
        return self.key.encode_versioned(self.key_version), value


class Reply(NamedTuple):
    """An effect: answer the request that `token` stands for."""

    token: Token
    response: Any


class SetTimer(NamedTuple):
    key: TimerKey
    delay_ms: int


class CancelTimer(NamedTuple):
    key: TimerKey


@dataclass
class Decision:
    records: list[CoordinatorRecord] = field(default_factory=list)
    effects: list[Any] = field(default_factory=list)
    """Performed in order once the records are committed; at once if there are none. `Reply`, or the machine's own."""
    timers: list[SetTimer | CancelTimer] = field(default_factory=list)
    """Set and cancelled at once."""
    notes: list[str] = field(default_factory=list)
    """What the broker's log should say of the decision once it has taken effect; rare events only."""
    producer: tuple[int, int] | None = None
    """Producer id and epoch, if the records belong to that producer's open transaction."""

    def reply(self, token: Token, response: Any) -> Decision:
        self.effects.append(Reply(token, response))
        return self

    def extend(self, other: Decision) -> Decision:
        self.records += other.records
        self.effects += other.effects
        self.timers += other.timers
        self.notes += other.notes
        return self


class ReplayContext(NamedTuple):
    """Where a record that is replayed stands in the log."""

    offset: int
    producer_id: int
    """The producer of a transactional batch; -1 for any other."""
    producer_epoch: int
    timestamp_ms: int
