"""Clients on a network that drops, delays and closes connections: nothing lost, doubled or reordered.

The same with a million records: `python -m tests.client.network_run --records 1000000`.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import Admin, Consumer, Producer, TopicPartition
from ottla.errors import ClusterUnreachableError
from ottla.testing import CALM, EmbeddedBroker, FaultProxy
from tests.client import network_run
from tests.client.network_run import PARTITIONS, Scene, copy_exactly_once, key_of, open_scene, produce
from tests.client.producers import values_of

pytestmark = pytest.mark.crash

CLIENTS = ["sync", "aio"]
PATIENCE_S = 60.0
QUICK: dict[str, object] = {
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 100,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with open_scene(tmp_path / "data", seed=20) as opened:
        yield opened


@pytest.mark.parametrize("client", CLIENTS)
def test_a_producer_with_five_requests_in_flight(client: str, scene: Scene) -> None:
    outcome = produce(scene, client, 50_000, network_run.ROUGH._replace(cut_share=0.08))
    assert outcome.is_right, outcome
    assert outcome.cut_in_requests > 0 and outcome.cut_in_replies > 0, outcome


@pytest.mark.parametrize("client", CLIENTS)
def test_copying_exactly_once(client: str, scene: Scene) -> None:
    outcome = copy_exactly_once(scene, client, 20_000)
    assert outcome.is_right, outcome
    assert outcome.cut_in_requests > 0 and outcome.cut_in_replies > 0, outcome


def test_the_judge_sees_what_is_wrong() -> None:
    def stored(*numbers: int) -> list[array[int]]:
        found = [array("q") for _ in range(PARTITIONS)]
        for number in numbers:
            found[network_run.partition_for_key(key_of(number), PARTITIONS)].append(number)
        return found

    same_partition = [
        number
        for number in range(1000)
        if network_run.partition_for_key(key_of(number), PARTITIONS)
        == network_run.partition_for_key(key_of(0), PARTITIONS)
    ]
    first, second = same_partition[:2]
    everything = list(range(second + 1))
    assert network_run.judge(stored(*everything), second + 1) == (0, 0, 0)
    assert network_run.judge(stored(*everything[1:]), second + 1) == (1, 0, 0)
    assert network_run.judge(stored(*everything, second), second + 1) == (0, 1, 0)
    everything[first], everything[second] = everything[second], everything[first]
    assert network_run.judge(stored(*everything), second + 1) == (0, 0, 1)


def test_a_silent_network_is_waited_for(ottla_network: FaultProxy, ottla: EmbeddedBroker) -> None:
    """Requests time out, connections are given up, and what was under way is sent again when the network is back."""
    topic = ottla.create_topic("t")
    settings = {**QUICK, "bootstrap.servers": ottla_network.bootstrap_servers, "request.timeout.ms": 300}
    with Producer(settings) as producer:
        producer.send(topic, b"before").result(10)
        ottla_network.hold()
        futures = [producer.send(topic, b"%d" % number) for number in range(100)]
        with pytest.raises(TimeoutError):
            futures[0].result(1.0)
        ottla_network.release()
        assert [future.result(20).offset for future in futures] == list(range(1, 101))
    assert values_of(ottla.bootstrap_servers, topic) == [b"before", *(b"%d" % number for number in range(100))]


def test_a_consumer_reads_on_after_a_cut(ottla_network: FaultProxy, ottla: EmbeddedBroker) -> None:
    topic = ottla.create_topic("t", partitions=3)
    with (
        Producer(QUICK, bootstrap_servers=ottla_network.bootstrap_servers) as producer,
        Consumer(
            QUICK, bootstrap_servers=ottla_network.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
        ) as consumer,
    ):
        consumer.subscribe([topic])
        seen: list[bytes | None] = []
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=number % 3)
            deadline_s = time.monotonic() + PATIENCE_S
            while len(seen) <= number:
                assert time.monotonic() < deadline_s
                seen += [record.value for record in consumer.poll(1.0)]
            assert ottla_network.cut_all() > 0
            consumer.commit()
    assert seen == [b"%d" % number for number in range(10)]


def test_a_commit_whose_reply_was_lost_is_made_again(ottla_network: FaultProxy, ottla: EmbeddedBroker) -> None:
    topic = ottla.create_topic("t")
    first = TopicPartition(topic, 0)
    with Consumer(QUICK, bootstrap_servers=ottla_network.bootstrap_servers, group_id="g") as consumer:
        ottla_network.faults = network_run.ROUGHER
        for offset in range(1, 40):
            consumer.commit({first: offset})
            committed = consumer.committed([first])[first]
            assert committed is not None and committed.offset == offset
    assert ottla_network.figures.cut > 0


def test_clients_find_the_cluster_in_spite_of_a_lost_connection(
    ottla_network: FaultProxy, ottla: EmbeddedBroker
) -> None:
    ottla_network.faults = CALM._replace(refused_share=0.4)
    for _ in range(10):
        with Admin(QUICK, bootstrap_servers=ottla_network.bootstrap_servers, bootstrap_fail_fast=True) as admin:
            assert admin.describe_cluster().brokers
    assert ottla_network.figures.refused > 0


def test_nobody_comes_through(ottla_network: FaultProxy, ottla: EmbeddedBroker) -> None:
    ottla_network.faults = CALM._replace(refused_share=1.0)
    with pytest.raises(ClusterUnreachableError, match=r"Check bootstrap\.servers"):
        Producer(bootstrap_servers=ottla_network.bootstrap_servers, bootstrap_fail_fast=True)


def test_administration(ottla_network: FaultProxy, ottla: EmbeddedBroker) -> None:
    with Admin(QUICK, bootstrap_servers=ottla_network.bootstrap_servers) as admin:
        ottla_network.faults = network_run.ROUGHER
        for number in range(20):
            # A topic whose creation was not confirmed is there all the same, and the second try says so.
            created = admin.create_topics([f"t-{number}"])
            assert created.errors.keys() <= {f"t-{number}"}
            assert f"t-{number}" in admin.list_topics()
    assert ottla_network.figures.cut > 0
