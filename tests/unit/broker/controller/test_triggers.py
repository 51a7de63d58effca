"""What old tools leave in the store for the controller: what is carried out, and which nodes go when it is done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import NIL_UUID, TopicPartition, Uuid
from ottla.broker.controller import triggers as module
from ottla.broker.controller.triggers import Touched, TriggerRules, Triggers
from ottla.machines.cluster.controller import ElectionAsked, ElectionKind
from ottla.machines.cluster.reassignment import ReassignmentAsked
from ottla.machines.cluster.topics import DeletionWanted, TopicFound
from ottla.metadata import paths
from ottla.metadata.embedded import EmbeddedStore
from ottla.metadata.store import Check, Create, Set
from tests.waiting import run_async, until

NEW_ID, KNOWN_ID = Uuid(bytes(15) + b"\x01"), Uuid(bytes(15) + b"\x02")
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NODES = (
    "/brokers",
    paths.TOPICS,
    "/admin",
    paths.DELETE_TOPICS,
    paths.ISR_CHANGES,
    "/epoch",
    *(paths.topic(name) for name in ("t", "u")),
)
PARTITIONS = b'{"version": 1, "partitions": [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}]}'


class World:
    def __init__(self, store: EmbeddedStore) -> None:
        self.store = store
        self.carried_out: list[Any] = []
        self.answers: dict[type, Any] = {}
        self.topics: dict[str, Any] = {"t": self.known()}
        self.pending: set[str] = set()
        self.moving: dict[TopicPartition, tuple[int, ...]] = {}
        self.stored: dict[str, Any] = {name: self.topic_state((1, 2)) for name in ("t", "u")}
        self.may_delete = True
        self.triggers = Triggers(
            store,
            Check("/epoch", 0),
            TriggerRules(topic_id=lambda name: NEW_ID, deletion_allowed=lambda: self.may_delete),
            state=lambda: SimpleNamespace(  # type: ignore[arg-type,return-value]
                topics=self.topics, pending_deletions=self.pending, known=self._partition
            ),
            carry_out=self._carry_out,
        )

    @staticmethod
    def known(topic_id: Uuid = KNOWN_ID, version: int = 0, *, is_unfinished: bool = False) -> Any:
        return SimpleNamespace(topic_id=topic_id, node_version=version, is_unfinished=is_unfinished)

    @staticmethod
    def topic_state(*replicas: tuple[int, ...]) -> Any:
        return SimpleNamespace(partitions={n: SimpleNamespace(replicas=each) for n, each in enumerate(replicas)})

    def _partition(self, tp: TopicPartition) -> Any:
        if tp.topic not in self.topics:
            return None
        return SimpleNamespace(is_being_reassigned=tp in self.moving, target=self.moving.get(tp, ()))

    async def _carry_out(self, event: Any) -> Any:
        self.carried_out.append(event)
        return self.answers.get(type(event), {})

    async def load_topic(self, store: object, name: str) -> Any:
        found = self.stored.get(name)
        if isinstance(found, Exception):
            raise found
        return found

    async def write(self, path: str, data: bytes = b"") -> None:
        is_there = await self.store.get(path) is not None
        await self.store.commit([Set(path, data) if is_there else Create(path, data)])

    async def has(self, path: str) -> bool:
        return await self.store.get(path) is not None


@pytest.fixture
def in_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[World], Awaitable[None]]], None]:
    def run(scenario: Callable[[World], Awaitable[None]]) -> None:
        async def opened() -> None:
            store = await EmbeddedStore.open(tmp_path / "store")
            try:
                for path in NODES:
                    if await store.get(path) is None:
                        await store.commit([Create(path)])
                world = World(store)
                monkeypatch.setattr(module.stored_state, "load_topic", world.load_topic)
                await scenario(world)
            finally:
                await store.close()

        run_async(opened())

    return run


InWorld = Callable[[Callable[[World], Awaitable[None]]], None]


def test_who_writes_is_heard_until_the_watch_ends(in_world: InWorld) -> None:
    async def scenario(world: World) -> None:
        heard: list[Touched] = []
        ends = world.triggers.watch(heard.append)
        await world.write(f"{paths.topic('t')}/partitions")
        for path in (paths.REASSIGNMENTS, paths.PREFERRED_ELECTION):
            await world.write(path, PARTITIONS)
            await until(lambda path=path: Touched(path) in heard)  # type: ignore[misc]
        for parent in (paths.TOPICS, paths.DELETE_TOPICS, paths.ISR_CHANGES):
            await world.write(f"{parent}/new")
            await until(lambda parent=parent: any(each.path.startswith(parent) for each in heard))  # type: ignore[misc]
        assert not any(each.path.endswith("/partitions") for each in heard), "those are the controller's own"
        for end in ends:
            end()
        heard.clear()
        await world.write(paths.REASSIGNMENTS, PARTITIONS)
        await world.store.get("/epoch")
        assert heard == []

    in_world(scenario)


def test_what_may_have_been_left_while_there_was_no_controller(in_world: InWorld) -> None:
    async def scenario(world: World) -> None:
        world.topics["old"] = world.known(NIL_UUID)
        nodes = [paths.topic("old"), paths.ISR_CHANGES, paths.REASSIGNMENTS, paths.PREFERRED_ELECTION]
        assert [touched.path for touched in world.triggers.left_behind()] == nodes

    in_world(scenario)


def test_topics_that_others_have_written_are_taken(in_world: InWorld) -> None:
    async def scenario(world: World) -> None:
        look = world.triggers.look
        await look(paths.topic("t"))
        assert world.carried_out == [], "that version is known"
        await world.write(paths.topic("t"), b"changed")
        await look(paths.topic("t"))
        assert world.carried_out.pop() == TopicFound("t", world.stored["t"], KNOWN_ID)
        world.topics["t"] = world.known(version=1, is_unfinished=True)
        await look(paths.topic("t"))
        assert world.carried_out.pop().name == "t"
        world.topics["t"] = world.known(NIL_UUID, version=1)
        await look(paths.TOPICS)
        assert world.carried_out == [TopicFound("u", world.stored["u"], NEW_ID)], "only what is not known at all"
        world.carried_out.clear()
        world.pending = {"u"}
        await look(paths.topic("u"))
        await look(paths.topic("gone"))
        assert world.carried_out == []

    in_world(scenario)


def test_a_topic_that_cannot_be_understood_is_set_aside(in_world: InWorld, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        world.stored["u"] = paths.MalformedNodeError("no JSON")
        await world.triggers.look(paths.topic("u"))
        world.stored["u"] = None
        await world.triggers.look(paths.topic("u"))
        assert world.carried_out == []

    in_world(scenario)
    assert ["set aside" in message for message in caplog.messages] == [True]


@pytest.mark.parametrize(
    ("name", "may_delete", "deleted"), [("t", True, True), ("t", False, False), ("x", True, False)]
)
def test_deletions(in_world: InWorld, name: str, may_delete: bool, deleted: bool) -> None:
    async def scenario(world: World) -> None:
        world.may_delete = may_delete
        await world.write(f"{paths.DELETE_TOPICS}/{name}")
        await world.triggers.look(f"{paths.DELETE_TOPICS}/{name}")
        assert world.carried_out == ([DeletionWanted(name, is_marked=True)] if deleted else [])
        assert await world.has(f"{paths.DELETE_TOPICS}/{name}") == deleted, "it goes with the topic, or at once"
        world.carried_out.clear()
        world.pending = {name}
        await world.triggers.look(paths.DELETE_TOPICS)
        assert world.carried_out == [], "it is on its way"

    in_world(scenario)


def test_in_sync_sets_of_old_brokers(in_world: InWorld) -> None:
    async def scenario(world: World) -> None:
        await world.write(f"{paths.ISR_CHANGES}/1", PARTITIONS)
        await world.write(f"{paths.ISR_CHANGES}/2", b"nonsense")
        await world.triggers.look(f"{paths.ISR_CHANGES}/1")
        assert world.carried_out == [TopicFound("t", world.stored["t"], KNOWN_ID)]
        assert await world.store.children(paths.ISR_CHANGES) == []
        assert await world.has(paths.ISR_CHANGES)
        world.carried_out.clear()
        world.pending = {"t"}
        await world.write(f"{paths.ISR_CHANGES}/3", PARTITIONS)
        await world.triggers.look(paths.ISR_CHANGES)
        assert world.carried_out == [] and await world.store.children(paths.ISR_CHANGES) == []

    in_world(scenario)


def test_elections_of_preferred_leaders(in_world: InWorld, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        await world.triggers.look(paths.PREFERRED_ELECTION)
        assert world.carried_out == []
        codes = {T0: ErrorCode.ELECTION_NOT_NEEDED, T1: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
        world.answers[ElectionAsked] = codes
        await world.write(paths.PREFERRED_ELECTION, PARTITIONS)
        await world.triggers.look(paths.PREFERRED_ELECTION)
        assert world.carried_out == [ElectionAsked((T0, T1), ElectionKind.PREFERRED)]
        assert not await world.has(paths.PREFERRED_ELECTION)
        await world.write(paths.PREFERRED_ELECTION, b"nonsense")
        await world.triggers.look(paths.PREFERRED_ELECTION)
        assert len(world.carried_out) == 1 and not await world.has(paths.PREFERRED_ELECTION)

    in_world(scenario)
    assert [message.partition(" ")[0] for message in caplog.messages] == ["t-1", paths.PREFERRED_ELECTION]


def test_reassignments_leave_the_node_one_by_one_and_it_goes_with_the_last(in_world: InWorld) -> None:
    async def scenario(world: World) -> None:
        look = world.triggers.look
        wanted = {T0: (1, 2), T1: (2, 3)}
        await world.write(paths.REASSIGNMENTS, paths.encode_reassignments(wanted))
        world.moving = dict(wanted)
        await look(paths.REASSIGNMENTS)
        assert world.carried_out == [ReassignmentAsked(wanted)]
        await look(paths.REASSIGNMENTS)
        assert len(world.carried_out) == 1, "nothing new is wanted"
        del world.moving[T0]
        await world.triggers.note_progress()
        node = await world.store.get(paths.REASSIGNMENTS)
        assert node is not None and paths.decode_reassignments(node.data) == {T1: (2, 3)}
        more = {T1: (3, 1), T0: (1, 3)}
        await world.write(paths.REASSIGNMENTS, paths.encode_reassignments(more))
        world.moving = dict(more)
        await look(paths.REASSIGNMENTS)
        assert world.carried_out[1:] == [ReassignmentAsked(more)]
        world.moving = {T0: (9,)}
        await world.triggers.note_progress()
        assert not await world.has(paths.REASSIGNMENTS), "one is done, and the other moves elsewhere by now"
        await world.triggers.note_progress()

    in_world(scenario)


def test_reassignments_that_are_refused_taken_back_or_nonsense(
    in_world: InWorld, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        look, wanted = world.triggers.look, {T0: (1, 2)}
        world.answers[ReassignmentAsked] = {T0: KafkaError("no such broker", code=ErrorCode.INVALID_REPLICA_ASSIGNMENT)}
        await world.write(paths.REASSIGNMENTS, paths.encode_reassignments(wanted))
        await look(paths.REASSIGNMENTS)
        assert not await world.has(paths.REASSIGNMENTS)
        await world.write(paths.REASSIGNMENTS, b"nonsense")
        await look(paths.REASSIGNMENTS)
        assert not await world.has(paths.REASSIGNMENTS) and len(world.carried_out) == 1
        world.moving = dict(wanted)
        for _ in range(2):
            await world.write(paths.REASSIGNMENTS, paths.encode_reassignments(wanted))
            await look(paths.REASSIGNMENTS)
            await world.store.commit([module.Delete(paths.REASSIGNMENTS)])
            await look(paths.REASSIGNMENTS)
        assert len(world.carried_out) == 3, "whoever asks again after that is heard again"

    in_world(scenario)
    assert [message.partition(" ")[0] for message in caplog.messages[:2]] == ["t-0", paths.REASSIGNMENTS]


def test_who_is_no_controller_any_more_removes_nothing(in_world: InWorld) -> None:
    async def scenario(world: World) -> None:
        await world.write(paths.PREFERRED_ELECTION, PARTITIONS)
        await world.write("/epoch", b"of the next one")
        with pytest.raises(KafkaError) as refused:
            await world.triggers.look(paths.PREFERRED_ELECTION)
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        assert await world.has(paths.PREFERRED_ELECTION)

    in_world(scenario)
