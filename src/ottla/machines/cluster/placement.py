"""Where the replicas of new partitions go: spread over brokers, and over racks where all brokers name one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.base.errors import ErrorCode, KafkaError


def place_replicas(
    racks: Mapping[int, str | None],
    *,
    partitions: int,
    replication_factor: int,
    start: int,
    shift: int,
    first_partition: int = 0,
) -> dict[int, list[int]]:
    """Replicas for partitions `first_partition` and on; the first of each list is its preferred leader.

    `racks` holds the usable brokers. `start` and `shift` are the caller's random numbers: they choose the broker of the
    first partition and the distance to its next replica, so that topics do not all pile up on the same brokers.
    """
    if replication_factor < 1:
        raise KafkaError("the replication factor must be at least 1", code=ErrorCode.INVALID_REPLICATION_FACTOR)
    if replication_factor > len(racks):
        raise KafkaError(
            f"replication factor {replication_factor} is larger than the number of available brokers, {len(racks)}",
            code=ErrorCode.INVALID_REPLICATION_FACTOR,
        )
    rack_aware = all(rack is not None for rack in racks.values())
    brokers = _alternate_racks(racks) if rack_aware else sorted(racks)
    rack_count = len(set(racks.values())) if rack_aware else 1
    placed: dict[int, list[int]] = {}
    for index in range(first_partition, first_partition + partitions):
        if index > 0 and index % len(brokers) == 0:
            shift += 1
        placed[index] = _replicas_of(
            index, brokers, racks if rack_aware else {}, rack_count, replication_factor, start, shift
        )
    return placed


def _replicas_of(
    index: int,
    brokers: Sequence[int],
    racks: Mapping[int, str | None],
    rack_count: int,
    replication_factor: int,
    start: int,
    shift: int,
) -> list[int]:
    count = len(brokers)
    first = (index + start) % count
    chosen = [brokers[first]]
    step = 0
    while len(chosen) < replication_factor:
        candidate = brokers[(first + 1 + (shift * rack_count + step) % (count - 1)) % count]
        step += 1
        if candidate not in chosen and not _doubles_a_rack(candidate, chosen, racks, rack_count):
            chosen.append(candidate)
    return chosen


def _doubles_a_rack(candidate: int, chosen: Sequence[int], racks: Mapping[int, str | None], rack_count: int) -> bool:
    """Whether `candidate` is in a rack that has a copy, while some rack has none."""
    if not racks:
        return False
    taken = {racks[broker] for broker in chosen}
    return racks[candidate] in taken and len(taken) < rack_count


def _alternate_racks(racks: Mapping[int, str | None]) -> list[int]:
    """Brokers ordered so that neighbours are in different racks as long as possible."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(str(racks[broker]), []).append(broker)
    ordered: list[int] = []
    depth = 0
    while len(ordered) < len(racks):
        ordered += [members[depth] for _, members in sorted(by_rack.items()) if depth < len(members)]
        depth += 1
    return ordered


def check_assignment(
    assignment: Mapping[int, Sequence[int]], *, first_partition: int, live: Mapping[int, object]
) -> None:
    """Refuses a replica assignment given by hand that has gaps, doubles, dead brokers or uneven replication."""
    expected = list(range(first_partition, first_partition + len(assignment)))
    if sorted(assignment) != expected:
        raise KafkaError(
            f"partitions must be numbered {expected[0]} to {expected[-1]} without gaps, not {sorted(assignment)}",
            code=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        )
    factor = len(assignment[first_partition])
    for partition, replicas in sorted(assignment.items()):
        if not replicas:
            raise _bad_assignment(partition, "has no replicas")
        if len(set(replicas)) != len(replicas):
            raise _bad_assignment(partition, f"names a broker twice: {list(replicas)}")
        if len(replicas) != factor:
            raise _bad_assignment(
                partition, f"has {len(replicas)} replicas, but partition {first_partition} has {factor}"
            )
        unknown = [broker for broker in replicas if broker not in live]
        if unknown:
            raise _bad_assignment(partition, f"names brokers that are not alive: {unknown}")


def _bad_assignment(partition: int, reason: str) -> KafkaError:
    return KafkaError(f"partition {partition} {reason}", code=ErrorCode.INVALID_REPLICA_ASSIGNMENT)
