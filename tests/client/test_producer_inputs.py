"""What a producer makes of arguments nobody should give it, or that come too early: nobody else suffers for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.errors import InvalidConfigError
from ottla.client import sync
from ottla.client.core.admin.types import NewTopic
from ottla.client.core.producer.batch import RecordMetadata
from ottla.client.core.producer.record_intake import ProducerRecord
from ottla.client.errors import ClientError, ErrorCode, MetadataTimeoutError, SerializationError
from tests.broker_process import BrokerProcess
from tests.client.consumer_shells import PATIENCE_S, make_topic
from tests.client.producers import AioClient, SyncClient, values_of

Client = type[SyncClient] | type[AioClient]

pytestmark = pytest.mark.parametrize("client", [SyncClient, AioClient], ids=lambda kind: kind.name)

NO_NAMES: list[Any] = [None, 5, ["a"], "", ".", "..", "a b", "\ud800", "x" * 250, "x" * 40_000]
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "send": lambda producer, topic: producer.send(topic, b"x"),
    "send_many": lambda producer, topic: producer.send_many(topic, [b"x"]),
    "partitions_for": lambda producer, topic: producer.partitions_for(topic),
}


def add_partitions(broker: BrokerProcess, topic: str, count: int) -> None:
    with sync.Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_partitions({topic: count}).check()


@pytest.mark.parametrize("call", CALLS)
def test_a_topic_that_cannot_be_is_refused_and_others_can_be_used(
    client: Client, broker: BrokerProcess, new_topic: str, call: str
) -> None:
    with client(bootstrap_servers=broker.bootstrap) as producer:
        for topic in NO_NAMES:
            with pytest.raises(ClientError) as refusal:
                CALLS[call](producer, topic)
            expected = ErrorCode.INVALID_TOPIC_EXCEPTION if isinstance(topic, str) else ErrorCode.INVALID_RECORD
            assert refusal.value.code == expected and not refusal.value.fatal, topic
        assert producer.send(new_topic, b"fine").result(10).offset == 0


def test_a_table_for_a_topic_that_cannot_be(client: Client, broker: BrokerProcess) -> None:
    pa = pytest.importorskip("pyarrow")
    with client(bootstrap_servers=broker.bootstrap) as producer:
        for topic in NO_NAMES[1:]:
            with pytest.raises(ClientError, match="topic"):
                producer.send_arrow(topic, pa.table({"value": [b"x"]}))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"headers": 5}, "headers must be pairs"),
        ({"headers": [("\ud800", b"")]}, "has no UTF-8 form"),
        ({"headers": "abc"}, "a header must be a name and bytes"),
        ({"timestamp_ms": 2**63}, "the timestamp must be"),
        ({"timestamp_ms": True}, "the timestamp must be"),
        ({"partition": -1}, "must be from 0"),
        ({"partition": 2**31}, "must be from 0"),
        ({"partition": 0.0}, r"must be a number, but was 0\.0"),
        ({"partition": "0"}, "must be a number"),
    ],
)
def test_a_bad_record_leaves_those_around_it_alone(
    client: Client, broker: BrokerProcess, new_topic: str, options: dict[str, Any], reason: str
) -> None:
    with client(bootstrap_servers=broker.bootstrap, linger_ms=100) as producer:
        before = producer.send(new_topic, b"before", b"key")
        with pytest.raises(SerializationError, match=reason):
            producer.send(new_topic, b"bad", b"key", **options)
        after = producer.send(new_topic, b"after", b"key")
        assert (before.result(10).offset, after.result(10).offset) == (0, 1)


def test_a_partition_that_was_just_added(client: Client, broker: BrokerProcess, new_topic: str) -> None:
    make_topic(broker.bootstrap, new_topic)
    with client(bootstrap_servers=broker.bootstrap) as producer:
        assert producer.partitions_for(new_topic) == [0]
        add_partitions(broker, new_topic, 3)
        assert producer.send(new_topic, b"x", partition=2).result(10).partition == 2
        assert producer.partitions_for(new_topic) == [0, 1, 2]


def test_a_table_for_a_partition_that_was_just_added(client: Client, broker: BrokerProcess, new_topic: str) -> None:
    pa = pytest.importorskip("pyarrow")
    make_topic(broker.bootstrap, new_topic)
    with client(bootstrap_servers=broker.bootstrap) as producer:
        assert producer.partitions_for(new_topic) == [0]
        add_partitions(broker, new_topic, 2)
        table = pa.table({"value": [b"x", b"y"], "p": [0, 1], "topic": [new_topic] * 2})
        producer.send_arrow(None, table, partition_column="p")
        producer.flush()


def test_a_partition_that_is_not_there(client: Client, broker: BrokerProcess, new_topic: str) -> None:
    make_topic(broker.bootstrap, new_topic, 2)
    with client(bootstrap_servers=broker.bootstrap, max_block_ms=250) as producer:
        producer.partitions_for(new_topic)
        with pytest.raises(MetadataTimeoutError, match="has the partitions 0 to 1, and no partition 2"):
            producer.send(new_topic, b"x", partition=2)
        assert producer.send(new_topic, b"x", partition=1).result(10).partition == 1


def test_who_does_not_want_to_wait_for_a_topic_finds_it_known_later(
    client: Client, broker: BrokerProcess, new_topic: str
) -> None:
    make_topic(broker.bootstrap, new_topic)
    with client(bootstrap_servers=broker.bootstrap, max_block_ms=0) as producer:
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                assert producer.send(new_topic, b"x").result(10).offset == 0
                return
            except MetadataTimeoutError:
                assert time.monotonic() < deadline_s, "nobody has asked about the topic"
                producer.flush()


def test_who_waits_as_long_as_it_takes(client: Client, broker: BrokerProcess, new_topic: str) -> None:
    values = [b"%d" % number * 5000 for number in range(10)]
    settings = {"max_block_ms": 2**63 - 1, "buffer_memory": 30_000}
    with client(bootstrap_servers=broker.bootstrap, **settings) as producer:
        for value in values:
            producer.send(new_topic, value)
        producer.send_many(new_topic, values)
    assert values_of(broker.bootstrap, new_topic) == values * 2


def test_who_is_to_blame_for_a_batch_that_was_refused(client: Client, broker: BrokerProcess, new_topic: str) -> None:
    with sync.Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(new_topic, configs={"cleanup.policy": "compact"})]).check()
    with client(bootstrap_servers=broker.bootstrap, linger_ms=10_000) as producer:
        futures = [producer.send(new_topic, b"x", key, partition=0) for key in (b"a", None, b"b")]
        producer.flush()
        errors = []
        for future in futures:
            with pytest.raises(ClientError) as refusal:
                future.result(10)
            errors.append(refusal.value)
        assert {error.code for error in errors} == {ErrorCode.INVALID_RECORD}
        assert "because of another record" in str(errors[0]) and str(errors[0]) == str(errors[2])
        assert "key" in str(errors[1]) and "another record" not in str(errors[1])


class Listening:
    """An interceptor that notes what becomes of records."""

    def __init__(self) -> None:
        self.outcomes: list[str] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: ClientError | None) -> None:
        self.outcomes.append("stored" if error is None else type(error).__name__)


def test_interceptors_hear_of_every_record(client: Client, broker: BrokerProcess, new_topic: str) -> None:
    listening = Listening()
    settings: dict[str, Any] = {"linger_ms": 60_000, "delivery_timeout_ms": 120_000, "interceptors": [listening]}
    with client(bootstrap_servers=broker.bootstrap, **settings) as producer:
        for value in (b"fine", "text", bytes(2_000_000)):
            try:
                producer.send(new_topic, value)
            except ClientError:
                assert value != b"fine"
        with pytest.raises(ClientError, match="topic name"):
            producer.send("a b", b"")
        producer.flush()
        expected = ["SerializationError", "RecordTooLargeError", "ClientError", "stored"]
        assert listening.outcomes == expected


def test_a_part_that_cannot_be_is_refused_before_anything_is_started(client: Client) -> None:
    before = threading.active_count()
    with pytest.raises(InvalidConfigError, match="value_serializer must be"):
        client(bootstrap_servers="127.0.0.1:1", value_serializer="string")
    assert threading.active_count() == before


def test_values_may_come_from_a_generator(client: Client, broker: BrokerProcess, new_topic: str) -> None:
    with client(bootstrap_servers=broker.bootstrap) as producer:
        assert len(producer.send_many(new_topic, (b"%d" % number for number in range(3)))) == 3
        assert len(producer.send_many(new_topic, (None for _ in range(2)))) == 2
        assert len(producer.send_many(new_topic, iter(()))) == 0
    assert values_of(broker.bootstrap, new_topic) == [b"0", b"1", b"2", None, None]


def test_callbacks_have_run_when_a_future_is_done(client: Client, broker: BrokerProcess, new_topic: str) -> None:
    called, may_end = threading.Event(), threading.Event()
    results: list[RecordMetadata | None] = []

    def tell(metadata: RecordMetadata | None, error: ClientError | None) -> None:
        called.set()
        if client is AioClient:
            results.append(metadata)
            return
        may_end.wait(PATIENCE_S)
        results.append(future.result(PATIENCE_S))  # it is known, and need not be waited for

    with client(bootstrap_servers=broker.bootstrap) as producer:
        future = producer.send(new_topic, b"x", on_delivery=tell)
        if client is SyncClient:
            assert called.wait(PATIENCE_S)
            assert not future.done()
            with pytest.raises(TimeoutError):
                future.result(0)
            may_end.set()
        assert future.result(PATIENCE_S).offset == 0
        assert [result.offset for result in results if result is not None] == [0]
        assert future.done()


def test_times_to_wait(client: Client, broker: BrokerProcess, new_topic: str) -> None:
    with client(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(new_topic, b"x").result(10)
        for timeout in (0, -1, None, float("inf")):
            producer.flush(timeout)
        for timeout in ("5", float("nan"), []):
            with pytest.raises(ValueError, match="number of seconds"):
                producer.flush(timeout)
            with pytest.raises(ValueError, match="number of seconds"):
                producer.close(timeout)
        producer.send(new_topic, b"x").result(10)
        producer.close(float("inf"))


def test_a_serializer_that_gives_no_bytes_is_named(client: Client, broker: BrokerProcess, new_topic: str) -> None:
    with (
        client(bootstrap_servers=broker.bootstrap, value_serializer=str) as producer,
        pytest.raises(SerializationError, match="the value_serializer must give bytes or None, but gave str"),
    ):
        producer.send(new_topic, 5)
