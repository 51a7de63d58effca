"""Brokers in memory that follow the rules of idempotent producers, over connections that fail on command."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import NIL_UUID, TopicPartition
from ottla.client.core.metadata import MetadataCache, PartitionLeader
from ottla.client.core.producer.accumulator import Accumulator
from ottla.client.core.producer.batch import RECORD_OVERHEAD, Batch
from ottla.client.core.producer.batch_sender import BatchSender, ProduceCall
from ottla.client.core.producer.options import ProducerSettings
from ottla.client.core.producer.results import PartitionResult
from ottla.records.batch import read_header
from ottla.records.compression import Codec
from ottla.records.reader import read_records
from ottla.wire.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TOPIC = "t"
WINDOW = 5
WRAP = 2**31


def metadata_response(leaders: list[int], epochs: list[int], nodes: int = 2) -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node, host="h", port=node) for node in range(nodes)],
        topics=[
            MetadataResponseTopic(
                name=TOPIC,
                topic_id=NIL_UUID,
                partitions=[
                    MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=epoch)
                    for index, (leader, epoch) in enumerate(zip(leaders, epochs, strict=True))
                ],
            )
        ],
    )


@dataclass
class ProducerState:
    epoch: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=WINDOW))


class ModelPartition:
    """One replicated log: whichever node leads it, what it has stored stays."""

    def __init__(self, max_batch_bytes: int) -> None:
        self.values: list[bytes] = []
        self.producers: dict[int, ProducerState] = {}
        self.max_batch_bytes = max_batch_bytes

    def append(self, payload: bytes) -> PartitionResult:
        if len(payload) > self.max_batch_bytes:
            return PartitionResult(ErrorCode.MESSAGE_TOO_LARGE)
        header = read_header(payload)
        values = [bytes(record.value or b"") for record in read_records(payload, header)]
        first, last = header.base_sequence, header.last_sequence
        if header.producer_id < 0:
            return self._store(values)
        state = self.producers.get(header.producer_id)
        if state is None:
            state = self.producers[header.producer_id] = ProducerState(header.producer_epoch)
        elif header.producer_epoch < state.epoch:
            return PartitionResult(ErrorCode.INVALID_PRODUCER_EPOCH)
        elif header.producer_epoch > state.epoch:
            if first != 0:
                return PartitionResult(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
            state.epoch = header.producer_epoch
            state.batches.clear()
        else:
            for known_first, known_last, offset in state.batches:
                if (known_first, known_last) == (first, last):
                    return PartitionResult(0, offset)
            if state.batches and first != (state.batches[-1][1] + 1) % WRAP:
                return PartitionResult(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        result = self._store(values)
        state.batches.append((first, last, result.base_offset))
        return result

    def _store(self, values: list[bytes]) -> PartitionResult:
        base_offset = len(self.values)
        self.values += values
        return PartitionResult(0, base_offset)

    def restart(self) -> None:
        """After a restart only the newest batch of a producer is known."""
        for state in self.producers.values():
            while len(state.batches) > 1:
                state.batches.popleft()


@dataclass
class Request:
    call: ProduceCall
    payloads: dict[TopicPartition, bytes]
    reply: dict[TopicPartition, PartitionResult] | None = None


class World:
    """A producer, two nodes, and the requests between them."""

    def __init__(
        self, partitions: int = 1, *, max_batch_bytes: int = 1 << 20, why_waiting: str = "", **settings: object
    ) -> None:
        self.now_ms = 1000
        self.settings = ProducerSettings.parse({"bootstrap.servers": "x:1", **settings})
        self.metadata = MetadataCache(backoff_ms=1)
        self.leaders = [0] * partitions
        self.epochs = [0] * partitions
        self.metadata.use(TOPIC, self.now_ms)
        self.learn_metadata()
        self.accumulator = Accumulator(
            batch_size=self.settings.batch_size,
            buffer_memory=self.settings.buffer_memory,
            delivery_timeout_ms=self.settings.delivery_timeout_ms,
            random_below=lambda bound: 0,
            adaptive=self.settings.adaptive_partitioning,
            availability_timeout_ms=self.settings.availability_timeout_ms,
        )
        self.sender = BatchSender(self.settings, self.accumulator, self.metadata, why_waiting=lambda: why_waiting)
        self.logs = [ModelPartition(max_batch_bytes) for _ in range(partitions)]
        self.connections: dict[int, deque[Request]] = {0: deque(), 1: deque()}
        self.zombies: list[Request] = []
        """Requests of lost connections that a broker may still get to see."""
        self.sent: list[list[bytes]] = [[] for _ in range(partitions)]
        self.receipts: list[tuple[Batch, int, bytes]] = []
        self.done: list[Batch] = []
        self.counter = 0
        if self.settings.idempotent:
            self.sender.set_producer(7, 0)

    # The producer's side

    def send(self, partition: int = 0, size: int = 4) -> bool:
        value = b"%0*d" % (size, self.counter)
        record = (None, value, (), self.now_ms)
        batch = self.accumulator.append(TOPIC, partition, record, len(value) + RECORD_OVERHEAD, self.now_ms)
        if batch is None:
            return False
        self.counter += 1
        self.sent[partition].append(value)
        self.receipts.append((batch, batch.record_count - 1, value))
        return True

    def pump(self) -> None:
        self.done += self.sender.expire(self.now_ms)
        for call in self.sender.drain(self.now_ms):
            payloads = {
                batch.topic_partition: batch.encode(Codec.NONE, None, transactional=False) for batch in call.batches
            }
            self.connections[call.node_id].append(Request(call, payloads))

    def learn_metadata(self) -> None:
        self.metadata.update(metadata_response(self.leaders, self.epochs), self.now_ms)

    # The brokers' side

    def handle(self, node: int, error: ErrorCode = ErrorCode.NONE, *, after_append: bool = False) -> bool:
        """The node takes its next request: stores it, or answers `error`, or both."""
        for request in self.connections[node]:
            if request.reply is None:
                request.reply = self._handle(node, request.payloads, error, after_append)
                return True
        return False

    def _handle(
        self, node: int, payloads: dict[TopicPartition, bytes], error: ErrorCode, after_append: bool
    ) -> dict[TopicPartition, PartitionResult]:
        results = {}
        for topic_partition, payload in payloads.items():
            index = topic_partition.partition
            if self.leaders[index] != node:
                leader = PartitionLeader(self.leaders[index], self.epochs[index])
                results[topic_partition] = PartitionResult(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=leader)
            elif error and not after_append:
                results[topic_partition] = PartitionResult(error)
            else:
                stored = self.logs[index].append(payload)
                failed_late = error and not stored.error_code
                results[topic_partition] = PartitionResult(error) if failed_late else stored
        return results

    def reply(self, node: int) -> bool:
        """The oldest reply of a node reaches the producer."""
        requests = self.connections[node]
        if not requests or requests[0].reply is None:
            return False
        request = requests.popleft()
        assert request.reply is not None
        self.done += self.sender.replied(request.call, request.reply, self.now_ms)
        return True

    def disconnect(self, node: int) -> None:
        """Replies on their way are lost; requests on their way may turn up later."""
        requests, self.connections[node] = self.connections[node], deque()
        error = KafkaError("lost", code=ErrorCode.NETWORK_EXCEPTION)
        for request in requests:
            if request.reply is None:
                self.zombies.append(request)
            self.done += self.sender.failed(request.call, error, self.now_ms)

    def zombie(self, node: int) -> None:
        if self.zombies:
            self._handle(node, self.zombies.pop(0).payloads, ErrorCode.NONE, False)

    def move_leader(self, partition: int) -> None:
        self.leaders[partition] = 1 - self.leaders[partition]
        self.epochs[partition] += 1

    def restart(self) -> None:
        for log in self.logs:
            log.restart()

    # The end

    def heal(self, rounds: int = 400) -> None:
        """From now on nothing fails: everything must be done soon."""
        for _ in range(rounds):
            if not self.accumulator.incomplete:
                return
            self.now_ms += 50
            self.learn_metadata()
            self.pump()
            for node in self.connections:
                while self.handle(node):
                    pass
                while self.reply(node):
                    pass
        raise AssertionError(f"not everything was sent: {list(self.accumulator.incomplete)}")

    def check_exactly_once(self) -> None:
        for log, sent in zip(self.logs, self.sent, strict=True):
            assert log.values == sent
        for batch, index, value in self.receipts:
            assert batch.done
            assert batch.error_of(index) is None
            metadata = batch.metadata(index)
            assert metadata.offset == -1 or self.logs[metadata.partition].values[metadata.offset] == value
        assert self.accumulator.free_bytes == self.accumulator.buffer_memory
        assert len(self.done) == len(set(self.done))
