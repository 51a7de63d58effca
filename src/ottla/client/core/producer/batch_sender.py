"""What is sent now, to whom, and what a reply means: the rules that keep records from being lost, doubled or reordered.

A partition's batches go out in their order, one per request, several requests at a time. Batches that failed go back to
their places. With idempotence each batch has a sequence number, which the broker accepts only in order:

- Nothing follows the first batch of a producer id and epoch before it is accepted, because a broker that knows nothing
  of a producer takes any number as its first.
- A batch that is refused as out of order waits until nothing of its partition is in flight. If batches are left whose
  fate is unknown, those are tried first: a broker that has forgotten older batches but recognises a newer one (as after
  a restart) has thereby stored the older ones too. Otherwise there is a gap, and everything left is numbered anew under
  a higher epoch (KIP-360).

Every method is to be called by one thread at a time. Nothing here waits; time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ottla.base.errors import ERRORS, ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.client.core.metadata import NO_LEADER, BrokerAddress, MetadataCache
from ottla.client.core.producer.accumulator import Accumulator, PartitionQueue
from ottla.client.core.producer.batch import UNKNOWN_OFFSET, Batch
from ottla.client.core.producer.options import PARTITION_OVERHEAD, ProducerSettings
from ottla.client.core.producer.results import PartitionResult, cause_of, cause_unsaid, too_late
from ottla.client.core.settings import backoff_ms
from ottla.client.errors import ClientError, DeliveryTimeoutError, client_error
from ottla.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, increment_sequence

MAX_PRODUCER_EPOCH = 2**15 - 1

_OUT_OF_ORDER = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
_FATE_UNKNOWN = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        # A broker that ceases to lead says so of what it has stored, too, while its followers fetch it.
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class ProduceCall(NamedTuple):
    """One request: at most one batch of a partition."""

    node_id: int
    batches: list[Batch]


class BatchSender:
    def __init__(
        self,
        settings: ProducerSettings,
        accumulator: Accumulator,
        metadata: MetadataCache,
        *,
        may_write: Callable[[TopicPartition], bool] = lambda _: True,
        on_transaction_error: Callable[[ClientError], None] | None = None,
        why_waiting: Callable[[], str] = lambda: "",
    ) -> None:
        """`why_waiting` says what keeps requests from being sent at all; it is asked when a batch is too late."""
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.flushing = 0
        """How many callers wait for everything to be sent: batches go out without lingering."""
        self.fatal_error: ClientError | None = None
        self.giving_up: ClientError | None = None
        """Why batches that fail are not sent again: their transaction is being aborted."""
        self._settings = settings
        self._request_overhead = settings.request_overhead
        self._accumulator = accumulator
        self._metadata = metadata
        self._may_write = may_write
        self._on_transaction_error = on_transaction_error
        self._why_waiting = why_waiting
        self._calls_in_flight: dict[int, int] = {}
        self._held_up_since_ms: dict[int, int] = {}
        """Brokers for which something is due that cannot be sent. They have answered nothing since then."""

    @property
    def needs_producer_id(self) -> bool:
        return self._settings.idempotent and self._settings.transactional_id is None and self.producer_id < 0

    def set_producer(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch

    # What to send

    def drain(self, now_ms: int) -> list[ProduceCall]:
        """The requests that can be sent now. Their batches count as being in flight until `replied` or `failed`."""
        calls: list[ProduceCall] = []
        if self.fatal_error is not None or (self._settings.idempotent and self.producer_id < 0):
            return calls
        while True:
            round_of_calls = self._one_round(now_ms)
            if not round_of_calls:
                self._accumulator.close_late_lanes(now_ms)
                if self._settings.availability_timeout_ms:
                    self._note_held_up(now_ms)
                return calls
            calls += round_of_calls

    def _one_round(self, now_ms: int) -> list[ProduceCall]:
        """At most one request for each broker."""
        calls: dict[int, ProduceCall] = {}
        sizes: dict[int, int] = {}
        settings = self._settings
        most = settings.max_in_flight
        for topic_partition, queue in self._accumulator.busy.items():
            if not queue.queue or len(queue.in_flight) >= most:
                continue
            batch = self._sendable(queue, now_ms)
            if batch is None:
                continue
            node_id = self._metadata.leader_of(*topic_partition)
            if node_id == NO_LEADER:
                # The topic may have been forgotten: its records wait for longer than metadata.max.idle.ms.
                self._metadata.use(batch.topic, now_ms)
                self._metadata.request_update()
                self._accumulator.unstick(queue.queue[-1])
                continue
            if node_id not in calls and self._calls_in_flight.get(node_id, 0) >= most:
                continue
            size = sizes.get(node_id, self._request_overhead) + batch.size + len(batch.topic) + PARTITION_OVERHEAD
            if node_id in calls and size > settings.max_request_size:
                continue
            if not self._may_write(topic_partition):
                continue
            self._take(queue, batch)
            sizes[node_id] = size
            calls.setdefault(node_id, ProduceCall(node_id, [])).batches.append(batch)
        for node_id, call in calls.items():
            self._calls_in_flight[node_id] = self._calls_in_flight.get(node_id, 0) + 1
            for batch in call.batches:
                self._accumulator.served(batch.topic_partition)
        return list(calls.values())

    def _sendable(self, queue: PartitionQueue, now_ms: int) -> Batch | None:
        head = queue.queue[0]
        if head.retry_at_ms > now_ms or not self._is_ready(queue, head, now_ms):
            return None
        if not self._settings.idempotent:
            return head
        if head.refused:
            if queue.in_flight:
                return None
            unsure = queue.first_unsure()
            if unsure is not None:
                return unsure if unsure.retry_at_ms <= now_ms else None
            self._number_anew(queue)
            if self.producer_id < 0:
                return None
        if queue.in_flight and not queue.confirmed:
            return None
        if queue.in_flight and not head.is_numbered and not self._is_current(queue):
            return None
        return head

    def _is_ready(self, queue: PartitionQueue, head: Batch, now_ms: int) -> bool:
        return (
            not head.room
            or len(queue.queue) > 1
            or now_ms >= head.opened_ms + self._settings.linger_ms
            or self.flushing > 0
            or self._accumulator.waiting > 0
        )

    def _note_held_up(self, now_ms: int) -> None:
        """After all that can be sent was taken: what is due now waits for its broker (KIP-794).

        A broker that cannot be reached is tried again and again, so only its answer shows that it is not held up.
        """
        before = self._held_up_since_ms
        since_ms = {node_id: before[node_id] for node_id in before if node_id in self._calls_in_flight}
        partitions: dict[TopicPartition, int] = {}
        for topic_partition, queue in self._accumulator.busy.items():
            if queue.queue and self._is_ready(queue, queue.queue[0], now_ms) and self._may_write(topic_partition):
                node_id = self._metadata.leader_of(*topic_partition)
                partitions[topic_partition] = since_ms.setdefault(node_id, before.get(node_id, now_ms))
        self._held_up_since_ms = since_ms
        self._accumulator.held_up_since_ms = partitions

    def _is_current(self, queue: PartitionQueue) -> bool:
        return queue.producer_id == self.producer_id and queue.producer_epoch == self.producer_epoch

    def _take(self, queue: PartitionQueue, batch: Batch) -> None:
        batch.seal()
        queue.queue.remove(batch)
        if self._settings.idempotent and not batch.is_numbered:
            if not self._is_current(queue):
                queue.restart(self.producer_id, self.producer_epoch)
            self._number(queue, batch)
        batch.attempts += 1
        batch.refused = False
        queue.in_flight.append(batch)

    def _number(self, queue: PartitionQueue, batch: Batch) -> None:
        batch.number(queue.producer_id, queue.producer_epoch, queue.next_sequence)
        queue.next_sequence = increment_sequence(queue.next_sequence, batch.record_count)

    def _number_anew(self, queue: PartitionQueue) -> None:
        """There is a gap before the first batch, and nothing is in flight: all that is left starts from 0 again."""
        if self._is_current(queue):
            if self.producer_epoch == MAX_PRODUCER_EPOCH:
                self.producer_id = NO_PRODUCER_ID  # a new one is asked for; until then nothing is sent
                return
            self.producer_epoch += 1
        queue.restart(self.producer_id, self.producer_epoch)
        for batch in queue.queue:
            batch.refused = batch.maybe_stored = False
            if batch.is_numbered:
                self._number(queue, batch)

    def next_wake_ms(self, now_ms: int) -> int | None:
        """When something may become due that no reply or new record announces; None if nothing will."""
        self._accumulator.forget_idle()
        if not self._accumulator.incomplete:
            self._accumulator.earliest_deadline_ms = None
        wake_ms = self._accumulator.earliest_deadline_ms
        for queue in self._accumulator.busy.values():
            if queue.queue and wake_ms is not None:
                head = queue.queue[0]
                first = (queue.first_unsure() or head) if head.refused else head
                due_ms = max(first.retry_at_ms, head.opened_ms + self._settings.linger_ms)
                if now_ms < due_ms < wake_ms:
                    wake_ms = due_ms
        return wake_ms

    # What became of it

    def replied(
        self,
        call: ProduceCall,
        results: Mapping[TopicPartition, PartitionResult],
        now_ms: int,
        endpoints: Iterable[BrokerAddress] = (),
    ) -> list[Batch]:
        """Takes in a reply; returns the batches that are done because of it."""
        self._call_ended(call)
        self._held_up_since_ms.pop(call.node_id, None)
        done: list[Batch] = []
        for batch in call.batches:
            result = results.get(batch.topic_partition)
            if result is None:
                result = PartitionResult(ErrorCode.UNKNOWN_SERVER_ERROR, message="the reply left this partition out")
            self._judge(batch, result, call.node_id, now_ms, endpoints, done)
        return self._settled(done)

    def failed(self, call: ProduceCall, error: KafkaError, now_ms: int) -> list[Batch]:
        """No reply came, or none will: the connection was lost, could not be made, or was silent for too long."""
        self._call_ended(call)
        self._metadata.request_update()
        done: list[Batch] = []
        result = PartitionResult(error.code, message=error.message)
        for batch in call.batches:
            self._judge(batch, result, None, now_ms, (), done)
        return self._settled(done)

    def _call_ended(self, call: ProduceCall) -> None:
        left = self._calls_in_flight[call.node_id] - 1
        if left:
            self._calls_in_flight[call.node_id] = left
        else:
            del self._calls_in_flight[call.node_id]

    def _judge(
        self,
        batch: Batch,
        result: PartitionResult,
        node_id: int | None,
        now_ms: int,
        endpoints: Iterable[BrokerAddress],
        done: list[Batch],
    ) -> None:
        """`node_id` is the broker's who has said so, if one has."""
        queue = self._accumulator.partitions[batch.topic_partition]
        queue.in_flight.remove(batch)
        code = result.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._stored(queue, batch, result, done)
            return
        queue.last_cause = cause_of(result, node_id)
        if batch.done:  # its time was up while it was on its way
            return
        if self.giving_up is not None:
            if self._on_transaction_error is not None:
                # It takes its number with it, which those of the next transaction would not follow.
                self._on_transaction_error(self.giving_up)
            batch.fail(self.giving_up)
            done.append(batch)
            return
        info = ERRORS.get(ErrorCode(code)) if code in ErrorCode._value2member_map_ else None
        if info is not None and info.refreshes_metadata:
            topic, partition = batch.topic_partition
            if result.leader is None or not self._metadata.learn_leader(topic, partition, result.leader, endpoints):
                self._metadata.request_update()
        batch.maybe_stored |= code in _FATE_UNKNOWN
        if code == ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1:
            for part in self._accumulator.split(batch):
                queue.put_back(part)
        elif code in _OUT_OF_ORDER and self._settings.idempotent:
            self._out_of_order(queue, batch, result, done)
        elif info is not None and info.retriable and batch.attempts <= self._settings.retries:
            client = self._settings.client
            batch.retry_at_ms = now_ms + backoff_ms(
                batch.attempts, client.retry_backoff_ms, client.retry_backoff_max_ms
            )
            queue.put_back(batch)
        else:
            self._refuse(batch, result, done)

    def _out_of_order(self, queue: PartitionQueue, batch: Batch, result: PartitionResult, done: list[Batch]) -> None:
        if batch.maybe_stored and batch.order < queue.last_done_order:
            # A later batch was accepted, which only the storing of this one made possible. It is too old to be known.
            batch.succeed(UNKNOWN_OFFSET)
            done.append(batch)
            return
        # Behind a batch that has yet to be stored, being out of order is only to be expected.
        batch.refused = all(
            earlier.refused for earlier in (*queue.queue, *queue.in_flight) if earlier.order < batch.order
        )
        if batch.refused and self._settings.transactional_id is not None:
            self._refuse(batch, result, done)  # a new epoch in the middle of a transaction would fence it
        else:
            queue.put_back(batch)

    def _stored(self, queue: PartitionQueue, batch: Batch, result: PartitionResult, done: list[Batch]) -> None:
        queue.last_cause = ""
        if self._settings.idempotent and batch.producer_epoch == queue.producer_epoch:
            queue.confirmed = True
            queue.last_done_order = max(queue.last_done_order, batch.order)
            self._infer_earlier(queue, batch, done)
        if not batch.done:
            batch.succeed(result.base_offset, result.log_append_time_ms)
            done.append(batch)

    def _infer_earlier(self, queue: PartitionQueue, batch: Batch, done: list[Batch]) -> None:
        """The broker has accepted `batch`: what it refused as too old before that, it had stored."""
        for earlier in list(queue.queue):
            if (
                earlier.order < batch.order
                and earlier.refused
                and earlier.maybe_stored
                and earlier.producer_epoch == batch.producer_epoch
            ):
                queue.queue.remove(earlier)
                earlier.succeed(UNKNOWN_OFFSET)
                done.append(earlier)

    def _refuse(self, batch: Batch, result: PartitionResult, done: list[Batch]) -> None:
        transactional = self._settings.transactional_id is not None
        where = str(batch.topic_partition)
        error = client_error(result.error_code, result.message, where=where, requires_abort=transactional)
        culprits = {
            # The code is that of the first of them; with more than one, it may not be that of this one.
            index: client_error(
                result.error_code if len(result.record_errors) == 1 else ErrorCode.INVALID_RECORD,
                message or result.message,
                where=where,
                requires_abort=transactional,
            )
            for index, message in result.record_errors
        }
        if culprits:
            error = client_error(
                ErrorCode.INVALID_RECORD,
                "the record was in a batch that was refused because of another record",
                where=where,
                requires_abort=transactional,
            )
        batch.fail(error, culprits)
        reason = batch.reason or error
        if transactional and self._on_transaction_error is not None:
            self._on_transaction_error(reason)
        elif reason.fatal:
            self.fatal_error = reason
            done += self.fail_all(reason)
        done.append(batch)

    # Giving up

    def expire(self, now_ms: int) -> list[Batch]:
        """The batches whose time is up. One that is in flight may still be stored; its reply will not matter."""
        accumulator = self._accumulator
        if accumulator.earliest_deadline_ms is None or now_ms < accumulator.earliest_deadline_ms:
            return []
        done: list[Batch] = []
        for queue in accumulator.busy.values():
            late = [batch for batch in queue.queue if batch.deadline_ms <= now_ms]
            for batch in late:
                queue.queue.remove(batch)
            late += [batch for batch in queue.in_flight if batch.deadline_ms <= now_ms and not batch.done]
            for batch in late:
                batch.seal()
                batch.fail(self._too_late(queue, batch))
                done.append(batch)
        settled = self._settled(done)
        accumulator.earliest_deadline_ms = min((batch.deadline_ms for batch in accumulator.incomplete), default=None)
        return settled

    def _too_late(self, queue: PartitionQueue, batch: Batch) -> DeliveryTimeoutError:
        is_transactional = self._settings.transactional_id is not None
        leader_id = self._metadata.leader_of(*batch.topic_partition)
        unsaid = cause_unsaid(leader_id, is_in_flight=batch in queue.in_flight)
        cause = queue.last_cause or self._why_waiting() or unsaid
        error = too_late(batch, self._settings.delivery_timeout_ms, cause, is_transactional=is_transactional)
        if self._on_transaction_error is not None and is_transactional:
            self._on_transaction_error(error)
        return error

    def fail_all(self, error: ClientError, *, only_unsent: bool = False) -> list[Batch]:
        """Gives up every batch, or those that are not on their way. Their records will not be sent."""
        done: list[Batch] = []
        for queue in self._accumulator.busy.values():
            late = list(queue.queue)
            queue.queue.clear()
            if not only_unsent:
                late += [batch for batch in queue.in_flight if not batch.done]
            for batch in late:
                batch.seal()
                batch.fail(error)
                done.append(batch)
        return self._settled(done)

    def _settled(self, done: list[Batch]) -> list[Batch]:
        """Gives back the memory; adds the batches that were split into those that are done."""
        every = list(dict.fromkeys(done))
        for batch in list(every):
            every += batch.settle_parents()
        for batch in every:
            self._accumulator.release(batch)
        return every
