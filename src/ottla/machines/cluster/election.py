"""Who leads a partition: the rules alone, as functions of the replicas, the in-sync set and who is alive."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from ottla.machines.cluster.image import NO_LEADER


class Elected(NamedTuple):
    leader: int
    isr: list[int]
    is_unclean: bool = False


def elect(
    replicas: Sequence[int], isr: Collection[int], live: Collection[int], *, unclean_allowed: bool
) -> Elected | None:
    """The first live replica, in assignment order, that is in sync; None if nobody may lead.

    An unclean leader is in sync with nobody but itself: what it lacks is lost, so it must be asked for.
    """
    for replica in replicas:
        if replica in live and replica in isr:
            return Elected(replica, [member for member in replicas if member in isr and member in live])
    if unclean_allowed:
        for replica in replicas:
            if replica in live:
                return Elected(replica, [replica], is_unclean=True)
    return None


def first_leader(replicas: Sequence[int], live: Collection[int]) -> Elected:
    """The leader of a new partition: all live replicas are in sync, because all are empty."""
    alive = [replica for replica in replicas if replica in live]
    return Elected(alive[0] if alive else NO_LEADER, alive)
