"""What must hold after every event of a simulation, whatever has gone wrong: the promises of replication.

- One leader per partition and epoch; the leader is in sync, and in sync are replicas only.
- What is below a high watermark is the same everywhere, and for ever; every replica in sync has it.
- Nobody reads above it, and nothing is acknowledged before it is below it.
- The batches of an idempotent producer are there once each, in order, without a gap.

Records may be gone where every replica in sync has lost them with its disk, or where those that have not were
restarted, too, or are away: nobody can tell such replicas from each other. Of that partition nothing more is asked.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.broker.partition import Partition
from ottla.log.partition_log import PartitionLog
from ottla.metadata import paths
from ottla.metadata.store import Committed
from ottla.records.batch import BatchHeader, iter_headers
from ottla.testing.sim.brokers import SimBroker
from ottla.testing.sim.store import SimEnsemble

_READ_BYTES = 1 << 20


class ViolationError(AssertionError):
    """A promise is broken."""


class _Batch(NamedTuple):
    base_offset: int
    next_offset: int
    leader_epoch: int
    crc: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


class _Seen(NamedTuple):
    """What of a replica decides whether there is anything to check."""

    life: int
    leader_epoch: int
    """-1 while it does not lead."""
    high_watermark: int
    log_end_offset: int


@dataclass(slots=True)
class _History:
    """What is committed of a partition, and so can never change."""

    batches: list[_Batch] = field(default_factory=list)
    base_offsets: list[int] = field(default_factory=list)
    end_offset: int = 0
    next_sequences: dict[tuple[int, int], int] = field(default_factory=dict)
    """By producer id and epoch."""

    def at(self, offset: int) -> _Batch | None:
        place = bisect_right(self.base_offsets, offset) - 1
        return self.batches[place] if place >= 0 else None


class Checks:
    def __init__(self, brokers: Iterable[SimBroker], ensemble: SimEnsemble) -> None:
        self._brokers = list(brokers)
        self._by_name = {broker.name: broker for broker in self._brokers}
        self._ensemble = ensemble
        self._history: dict[TopicPartition, _History] = {}
        self._leaders: dict[tuple[TopicPartition, int], int] = {}
        self._seen: dict[tuple[int, TopicPartition], _Seen] = {}
        self._states: dict[TopicPartition, paths.PartitionStateNode] = {}
        self._replicas: dict[TopicPartition, list[int]] = {}
        self._moving: set[TopicPartition] = set()
        self._weakened: set[tuple[TopicPartition, int]] = set()
        """Replicas whose disk has lost records since they last had all that is committed."""
        self._lives_at_loss: dict[int, dict[int, int]] = {}
        """By broker that has lost power: which lives the others were in."""
        self.excused: set[TopicPartition] = set()
        """Partitions that may have lost records."""
        self._broken: ViolationError | None = None
        """Found in the middle of a broker's work, which must not take it for an error of its own."""
        ensemble.on_commit = self._stored

    def history(self, tp: TopicPartition) -> _History:
        return self._history.setdefault(tp, _History())

    # The store

    def _stored(self, committed: list[Committed]) -> None:
        for done in committed:
            parts = done.path.split("/")
            try:
                if done.path.startswith(paths.topic("")) and len(parts) == 4:
                    self._topic_stored(parts[3], done.path)
                elif done.path.endswith("/state") and len(parts) == 7:
                    self._state_stored(TopicPartition(parts[3], int(parts[5])), done.path)
            except ViolationError as e:
                self._broken = e

    def _topic_stored(self, name: str, path: str) -> None:
        node = self._ensemble.file.get(path)
        if node is not None:
            topic = paths.TopicNode.decode(node.data)
            for partition, replicas in topic.partitions.items():
                tp = TopicPartition(name, partition)
                self._replicas[tp] = replicas
                is_moving = bool(topic.adding.get(partition) or topic.removing.get(partition))
                (self._moving.add if is_moving else self._moving.discard)(tp)

    def _state_stored(self, tp: TopicPartition, path: str) -> None:
        node = self._ensemble.file.get(path)
        if node is None:
            return
        state = paths.PartitionStateNode.decode(node.data)
        before = self._states.get(tp)
        replicas = self._replicas.get(tp)
        if replicas is not None and not set(state.isr) <= set(replicas):
            raise ViolationError(f"{tp}: in sync are {state.isr}, replicas are {replicas}")
        if not state.isr:
            raise ViolationError(f"{tp}: nobody is in sync")
        if state.leader >= 0 and state.leader not in state.isr:
            raise ViolationError(f"{tp}: leader {state.leader} is not in sync ({state.isr})")
        if before is not None and state.leader_epoch < before.leader_epoch:
            raise ViolationError(f"{tp}: leader epoch went back from {before.leader_epoch} to {state.leader_epoch}")
        if before is not None and state.leader != before.leader and state.leader_epoch == before.leader_epoch:
            raise ViolationError(f"{tp}: leaders {before.leader} and {state.leader} share epoch {state.leader_epoch}")
        self._states[tp] = state
        self._excuse(tp)
        if before is not None and (tp, state.leader) in self._weakened and not self._has_stayed(tp, before.isr, state):
            self.excused.add(tp)
        if tp not in self.excused:
            self._everybody_has(tp, self.history(tp).end_offset)

    def state(self, tp: TopicPartition) -> paths.PartitionStateNode | None:
        return self._states.get(tp)

    def partitions(self) -> list[TopicPartition]:
        return sorted(self._states)

    # Disks that lost records

    def lost_power(self, broker_id: int) -> None:
        self._lives_at_loss[broker_id] = {broker.broker_id: broker.lives for broker in self._brokers}
        for tp, replicas in self._replicas.items():
            if broker_id in replicas:
                self._weakened.add((tp, broker_id))
                self._excuse(tp)

    def _excuse(self, tp: TopicPartition) -> None:
        state = self._states.get(tp)
        if state is not None and all((tp, member) in self._weakened for member in state.isr):
            self.excused.add(tp)

    def _has_stayed(self, tp: TopicPartition, isr: list[int], state: paths.PartitionStateNode) -> bool:
        """Whether somebody who was in sync has lost nothing and was there all the time since the leader's loss."""
        lives = self._lives_at_loss[state.leader]
        return any(
            broker.broker_id in isr
            and (tp, broker.broker_id) not in self._weakened
            and broker.lives == lives[broker.broker_id]
            and self._ensemble.file.get(f"{paths.BROKER_IDS}/{broker.broker_id}") is not None
            for broker in self._brokers
        )

    # After every event

    def after_event(self, name: str) -> None:
        """Of the broker of this name, or of a client, which holds nothing."""
        if self._broken is not None:
            raise self._broken
        broker = self._by_name.get(name)
        if broker is None or broker.serving is None:
            return
        for partition in broker.serving.replicas:
            leader = partition.leader
            log = partition.log
            seen = _Seen(
                broker.lives, -1 if leader is None else leader.leader_epoch, log.high_watermark, log.log_end_offset
            )
            key = (broker.broker_id, partition.tp)
            before = self._seen.get(key)
            if before != seen:
                self._seen[key] = seen
                if partition.tp not in self.excused:
                    self._changed(broker, partition, before, seen)

    def _changed(self, broker: SimBroker, partition: Partition, before: _Seen | None, seen: _Seen) -> None:
        tp = partition.tp
        if before is not None and before.life != seen.life:
            before = None
        if seen.leader_epoch >= 0 and (before is None or before.leader_epoch != seen.leader_epoch):
            self._leads(broker, partition, seen)
        if seen.high_watermark > seen.log_end_offset:
            raise ViolationError(
                f"{tp} on {broker.name}: the log ends at {seen.log_end_offset}, below its high watermark"
                f" {seen.high_watermark}"
            )
        start = 0 if before is None else before.high_watermark
        if seen.high_watermark > start:
            self._is_committed(broker, partition.log, tp, start, seen.high_watermark)
        if (tp, broker.broker_id) in self._weakened:
            self._look_at_weakened(broker, partition, seen)

    def _leads(self, broker: SimBroker, partition: Partition, seen: _Seen) -> None:
        tp = partition.tp
        known = self._leaders.setdefault((tp, seen.leader_epoch), broker.broker_id)
        if known != broker.broker_id:
            raise ViolationError(f"{tp}: brokers {known} and {broker.broker_id} both lead in epoch {seen.leader_epoch}")
        state = self._states.get(tp)
        history = self.history(tp)
        if state is None or (state.leader, state.leader_epoch) != (broker.broker_id, seen.leader_epoch):
            return  # Somebody else was elected meanwhile, which this broker has not heard yet.
        if seen.log_end_offset < history.end_offset:
            raise ViolationError(
                f"{tp}: {broker.name} leads in epoch {seen.leader_epoch} with a log that ends at"
                f" {seen.log_end_offset}; {history.end_offset} was committed"
            )
        self._compare(broker, partition.log, tp, 0, history.end_offset)

    def _is_committed(self, broker: SimBroker, log: PartitionLog, tp: TopicPartition, start: int, end: int) -> None:
        history = self.history(tp)
        known = min(end, history.end_offset)
        self._compare(broker, log, tp, start, known)
        if end > history.end_offset:
            for header in _headers(log, history.end_offset, end):
                self._extend(broker, tp, history, header)
            self._everybody_has(tp, history.end_offset)

    def _extend(self, broker: SimBroker, tp: TopicPartition, history: _History, header: BatchHeader) -> None:
        if header.base_offset != history.end_offset:
            raise ViolationError(f"{tp} on {broker.name}: a batch at {header.base_offset} after {history.end_offset}")
        batch = _batch_of(header)
        if batch.producer_id >= 0 and batch.base_sequence >= 0:
            producer = (batch.producer_id, batch.producer_epoch)
            expected = history.next_sequences.get(producer, 0)
            if batch.base_sequence != expected:
                raise ViolationError(
                    f"{tp}: producer {producer} has sequence {batch.base_sequence} at {batch.base_offset},"
                    f" {expected} was next"
                )
            history.next_sequences[producer] = batch.base_sequence + batch.next_offset - batch.base_offset
        history.batches.append(batch)
        history.base_offsets.append(batch.base_offset)
        history.end_offset = batch.next_offset

    def _compare(self, broker: SimBroker, log: PartitionLog, tp: TopicPartition, start: int, end: int) -> None:
        history = self.history(tp)
        for header in _headers(log, start, end):
            if history.at(header.base_offset) != _batch_of(header):
                raise ViolationError(
                    f"{tp} on {broker.name}: the batch at {header.base_offset} is not the one that was committed"
                    f" ({_batch_of(header)}, {history.at(header.base_offset)})"
                )

    def _everybody_has(self, tp: TopicPartition, end_offset: int) -> None:
        state = self._states.get(tp)
        for broker in self._brokers:
            running = broker.serving
            if state is None or running is None or broker.broker_id not in state.isr:
                continue
            found = running.replicas.find(tp.topic, tp.partition)
            if found is None or (tp, broker.broker_id) in self._weakened:
                continue
            if found.log.log_end_offset < end_offset:
                raise ViolationError(
                    f"{tp}: {end_offset} is committed, {broker.name} is in sync and ends at {found.log.log_end_offset}"
                )

    def _look_at_weakened(self, broker: SimBroker, partition: Partition, seen: _Seen) -> None:
        """A replica that has all that is committed, after its disk had lost records, counts again."""
        history = self.history(partition.tp)
        if seen.log_end_offset >= history.end_offset and all(
            history.at(header.base_offset) == _batch_of(header)
            for header in _headers(partition.log, 0, history.end_offset)
        ):
            self._weakened.discard((partition.tp, broker.broker_id))

    # What clients were told

    def acknowledged(self, tp: TopicPartition, base_offset: int, producer_id: int, sequence: int) -> None:
        """A write with acks=all."""
        if tp in self.excused:
            return
        found = self.history(tp).at(base_offset)
        if found is None or (found.base_offset, found.producer_id, found.base_sequence) != (
            base_offset,
            producer_id,
            sequence,
        ):
            raise ViolationError(
                f"{tp}: sequence {sequence} of producer {producer_id} was acknowledged at {base_offset}, but"
                f" committed is {found} (end {self.history(tp).end_offset})"
            )

    def was_read(self, tp: TopicPartition, header: BatchHeader) -> None:
        if tp in self.excused:
            return
        if self.history(tp).at(header.base_offset) != _batch_of(header):
            raise ViolationError(
                f"{tp}: somebody read a batch at {header.base_offset} that is not committed"
                f" (end {self.history(tp).end_offset})"
            )

    # At the end

    def unfinished(self) -> str | None:
        """After everything has healed: why the cluster is not whole yet, if it is not."""
        for tp, replicas in self._replicas.items():
            state = self._states.get(tp)
            if state is None or state.leader < 0 or set(state.isr) != set(replicas):
                return f"{tp}: replicas {replicas}, state {state}"
            if tp in self._moving:
                return f"{tp}: is still being moved"
            if strays := [b.name for b in self._brokers if b.broker_id not in replicas and self._end_on(b, tp)]:
                return f"{tp}: {strays} have copies that were moved away"
            ends = {self._end_on(broker, tp) for broker in self._brokers if broker.broker_id in replicas}
            if len(ends) != 1 or None in ends:
                return f"{tp}: log ends and high watermarks {ends}"
        return None

    def _end_on(self, broker: SimBroker, tp: TopicPartition) -> tuple[int, int] | None:
        partition = None if broker.serving is None else broker.serving.replicas.find(tp.topic, tp.partition)
        return None if partition is None else (partition.log.log_end_offset, partition.log.high_watermark)

    def committed_batches(self, tp: TopicPartition) -> Iterator[bytes]:
        """As the leader has them."""
        state = self._states.get(tp)
        for broker in self._brokers:
            if state is not None and broker.broker_id == state.leader and broker.serving is not None:
                partition = broker.serving.replicas.find(tp.topic, tp.partition)
                if partition is not None:
                    yield from _batches(partition.log, self.history(tp).end_offset)

    def compare_all(self) -> None:
        """Every replica against what is committed, from the first offset to the last."""
        for broker in self._brokers:
            for partition in broker.serving.replicas if broker.serving is not None else ():
                if partition.tp not in self.excused:
                    self._compare(broker, partition.log, partition.tp, 0, self.history(partition.tp).end_offset)


def _batch_of(header: BatchHeader) -> _Batch:
    return _Batch(
        header.base_offset,
        header.next_offset,
        header.partition_leader_epoch,
        header.crc,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )


def _batches(log: PartitionLog, end: int) -> Iterator[bytes]:
    offset = log.log_start_offset
    while offset < end and (data := log.read(offset, _READ_BYTES, end_offset=end).data) is not None:
        records = os.pread(data.file.fd, data.length, data.position)
        for position, header in iter_headers(records):
            yield records[position : position + header.size]
            offset = header.next_offset


def _headers(log: PartitionLog, start: int, end: int) -> Iterator[BatchHeader]:
    """Of the batches that lie between `start` and `end`."""
    offset = max(start, log.log_start_offset)
    while offset < end and (data := log.read(offset, _READ_BYTES, end_offset=end).data) is not None:
        for _, header in iter_headers(os.pread(data.file.fd, data.length, data.position)):
            if header.next_offset > end:
                return
            if header.base_offset >= start:
                yield header
            offset = header.next_offset
