"""The controller and its topics on the embedded store, with brokers that only write down what they are told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from ottla.base.clock import ManualClock
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import Endpoint, TopicPartition
from ottla.broker.controller import Controller
from ottla.broker.topic_admin import NewTopic, TopicAdmin
from ottla.machines.cluster.image import LEADER_DURING_DELETE, NO_LEADER
from ottla.metadata import paths
from ottla.metadata.embedded import EmbeddedStore
from ottla.metadata.store import BadVersionError, Create, Delete, Operation
from ottla.wire.apis import response_class
from ottla.wire.apis.leader_and_isr import LeaderAndIsrRequest
from ottla.wire.apis.stop_replica import StopReplicaRequest
from ottla.wire.apis.update_metadata import UpdateMetadataRequest
from ottla.wire.message import Request, Response

R = TypeVar("R", bound=Request)


class RecordingLink:
    def __init__(self) -> None:
        self.sent: list[tuple[int, Request]] = []
        self.fails_on: type[Request] | None = None

    async def send(self, broker_id: int, request: Request) -> Response:
        if self.fails_on is not None and isinstance(request, self.fails_on):
            raise ConnectionError("the controller ends here")
        self.sent.append((broker_id, request))
        return response_class(request.API_KEY)()

    def take(self, kind: type[R]) -> list[tuple[int, R]]:
        """What of this kind was sent since the last look, with the receiver."""
        found = [(broker_id, request) for broker_id, request in self.sent if isinstance(request, kind)]
        self.sent = [(broker_id, request) for broker_id, request in self.sent if not isinstance(request, kind)]
        return found


class Cluster:
    """A store with registered brokers, and controllers that compete for it."""

    def __init__(self, store: EmbeddedStore) -> None:
        self.store = store
        self.link = RecordingLink()
        self.unclean_topics: set[str] = set()

    async def register(self, broker_id: int, rack: str | None = None) -> None:
        node = paths.BrokerNode([(Endpoint("PLAINTEXT", f"host{broker_id}", 9092), "PLAINTEXT")], rack)
        await self.store.commit([Create(f"{paths.BROKER_IDS}/{broker_id}", node.encode(0), ephemeral=True)])

    async def lose(self, broker_id: int) -> None:
        await self.store.commit([Delete(f"{paths.BROKER_IDS}/{broker_id}")])

    def controller(self, broker_id: int) -> Controller:
        return Controller(
            broker_id,
            self.store,
            self.link,
            ManualClock(),
            unclean_election_allowed=lambda topic: topic in self.unclean_topics,
        )

    async def elected(self, broker_id: int = 1) -> Controller:
        """A new controller in the place of whoever was it."""
        if await self.store.get(paths.CONTROLLER) is not None:
            await self.store.commit([Delete(paths.CONTROLLER)])
        controller = self.controller(broker_id)
        assert await controller.campaign()
        return controller

    def admin(self, controller: Controller) -> TopicAdmin:
        return TopicAdmin(controller, validate_configs=lambda configs: None, randomness=random.Random(0))

    async def state(self, topic: str, index: int = 0) -> paths.PartitionStateNode:
        node = await self.store.get(paths.partition_state(topic, index))
        assert node is not None
        return paths.PartitionStateNode.decode(node.data)

    async def replicas(self, topic: str) -> dict[int, list[int]]:
        node = await self.store.get(paths.topic(topic))
        assert node is not None
        return paths.TopicNode.decode(node.data).partitions


def run(tmp_path: Path, scenario: Callable[[Cluster], Awaitable[None]], brokers: int = 3) -> None:
    async def start() -> None:
        store = await EmbeddedStore.open(tmp_path / "metadata.db")
        try:
            await store.commit([Create(path) for path in paths.PERSISTENT_PATHS])
            cluster = Cluster(store)
            for broker_id in range(1, brokers + 1):
                await cluster.register(broker_id)
            await scenario(cluster)
        finally:
            await store.close()

    asyncio.run(start())


class TestEpochs:
    def test_only_one_is_elected_and_epochs_grow(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            first = await cluster.elected(1)
            second = cluster.controller(2)
            assert not await second.campaign()
            assert not second.is_active
            with pytest.raises(KafkaError) as refused:
                await cluster.admin(second).create(NewTopic("t", 1, 1))
            assert refused.value.code == ErrorCode.NOT_CONTROLLER
            third = await cluster.elected(3)
            assert (first.epoch, third.epoch) == (1, 2)
            node = await cluster.store.get(paths.CONTROLLER)
            assert node is not None and paths.decode_controller(node.data) == 3

        run(tmp_path, scenario)

    def test_a_controller_that_was_replaced_can_change_nothing(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            old = await cluster.elected(1)
            await cluster.admin(old).create(NewTopic("kept", 1, 1))
            new = await cluster.elected(2)
            before = await cluster.store.tree("")
            admin = cluster.admin(old)
            attempts: list[Callable[[], Awaitable[object]]] = [
                lambda: admin.create(NewTopic("t", 1, 1)),
                lambda: admin.add_partitions("kept", 2, None),
                lambda: admin.delete("kept"),
                lambda: old.elect_leaders([TopicPartition("kept", 0)]),
            ]
            cluster.link.sent.clear()
            for attempt in attempts:
                with pytest.raises(BadVersionError, match=paths.CONTROLLER_EPOCH):
                    await attempt()
            assert await cluster.store.tree("") == before
            assert cluster.link.sent == [], "nobody may hear of what was not committed"
            await cluster.admin(new).add_partitions("kept", 2, None)

        run(tmp_path, scenario)


class TestElection:
    def test_leaders_are_elected_anew_after_a_restart(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected()
            await cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [1, 2], 1: [2, 1]}))
            assert (await cluster.state("t")).leader_epoch == 0
            cluster.link.sent.clear()
            again = await cluster.elected(2)
            first, second = await cluster.state("t", 0), await cluster.state("t", 1)
            assert (first.leader, first.leader_epoch, first.isr, first.controller_epoch) == (1, 1, [1, 2], 2)
            assert (second.leader, second.leader_epoch, second.isr) == (2, 1, [2, 1])
            for broker_id, request in (told := cluster.link.take(LeaderAndIsrRequest)):
                assert request.controller_epoch == again.epoch == 2
                states = request.topic_states[0].partition_states
                assert [(s.partition_index, s.leader, s.leader_epoch, s.is_new) for s in states] == [
                    (0, 1, 1, False),
                    (1, 2, 1, False),
                ], broker_id
            assert [broker_id for broker_id, _ in told] == [1, 2]
            assert {broker_id for broker_id, _ in cluster.link.take(UpdateMetadataRequest)} == {1, 2, 3}

        run(tmp_path, scenario)

    def test_the_next_replica_in_sync_leads_when_a_broker_is_gone(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected(3)
            await cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [1, 2, 3]}))
            await cluster.lose(1)
            await cluster.elected(3)
            state = await cluster.state("t")
            assert (state.leader, state.isr) == (2, [2, 3])
            metadata = [request for _, request in cluster.link.take(UpdateMetadataRequest)][-1]
            assert metadata.topic_states[0].partition_states[0].offline_replicas == [1]

        run(tmp_path, scenario)

    def test_no_leader_when_the_only_replica_is_gone(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected(2)
            await cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [1]}))
            await cluster.lose(1)
            cluster.link.sent.clear()
            await cluster.elected(2)
            state = await cluster.state("t")
            assert (state.leader, state.isr, state.leader_epoch) == (NO_LEADER, [1], 1)
            assert cluster.link.take(LeaderAndIsrRequest) == [], "its broker cannot be told"
            metadata = [request for _, request in cluster.link.take(UpdateMetadataRequest)][-1]
            assert metadata.topic_states[0].partition_states[0].leader == NO_LEADER
            # Its records come back with it.
            await cluster.register(1)
            await cluster.elected(2)
            state = await cluster.state("t")
            assert (state.leader, state.isr, state.leader_epoch) == (1, [1], 2)

        run(tmp_path, scenario)

    @pytest.mark.parametrize("is_allowed", [True, False])
    def test_a_replica_out_of_sync_leads_only_where_that_is_allowed(self, tmp_path: Path, is_allowed: bool) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected(3)
            await cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [1, 2]}))
            await cluster.lose(2)
            controller = await cluster.elected(3)
            assert (await cluster.state("t")).isr == [1]
            await cluster.lose(1)
            await cluster.register(2)
            if is_allowed:
                cluster.unclean_topics.add("t")
            await cluster.elected(3)
            state = await cluster.state("t")
            assert (state.leader, state.isr) == ((2, [2]) if is_allowed else (NO_LEADER, [1]))

        run(tmp_path, scenario)


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

    @pytest.mark.parametrize("ends_at", [UpdateMetadataRequest, StopReplicaRequest])
    def test_what_a_controller_began_the_next_one_finishes(self, tmp_path: Path, ends_at: type[Request]) -> None:
        async def scenario(cluster: Cluster) -> None:
            admin = cluster.admin(await cluster.elected(1))
            for name in ("kept", "doomed"):
                await admin.create(NewTopic(name, 2, 2))
            cluster.link.fails_on = ends_at
            with pytest.raises(ConnectionError):
                await admin.delete("doomed")
            cluster.link.fails_on = None
            assert await cluster.store.children(paths.DELETE_TOPICS) == ["doomed"]
            next_admin = cluster.admin(await cluster.elected(2))
            with pytest.raises(KafkaError) as refused:
                await next_admin.create(NewTopic("doomed", 1, 1))
            assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
            with pytest.raises(KafkaError) as refused:
                await next_admin.add_partitions("doomed", 5, None)
            assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            cluster.link.sent.clear()
            await next_admin.resume_deletions()
            assert await cluster.store.children(paths.DELETE_TOPICS) == []
            assert await cluster.store.children(paths.TOPICS) == ["kept"]
            assert await cluster.store.children(paths.CONFIG_TOPICS) == ["kept"]
            assert cluster.link.take(StopReplicaRequest)
            await next_admin.create(NewTopic("doomed", 1, 1))

        run(tmp_path, scenario)

    def test_a_mark_without_a_topic_is_taken_away(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            mark: Operation = Create(f"{paths.DELETE_TOPICS}/ghost")
            await cluster.store.commit([mark])
            admin = cluster.admin(await cluster.elected())
            await admin.resume_deletions()
            assert await cluster.store.children(paths.DELETE_TOPICS) == []
            await admin.create(NewTopic("ghost", 1, 1))

        run(tmp_path, scenario)
