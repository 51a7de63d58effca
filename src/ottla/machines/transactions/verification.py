"""The partition leader's guard against transactional batches that come too late (KIP-890, part 1).

Before the first batch of a transaction is appended, the leader asks the coordinator whether the partition is in it.
While it waits, the transaction may end: then the marker is in the log, the answer is out of date, and the batch would
open a transaction that nobody will ever end. So a verification is begun before the question is asked, every marker
cancels the one of its producer, and a batch is admitted only on one that is not cancelled.

    verification = verifications.begin(producer_id, producer_epoch, base_sequence)
    try:
        ...ask the coordinator...
        verifications.admit(verification, base_sequence)      # raises if it came to nothing
        ...append, in the same step...
        verifications.opened(verification)
    finally:
        verifications.release(verification)

None of this is needed while the log has an open transaction of that producer and epoch, which is the common case.
The table knows only producers that are being verified. It asks nobody and appends nothing.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode, KafkaError


class Verification:
    """Shared by all batches of one producer and epoch that wait for the coordinator at the same time."""

    __slots__ = ("holders", "is_cancelled", "is_open", "lowest_sequence", "producer_epoch", "producer_id")

    def __init__(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.lowest_sequence = base_sequence
        self.holders = 0
        self.is_open = False
        """A batch was admitted and appended: the log knows the transaction."""
        self.is_cancelled = False


class Verifications:
    """One per partition and leadership; a broker that loses the partition calls `cancel_all`."""

    def __init__(self) -> None:
        self._by_producer: dict[int, Verification] = {}

    def __len__(self) -> int:
        return len(self._by_producer)

    def begin(self, producer_id: int, producer_epoch: int, base_sequence: int) -> Verification:
        """Call before the coordinator is asked. Raises INVALID_PRODUCER_EPOCH if a newer epoch is being verified."""
        verification = self._by_producer.get(producer_id)
        if verification is not None and verification.producer_epoch != producer_epoch:
            if producer_epoch < verification.producer_epoch:
                raise KafkaError(
                    f"producer {producer_id} has epoch {producer_epoch}, and epoch {verification.producer_epoch} is "
                    "about to write here",
                    code=ErrorCode.INVALID_PRODUCER_EPOCH,
                )
            verification.is_cancelled = True
            verification = None
        if verification is None:
            verification = Verification(producer_id, producer_epoch, base_sequence)
            self._by_producer[producer_id] = verification
        elif base_sequence < verification.lowest_sequence:
            verification.lowest_sequence = base_sequence
        verification.holders += 1
        return verification

    def admit(self, verification: Verification, base_sequence: int) -> None:
        """Call right before the append, with no wait between the two. Raises if the batch must not be appended."""
        if verification.is_cancelled:
            raise KafkaError(
                f"the transaction of producer {verification.producer_id} ended before this batch could be appended; "
                "abort the transaction, if one is open, and send the records again in a new one",
                code=ErrorCode.TRANSACTION_ABORTABLE,
            )
        if not verification.is_open and base_sequence > verification.lowest_sequence:
            # With nothing of the producer in the log any first sequence would do, even that of a batch which has
            # overtaken the one before it.
            raise KafkaError(
                f"producer {verification.producer_id} sent sequence {base_sequence} before sequence "
                f"{verification.lowest_sequence} was stored",
                code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            )

    def opened(self, verification: Verification) -> None:
        """The admitted batch is in the log: from here on the log's own sequence checks apply."""
        verification.is_open = True

    def release(self, verification: Verification) -> None:
        """A batch that held the verification is done with it, one way or the other. Once for each `begin`."""
        verification.holders -= 1
        if verification.holders == 0 and self._by_producer.get(verification.producer_id) is verification:
            del self._by_producer[verification.producer_id]

    def marker_appended(self, producer_id: int) -> None:
        """A transaction of the producer has ended here, so what is being verified may belong to the past."""
        verification = self._by_producer.pop(producer_id, None)
        if verification is not None:
            verification.is_cancelled = True

    def cancel_all(self) -> None:
        """The partition has another leader: what is in its log now is not for this table to say."""
        for verification in self._by_producer.values():
            verification.is_cancelled = True
        self._by_producer.clear()
