"""A broker's registration through the sessions of its store."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.base.clock import ManualClock
from ottla.base.types import Endpoint
from ottla.broker import registration
from ottla.broker.registration import Registration
from ottla.broker.tasks import Tasks
from ottla.machines.cluster.image import BrokerImage, ClusterImage
from ottla.metadata import paths
from ottla.metadata.embedded import EmbeddedStore
from ottla.metadata.store import Create, MetadataStore, SessionEvent
from tests.unit.broker.controller.cluster import FaultyStore
from tests.waiting import run_async, until

OWN_PATH = f"{paths.BROKER_IDS}/1"


class Roles:
    """What a session that is lost takes along, and what the next one brings back."""

    def __init__(self) -> None:
        self.broker_epoch = -1
        self.seen: list[str] = []

    def resign(self) -> None:
        self.seen.append("resigned")

    def drop_roles(self) -> None:
        self.seen.append("no roles")

    def look_out(self) -> None:
        self.seen.append("looks for a controller")


class Opinion:
    """What peers say of this broker."""

    def __init__(self) -> None:
        self.is_given_up = False
        self.asked = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def __call__(self) -> bool:
        self.asked += 1
        await self.may_answer.wait()
        return self.is_given_up


def _registration(
    store: MetadataStore, roles: Roles, tasks: Tasks, opinion: Opinion, image: ClusterImage
) -> Registration:
    node = paths.BrokerNode([(Endpoint("PLAINTEXT", "here", 9092), "PLAINTEXT")], None)
    return Registration(
        1,
        store,
        ManualClock(),
        tasks,
        describe=lambda: node,
        orders=roles,  # type: ignore[arg-type]
        replicas=roles,  # type: ignore[arg-type]
        controller=roles,  # type: ignore[arg-type]
        image=image,
        is_given_up=opinion,
        on_orphaned=lambda: None,
    )


def test_who_is_cut_off_has_no_roles_once_others_take_it_for_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "ASK_MS", 1)

    async def scenario() -> None:
        store = await EmbeddedStore.open(tmp_path / "m.db")
        await store.commit([Create(path) for path in ("/brokers", paths.BROKER_IDS)])
        roles, tasks, opinion, image = Roles(), Tasks(), Opinion(), ClusterImage("c")
        image.set_brokers(2, 1, [BrokerImage(broker_id, (), None) for broker_id in (1, 2)])
        own = _registration(store, roles, tasks, opinion, image)
        await own.begin()
        first = roles.broker_epoch
        store._tell_listeners(SessionEvent.SUSPENDED)
        await until(lambda: opinion.asked > 2)
        assert roles.seen == [], "nobody else was elected: records go on"
        opinion.is_given_up = True
        await until(lambda: roles.seen == ["resigned", "no roles"])
        assert list(image.brokers) == [2], "clients are not sent here"
        for event in (SessionEvent.RESUMED, SessionEvent.SUSPENDED, SessionEvent.RESUMED):
            store._tell_listeners(event)
        await until(lambda: "looks for a controller" in roles.seen)
        assert roles.broker_epoch > first, "it is told its roles again"
        opinion.may_answer.clear()
        asked = opinion.asked
        store._tell_listeners(SessionEvent.SUSPENDED)
        await until(lambda: opinion.asked > asked)
        store._tell_listeners(SessionEvent.RESUMED)
        opinion.may_answer.set()
        await until(lambda: not own._is_asking)
        assert roles.seen == ["resigned", "no roles", "looks for a controller"], "the store itself can be asked again"
        await tasks.cancel_all()
        await store.close()

    run_async(asyncio.wait_for(scenario(), 30))


@pytest.mark.parametrize("was_made", [True, False], ids=["only the answer was lost", "nothing was done"])
def test_a_return_that_fails_is_tried_again(tmp_path: Path, was_made: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "RETRY_MS", 1)

    async def scenario() -> None:
        store = await EmbeddedStore.open(tmp_path / "m.db")
        await store.commit([Create(path) for path in ("/brokers", paths.BROKER_IDS)])
        faulty, roles, tasks = FaultyStore(store), Roles(), Tasks()
        await _registration(faulty, roles, tasks, Opinion(), ClusterImage("c")).begin()
        first = roles.broker_epoch
        stored = await store.get(OWN_PATH)
        assert stored is not None and paths.BrokerNode.decode(stored.data).first_epoch is None
        faulty.lost = [was_made]
        await store.expire()
        await until(lambda: "looks for a controller" in roles.seen)
        stored = await store.get(OWN_PATH)
        assert stored is not None
        assert roles.broker_epoch == stored.created_id > first
        assert paths.BrokerNode.decode(stored.data).first_epoch == first
        await store.expire()
        await until(lambda: roles.seen.count("looks for a controller") == 2)
        stored = await store.get(OWN_PATH)
        assert stored is not None
        assert paths.BrokerNode.decode(stored.data).first_epoch == first, "it is still the same process"
        assert roles.seen == ["resigned", "no roles", "looks for a controller"] * 2
        await tasks.cancel_all()
        await store.close()

    run_async(asyncio.wait_for(scenario(), 30))


@pytest.mark.parametrize(
    ("events", "seen"),
    [
        ([SessionEvent.LOST], ["resigned", "no roles"]),
        ([SessionEvent.LOST, SessionEvent.LOST], ["resigned", "no roles"]),
        ([SessionEvent.RESUMED, SessionEvent.RENEWED], []),
        ([SessionEvent.ENDED], ["orphaned"]),
    ],
)
def test_roles_are_dropped_once(tmp_path: Path, events: list[SessionEvent], seen: list[str]) -> None:
    async def scenario() -> None:
        store = await EmbeddedStore.open(tmp_path / "m.db")
        await store.commit([Create(path) for path in ("/brokers", paths.BROKER_IDS)])
        roles, tasks, image = Roles(), Tasks(), ClusterImage("c")
        image.set_brokers(2, 1, [BrokerImage(broker_id, (), None) for broker_id in (1, 2)])
        own = _registration(store, roles, tasks, Opinion(), image)
        own._on_orphaned = lambda: roles.seen.append("orphaned")
        await own.begin()
        generation = image.generation
        for event in events:
            store._tell_listeners(event)
        await asyncio.sleep(0)
        assert roles.seen == seen
        lost = "no roles" in seen
        assert (sorted(image.brokers), image.generation) == ([2] if lost else [1, 2], generation + lost)
        await tasks.cancel_all()
        await store.close()

    run_async(scenario())
