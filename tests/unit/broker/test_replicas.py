"""Roles that replicas take and lose, what followers believe, directories that fail, copies that were moved away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError, LogDirError
from ottla.base.types import NIL_UUID, TopicPartition, Uuid
from ottla.broker.partition import Partition
from ottla.log.config import LogConfig
from ottla.machines.replication.isr import ProposeIsr
from ottla.records.builder import NewRecord, build_batch
from ottla.wire.apis.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from ottla.wire.apis.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from tests.unit.broker.replica_world import BROKER, TOPIC_ID, ReplicaWorld, change_isr, in_world

E = ErrorCode
TP = TopicPartition("t", 0)
OTHER, OTHER_ID = 2, Uuid(b"o" * 16)


class Following:
    """Who fetches, and the topic's watcher: both keep what they hear."""

    def __init__(self, world: ReplicaWorld) -> None:
        self.heard: list[tuple[str, int]] = []
        world.replicas.following = self
        world.replicas.watch_topic("t", self)

    def follow(self, partition: Partition) -> None:
        self.heard.append(("follow", partition.leader_id))

    def forget(self, tp: TopicPartition) -> None:
        self.heard.append(("forget", tp.partition))

    def partition_changed(self, partition: Partition) -> None:
        self.heard.append(("changed", partition.leader_id))

    def partition_removed(self, index: int) -> None:
        self.heard.append(("removed", index))

    def news(self) -> list[tuple[str, int]]:
        heard, self.heard = self.heard, []
        return heard


async def give_role(
    world: ReplicaWorld,
    leader: int,
    epoch: int,
    *,
    controller_epoch: int = 1,
    topic_id: Uuid = TOPIC_ID,
    is_new: bool = False,
    replicas: tuple[int, ...] = (BROKER, OTHER),
) -> ErrorCode:
    state = LeaderAndIsrPartitionState(
        partition_index=0, leader=leader, leader_epoch=epoch, isr=[leader], replicas=[*replicas], is_new=is_new
    )
    topic = LeaderAndIsrTopicState(topic_name="t", topic_id=topic_id, partition_states=[state])
    request = LeaderAndIsrRequest(controller_epoch=controller_epoch, topic_states=[topic])
    (outcome,) = (await world.replicas.apply_leader_and_isr(request)).items()
    assert outcome[0] == TP
    return outcome[1]


async def stop(world: ReplicaWorld, epoch: int, *, deletes: bool, controller_epoch: int = 1) -> ErrorCode:
    state = StopReplicaPartitionState(partition_index=0, leader_epoch=epoch, delete_partition=deletes)
    topic = StopReplicaTopicState(topic_name="t", partition_states=[state])
    request = StopReplicaRequest(controller_epoch=controller_epoch, topic_states=[topic])
    return (await world.replicas.apply_stop_replica(request))[TP]


def held(world: ReplicaWorld) -> Partition:
    partition = world.replicas.find("t", 0)
    assert partition is not None
    return partition


def code_of(world: ReplicaWorld) -> ErrorCode:
    """Why it cannot be used here."""
    with pytest.raises(KafkaError) as refused:
        world.replicas.led("t", 0)
    return ErrorCode(refused.value.code)


def batch(offset: int = 0) -> memoryview:
    data = bytearray(build_batch([NewRecord(b"k", b"v", (), 1_700_000_000_000)]))
    data[0:8] = offset.to_bytes(8, "big")
    return memoryview(data)


def test_a_replica_leads_follows_and_is_stopped(tmp_path: Path) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        ears = Following(world)
        assert await give_role(world, BROKER, 3) == E.NONE
        partition = held(world)
        assert world.replicas.led("t", 0) is partition and not held(world).is_following
        assert (partition.leader_id, partition.leader_epoch, partition.leads_since) == (BROKER, 3, 3)
        assert ears.news() == [("forget", 0), ("changed", BROKER)]
        assert await give_role(world, BROKER, 4) == E.NONE
        assert (partition.leader_epoch, partition.leads_since) == (4, 3), "it leads without a break"
        ears.news()
        assert await give_role(world, OTHER, 5) == E.NONE
        assert held(world).is_following
        assert (partition.leader_id, partition.leader_epoch) == (OTHER, 5)
        assert ears.news() == [("follow", OTHER), ("changed", OTHER)]
        assert code_of(world) == E.NOT_LEADER_OR_FOLLOWER
        assert await give_role(world, BROKER, 6) == E.NONE
        assert partition.leads_since == 6
        ears.news()
        assert await stop(world, 5, deletes=True) == E.FENCED_LEADER_EPOCH and ears.news() == []
        assert await stop(world, 6, deletes=False) == E.NONE
        assert (partition.leader, partition.leader_id, held(world).is_following) == (None, -1, False)
        assert ears.news() == [("forget", 0), ("changed", -1)]
        assert await stop(world, 6, deletes=True) == E.NONE
        assert ears.news() == [("forget", 0), ("removed", 0)]
        assert world.replicas.find("t", 0) is None and world.replicas.topics() == []
        assert world.log_dirs.get(TP) is None
        assert await stop(world, 6, deletes=True) == E.NONE and ears.news() == []

    in_world(tmp_path, scenario)


def test_roles_that_are_refused(tmp_path: Path) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        assert await give_role(world, BROKER, 3, replicas=(OTHER,)) == E.UNKNOWN_TOPIC_OR_PARTITION
        assert await give_role(world, BROKER, 3) == E.NONE
        assert await give_role(world, OTHER, 3) == E.STALE_CONTROLLER_EPOCH
        assert await give_role(world, OTHER, 2) == E.STALE_CONTROLLER_EPOCH
        assert await give_role(world, OTHER, 4, topic_id=OTHER_ID) == E.INCONSISTENT_TOPIC_ID
        assert held(world).leader is not None
        world.replicas.drop_roles()
        assert held(world).leader is None
        assert await give_role(world, OTHER, 3) == E.NONE, "its old role is news then"
        for refused in (
            give_role(world, BROKER, 9, controller_epoch=0),
            stop(world, 9, deletes=True, controller_epoch=0),
        ):
            with pytest.raises(KafkaError) as stale:
                await refused
            assert stale.value.code is E.STALE_CONTROLLER_EPOCH
        assert held(world).leader_epoch == 3

    in_world(tmp_path, scenario)


@pytest.mark.parametrize(
    ("on_disk", "asked", "code", "kept"),
    [
        (TOPIC_ID, TOPIC_ID, E.NONE, TOPIC_ID),
        (TOPIC_ID, OTHER_ID, E.INCONSISTENT_TOPIC_ID, TOPIC_ID),
        (TOPIC_ID, NIL_UUID, E.NONE, TOPIC_ID),
        (NIL_UUID, TOPIC_ID, E.NONE, TOPIC_ID),
        (NIL_UUID, NIL_UUID, E.NONE, NIL_UUID),
    ],
)
def test_a_log_that_is_there_belongs_to_its_topic(
    tmp_path: Path, on_disk: Uuid, asked: Uuid, code: ErrorCode, kept: Uuid
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        log = world.log_dirs.create(TP, on_disk, world.log_config)
        assert await give_role(world, BROKER, 0, topic_id=asked) == code
        assert log.topic_id == kept
        assert (world.replicas.find("t", 0) is None) is bool(code)

    in_world(tmp_path, scenario)


def test_who_looks_for_a_partition_elsewhere_is_sent_on(tmp_path: Path) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        assert code_of(world) == E.UNKNOWN_TOPIC_OR_PARTITION
        world.replicas.is_elsewhere = lambda tp: tp == TP
        assert code_of(world) == E.NOT_LEADER_OR_FOLLOWER

    in_world(tmp_path, scenario)


# Directories that fail


def test_a_directory_that_fails_takes_its_partitions_along_and_no_others(tmp_path: Path) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        told: list[str] = []
        world.replicas.on_directory_failed = lambda: told.append("one")
        ears = Following(world)
        first, second = await world.lead("t"), await world.lead("u", OTHER_ID)
        ears.news()
        lost = first.log.directory.parent
        assert second.log.directory.parent != lost
        for _ in range(2):
            world.replicas.directory_failed(lost, LogDirError("broken"))
        assert first.is_offline and first.leader is None and not first.is_following
        assert ears.news() == [("forget", 0), ("changed", BROKER)], "once"
        assert not second.is_offline and world.replicas.led("u", 0) is second
        assert code_of(world) == E.KAFKA_STORAGE_ERROR
        assert await give_role(world, BROKER, 9) == E.KAFKA_STORAGE_ERROR
        assert told
        assert not world.all_failed
        world.replicas.directory_failed(second.log.directory.parent, LogDirError("broken"))
        assert (vars(world)["all_failed"], len(told)) == (True, 2)

    in_world(tmp_path, scenario)


@pytest.mark.parametrize("is_new", [True, False])
def test_a_log_that_may_lie_in_a_failed_directory_is_not_made_anew(tmp_path: Path, is_new: bool) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.log_dirs.fail(world.paths[0], LogDirError("broken"))
        assert await give_role(world, BROKER, 0, is_new=is_new) == (E.NONE if is_new else E.KAFKA_STORAGE_ERROR)
        assert (world.log_dirs.get(TP) is not None) is is_new
        if not is_new:
            assert code_of(world) == E.KAFKA_STORAGE_ERROR
            assert await stop(world, 0, deletes=True) == E.NONE
            assert code_of(world) == E.UNKNOWN_TOPIC_OR_PARTITION

    in_world(tmp_path, scenario)


# Copies


def test_a_follower_believes_no_more_than_it_has(tmp_path: Path) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        assert await give_role(world, OTHER, 0) == E.NONE
        partition = held(world)
        log = partition.log

        def told(records: memoryview, high_watermark: int, start: int = 0) -> tuple[int, int, int]:
            world.replicas.append_from_leader(partition, records, high_watermark, start)
            return log.log_end_offset, log.high_watermark, log.log_start_offset

        nothing = memoryview(b"")
        assert told(batch(0), 9) == (1, 1, 0)
        assert told(batch(1), 1) == (2, 1, 0)
        assert told(nothing, 0) == (2, 1, 0), "it does not go back"
        assert told(nothing, 1, 2) == (2, 1, 0), "what is not committed is not gone"
        assert told(nothing, 1, 1) == (2, 1, 1)
        assert told(nothing, 2, 0) == (2, 2, 1)
        assert told(nothing, 2, 2) == (2, 2, 2)

    in_world(tmp_path, scenario)


def test_records_are_appended_by_leaders_with_enough_replicas(tmp_path: Path) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        assert await give_role(world, BROKER, 0) == E.NONE
        partition = held(world)
        with pytest.raises(KafkaError, match=r"1 replicas are in sync, min\.insync\.replicas is 2") as refused:
            world.append(partition)
        assert refused.value.code is E.NOT_ENOUGH_REPLICAS
        assert world.replicas.append(partition, batch(), requires_all_replicas=False, now_ms=0).last_offset == 0
        change_isr(world.replicas, partition, BROKER, OTHER)
        assert world.append(partition) == 1
        world.replicas.drop_roles()
        with pytest.raises(KafkaError) as refused:
            world.append(partition)
        assert refused.value.code is E.NOT_LEADER_OR_FOLLOWER

    in_world(tmp_path, scenario, LogConfig(segment_index_bytes=4096, min_insync_replicas=2))


def test_fewer_replicas_that_are_enough_commit_at_once(tmp_path: Path) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        assert await give_role(world, BROKER, 0) == E.NONE
        partition = held(world)
        world.replicas.append(partition, batch(), requires_all_replicas=False, now_ms=0)
        before = partition.log.high_watermark
        world.replicas.set_topic_config("t", LogConfig(segment_index_bytes=4096, min_insync_replicas=1))
        assert (before, partition.log.high_watermark) == (0, 1)
        assert partition.log.config.min_insync_replicas == 1
        world.replicas.set_topic_config("nowhere", LogConfig())

    in_world(tmp_path, scenario, LogConfig(segment_index_bytes=4096, min_insync_replicas=2))


@pytest.mark.parametrize("lag_ms", [30_000, 30_001])
def test_a_follower_that_is_behind_for_too_long_is_to_go(tmp_path: Path, lag_ms: int) -> None:
    """By default, too long is more than thirty seconds."""

    async def scenario(world: ReplicaWorld) -> None:
        proposals: list[Any] = []
        world.replicas.propose_isr = lambda partition, proposal: proposals.append(proposal)
        partition = await world.lead("t")
        change_isr(world.replicas, partition, BROKER, OTHER)
        world.replicas.follower_fetched(partition, OTHER, 0, 0, -1)
        world.append(partition)
        world.clock.advance(lag_ms)
        world.replicas.check_lag()
        assert [type(each) for each in proposals] == [ProposeIsr] * (lag_ms > 30_000)
        world.replicas.follower_fetched(partition, OTHER, 1, 0, -1)
        assert partition.log.high_watermark == 1
        world.replicas.drop_roles()
        world.replicas.check_lag()
        with pytest.raises(KafkaError) as refused:
            world.replicas.follower_fetched(partition, OTHER, 1, 0, -1)
        assert refused.value.code is E.NOT_LEADER_OR_FOLLOWER

    in_world(tmp_path, scenario)


# Copies that were moved away


@pytest.mark.parametrize(
    ("topic_id", "epoch", "goes"),
    [(TOPIC_ID, 4, True), (TOPIC_ID, 3, False), (OTHER_ID, 4, False), (NIL_UUID, 4, False)],
)
@pytest.mark.parametrize("is_held", [True, False])
def test_a_copy_that_was_moved_away_under_a_later_epoch_goes(
    tmp_path: Path, is_held: bool, topic_id: Uuid, epoch: int, goes: bool
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        if is_held:
            assert await give_role(world, OTHER, 3) == E.NONE
        else:
            world.log_dirs.create(TP, TOPIC_ID, world.log_config).begin_leader_epoch(3)
        world.replicas.remove_moved_away(TP, topic_id, epoch)
        assert (world.log_dirs.get(TP) is None) is goes
        world.replicas.remove_moved_away(TopicPartition("nowhere", 0), topic_id, epoch)

    in_world(tmp_path, scenario)
