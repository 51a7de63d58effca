"""What compaction knows of transactions as it goes along a log: what was aborted, and which markers are of no use."""

from __future__ import annotations

import pytest

from ottla.log.cleaning.transactions import TransactionWalk
from ottla.log.transaction_index import AbortedTransaction
from ottla.records.batch import read_header
from ottla.records.builder import build_batch
from ottla.records.control import end_transaction_marker

PRODUCER, OTHER = 7, 8


def aborted(first_offset: int, last_offset: int, producer_id: int = PRODUCER) -> AbortedTransaction:
    return AbortedTransaction(producer_id, first_offset, last_offset, last_offset + 1)


class Walk:
    def __init__(self, *transactions: AbortedTransaction) -> None:
        self.walk = TransactionWalk(transactions)

    def data(self, offset: int, count: int = 1, *, producer_id: int = PRODUCER, transactional: bool = True) -> bool:
        """Whether a batch was aborted."""
        records = [(b"k", b"v", (), 0)] * count
        batch = build_batch(
            records, base_offset=offset, producer_id=producer_id, producer_epoch=0, base_sequence=0,
            transactional=transactional,
        )  # fmt: skip
        return self.walk.is_aborted(read_header(batch))

    def marker(self, offset: int, *, commit: bool, producer_id: int = PRODUCER) -> bool:
        """Whether it ends nothing."""
        batch = end_transaction_marker(producer_id, 0, commit, 0, 0, base_offset=offset)
        return self.walk.ends_nothing(read_header(batch), memoryview(batch))


def test_what_lies_before_the_marker_of_an_aborted_transaction_is_aborted() -> None:
    walk = Walk(aborted(10, 20))
    assert not walk.data(5, 5)
    assert walk.data(10)
    assert walk.data(11, 4)
    assert not walk.data(15, transactional=False)
    assert not walk.data(16, producer_id=OTHER)
    assert walk.data(17, 3)
    assert not walk.marker(20, commit=False)
    assert not walk.data(21)


def test_a_transaction_may_begin_within_a_batch_that_compaction_has_made_shorter() -> None:
    walk = Walk(aborted(12, 20))
    assert walk.data(10, 3), "offsets never change, and gaps may lie before the first record"


def test_transactions_are_given_in_any_order() -> None:
    walk = Walk(aborted(30, 40), aborted(10, 20))
    assert [walk.data(10), walk.marker(20, commit=False), walk.data(30), walk.marker(40, commit=False)] == [
        True, False, True, False,
    ]  # fmt: skip
    assert walk.walk.still_aborted == [aborted(10, 20), aborted(30, 40)]


def test_a_walk_may_begin_between_transactions_and_in_the_middle_of_one() -> None:
    walk = Walk(aborted(10, 20), aborted(11, 60, OTHER), aborted(25, 40))
    assert walk.data(50, producer_id=OTHER)
    assert not walk.data(51), "its transactions are over"
    assert not walk.marker(60, commit=False, producer_id=OTHER)


@pytest.mark.parametrize("commit", [False, True])
def test_a_marker_is_of_use_once_for_what_was_seen_of_its_transaction(commit: bool) -> None:
    walk = Walk(*([] if commit else [aborted(10, 20), aborted(22, 30)]))
    assert walk.data(10) is not commit
    assert not walk.marker(20, commit=commit)
    assert walk.marker(30, commit=commit), "nothing is left of the second one"
    assert walk.walk.still_aborted == ([] if commit else [aborted(10, 20)])


def test_what_another_producer_has_written_makes_no_marker_useful() -> None:
    walk = Walk(aborted(10, 20, OTHER))
    assert walk.data(10, producer_id=OTHER)
    assert not walk.data(11)
    assert walk.marker(12, commit=False)
    assert walk.marker(13, commit=True, producer_id=OTHER)
    assert not walk.marker(14, commit=True)
    assert not walk.marker(20, commit=False, producer_id=OTHER)
    assert walk.walk.still_aborted == [aborted(10, 20, OTHER)]


def test_an_abort_that_no_index_tells_of_ends_nothing() -> None:
    walk = Walk()
    assert not walk.data(10)
    assert walk.marker(20, commit=False)


def test_a_marker_without_its_record_and_one_of_another_kind() -> None:
    walk = Walk()
    assert not walk.data(10)
    batch = end_transaction_marker(PRODUCER, 0, True, 0, 0, base_offset=20)
    assert walk.walk.ends_nothing(read_header(batch)._replace(record_count=0), memoryview(b""))
    other = build_batch([(b"\0\0\0\2", b"", (), 0)], control=True, base_offset=21, producer_id=PRODUCER)
    assert not walk.walk.ends_nothing(read_header(other), memoryview(other)), "what it is for is not known here"
    assert not walk.marker(22, commit=True), "nor has it ended the transaction"
