"""Produce by the way that has all the rules: what is refused and how, who waits for replicas, who leads instead."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, ProtocolError
from ottla.broker.dispatch import Dispatch
from ottla.broker.partition import Partition
from ottla.broker.quotas import QuotaEntity, QuotaLimits
from ottla.machines.cluster.image import BrokerImage
from ottla.records.builder import NewRecord, build_batch
from ottla.records.compression import Codec
from ottla.wire.apis.find_coordinator import FindCoordinatorRequest
from ottla.wire.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.wire.header import encode_request_frame, read_response_header
from tests.unit.broker.local_connection import connected
from tests.unit.broker.replica_world import change_isr
from tests.unit.broker.running_broker import RunningBroker, running_broker
from tests.waiting import repeat_until, until

FOLLOWER = 999
NEWEST = 12
INTERNAL = "__consumer_offsets"
E = ErrorCode


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    settings = {"offsets_topic_num_partitions": 1, "broker_rack": "here"}
    with running_broker(tmp_path_factory.mktemp("broker") / "data", **settings) as running:
        running.takes_short_ways = False
        find = FindCoordinatorRequest(coordinator_keys=["g"], key_type=0)
        repeat_until(lambda: running.ask(find).coordinators[0].error_code == 0)
        yield running


@pytest.fixture
def topic(broker: RunningBroker) -> str:
    return broker.new_topic()


def led(broker: RunningBroker, topic: str, index: int = 0) -> Partition:
    return broker.broker.replicas.led(topic, index)


def records(*, key: bytes | None = None, codec: Codec = Codec.NONE, **fields: Any) -> bytes:
    return bytes(build_batch([NewRecord(key, b"v" * 50, (), 1_700_000_000_000)], codec=codec, **fields))


def request_for(*topics: tuple[str, dict[int, bytes | None]], **fields: Any) -> ProduceRequest:
    data = [
        TopicProduceData(
            name=name, partition_data=[PartitionProduceData(index=index, records=each) for index, each in parts.items()]
        )
        for name, parts in topics
    ]
    return ProduceRequest(**{"acks": 1, "timeout_ms": 60_000, "topic_data": data, **fields})


def results(response: Any) -> list[Any]:
    return [result for topic in response.responses for result in topic.partition_responses]


def produced(
    broker: RunningBroker, topic: str, data: bytes | None = None, *, version: int = NEWEST, **fields: Any
) -> Any:
    (result,) = results(broker.ask(request_for((topic, {0: records() if data is None else data}), **fields), version))
    return result


@contextmanager
def following(partition: Partition, leader: int) -> Iterator[None]:
    before = partition.leader, partition.leader_id
    partition.leader, partition.leader_id = None, leader
    try:
        yield
    finally:
        partition.leader, partition.leader_id = before


@contextmanager
def with_follower(broker: RunningBroker, topic: str) -> Iterator[Partition]:
    """One that is in sync and silent."""
    partition = led(broker, topic)
    change_isr(broker.broker.replicas, partition, broker.broker.broker_id, FOLLOWER)
    yield partition


# What is written and what is not


@pytest.mark.parametrize(
    ("acks", "code"),
    [(1, E.NONE), (-1, E.NONE), (2, E.INVALID_REQUIRED_ACKS), (-2, E.INVALID_REQUIRED_ACKS)],
)
def test_acks_are_all_or_one_or_none(broker: RunningBroker, topic: str, acks: int, code: ErrorCode) -> None:
    result = produced(broker, topic, acks=acks)
    assert (result.error_code, result.base_offset) == (code, -1 if code else 0)
    assert led(broker, topic).log.log_end_offset == (0 if code else 1)


def test_each_partition_by_itself(broker: RunningBroker, topic: str) -> None:
    led(broker, topic, 1).log.append_as_leader(memoryview(bytearray(records())), leader_epoch=0, now_ms=0)
    damaged = bytearray(records())
    damaged[-1] ^= 1
    other = broker.new_topic()
    response = broker.ask(
        request_for((topic, {1: records(), 9: records(), 0: bytes(damaged)}), (other, {0: records(), 1: None})), NEWEST
    )
    assert [found.name for found in response.responses] == [topic, other]
    assert [(result.index, result.error_code, result.base_offset) for result in results(response)] == [
        (1, E.NONE, 1),
        (9, E.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (0, E.CORRUPT_MESSAGE, -1),
        (0, E.NONE, 0),
        (1, E.INVALID_RECORD, -1),
    ]
    assert [result.log_start_offset for result in results(response)] == [0, -1, 0, 0, 0]
    assert results(response)[4].error_message == "the request holds no records for this partition"


def test_the_first_offset_that_is_left_is_told_with_errors_too(broker: RunningBroker, topic: str) -> None:
    for _ in range(2):
        produced(broker, topic)
    led(broker, topic).log.advance_log_start_offset(2)
    assert produced(broker, topic).log_start_offset == 2
    assert produced(broker, topic, b"").log_start_offset == 2


def test_records_that_are_no_good_are_named(broker: RunningBroker) -> None:
    topic = broker.new_topic(cleanup_policy="compact")
    result = produced(broker, topic)
    assert result.error_code == E.INVALID_RECORD and result.error_message
    assert [error.batch_index for error in result.record_errors] == [0]


@pytest.mark.parametrize(
    ("version", "codec", "code"),
    [
        (6, Codec.ZSTD, E.UNSUPPORTED_COMPRESSION_TYPE),
        (7, Codec.ZSTD, E.NONE),
        (6, Codec.NONE, E.NONE),
        (6, Codec.GZIP, E.NONE),
        (3, Codec.ZSTD, E.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_who_does_not_know_a_codec_does_not_use_it(
    broker: RunningBroker, topic: str, version: int, codec: Codec, code: ErrorCode
) -> None:
    assert produced(broker, topic, records(codec=codec), version=version).error_code == code


def test_the_broker_s_own_topics_are_written_to_by_administrators(broker: RunningBroker) -> None:
    end = led(broker, INTERNAL).log.log_end_offset
    refused = produced(broker, INTERNAL)
    assert refused.error_code == E.INVALID_TOPIC_EXCEPTION
    assert refused.error_message == f"clients cannot write to {INTERNAL}"
    frame = encode_request_frame(request_for((INTERNAL, {0: records(key=b"k")})), NEWEST, 7, "__admin_client")[4:]
    dispatch = Dispatch(broker.broker, broker.broker.handlers)
    handler, context = dispatch.find(connected(broker.broker), memoryview(bytearray(frame)))

    async def handle() -> Any:
        return handler.handle(context)

    (data,) = broker.wait_for(handle())
    (result,) = results(decoded(data))
    assert (result.error_code, result.base_offset) == (E.NONE, end)


def decoded(data: bytes) -> Any:
    _, position = read_response_header(memoryview(data)[4:], ProduceRequest.API_KEY, NEWEST)
    return ProduceResponse.decode(memoryview(data)[4:], NEWEST, position)[0]


def test_records_of_a_transaction_need_one(broker: RunningBroker, topic: str) -> None:
    data = records(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    assert produced(broker, topic, data).error_code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert led(broker, topic).log.log_end_offset == 0


# Without a reply


def test_who_wants_no_reply_gets_none(broker: RunningBroker, topic: str) -> None:
    assert handled(broker, request_for((topic, {0: records()}), acks=0)) == ()
    assert led(broker, topic).log.log_end_offset == 1
    with pytest.raises(ProtocolError, match=f"acks=0 failed for {topic}-9: UNKNOWN_TOPIC_OR_PARTITION"):
        handled(broker, request_for((topic, {0: records(), 9: records()}), acks=0))
    assert led(broker, topic).log.log_end_offset == 2


def handled(broker: RunningBroker, request: ProduceRequest, connection: Any = None) -> Any:
    async def handle() -> Any:
        frame = memoryview(bytearray(encode_request_frame(request, NEWEST, 7, "tester")[4:]))
        dispatch = Dispatch(broker.broker, broker.broker.handlers)
        handler, context = dispatch.find(connection or connected(broker.broker), frame)
        return handler.handle(context)

    return broker.wait_for(handle())


# Who leads instead


@pytest.mark.parametrize(("version", "is_told"), [(9, False), (10, True), (NEWEST, True)])
def test_a_producer_is_told_who_leads_and_where(broker: RunningBroker, topic: str, version: int, is_told: bool) -> None:
    image = broker.broker.image
    (endpoint,) = image.brokers[broker.broker.broker_id].endpoints
    image.brokers[FOLLOWER] = BrokerImage(FOLLOWER, (endpoint._replace(host="there", port=7),), "rack")
    try:
        with following(led(broker, topic), FOLLOWER):
            response = broker.ask(request_for((topic, {0: records()})), version)
            hidden = endpoint._replace(listener="INSIDE")
            image.brokers[FOLLOWER] = BrokerImage(FOLLOWER, (hidden,), "rack")
            unreachable = broker.ask(request_for((topic, {0: records()})), version)
    finally:
        del image.brokers[FOLLOWER]
    (result,) = results(response)
    assert result.error_code == E.NOT_LEADER_OR_FOLLOWER
    told = (result.current_leader.leader_id, result.current_leader.leader_epoch)
    assert told == ((FOLLOWER, 0) if is_told else (-1, -1))
    where = [(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints]
    assert where == ([(FOLLOWER, "there", 7, "rack")] if is_told else [])
    assert unreachable.node_endpoints == []


def test_only_who_asked_the_wrong_broker_is_told_who_leads(broker: RunningBroker, topic: str) -> None:
    response = broker.ask(request_for((topic, {0: b"", 9: records()})), NEWEST)
    assert [result.current_leader.leader_id for result in results(response)] == [-1, -1]
    assert response.node_endpoints == []


# Waiting for replicas


def test_only_who_wants_all_replicas_waits_for_them(broker: RunningBroker, topic: str) -> None:
    with with_follower(broker, topic):
        for acks, waits in ((1, False), (-1, True)):
            request = request_for((topic, {0: records(), 1: records()}), acks=acks)
            assert broker.answers_at_once(request, NEWEST) is not waits
        assert broker.answers_at_once(request_for((topic, {1: records()}), acks=-1), NEWEST)


@pytest.mark.parametrize("timeout_ms", [-1, 0, 1])
def test_time_is_up_for_the_partitions_that_still_wait(broker: RunningBroker, topic: str, timeout_ms: int) -> None:
    with with_follower(broker, topic):
        response = broker.ask(
            request_for((topic, {1: records(), 0: records()}), acks=-1, timeout_ms=timeout_ms), NEWEST
        )
    assert [(result.index, result.error_code, result.base_offset) for result in results(response)] == [
        (1, E.NONE, 0),
        (0, E.REQUEST_TIMED_OUT, -1),
    ]


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ("the follower has it", E.NONE),
        ("too few are left", E.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        ("it follows", E.NOT_LEADER_OR_FOLLOWER),
        ("it leads again", E.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_what_becomes_of_records_that_wait(broker: RunningBroker, topic: str, event: str, code: ErrorCode) -> None:
    async def scenario() -> Any:
        with with_follower(broker, topic) as partition:
            leader = partition.leader
            assert leader is not None
            waiting = asyncio.ensure_future(broker.answer(request_for((topic, {0: records(), 1: records()}), acks=-1)))
            await until(lambda: bool(partition.waiters))
            broker.broker.parked.moved(partition)
            await until(lambda: not partition.is_moved)
            assert not waiting.done()
            leader.set_min_insync_replicas(2)
            if event in ("the follower has it", "too few are left"):
                broker.broker.replicas.follower_fetched(partition, FOLLOWER, 1, 0, -1)
            if event == "too few are left":
                leader.isr_confirmed([broker.broker.broker_id], leader.partition_epoch + 1)
            elif event == "it follows":
                partition.leader = None
            elif event == "it leads again":
                partition.leads_since += 1
            broker.broker.parked.moved(partition)
            answer = await waiting
            partition.leader = leader
            return answer

    response = broker.wait_for(scenario())
    assert [(result.index, result.error_code, result.base_offset) for result in results(response)] == [
        (0, code, -1 if code else 0),
        (1, E.NONE, 0),
    ]


# Quotas


def test_a_producer_above_its_quota_is_told_once_for_each_request_how_long_it_has_to_wait(
    broker: RunningBroker, topic: str
) -> None:
    quotas = broker.broker.quotas
    quotas.replace(QuotaLimits(producers={QuotaEntity(None, "tester"): 1.0}))
    try:
        for acks in (1, 0, -1):
            connection = connected(broker.broker)
            outcome = handled(broker, request_for((topic, {0: records()}), acks=acks), connection)
            (muted_ms,) = connection.mutes_ms
            assert muted_ms > 0
            assert acks == 0 or decoded(outcome[0]).throttle_time_ms == muted_ms
        quotas.replace(QuotaLimits(consumers={QuotaEntity(None, "tester"): 1.0}))
        connection = connected(broker.broker)
        handled(broker, request_for((topic, {0: records()})), connection)
        assert connection.mutes_ms == []
    finally:
        quotas.replace(QuotaLimits())
