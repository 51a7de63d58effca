"""How one member walks from what it holds to its target, a heartbeat at a time (KIP-848). Pure arithmetic on sets.

The order is what keeps two members from holding one partition: a member first confirms what it gave up, then takes the
target's epoch, and is given new partitions only when nobody holds them any more.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.machines.groups.consumer.member import CurrentAssignment, IdPartition, MemberState, Partitions


def reconcile(
    current: CurrentAssignment,
    *,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    is_free: Callable[[IdPartition], bool],
    owned_is_all: bool = False,
) -> CurrentAssignment:
    """The member's next step; the same value if there is none now.

    `owned` is what the member says it holds, None if it did not say. With `owned_is_all` it cannot be taking up
    anything else this moment, because it is about to join. `is_free` tells whether no other member holds a partition.
    """
    match current.state:
        case MemberState.STABLE if current.epoch == target_epoch:
            return current
        case MemberState.UNREVOKED if owned is None or owned & current.pending_revocation:
            return current
    return _next_step(current, target_epoch, target, is_free, owned if owned_is_all else None)


def _next_step(
    current: CurrentAssignment,
    target_epoch: int,
    target: Partitions,
    is_free: Callable[[IdPartition], bool],
    held: Partitions | None,
) -> CurrentAssignment:
    kept = current.assigned & target
    to_revoke = current.assigned - target
    # Even if the member does not list a partition as its own, it may be taking it up this moment: it has been told to
    # hold it. Only its next heartbeat, sent after it was told otherwise, proves that it does not.
    if held is not None:
        to_revoke &= held
    if to_revoke:
        return CurrentAssignment(
            current.epoch, current.previous_epoch, MemberState.UNREVOKED, kept, pending_revocation=to_revoke
        )
    wanted = target - kept
    granted = frozenset(partition for partition in wanted if is_free(partition))
    state = MemberState.STABLE if granted == wanted else MemberState.UNRELEASED
    moved = CurrentAssignment(target_epoch, current.epoch, state, kept | granted)
    is_same = state is current.state and moved.assigned == current.assigned and current.epoch == target_epoch
    return current if is_same else moved
