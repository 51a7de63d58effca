"""Which leader epoch wrote from which offset on (`leader-epoch-checkpoint`): how replicas find where they diverged.

KIP-101 and KIP-279 are the reason for its existence. The file follows every change at once, but is synced only with
the log: entries that a power cut takes are found again in the batches that recovery reads.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from ottla.log.checkpoints import CheckpointError, read_rows, write_rows

FILE_NAME = "leader-epoch-checkpoint"
UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int


class LeaderEpochs:
    """Entries ascend in both fields."""

    def __init__(self, path: Path, entries: list[EpochStart] | None = None) -> None:
        self.path = path
        self._entries: list[EpochStart] = entries or []
        self.latest_epoch = self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH

    @classmethod
    def load(cls, directory: Path) -> LeaderEpochs | None:
        """What the file says; None if there is no file. Raises CheckpointError if it makes no sense."""
        path = directory / FILE_NAME
        rows = read_rows(path, 2)
        if rows is None:
            return None
        try:
            entries = [EpochStart(int(epoch), int(start_offset)) for epoch, start_offset in rows]
        except ValueError as e:
            raise CheckpointError(f"{path} holds something that is no number") from e
        for earlier, later in pairwise(entries):
            if not (earlier.epoch < later.epoch and earlier.start_offset <= later.start_offset):
                raise CheckpointError(f"{path} is out of order at epoch {later.epoch}")
        return cls(path, entries)

    def entries(self) -> list[EpochStart]:
        return list(self._entries)

    @property
    def latest(self) -> EpochStart | None:
        return self._entries[-1] if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> None:
        """Batches from `start_offset` on belong to `epoch`; entries that contradict this are forgotten."""
        latest = self.latest
        if latest is not None and latest.epoch == epoch and latest.start_offset <= start_offset:
            return
        kept = [e for e in self._entries if e.epoch < epoch and e.start_offset < start_offset]
        self._set([*kept, EpochStart(epoch, start_offset)])

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochStart:
        """The largest known epoch not above `epoch`, and where it ends.

        (-1, -1) if the epoch is newer than all that is known, or if nothing is known. For an epoch older than all
        that is known the answer is that epoch itself, ending where the first known one begins.
        """
        if epoch == UNDEFINED_EPOCH or not self._entries or epoch > self.latest_epoch:
            return EpochStart(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if epoch == self.latest_epoch:
            return EpochStart(epoch, log_end_offset)
        above = bisect_right(self._entries, epoch, key=lambda e: e.epoch)
        end_offset = self._entries[above].start_offset
        return EpochStart(self._entries[above - 1].epoch if above else epoch, end_offset)

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch that wrote `offset`; -1 if it is older than all that is known."""
        number = bisect_right(self._entries, offset, key=lambda e: e.start_offset)
        return self._entries[number - 1].epoch if number else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """The log now ends at `end_offset`: epochs that began there or later never happened."""
        kept = [e for e in self._entries if e.start_offset < end_offset]
        if len(kept) != len(self._entries):
            self._set(kept)

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now begins at `start_offset`: the epoch in force there begins with it, earlier ones are gone."""
        above = bisect_right(self._entries, start_offset, key=lambda e: e.start_offset)
        if above and self._entries[0].start_offset < start_offset:
            self._set([EpochStart(self._entries[above - 1].epoch, start_offset), *self._entries[above:]])

    def take_over(self, other: LeaderEpochs) -> None:
        """Become what `other` is: it may know of epochs that have written nothing, which no copied batch tells."""
        if other._entries != self._entries:
            self._set(other.entries())

    def clear(self) -> None:
        if self._entries:
            self._set([])

    def sync(self) -> None:
        """Make the file durable."""
        try:
            fd = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _set(self, entries: list[EpochStart]) -> None:
        write_rows(self.path, [f"{e.epoch} {e.start_offset}" for e in entries], sync=False)
        self._entries = entries
        self.latest_epoch = entries[-1].epoch if entries else UNDEFINED_EPOCH
