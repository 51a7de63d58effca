"""Where replicas should be: every broker has its share of them and of the leaders, every rack a copy, and as little as
possible is moved for it. Pure: names nobody, asks nobody."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition

Assignment = dict[TopicPartition, list[int]]


def propose(
    current: Mapping[TopicPartition, Collection[int]],
    racks: Mapping[int, str | None],
    *,
    replication_factor: int | None = None,
) -> Assignment:
    """Replicas for all of `current` on the brokers of `racks`; the first of each list is its preferred leader.

    Racks count if every broker names one. Without `replication_factor` each partition has as many replicas as before.
    """
    rules = _Rules(racks)
    wanted = {tp: replication_factor or len(replicas) for tp, replicas in current.items()}
    most = max(wanted.values(), default=1)
    if most > len(racks):
        raise KafkaError(
            f"Replication factor: {most} larger than available brokers: {len(racks)}.",
            code=ErrorCode.INVALID_REPLICATION_FACTOR,
        )
    plan = _Plan(rules, {tp: [b for b in current[tp] if b in racks] for tp in sorted(current)})
    for tp, count in wanted.items():
        plan.fit(tp, count)
    plan.repair_racks()
    plan.level_replicas()
    plan.level_leaders()
    return plan.replicas


class _Rules:
    def __init__(self, racks: Mapping[int, str | None]) -> None:
        self.brokers = sorted(racks)
        self._racks = racks if all(rack is not None for rack in racks.values()) else {}
        self._rack_count = len(set(self._racks.values()))

    def spread(self, replicas: Collection[int]) -> int:
        """How many racks have a copy; without racks, how many brokers."""
        return len({self._racks.get(broker_id, str(broker_id)) for broker_id in replicas})

    def best_spread(self, count: int) -> int:
        return min(count, self._rack_count or count)


class _Plan:
    def __init__(self, rules: _Rules, replicas: Assignment) -> None:
        self.replicas = replicas
        self._rules = rules
        self._load = Counter(dict.fromkeys(rules.brokers, 0))
        self._topic_load: Counter[tuple[str, int]] = Counter()
        self._by_topic: dict[str, list[TopicPartition]] = {}
        for tp, brokers in replicas.items():
            self._by_topic.setdefault(tp.topic, []).append(tp)
            for broker_id in brokers:
                self._count(tp, broker_id, 1)

    def _count(self, tp: TopicPartition, broker_id: int, by: int) -> None:
        self._load[broker_id] += by
        self._topic_load[tp.topic, broker_id] += by

    def _weight(self, tp: TopicPartition, broker_id: int) -> tuple[int, int, int]:
        """Light ones come first: with few replicas of all topics, then of this one."""
        return self._load[broker_id], self._topic_load[tp.topic, broker_id], broker_id

    def fit(self, tp: TopicPartition, count: int) -> None:
        """Takes replicas away or adds some, until there are `count`."""
        replicas = self.replicas[tp]
        while len(replicas) > count:
            # The first leads, and stays if it can.
            rest = {b: self._rules.spread([other for other in replicas if other != b]) for b in replicas[1:]}
            gone = max(rest, key=lambda b: (rest[b], self._weight(tp, b)))
            replicas.remove(gone)
            self._count(tp, gone, -1)
        while len(replicas) < count:
            others = [b for b in self._rules.brokers if b not in replicas]
            come = min(others, key=lambda b: (-self._rules.spread([*replicas, b]), self._weight(tp, b)))
            replicas.append(come)
            self._count(tp, come, 1)

    def _replace(self, tp: TopicPartition, old: int, new: int) -> None:
        replicas = self.replicas[tp]
        replicas[replicas.index(old)] = new
        self._count(tp, old, -1)
        self._count(tp, new, 1)

    def _spread_with(self, tp: TopicPartition, old: int, new: int) -> int:
        return self._rules.spread([new if b == old else b for b in self.replicas[tp]])

    def repair_racks(self) -> None:
        for tp, replicas in self.replicas.items():
            while self._rules.spread(replicas) < self._rules.best_spread(len(replicas)):
                swaps = [(old, new) for old in replicas for new in self._rules.brokers if new not in replicas]
                old, new = min(
                    swaps,
                    key=lambda swap: (
                        -self._spread_with(tp, *swap),
                        self._load[swap[1]] - self._load[swap[0]],
                        swap,
                    ),
                )
                self._replace(tp, old, new)

    def level_replicas(self) -> None:
        """Moves one replica at a time from a broker with many to one with few."""
        while (swap := self._next_swap()) is not None:
            self._replace(*swap)

    def _next_swap(self) -> tuple[TopicPartition, int, int] | None:
        by_load = sorted(self._rules.brokers, key=lambda b: (self._load[b], b))
        for new in by_load:
            for old in reversed(by_load):
                if self._load[old] - self._load[new] < 2:
                    break
                tp = self._best_to_move(old, new)
                if tp is not None:
                    return tp, old, new
        return None

    def _best_to_move(self, old: int, new: int) -> TopicPartition | None:
        """Of the topic that is spread worst over the two, so that topics are spread as well as all together."""
        excess = {topic: self._topic_load[topic, old] - self._topic_load[topic, new] for topic in self._by_topic}
        for topic in sorted(excess, key=lambda topic: (-excess[topic], topic)):
            movable = [tp for tp in self._by_topic[topic] if self._may_replace(tp, old, new)]
            if movable:
                return max(movable, key=lambda tp: (self.replicas[tp][0] != old, tp))
        return None

    def _may_replace(self, tp: TopicPartition, old: int, new: int) -> bool:
        replicas = self.replicas[tp]
        return (
            old in replicas and new not in replicas and self._spread_with(tp, old, new) >= self._rules.spread(replicas)
        )

    def level_leaders(self) -> None:
        """By the order of replicas alone: nothing has to be copied for it."""
        led: dict[int, dict[TopicPartition, None]] = {broker_id: {} for broker_id in self._rules.brokers}
        for tp, replicas in self.replicas.items():
            led[replicas[0]][tp] = None
        while (chain := self._leader_chain(led)) is not None:
            for tp, leader in chain:
                replicas = self.replicas[tp]
                del led[replicas[0]][tp]
                replicas.remove(leader)
                replicas.insert(0, leader)
                led[leader][tp] = None

    def _leader_chain(self, led: Mapping[int, Collection[TopicPartition]]) -> list[tuple[TopicPartition, int]] | None:
        """Partitions that are to be led by others, so that a broker that leads many leads one less, and one that leads
        few leads one more."""
        for start in sorted(led, key=lambda b: (-len(led[b]), b)):
            came_by: dict[int, tuple[TopicPartition, int] | None] = {start: None}
            waiting = deque([start])
            while waiting:
                giver = waiting.popleft()
                if len(led[start]) - len(led[giver]) >= 2:
                    return _path(came_by, giver)
                for tp in led[giver]:
                    if len(came_by) == len(led):
                        break
                    for taker in self.replicas[tp][1:]:
                        if taker not in came_by:
                            came_by[taker] = tp, giver
                            waiting.append(taker)
        return None


def _path(came_by: Mapping[int, tuple[TopicPartition, int] | None], end: int) -> list[tuple[TopicPartition, int]]:
    chain: list[tuple[TopicPartition, int]] = []
    step = came_by[end]
    while step is not None:
        tp, giver = step
        chain.append((tp, end))
        end = giver
        step = came_by[end]
    return chain
