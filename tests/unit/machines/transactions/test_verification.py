"""A partition leader verifies a transaction before it takes the first batch of it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import ErrorCode, KafkaError
from ottla.machines.transactions.verification import Verification, Verifications


@pytest.fixture
def table() -> Verifications:
    return Verifications()


def refusal(table: Verifications, verification: Verification, base_sequence: int) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        table.admit(verification, base_sequence)
    return caught.value.code


def test_a_verified_batch_is_admitted_and_the_table_forgets_it(table: Verifications) -> None:
    verification = table.begin(1, 0, 0)
    assert len(table) == 1
    table.admit(verification, 0)
    table.opened(verification)
    table.release(verification)
    assert len(table) == 0


def test_a_marker_that_comes_first_shuts_the_batch_out(table: Verifications) -> None:
    late = table.begin(1, 0, 5)
    table.marker_appended(1)
    assert refusal(table, late, 5) is ErrorCode.TRANSACTION_ABORTABLE
    table.release(late)
    assert len(table) == 0


def test_the_marker_of_another_producer_does_not(table: Verifications) -> None:
    verification = table.begin(1, 0, 5)
    table.marker_appended(2)
    table.admit(verification, 5)


def test_the_next_transaction_is_verified_anew_while_the_late_batch_still_waits(table: Verifications) -> None:
    late = table.begin(1, 0, 5)
    table.marker_appended(1)
    current = table.begin(1, 0, 6)
    table.admit(current, 6)
    assert refusal(table, late, 5) is ErrorCode.TRANSACTION_ABORTABLE
    table.release(late)
    assert len(table) == 1
    table.admit(current, 6)


def test_batches_that_wait_together_are_appended_in_order(table: Verifications) -> None:
    first = table.begin(1, 0, 10)
    second = table.begin(1, 0, 15)
    assert first is second
    assert refusal(table, second, 15) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    table.admit(first, 10)
    table.opened(first)
    table.release(first)
    table.admit(second, 15)
    table.release(second)
    assert len(table) == 0


def test_a_batch_that_overtook_the_one_before_it_is_not_the_first(table: Verifications) -> None:
    overtaker = table.begin(1, 0, 15)
    first = table.begin(1, 0, 10)
    assert refusal(table, overtaker, 15) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    table.admit(first, 10)


def test_an_end_between_two_batches_shuts_the_second_out_too(table: Verifications) -> None:
    first = table.begin(1, 0, 10)
    second = table.begin(1, 0, 15)
    table.admit(first, 10)
    table.opened(first)
    table.release(first)
    table.marker_appended(1)
    assert refusal(table, second, 15) is ErrorCode.TRANSACTION_ABORTABLE


def test_a_newer_epoch_takes_over_and_an_older_one_is_refused(table: Verifications) -> None:
    old = table.begin(1, 3, 0)
    new = table.begin(1, 4, 0)
    assert refusal(table, old, 0) is ErrorCode.TRANSACTION_ABORTABLE
    table.release(old)
    table.admit(new, 0)
    with pytest.raises(KafkaError) as caught:
        table.begin(1, 3, 0)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_lost_leadership_cancels_everything(table: Verifications) -> None:
    waiting = [table.begin(producer_id, 0, 0) for producer_id in range(3)]
    table.cancel_all()
    assert len(table) == 0
    for verification in waiting:
        assert refusal(table, verification, 0) is ErrorCode.TRANSACTION_ABORTABLE
        table.release(verification)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.integers(0, 1)),
        st.tuples(st.just("marker"), st.integers(0, 1)),
        st.tuples(st.just("append"), st.integers(0, 5)),
        st.tuples(st.just("give up"), st.integers(0, 5)),
    ),
    max_size=30,
)


@settings(max_examples=200)
@given(STEPS)
def test_a_batch_is_admitted_exactly_if_no_marker_came_while_it_waited(steps: list[tuple[str, int]]) -> None:
    table = Verifications()
    markers = [0, 0]
    waiting: list[tuple[int, int, Verification]] = []
    for step, number in steps:
        if step == "begin":
            waiting.append((number, markers[number], table.begin(number, 0, 0)))
        elif step == "marker":
            markers[number] += 1
            table.marker_appended(number)
        elif waiting:
            producer_id, markers_before, verification = waiting.pop(number % len(waiting))
            if step == "append":
                if markers_before == markers[producer_id]:
                    table.admit(verification, 0)
                    table.opened(verification)
                else:
                    assert refusal(table, verification, 0) is ErrorCode.TRANSACTION_ABORTABLE
            table.release(verification)
    for _, _, verification in waiting:
        table.release(verification)
    assert len(table) == 0
