"""The controller's queue: what is committed, what is noted, who is told, and what happens when one of these fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition, Uuid
from ottla.broker.controller import controller as queue
from ottla.broker.controller import stored_state
from ottla.machines.cluster.controller import ElectionAsked, ElectionKind
from ottla.machines.cluster.image import NO_LEADER
from ottla.machines.cluster.isr_changes import IsrAsked, ProposedIsr
from ottla.machines.cluster.reassignment import ReassignmentAsked
from ottla.machines.cluster.topics import NewTopic
from ottla.metadata import paths
from ottla.metadata.store import Create, Delete, MetadataStore, StoreFailedError
from ottla.wire.apis.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from ottla.wire.apis.stop_replica import StopReplicaRequest
from ottla.wire.apis.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from tests.unit.broker.controller.cluster import Cluster, run, until

T0 = TopicPartition("t", 0)
TOPIC_ID = Uuid(bytes(range(16)))


def anew(*partitions: TopicPartition) -> ElectionAsked:
    return ElectionAsked(partitions, ElectionKind.ANEW)


class TestTakingOver:
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

    def test_who_was_restarted_meanwhile_is_not_in_sync_any_more(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected()
            await cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [1, 2], 1: [2, 1]}))
            assert (await cluster.state("t")).leader_epoch == 0
            await controller.stop()
            await cluster.bounce(1)
            cluster.link.sent.clear()
            again = await cluster.elected(2)
            first, second = await cluster.state("t", 0), await cluster.state("t", 1)
            assert (first.leader, first.leader_epoch, first.isr, first.controller_epoch) == (2, 1, [2], 2)
            assert (second.leader, second.leader_epoch, second.isr, second.controller_epoch) == (2, 1, [2], 2)
            for broker_id, request in (told := cluster.link.take(LeaderAndIsrRequest)):
                assert request.controller_epoch == again.epoch == 2
                assert request.broker_epoch == again.state.brokers[broker_id].epoch
                states = request.topic_states[0].partition_states
                assert [(s.partition_index, s.leader, s.leader_epoch, s.is_new) for s in states] == [
                    (0, 2, 1, False),
                    (1, 2, 1, False),
                ], broker_id
            assert sorted(broker_id for broker_id, _ in told) == [1, 2]
            assert {broker_id for broker_id, _ in cluster.link.take(UpdateMetadataRequest)} == {1, 2, 3}

        run(tmp_path, scenario)

    @pytest.mark.parametrize("as_what", ["is_same_process", "is_clean"])
    def test_who_has_its_whole_log_leads_rather_than_who_was_killed_meanwhile(
        self, tmp_path: Path, as_what: str
    ) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected()
            await cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [1, 2], 1: [2, 1], 2: [3, 2]}))
            await controller.stop()
            await cluster.bounce(1)
            await cluster.bounce(2, **{as_what: True})
            await cluster.elected(3)
            states = [await cluster.state("t", partition) for partition in range(3)]
            assert [(state.leader, state.leader_epoch, state.isr) for state in states] == [
                (2, 1, [2]),
                (2, 1, [2]),
                (3, 0, [3, 2]),
            ]

        run(tmp_path, scenario)

    def test_a_leader_that_comes_back_while_the_state_is_read_is_not_one_that_stayed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected()
            await cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [3, 1, 2]}))
            await controller.stop()
            await cluster.lose(3)
            load = stored_state.load

            async def load_and_see_it_return(store: MetadataStore) -> stored_state.LoadedState:
                loaded = await load(store)
                await cluster.register(3)
                return loaded

            monkeypatch.setattr(stored_state, "load", load_and_see_it_return)
            again = await cluster.elected(2)
            await cluster.settle(again)
            state = await cluster.state("t")
            assert (state.leader, state.leader_epoch, state.isr) == (1, 1, [1, 2])

        run(tmp_path, scenario)

    def test_word_of_its_own_claim_makes_nobody_campaign_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        load = stored_state.load

        async def load_after_a_while(store: MetadataStore) -> stored_state.LoadedState:
            for _ in range(10):
                await store.get(paths.CONTROLLER)
            return await load(store)

        monkeypatch.setattr(stored_state, "load", load_after_a_while)

        async def scenario(cluster: Cluster) -> None:
            controller = cluster.controller(1)
            end = controller.stand_by()
            assert await controller.campaign()
            await cluster.settle(controller)
            assert (controller.epoch, controller.is_active) == (1, True)
            end()

        run(tmp_path, scenario)

    @pytest.mark.parametrize("was_made", [True, False], ids=["only the answer was lost", "nothing was done"])
    def test_a_campaign_that_fails_is_tried_again(
        self, tmp_path: Path, was_made: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(queue, "RETRY_MS", 1)

        async def scenario(cluster: Cluster) -> None:
            await cluster.elected()
            await cluster.controllers[0].stop()
            standing_by = cluster.controller(2)
            end = standing_by.stand_by()
            cluster.store.lost = [was_made]
            await cluster.store.behind_its_back(Delete(paths.CONTROLLER))
            await until(lambda: standing_by.is_active)
            assert standing_by.epoch == (3 if was_made else 2)
            end()

        run(tmp_path, scenario)

    def test_what_happened_while_there_was_none(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected(3)
            await cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [1, 2, 3], 1: [2, 3, 1]}))
            await cluster.admin(controller).create(NewTopic("alone", -1, -1, {0: [1]}))
            await controller.stop()
            await cluster.lose(1)
            await cluster.elected(3)
            states = [await cluster.state(*tp) for tp in (("t", 0), ("t", 1), ("alone", 0))]
            assert [(s.leader, s.isr, s.leader_epoch) for s in states] == [
                (2, [2, 3], 1),
                (2, [2, 3], 1),
                (NO_LEADER, [1], 1),
            ]
            metadata = [request for _, request in cluster.link.take(UpdateMetadataRequest)][-1]
            for topic in metadata.topic_states:
                assert all(state.offline_replicas == [1] for state in topic.partition_states)

        run(tmp_path, scenario)

    def test_whoever_stands_by_takes_over(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            first = await cluster.elected(1)
            second = cluster.controller(2)
            ends = [first.stand_by(), second.stand_by()]
            assert not await second.campaign()
            usurper = await cluster.usurper(3)
            assert usurper.is_active and usurper.epoch == 2
            await until(lambda: not first.is_active)
            await cluster.store.behind_its_back(Delete(paths.CONTROLLER))
            await until(lambda: first.is_active != second.is_active)
            assert max(first.epoch, second.epoch) == 3
            for end in ends:
                end()

        run(tmp_path, scenario)

    @pytest.mark.parametrize("was_made", [True, False])
    def test_one_that_cannot_begin_gives_the_role_back(self, tmp_path: Path, was_made: bool) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected(1)
            await cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [1, 2]}))
            await controller.stop()
            await cluster.store.behind_its_back(Delete(paths.CONTROLLER))
            await cluster.lose(1)
            unlucky = cluster.controller(2)

            async def lose_the_next() -> None:
                cluster.store.lost.append(was_made)

            cluster.store.before_commit += [nothing, lose_the_next]
            with pytest.raises(StoreFailedError):
                await unlucky.campaign()
            assert not unlucky.is_active
            assert await cluster.store.get(paths.CONTROLLER) is None
            assert await unlucky.campaign()
            assert (await cluster.state("t")).leader == 2

        run(tmp_path, scenario)


class TestCommitThenNote:
    def test_a_controller_that_was_replaced_changes_nothing_and_resigns(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            for attempt in range(4):
                old = await cluster.elected(1)
                admin = cluster.admin(old)
                if attempt == 0:
                    await admin.create(NewTopic("kept", 1, 1))
                attempts: list[Callable[[], Awaitable[object]]] = [
                    lambda admin=admin: admin.create(NewTopic("t", 1, 1)),  # type: ignore[misc]
                    lambda admin=admin: admin.add_partitions("kept", 2, None),  # type: ignore[misc]
                    lambda admin=admin: admin.delete("kept"),  # type: ignore[misc]
                    lambda old=old: old.submit(anew(TopicPartition("kept", 0))),  # type: ignore[misc]
                ]
                new = await cluster.usurper(2)
                before = await cluster.store.tree("")
                noted = old.state.partition(TopicPartition("kept", 0))
                cluster.link.sent.clear()
                with pytest.raises(KafkaError) as refused:
                    await attempts[attempt]()
                assert refused.value.code == ErrorCode.NOT_CONTROLLER
                assert await cluster.store.tree("") == before
                assert old.state.partition(TopicPartition("kept", 0)) == noted
                assert (set(old.state.topics), old.state.pending_deletions) == ({"kept"}, set())
                assert cluster.link.sent == [], "nobody may hear of what was not committed"
                assert not old.is_active and new.is_active
                with pytest.raises(KafkaError) as later:
                    await admin.create(NewTopic("other", 1, 1))
                assert later.value.code == ErrorCode.NOT_CONTROLLER

        run(tmp_path, scenario)

    def test_whoever_waits_is_told_of_the_resignation(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            old = await cluster.elected(1)
            await cluster.admin(old).create(NewTopic("t", -1, -1, {0: [2]}))
            cluster.link.held[2] = asyncio.Event()
            deleting = asyncio.ensure_future(cluster.admin(old).delete("t"))
            await until(lambda: "t" in old.state.pending_deletions)
            await cluster.usurper(3)
            refused = [asyncio.ensure_future(cluster.admin(old).create(NewTopic(f"n{n}", 1, 1))) for n in range(3)]
            outcomes = await asyncio.gather(deleting, *refused, return_exceptions=True)
            assert [getattr(outcome, "code", outcome) for outcome in outcomes] == [ErrorCode.NOT_CONTROLLER] * 4

        run(tmp_path, scenario)

    def test_a_partition_that_changed_under_the_controller_is_read_again(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected(1)
            await cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [1, 2, 3]}))
            cluster.store.before_commit.append(lambda: cluster.overwrite("t", isr=[2, 3]))
            await controller.submit(anew(T0))
            stored = await cluster.state("t")
            assert (stored.leader, stored.isr, stored.leader_epoch) == (2, [2, 3], 1), "decided on what is there"
            noted = controller.state.partition(T0)
            assert noted is not None
            assert (noted.leader, noted.isr, noted.leader_epoch) == (2, (2, 3), 1)
            assert noted.partition_epoch == (await cluster.node("t")).version == 2
            assert controller.is_active

        run(tmp_path, scenario)

    def test_what_is_noted_has_the_versions_of_the_store(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected(1)
            admin = cluster.admin(controller)
            await admin.create(NewTopic("t", -1, -1, {index: [1, 2] for index in range(3)}))
            partitions = [TopicPartition("t", index) for index in range(5)]
            await controller.submit(anew(partitions[1]))
            await controller.submit(anew(partitions[1], partitions[2]))
            await admin.add_partitions("t", 4, None)
            await controller.submit(anew(*partitions[:4]))
            await admin.add_partitions("t", 5, None)
            for tp in partitions:
                noted = controller.state.partition(tp)
                assert noted is not None
                assert noted.partition_epoch == (await cluster.node(*tp)).version, tp
            node = await cluster.store.get(paths.topic("t"))
            assert node is not None and controller.state.topics["t"].node_version == node.version == 2

        run(tmp_path, scenario)

    def test_one_that_was_replaced_while_it_could_not_write_says_nothing(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected(1)
            await cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [1, 2]}))
            cluster.store.lost.append(False)
            with pytest.raises(StoreFailedError):
                await controller.submit(anew(T0))
            await cluster.usurper(2)
            cluster.link.sent.clear()
            with pytest.raises(KafkaError) as refused:
                await controller.submit(anew(T0))
            assert refused.value.code == ErrorCode.NOT_CONTROLLER
            await asyncio.sleep(0)
            assert cluster.link.sent == [] and not controller.is_active

        run(tmp_path, scenario)

    def test_a_mistake_of_its_own_does_not_end_the_controller(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected(1)
            await cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [1, 2]}))
            with pytest.raises(KafkaError) as failed:
                await controller.submit(anew(None))  # type: ignore[arg-type]
            assert failed.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
            assert "ElectionAsked could not be handled" in caplog.text
            assert await controller.submit(anew(T0)) == {T0: ErrorCode.NONE}

        run(tmp_path, scenario)

    def test_a_topic_that_somebody_else_made_exists(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected(1)
            made = paths.TopicNode(TOPIC_ID, {0: [2]}, {}, {}).encode()
            cluster.store.before_commit.append(lambda: cluster.store.behind_its_back(Create(paths.topic("t"), made)))
            with pytest.raises(KafkaError) as refused:
                await cluster.admin(controller).create(NewTopic("t", 1, 1))
            assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS

        run(tmp_path, scenario)

    @pytest.mark.parametrize(("changes", "is_given_up"), [(4, False), (5, True)])
    def test_four_changes_meanwhile_are_put_up_with(self, tmp_path: Path, changes: int, is_given_up: bool) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected(1)
            await cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [1, 2]}))
            cluster.store.before_commit += [lambda: cluster.overwrite("t", isr=[1, 2])] * changes
            if is_given_up:
                with pytest.raises(KafkaError, match="given up: the metadata store has changed 5 times meanwhile"):
                    await controller.submit(anew(T0))
            else:
                assert (await controller.submit(anew(T0))) == {T0: ErrorCode.NONE}
            assert not cluster.store.before_commit

        run(tmp_path, scenario)

    def test_a_partition_that_never_holds_still_is_given_up(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected(1)
            await cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [1, 2]}))
            cluster.store.before_commit += [lambda: cluster.overwrite("t", isr=[1, 2])] * 10
            with pytest.raises(KafkaError, match="given up"):
                await controller.submit(anew(T0))
            cluster.store.before_commit.clear()
            assert (await controller.submit(anew(T0))) == {T0: ErrorCode.NONE}

        run(tmp_path, scenario)

    @pytest.mark.parametrize("was_made", [True, False])
    def test_after_a_lost_commit_the_state_is_what_the_store_has(self, tmp_path: Path, was_made: bool) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected(1)
            await cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [1, 2]}))
            cluster.store.lost.append(was_made)
            with pytest.raises(StoreFailedError):
                await controller.submit(anew(T0))
            noted = controller.state.partition(T0)
            assert noted is not None and noted.leader_epoch == 0, "nobody has said that it was made"
            cluster.link.sent.clear()
            await controller.submit(anew(T0))
            await cluster.settle(controller)
            stored = await cluster.state("t")
            noted = controller.state.partition(T0)
            assert noted is not None
            assert noted.leader_epoch == stored.leader_epoch == (2 if was_made else 1)
            assert noted.partition_epoch == (await cluster.node("t")).version
            told = cluster.link.take(LeaderAndIsrRequest)[-1][1].topic_states[0].partition_states[0]
            assert told.leader_epoch == stored.leader_epoch

        run(tmp_path, scenario)

    def test_a_move_ends_although_the_answer_to_its_last_step_was_lost(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected(1)
            await cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [1, 2]}))
            await controller.submit(ReassignmentAsked({T0: (1, 3)}))
            moving = controller.state.partition(T0)
            assert moving is not None and moving.is_being_reassigned
            in_sync = IsrAsked(
                1,
                controller.state.brokers[1].epoch,
                (ProposedIsr(T0, moving.leader_epoch, moving.partition_epoch, (1, 2, 3)),),
            )
            cluster.store.lost.append(True)
            with pytest.raises(StoreFailedError):
                await controller.submit(in_sync)
            assert await controller.submit(in_sync) == {T0: ErrorCode.NONE}
            await cluster.settle(controller)
            moved = controller.state.partition(T0)
            assert moved is not None and moved.replicas == (1, 3) and not moved.is_being_reassigned
            assert (await cluster.state("t")).isr == [1, 3]

        run(tmp_path, scenario)

    @pytest.mark.parametrize("was_made", [True, False])
    def test_a_topic_of_a_lost_commit_is_there_or_not(self, tmp_path: Path, was_made: bool) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected(1)
            admin = cluster.admin(controller)
            cluster.store.lost.append(was_made)
            with pytest.raises(StoreFailedError):
                await admin.create(NewTopic("t", -1, -1, {0: [1, 2]}))
            cluster.link.sent.clear()
            await cluster.settle(controller)
            assert ("t" in controller.state.topics) is was_made
            assert bool(cluster.link.take(LeaderAndIsrRequest)) is was_made, "its replicas learn of it late"

        run(tmp_path, scenario)


class TestBrokers:
    def test_a_lost_broker_leads_nothing(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected(3)
            await cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [1, 2], 1: [2, 1]}))
            await cluster.admin(controller).create(NewTopic("alone", -1, -1, {0: [1], 1: [3]}))
            cluster.link.sent.clear()
            await cluster.lose(1)
            await cluster.settle(controller)
            partitions = (("t", 0), ("t", 1), ("alone", 0), ("alone", 1))
            states = [await cluster.state(*tp) for tp in partitions]
            assert [(s.leader, s.isr, s.leader_epoch) for s in states] == [
                (2, [2], 1),
                (2, [2], 1),
                (NO_LEADER, [1], 1),
                (3, [3], 0),
            ]
            assert {broker_id for broker_id, _ in cluster.link.sent} == {2, 3}, "the dead are not told"
            for _, metadata in cluster.link.take(UpdateMetadataRequest):
                assert [broker.id for broker in metadata.live_brokers] == [2, 3]
            await cluster.register(1)
            await cluster.settle(controller)
            # Its records come back with it; what others lead it has to catch up with first.
            assert [(await cluster.state(*tp)).leader for tp in partitions] == [2, 2, 1, 3]
            roles = [request for broker_id, request in cluster.link.take(LeaderAndIsrRequest) if broker_id == 1]
            told = [(t.topic_name, s.partition_index) for t in roles[-1].topic_states for s in t.partition_states]
            assert sorted(told) == [("alone", 0), ("t", 0), ("t", 1)]

        run(tmp_path, scenario)

    def test_a_broker_that_bounced_is_not_trusted(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected(3)
            await cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [1, 2], 1: [2, 1]}))
            await cluster.admin(controller).create(NewTopic("alone", -1, -1, {0: [1]}))
            await cluster.bounce(1)
            await cluster.settle(controller)
            states = [await cluster.state(*tp) for tp in (("t", 0), ("t", 1), ("alone", 0))]
            assert [(s.leader, s.isr, s.leader_epoch) for s in states] == [(2, [2], 1), (2, [2], 1), (1, [1], 1)]

        run(tmp_path, scenario)

    @pytest.mark.parametrize("was_made", [True, False])
    def test_a_lost_broker_is_not_forgotten_with_a_lost_commit(self, tmp_path: Path, was_made: bool) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected(3)
            await cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [1, 2]}))
            cluster.store.lost += [was_made, was_made]
            await cluster.lose(1)
            await until(lambda: 1 not in controller.state.brokers)
            noted = controller.state.partition(T0)
            stored = await cluster.state("t")
            assert noted is not None
            assert (noted.leader, noted.leader_epoch, list(noted.isr)) == (2, stored.leader_epoch, [2])

        run(tmp_path, scenario)

    @pytest.mark.parametrize("is_allowed", [True, False])
    def test_a_replica_out_of_sync_leads_only_where_that_is_allowed(
        self, tmp_path: Path, is_allowed: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected(3)
            await cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [1, 2]}))
            await cluster.lose(2)
            await cluster.settle(controller)
            assert (await cluster.state("t")).isr == [1]
            await cluster.register(2)
            await cluster.settle(controller)
            if is_allowed:
                cluster.unclean_topics.add("t")
            await cluster.lose(1)
            await cluster.settle(controller)
            state = await cluster.state("t")
            assert (state.leader, state.isr) == ((2, [2]) if is_allowed else (NO_LEADER, [1]))
            assert ("records may be lost" in caplog.text) is is_allowed

        run(tmp_path, scenario)

    def test_in_sync_sets_change_by_the_leaders_wish(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected(3)
            await cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [1, 2, 3]}))
            cluster.link.sent.clear()
            epoch = controller.state.brokers[1].epoch
            wish = IsrAsked(1, epoch, (ProposedIsr(T0, 0, 0, (1, 2)),))
            assert await controller.submit(wish) == {T0: ErrorCode.NONE}
            await cluster.settle(controller)
            stored = await cluster.state("t")
            assert (stored.leader, stored.isr, stored.leader_epoch) == (1, [1, 2], 0)
            assert cluster.link.take(LeaderAndIsrRequest) == []
            assert {broker_id for broker_id, _ in cluster.link.take(UpdateMetadataRequest)} == {1, 2, 3}
            late = IsrAsked(1, epoch, (ProposedIsr(T0, 0, 0, (1, 3)),))
            assert await controller.submit(late) == {T0: ErrorCode.INVALID_UPDATE_VERSION}

        run(tmp_path, scenario)


class TestTelling:
    def test_a_slow_broker_delays_itself_only(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected(1)
            admin = cluster.admin(controller)
            await admin.create(NewTopic("t", -1, -1, {0: [1, 3]}))
            cluster.link.held[3] = asyncio.Event()
            cluster.link.sent.clear()
            for _ in range(5):
                await controller.submit(anew(T0))
            await admin.create(NewTopic("other", -1, -1, {0: [2]}))
            await cluster.settle(controller)
            assert {broker_id for broker_id, _ in cluster.link.sent} == {1, 2}
            cluster.link.sent.clear()
            cluster.link.held.pop(3).set()
            await cluster.settle(controller)
            roles = cluster.link.take(LeaderAndIsrRequest)
            assert [broker_id for broker_id, _ in roles] == [3, 3]
            epochs = [request.topic_states[0].partition_states[0].leader_epoch for _, request in roles]
            assert epochs == [1, 5], "one that was on its way, and then only how things are"
            metadata = cluster.link.take(UpdateMetadataRequest)
            assert {name for _, request in metadata for name in topics_of(request)} == {"t", "other"}

        run(tmp_path, scenario)

    def test_what_could_not_be_sent_is_sent_again(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected(1)
            cluster.link.sent.clear()
            cluster.link.faults[2] = [
                ConnectionRefusedError("nobody is listening"),
                KafkaError(code=ErrorCode.REQUEST_TIMED_OUT),
                LeaderAndIsrResponse(error_code=ErrorCode.STALE_BROKER_EPOCH),
                ValueError("a bug"),
            ]
            await cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [2]}))
            roles = [request for broker_id, request in cluster.link.take(LeaderAndIsrRequest) if broker_id == 2]
            assert len(roles) == 2, "one was refused, the last was taken"
            assert all(request.topic_states[0].partition_states[0].is_new for request in roles)
            assert "nobody is listening" in caplog.text
            assert controller.is_active

        run(tmp_path, scenario)

    def test_a_failed_update_is_not_lost_behind_roles_that_arrived(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected(1)
            cluster.link.sent.clear()
            cluster.link.faults[2] = [LeaderAndIsrResponse(), ConnectionResetError("gone")]
            await cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [2]}))
            assert len([b for b, _ in cluster.link.take(LeaderAndIsrRequest) if b == 2]) == 1
            updates = [request for b, request in cluster.link.take(UpdateMetadataRequest) if b == 2]
            assert [topics_of(request) for request in updates] == [["t"]]

        run(tmp_path, scenario)

    def test_a_broker_that_knows_a_newer_controller_ends_this_one(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected(1)
            cluster.link.faults[2] = [UpdateMetadataResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)]
            await cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [1]}))
            await until(lambda: not controller.is_active)
            with pytest.raises(KafkaError) as refused:
                await controller.submit(anew(T0))
            assert refused.value.code == ErrorCode.NOT_CONTROLLER

        run(tmp_path, scenario)

    def test_a_role_that_was_refused_is_logged(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected(1)
            await cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [1, 2]}))
            topic_id = controller.state.topics["t"].topic_id
            error = LeaderAndIsrPartitionError(partition_index=0, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
            answer = LeaderAndIsrResponse(topics=[LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=[error])])
            cluster.link.faults[2] = [answer]
            with caplog.at_level(logging.WARNING):
                await controller.submit(anew(T0))
                await cluster.settle(controller)
            assert "broker 2 cannot take its role for t-0: KAFKA_STORAGE_ERROR" in caplog.text

        run(tmp_path, scenario)

    def test_a_lost_broker_is_not_waited_for(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected(1)
            cluster.link.held[2] = asyncio.Event()
            creating = asyncio.ensure_future(cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [2, 3]})))
            await until(lambda: "t" in controller.state.topics)
            assert not creating.done()
            await cluster.lose(2)
            await creating
            assert (await cluster.state("t")).leader in (2, 3)
            await cluster.settle(controller)
            assert (await cluster.state("t")).leader == 3

        run(tmp_path, scenario)

    def test_a_topic_that_came_and_went_is_gone_for_a_slow_broker(self, tmp_path: Path) -> None:
        async def scenario(cluster: Cluster) -> None:
            controller = await cluster.elected(1)
            admin = cluster.admin(controller)
            cluster.link.held[3] = asyncio.Event()
            await admin.create(NewTopic("t", -1, -1, {0: [1]}))
            await admin.delete("t")
            cluster.link.sent.clear()
            cluster.link.held.pop(3).set()
            await cluster.settle(controller)
            assert not cluster.link.take(StopReplicaRequest)
            last = [request for _, request in cluster.link.take(UpdateMetadataRequest)][-1]
            assert [s.leader for t in last.topic_states for s in t.partition_states] == [-2]

        run(tmp_path, scenario)


async def nothing() -> None:
    pass


def topics_of(request: UpdateMetadataRequest) -> list[str]:
    return [topic.topic_name for topic in request.topic_states]
