"""F: networks that lose, delay and separate, between three brokers, three ZooKeepers and clients."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import confluent_kafka

from tests.cluster.chaos.cluster import CLIENTS, IDS, short_sleep
from tests.cluster.chaos.load import IN_TRANSACTIONS, PARTITIONS, PLAIN, Load
from tests.cluster.chaos.table import Scene, row
from tests.cluster.chaos.zookeeper_view import zookeeper_view
from tests.waiting import PATIENCE_S, join, repeat_until

_AS_USUAL = {"replica_lag_time_max_ms": "10000", "zookeeper_session_timeout_ms": "6000"}
_FLAPS_PER_MINUTE_MAX = 6
_LOSS = 0.3
_MEGABIT = 125_000
_BULK = "bulk"


@row(
    "F10",
    "a leader and all clients are cut off from the others: they elect another, nothing acknowledged is lost",
    is_of_network=True,
)
def clients_in_the_minority(scene: Scene) -> None:
    cluster = scene.cluster(zookeeper=scene.zookeeper(), has_client_links=True, **_AS_USUAL)
    with scene.load(cluster) as load:
        lonely = cluster.leader(PLAIN)
        others = [broker_id for broker_id in IDS if broker_id != lonely]
        between = {pair for other in others for pair in ((lonely, other), (other, lonely), (CLIENTS, other))}
        cluster.links.cut = between | cluster.to_zookeeper(lonely)
        cut_s = time.monotonic()
        repeat_until(lambda: all(each.leader_id in others for each in cluster.describe(PLAIN, others)), short_sleep)
        scene.took("others lead after", time.monotonic() - cut_s, 10)
        before = load.acknowledged()
        time.sleep(scene.times(15, 3))
        assert load.acknowledged() == before, "a leader that nobody follows has acknowledged something"
        cluster.links.cut = set()
        healed_s = time.monotonic()
        cluster.wait_until_well(PLAIN)
        load.wait_for_more()
        scene.took("well again after", time.monotonic() - healed_s, 30)


@row("F11", "a ring: no broker reaches the next one, nor one of the ZooKeepers", is_of_network=True)
def ring(scene: Scene) -> None:
    cluster = scene.cluster(zookeeper=scene.zookeeper(), **_AS_USUAL)
    with scene.load(cluster, transactions=True) as load:
        cluster.links.cut = {(one, after) for one, after in zip(IDS, (2, 3, 1), strict=True)} | {(n, -n) for n in IDS}
        time.sleep(scene.times(40, 5))
        cluster.links.cut = set()
        healed_s = time.monotonic()
        cluster.wait_until_well(PLAIN, IN_TRANSACTIONS)
        load.wait_for_more()
        scene.took("well again after", time.monotonic() - healed_s, 30)


@row("F12", "every link loses 30 % of its packets, then carries a megabit per second: nobody flaps", is_of_network=True)
def bad_links(scene: Scene) -> None:
    ensemble = scene.zookeeper()
    cluster = scene.cluster(zookeeper=ensemble, has_client_links=True, **_AS_USUAL)
    with scene.load(cluster) as load, zookeeper_view(ensemble) as view:
        before, began_s = view.partition_epochs(PLAIN), time.monotonic()
        cluster.links.loss = _LOSS
        time.sleep(scene.times(60, 5))
        load.wait_for_more(1)
        cluster.links.loss = 0.0
        to_zookeeper = {link for broker_id in IDS for link in cluster.to_zookeeper(broker_id)}
        between = {(one, other) for one in (CLIENTS, *IDS) for other in IDS if one != other}
        cluster.links.bytes_per_s = dict.fromkeys(to_zookeeper | between, _MEGABIT)
        time.sleep(scene.times(60, 5))
        load.wait_for_more(1)
        minutes = (time.monotonic() - began_s) / 60
        cluster.links.bytes_per_s = {}
        cluster.wait_until_well(PLAIN)
        load.wait_for_more()
        after = view.partition_epochs(PLAIN)
    worst = max(after[index] - before[index] for index in range(PARTITIONS))
    scene.note = f"{worst} changes of an in-sync set or leader at most, in {minutes:.1f} minutes"
    assert worst <= _FLAPS_PER_MINUTE_MAX * max(minutes, 1), scene.note


@row(
    "F18",
    "a follower gets 100 kB/s while more is written: it leaves the in-sync set, and nobody waits for it",
    is_of_network=True,
)
def slow_follower(scene: Scene) -> None:
    cluster = scene.cluster(zookeeper=scene.zookeeper(), log_segment_bytes="20000000", **_AS_USUAL)
    cluster.create(_BULK, PARTITIONS)
    with scene.load(cluster) as load, _bulk_written(cluster.servers):
        began_s = time.monotonic()
        time.sleep(scene.times(10, 2))
        usual_s = _latency_s(load, began_s)
        slow = next(b for b in IDS if b not in (cluster.leader(PLAIN), cluster.controller()))
        others = [broker_id for broker_id in IDS if broker_id != slow]
        cluster.links.bytes_per_s = dict.fromkeys(((slow, other) for other in others), 100_000)
        began_s = time.monotonic()
        led: set[int] = set()
        for topic in (_BULK, PLAIN):
            led = {each.partition_index for each in cluster.describe(topic, others) if each.leader_id != slow}
            for index in led:
                cluster.wait_for_isr(topic, index, set(others), ask=others)
        without_s = time.monotonic()
        scene.note = f"out of all sets after {without_s - began_s:.1f} s"
        time.sleep(scene.times(10, 2))
        # The lag counts from when it last had everything, which is when it last let a round be acknowledged.
        scene.took("a round has waited for it", _latency_s(load, began_s, led, share=1.0), 15)
        later_s = _latency_s(load, without_s, led)
        scene.took(f"p99 of a round was {usual_s * 1000:.0f} ms and is then", later_s, 2 * usual_s)
        cluster.links.bytes_per_s = {}
        cluster.wait_until_well(PLAIN, _BULK)
        load.wait_for_more()


@contextmanager
def _bulk_written(servers: str) -> Iterator[None]:
    """A megabyte per second, whoever follows."""
    is_over = threading.Event()

    def write() -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": servers, "acks": 1, "log_level": 0})
        number = 0
        while not is_over.wait(0.05):
            for _ in range(50):
                number += 1
                producer.produce(_BULK, bytes(1000), partition=number % PARTITIONS)
            producer.poll(0)
        producer.flush(PATIENCE_S)

    thread = threading.Thread(target=write, name="bulk", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        join(thread)


def _latency_s(load: Load, since_s: float, partitions: set[int] | None = None, *, share: float = 0.99) -> float:
    """A percentile of what writers have waited for acknowledgements."""
    waited_s = sorted(
        waited_s
        for writer in load.writers
        if partitions is None or writer.partition in partitions
        for at_s, waited_s in zip(writer.acknowledged_at_s, writer.waited_s, strict=False)
        if at_s > since_s
    )
    return waited_s[min(int(len(waited_s) * share), len(waited_s) - 1)]
