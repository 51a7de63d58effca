"""Records that wait to be sent: a queue of batches per partition, within a bounded amount of memory.

A record is added to a batch with a few list operations and encoded later, with all the others. Memory is accounted for
in steps when a batch opens or grows, so that values can be added to an open batch without asking, through its lane.
Waiting for memory is the shell's business: here `append` says no, and `waiting` tells the sender that somebody is held
up.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence

from ottla.base.types import TopicPartition
from ottla.client.core.producer.batch import Batch, record_size
from ottla.client.core.producer.encoded_batch import EncodedBatch, EncodedRows
from ottla.client.core.producer.lane import FEWEST_PLACES, Lane
from ottla.client.core.producer.partitioners import NO_BACKLOG, Backlog, StickyChoice
from ottla.records.batch import HEADER_SIZE, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, increment_sequence
from ottla.records.builder import RecordFields

_RESERVE_STEP = 16_384


class PartitionQueue:
    """The batches of one partition in their order, and where its sequence of numbers stands."""

    __slots__ = (
        "confirmed",
        "in_flight",
        "last_cause",
        "last_done_order",
        "next_sequence",
        "next_serial",
        "producer_epoch",
        "producer_id",
        "queue",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.queue: deque[Batch] = deque()
        """Batches that are not on their way, oldest first: those to be sent again are before all others."""
        self.in_flight: list[Batch] = []
        self.next_serial = 0
        self.last_cause = ""
        """Why the last request with one of its batches has failed; empty after one that has not."""
        self.restart(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

    def restart(self, producer_id: int, producer_epoch: int) -> None:
        """The next batch is the first of this producer id and epoch."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.next_sequence = 0
        self.confirmed = False
        """Whether the broker has accepted a batch of this producer id and epoch."""
        self.last_done_order: tuple[int, ...] = ()
        """The latest batch of this producer id and epoch that the broker has accepted."""

    def put_back(self, batch: Batch) -> None:
        """A batch that must be sent again takes the place it had."""
        self.queue.insert(sum(waiting.order < batch.order for waiting in self.queue), batch)

    def first_unsure(self) -> Batch | None:
        """The first batch of which the broker has yet to say whether it is stored, behind one that it has refused."""
        return next((batch for batch in self.queue if batch.maybe_stored and not batch.refused), None)


class Accumulator:
    def __init__(
        self,
        *,
        batch_size: int,
        buffer_memory: int,
        delivery_timeout_ms: int,
        random_below: Callable[[int], int],
        steady_ms: int = 0,
        adaptive: bool = True,
        availability_timeout_ms: int = 0,
    ) -> None:
        """For `steady_ms` after a batch was opened, the time is not asked for every value that is added to it."""
        self.batch_size = batch_size
        self.free_bytes = buffer_memory
        self.buffer_memory = buffer_memory
        self.waiting = 0
        """How many senders are held up because the memory is used up."""
        self.sticky: dict[str, Batch] = {}
        """The batch that records without a key or partition go to, by topic. It may be closed already (`room` is 0)."""
        self.lanes: dict[str, Lane] | None = None
        """The lanes of those batches, for shells that add values through them. They may be closed already."""
        self.partitions: dict[TopicPartition, PartitionQueue] = {}
        self.busy: dict[TopicPartition, PartitionQueue] = {}
        """Those of the partitions that have batches. Who was served goes to the end, so that nobody is left out."""
        self.held_up_since_ms: dict[TopicPartition, int] = {}
        """Where batches are due: since when the leader could be sent nothing. The sender says so."""
        self.incomplete: dict[Batch, None] = {}
        """Every batch that is not done, oldest first."""
        self.earliest_deadline_ms: int | None = None
        """No batch has to be given up before that."""
        self._delivery_timeout_ms = delivery_timeout_ms
        self._random_below = random_below
        self._steady_ms = steady_ms
        self._adaptive = adaptive
        self._availability_timeout_ms = availability_timeout_ms
        self._choices: dict[str, StickyChoice] = {}
        self._fills_batches: dict[str, bool] = {}
        """Whether the topic's last sticky batch was full before it was due, so that the next one will be, too."""

    # Adding records

    def append(
        self,
        topic: str,
        partition: int,
        record: RecordFields,
        size: int,
        now_ms: int,
        expected_size: int = _RESERVE_STEP,
    ) -> Batch | None:
        """The batch that took the record as its last, or None if there is no memory for it."""
        queue = self._queue(TopicPartition(topic, partition))
        batch = queue.queue[-1] if queue.queue else None
        if batch is None or not self._has_room(batch, size):
            batch = self._open(queue, size, now_ms, expected_size)
            if batch is None:
                return None
        batch.add(record, size)
        return batch

    def append_encoded(self, topic_partition: TopicPartition, encoded: EncodedRows, now_ms: int) -> Batch | None:
        """A batch of its own for rows that are encoded already, or None if there is no memory for it."""
        size = encoded.size
        if size > self.free_bytes and self.incomplete:
            return None
        queue = self._queue(topic_partition)
        if queue.queue:
            # What is sent from now on must not overtake these rows by joining a batch before them.
            queue.queue[-1].seal()
        batch = EncodedBatch(
            topic_partition,
            (queue.next_serial,),
            encoded,
            opened_ms=now_ms,
            deadline_ms=now_ms + self._delivery_timeout_ms,
        )
        self._enqueue(queue, batch, size)
        return batch

    def append_sticky(
        self, topic: str, available: tuple[int, ...], partition_count: int, record: RecordFields, size: int, now_ms: int
    ) -> Batch | None:
        """The same for a record that may go to any partition."""
        lane = None if self.lanes is None else self.lanes.get(topic)
        if lane is not None and lane.used_up_ms is None:
            lane.used_up_ms = now_ms
        batch = self.sticky.get(topic)
        was_open = batch is not None and batch.room > 0
        if batch is not None and self._has_room(batch, size):
            batch.add(record, size)
            return batch
        choice = self._choices.get(topic)
        if choice is None:
            choice = self._choices[topic] = StickyChoice(self.batch_size, self._random_below)
        if batch is not None:
            choice.produced(batch.size)
            self._fills_batches[topic] = was_open
            del self.sticky[topic]
        expected_size = _RESERVE_STEP
        if self._fills_batches.get(topic):
            # Memory for a batch that will be full is not asked for piece by piece, but there is some for every topic.
            expected_size = max(expected_size, self.free_bytes // (1 + len(self.sticky)))
        partition = choice.choose(available, partition_count, lambda: self.backlog(topic, now_ms))
        batch = self.append(topic, partition, record, size, now_ms, expected_size)
        if batch is not None:
            self.sticky[topic] = batch
        return batch

    def backlog(self, topic: str, now_ms: int) -> Backlog:
        """What another partition of the topic is chosen by."""
        if not self._adaptive:
            return NO_BACKLOG
        waiting = {
            place.partition: len(queue.queue)
            for place, queue in self.busy.items()
            if queue.queue and place.topic == topic
        }
        held_up_before_ms = now_ms - self._availability_timeout_ms
        unavailable = {
            place.partition
            for place, since_ms in self.held_up_since_ms.items()
            if since_ms < held_up_before_ms and place.topic == topic
        }
        return Backlog(waiting, unavailable)

    def unstick(self, batch: Batch) -> None:
        """Nobody takes the batch now: records that may go to any partition shall go to another one."""
        if self.sticky.get(batch.topic) is batch:
            batch.close_lane()
            del self.sticky[batch.topic]

    def open_lane(self, topic: str, wall_ms: int, now_ms: int) -> None:
        """Lets more values be added after one that was added to the topic's sticky batch just now, at `wall_ms`."""
        if self.lanes is None:
            return
        batch, before = self.sticky[topic], self.lanes.get(topic)
        most = FEWEST_PLACES if before is None else before.most_in_next()
        lane = batch.open_lane(most, wall_ms, now_ms, is_timed=now_ms - batch.opened_ms >= self._steady_ms)
        if lane is not None:
            self.lanes[topic] = lane

    def close_lanes(self) -> None:
        """Until the next record of each topic, values are not added without asking."""
        for batch in self.sticky.values():
            batch.close_lane()

    def close_late_lanes(self, now_ms: int) -> None:
        """A batch that could not be sent when it was due may stay open for long: values get their own time then."""
        for batch in self.sticky.values():
            if batch.lane is not None and batch.lane.length >= 0 and now_ms - batch.opened_ms >= self._steady_ms:
                batch.close_lane()

    def extend(
        self, batch: Batch, values: Sequence[bytes], lengths: Sequence[int], ends: Sequence[int], start: int
    ) -> int:
        """Adds values from number `start` on to a batch, as many as fit; returns the number of the first left out.

        They get the timestamp of the batch's last record. `ends[n]` is the size of the values before number n.
        """
        if batch.rows is not None or not batch.room:
            return start
        batch.close_lane()
        limit = min(self.batch_size, batch.room + self.free_bytes)
        end = max(start, bisect_right(ends, ends[start] + limit - batch.size) - 1)
        size = ends[end] - ends[start]
        more = max(0, batch.size + size - batch.room)
        self.free_bytes -= more
        batch.reserved += more
        batch.room += more
        batch.extend(values[start:end], lengths[start:end], size)
        return end

    def _has_room(self, batch: Batch, size: int) -> bool:
        """Whether the batch takes `size` more bytes, for which memory is set aside; one that does not is closed."""
        batch.close_lane()
        needed = batch.size + size
        if needed <= batch.room:
            return True
        if not batch.room:
            return False
        if needed <= self.batch_size:
            least = needed - batch.room
            more = min(max(_RESERVE_STEP, batch.reserved, least), self.batch_size - batch.room, self.free_bytes)
            if more >= least:
                self.free_bytes -= more
                batch.reserved += more
                batch.room += more
                return True
        batch.seal()
        return False

    def _open(self, queue: PartitionQueue, size: int, now_ms: int, expected_size: int) -> Batch | None:
        reserved = max(HEADER_SIZE + size, min(expected_size, self.batch_size))
        # A record larger than all the memory is let through when nothing else is there; send() has judged its size.
        if reserved > self.free_bytes and (self.incomplete or size > self.buffer_memory):
            return None
        topic, partition = queue.topic_partition
        batch = Batch(
            topic, partition, (queue.next_serial,), opened_ms=now_ms, deadline_ms=now_ms + self._delivery_timeout_ms
        )
        batch.room = reserved
        self._enqueue(queue, batch, reserved)
        return batch

    def _queue(self, topic_partition: TopicPartition) -> PartitionQueue:
        queue = self.partitions.get(topic_partition)
        if queue is None:
            queue = self.partitions[topic_partition] = PartitionQueue(topic_partition)
        return queue

    def _enqueue(self, queue: PartitionQueue, batch: Batch, reserved: int) -> None:
        queue.next_serial += 1
        batch.reserved = reserved
        self.free_bytes -= reserved
        if self.earliest_deadline_ms is None or batch.deadline_ms < self.earliest_deadline_ms:
            self.earliest_deadline_ms = batch.deadline_ms
        queue.queue.append(batch)
        self.busy[queue.topic_partition] = queue
        self.incomplete[batch] = None

    def repair(self) -> None:
        """After an exception out of nowhere: a signal's handler may raise between any two steps of the main thread."""
        for topic_partition, queue in self.partitions.items():
            if not queue.queue:
                continue
            last = queue.queue[-1]
            last.repair()
            if last.record_count:
                self.incomplete.setdefault(last)
                self.busy.setdefault(topic_partition, queue)
            else:
                queue.queue.pop()
                self.incomplete.pop(last, None)
        self.sticky = {topic: batch for topic, batch in self.sticky.items() if batch.record_count}
        self.free_bytes = self.buffer_memory - sum(batch.reserved for batch in self.incomplete)
        self.earliest_deadline_ms = min((batch.deadline_ms for batch in self.incomplete), default=None)

    def close_open(self) -> None:
        """No record is added to the batches there are: those to come are the next `append`'s to judge."""
        for batch in self.incomplete:
            batch.seal()

    # Settling batches

    def served(self, topic_partition: TopicPartition) -> None:
        self.busy[topic_partition] = self.busy.pop(topic_partition)

    def forget_idle(self) -> None:
        """Partitions without batches are no longer busy. To be called when no batch is between two places."""
        idle = [place for place, queue in self.busy.items() if not queue.queue and not queue.in_flight]
        for topic_partition in idle:
            del self.busy[topic_partition]

    def release(self, batch: Batch) -> None:
        """A batch is done: its memory is free again."""
        self.incomplete.pop(batch, None)
        self.free_bytes += batch.reserved
        batch.reserved = 0

    def split(self, batch: Batch) -> list[Batch]:
        """Two batches in the place of one that is too large, with the same records and sequence numbers."""
        records = batch.records()
        middle = len(records) // 2
        parts = []
        for number, start, share in ((0, 0, records[:middle]), (1, middle, records[middle:])):
            part = Batch(
                batch.topic,
                batch.partition,
                (*batch.order, number),
                opened_ms=batch.opened_ms,
                deadline_ms=batch.deadline_ms,
            )
            part.rows = share
            part.size = HEADER_SIZE + sum(map(record_size, share))
            if batch.is_numbered:
                part.number(batch.producer_id, batch.producer_epoch, increment_sequence(batch.base_sequence, start))
            parts.append(part)
            self.incomplete[part] = None
        parts[-1].reserved = batch.reserved
        batch.reserved = 0
        batch.split_into(parts)
        return parts
