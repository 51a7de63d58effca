"""What an embedded broker is set to, and when it is running, paused, killed and stopped."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.testing import EmbeddedBroker, EmbeddedCluster
from tests.waiting import repeat_until

CLEAN = ".kafka_cleanshutdown"


def partitions_of(broker: EmbeddedBroker, topic: str) -> int:
    return len(broker.running.controller.state.topics[topic].partitions)


def test_a_broker_for_tests_waits_for_nothing_and_throws_nothing_away() -> None:
    with EmbeddedBroker(config={"num.partitions": 3, "auto.create.topics.enable": False}) as broker:
        config = broker.running.config
        wanted = {
            "group.initial.rebalance.delay.ms": 0,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.num.partitions": 1,
            "offsets.retention.check.interval.ms": 100,
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
            "transaction.remove.expired.transaction.cleanup.interval.ms": 100,
            "log.retention.check.interval.ms": 86_400_000,
            "num.partitions": 3,
        }
        assert {name: config.integer(name) for name in wanted} == wanted
        assert config.flag("auto.create.topics.enable") is False
        assert broker.bootstrap_servers == f"{broker.host}:{broker.port}" == f"127.0.0.1:{broker.port}"
        assert partitions_of(broker, broker.create_topic("t")) == 1
        assert partitions_of(broker, broker.create_topic("u", partitions=2)) == 2
        assert [broker.new_topic(), broker.new_topic("orders"), broker.new_topic()] == [
            "topic-1",
            "orders-2",
            "topic-3",
        ]
        assert partitions_of(broker, "topic-1") == 1


def thread_named(name: str, others: set[threading.Thread]) -> threading.Thread:
    (thread,) = [thread for thread in set(threading.enumerate()) - others if thread.name == name]
    return thread


def test_settings_of_the_test_are_stronger_than_those_for_tests() -> None:
    others = set(threading.enumerate())
    with EmbeddedBroker(config={"offsets.topic.num.partitions": 2, "broker.id": 7}) as broker:
        assert broker.running.config.integer("offsets.topic.num.partitions") == 2
        thread = thread_named("ottla-broker-7", others)
        assert thread.daemon, "a test that forgets to stop it can end"


def test_what_a_broker_is_through_its_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    broker = EmbeddedBroker()
    assert not broker.is_running and broker.port == 0
    broker.resume()
    others = set(threading.enumerate())
    with broker:
        directory = broker.data_dir
        assert broker.is_running and directory.parent == tmp_path and directory.name.startswith("ottla-")
        thread = thread_named("ottla-broker", others)
        broker.pause()
        broker.pause()
        assert not broker.is_running
        with pytest.raises(RuntimeError, match="is paused, and answers nothing"):
            broker.create_topic("t")
        broker.resume()
        assert broker.is_running and broker.create_topic("t") == "t"
        broker.pause()
        broker.restart()
        assert broker.is_running and not thread.is_alive() and broker.data_dir == directory
        assert (directory / CLEAN).exists() is False, "it is taken away when it starts"
        broker.pause()
        broker.kill()
        assert not broker.is_running and not (directory / CLEAN).exists()
        for act in (broker.pause, lambda: broker.create_topic("u"), lambda: broker.running):
            with pytest.raises(RuntimeError, match="not running"):
                act()
        broker.restart()
        broker._stop_thread()
        assert (directory / CLEAN).exists(), "only the one death was a violent one"
        broker.start()
        broker.pause()
    assert not directory.exists() and list(tmp_path.iterdir()) == []


def test_a_broker_on_a_port_of_the_test_s_choice_with_data_of_its_own(tmp_path: Path) -> None:
    with EmbeddedBroker() as free:
        port = free.port
    with EmbeddedBroker(tmp_path, port=port) as broker:
        assert (broker.port, broker.data_dir) == (port, tmp_path)


def test_one_partition_and_the_first_unless_told_otherwise() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("t", partitions=2)

        def leaders() -> list[tuple[int, int]]:
            image = broker.running.image
            return [(p.leader, p.leader_epoch) for _, p in sorted(image.topics["t"].partitions.items())]

        (own,) = broker.running.image.brokers
        assert leaders() == [(own, 0), (own, 0)]
        broker.take_leader_away("t")
        assert leaders() == [(-1, 1), (own, 0)]
        broker.elect_leader("t")
        assert leaders() == [(own, 2), (own, 0)]
        broker.elect_leader("t", 1)
        assert leaders() == [(own, 2), (own, 1)]
        for topic, partition in (("u", 0), ("t", 2)):
            with pytest.raises(KafkaError) as caught:
                broker.elect_leader(topic, partition)
            assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_cluster_for_tests_is_quick_and_moves_no_leaders_by_itself() -> None:
    cluster = EmbeddedCluster(2, config={"num.partitions": 3}, broker_config={2: {"num.partitions": 4}})
    assert cluster.running_ids == [] and cluster.bootstrap_servers == ""
    with pytest.raises(KeyError, match="there is no broker 1; there are none: the cluster is not running"):
        _ = cluster[1]
    with cluster:
        assert cluster.ids == (1, 2) and cluster.running_ids == [1, 2]
        assert cluster.bootstrap_servers == ",".join(cluster[number].bootstrap_servers for number in (1, 2))
        for number, partitions in ((1, 3), (2, 4)):
            config = cluster[number].running.config
            wanted = {
                "replica.lag.time.max.ms": 2_000,
                "zookeeper.session.timeout.ms": 3_000,
                "replica.fetch.wait.max.ms": 100,
                "replica.fetch.backoff.ms": 50,
                "controlled.shutdown.retry.backoff.ms": 50,
                "default.replication.factor": 2,
                "num.partitions": partitions,
                "broker.id": number,
            }
            assert {name: config.integer(name) for name in wanted} == wanted
            assert config.flag("auto.leader.rebalance.enable") is False
        assert partitions_of(cluster[cluster.controller_id], cluster.create_topic("t")) == 1
        assert (cluster.leader_of("t"), cluster.isr_of("t")) in ((1, {1, 2}), (2, {1, 2}))
        link = cluster.link(1, 2)
        assert link is cluster.link(1, 2) and link is not cluster.link(2, 1)
        directory = cluster[1].data_dir.parent
        threads = {thread.name for thread in threading.enumerate()}
        assert {"ottla-metadata", "ottla-broker-1", "ottla-broker-2", "ottla-proxy"} <= threads
    assert not directory.exists() and cluster.running_ids == []
    repeat_until(
        lambda: not {"ottla-metadata", "ottla-broker-1", "ottla-proxy"} & {t.name for t in threading.enumerate()}
    )
    cluster.stop()


def test_brokers_of_a_cluster_have_ports_that_follow_each_other() -> None:
    with EmbeddedBroker() as one:
        port = one.port
    with EmbeddedCluster(1, port=port) as cluster:
        assert cluster[1].port == port
    assert EmbeddedCluster().ids == (1, 2, 3)
    cluster = EmbeddedCluster(3, port=port)
    assert [cluster._new_broker(number, Path("/nowhere")).port for number in cluster.ids] == [port, port + 1, port + 2]
