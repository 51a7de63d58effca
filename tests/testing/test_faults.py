"""Faults as clients meet them: first exactly what is on the wire, then what confluent-kafka makes of it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from ottla.records.builder import build_batch
from ottla.testing import ApiKey, EmbeddedBroker, ErrorCode
from ottla.wire.apis import response_class
from ottla.wire.apis.api_versions import ApiVersionsRequest
from ottla.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.apis.end_txn import EndTxnRequest
from ottla.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.apis.find_coordinator import FindCoordinatorRequest
from ottla.wire.apis.heartbeat import HeartbeatRequest
from ottla.wire.apis.init_producer_id import InitProducerIdRequest
from ottla.wire.apis.join_group import JoinGroupRequest
from ottla.wire.apis.list_groups import ListGroupsRequest
from ottla.wire.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.header import encode_request_frame
from ottla.wire.message import Request, Struct
from tests.raw_client import ConnectionClosedError, RawClient
from tests.waiting import repeat_until

LATE_S = 0.29
"""After 300 ms: timers of the event loop go by whole milliseconds, and may be early by less than one."""

TOPIC = "t"


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        broker.create_topic(TOPIC)
        yield broker


@pytest.fixture
def broker(shared: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    yield shared
    shared.faults.clear()


def produce_request(topic: str = TOPIC) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=build_batch([(None, b"v", (), 0)]))
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


def fetch_request(topic: str = TOPIC, max_wait_ms: int = 10_000) -> FetchRequest:
    partition = FetchPartition(partition=0, partition_max_bytes=1000)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1000,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )


REQUESTS: list[tuple[Request, int]] = [
    (produce_request(), 9),
    (produce_request(), 3),
    (fetch_request(), 12),
    (
        ListOffsetsRequest(
            replica_id=-1,
            topics=[ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])],
        ),
        6,
    ),
    (MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 9),
    (
        OffsetCommitRequest(
            group_id="g",
            topics=[
                OffsetCommitRequestTopic(
                    name=TOPIC, partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=5)]
                )
            ],
        ),
        8,
    ),
    (FindCoordinatorRequest(coordinator_keys=["g"]), 4),
    (FindCoordinatorRequest(key="g"), 1),
    (JoinGroupRequest(group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, protocol_type="c"), 7),
    (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4),
    (ListGroupsRequest(), 4),
    (ApiVersionsRequest(), 3),
    (InitProducerIdRequest(transaction_timeout_ms=1000), 4),
    (EndTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0), 3),
    (
        CreateTopicsRequest(
            topics=[CreatableTopic(name="refused", num_partitions=1, replication_factor=1)], timeout_ms=1000
        ),
        7,
    ),
]


def error_codes(struct: Struct) -> list[int]:
    found = []
    for field in struct.FIELDS:
        value = getattr(struct, field.name)
        if field.name.endswith("error_code"):
            found.append(value)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Struct):
                found += error_codes(item)
    return found


class TestOnTheWire:
    @pytest.mark.parametrize(("request_", "version"), REQUESTS, ids=lambda item: getattr(type(item), "__name__", ""))
    def test_an_error_in_the_reply_of_any_api_once(
        self, broker: EmbeddedBroker, request_: Request, version: int
    ) -> None:
        wanted = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        with RawClient(broker.port) as client:
            fault = broker.faults.error(ApiKey(request_.API_KEY), wanted)
            assert wanted in error_codes(client.call(request_, version))
            assert fault.hits == 1
            assert fault.is_used_up

    def test_an_error_means_that_nothing_has_happened(self, broker: EmbeddedBroker) -> None:
        topic = broker.new_topic()
        with RawClient(broker.port) as client:
            broker.faults.error(ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)
            for _ in range(2):
                (answer,) = self._produced(client, topic)
                assert (answer.error_code, answer.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            (answer,) = self._produced(client, topic)
            assert (answer.error_code, answer.base_offset) == (0, 0)

    def test_an_error_although_it_has_happened(self, broker: EmbeddedBroker) -> None:
        topic = broker.new_topic()
        with RawClient(broker.port) as client:
            broker.faults.error(ApiKey.PRODUCE, ErrorCode.REQUEST_TIMED_OUT, applied=True)
            (answer,) = self._produced(client, topic)
            assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
            (answer,) = self._produced(client, topic)
            assert answer.base_offset == 1

    @pytest.mark.parametrize("applied", [False, True])
    def test_a_lost_connection(self, broker: EmbeddedBroker, applied: bool) -> None:
        topic = broker.new_topic()
        broker.faults.disconnect(ApiKey.PRODUCE, applied=applied)
        with RawClient(broker.port) as client, pytest.raises(ConnectionClosedError):
            self._produced(client, topic)
        with RawClient(broker.port) as client:
            (answer,) = self._produced(client, topic)
        assert answer.base_offset == int(applied)

    @pytest.mark.parametrize("applied", [False, True])
    def test_a_reply_that_never_comes(self, broker: EmbeddedBroker, applied: bool) -> None:
        topic = broker.new_topic()
        fault = broker.faults.drop(ApiKey.PRODUCE, applied=applied)
        with RawClient(broker.port, timeout_s=0.2) as client, pytest.raises(TimeoutError):
            self._produced(client, topic)
        fault.wait()
        with RawClient(broker.port) as client:
            (answer,) = self._produced(client, topic)
        assert answer.base_offset == int(applied)

    def test_a_late_reply(self, broker: EmbeddedBroker) -> None:
        broker.faults.delay(ApiKey.PRODUCE, 300)
        with RawClient(broker.port) as client:
            began = time.monotonic()
            (answer,) = self._produced(client, broker.new_topic())
            assert answer.error_code == 0
            assert time.monotonic() - began >= LATE_S

    def test_a_late_reply_to_a_request_that_waits_itself(self, broker: EmbeddedBroker) -> None:
        broker.faults.delay(ApiKey.FETCH, 150)
        waiting = fetch_request(broker.new_topic(), max_wait_ms=150)
        with RawClient(broker.port) as client:
            began = time.monotonic()
            assert set(error_codes(client.call(waiting, 12))) == {0}
            assert time.monotonic() - began >= LATE_S

    @pytest.mark.parametrize("applied", [False, True])
    def test_fetches_that_find_records_meet_errors(self, broker: EmbeddedBroker, applied: bool) -> None:
        topic = broker.new_topic()
        with RawClient(broker.port) as client:
            self._produced(client, topic)
            assert self._fetched(client, topic) == [(0, True)]
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            fault = broker.faults.error(ApiKey.FETCH, code, times=3, applied=applied)
            assert [self._fetched(client, topic) for _ in range(4)] == [[(code, False)]] * 3 + [[(0, True)]]
            assert fault.hits == 3

    def test_fetches_that_find_records_are_late(self, broker: EmbeddedBroker) -> None:
        topic = broker.new_topic()
        with RawClient(broker.port) as client:
            self._produced(client, topic)
            assert self._fetched(client, topic) == [(0, True)]
            broker.faults.delay(ApiKey.FETCH, 300)
            began = time.monotonic()
            assert self._fetched(client, topic) == [(0, True)]
            assert time.monotonic() - began >= LATE_S

    @pytest.mark.parametrize("applied", [False, True])
    def test_fetches_that_find_records_lose_their_connection(self, broker: EmbeddedBroker, applied: bool) -> None:
        topic = broker.new_topic()
        with RawClient(broker.port) as client:
            self._produced(client, topic)
            assert self._fetched(client, topic) == [(0, True)]
            broker.faults.disconnect(ApiKey.FETCH, applied=applied)
            with pytest.raises(ConnectionClosedError):
                self._fetched(client, topic)

    @pytest.mark.parametrize("applied", [False, True])
    def test_fetches_that_find_records_get_no_reply(self, broker: EmbeddedBroker, applied: bool) -> None:
        topic = broker.new_topic()
        with RawClient(broker.port, timeout_s=0.2) as client:
            self._produced(client, topic)
            assert self._fetched(client, topic) == [(0, True)]
            fault = broker.faults.drop(ApiKey.FETCH, applied=applied)
            with pytest.raises(TimeoutError):
                self._fetched(client, topic)
            assert fault.is_used_up

    def test_a_fault_between_requests_that_are_answered_together(self, broker: EmbeddedBroker) -> None:
        topic = broker.new_topic()
        with RawClient(broker.port) as client:
            self._produced(client, topic)
            broker.faults.error(ApiKey.FETCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            correlation_ids = range(100, 104)
            requests = [produce_request(topic), fetch_request(topic), produce_request(topic), fetch_request(topic)]
            versions = [9, 12, 9, 12]
            client.send_bytes(
                b"".join(map(encode_request_frame, requests, versions, correlation_ids, itertools.repeat("raw")))
            )
            frames = [client.receive_frame() for _ in requests]
            assert [int.from_bytes(frame[:4], "big") for frame in frames] == list(correlation_ids)
            replies: list[Any] = [
                response_class(request.API_KEY).decode(frame, version, 5)[0]
                for request, frame, version in zip(requests, frames, versions, strict=True)
            ]
            assert [code for reply in replies[:2] for code in error_codes(reply)] == [0, 0, 6]
            assert [reply.responses[0].partition_responses[0].base_offset for reply in replies[::2]] == [1, 2]
            assert replies[3].responses[0].partitions[0].high_watermark == 3

    def test_only_the_named_client_is_met(self, broker: EmbeddedBroker) -> None:
        fault = broker.faults.disconnect(ApiKey.API_VERSIONS, client_id="victim")
        with RawClient(broker.port, client_id="bystander") as client:
            client.call(ApiVersionsRequest(), 3)
        with RawClient(broker.port, client_id="victim") as client, pytest.raises(ConnectionClosedError):
            client.call(ApiVersionsRequest(), 3)
        assert fault.hits == 1

    def test_faults_follow_each_other_and_can_be_cancelled(self, broker: EmbeddedBroker) -> None:
        first = broker.faults.error(ApiKey.LIST_GROUPS, ErrorCode.NOT_COORDINATOR)
        with broker.faults.error(ApiKey.LIST_GROUPS, ErrorCode.COORDINATOR_NOT_AVAILABLE, times=None) as second:
            with RawClient(broker.port) as client:
                codes = [error_codes(client.call(ListGroupsRequest(), 4))[0] for _ in range(4)]
            assert codes == [16, 15, 15, 15]
            assert (first.hits, second.hits) == (1, 3)
        with RawClient(broker.port) as client:
            assert error_codes(client.call(ListGroupsRequest(), 4)) == [0]

    def test_waiting_for_requests_that_do_not_come(self, broker: EmbeddedBroker) -> None:
        with pytest.raises(TimeoutError, match="only 0 of 2 requests"):
            broker.faults.disconnect(ApiKey.LIST_GROUPS, times=2).wait(timeout_s=0.01)

    def test_what_cannot_be_scripted(self, broker: EmbeddedBroker) -> None:
        with pytest.raises(ValueError, match="PRODUCE"):
            broker.faults.disconnect("PRODUCE")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="9999"):
            broker.faults.error(ApiKey.PRODUCE, 9999)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="milliseconds, but was '5'"):
            broker.faults.delay(ApiKey.PRODUCE, "5")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="at least once"):
            broker.faults.drop(ApiKey.FETCH, times=0)

    def _fetched(self, client: RawClient, topic: str) -> list[tuple[int, bool]]:
        """The error code of each partition, and whether there are records."""
        response: Any = client.call(fetch_request(topic), 12)
        return [(found.error_code, bool(found.records)) for topic in response.responses for found in topic.partitions]

    def _produced(self, client: RawClient, topic: str) -> list[Any]:
        response: Any = client.call(produce_request(topic), 9)
        return [answer for topic in response.responses for answer in topic.partition_responses]


def confluent_producer(broker: EmbeddedBroker, **settings: Any) -> Producer:
    quick = {"retry.backoff.ms": 20, "retry.backoff.max.ms": 50, "reconnect.backoff.ms": 10, "log_level": 0}
    return Producer({"bootstrap.servers": broker.bootstrap_servers, **quick, **settings})


def stored(broker: EmbeddedBroker, topic: str) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "r", "log_level": 0})
    try:
        _, log_end_offset = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages: list[Message] = consumer.consume(log_end_offset, timeout=20) if log_end_offset else []
        return [message.value() for message in messages]
    finally:
        consumer.close()


class TestConfluentKafka:
    """What the faults are for: somebody's client code, which must not lose or double anything."""

    @pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT])
    def test_errors_are_retried(self, broker: EmbeddedBroker, code: ErrorCode) -> None:
        topic = broker.new_topic()
        fault = broker.faults.error(ApiKey.PRODUCE, code, times=3)
        producer = confluent_producer(broker, **{"enable.idempotence": True})
        producer.produce(topic, b"once")
        assert producer.flush(20) == 0
        assert fault.hits == 3
        assert stored(broker, topic) == [b"once"]

    @pytest.mark.parametrize("idempotent", [True, False])
    def test_a_lost_acknowledgement_doubles_only_without_idempotence(
        self, broker: EmbeddedBroker, idempotent: bool
    ) -> None:
        topic = broker.new_topic()
        broker.faults.error(ApiKey.PRODUCE, ErrorCode.REQUEST_TIMED_OUT, applied=True)
        producer = confluent_producer(broker, **{"enable.idempotence": idempotent})
        producer.produce(topic, b"again")
        assert producer.flush(20) == 0
        assert stored(broker, topic) == [b"again"] * (1 if idempotent else 2)

    def test_a_lost_connection(self, broker: EmbeddedBroker) -> None:
        topic = broker.new_topic()
        fault = broker.faults.disconnect(ApiKey.PRODUCE, times=2, applied=True)
        producer = confluent_producer(broker, **{"enable.idempotence": True})
        for number in range(50):
            producer.produce(topic, b"%d" % number)
        assert producer.flush(20) == 0
        assert fault.is_used_up
        assert stored(broker, topic) == [b"%d" % number for number in range(50)]

    def test_an_error_that_is_final_reaches_the_application(self, broker: EmbeddedBroker) -> None:
        topic = broker.new_topic()
        broker.faults.error(ApiKey.PRODUCE, ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=None)
        outcomes: list[Any] = []
        producer = confluent_producer(broker)
        producer.produce(topic, b"x", on_delivery=lambda error, _: outcomes.append(error.name()))
        assert producer.flush(20) == 0
        assert outcomes == ["TOPIC_AUTHORIZATION_FAILED"]

    def test_commits_that_fail(self, broker: EmbeddedBroker) -> None:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "c", "log_level": 0})
        broker.faults.error(ApiKey.OFFSET_COMMIT, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        offset = TopicPartition(TOPIC, 0, 3)
        with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
            consumer.commit(offsets=[offset], asynchronous=False)
        assert consumer.committed([offset], timeout=20)[0].offset < 0
        consumer.commit(offsets=[offset], asynchronous=False)
        assert consumer.committed([offset], timeout=20)[0].offset == 3
        consumer.close()

    def test_a_transaction_that_has_to_try_again(self, broker: EmbeddedBroker) -> None:
        topic = broker.new_topic()
        producer = confluent_producer(broker, **{"transactional.id": "again"})
        producer.init_transactions(20)
        producer.begin_transaction()
        fault = broker.faults.error(ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.CONCURRENT_TRANSACTIONS, times=2)
        producer.produce(topic, b"once")
        producer.commit_transaction(20)
        assert fault.is_used_up
        # A marker follows the record.
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "r", "log_level": 0})
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20) == (0, 2)
        consumer.close()

    def test_no_record_is_read_while_fetches_fail(self, broker: EmbeddedBroker) -> None:
        topic = broker.new_topic()
        producer = confluent_producer(broker)
        producer.produce(topic, b"there")
        assert producer.flush(20) == 0
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "r", "log_level": 0}
        consumer = Consumer({**settings, "fetch.error.backoff.ms": 10})
        polled: list[object] = []
        with broker.faults.error(ApiKey.FETCH, ErrorCode.KAFKA_STORAGE_ERROR, times=None) as fault:
            consumer.assign([TopicPartition(topic, 0, 0)])
            repeat_until(lambda: fault.hits >= 3, lambda: polled.append(consumer.poll(0.05)))
        assert set(polled) == {None}
        message = consumer.poll(20)
        assert message is not None
        assert message.value() == b"there"
        consumer.close()

    def test_a_leader_that_goes_away_and_comes_back(self, broker: EmbeddedBroker) -> None:
        topic = broker.new_topic()
        producer = confluent_producer(broker, **{"topic.metadata.refresh.fast.interval.ms": 20})
        producer.produce(topic, b"before")
        assert producer.flush(20) == 0
        broker.take_leader_away(topic)
        producer.produce(topic, b"after")
        assert producer.flush(0.2) == 1
        broker.elect_leader(topic)
        assert producer.flush(20) == 0
        assert stored(broker, topic) == [b"before", b"after"]


def test_a_client_without_a_reply_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.startup.STOP_GRACE_MS", 600_000)
    broker = EmbeddedBroker().start()
    fault = broker.faults.drop(ApiKey.API_VERSIONS)
    with RawClient(broker.port) as client:
        client.send(ApiVersionsRequest(), 3)
        fault.wait()
        broker.stop()
        assert client.is_closed_by_broker()


def test_faults_scripted_before_the_start_and_kept_over_a_restart() -> None:
    broker = EmbeddedBroker()
    fault = broker.faults.error(ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)
    with broker:
        broker.create_topic(TOPIC)
        with RawClient(broker.port) as client:
            assert ErrorCode.NOT_LEADER_OR_FOLLOWER in error_codes(client.call(produce_request(), 9))
        broker.restart()
        with RawClient(broker.port) as client:
            assert ErrorCode.NOT_LEADER_OR_FOLLOWER in error_codes(client.call(produce_request(), 9))
            assert error_codes(client.call(produce_request(), 9)) == [0]
    assert fault.hits == 2
