"""F20: two faults at a time, of every kind, at seeded moments, for as long as is asked."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

from tests.cluster.chaos.cluster import CLIENTS, IDS, Cluster
from tests.cluster.chaos.group_load import GroupLoad
from tests.cluster.chaos.load import PARTITIONS, PLAIN
from tests.cluster.chaos.table import Scene, row
from tests.cluster.chaos.zookeeper_view import zookeeper_view
from tests.zookeeper_process import ZooKeeperProcesses

MINUTES_OF_RUN = 60.0
_SHORT_MINUTES = 0.2
_LASTS_S = (0.5, 8.0)
_LATER_S_MAX = 3.0
"""The second fault of a pair begins at most so long after the first."""
_STARTS = 5
_QUIET_S = (0.2, 3.0)
_PAUSE_S = 0.2
"""Of writers: all that was sent in an hour has to be remembered and judged."""
_LOSS = 0.3
_SLOW_BYTES_PER_S = 100_000

Fault: TypeAlias = Callable[["Mix", random.Random], AbstractContextManager[None]]
"""Begins with the block, and is undone at its end."""


class Mix:
    """A cluster, and what is wrong with it at the moment."""

    def __init__(self, cluster: Cluster, ensemble: ZooKeeperProcesses) -> None:
        self.cluster = cluster
        self.ensemble = ensemble
        self._lock = threading.Lock()
        self._taken: set[int] = set()
        self._cuts: list[set[tuple[int, int]]] = []

    @contextmanager
    def broker(self, rng: random.Random) -> Iterator[int]:
        """One that nobody else does something to; often the one that leads most, or the controller."""
        likely = [rng.choice(IDS), rng.choice([each.leader_id for each in self.cluster.describe(PLAIN)] or IDS)]
        likely.append(self.cluster.controller())
        rng.shuffle(likely)
        with self._take([*(each for each in likely if each in IDS), *IDS]) as broker_id:
            yield broker_id

    @contextmanager
    def zookeeper(self, rng: random.Random) -> Iterator[int]:
        numbers = [server.number for server in self.ensemble.servers]
        rng.shuffle(numbers)
        with self._take([-number for number in numbers]) as taken:
            yield -taken

    @contextmanager
    def _take(self, candidates: list[int]) -> Iterator[int]:
        with self._lock:
            chosen = next(each for each in candidates if each not in self._taken)
            self._taken.add(chosen)
        try:
            yield chosen
        finally:
            with self._lock:
                self._taken.discard(chosen)

    @contextmanager
    def cut(self, links: set[tuple[int, int]]) -> Iterator[None]:
        with self._lock:
            self._cuts.append(links)
            self._show_cuts()
        try:
            yield
        finally:
            with self._lock:
                self._cuts.remove(links)
                self._show_cuts()

    def _show_cuts(self) -> None:
        self.cluster.links.cut = set().union(*self._cuts)


@contextmanager
def _killed(mix: Mix, rng: random.Random) -> Iterator[None]:
    with mix.broker(rng) as broker_id:
        mix.cluster.kill(broker_id)
        yield
        _start(mix, broker_id)


@contextmanager
def _stopped(mix: Mix, rng: random.Random) -> Iterator[None]:
    with mix.broker(rng) as broker_id:
        mix.cluster.stop(broker_id)
        yield
        _start(mix, broker_id)


def _start(mix: Mix, broker_id: int) -> None:
    """As whoever watches over it does: while it is cut off from ZooKeeper, by the other fault, it says so and ends."""
    for _ in range(_STARTS):
        try:
            return mix.cluster.start(broker_id)
        except RuntimeError as e:
            if "ZooKeeper" not in str(e).splitlines()[-1]:
                raise
    raise AssertionError(f"broker {broker_id} does not reach ZooKeeper, though no fault lasts so long")


@contextmanager
def _held(mix: Mix, rng: random.Random) -> Iterator[None]:
    with mix.broker(rng) as broker_id:
        mix.cluster.hold(broker_id)
        yield
        mix.cluster.resume(broker_id)


@contextmanager
def _two_apart(mix: Mix, rng: random.Random) -> Iterator[None]:
    one, other = rng.sample(IDS, 2)
    with mix.cut({(one, other), (other, one)} if rng.random() < 0.5 else {(one, other)}):
        yield


@contextmanager
def _without_zookeeper(mix: Mix, rng: random.Random) -> Iterator[None]:
    with mix.cut(mix.cluster.to_zookeeper(rng.choice(IDS))):
        yield


@contextmanager
def _alone(mix: Mix, rng: random.Random) -> Iterator[None]:
    lonely = rng.choice(IDS)
    between = {pair for other in IDS if other != lonely for pair in ((lonely, other), (other, lonely))}
    with mix.cut(between | {(CLIENTS, lonely)} | mix.cluster.to_zookeeper(lonely)):
        yield


@contextmanager
def _lossy(mix: Mix, rng: random.Random) -> Iterator[None]:
    mix.cluster.links.loss = _LOSS * rng.random()
    yield
    mix.cluster.links.loss = 0.0


@contextmanager
def _slow(mix: Mix, rng: random.Random) -> Iterator[None]:
    slow = rng.choice(IDS)
    mix.cluster.links.bytes_per_s = dict.fromkeys(((slow, other) for other in IDS if other != slow), _SLOW_BYTES_PER_S)
    yield
    mix.cluster.links.bytes_per_s = {}


@contextmanager
def _zookeeper_killed(mix: Mix, rng: random.Random) -> Iterator[None]:
    with mix.zookeeper(rng) as number:
        mix.ensemble.kill(number)
        yield
        mix.ensemble.start_one(number)
        mix.ensemble.wait_until_serving()


@contextmanager
def _zookeeper_held(mix: Mix, rng: random.Random) -> Iterator[None]:
    with mix.zookeeper(rng) as number:
        os.kill(mix.ensemble.pid(number), signal.SIGSTOP)
        yield
        os.kill(mix.ensemble.pid(number), signal.SIGCONT)


@contextmanager
def _session_ended(mix: Mix, rng: random.Random) -> Iterator[None]:
    with zookeeper_view(mix.ensemble) as view:
        registered = [broker_id for broker_id in IDS if view.broker_epoch(broker_id) is not None]
        if registered:
            view.end_session_of(rng.choice(registered))
    yield


FAULTS: dict[str, Fault] = {
    "killed": _killed,
    "stopped": _stopped,
    "held": _held,
    "two apart": _two_apart,
    "without ZooKeeper": _without_zookeeper,
    "alone": _alone,
    "lossy": _lossy,
    "slow": _slow,
    "ZooKeeper killed": _zookeeper_killed,
    "ZooKeeper held": _zookeeper_held,
    "session ended": _session_ended,
}
_NEED_ZOOKEEPER = {"session ended"}
"""Cannot be done by a client of a ZooKeeper that lacks its quorum."""
_TAKE_ZOOKEEPER = {"ZooKeeper killed", "ZooKeeper held"}


def choose_pair(rng: random.Random) -> list[str]:
    """Two faults of different kinds, of which neither keeps the other from being done."""
    while True:
        pair = rng.sample(list(FAULTS), 2)
        if not (_NEED_ZOOKEEPER & set(pair) and _TAKE_ZOOKEEPER & set(pair)):
            return pair


@row(
    "F20",
    "two faults of all kinds at a time, under writers, transactions and a changing group",
    gap_s_max=30,
    is_of_network=True,
)
def random_mix(scene: Scene) -> None:
    ensemble = scene.zookeeper()
    cluster = scene.cluster(zookeeper=ensemble, has_client_links=True)
    mix, met = Mix(cluster, ensemble), Counter[str]()
    minutes = _SHORT_MINUTES if scene.short else MINUTES_OF_RUN
    with scene.load(cluster, transactions=True, pause_s=_PAUSE_S) as load, ThreadPoolExecutor(2) as threads:
        group = GroupLoad(cluster.servers, PLAIN, PARTITIONS, members=4)
        ends_s = time.monotonic() + 60 * minutes
        while time.monotonic() < ends_s:
            pair = choose_pair(scene.rng)
            met.update(pair)
            seeds = [scene.rng.random() for _ in pair]
            trouble = [threads.submit(_suffer, mix, *each) for each in zip(pair, seeds, (0.0, 1.0), strict=True)]
            if scene.rng.random() < 0.5:
                group.change_a_member()
            for each in trouble:
                each.result()
            load.wait_for_more(1)
            time.sleep(scene.rng.uniform(*_QUIET_S))
        load.end_writing()
        cluster.wait_until_well(*load.topics)
        read = group.finish()
    scene.note = f"{met.total()} faults ({', '.join(f'{name} {n}' for name, n in sorted(met.items()))}), {read}"


def _suffer(mix: Mix, fault: str, seed: float, later: float) -> None:
    rng = random.Random(seed)
    time.sleep(later * rng.uniform(0.0, _LATER_S_MAX))
    with FAULTS[fault](mix, rng):
        time.sleep(rng.uniform(*_LASTS_S))
