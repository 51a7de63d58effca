"""Each state of a member against each thing its next heartbeat can find (KIP-848)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ottla.base.types import Uuid
from ottla.machines.groups.consumer.member import CurrentAssignment, MemberState, Partitions
from ottla.machines.groups.consumer.reconciliation import reconcile

TOPIC = Uuid(bytes(15) + b"\x01")
STABLE, UNREVOKED, UNRELEASED = MemberState


def p(*indexes: int) -> Partitions:
    return frozenset((TOPIC, index) for index in indexes)


def stable(epoch: int, assigned: Partitions, previous: int = 4) -> CurrentAssignment:
    return CurrentAssignment(epoch, previous, STABLE, assigned)


def unrevoked(assigned: Partitions, pending: Partitions) -> CurrentAssignment:
    return CurrentAssignment(5, 4, UNREVOKED, assigned, pending)


def unreleased(epoch: int, assigned: Partitions, previous: int = 4) -> CurrentAssignment:
    return CurrentAssignment(epoch, previous, UNRELEASED, assigned)


@dataclass
class Case:
    name: str
    current: CurrentAssignment
    target: Partitions
    expected: CurrentAssignment
    owned: Partitions | None = None
    held_by_others: Partitions = frozenset()
    target_epoch: int = 6
    joins: bool = False


CASES = [
    Case("stable, same epoch", stable(6, p(1)), p(1), stable(6, p(1)), target_epoch=6),
    Case("stable, nothing changes", stable(5, p(1)), p(1), stable(6, p(1), 5)),
    Case("stable, gains what is free", stable(5, p(1)), p(1, 2), stable(6, p(1, 2), 5)),
    Case("stable, waits for what is not", stable(5, p(1)), p(1, 2), unreleased(6, p(1), 5), held_by_others=p(2)),
    Case(
        "stable, gains some and waits for some",
        stable(5, p(1)),
        p(1, 2, 3),
        unreleased(6, p(1, 3), 5),
        held_by_others=p(2),
    ),
    Case("stable, loses, silent", stable(5, p(1, 2)), p(1), unrevoked(p(1), p(2))),
    Case("stable, loses, reports it still", stable(5, p(1, 2)), p(1), unrevoked(p(1), p(2)), owned=p(1, 2)),
    Case("stable, loses what it has not taken up", stable(5, p(1, 2)), p(1), unrevoked(p(1), p(2)), owned=p(1)),
    Case("stable, loses one for another", stable(5, p(1, 2)), p(1, 3), unrevoked(p(1), p(2)), owned=p(1, 2)),
    Case("stable, loses, joins again", stable(5, p(1, 2)), p(1, 3), stable(6, p(1, 3), 5), owned=p(), joins=True),
    Case("unrevoked, silent", unrevoked(p(1), p(2)), p(1, 3), unrevoked(p(1), p(2))),
    Case("unrevoked, reports it still", unrevoked(p(1), p(2, 4)), p(1, 3), unrevoked(p(1), p(2, 4)), owned=p(1, 4)),
    Case("unrevoked, confirms", unrevoked(p(1), p(2)), p(1, 3), stable(6, p(1, 3), 5), owned=p(1)),
    Case(
        "unrevoked, confirms and must wait",
        unrevoked(p(1), p(2)),
        p(1, 3),
        unreleased(6, p(1), 5),
        owned=p(1),
        held_by_others=p(3),
    ),
    Case(
        "unrevoked, confirms, the target moved on and takes more",
        unrevoked(p(1, 3), p(2)),
        p(1),
        unrevoked(p(1), p(3)),
        owned=p(1, 3),
        target_epoch=7,
    ),
    Case(
        "unrevoked, confirms, the target moved on and gives it back",
        unrevoked(p(1), p(2)),
        p(1, 2),
        stable(7, p(1, 2), 5),
        owned=p(1),
        target_epoch=7,
    ),
    Case("unrevoked, joins again", unrevoked(p(1), p(2)), p(1, 3), stable(6, p(1, 3), 5), owned=p(), joins=True),
    Case("unreleased, still held", unreleased(6, p(1), 5), p(1, 2), unreleased(6, p(1), 5), held_by_others=p(2)),
    Case("unreleased, released", unreleased(6, p(1), 5), p(1, 2), stable(6, p(1, 2), 6)),
    Case(
        "unreleased, one of two released",
        unreleased(6, p(1), 5),
        p(1, 2, 3),
        unreleased(6, p(1, 3), 6),
        held_by_others=p(2),
    ),
    Case("unreleased, the target moved on", unreleased(6, p(1), 5), p(1), stable(7, p(1), 6), target_epoch=7),
    Case(
        "unreleased, the target moved on and takes",
        unreleased(6, p(1, 4), 5),
        p(1),
        CurrentAssignment(6, 5, UNREVOKED, p(1), p(4)),
        target_epoch=7,
    ),
    Case(
        "unreleased, the epoch moves although it still waits",
        unreleased(6, p(1), 5),
        p(1, 2),
        unreleased(7, p(1), 6),
        held_by_others=p(2),
        target_epoch=7,
    ),
    Case(
        "unreleased, joins again and still waits",
        unreleased(6, p(1), 5),
        p(1, 2),
        unreleased(6, p(1), 5),
        owned=p(),
        held_by_others=p(2),
        joins=True,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_next_step(case: Case) -> None:
    result = reconcile(
        case.current,
        target_epoch=case.target_epoch,
        target=case.target,
        owned=case.owned,
        is_free=lambda partition: partition not in case.held_by_others,
        owned_is_all=case.joins,
    )
    assert result == case.expected


def test_every_state_is_walked() -> None:
    assert {case.current.state for case in CASES} == set(MemberState) == {case.expected.state for case in CASES}
