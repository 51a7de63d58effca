"""Fetch as the protocol sees it: waiting, limits, sessions, epochs, offsets by time."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.ids import Ids
from ottla.records.batch import iter_headers
from ottla.records.reader import read_records
from ottla.wire.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.wire.apis.fetch import FetchPartition, FetchResponse, ForgottenTopic
from ottla.wire.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker_process import BrokerProcess
from tests.integration.calls import (
    T0,
    batch,
    create_topic,
    fetch_one,
    fetch_request,
    list_offset,
    produce,
    produce_request,
)
from tests.raw_client import RawClient


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.port) as raw:
        yield raw


@pytest.fixture
def other(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.port) as raw:
        yield raw


def wanted(partition: int = 0, offset: int = 0, max_bytes: int = 10_000_000, epoch: int = -1) -> FetchPartition:
    return FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes, current_leader_epoch=epoch
    )


def values(data: bytes | memoryview | None) -> list[bytes]:
    view = memoryview(data or b"")
    found = []
    for position, header in iter_headers(view):
        found += [record.value or b"" for record in read_records(view[position : position + header.size], header)]
    return found


def test_a_waiting_fetch_is_answered_by_the_next_record(client: RawClient, other: RawClient, new_topic: str) -> None:
    create_topic(client, new_topic)
    client.send(fetch_request({new_topic: [wanted()]}, max_wait_ms=600_000), 11)  # longer than the client waits
    produce(other, new_topic, batch(b"late"))
    response = client.receive(FetchResponse, 11)
    assert values(response.responses[0].partitions[0].records) == [b"late"]


def test_min_bytes_are_waited_for_and_max_wait_ends_it(client: RawClient, other: RawClient, new_topic: str) -> None:
    create_topic(client, new_topic)
    produce(other, new_topic, batch(b"small"))
    client.send(fetch_request({new_topic: [wanted()]}, max_wait_ms=15_000, min_bytes=1000), 11)
    produce(other, new_topic, batch(b"x" * 2000))
    assert len(values(client.receive(FetchResponse, 11).responses[0].partitions[0].records)) == 2
    started = time.monotonic()
    response = client.call(fetch_request({new_topic: [wanted(offset=1)]}, max_wait_ms=300, min_bytes=10_000_000), 11)
    assert time.monotonic() - started >= 0.29
    assert isinstance(response, FetchResponse)
    assert len(values(response.responses[0].partitions[0].records)) == 1


def test_requests_after_a_waiting_fetch_are_answered_after_it(
    client: RawClient, other: RawClient, new_topic: str
) -> None:
    create_topic(client, new_topic)
    client.send(fetch_request({new_topic: [wanted()]}, max_wait_ms=15_000), 11)
    client.send(fetch_request({new_topic: [wanted()]}), 11)
    produce(other, new_topic, batch(b"v"))
    assert values(client.receive(FetchResponse, 11).responses[0].partitions[0].records) == [b"v"]
    assert values(client.receive(FetchResponse, 11).responses[0].partitions[0].records) == [b"v"]


def test_the_first_batch_comes_whole_and_later_partitions_keep_the_limit(client: RawClient, new_topic: str) -> None:
    create_topic(client, new_topic, 2)
    for partition in (0, 1):
        produce(client, new_topic, batch(b"x" * 5000), partition=partition)
    response = client.call(fetch_request({new_topic: [wanted(0, max_bytes=10), wanted(1)]}, max_bytes=100), 11)
    assert isinstance(response, FetchResponse)
    first, second = response.responses[0].partitions
    assert values(first.records) == [b"x" * 5000]
    assert not second.records


def test_data_starts_at_the_batch_that_holds_the_offset(client: RawClient, new_topic: str) -> None:
    create_topic(client, new_topic)
    produce(client, new_topic, batch(b"0", b"1", b"2"))
    produce(client, new_topic, batch(b"3", b"4"))
    assert values(fetch_one(client, new_topic, 1).records) == [b"0", b"1", b"2", b"3", b"4"]
    assert values(fetch_one(client, new_topic, 3).records) == [b"3", b"4"]
    at_end = fetch_one(client, new_topic, 5)
    assert (at_end.error_code, at_end.high_watermark, values(at_end.records)) == (0, 5, [])
    assert fetch_one(client, new_topic, 6).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_error_answers_at_once_and_costs_the_other_partitions_nothing(client: RawClient, new_topic: str) -> None:
    create_topic(client, new_topic)
    request = fetch_request({new_topic: [wanted(0), wanted(7)], "no-such-topic": [wanted()]}, max_wait_ms=15_000)
    response = client.call(request, 11)
    assert isinstance(response, FetchResponse)
    codes = [p.error_code for t in response.responses for p in t.partitions]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_leader_epochs_fence(client: RawClient, new_topic: str) -> None:
    create_topic(client, new_topic)
    produce(client, new_topic, batch(b"a"))
    current = list_offset(client, new_topic, -1).leader_epoch
    for epoch, code in ((current, 0), (current + 1, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        response = client.call(fetch_request({new_topic: [wanted(epoch=epoch)]}), 11)
        assert isinstance(response, FetchResponse)
        assert response.responses[0].partitions[0].error_code == code
    assert list_offset(client, new_topic, -1, leader_epoch=current + 5).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_sessions_tell_only_what_is_new(client: RawClient, new_topic: str) -> None:
    create_topic(client, new_topic, 3)
    request = fetch_request({new_topic: [wanted(p) for p in range(3)]}, session=(0, 0))
    response = client.call(request, 11)
    assert isinstance(response, FetchResponse)
    session = response.session_id
    assert session > 0 and len(response.responses[0].partitions) == 3
    response = client.call(fetch_request({}, session=(session, 1)), 11)
    assert isinstance(response, FetchResponse) and response.responses == []
    produce(client, new_topic, batch(b"n"), partition=2)
    response = client.call(fetch_request({}, session=(session, 2)), 11)
    assert isinstance(response, FetchResponse)
    assert [p.partition_index for p in response.responses[0].partitions] == [2]
    forget = fetch_request({}, session=(session, 3))
    forget.forgotten_topics_data = [ForgottenTopic(topic=new_topic, partitions=[2])]
    response = client.call(forget, 11)
    assert isinstance(response, FetchResponse) and response.responses == []
    response = client.call(fetch_request({}, session=(session, 9)), 11)
    assert isinstance(response, FetchResponse)
    assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    response = client.call(fetch_request({}, session=(session + 1, 1)), 11)
    assert isinstance(response, FetchResponse)
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_topics_by_id(client: RawClient, new_topic: str) -> None:
    topic_id = create_topic(client, new_topic)
    produce(client, new_topic, batch(b"by id"))
    response = client.call(fetch_request({topic_id: [wanted()], Ids().uuid(): [wanted()]}), 13)
    assert isinstance(response, FetchResponse)
    assert values(response.responses[0].partitions[0].records) == [b"by id"]
    assert response.responses[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_offsets_by_time(client: RawClient, new_topic: str) -> None:
    create_topic(client, new_topic)
    produce(client, new_topic, batch(b"a", b"b", timestamps=[T0 + 10, T0 + 20]))
    produce(client, new_topic, batch(b"c", b"d", timestamps=[T0 + 90, T0 + 30]))
    assert list_offset(client, new_topic, -1).offset == 4
    assert list_offset(client, new_topic, -2).offset == 0
    assert list_offset(client, new_topic, -4, version=8).offset == 0
    assert list_offset(client, new_topic, -5, version=9).offset == -1
    highest = list_offset(client, new_topic, -3)
    assert (highest.offset, highest.timestamp) == (2, T0 + 90)
    for asked, offset, at in ((0, 0, T0 + 10), (T0 + 11, 1, T0 + 20), (T0 + 20, 1, T0 + 20), (T0 + 21, 2, T0 + 90)):
        found = list_offset(client, new_topic, asked)
        assert (found.offset, found.timestamp, found.error_code) == (offset, at, 0)
    beyond = list_offset(client, new_topic, T0 + 91)
    assert (beyond.offset, beyond.timestamp, beyond.error_code) == (-1, -1, 0)
    assert list_offset(client, new_topic, -3, version=6).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_deleted_records_are_out_of_range(client: RawClient, new_topic: str) -> None:
    create_topic(client, new_topic)
    for value in (b"0", b"1", b"2"):
        produce(client, new_topic, batch(value))

    def delete(offset: int) -> tuple[int, int]:
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=new_topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
                )
            ]
        )
        response = client.call(request, 2)
        assert isinstance(response, DeleteRecordsResponse)
        result = response.topics[0].partitions[0]
        return result.error_code, result.low_watermark

    assert delete(2) == (0, 2)
    assert delete(1) == (0, 2)
    assert delete(99) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert fetch_one(client, new_topic, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert values(fetch_one(client, new_topic, 2).records) == [b"2"]
    assert list_offset(client, new_topic, -2).offset == 2
    assert delete(-1) == (0, 3)


def test_leader_epochs_have_ends(client: RawClient, new_topic: str) -> None:
    create_topic(client, new_topic)
    produce(client, new_topic, batch(b"a", b"b"))
    epoch = list_offset(client, new_topic, -1).leader_epoch

    def ends(asked: int) -> tuple[int, int]:
        request = OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                OffsetForLeaderTopic(
                    topic=new_topic,
                    partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=asked, current_leader_epoch=epoch)],
                )
            ],
        )
        response = client.call(request, 4)
        assert isinstance(response, OffsetForLeaderEpochResponse)
        found = response.topics[0].partitions[0]
        assert found.error_code == 0
        return found.leader_epoch, found.end_offset

    assert ends(epoch) == (epoch, 2)
    assert ends(epoch + 1) == (-1, -1)


def test_a_reader_with_a_foreign_history_is_told_where_it_forks(client: RawClient, new_topic: str) -> None:
    create_topic(client, new_topic)
    produce(client, new_topic, batch(b"a", b"b"))
    epoch = list_offset(client, new_topic, -1).leader_epoch
    partition = FetchPartition(partition=0, fetch_offset=1, last_fetched_epoch=epoch, partition_max_bytes=1000)
    response = client.call(fetch_request({new_topic: [partition]}), 12)
    assert isinstance(response, FetchResponse)
    assert response.responses[0].partitions[0].diverging_epoch.end_offset == -1
    partition.last_fetched_epoch = epoch + 1
    response = client.call(fetch_request({new_topic: [partition]}), 12)
    assert isinstance(response, FetchResponse)
    assert response.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_thousand_pipelined_produces_are_answered_in_order(client: RawClient, new_topic: str) -> None:
    create_topic(client, new_topic)
    from ottla.wire.apis.produce import ProduceResponse

    for number in range(1000):
        client.send(produce_request(new_topic, batch(b"%d" % number)), 9)
    offsets = [client.receive(ProduceResponse, 9).responses[0].partition_responses[0].base_offset for _ in range(1000)]
    assert offsets == list(range(1000))
