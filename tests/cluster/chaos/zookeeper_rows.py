"""F: three brokers on three ZooKeepers, of which servers and sessions are taken away."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.chaos.cluster import IDS, Cluster, short_sleep
from tests.cluster.chaos.load import IN_TRANSACTIONS, PARTITIONS, PLAIN
from tests.cluster.chaos.table import Scene, row
from tests.cluster.chaos.zookeeper_view import zookeeper_view
from tests.integration.calls import batch, produce
from tests.waiting import PATIENCE_S, repeat_until

_QUORUM_LOST_S = 60
_TOPICS, _PARTITIONS = 200, 10


@row(
    "F09",
    "a leader is cut off from ZooKeeper only: another is elected, nobody waits for the old one",
    gap_s_max=15,
    is_of_network=True,
)
def cut_from_zookeeper(scene: Scene) -> None:
    cluster = scene.cluster(zookeeper=scene.zookeeper())
    with scene.load(cluster, transactions=True) as load:
        zombie = cluster.leader(PLAIN)
        others = [broker_id for broker_id in IDS if broker_id != zombie]
        cluster.links.cut = cluster.to_zookeeper(zombie)
        cut_s = time.monotonic()
        repeat_until(lambda: all(each.leader_id in others for each in cluster.describe(PLAIN, others)), short_sleep)
        elected_s = time.monotonic() - cut_s
        for index in range(PARTITIONS):
            with cluster.raw_client(zombie) as client:
                answer = produce(client, PLAIN, batch(b"late"), partition=index)
            assert answer.error_code, f"the old leader has acknowledged a record of {PLAIN}-{index}"
        scene.took("others lead after", elected_s, 10)
        load.wait_for_more()
        cluster.links.cut = set()
        cluster.wait_until_well(PLAIN, IN_TRANSACTIONS)
        load.wait_for_more()


@row("F13", "ZooKeeper's leader is killed; then it has no quorum for a minute; then all of it is started again")
def lose_quorum(scene: Scene) -> None:
    ensemble = scene.zookeeper()
    cluster = scene.cluster(zookeeper=ensemble)
    with scene.load(cluster, transactions=True) as load:
        first = ensemble.leader()
        ensemble.kill(first)
        load.wait_for_more()
        ensemble.start_one(first)
        ensemble.wait_until_serving()
        ensemble.kill(1, 2)
        lost_s = time.monotonic()
        refused_s = _refusal_s(cluster)
        while time.monotonic() - lost_s < scene.times(_QUORUM_LOST_S, 5):
            load.wait_for_more(1)
        ensemble.kill()
        load.wait_for_more(1)
        for number in (1, 2, 3):
            ensemble.start_one(number)
        ensemble.wait_until_serving()
        cluster.wait_until_well(PLAIN, IN_TRANSACTIONS)
        load.wait_for_more()
    scene.note = f"without a quorum a new topic was refused after {refused_s:.1f} s"


def _refusal_s(cluster: Cluster) -> float:
    began_s = time.monotonic()
    admin = AdminClient({"bootstrap.servers": cluster.servers, "log_level": 0})
    try:
        admin.create_topics([NewTopic("never", num_partitions=1, replication_factor=3)])["never"].result(PATIENCE_S)
    except confluent_kafka.KafkaException as e:
        assert "ZooKeeper" in str(e), e
        return time.monotonic() - began_s
    raise AssertionError("a topic was made without a quorum")


@row("F15", "kill -9 of the controller while it makes 200 topics of 10 partitions", gap_s_max=30)
def kill_controller_that_creates(scene: Scene) -> None:
    cluster = scene.cluster(zookeeper=scene.zookeeper())
    topics = [f"many-{number}" for number in range(scene.times(_TOPICS, 20))]
    with scene.load(cluster) as load:
        victim = cluster.controller()
        admin = AdminClient({"bootstrap.servers": cluster.servers, "log_level": 0})
        new = [NewTopic(topic, num_partitions=_PARTITIONS, replication_factor=3) for topic in topics]
        with ThreadPoolExecutor() as threads:
            threads.submit(admin.create_topics, new, operation_timeout=30)
            others = [broker_id for broker_id in IDS if broker_id != victim]
            repeat_until(lambda: bool(cluster.describe(topics[len(topics) // 4], others)))
            cluster.kill(victim)
        repeat_until(lambda: cluster.controller() in others, short_sleep)
        cluster.start(victim)
        cluster.wait_until_well(PLAIN)
        load.wait_for_more()
        whole = 0
        for topic in topics:
            partitions = cluster.describe(topic)
            assert len(partitions) in (0, _PARTITIONS), f"{topic} has {len(partitions)} partitions"
            assert all(each.leader_id > 0 for each in partitions), f"{topic} lacks a leader"
            whole += bool(partitions)
        scene.note = f"{whole} of {len(topics)} topics are there, each whole"


@row("F16", "the controller is held for 20 s, while another is elected, and goes on")
def hold_controller(scene: Scene) -> None:
    ensemble = scene.zookeeper()
    cluster = scene.cluster(zookeeper=ensemble)
    with scene.load(cluster, transactions=True) as load:
        zombie = cluster.controller()
        others = [broker_id for broker_id in IDS if broker_id != zombie]
        cluster.hold(zombie)
        held_s = time.monotonic()
        repeat_until(lambda: cluster.controller(others) in others, short_sleep)
        scene.took("another controller after", time.monotonic() - held_s, 10)
        cluster.create("meanwhile", 3, ask=others)
        time.sleep(max(0.0, scene.times(20, 6) - (time.monotonic() - held_s)))
        cluster.resume(zombie)
        resumed_s = time.monotonic()
        repeat_until(lambda: len({cluster.view(broker_id) for broker_id in IDS}) == 1, short_sleep)
        scene.took("all brokers say the same after", time.monotonic() - resumed_s, 10)
        assert cluster.controller([zombie]) in others
        cluster.wait_until_well(PLAIN, IN_TRANSACTIONS)
        load.wait_for_more()
        with zookeeper_view(ensemble) as view:
            scene.note += f", {view.written_by_the_last_controller()} changes since, none by the old controller"


@row("F14", "ZooKeeper ends the session of a broker, which lives on: it registers again", gap_s_max=10)
def end_session(scene: Scene) -> None:
    ensemble = scene.zookeeper()
    cluster = scene.cluster(zookeeper=ensemble)
    with scene.load(cluster, transactions=True) as load, zookeeper_view(ensemble) as view:
        for victim in (cluster.leader(PLAIN), cluster.controller()):
            before = view.broker_epoch(victim)
            assert before is not None
            view.end_session_of(victim)
            ended_s = time.monotonic()
            repeat_until(lambda b=victim, e=before: (view.broker_epoch(b) or 0) > e, short_sleep)  # type: ignore[misc]
            scene.took("registered again after", time.monotonic() - ended_s, 10)
            cluster.wait_until_well(PLAIN, IN_TRANSACTIONS)
            load.wait_for_more()
            view.written_by_the_last_controller()
            said = {cluster.controller([broker_id]) for broker_id in IDS}
            assert len(said) == 1, f"the controllers are {said}"
