"""Topics that are created, grown and deleted through the controller, on the embedded store."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.machines.cluster.image import LEADER_DURING_DELETE
from ottla.machines.cluster.topics import NewTopic
from ottla.metadata import paths
from ottla.metadata.store import Create
from ottla.wire.apis.leader_and_isr import LeaderAndIsrRequest
from ottla.wire.apis.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from ottla.wire.apis.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from tests.unit.broker.controller.cluster import Cluster, run, until


class TestTopics:
    def test_a_new_topic_is_stored_and_announced(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected()
            cluster.link.sent.clear()
            created = await cluster.admin(controller).create(NewTopic("t", 6, 2, configs={"retention.ms": "1"}))
            assert (created.partitions, created.replication_factor) == (6, 2)
            placed = await cluster.replicas("t")
            leaders = [replicas[0] for replicas in placed.values()]
            assert sorted(leaders) == [1, 1, 2, 2, 3, 3], "leaders are spread"
            assert all(len(set(replicas)) == 2 for replicas in placed.values())
            for broker_id, request in cluster.link.take(LeaderAndIsrRequest):
                states = request.topic_states[0].partition_states
                assert all(state.is_new and broker_id in state.replicas for state in states)
            node = await cluster.store.get(paths.topic_config("t"))
            assert node is not None and paths.decode_config(node.data) == {"retention.ms": "1"}

        run(tmp_path, scenario)

    @pytest.mark.parametrize(
        ("new", "code"),
        [
            (NewTopic("taken", 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS),
            (NewTopic("dotted_name", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (NewTopic("no/path", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (NewTopic("t", 0, 1), ErrorCode.INVALID_PARTITIONS),
            (NewTopic("t", 10_001, 1), ErrorCode.INVALID_PARTITIONS),
            (NewTopic("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
            (NewTopic("t", 1, 1, {0: [1]}), ErrorCode.INVALID_REQUEST),
            (NewTopic("t", -1, -1, {0: [9]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ],
    )
    def test_a_topic_that_is_refused_leaves_nothing(self, tmp_path: Path, new: NewTopic, code: ErrorCode) -> None:
        async def scenario(cluster: Cluster) -> None:
            admin = cluster.admin(await cluster.elected())
            for name in ("taken", "dotted.name"):
                await admin.create(NewTopic(name, 1, 1))
            before = await cluster.store.tree("")
            with pytest.raises(KafkaError) as refused:
                await admin.create(new)
            assert refused.value.code == code
            assert await cluster.store.tree("") == before

        run(tmp_path, scenario)

    def test_only_looked_at(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            admin = cluster.admin(await cluster.elected())
            await admin.create(NewTopic("t", 1, 1))
            before = await cluster.store.tree("")
            cluster.link.sent.clear()
            await admin.create(NewTopic("other", 2, 2), validate_only=True)
            await admin.add_partitions("t", 5, None, validate_only=True)
            assert await cluster.store.tree("") == before
            assert cluster.link.sent == []

        run(tmp_path, scenario)

    def test_added_partitions_go_on_where_the_pattern_stopped(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            admin = cluster.admin(await cluster.elected())
            await admin.create(NewTopic("t", 4, 2))
            first = await cluster.replicas("t")
            cluster.link.sent.clear()
            await admin.add_partitions("t", 9, None)
            grown = await cluster.replicas("t")
            assert {index: grown[index] for index in first} == first
            leaders = [grown[index][0] for index in range(9)]
            assert leaders == [leaders[index % 3] for index in range(9)] and len(set(leaders[:3])) == 3
            for first_leader in (1, 2, 3):
                name = f"begins-at-{first_leader}"
                await admin.create(NewTopic(name, -1, -1, {0: [first_leader]}))
                await admin.add_partitions(name, 4, None)
                spread = [replicas[0] for _, replicas in sorted((await cluster.replicas(name)).items())]
                assert spread == [(first_leader - 1 + index) % 3 + 1 for index in range(4)]
            assert all(len(set(replicas)) == 2 for replicas in grown.values())
            told = {
                state.partition_index
                for _, request in cluster.link.take(LeaderAndIsrRequest)
                for state in request.topic_states[0].partition_states
                if request.topic_states[0].topic_name == "t"
            }
            assert told == {4, 5, 6, 7, 8}
            assert (await cluster.state("t", 8)).leader_epoch == 0

        run(tmp_path, scenario)

    def test_added_partitions_by_hand(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            admin = cluster.admin(await cluster.elected())
            await admin.create(NewTopic("t", -1, -1, {0: [1, 2]}))
            for assignment in ([[1, 2]], [[1, 2], [3]], [[1], [2]], [[1, 1], [2, 3]], [[1, 9], [2, 3]]):
                with pytest.raises(KafkaError) as refused:
                    await admin.add_partitions("t", 3, assignment)
                assert refused.value.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT, assignment
            await admin.add_partitions("t", 3, [[3, 1], [2, 3]])
            assert await cluster.replicas("t") == {0: [1, 2], 1: [3, 1], 2: [2, 3]}
            # What the controller remembers is what the store holds, also after several changes.
            await admin.add_partitions("t", 4, [[1, 3]])
            assert (await cluster.replicas("t"))[3] == [1, 3]

        run(tmp_path, scenario)

    def test_racks_get_one_replica_each(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            for broker_id in range(1, 7):
                await cluster.register(broker_id, rack="ab"[broker_id % 2])
            admin = cluster.admin(await cluster.elected())
            await admin.create(NewTopic("t", 6, 2))
            await admin.add_partitions("t", 12, None)
            for replicas in (await cluster.replicas("t")).values():
                assert {broker_id % 2 for broker_id in replicas} == {0, 1}

        run(tmp_path, scenario, brokers=0)


class TestDeletion:
    def test_everything_of_the_topic_goes(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected()
            admin = cluster.admin(controller)
            empty = {path for path in await cluster.store.tree("") if path != paths.CONTROLLER_EPOCH}
            await admin.create(NewTopic("t", -1, -1, {0: [1, 2], 1: [2, 3]}))
            cluster.link.sent.clear()
            await admin.delete("t")
            assert {path for path in await cluster.store.tree("") if path != paths.CONTROLLER_EPOCH} == empty
            stops = {
                broker_id: [s.partition_index for s in request.topic_states[0].partition_states if s.delete_partition]
                for broker_id, request in cluster.link.take(StopReplicaRequest)
            }
            assert stops == {1: [0], 2: [0, 1], 3: [1]}
            for _, metadata in cluster.link.take(UpdateMetadataRequest):
                assert {s.leader for s in metadata.topic_states[0].partition_states} == {LEADER_DURING_DELETE}
            with pytest.raises(KafkaError) as refused:
                await admin.delete("t")
            assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await admin.create(NewTopic("t", 1, 1))

        run(tmp_path, scenario)

    def test_what_a_controller_began_the_next_one_finishes(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            admin = cluster.admin(await cluster.elected(1))
            for name in ("kept", "doomed"):
                await admin.create(NewTopic(name, 2, 2))
            await cluster.lose(3)
            await admin.delete("doomed")
            assert await cluster.store.children(paths.DELETE_TOPICS) == ["doomed"], "a replica is out of reach"
            controller = await cluster.elected(2)
            admin = cluster.admin(controller)
            with pytest.raises(KafkaError) as refused:
                await admin.create(NewTopic("doomed", 1, 1))
            assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
            with pytest.raises(KafkaError) as refused:
                await admin.add_partitions("doomed", 5, None)
            assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            cluster.link.sent.clear()
            await cluster.register(3)
            await until(lambda: "doomed" not in controller.state.topics)
            assert {broker_id for broker_id, _ in cluster.link.take(StopReplicaRequest)} == {3}
            assert await cluster.store.children(paths.DELETE_TOPICS) == []
            assert await cluster.store.children(paths.TOPICS) == ["kept"]
            assert await cluster.store.children(paths.CONFIG_TOPICS) == ["kept"]
            await admin.create(NewTopic("doomed", 1, 1))

        run(tmp_path, scenario)

    def test_a_replica_that_cannot_be_deleted_keeps_its_topic(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected(3)
            await cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [1, 2]}))
            broken = StopReplicaPartitionError(
                topic_name="t", partition_index=0, error_code=ErrorCode.KAFKA_STORAGE_ERROR
            )
            cluster.link.faults[2] = [UpdateMetadataResponse(), StopReplicaResponse(partition_errors=[broken])]
            deleting = asyncio.ensure_future(cluster.admin(controller).delete("t"))
            await until(lambda: (1, TopicPartition("t", 0)) in controller.state.deleted_replicas)
            await cluster.settle(controller)
            assert await cluster.store.children(paths.TOPICS) == ["t"]
            assert not deleting.done()
            # A restarted broker is told once more.
            await cluster.bounce(2)
            await deleting
            assert await cluster.store.children(paths.TOPICS) == []

        run(tmp_path, scenario)

    def test_a_mark_without_a_topic_is_taken_away(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            await cluster.store.behind_its_back(Create(f"{paths.DELETE_TOPICS}/ghost"))
            admin = cluster.admin(await cluster.elected())
            assert await cluster.store.children(paths.DELETE_TOPICS) == []
            await admin.create(NewTopic("ghost", 1, 1))

        run(tmp_path, scenario)
