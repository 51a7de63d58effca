"""What clients of a simulated cluster ask for, whom, how often, and what they do about the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from random import Random
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition, Uuid
from ottla.records.batch import read_header
from ottla.records.reader import read_records
from ottla.testing.sim.checks import ViolationError
from ottla.testing.sim.clients import SimCarelessProducer, SimClient, SimProducer
from ottla.wire.apis.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.apis.find_coordinator import FindCoordinatorRequest
from ottla.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.apis.metadata import MetadataRequest, MetadataResponse
from ottla.wire.apis.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.sim.answering import AnsweringCluster, Told, coordinator, for_a_while, in_turn, metadata

TP = TopicPartition("safe", 1)
TOPIC_ID = Uuid(bytes(range(16)))
LEADERS = metadata(TOPIC_ID, lambda: [(1, 4), (2, 7)])


def draw() -> Random:
    return Random(5)


def pauses_of(client: SimClient) -> list[None]:
    """One for each."""
    paused: list[None] = []
    pause = client.pause

    def counted() -> Awaitable[None]:
        paused.append(None)
        return pause()

    client.pause = counted  # type: ignore[method-assign, assignment]
    return paused


# Asking


def test_a_connection_is_kept_until_it_ends_and_another_is_made() -> None:
    cluster = AnsweringCluster({MetadataRequest: LEADERS})
    client = SimClient("client", cluster.names, draw())

    async def scenario() -> None:
        for _ in range(3):
            await client.ask("broker-1", MetadataRequest(), MetadataResponse)
        await client.ask("broker-2", MetadataRequest(), MetadataResponse)
        assert [broker.versions_asked_for for broker in cluster.brokers.values()] == [1, 1]
        assert cluster.network.reset_some(9) == 2
        await asyncio.sleep(1)
        await client.ask("broker-1", MetadataRequest(), MetadataResponse, version=9)

    cluster.run(client.party, scenario)
    assert [broker.versions_asked_for for broker in cluster.brokers.values()] == [2, 1]
    versions = [version for _, version, _ in cluster.brokers["broker-1"].asked]
    assert versions == [*[MetadataRequest.VERSIONS[-1]] * 3, 9]
    assert {name for _, _, name in cluster.brokers["broker-1"].asked} == {"client"}
    assert (client.done_so_far, client.is_excused) == (0, False)


def test_who_gets_no_answer_has_an_error_after_two_seconds() -> None:
    cluster = AnsweringCluster({MetadataRequest: in_turn(None)})
    client = SimClient("client", cluster.names, draw())

    async def scenario() -> list[float]:
        took_s = []
        for link in (None, ("client", "broker-2")):
            if link is not None:
                cluster.network.cut(*link)
            began_s = cluster.loop.time()
            with pytest.raises(KafkaError):
                await client.ask("broker-1" if link is None else "broker-2", MetadataRequest(), MetadataResponse)
            took_s.append(cluster.loop.time() - began_s)
        return took_s

    asked_s, called_s = cluster.run(client.party, scenario)
    assert 2 <= asked_s < 2.5 and 1 <= called_s < 1.5


def test_a_connection_to_who_does_not_say_what_it_speaks_is_given_up() -> None:
    cluster = AnsweringCluster({MetadataRequest: LEADERS})
    client = SimClient("client", cluster.names, draw())

    async def scenario() -> None:
        cluster.brokers["broker-1"].is_silent = True
        with pytest.raises(KafkaError):
            await client.ask("broker-1", MetadataRequest(), MetadataResponse)
        await asyncio.sleep(1)
        assert cluster.network.reset_some(9) == 0
        cluster.brokers["broker-1"].is_silent = False
        await client.ask("broker-1", MetadataRequest(), MetadataResponse)

    cluster.run(client.party, scenario)


def test_who_gives_up_while_a_connection_is_made_leaves_none() -> None:
    cluster = AnsweringCluster({MetadataRequest: LEADERS})
    client = SimClient("client", cluster.names, draw())

    async def scenario() -> None:
        cluster.brokers["broker-1"].is_silent = True
        asking = asyncio.ensure_future(client.ask("broker-1", MetadataRequest(), MetadataResponse))
        await asyncio.sleep(1)
        asking.cancel()
        await asyncio.wait([asking])
        await asyncio.sleep(1)
        assert cluster.network.reset_some(9) == 0

    cluster.run(client.party, scenario)


def test_any_broker_is_any_of_them_and_a_pause_is_short() -> None:
    cluster = AnsweringCluster({})
    client = SimClient("client", cluster.names, draw())
    assert {client.any_broker() for _ in range(50)} == set(cluster.names)

    async def scenario() -> list[float]:
        pauses_s = []
        for _ in range(200):
            began_s = cluster.loop.time()
            await client.pause()
            pauses_s.append(cluster.loop.time() - began_s)
        return pauses_s

    pauses_s = cluster.run(client.party, scenario)
    assert 0.0199 <= min(pauses_s) < 0.03 and 0.17 < max(pauses_s) <= 0.181


# Leaders


def test_a_leader_is_asked_for_until_there_is_one() -> None:
    leaders = in_turn([(-1, 1), (-1, 1)], [(1, 4), (-1, 6)], [(1, 4)], [(1, 4), (2, 7)])
    cluster = AnsweringCluster({MetadataRequest: in_turn(None, metadata(TOPIC_ID, leaders))})
    client = SimClient("client", cluster.names, draw())
    assert client.epoch_of(TP) == -1
    paused = pauses_of(client)

    async def scenario() -> None:
        assert await client.leader_of(TP) == "broker-2"
        asked = cluster.asked(MetadataRequest)
        assert await client.leader_of(TP) == "broker-2"
        assert cluster.asked(MetadataRequest) == asked, "it is remembered"
        assert len(asked) == 5 and paused == [None] * 4, "no pause when all is known"
        assert all([topic.name for topic in request.topics] == ["safe"] for _, request in asked)
        assert not any(request.allow_auto_topic_creation for _, request in asked)
        assert (client.epoch_of(TP), client.topic_id("safe")) == (7, TOPIC_ID)
        assert client.epoch_of(TopicPartition("safe", 0)) == 4 and client.epoch_of(TopicPartition("lax", 1)) == -1

    cluster.run(client.party, scenario)


def test_the_leader_that_was_forgotten_is_asked_for_again() -> None:
    cluster = AnsweringCluster(
        {MetadataRequest: metadata(TOPIC_ID, in_turn([(1, 4), (1, 4)], [(1, 4), (2, 3)], [(1, 4), (2, 4)]))}
    )
    client = SimClient("client", cluster.names, draw())

    async def scenario() -> None:
        assert await client.leader_of(TP) == "broker-1"
        client.forget_leader(TP)
        client.forget_leader(TP)
        assert client.epoch_of(TP) == 4
        assert await client.leader_of(TP) == "broker-2"
        assert len(cluster.asked(MetadataRequest)) == 3, "who told of an older epoch was behind"
        assert await client.leader_of(TopicPartition("safe", 0)) == "broker-1"

    cluster.run(client.party, scenario)


def test_leaders_of_epoch_zero_count_and_brokers_that_are_away_do_not() -> None:
    cluster = AnsweringCluster({MetadataRequest: metadata(TOPIC_ID, in_turn([(1, 4), (3, 0)], [(1, 4), (1, 0)]))})
    client = SimClient("client", cluster.names, draw())
    assert cluster.run(client.party, lambda: client.leader_of(TP)) == "broker-1"
    assert client.epoch_of(TP) == 0 and len(cluster.asked(MetadataRequest)) == 2


def test_a_coordinator_is_found_by_the_client_s_name() -> None:
    answers = in_turn((ErrorCode.COORDINATOR_NOT_AVAILABLE, ""), (ErrorCode.NONE, "broker-2"))
    cluster = AnsweringCluster({FindCoordinatorRequest: coordinator(answers)})
    client = SimClient("client", cluster.names, draw())

    async def scenario() -> str:
        with pytest.raises(KafkaError) as raised:
            await client.find_coordinator(1)
        assert raised.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        return await client.find_coordinator(1)

    assert cluster.run(client.party, scenario) == "broker-2"
    assert {(r.key_type, *r.coordinator_keys) for _, r in cluster.asked(FindCoordinatorRequest)} == {(1, "client")}


@pytest.mark.parametrize("last", [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS])
def test_a_topic_is_asked_for_until_it_is_there(last: ErrorCode) -> None:
    def topics(code: ErrorCode) -> CreateTopicsResponse:
        return CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=code)])

    cluster = AnsweringCluster(
        {CreateTopicsRequest: in_turn(None, topics(ErrorCode.NOT_CONTROLLER), *[topics(last)] * 2)}
    )
    client = SimClient("client", cluster.names, draw())
    paused = pauses_of(client)
    cluster.run(client.party, lambda: client.create_topic("t", 5, {"a": "1", "b": "2"}))
    asked = [request for _, request in cluster.asked(CreateTopicsRequest)]
    assert len(asked) == 3 and paused == [None] * 2
    for request in asked:
        (topic,) = request.topics
        assert (topic.name, topic.num_partitions, topic.replication_factor) == ("t", 5, 3)
        assert {config.name: config.value for config in topic.configs} == {"a": "1", "b": "2"}
        assert request.timeout_ms == 1_000 and not request.validate_only


# Who writes


def produced(code: ErrorCode, base_offset: int = -1) -> ProduceResponse:
    answer = PartitionProduceResponse(index=1, error_code=code, base_offset=base_offset)
    return ProduceResponse(responses=[TopicProduceResponse(name="safe", partition_responses=[answer])])


def batches_of(cluster: AnsweringCluster) -> list[bytes]:
    found = []
    for _, request in cluster.asked(ProduceRequest):
        (topic,) = request.topic_data
        (partition,) = topic.partition_data
        assert (topic.name, partition.index) == TP
        found.append(bytes(partition.records))
    return found


def producing(*answers: Any, ids: Any = None, seconds: float = 20.0) -> tuple[AnsweringCluster, Told, SimProducer]:
    """A producer that is answered so, in turn; all that it writes afterwards is taken."""
    offsets = iter(range(100, 100_000, 100))
    in_order = iter(answers)

    def answer(name: str, request: ProduceRequest) -> ProduceResponse | None:
        code = next(in_order, ErrorCode.NONE)
        return None if code is None else produced(code, next(offsets) if code == ErrorCode.NONE else -1)

    given = ids or in_turn(InitProducerIdResponse(producer_id=9, producer_epoch=3))
    cluster = AnsweringCluster({MetadataRequest: LEADERS, InitProducerIdRequest: given, ProduceRequest: answer})
    told = Told()
    producer = SimProducer("p", cluster.names, draw(), told.checks, TP)
    cluster.run(producer.party, lambda: for_a_while(producer.run(), seconds))
    return cluster, told, producer


def test_a_producer_writes_batch_after_batch_in_their_order() -> None:
    cluster, told, producer = producing()
    batches = batches_of(cluster)
    assert 100 < len(batches) < 500
    counts: list[int] = []
    for data in batches:
        header = read_header(data)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, sum(counts))
        assert not header.is_transactional
        values = [(record.key, record.value, record.timestamp) for record in read_records(data)]
        assert values == [(b"k", b"%d-%d" % (sum(counts), n), 1_700_000_000_000) for n in range(header.record_count)]
        counts.append(header.record_count)
    assert set(counts) == {1, 2, 3, 4}
    assert told.acknowledged[:3] == [(TP, (n + 1) * 100, 9, sum(counts[:n])) for n in range(3)]
    assert len(batches) - len(told.acknowledged) in (0, 1)
    assert producer.done_so_far == sum(counts[: len(told.acknowledged)])
    for name, request in cluster.asked(ProduceRequest):
        assert name == "broker-2", "the leader"
        assert (request.acks, request.timeout_ms, request.transactional_id) == (-1, 1_000, None)
    (asked,) = cluster.asked(InitProducerIdRequest)
    assert (asked[1].transactional_id, asked[1].transaction_timeout_ms) == (None, 60_000)


@pytest.mark.parametrize("trouble", [None, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS])
def test_a_batch_is_sent_again_until_it_is_written(trouble: ErrorCode | None) -> None:
    cluster, told, _producer = producing(ErrorCode.NONE, trouble, trouble, ErrorCode.NONE, seconds=4.8)
    batches = batches_of(cluster)
    assert len(batches) >= 4 and batches[1] == batches[2] == batches[3] != batches[0]
    count = read_header(batches[0]).record_count
    assert told.acknowledged[:2] == [(TP, 100, 9, 0), (TP, 200, 9, count)]
    assert len(cluster.asked(MetadataRequest)) == 3, "another may lead by now"
    assert len(batches) < 60, "it waits between its tries"


def test_a_producer_asks_for_an_id_until_it_has_one() -> None:
    ids = in_turn(
        None,
        InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE),
        InitProducerIdResponse(producer_id=8, producer_epoch=2),
    )
    cluster, _, _ = producing(ids=ids, seconds=4)
    assert len(cluster.asked(InitProducerIdRequest)) == 3
    header = read_header(batches_of(cluster)[0])
    assert (header.producer_id, header.producer_epoch) == (8, 2)


@pytest.mark.parametrize("code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID])
def test_a_broker_that_has_forgotten_a_producer_breaks_a_promise(code: ErrorCode) -> None:
    with pytest.raises(ViolationError, match=f"safe-1: p was refused with {code.name}"):
        producing(ErrorCode.NONE, code)


def test_a_producer_whose_records_may_be_lost_may_be_forgotten_and_stops() -> None:
    told = Told()
    cluster = AnsweringCluster(
        {
            MetadataRequest: LEADERS,
            InitProducerIdRequest: in_turn(InitProducerIdResponse(producer_id=9, producer_epoch=3)),
            ProduceRequest: in_turn(produced(ErrorCode.UNKNOWN_PRODUCER_ID)),
        }
    )
    producer = SimProducer("p", cluster.names, draw(), told.checks, TP)
    assert not producer.is_excused
    told.checks.excused.add(TopicPartition("safe", 0))
    assert not producer.is_excused
    told.checks.excused.add(TP)
    assert producer.is_excused
    cluster.run(producer.party, lambda: for_a_while(producer.run(), 1_800))
    assert len(batches_of(cluster)) == 1 and producer.done_so_far == 0


def test_a_careless_producer_writes_for_the_leader_only_and_forgets() -> None:
    answers = in_turn(
        produced(ErrorCode.NONE), None, produced(ErrorCode.NOT_LEADER_OR_FOLLOWER), produced(ErrorCode.NONE)
    )
    cluster = AnsweringCluster({MetadataRequest: LEADERS, ProduceRequest: answers})
    careless = SimCarelessProducer("c", cluster.names, draw(), TP)
    cluster.run(careless.party, lambda: for_a_while(careless.run(), 10))
    batches = batches_of(cluster)
    assert 40 < len(batches) < 200
    records = [record for data in batches for record in read_records(data)]
    assert [(record.key, record.value) for record in records] == [
        (b"c", b"c-%d" % number) for number in range(1, len(batches) + 1)
    ]
    assert {record.timestamp for record in records} == {1_700_000_000_000}
    assert {read_header(data).producer_id for data in batches} == {-1}
    assert {request.acks for _, request in cluster.asked(ProduceRequest)} == {1}
    assert len(cluster.asked(MetadataRequest)) == 3, "after each of its two troubles"
