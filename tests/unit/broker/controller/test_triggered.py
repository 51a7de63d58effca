"""A controller that listens to what old tools write into the store, from its election to its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.base.clock import ManualClock
from ottla.base.types import TopicPartition, Uuid
from ottla.broker.controller.controller import Controller
from ottla.broker.controller.triggers import TriggerRules
from ottla.machines.cluster.topics import NewTopic
from ottla.metadata import paths
from ottla.metadata.store import Create, Delete
from tests.unit.broker.controller.cluster import Cluster, run

TOPIC_ID = Uuid(bytes(range(16)))
RULES = TriggerRules(topic_id=lambda name: TOPIC_ID, deletion_allowed=lambda: True)


def listening(cluster: Cluster, triggers: TriggerRules | None = RULES) -> Controller:
    store: Any = cluster.store
    made = Controller(
        1, store, cluster.link, ManualClock(), unclean_election_allowed=lambda topic: False, triggers=triggers
    )
    cluster.controllers.append(made)
    return made


async def settled(cluster: Cluster, controller: Controller) -> None:
    for _ in range(3):
        await cluster.settle(controller)


@pytest.mark.parametrize("triggers", [RULES, None])
def test_a_topic_that_is_to_be_deleted_goes_if_somebody_listens(tmp_path: Path, triggers: TriggerRules | None) -> None:
    async def scenario(cluster: Cluster) -> None:
        controller = listening(cluster, triggers)
        assert await controller.campaign()
        await cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [1, 2]}))
        await cluster.store.behind_its_back(Create(f"{paths.DELETE_TOPICS}/t"))
        await settled(cluster, controller)
        await controller.deleted("t")
        is_gone = triggers is not None
        assert ("t" not in controller.state.topics) is is_gone
        assert (await cluster.store.children(paths.DELETE_TOPICS) == []) is is_gone

    run(tmp_path, scenario)


@pytest.mark.parametrize("is_early", [True, False])
def test_a_move_is_made_whenever_it_was_written_and_its_node_goes_when_it_is_done(
    tmp_path: Path, is_early: bool
) -> None:
    async def scenario(cluster: Cluster) -> None:
        first = await cluster.elected(2)
        await cluster.admin(first).create(NewTopic("t", -1, -1, {0: [1, 2]}))
        data = paths.encode_reassignments({TopicPartition("t", 0): [2]})
        written = Create(paths.REASSIGNMENTS, data)
        await first.stop()
        await cluster.store.behind_its_back(Delete(paths.CONTROLLER))
        if is_early:
            await cluster.store.behind_its_back(written)
        controller = listening(cluster)
        assert await controller.campaign()
        if not is_early:
            await cluster.store.behind_its_back(written)
        await settled(cluster, controller)
        assert await cluster.replicas("t") == {0: [2]}
        assert (await cluster.state("t")).leader == 2
        assert await cluster.store.get(paths.REASSIGNMENTS) is None

    run(tmp_path, scenario)


def test_who_has_resigned_listens_no_more(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        controller = listening(cluster)
        assert await controller.campaign()
        await cluster.settle(controller)
        controller.resign()
        await cluster.store.behind_its_back(Create(f"{paths.DELETE_TOPICS}/t"))
        assert controller._queue.empty()

    run(tmp_path, scenario)
