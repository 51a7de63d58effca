"""Receipts of many records: made on demand, and found by number wherever the records went."""

from __future__ import annotations

import pytest

from ottla.base.types import TopicPartition
from ottla.client.core.producer.batch import Batch, RecordMetadata
from ottla.client.core.producer.encoded_batch import SentRows, TableReceipt
from ottla.client.core.producer.receipts import Receipt, ReceiptRange
from ottla.client.errors import ClientError, RecordTooLargeError


def batch(records: int, partition: int = 0) -> Batch:
    made = Batch("t", partition, (partition,), opened_ms=0, deadline_ms=1)
    for _ in range(records):
        made.add((None, b"v", (), 1), 10)
    return made


class Receipts(ReceiptRange[Receipt]):
    _kind = Receipt


def receipts() -> tuple[Receipts, Batch, Batch]:
    """Two of the first batch from its second record on, three of the other."""
    first, second = batch(3), batch(3, partition=1)
    found = Receipts()
    found.add(first, 1, 2)
    found.add(second, 0, 3)
    return found, first, second


def places(found: list[Receipt]) -> list[tuple[int, int]]:
    return [(receipt._batch.partition, receipt._index) for receipt in found]


ALL = [(0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


def test_they_are_a_sequence() -> None:
    found, _, _ = receipts()
    assert len(found) == 5
    assert places(list(found)) == ALL
    assert places([found[number] for number in range(-5, 5)]) == ALL * 2
    for number in (-6, 5):
        with pytest.raises(IndexError, match=f"{number} of 5 records"):
            found[number]


@pytest.mark.parametrize("part", [slice(1, 3), slice(None, None, -1), slice(-2, None), slice(9, 20), slice(0, 5, 2)])
def test_a_slice_is_a_list(part: slice) -> None:
    found, _, _ = receipts()
    assert places(found[part]) == ALL[part]


def test_they_are_done_with_the_last_of_their_batches() -> None:
    found, first, second = receipts()
    first.announced = True
    assert not found.done() and found[0].done() and not found[2].done()
    second.announced = True
    assert found.done()


def test_outcomes_are_the_batches() -> None:
    found, first, second = receipts()
    first.succeed(100)
    second.succeed(7)
    assert [metadata.offset for metadata in found._outcomes()] == [101, 102, 7, 8, 9]
    assert found[0]._outcome() == RecordMetadata(*first.metadata(1))


def test_one_culprit_raises_its_own_error_and_never_the_same_object() -> None:
    found, first, _ = receipts()
    first.fail(ClientError("the others"), {2: RecordTooLargeError("this one")})
    with pytest.raises(RecordTooLargeError, match="this one") as raised:
        found[1]._outcome()
    with pytest.raises(RecordTooLargeError) as again:
        found[1]._outcome()
    assert raised.value is not again.value
    with pytest.raises(ClientError, match="the others"):
        found[0]._outcome()


def table(*batches: Batch) -> TableReceipt:
    made = TableReceipt()
    for each in batches:
        made.add(each)
    return made


def test_a_table_is_done_with_the_last_of_its_batches() -> None:
    first, second = batch(2), batch(3, partition=1)
    receipt = table(first, second)
    first.succeed(10)
    first.announce()
    assert not receipt.done()
    assert receipt.stored() == {TopicPartition("t", 0): SentRows(2, 10, 11)}, "as far as is known"
    second.succeed(20)
    assert not receipt.done(), "the callbacks come first"
    second.announce()
    assert receipt.done()
    assert receipt._outcome()[TopicPartition("t", 1)] == SentRows(3, 20, 22)


def test_batches_of_one_partition_are_told_together_and_parts_for_what_was_split() -> None:
    first, second, third = batch(2), batch(4), batch(1)
    parts = [batch(1), batch(3)]
    second.split_into(parts)
    receipt = table(first, second, third)
    for each, offset in ((first, 10), (parts[0], 12), (parts[1], 15), (third, 30)):
        each.succeed(offset)
    assert receipt.stored() == {TopicPartition("t", 0): SentRows(7, 10, 30)}


@pytest.mark.parametrize(("offsets", "told"), [((-1, 5), (5, 6)), ((5, -1), (5, 6)), ((-1, -1), (-1, -1))])
def test_a_batch_whose_place_is_unknown_does_not_hide_that_of_others(
    offsets: tuple[int, int], told: tuple[int, int]
) -> None:
    batches = batch(2), batch(2)
    for each, offset in zip(batches, offsets, strict=True):
        each.succeed(offset)
    assert table(*batches).stored() == {TopicPartition("t", 0): SentRows(4, *told)}


def test_the_first_error_is_that_of_the_table_and_the_other_rows_are_known() -> None:
    first, second = batch(2), batch(3, partition=1)
    parts = [batch(1), batch(1)]
    first.split_into(parts)
    receipt = table(first, second)
    parts[0].succeed(1)
    parts[1].fail(ClientError("full"))
    second.fail(ClientError("also"))
    with pytest.raises(ClientError, match="full") as told:
        receipt._outcome()
    assert told.value is not parts[1].error
    assert receipt.stored() == {TopicPartition("t", 0): SentRows(1, 1, 1)}
