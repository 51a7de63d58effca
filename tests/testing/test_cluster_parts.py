"""What an embedded cluster asks of its brokers, its store and the links between them, with all of those made up."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import Endpoint, TopicPartition, Uuid
from ottla.machines.cluster.controller import LeaderAsked
from ottla.machines.cluster.topics import NewTopic
from ottla.metadata import paths
from ottla.metadata.store import Node
from ottla.testing import cluster as cluster_module
from ottla.testing.cluster import EmbeddedCluster


def finished(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of what waits for nothing, without a loop."""
    with pytest.raises(StopIteration) as ended:
        work.send(None)
    return ended.value.value


class Broker:
    """Notes what is asked of it."""

    def __init__(self, world: World, broker_id: int) -> None:
        self.host, self.port = f"host-{broker_id}", 9000 + broker_id
        self.bootstrap_servers = f"{self.host}:{self.port}"
        self.is_running = True
        self._world = world
        self._id = broker_id
        controller = SimpleNamespace(
            is_active=False,
            broker_id=broker_id,
            submit=self._noted("submit"),
            delivered=self._noted("delivered"),
        )
        self.running: Any = SimpleNamespace(
            broker_id=broker_id,
            controller=controller,
            topic_admin=SimpleNamespace(create=self._noted("create")),
            image=SimpleNamespace(brokers=dict.fromkeys(world.cluster.ids)),
        )

    def call(self, work: Any) -> Any:
        return finished(work)

    def _noted(self, what: str) -> Any:
        async def note(given: object) -> None:
            self._world.done.append((what, self._id, given))

        return note

    def __getattr__(self, name: str) -> Any:
        if name not in ("kill", "restart", "pause", "resume"):
            raise AttributeError(name)
        return lambda: self._world.done.append((name, self._id, None))


class Link:
    def __init__(self, world: World, forward_to: tuple[str, int]) -> None:
        self.forward_to = forward_to
        self.port = 20_000 + len(world.links)
        self._world = world
        world.links.append(self)

    def start(self) -> Link:
        self._note("start")
        return self

    def _note(self, what: str) -> None:
        self._world.done.append((what, self.forward_to[1], None))

    def hold(self) -> None:
        self._note("hold")

    def release(self) -> None:
        self._note("release")

    def stop(self) -> None:
        self._note("stop")


class World:
    """Three brokers, of which the second is the controller; time passes only where somebody waits."""

    def __init__(self, directory: Path) -> None:
        self.done: list[tuple[str, int, Any]] = []
        self.links: list[Link] = []
        self.nodes: dict[str, Node] = {}
        self.now_s = 0.0
        self.when_waiting: list[Any] = []
        """Each is called at one of the next waits."""
        self.cluster = EmbeddedCluster(3)
        self.brokers = {broker_id: Broker(self, broker_id) for broker_id in (1, 2, 3)}
        self.brokers[2].running.controller.is_active = True
        self.cluster._brokers = self.brokers  # type: ignore[assignment]
        self.cluster._directory = directory
        self.cluster._loop = SimpleNamespace(call=finished, stop=self._note("loop stops"))  # type: ignore[assignment]
        store: Any = SimpleNamespace(store=self, end_session=self._end_session, close=self._close)
        self.cluster._store = store

    def _note(self, what: str) -> Any:
        return lambda: self.done.append((what, 0, None))

    async def get(self, path: str) -> Node | None:
        return self.nodes.get(path)

    async def _close(self) -> None:
        self.done.append(("store closes", 0, None))

    def _end_session(self, session_id: int) -> None:
        self.done.append(("session ends", session_id, None))

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        if self.when_waiting:
            self.when_waiting.pop(0)()

    def register(self, broker_id: int, session_id: int) -> None:
        self.nodes[f"/brokers/ids/{broker_id}"] = Node(b"", 0, 0, 0, session_id)

    def store_topic(self, name: str, partitions: dict[int, list[int]]) -> None:
        node = paths.TopicNode(Uuid(bytes(16)), partitions, {}, {})
        self.nodes[paths.topic(name)] = Node(node.encode(), 0, 0, 0)

    def store_state(self, name: str, partition: int, leader: int, isr: list[int]) -> None:
        node = paths.PartitionStateNode(leader, 0, isr, 1)
        self.nodes[paths.partition_state(name, partition)] = Node(node.encode(), 0, 0, 0)

    def taken(self) -> list[tuple[str, int, Any]]:
        done = self.done[:]
        self.done.clear()
        return done


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    directory = tmp_path / "cluster"
    directory.mkdir()
    made = World(directory)
    monkeypatch.setattr(cluster_module, "time", made)
    monkeypatch.setattr(cluster_module, "FaultProxy", lambda forward_to: Link(made, forward_to))
    yield made


# -- topics ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({}, NewTopic("t", 1, 3)),
        ({"partitions": 4, "replication_factor": 2}, NewTopic("t", 4, 2)),
        ({"config": {"a": 1, "b": "x"}}, NewTopic("t", 1, 3, configs={"a": "1", "b": "x"})),
        (
            {"replicas": {0: [2, 1], 1: [3]}, "partitions": 9, "config": {"a": 5}},
            NewTopic("t", -1, -1, {0: [2, 1], 1: [3]}, {"a": "5"}),
        ),
        ({"replicas": {}}, NewTopic("t", -1, -1)),
    ],
)
def test_the_controller_makes_topics_and_all_are_told(world: World, given: dict[str, Any], asked: NewTopic) -> None:
    assert world.cluster.create_topic("t", **given) == "t"
    assert world.taken() == [("create", 2, asked), ("delivered", 2, [1, 2, 3])]


def test_the_controller_moves_leaders(world: World) -> None:
    world.cluster.move_leader("t", 5, to=3)
    assert world.taken() == [("submit", 2, LeaderAsked(TopicPartition("t", 5), 3)), ("delivered", 2, [1, 2, 3])]


def test_who_cannot_hear_of_it_is_not_waited_for(world: World) -> None:
    world.cluster.cut(2, 1, one_way=True)
    world.taken()
    world.cluster.create_topic("t")
    assert world.taken()[1] == ("delivered", 2, [2, 3])
    world.cluster.cut(3, 2, one_way=True)
    world.taken()
    world.cluster.create_topic("t")
    assert world.taken()[1] == ("delivered", 2, [2])
    world.cluster.heal()
    world.cluster.cut(1, 3)
    world.brokers[3].is_running = False
    world.taken()
    world.cluster.create_topic("t")
    assert world.taken()[1] == ("delivered", 2, [1, 2])


def test_the_controller_is_waited_for(world: World) -> None:
    assert world.cluster.controller_id == 2 and world.now_s == 0
    controllers = {broker_id: broker.running.controller for broker_id, broker in world.brokers.items()}
    controllers[2].is_active = False
    world.when_waiting = [lambda: None, lambda: setattr(controllers[3], "is_active", True)]
    assert world.cluster.controller_id == 3 and world.now_s == pytest.approx(0.01)
    world.brokers[3].is_running = False
    assert world.cluster.running_ids == [1, 2]
    with pytest.raises(TimeoutError) as late:
        _ = world.cluster.controller_id
    assert str(late.value) == "no broker is the controller, after 30 s"
    assert 30.01 <= world.now_s < 30.03


def test_what_is_stored_of_a_partition(world: World) -> None:
    world.store_state("t", 0, 3, [3, 1])
    world.store_state("t", 2, -1, [2])
    cluster = world.cluster
    assert (cluster.leader_of("t"), cluster.isr_of("t")) == (3, {1, 3})
    assert (cluster.leader_of("t", 2), cluster.isr_of("t", 2)) == (None, {2})
    for ask in (cluster.leader_of, cluster.isr_of):
        with pytest.raises(KafkaError) as refused:
            ask("t", 1)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert refused.value.message == "there is no partition 1 of a topic 't'"


def test_a_topic_is_in_sync_when_all_its_replicas_are(world: World) -> None:
    with pytest.raises(KafkaError) as refused:
        world.cluster.wait_in_sync("t")
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refused.value.message == "there is no topic 't'"
    world.store_topic("t", {0: [1, 2], 1: [3, 2]})
    world.store_state("t", 0, 1, [2, 1])
    world.store_state("t", 1, 3, [3])
    with pytest.raises(TimeoutError) as late:
        world.cluster.wait_in_sync("t", timeout_s=5)
    assert str(late.value) == "'t' is not in sync, after 5 s" and 5 < world.now_s < 5.02
    world.when_waiting = [lambda: world.store_state("t", 1, 3, [2, 3])]
    world.cluster.wait_in_sync("t")
    assert world.when_waiting == []


# -- faults ------------------------------------------------------------------------------------------------------


def test_who_is_killed_is_gone_when_its_session_is(world: World) -> None:
    world.register(1, 70)
    world.register(2, 71)
    world.when_waiting = [lambda: None, lambda: world.nodes.pop("/brokers/ids/1")]
    world.cluster.kill(1)
    assert world.taken() == [("kill", 1, None)] and world.when_waiting == []
    with pytest.raises(TimeoutError, match=r"^broker 2 is still registered, after 30 s$"):
        world.cluster.kill(2)


def test_a_session_has_expired_when_another_one_or_none_is_there(world: World) -> None:
    world.register(1, 70)
    world.when_waiting = [lambda: None, lambda: world.register(1, 72)]
    world.cluster.expire_session(1)
    assert world.taken() == [("session ends", 70, None)] and world.when_waiting == []
    world.when_waiting = [lambda: world.nodes.clear()]
    world.cluster.expire_session(1)
    assert world.taken() == [("session ends", 72, None)] and world.when_waiting == []
    with pytest.raises(RuntimeError, match=r"^broker 1 has no session$"):
        world.cluster.expire_session(1)
    world.register(3, 9)
    with pytest.raises(TimeoutError, match=r"^broker 3 is still registered, after 30 s$"):
        world.cluster.expire_session(3)


def test_other_faults_are_the_brokers_own(world: World) -> None:
    for name in ("restart", "pause", "resume"):
        getattr(world.cluster, name)(3)
    assert world.taken() == [("restart", 3, None), ("pause", 3, None), ("resume", 3, None)]
    for wrong in (0, 4, "1"):
        with pytest.raises(KeyError) as unknown:
            world.cluster.pause(wrong)  # type: ignore[arg-type]
        assert unknown.value.args == (f"there is no broker {wrong!r}; there are 1, 2, 3",)
    assert world.cluster.bootstrap_servers == "host-1:9001,host-2:9002,host-3:9003"


def test_links_are_made_once_and_cut_both_ways_unless_one_is_enough(world: World) -> None:
    cluster = world.cluster
    cluster.cut(1, 2)
    assert world.taken() == [("start", 9002, None), ("hold", 9002, None), ("start", 9001, None), ("hold", 9001, None)]
    cluster.cut(1, 3, one_way=True)
    assert [link.forward_to for link in world.links] == [("host-2", 9002), ("host-1", 9001), ("host-3", 9003)]
    assert [cluster.link(1, 2).port, cluster.link(2, 1).port] == [20_000, 20_001]
    world.taken()
    cluster.cut(1, 2, one_way=True)
    assert world.taken() == [("hold", 9002, None)]
    cluster.heal()
    assert sorted(world.taken()) == [("release", 9001, None), ("release", 9002, None), ("release", 9003, None)]
    cluster.heal()
    assert world.taken() == []
    with pytest.raises(ValueError, match=r"^broker 2 does not ask itself over the network$"):
        cluster.cut(2, 2)


# -- life --------------------------------------------------------------------------------------------------------


def test_what_is_stopped_is_gone_and_may_be_stopped_again(world: World) -> None:
    directory = world.cluster._directory
    assert directory is not None
    (directory / "broker-1").mkdir()
    world.cluster.cut(1, 2, one_way=True)
    world.taken()
    world.cluster.stop()
    assert world.taken() == [
        ("kill", 1, None), ("kill", 2, None), ("kill", 3, None), ("stop", 9002, None),
        ("store closes", 0, None), ("loop stops", 0, None),
    ]  # fmt: skip
    assert not directory.exists() and world.cluster.bootstrap_servers == "" and world.cluster.running_ids == []
    world.cluster.stop()
    world.cluster.heal()
    assert world.taken() == []
    for ask in (lambda: world.cluster.leader_of("t"), lambda: world.cluster.isr_of("t")):
        with pytest.raises(RuntimeError, match=r"^this cluster is not running$"):
            ask()


def test_a_cluster_is_complete_when_every_broker_knows_all_others(world: World) -> None:
    assert world.cluster._is_complete()
    for known in ([1, 2], [1, 2, 4], [1, 2, 3, 4], []):
        world.brokers[3].running.image.brokers = dict.fromkeys(known)
        assert not world.cluster._is_complete()


@pytest.mark.parametrize("port", [None, 5000])
def test_how_brokers_of_a_cluster_are_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: int | None) -> None:
    made: list[tuple[Path, dict[str, Any]]] = []
    monkeypatch.setattr(cluster_module, "EmbeddedBroker", lambda directory, **more: made.append((directory, more)))
    monkeypatch.setattr(
        EmbeddedCluster, "_link", lambda self, a, b, port: SimpleNamespace(port=100 * a + 10 * b + port)
    )
    cluster = EmbeddedCluster(
        2,
        port=port,
        config={"num.partitions": 3, "broker.id": 9, "replica.lag.time.max.ms": 7},
        broker_config={2: {"num.partitions": 4, "broker.rack": "r"}},
    )
    for broker_id in cluster.ids:
        cluster._new_broker(broker_id, tmp_path)
    common = {
        "replica.lag.time.max.ms": 7,
        "zookeeper.session.timeout.ms": 3_000,
        "replica.fetch.wait.max.ms": 100,
        "replica.fetch.backoff.ms": 50,
        "controlled.shutdown.retry.backoff.ms": 50,
        "auto.leader.rebalance.enable": False,
        "default.replication.factor": 2,
        "ottla.cluster.dir": tmp_path,
    }
    assert [(directory, more["port"], more["config"]) for directory, more in made] == [
        (tmp_path / "broker-1", port or 0, common | {"num.partitions": 3, "broker.id": 1}),
        (
            tmp_path / "broker-2",
            5001 if port else 0,
            common | {"num.partitions": 4, "broker.rack": "r", "broker.id": 2},
        ),
    ]
    assert made[1][1]["route"](1, Endpoint("L", "h", 7)) == Endpoint("L", "h", 217)
