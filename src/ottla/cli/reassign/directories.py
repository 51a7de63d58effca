"""Plans that name log directories: sends replicas there and says how far they are, as Kafka's tool does (KIP-113)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.cli.reassign.plan_file import ANY_DIR, PlannedPartition
from ottla.client.aio.admin.admin import Admin
from ottla.client.core.admin.types import TopicPartitionReplica

TIMEOUT_MS = 10_000
_RETRY_S = 0.1
_WATCH_S = 1.0

Directories = Mapping[TopicPartitionReplica, str]


class DirectoryError(KafkaError):
    """A replica cannot be moved to its directory. Kafka's tool says `summary` and gives no reason."""

    def __init__(self, summary: str, reason: KafkaError) -> None:
        super().__init__(f"{summary}: {reason.message}", code=reason.code)
        self.summary = summary


class Place(NamedTuple):
    """Where a broker has a replica, and where it is copying it to."""

    current: str | None = None
    future: str | None = None


def named_directories(plan: Iterable[PlannedPartition]) -> dict[TopicPartitionReplica, str]:
    return {
        TopicPartitionReplica(*planned.tp, broker_id): path
        for planned in plan
        for broker_id, path in zip(planned.replicas, planned.log_dirs, strict=True)
        if path != ANY_DIR
    }


async def send(admin: Admin, wanted: Directories) -> dict[TopicPartitionReplica, str]:
    """Returns those that are not on their brokers yet. A broker remembers where to put such a replica when it comes."""
    errors = (await admin.alter_replica_log_dirs(wanted)).errors if wanted else {}
    for replica, error in errors.items():
        if error.code != ErrorCode.REPLICA_NOT_AVAILABLE:
            raise DirectoryError(f"Failed to alter dir for {_name(replica)}", error)
    return {replica: wanted[replica] for replica in errors}


async def send_all(admin: Admin, wanted: Directories, pending: Directories, timeout_ms: int = TIMEOUT_MS) -> None:
    """Tells of all, and goes on to send those that are `pending` until each is on its broker."""
    deadline_s = time.monotonic() + timeout_ms / 1000
    _tell({replica: path for replica, path in wanted.items() if replica not in pending})
    while pending:
        if time.monotonic() >= deadline_s:
            names = ",".join(_name(replica) for replica in sorted(pending, key=_order))
            raise KafkaError(
                f"Timed out before log directory move{'' if len(pending) == 1 else 's'} could be started for: {names}",
                code=ErrorCode.REQUEST_TIMED_OUT,
            )
        await asyncio.sleep(_RETRY_S)
        asked, pending = pending, await send(admin, pending)
        _tell({replica: path for replica, path in asked.items() if replica not in pending})


def _tell(sent: Directories) -> None:
    for replica in sorted(sent, key=_order):
        place = f"{replica.topic}-{replica.partition} with broker {replica.node_id}"
        print(f"Successfully started moving log directory to {sent[replica]} for replica {place} ")


async def find_places(admin: Admin, replicas: Iterable[TopicPartitionReplica]) -> dict[TopicPartitionReplica, Place]:
    """Replicas whose brokers do not answer are left out."""
    wanted = list(replicas)
    if not wanted:
        return {}
    described = (await admin.describe_log_dirs(sorted({replica.node_id for replica in wanted}))).results
    found: dict[TopicPartitionReplica, Place] = {}
    for replica in wanted:
        if (directories := described.get(replica.node_id)) is None:
            continue
        tp = TopicPartition(replica.topic, replica.partition)
        paths = {info.replicas[tp].is_future: info.path for info in directories.values() if tp in info.replicas}
        found[replica] = Place(current=paths.get(False), future=paths.get(True))
    return found


async def verify(admin: Admin, wanted: Directories) -> bool:
    """Says where each replica is; True if each has come to rest."""
    places = await find_places(admin, wanted)
    for replica in sorted(wanted, key=_order):
        print(verdict(replica, wanted[replica], places.get(replica)))
    return all(_is_at_rest(places.get(replica)) for replica in wanted)


def verdict(replica: TopicPartitionReplica, wanted: str, place: Place | None) -> str:
    partition = f"Partition {replica.topic}-{replica.partition}"
    if place is None:
        return f"{partition} cannot be found in any live log directory on broker {replica.node_id}."
    if place.current is None:
        return (
            f"{partition} is not found in any live log dir on broker {replica.node_id}. "
            "There is likely an offline log directory on the broker."
        )
    if place.future is None and place.current == wanted:
        return f"Reassignment of replica {_name(replica)} completed successfully."
    on_broker = f"{partition} on broker {replica.node_id}"
    if place.future is None:
        return f"{on_broker} is not being moved from log dir {place.current} to {wanted}."
    if place.future == wanted:
        return f"Reassignment of replica {_name(replica)} is still in progress."
    return f"{on_broker} is being moved to log dir {place.future} instead of {wanted}."


async def watch(admin: Admin, wanted: Directories) -> None:
    """Until none is being copied any more."""
    while any(place.future is not None for place in (await find_places(admin, wanted)).values()):
        await asyncio.sleep(_WATCH_S)


async def cancel(admin: Admin, wanted: Directories) -> bool:
    """Has replicas that are being copied stay where they are; False if there were none."""
    places = await find_places(admin, wanted)
    stay = {
        replica: place.current
        for replica, place in places.items()
        if place.future is not None and place.current is not None
    }
    await send_all(admin, stay, await send(admin, stay))
    return bool(stay)


def _is_at_rest(place: Place | None) -> bool:
    return place is not None and place.current is not None and place.future is None


def _order(replica: TopicPartitionReplica) -> tuple[int, str, int]:
    return replica.node_id, replica.topic, replica.partition


def _name(replica: TopicPartitionReplica) -> str:
    return f"{replica.topic}-{replica.partition}-{replica.node_id}"
