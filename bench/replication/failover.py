"""How long writes stand still when the leader of their partition is killed."""

from __future__ import annotations

import time
from itertools import pairwise

from confluent_kafka import Producer

from bench.replication.clusters import Cluster

_EVERY_S = 0.002
_BEFORE_S, _AFTER_S = 1.0, 1.0
_TIMEOUT_S = 90


def longest_gap_ms(cluster: Cluster, topic: str, leader: int) -> float:
    """The longest time between two acknowledged writes around the leader's end, as a client of librdkafka sees it."""
    bootstrap = cluster.bootstrap
    acknowledged_s: list[float] = []

    def delivered(error: object, message: object) -> None:
        if error is None:
            acknowledged_s.append(time.perf_counter())

    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0, "error_cb": lambda error: None}
    )

    def send_until(deadline_s: float) -> None:
        while time.perf_counter() < deadline_s:
            producer.produce(topic, b"v" * 100, partition=0, on_delivery=delivered)
            producer.poll(_EVERY_S)

    def send_until_acknowledged(after_s: float) -> None:
        begun_s = time.perf_counter()
        while not acknowledged_s or acknowledged_s[-1] < after_s:
            if time.perf_counter() > begun_s + _TIMEOUT_S:
                raise TimeoutError(f"{cluster.name}: nothing was acknowledged within {_TIMEOUT_S} s")
            send_until(time.perf_counter() + 0.05)

    send_until_acknowledged(0)
    send_until(time.perf_counter() + _BEFORE_S)
    first = len(acknowledged_s)
    cluster.kill(leader)
    send_until_acknowledged(time.perf_counter() + 0.05)
    send_until(time.perf_counter() + _AFTER_S)
    producer.flush(_TIMEOUT_S)
    around = acknowledged_s[first - 1 :]
    return 1000 * max(later - earlier for earlier, later in pairwise(around))
