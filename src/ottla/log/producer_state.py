"""What each idempotent or transactional producer has written to a partition: duplicates, fencing, open transactions.

`check_*` decides and changes nothing; `apply_*` changes and never refuses, because the batch is in the log by then.
Recovery and replication apply without checking. Snapshots let a restart begin near the end of the log.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from ottla.base.errors import ErrorCode, KafkaError
from ottla.log.checkpoints import replace_file
from ottla.log.producer_snapshot import (
    DUPLICATE_WINDOW,
    NO_OFFSET,
    ProducerEntry,
    SnapshotError,
    StoredBatch,
    decode_snapshot,
    encode_snapshot,
    find_snapshots,
)
from ottla.log.segment_files import SNAPSHOT_SUFFIX, segment_path
from ottla.records.batch import MAX_SEQUENCE, NO_SEQUENCE, BatchHeader
from ottla.records.control import EndMarker

_log = logging.getLogger(__name__)


class CompletedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the marker."""
    is_aborted: bool


def _is_in_open_transaction(stored: StoredBatch, entry: ProducerEntry) -> bool:
    """If it is not, a batch with its sequence numbers is no duplicate: the client gave up the stored one with the
    transaction that has ended, and uses its numbers again. To confirm that batch would lose it."""
    return NO_OFFSET != entry.transaction_first_offset <= stored.first_offset


class ProducerStates:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.entries: dict[int, ProducerEntry] = {}
        self.end_offset = 0
        """The state covers the log up to here (exclusive)."""
        self.first_unstable_offset: int | None = None
        """The first offset of the earliest transaction that is open, or whose marker is not replicated yet."""
        # Both are keyed by the transaction's first offset. Open ones are added in the order of the log.
        self._open: dict[int, int] = {}
        self._unreplicated: dict[int, int] = {}

    # -- decisions -----------------------------------------------------------------------------------------------

    def check_batch(
        self, producer_id: int, producer_epoch: int, base_sequence: int, last_sequence: int, is_transactional: bool
    ) -> StoredBatch | None:
        """May this batch of a client be appended? Returns the stored batch if it is there already."""
        entry = self.entries.get(producer_id)
        if entry is None:
            return None
        batches = entry.batches
        if producer_epoch == entry.producer_epoch:
            last_known = batches[-1].last_sequence if batches else NO_SEQUENCE
            if base_sequence != last_known + 1 and not (base_sequence == 0 and last_known == MAX_SEQUENCE):
                for stored in batches:
                    if stored.base_sequence == base_sequence and stored.last_sequence == last_sequence:
                        if is_transactional and not _is_in_open_transaction(stored, entry):
                            break
                        return stored
                raise KafkaError(
                    f"producer {producer_id} sent sequence {base_sequence}, the last one stored is {last_known}",
                    code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                )
        elif producer_epoch < entry.producer_epoch:
            self._refuse_epoch(producer_id, producer_epoch, entry)
        elif base_sequence != 0:
            raise KafkaError(
                f"producer {producer_id} begins epoch {producer_epoch} with sequence {base_sequence} instead of 0",
                code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            )
        if entry.transaction_first_offset != NO_OFFSET and not is_transactional:
            self.check_not_in_transaction(producer_id)
        return None

    def entry_to_complete(self, producer_id: int, producer_epoch: int, base_sequence: int) -> ProducerEntry | None:
        """The producer's entry, if this batch may be a duplicate of one that the entry lacks (see `recall_batches`)."""
        entry = self.entries.get(producer_id)
        if entry is None or not entry.lacks_earlier or producer_epoch != entry.producer_epoch:
            return None
        if len(entry.batches) == DUPLICATE_WINDOW or base_sequence == entry.last_sequence + 1:
            return None
        return None if any(stored.base_sequence == base_sequence for stored in entry.batches) else entry

    def next_sequence(self, producer_id: int) -> tuple[int, int] | None:
        """Epoch and sequence number that a batch must have to be plainly the next one; None if nothing is plain."""
        entry = self.entries.get(producer_id)
        if entry is None or not entry.batches or entry.transaction_first_offset != NO_OFFSET:
            return None
        return entry.producer_epoch, entry.batches[-1].last_sequence + 1

    def check_not_in_transaction(self, producer_id: int) -> None:
        """A producer must not mix plain batches into its open transaction."""
        entry = self.entries.get(producer_id)
        if entry is not None and entry.transaction_first_offset != NO_OFFSET:
            raise KafkaError(
                f"producer {producer_id} sent a plain batch while its transaction of offset "
                f"{entry.transaction_first_offset} is open",
                code=ErrorCode.INVALID_TXN_STATE,
            )

    def check_marker(self, producer_id: int, producer_epoch: int, marker: EndMarker) -> None:
        """May this transaction marker be appended?"""
        entry = self.entries.get(producer_id)
        if entry is None:
            return
        if producer_epoch < entry.producer_epoch:
            self._refuse_epoch(producer_id, producer_epoch, entry)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                f"a marker of coordinator epoch {marker.coordinator_epoch} came after one of epoch "
                f"{entry.coordinator_epoch}",
                code=ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            )

    @staticmethod
    def _refuse_epoch(producer_id: int, producer_epoch: int, entry: ProducerEntry) -> None:
        raise KafkaError(
            f"producer {producer_id} has epoch {producer_epoch}, the partition has seen epoch {entry.producer_epoch}",
            code=ErrorCode.INVALID_PRODUCER_EPOCH,
        )

    # -- changes -------------------------------------------------------------------------------------------------

    def apply_batch(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        last_sequence: int,
        first_offset: int,
        last_offset: int,
        max_timestamp: int,
        is_transactional: bool,
    ) -> None:
        """A data batch of a producer is in the log."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id, producer_epoch)
        elif producer_epoch != entry.producer_epoch:
            entry.begin_epoch(producer_epoch)
        entry.batches.append(
            StoredBatch(base_sequence, last_sequence, last_offset, last_offset - first_offset, max_timestamp)
        )
        entry.last_timestamp = max_timestamp
        if is_transactional and entry.transaction_first_offset == NO_OFFSET:
            entry.transaction_first_offset = first_offset
            self._open[first_offset] = producer_id
            if self.first_unstable_offset is None:
                self.first_unstable_offset = first_offset

    def apply_marker(
        self, producer_id: int, producer_epoch: int, marker: EndMarker, offset: int, timestamp: int
    ) -> CompletedTransaction | None:
        """A transaction marker is in the log. Returns the transaction it ends, if that had any batch here."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id, producer_epoch)
        elif producer_epoch != entry.producer_epoch:
            entry.begin_epoch(producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = timestamp
        first_offset = entry.transaction_first_offset
        if first_offset == NO_OFFSET:
            return None
        entry.transaction_first_offset = NO_OFFSET
        self._open.pop(first_offset, None)
        self._unreplicated[first_offset] = offset
        return CompletedTransaction(producer_id, first_offset, offset, not marker.commit)

    def last_stable_offset_after(self, completed: CompletedTransaction) -> int:
        """Where the last stable offset goes once `completed` is replicated."""
        return next(iter(self._open), completed.last_offset + 1)

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Markers below the high watermark are replicated: their transactions hold nobody back any more."""
        if self._unreplicated:
            self._unreplicated = {
                first: marker for first, marker in self._unreplicated.items() if marker >= high_watermark
            }
            self._refresh_unstable()

    def log_start_moved(self, log_start_offset: int) -> None:
        """Transactions that ended below the start of the log are forgotten; producers are not."""
        self.high_watermark_moved(log_start_offset)
        self.end_offset = max(self.end_offset, log_start_offset)

    def _refresh_unstable(self) -> None:
        candidates = [*self._unreplicated]
        first_open = next(iter(self._open), None)
        if first_open is not None:
            candidates.append(first_open)
        self.first_unstable_offset = min(candidates, default=None)

    @property
    def has_seen_markers(self) -> bool:
        """Whether a transaction of a producer that is still known has ended in this log."""
        return any(entry.has_ended_transaction for entry in self.entries.values())

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that were silent for longer than `expiration_ms`, unless a transaction is open."""
        expired = [
            entry.producer_id
            for entry in self.entries.values()
            if entry.transaction_first_offset == NO_OFFSET and now_ms - entry.last_timestamp > expiration_ms
        ]
        for producer_id in expired:
            del self.entries[producer_id]
        return len(expired)

    def clear(self, end_offset: int) -> None:
        self.entries.clear()
        self._open.clear()
        self._unreplicated.clear()
        self.first_unstable_offset = None
        self.end_offset = end_offset

    def take_over(self, other: ProducerStates) -> None:
        """Become what `other` is, which describes the same log and is not used any more."""
        self.entries = other.entries
        self._open = other._open
        self._unreplicated = other._unreplicated
        self.first_unstable_offset = other.first_unstable_offset
        self.end_offset = other.end_offset

    def replay(self, header: BatchHeader, marker: EndMarker | None) -> CompletedTransaction | None:
        """Apply a batch read back from the log; `marker` is what a control batch says."""
        completed = None
        if header.producer_id >= 0:
            if not header.is_control:
                self.apply_batch(
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    header.last_sequence,
                    header.base_offset,
                    header.last_offset,
                    header.max_timestamp,
                    header.is_transactional,
                )
            elif marker is not None:
                completed = self.apply_marker(
                    header.producer_id, header.producer_epoch, marker, header.base_offset, header.max_timestamp
                )
        self.end_offset = header.next_offset
        return completed

    # -- snapshots -----------------------------------------------------------------------------------------------

    def take_snapshot(self, *, sync: bool = False) -> None:
        """Write the state to the snapshot file that is named by the offset it ends at."""
        path = segment_path(self.directory, self.end_offset, SNAPSHOT_SUFFIX)
        replace_file(path, encode_snapshot(list(self.entries.values())), sync=sync)

    def load_newest_snapshot(self, start_offset: int, max_offset: int, *, keep_newer: bool = False) -> None:
        """Begin from the newest snapshot that is valid and ends in [start_offset, max_offset], or from nothing.

        Snapshots that cannot be trusted are removed, and unless `keep_newer` says otherwise those beyond the range.
        """
        for offset, path in sorted(find_snapshots(self.directory).items(), reverse=True):
            if offset > max_offset:
                if not keep_newer:
                    path.unlink(missing_ok=True)
                continue
            if offset < start_offset:
                break
            try:
                entries = decode_snapshot(path.read_bytes())
            except SnapshotError as e:
                _log.warning("%s is dropped: %s", path, e)
                path.unlink(missing_ok=True)
                continue
            self.clear(offset)
            self.entries = {entry.producer_id: entry for entry in entries}
            open_now = [e for e in entries if e.transaction_first_offset != NO_OFFSET]
            open_now.sort(key=lambda e: e.transaction_first_offset)
            self._open = {e.transaction_first_offset: e.producer_id for e in open_now}
            self._refresh_unstable()
            return
        self.clear(start_offset)
