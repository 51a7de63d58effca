"""Decisions that are too large for one commit: what is stored when all goes well, and what the next controller makes of
a half."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.errors import KafkaError
from ottla.broker.controller import committing
from ottla.machines.cluster.topics import NewTopic
from ottla.metadata import paths
from ottla.metadata.store import Check, Delete
from tests.unit.broker.controller.cluster import Cluster, run

PARTITIONS = 12


@pytest.fixture(autouse=True)
def small_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "BYTES_MAX", 2_000)


async def assert_whole(cluster: Cluster) -> None:
    for index in range(PARTITIONS):
        assert (await cluster.state("t", index)).leader in (1, 2, 3)


def test_each_part_is_guarded_and_all_of_them_are_stored(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        controller = await cluster.elected()
        cluster.store.commits.clear()
        await cluster.admin(controller).create(NewTopic("t", PARTITIONS, 3))
        commits = cluster.store.commits
        assert len(commits) > 2
        guards = [commit[0] for commit in commits]
        assert all(isinstance(guard, Check) and guard.path == paths.CONTROLLER_EPOCH for guard in guards)
        await assert_whole(cluster)
        known = controller.state.topics["t"].partitions
        assert [known[index].partition_epoch for index in range(PARTITIONS)] == [0] * PARTITIONS

    run(tmp_path, scenario)


def test_a_topic_of_which_a_part_was_stored_is_completed_by_the_next_controller(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        controller = await cluster.elected()

        async def nothing() -> None: ...

        async def lose_it() -> None:
            cluster.store.lost.append(False)

        cluster.store.before_commit += [nothing, nothing, lose_it]
        with pytest.raises(KafkaError, match="lost"):
            await cluster.admin(controller).create(NewTopic("t", PARTITIONS, 3))
        stored = await cluster.store.children(f"{paths.topic('t')}/partitions")
        assert 0 < len(stored) < PARTITIONS, "the test stopped it in the middle"
        # One of which only the first of its two nodes is there.
        await cluster.store.behind_its_back(Delete(paths.partition_state("t", int(stored[0]))))
        successor = await cluster.elected(2)
        await cluster.settle(successor)
        await assert_whole(cluster)

    run(tmp_path, scenario)


def test_a_refusal_in_the_middle_has_everything_read_again(tmp_path: Path) -> None:
    topics = [f"t{number}" for number in range(10)]

    async def scenario(cluster: Cluster) -> None:
        controller = await cluster.elected()
        for topic in topics:
            await cluster.admin(controller).create(NewTopic(topic, 1, 3))

        async def nothing() -> None: ...

        async def change_last() -> None:
            await cluster.overwrite(topics[-1], isr=[1, 2, 3])

        cluster.store.before_commit += [nothing, change_last]
        await cluster.lose(3)
        await cluster.settle(controller)
        for topic in topics:
            stored = await cluster.state(topic)
            assert stored.leader in (1, 2) and 3 not in stored.isr
            assert controller.state.topics[topic].partitions[0].isr == tuple(stored.isr)

    run(tmp_path, scenario)


def test_a_removal_that_stopped_half_way_is_gone_on_with(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        controller = await cluster.elected()
        await cluster.admin(controller).create(NewTopic("t", PARTITIONS, 3))

        async def nothing() -> None: ...

        async def lose_it() -> None:
            cluster.store.lost.append(False)

        # The first commit marks the topic; the removal is what follows.
        cluster.store.before_commit += [nothing, nothing, lose_it]
        await cluster.admin(controller).delete("t")
        assert not cluster.store.before_commit and not cluster.store.lost
        assert await cluster.store.tree(paths.topic("t")) == {}
        assert await cluster.store.children(paths.DELETE_TOPICS) == []

    run(tmp_path, scenario)
