"""The laws of the ledger can be broken: without this, nobody would know that the other tests can fail."""

from __future__ import annotations

import pytest

from tests.interop.groups.ledger import Event, Ledger, Partition

P: Partition = ("t", 0)
Q: Partition = ("t", 1)


def ledger_of(*events: Event) -> Ledger:
    ledger = Ledger()
    for event in events:
        ledger.add(event)
    return ledger


def test_a_partition_with_two_owners_is_noticed_whatever_the_order_of_reports() -> None:
    events = [Event(1, "a", "assigned", frozenset({P, Q})), Event(2, "b", "assigned", frozenset({P}))]
    for reported in (events, events[::-1]):
        with pytest.raises(AssertionError, match="went to b while a had it"):
            ledger_of(*reported).owners()


def test_a_partition_may_be_given_on_once_it_is_free() -> None:
    revoked = Event(2, "a", "revoked", frozenset({P}))
    assigned = Event(3, "b", "assigned", frozenset({P}))
    ledger = ledger_of(assigned, revoked, Event(1, "a", "assigned", frozenset({P, Q})))
    assert ledger.owners() == {P: "b", Q: "a"}
    assert ledger.shares() == {"a": {Q}, "b": {P}}
    assert ledger_of(Event(1, "a", "assigned", frozenset({P})), Event(2, "a", "gone"), assigned).owners() == {P: "b"}


def test_what_a_member_revokes_does_not_take_it_from_its_next_owner() -> None:
    ledger = ledger_of(
        Event(1, "a", "assigned", frozenset({P})),
        Event(2, "a", "gone"),
        Event(3, "b", "assigned", frozenset({P})),
        Event(4, "a", "revoked", frozenset({P})),
    )
    assert ledger.owners() == {P: "b"}


def test_records_count_once_and_have_one_value() -> None:
    ledger = Ledger()
    for offset, value in ((1, b"b"), (0, b"a"), (1, b"b")):
        ledger.add_record(P, offset, value)
    assert ledger.consumed() == {P: [b"a", b"b"]}
    assert ledger.errors == []
    ledger.add_record(P, 1, b"c")
    assert len(ledger.errors) == 1
