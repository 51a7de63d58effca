"""Transactional producers and the consumers that feed them, through real clients, behind one blocking interface."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import confluent_kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AiokafkaPartition
from aiokafka.errors import ProducerFenced
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import InvalidProducerEpochError, ProducerFencedError
from kafka.structs import OffsetAndMetadata

from tests.interop.peers.confluent import consumer, producer
from tests.interop.peers.peer import PATIENCE_S

T = TypeVar("T")
POLL_S = 0.1
SESSION_TIMEOUT_MS = 10_000


class FencedError(Exception):
    """The client says that another producer has taken over."""


class Consumed(NamedTuple):
    topic: str
    partition: int
    offset: int
    value: bytes


class Reader(ABC):
    """A member of a group that reads committed records and commits through a writer's transactions only."""

    @abstractmethod
    def poll(self) -> list[Consumed]: ...

    @abstractmethod
    def rewind(self) -> None:
        """Back to what is committed, after a transaction was aborted."""

    @abstractmethod
    def close(self) -> None: ...


class Writer(ABC):
    """Made ready for transactions. Calls raise `FencedError` once another writer has the same id."""

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def send(self, topic: str, value: bytes, partition: int = 0) -> None: ...

    @abstractmethod
    def flush(self) -> None: ...

    @abstractmethod
    def send_offsets(self, reader: Any, consumed: list[Consumed]) -> None:
        """What follows `consumed` is where the reader's group goes on, if the transaction is committed."""

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


def next_offsets(consumed: list[Consumed]) -> dict[tuple[str, int], int]:
    positions: dict[tuple[str, int], int] = {}
    for topic, partition, offset, _ in consumed:
        positions[topic, partition] = max(offset + 1, positions.get((topic, partition), 0))
    return positions


# --- confluent-kafka --------------------------------------------------------------------------------------------------


@contextmanager
def _confluent_errors() -> Iterator[None]:
    fenced = (confluent_kafka.KafkaError._FENCED, confluent_kafka.KafkaError.PRODUCER_FENCED)
    try:
        yield
    except confluent_kafka.KafkaException as e:
        if e.args[0].code() in fenced:
            raise FencedError(str(e)) from e
        raise


class ConfluentReader(Reader):
    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.consumer = consumer(
            bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            fetch_wait_max_ms=10,
        )
        self.consumer.subscribe([topic])

    def poll(self) -> list[Consumed]:
        found = []
        for message in self.consumer.consume(200, timeout=POLL_S):
            error = message.error()
            if error is not None:
                raise confluent_kafka.KafkaException(error)
            topic, partition, offset, value = message.topic(), message.partition(), message.offset(), message.value()
            assert topic is not None and partition is not None and offset is not None and value is not None
            found.append(Consumed(topic, partition, offset, value))
        return found

    def rewind(self) -> None:
        for place in self.consumer.committed(self.consumer.assignment(), timeout=PATIENCE_S):
            if place.offset < 0:
                place.offset = confluent_kafka.OFFSET_BEGINNING
            self.consumer.seek(place)

    def close(self) -> None:
        self.consumer.close()


class ConfluentWriter(Writer):
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._producer = producer(
            bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            message_timeout_ms=timeout_ms,
        )
        with _confluent_errors():
            self._producer.init_transactions(PATIENCE_S)

    def begin(self) -> None:
        with _confluent_errors():
            self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        with _confluent_errors():
            self._producer.produce(topic, value, partition=partition)

    def flush(self) -> None:
        assert self._producer.flush(PATIENCE_S) == 0

    def send_offsets(self, reader: ConfluentReader, consumed: list[Consumed]) -> None:
        positions = [confluent_kafka.TopicPartition(*key, offset) for key, offset in next_offsets(consumed).items()]
        with _confluent_errors():
            self._producer.send_offsets_to_transaction(positions, reader.consumer.consumer_group_metadata(), PATIENCE_S)

    def commit(self) -> None:
        with _confluent_errors():
            self._producer.commit_transaction(PATIENCE_S)

    def abort(self) -> None:
        with _confluent_errors():
            self._producer.abort_transaction(PATIENCE_S)

    def close(self) -> None:
        """There is nothing to call: the library closes a producer that nobody holds any more."""


# --- kafka-python -----------------------------------------------------------------------------------------------------


class KafkaPythonReader(Reader):
    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            fetch_max_wait_ms=10,
        )
        # Or it joins before it knows the topic, and then again; a poll that ends meanwhile forgets what it was given.
        self.consumer.partitions_for_topic(topic)

    def poll(self) -> list[Consumed]:
        found = self.consumer.poll(timeout_ms=POLL_S * 1000, max_records=200)
        return [Consumed(r.topic, r.partition, r.offset, r.value) for records in found.values() for r in records]

    def rewind(self) -> None:
        for place in self.consumer.assignment():
            self.consumer.seek(place, self.consumer.committed(place) or 0)

    def close(self) -> None:
        self.consumer.close()


@contextmanager
def _kafka_python_errors() -> Iterator[None]:
    try:
        yield
    except (ProducerFencedError, InvalidProducerEpochError) as e:
        raise FencedError(str(e)) from e


class KafkaPythonWriter(Writer):
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        with _kafka_python_errors():
            self._producer.init_transactions()

    def begin(self) -> None:
        with _kafka_python_errors():
            self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        with _kafka_python_errors():
            self._producer.send(topic, value, partition=partition)

    def flush(self) -> None:
        self._producer.flush(PATIENCE_S)

    def send_offsets(self, reader: KafkaPythonReader, consumed: list[Consumed]) -> None:
        positions = {
            KafkaPythonPartition(*key): OffsetAndMetadata(offset, "", -1)
            for key, offset in next_offsets(consumed).items()
        }
        with _kafka_python_errors():
            self._producer.send_offsets_to_transaction(positions, reader.consumer.group_metadata())

    def commit(self) -> None:
        with _kafka_python_errors():
            self._producer.commit_transaction()

    def abort(self) -> None:
        with _kafka_python_errors():
            self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(0)


# --- aiokafka ---------------------------------------------------------------------------------------------------------

_loop = asyncio.new_event_loop()
"""All of aiokafka's clients share a loop, which runs while one of them is called."""


def _run(work: Coroutine[Any, Any, T]) -> T:
    return _loop.run_until_complete(asyncio.wait_for(work, 2 * PATIENCE_S))


class AiokafkaReader(Reader):
    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.group = group
        self.consumer = _run(self._start(bootstrap, group, topic))

    async def _start(self, bootstrap: str, group: str, topic: str) -> Any:
        made = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            fetch_max_wait_ms=10,
        )
        await made.start()
        return made

    def poll(self) -> list[Consumed]:
        found = _run(self.consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=200))
        return [Consumed(r.topic, r.partition, r.offset, r.value) for records in found.values() for r in records]

    def rewind(self) -> None:
        for place in self.consumer.assignment():
            self.consumer.seek(place, _run(self.consumer.committed(place)) or 0)

    def close(self) -> None:
        _run(self.consumer.stop())


@contextmanager
def _aiokafka_errors() -> Iterator[None]:
    try:
        yield
    except ProducerFenced as e:
        raise FencedError(str(e)) from e


class AiokafkaWriter(Writer):
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._producer = _run(self._start(bootstrap, transactional_id, timeout_ms))

    async def _start(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> Any:
        made = AIOKafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        await made.start()
        return made

    def begin(self) -> None:
        with _aiokafka_errors():
            _run(self._producer.begin_transaction())

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        with _aiokafka_errors():
            _run(self._producer.send(topic, value, partition=partition))

    def flush(self) -> None:
        with _aiokafka_errors():
            _run(self._producer.flush())

    def send_offsets(self, reader: AiokafkaReader, consumed: list[Consumed]) -> None:
        positions = {AiokafkaPartition(*key): offset for key, offset in next_offsets(consumed).items()}
        with _aiokafka_errors():
            _run(self._producer.send_offsets_to_transaction(positions, reader.group))

    def commit(self) -> None:
        with _aiokafka_errors():
            _run(self._producer.commit_transaction())

    def abort(self) -> None:
        with _aiokafka_errors():
            _run(self._producer.abort_transaction())

    def close(self) -> None:
        _run(self._producer.stop())


WRITERS: dict[str, type[Writer]] = {
    "confluent-kafka": ConfluentWriter,
    "kafka-python": KafkaPythonWriter,
    "aiokafka": AiokafkaWriter,
}
READERS: dict[str, type[Reader]] = {
    "confluent-kafka": ConfluentReader,
    "kafka-python": KafkaPythonReader,
    "aiokafka": AiokafkaReader,
}


def make_writer(client: str, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> Writer:
    return WRITERS[client](bootstrap, transactional_id, timeout_ms)  # type: ignore[call-arg]


def make_reader(client: str, bootstrap: str, group: str, topic: str) -> Reader:
    return READERS[client](bootstrap, group, topic)  # type: ignore[call-arg]
