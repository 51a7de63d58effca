"""What a producer does against a real broker: the same for threads and for asyncio."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from ottla.base.errors import InvalidConfigError
from ottla.base.types import TopicPartition
from ottla.client import sync
from ottla.client.aio.producer.engine import ProducerEngine
from ottla.client.core.consumer.offset_requests import Membership
from ottla.client.core.producer.batch import RecordMetadata
from ottla.client.core.producer.partitioners import RoundRobin
from ottla.client.core.producer.record_intake import ProducerRecord
from ottla.client.errors import (
    BufferExhaustedError,
    ClientClosedError,
    ClientError,
    ClusterUnreachableError,
    MetadataTimeoutError,
    ProducerFencedError,
    RecordTooLargeError,
    SerializationError,
    TransactionStateError,
)
from ottla.records.hashing import partition_for_key
from tests.broker_process import BrokerProcess
from tests.client.producers import AioClient, StoredRecord, SyncClient, read_all, values_of

Client = type[SyncClient] | type[AioClient]

pytestmark = pytest.mark.parametrize("client", [SyncClient, AioClient], ids=lambda kind: kind.name)


def test_a_record_is_stored_as_it_was_sent(client: Client, broker: BrokerProcess, new_topic: str) -> None:
    with client({"bootstrap.servers": broker.bootstrap}) as producer:
        headers = [("a", b"1"), ("a", None)]
        stored = producer.send(new_topic, b"value", b"key", headers, 0, 1_700_000_000_123).result(10)
        assert stored == RecordMetadata(new_topic, 0, 0, 1_700_000_000_123)
        assert producer.send(new_topic, None, b"key").result(10).offset == 1
        assert producer.partitions_for(new_topic) == [0]
    first, second = read_all(broker.bootstrap, new_topic)[0]
    assert first == StoredRecord(0, 1_700_000_000_123, b"key", b"value", headers)
    assert second.value is None
    partition = TopicPartition(new_topic, 0)
    with sync.Admin(bootstrap_servers=broker.bootstrap) as admin:
        assert len(admin.describe_producers([partition])[partition]) == 1  # idempotent unless told otherwise


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_many_records_keep_their_order(client: Client, broker: BrokerProcess, new_topic: str, codec: str) -> None:
    values = [b"%d" % number * (number % 7) for number in range(5000)]
    with client(bootstrap_servers=broker.bootstrap, compression_type=codec, batch_size=4096) as producer:
        futures = [producer.send(new_topic, value) for value in values[:500]]
        futures += [producer.send(new_topic, value, headers={"h": b""}) for value in values[500:600]]
        futures += [producer.send(new_topic, value) for value in values[600:]]
        producer.flush()
        assert all(future.done() for future in futures)
        assert [future.result().offset for future in futures] == list(range(5000))
    assert values_of(broker.bootstrap, new_topic) == values


def test_many_values_in_one_call(client: Client, broker: BrokerProcess, new_topic: str) -> None:
    values = [b"%d" % number * (number % 5) for number in range(5000)]
    with client(bootstrap_servers=broker.bootstrap, batch_size=2048, buffer_memory=20_000) as producer:
        futures = producer.send_many(new_topic, values)
        assert len(futures) == 5000
        producer.flush()
        assert futures.done()
        assert futures[17].done() and len(futures[10:20]) == 10
        with pytest.raises(IndexError):
            futures[5000]
        with pytest.raises(SerializationError):
            producer.send_many(new_topic, [b"a", "b"])
        assert len(producer.send_many(new_topic, [])) == 0
        assert len(producer.send_many(new_topic, [b"y", None])) == 2
    assert values_of(broker.bootstrap, new_topic) == [*values, b"a", b"y", None]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(client: Client, broker: BrokerProcess, new_topic: str, acks: str) -> None:
    with client(bootstrap_servers=broker.bootstrap, acks=acks) as producer:
        offsets = [producer.send(new_topic, b"%d" % number).result(10).offset for number in range(3)]
    assert offsets == ([-1] * 3 if acks == "0" else [0, 1, 2])
    assert values_of(broker.bootstrap, new_topic, at_least=3) == [b"0", b"1", b"2"]


def test_keys_decide_and_partitioners_can_be_replaced(client: Client, own_broker: BrokerProcess) -> None:
    own_broker.overrides["num.partitions"] = "4"
    own_broker.start()
    keys = [b"%d" % number for number in range(40)]
    with client(bootstrap_servers=own_broker.bootstrap) as producer:
        for key in keys:
            assert producer.send("keyed", b"", key).result(10).partition == partition_for_key(key, 4)
    with client(bootstrap_servers=own_broker.bootstrap, partitioner=RoundRobin()) as producer:
        places = [producer.send("turns", b"").result(10).partition for _ in range(8)]
        assert places == [0, 1, 2, 3] * 2
    with client(bootstrap_servers=own_broker.bootstrap, linger_ms=0, batch_size=200) as producer:
        places = [producer.send("spread", b"x" * 50).result(10).partition for _ in range(60)]
        assert set(places) == {0, 1, 2, 3}


def test_serializers_interceptors_and_callbacks(client: Client, broker: BrokerProcess, new_topic: str) -> None:
    class Stamp:
        outcomes: list[RecordMetadata | None]

        def __init__(self) -> None:
            self.outcomes = []

        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record._replace(value=record.value + "!")

        def on_acknowledgement(self, metadata: RecordMetadata | None, error: ClientError | None) -> None:
            assert error is None
            self.outcomes.append(metadata)

    stamp = Stamp()
    delivered: list[tuple[RecordMetadata | None, ClientError | None]] = []
    with client(
        bootstrap_servers=broker.bootstrap, value_serializer=lambda value: value.upper().encode(), interceptors=[stamp]
    ) as producer:
        producer.send(new_topic, "a", on_delivery=lambda *outcome: delivered.append(outcome)).result(10)
        producer.send(new_topic, "b").result(10)
        producer.flush()
        with pytest.raises(SerializationError, match="value could not be serialized"):
            producer.send(new_topic, _Odd())
    assert values_of(broker.bootstrap, new_topic) == [b"A!", b"B!"]
    assert [outcome.offset for outcome in stamp.outcomes if outcome is not None] == [0, 1]
    assert [metadata.offset for metadata, _ in delivered if metadata is not None] == [0]


class _Odd:
    """Passes the interceptor, and fails in the serializer."""

    def __add__(self, other: object) -> _Odd:
        return self


def test_bad_records_are_refused_at_once(client: Client, broker: BrokerProcess, new_topic: str) -> None:
    with client(bootstrap_servers=broker.bootstrap, max_request_size=1000) as producer:
        with pytest.raises(SerializationError, match="give the producer a value_serializer"):
            producer.send(new_topic, "text")
        with pytest.raises(SerializationError, match="give the producer a key_serializer"):
            producer.send(new_topic, b"", 5)
        with pytest.raises(SerializationError, match="header"):
            producer.send(new_topic, b"", headers=[("name", "text")])
        with pytest.raises(SerializationError, match="timestamp"):
            producer.send(new_topic, b"", timestamp_ms=-5)
        with pytest.raises(ClientError, match="topic name cannot be empty"):
            producer.send("", b"")
        with pytest.raises(RecordTooLargeError, match=r"max\.request\.size"):
            producer.send(new_topic, b"x" * 1000)
        assert producer.send(new_topic, b"fine").result(10).offset == 0


def test_a_batch_the_topic_does_not_allow_is_split(client: Client, own_broker: BrokerProcess) -> None:
    own_broker.overrides["message.max.bytes"] = "2000"
    own_broker.start()
    values = [b"%04d" % number * 25 for number in range(200)]
    with client(bootstrap_servers=own_broker.bootstrap, linger_ms=50) as producer:
        futures = [producer.send("small", value) for value in values]
        large = producer.send("small", b"x" * 3000)
        producer.flush()
        assert [future.result().offset for future in futures] == list(range(200))
        with pytest.raises(RecordTooLargeError):
            large.result(1)
    assert values_of(own_broker.bootstrap, "small") == values


def test_nobody_listens(client: Client) -> None:
    with pytest.raises(ClusterUnreachableError, match=r"Check bootstrap\.servers"):
        client(bootstrap_servers="127.0.0.1:1", bootstrap_fail_fast=True)


def test_settings_are_checked(client: Client) -> None:
    with pytest.raises(InvalidConfigError, match=r"did you mean linger\.ms"):
        client(bootstrap_servers="x:1", lingr_ms=1)
    with pytest.raises(InvalidConfigError, match="bootstrap"):
        client({})
    with pytest.raises(InvalidConfigError, match="given twice"):
        client({"linger.ms": 1}, linger_ms=1, bootstrap_servers="x:1")


def test_an_unknown_topic(client: Client, own_broker: BrokerProcess) -> None:
    own_broker.overrides["auto.create.topics.enable"] = "false"
    own_broker.start()
    with (
        client(bootstrap_servers=own_broker.bootstrap, max_block_ms=300) as producer,
        pytest.raises(MetadataTimeoutError, match="Does the topic exist"),
    ):
        producer.send("missing", b"")


def test_the_buffer_fills_up_while_the_broker_is_away_and_all_is_sent_when_it_is_back(
    client: Client, own_broker: BrokerProcess
) -> None:
    own_broker.start()
    sent = 0
    with client(
        bootstrap_servers=own_broker.bootstrap, buffer_memory=100_000, batch_size=10_000, max_block_ms=300
    ) as producer:
        producer.send("t", b"first").result(10)
        own_broker.kill()
        futures: list[Any] = []
        with pytest.raises(BufferExhaustedError, match=r"buffer\.memory"):
            while True:
                futures.append(producer.send("t", b"%05d" % sent * 20))
                sent += 1
        assert sent > 500
        own_broker.start()
        producer.flush()
        assert all(future.result().partition == 0 for future in futures)
    assert values_of(own_broker.bootstrap, "t")[1:] == [b"%05d" % number * 20 for number in range(sent)]


def test_what_had_to_wait_for_memory_has_the_time_at_which_it_was_added(
    client: Client, own_broker: BrokerProcess
) -> None:
    own_broker.start()
    with client(bootstrap_servers=own_broker.bootstrap, buffer_memory=100_000, batch_size=10_000) as producer:
        producer.send("t", b"first").result(10)
        own_broker.kill()
        restart = threading.Timer(0.5, own_broker.start)
        restart.start()
        waited_ms = 0.0
        deadline_s = time.monotonic() + 30
        while waited_ms < 300:
            assert time.monotonic() < deadline_s
            asked_ms = time.time() * 1000
            future = producer.send("t", b"x" * 100)
            waited_ms = time.time() * 1000 - asked_ms
        following = [producer.send("t", b"y" * 100) for _ in range(10)]
        restart.join(30)
        added_ms = future.result(30).timestamp_ms
        assert added_ms >= asked_ms + 300 - 1
        assert all(later.result(30).timestamp_ms >= added_ms for later in following)


def test_after_close(client: Client, broker: BrokerProcess, new_topic: str) -> None:
    with client(bootstrap_servers=broker.bootstrap, linger_ms=10_000, delivery_timeout_ms=60_000) as producer:
        future = producer.send(new_topic, b"left behind")
        producer.close()
        assert future.result(1).offset == 0
        with pytest.raises(ClientClosedError):
            producer.send(new_topic, b"")
        with pytest.raises(ClientClosedError):
            producer.flush()
        producer.close()


def test_a_second_initialization_is_refused_and_costs_nothing(
    client: Client, broker: BrokerProcess, new_topic: str
) -> None:
    with client(bootstrap_servers=broker.bootstrap, transactional_id=f"tx-{new_topic}") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(new_topic, b"a").result(10)
        with pytest.raises(TransactionStateError, match="commit or abort the open transaction"):
            producer.init_transactions()
        producer.commit_transaction()
    assert values_of(broker.bootstrap, new_topic) == [b"a"]


def test_a_transaction_is_seen_whole_or_not_at_all(client: Client, broker: BrokerProcess, new_topic: str) -> None:
    with client(bootstrap_servers=broker.bootstrap, transactional_id=f"tx-{new_topic}") as producer:
        with pytest.raises(TransactionStateError, match="init_transactions"):
            producer.send(new_topic, b"too early")
        with producer.transaction():
            producer.send(new_topic, b"a")
            producer.send(new_topic, b"b")
        with pytest.raises(TransactionStateError, match="begin_transaction"):
            producer.send(new_topic, b"between")
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send(new_topic, b"c").result(10)
            raise ZeroDivisionError
        with producer.transaction():
            pass
        producer.begin_transaction()
        with pytest.raises(TransactionStateError, match="open transaction"):
            producer.begin_transaction()
        producer.send(new_topic, b"dropped")
        producer.abort_transaction()
        with producer.transaction():
            producer.send(new_topic, b"d")
    assert values_of(broker.bootstrap, new_topic, committed=True) == [b"a", b"b", b"d"]


def test_a_second_producer_fences_the_first(client: Client, broker: BrokerProcess, new_topic: str) -> None:
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": f"tx-{new_topic}"}
    with client(settings) as first, client(settings) as second:
        first.init_transactions()
        first.begin_transaction()
        first.send(new_topic, b"old").result(10)
        second.init_transactions()
        with pytest.raises(ProducerFencedError) as raised:
            first.commit_transaction()
        assert raised.value.fatal
        with pytest.raises(ProducerFencedError):
            first.send(new_topic, b"older")
        with second.transaction():
            second.send(new_topic, b"new")
    assert values_of(broker.bootstrap, new_topic, committed=True) == [b"new"]


def test_offsets_of_a_group_are_part_of_the_transaction(client: Client, broker: BrokerProcess, new_topic: str) -> None:
    with client(bootstrap_servers=broker.bootstrap, transactional_id=f"tx-{new_topic}") as producer:
        with producer.transaction():
            producer.send(new_topic, b"a")
            producer.send_offsets({TopicPartition(new_topic, 0): 1}, f"g-{new_topic}")
        with pytest.raises(ClientError) as raised, producer.transaction():
            stale = Membership(f"g-{new_topic}", 99, "somebody")
            producer.send_offsets({TopicPartition(new_topic, 0): 2}, stale)
        assert raised.value.requires_abort
        with pytest.raises(ValueError, match="must not be negative, but was -3"), producer.transaction():
            producer.send_offsets({TopicPartition(new_topic, 0): -3}, f"g-{new_topic}")
        with producer.transaction():
            producer.send(new_topic, b"b")
    assert values_of(broker.bootstrap, new_topic, committed=True) == [b"a", b"b"]


def test_transactions_need_an_id(client: Client, broker: BrokerProcess) -> None:
    with client(bootstrap_servers=broker.bootstrap) as producer, pytest.raises(TransactionStateError, match="id"):
        producer.begin_transaction()


def engine_of(producer: SyncClient | AioClient) -> ProducerEngine:
    engine = producer.producer._engine
    assert engine is not None
    return engine


def test_a_mistake_inside_the_producer_leaves_nobody_waiting(
    client: Client, broker: BrokerProcess, new_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise IndexError("a mistake")

    with client(bootstrap_servers=broker.bootstrap, linger_ms=60_000, delivery_timeout_ms=100_000) as producer:
        producer.send(new_topic, b"0")
        producer.flush()
        waiting = producer.send(new_topic, b"1")
        engine = engine_of(producer)
        engine.on_pump = fail
        with pytest.raises(ClientError, match="IndexError: a mistake") as failure:
            producer.partitions_for("a-topic-that-is-asked-for")
        assert failure.value.fatal
        with pytest.raises(ClientError, match="IndexError"):
            waiting.result(10)
        with pytest.raises(ClientError, match="close it"):
            producer.send(new_topic, b"2")
        assert not engine.accumulator.incomplete
        assert sum("the producer has failed" in message for message in caplog.messages) == 1


def test_a_task_of_the_producer_that_fails_leaves_nobody_waiting(
    client: Client, broker: BrokerProcess, new_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("a mistake")

    with client(bootstrap_servers=broker.bootstrap, linger_ms=60_000, delivery_timeout_ms=100_000) as producer:
        waiting = producer.send(new_topic, b"1")
        monkeypatch.setattr(engine_of(producer).metadata, "update", fail)
        with pytest.raises(ClientError, match="KeyError"):
            producer.partitions_for("a-topic-that-is-asked-for")
        with pytest.raises(ClientError, match="KeyError"):
            waiting.result(10)
