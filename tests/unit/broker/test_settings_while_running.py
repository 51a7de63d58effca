"""Settings that are changed while a broker runs, by what happens then."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

import ottla
from ottla.base.errors import InvalidConfigError
from ottla.base.types import TopicPartition
from ottla.broker.background import thread_count
from ottla.broker.config.broker_config import BrokerConfig
from ottla.machines.cluster.controller import DemotionAsked
from ottla.machines.cluster.image import NO_LEADER
from ottla.testing import EmbeddedBroker, EmbeddedCluster
from tests.ports import free_ports
from tests.waiting import repeat_until


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config={"broker.id": 1, "quota.window.num": 2}) as running:
        yield running


@pytest.fixture(autouse=True)
def _as_before(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "broker" in request.fixturenames:
        running = request.getfixturevalue("broker")
        change(running)
        change(running, of_all=True)


def change(broker: EmbeddedBroker, *, of_all: bool = False, **settings: object) -> None:
    """Sets these dynamic settings, with underscores for dots, and no others."""
    given = {name.replace("_", "."): str(value) for name, value in settings.items()}
    broker.call(
        broker.running.dynamic_configs.change_broker(None if of_all else 1, lambda before: given, validate_only=False)
    )


def is_closed(client: socket.socket) -> bool:
    client.settimeout(0.01)
    try:
        return client.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_connections_above_a_new_limit_are_closed_and_others_refused(broker: EmbeddedBroker) -> None:
    clients = [socket.create_connection((broker.host, broker.port)) for _ in range(3)]
    try:
        assert not any(map(is_closed, clients))
        change(broker, of_all=True, max_connections=1)
        repeat_until(lambda: sum(map(is_closed, clients)) >= 2)
        with socket.create_connection((broker.host, broker.port)) as refused:
            repeat_until(lambda: is_closed(refused))
        change(broker, of_all=True)
        with socket.create_connection((broker.host, broker.port)) as admitted:
            assert not is_closed(admitted)
    finally:
        for client in clients:
            client.close()


def test_a_listener_that_is_added_serves_and_one_that_is_taken_away_does_not(broker: EmbeddedBroker) -> None:
    first = free_ports(2)
    own = f"PLAINTEXT://127.0.0.1:{broker.port}"
    names = "PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT"
    change(broker, listeners=f"{own},EXTRA://127.0.0.1:{first}", listener_security_protocol_map=names)
    with ottla.Admin(bootstrap_servers=f"127.0.0.1:{first}") as admin:
        repeat_until(lambda: [node.port for node in admin.describe_cluster().brokers.values()] == [first])
    change(
        broker,
        listeners=f"{own},EXTRA://127.0.0.1:{first + 1}",
        advertised_listeners=f"{own},EXTRA://localhost:{first + 1}",
        listener_security_protocol_map=names,
    )
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", first))
    with ottla.Admin(bootstrap_servers=f"127.0.0.1:{first + 1}") as admin:
        repeat_until(lambda: [node.host for node in admin.describe_cluster().brokers.values()] == ["localhost"])
    with ottla.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert [node.port for node in admin.describe_cluster().brokers.values()] == [broker.port]


def test_a_listener_has_limits_of_its_own(broker: EmbeddedBroker) -> None:
    change(broker, of_all=True, listener_name_plaintext_max_connections=0)
    with socket.create_connection((broker.host, broker.port)) as refused:
        repeat_until(lambda: is_closed(refused))
    with pytest.raises(InvalidConfigError, match=r"max\.connections must be at least 0"):
        change(broker, of_all=True, listener_name_plaintext_max_connections=-1)


def test_more_threads_for_jobs_beside_the_requests(broker: EmbeddedBroker) -> None:
    release = threading.Event()
    begun: list[int] = []

    async def begin(count: int) -> None:
        for number in range(count):
            task = asyncio.get_running_loop().create_task(broker.running.replicas.threads.run(work, number))
            tasks.append(task)

    def work(number: int) -> None:
        begun.append(number)
        release.wait(60)

    tasks: list[asyncio.Task[None]] = []
    change(broker, of_all=True, background_threads=1)
    most = thread_count(broker.running.config)
    try:
        broker.call(begin(most + 4))
        repeat_until(lambda: len(begun) == most)
        change(broker, of_all=True, background_threads=4)
        broker.call(begin(3))
        repeat_until(lambda: len(begun) == most + 3)
    finally:
        release.set()
    repeat_until(lambda: len(begun) == most + 7)


@pytest.mark.parametrize("of_topic", [True, False])
def test_partitions_without_a_leader_get_one_when_unclean_elections_are_allowed(
    broker: EmbeddedBroker, of_topic: bool
) -> None:
    topic = broker.new_topic("led")
    controller, configs = broker.running.controller, broker.running.dynamic_configs
    broker.call(controller.submit(DemotionAsked(TopicPartition(topic, 0))))
    assert controller.state.topics[topic].partitions[0].leader == NO_LEADER
    allowed = {"unclean.leader.election.enable": "true"}
    if of_topic:
        broker.call(configs.change_topic(topic, lambda before: allowed, validate_only=False))
    else:
        broker.call(configs.change_broker(None, lambda before: allowed, validate_only=False))
    repeat_until(lambda: controller.state.topics[topic].partitions[0].leader == 1)


def test_the_controller_gives_its_orders_to_the_listener_that_is_kept_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Without the proxies that stand between brokers otherwise, one for each pair.
    monkeypatch.setattr(EmbeddedCluster, "_link", lambda _, source, target, port: SimpleNamespace(port=port))
    first = free_ports(4)
    listeners = {
        broker_id: {"listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROL://127.0.0.1:{port + 1}"}
        for broker_id, port in ((1, first), (2, first + 2))
    }
    config = {
        "control.plane.listener.name": "CONTROL",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT",
    }
    with EmbeddedCluster(2, config=config, broker_config=listeners) as cluster:
        cluster.create_topic("t")
        cluster.wait_in_sync("t")
        controller = cluster[cluster.controller_id].running.controller
        other = 3 - controller.broker_id
        link = controller._link._peers._connections[other, "orders"]  # type: ignore[attr-defined]
        assert link.port == {1: first + 1, 2: first + 3}[other]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [("CONTROL", "is not one of the advertised"), ("PLAINTEXT", "is the listener between brokers")],
)
def test_a_listener_that_cannot_be_kept_for_orders(name: str, complaint: str) -> None:
    with pytest.raises(InvalidConfigError, match=complaint):
        BrokerConfig({"control.plane.listener.name": name})
