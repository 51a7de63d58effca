"""Which batches belong to aborted transactions, and which markers have nothing left to end, as a walk goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ottla.log.transaction_index import AbortedTransaction
from ottla.records.batch import BatchHeader
from ottla.records.control import ControlType, parse_control_key
from ottla.records.reader import read_records


class TransactionWalk:
    """Is told of every batch of a producer, in the order of the log."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
        self._aborting: dict[int, AbortedTransaction] = {}
        self._seen_aborted: set[int] = set()
        self._seen_committed: set[int] = set()
        self.still_aborted: list[AbortedTransaction] = []
        """Aborted transactions of which batches were seen, since this was emptied last. Readers must know of them."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a data batch belongs to a transaction that was aborted."""
        self._begin_up_to(header)
        if not header.is_transactional:
            return False
        aborting = self._aborting.get(header.producer_id)
        if aborting is not None and aborting.last_offset > header.last_offset:
            self._seen_aborted.add(header.producer_id)
            return True
        self._seen_committed.add(header.producer_id)
        return False

    def ends_nothing(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether a control batch can go: no batch of its transaction is left, or it has no marker any more."""
        self._begin_up_to(header)
        if not header.record_count:
            return True
        kind = parse_control_key(read_records(batch, header)[0].key)
        producer_id = header.producer_id
        if kind is ControlType.ABORT:
            aborted = self._aborting.pop(producer_id, None)
            if aborted is None or producer_id not in self._seen_aborted:
                return True
            self._seen_aborted.discard(producer_id)
            self.still_aborted.append(aborted)
            return False
        if kind is ControlType.COMMIT:
            if producer_id not in self._seen_committed:
                return True
            self._seen_committed.discard(producer_id)
        return False

    def _begin_up_to(self, header: BatchHeader) -> None:
        while self._coming and self._coming[0].first_offset <= header.last_offset:
            transaction = self._coming.popleft()
            # A walk may begin in the middle of a log.
            if transaction.last_offset >= header.base_offset:
                self._aborting[transaction.producer_id] = transaction
