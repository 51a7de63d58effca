"""Logs that cannot be written, made or deleted take their directory along; who waits is told of what was copied."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, LogDirError
from ottla.base.types import TopicPartition, Uuid
from ottla.broker.partition import Partition
from ottla.records.builder import NewRecord, build_batch
from ottla.wire.apis.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from ottla.wire.apis.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from tests.unit.broker.replica_world import BROKER, TOPIC_ID, ReplicaWorld, in_world

TP = TopicPartition("t", 0)
BROKEN = LogDirError("broken")
NEW_ID = Uuid(b"n" * 16)


def breaks(*_: object, **__: object) -> Any:
    raise BROKEN


class Ear:
    """Waits for ever, and counts how often it was tried."""

    def __init__(self) -> None:
        self.tries = 0

    def try_complete(self) -> bool:
        self.tries += 1
        return False

    def expire(self) -> None:
        raise AssertionError("nobody has waited so long")


def batch(offset: int = 0) -> memoryview:
    return memoryview(bytearray(build_batch([NewRecord(b"k", b"v", (), 1)], base_offset=offset)))


async def two_partitions(world: ReplicaWorld) -> tuple[Partition, Partition]:
    first, second = await world.lead("t"), await world.lead("u", Uuid(b"u" * 16))
    assert first.log.directory.parent != second.log.directory.parent
    return first, second


@pytest.mark.parametrize(
    ("method", "append"),
    [
        ("append_as_leader", lambda world, partition: world.append(partition)),
        ("append_own", lambda world, partition: world.replicas.append_own(partition, [b"r"], 0)),
    ],
)
def test_what_cannot_be_appended_takes_the_directory_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, append: Callable[[ReplicaWorld, Partition], Any]
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        first, second = await two_partitions(world)
        monkeypatch.setattr(type(first.log), method, breaks)
        with pytest.raises(LogDirError, match="broken"):
            append(world, first)
        assert (first.is_offline, second.is_offline) == (True, False)
        assert list(world.log_dirs.failed) == [first.log.directory.parent]

    in_world(tmp_path, scenario)


def test_a_log_that_cannot_be_made_is_not_there_and_its_directory_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        first, second = await two_partitions(world)

        def create(*_: object) -> Any:
            world.log_dirs.fail(first.log.directory.parent, BROKEN)
            raise BROKEN

        monkeypatch.setattr(world.log_dirs, "create", create)
        state = LeaderAndIsrPartitionState(partition_index=0, leader=BROKER, isr=[BROKER], replicas=[BROKER])
        topic = LeaderAndIsrTopicState(topic_name="new", topic_id=NEW_ID, partition_states=[state])
        outcome = await world.replicas.apply_leader_and_isr(LeaderAndIsrRequest(topic_states=[topic]))
        assert outcome == {TopicPartition("new", 0): ErrorCode.KAFKA_STORAGE_ERROR}
        assert world.replicas.find("new", 0) is None
        assert (first.is_offline, second.is_offline) == (True, False)

    in_world(tmp_path, scenario)


def test_a_copy_that_was_moved_away_and_cannot_be_deleted_takes_the_directory_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        first, second = await two_partitions(world)
        monkeypatch.setattr(world.log_dirs, "delete", breaks)
        world.replicas.remove_moved_away(TP, TOPIC_ID, 1)
        assert list(world.log_dirs.failed) == [first.log.directory.parent]
        assert world.replicas.find("t", 0) is None and not second.is_offline

    in_world(tmp_path, scenario)


def test_a_replica_that_is_not_here_is_stopped_already(tmp_path: Path) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        for deletes in (False, True):
            state = StopReplicaPartitionState(partition_index=0, leader_epoch=1, delete_partition=deletes)
            topic = StopReplicaTopicState(topic_name="t", partition_states=[state])
            outcome = await world.replicas.apply_stop_replica(StopReplicaRequest(topic_states=[topic]))
            assert outcome == {TP: ErrorCode.NONE}

    in_world(tmp_path, scenario)


def test_who_waits_for_a_partition_looks_again_when_it_was_copied_appended_to_or_lost(tmp_path: Path) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partition = await world.lead("t")
        replicas, ear = world.replicas, Ear()
        parked = replicas._parked
        waiting = parked.park(ear, [partition], 600_000)

        def tries(act: Callable[[], object]) -> int:
            before = ear.tries
            act()
            parked.try_moved()
            return ear.tries - before

        assert tries(lambda: None) == 0
        assert tries(lambda: world.append(partition)) == 1
        assert tries(lambda: replicas.append_own(partition, [b"r"], 0)) == 1
        assert tries(lambda: replicas.isr_changed(partition)) == 1
        assert tries(lambda: replicas.moved(partition)) == 1
        assert tries(lambda: replicas.set_topic_config("t", world.log_config)) == 1
        assert tries(lambda: replicas.set_topic_config("u", world.log_config)) == 0
        assert tries(replicas.drop_roles) == 1
        assert tries(lambda: replicas.isr_changed(partition)) == 0, "it leads no more"
        assert tries(lambda: replicas.append_from_leader(partition, batch(2), 3, 0)) == 1
        assert tries(lambda: replicas.append_from_leader(partition, memoryview(b""), 3, 0)) == 1
        assert tries(lambda: replicas.directory_failed(partition.log.directory.parent, BROKEN)) == 1
        waiting.forget()
        assert tries(lambda: replicas.append_from_leader(partition, memoryview(b""), 3, 0)) == 0

    in_world(tmp_path, scenario)


def test_staged_batches_that_cannot_be_written_take_the_directory_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        first, second = await two_partitions(world)
        dropped: list[bool] = []
        monkeypatch.setattr(type(first.log.stage), "write", breaks)
        uncommitted: Any = type("Replies", (), {"drop_unwritten": lambda self: dropped.append(True)})()
        first.uncommitted = uncommitted
        world.replicas.commit_staged(first, 0)
        assert (first.is_offline, second.is_offline, dropped) == (True, False, [True])
        world.replicas.commit_staged(second, 0)
        assert world.all_failed

    in_world(tmp_path, scenario)
