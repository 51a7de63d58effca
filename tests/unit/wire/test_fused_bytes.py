"""Requests for one partition, byte by byte: whatever is changed, what is read by hand is what the request says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.errors import DecodeError
from ottla.base.types import NIL_UUID, Uuid
from ottla.wire.apis.fetch import FetchablePartitionResponse as FetchedPartition
from ottla.wire.apis.fetch import FetchableTopicResponse as FetchedTopic
from ottla.wire.apis.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from ottla.wire.apis.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from ottla.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.wire.fused.commit_form import CommitForm
from ottla.wire.fused.fetch import FetchResult, decode_fetch, encode_fetch_response
from ottla.wire.fused.fetch_single import read_single_fetch
from ottla.wire.fused.metadata import MetadataPartition, encode_metadata_response, encode_metadata_topic
from ottla.wire.fused.offset_commit import encode_commit_reply, read_commit
from ottla.wire.fused.produce import (
    AppendedReply,
    ProduceResult,
    decode_produce,
    encode_produce_response,
    read_single_produce,
)
from ottla.wire.header import encode_response_frame

BYTES = (0, 1, 2, 3, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF)


def variants(data: bytes) -> list[bytes]:
    """Every byte changed, every end cut off, and something behind the end."""
    changed = [data[:at] + bytes([byte]) + data[at + 1 :] for at in range(len(data)) for byte in BYTES]
    return [*changed, *(data[:at] for at in range(len(data))), data + b"\0", data + b"\1\1\1"]


def outcome(read: Callable[..., Any], *given: Any) -> Any:
    """What is read, or what is said to be wrong."""
    try:
        return read(*given)
    except DecodeError as e:
        return str(e)


def produce_of(version: int, name: str = "to", records: bytes = b"abc") -> bytes:
    topic = TopicProduceData(name=name, partition_data=[PartitionProduceData(index=7, records=records)])
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]).encode(version)


def declared_produce(data: bytes, version: int) -> Any:
    request, _ = ProduceRequest.decode(data, version)
    topics = [(topic.name, [(p.index, p.records) for p in topic.partition_data]) for topic in request.topic_data]
    return request.transactional_id, request.acks, request.timeout_ms, topics


@pytest.mark.parametrize("version", [3, 8, 9, 12])
@pytest.mark.parametrize(("name", "records"), [("to", b"abc"), ("", b""), ("t", b"\0" * 5)])
def test_produce(version: int, name: str, records: bytes) -> None:
    for data in variants(produce_of(version, name, records)):
        expected = outcome(declared_produce, data, version)
        view = memoryview(data)
        assert outcome(decode_produce, view, version) == expected
        single = read_single_produce(view, version, 0)
        if single is not None:
            acks, timeout_ms, topic, index, found = single
            assert (None, acks, timeout_ms, [(topic, [(index, found)])]) == expected


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("name_bytes", [126, 127, 128, 249])
def test_produce_to_a_topic_with_a_long_name(version: int, name_bytes: int) -> None:
    data = produce_of(version, "n" * name_bytes)
    single = read_single_produce(memoryview(data), version, 0)
    assert (single is not None) == (version < 9 or name_bytes <= 126)
    assert decode_produce(memoryview(data), version)[3] == [("n" * name_bytes, [(7, b"abc")])]


def fetch_of(version: int, name: str = "to", *, is_empty: bool = False) -> bytes:
    partition = FetchPartition(partition=3, fetch_offset=5, partition_max_bytes=6)
    if version >= 9:
        partition.current_leader_epoch = 4
    if version >= 12:
        partition.last_fetched_epoch = 2
    topic = FetchTopic(topic=name, topic_id=Uuid(bytes(range(1, 17))), partitions=[partition])
    request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=9, isolation_level=1)
    if version >= 7:
        request.session_id, request.session_epoch = 8, 2
    if not is_empty:
        request.topics.append(topic)
    return request.encode(version)


def declared_fetch(data: bytes, version: int) -> Any:
    request, _ = FetchRequest.decode(data, version)

    def ref(topic: Any) -> Any:
        return topic.topic_id if version >= 13 else topic.topic

    def fields(p: FetchPartition) -> tuple[int, ...]:
        epochs = p.current_leader_epoch, p.fetch_offset, p.last_fetched_epoch
        return (p.partition, *epochs, p.log_start_offset, p.partition_max_bytes)

    state = request.replica_state
    return (
        state.replica_id if version >= 15 else request.replica_id,
        state.replica_epoch,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
        [(ref(topic), [fields(p) for p in topic.partitions]) for topic in request.topics],
        [(ref(topic), topic.partitions) for topic in request.forgotten_topics_data],
        request.rack_id,
    )


@pytest.mark.parametrize("version", [4, 5, 7, 9, 11, 12, 13, 15, 17])
@pytest.mark.parametrize("is_empty", [False, True])
def test_fetch(version: int, is_empty: bool) -> None:
    whole = fetch_of(version, is_empty=is_empty)
    assert (read_single_fetch(memoryview(whole), version, 0) is not None) == (version >= 11)
    for data in variants(whole):
        expected = outcome(declared_fetch, data, version)
        view = memoryview(data)
        assert outcome(decode_fetch, view, version) == expected
        single = read_single_fetch(view, version, 0)
        if single is not None:
            *head, topic, partition = single
            topics = [] if topic is None else [(topic, [partition])]
            assert (-1, -1, *head, topics, [], "") == expected


@pytest.mark.parametrize("version", [7, 11, 12, 13, 17])
def test_fetch_with_all_there_may_be(version: int) -> None:
    partitions = [FetchPartition(partition=n, fetch_offset=n, partition_max_bytes=9) for n in range(2)]
    topics = [FetchTopic(topic=name, topic_id=Uuid(name.encode() * 16), partitions=partitions) for name in "ab"]
    forgotten = [ForgottenTopic(topic="f", topic_id=Uuid(b"f" * 16), partitions=[1, 2])] * 2
    request = FetchRequest(max_wait_ms=500, topics=topics, forgotten_topics_data=forgotten)
    if version >= 15:
        request.replica_state.replica_id, request.replica_state.replica_epoch = 3, 4
    else:
        request.replica_id = 3
    if version >= 11:
        request.rack_id = "rack"
    for data in variants(request.encode(version))[:: 3 if version in (7, 13) else 2]:
        assert outcome(decode_fetch, memoryview(data), version) == outcome(declared_fetch, data, version)


def commit_of(version: int, metadata: str | None = "note", member: str = "me") -> bytes:
    partition = OffsetCommitRequestPartition(
        partition_index=7, committed_offset=2**40, committed_leader_epoch=5, committed_metadata=metadata
    )
    return OffsetCommitRequest(
        group_id="gr",
        generation_id_or_member_epoch=3,
        member_id=member,
        topics=[OffsetCommitRequestTopic(name="to", partitions=[partition])],
    ).encode(version)


def declared_commit(data: bytes, version: int) -> Any:
    try:
        request, _ = OffsetCommitRequest.decode(data, version)
    except DecodeError:
        return None
    names = {topic.name for topic in request.topics if topic.partitions}
    if not names or len(names) < len(request.topics):
        return None
    head = request.group_id, request.generation_id_or_member_epoch, request.member_id, request.group_instance_id
    return head, [
        (
            topic.name,
            [
                (p.partition_index, p.committed_offset, p.committed_leader_epoch, p.committed_metadata or "")
                for p in topic.partitions
            ],
        )
        for topic in request.topics
    ]


def listed(commit: Any) -> Any:
    return commit and (commit[:4], [(topic, list(partitions)) for topic, partitions in commit[4]])


@pytest.mark.parametrize("version", [6, 7, 8, 9])
@pytest.mark.parametrize(("metadata", "member"), [("note", "me"), ("", ""), (None, "")])
def test_commits_and_their_forms(version: int, metadata: str | None, member: str) -> None:
    whole = commit_of(version, metadata, member)
    commit = read_commit(memoryview(whole), version, 0)
    assert commit is not None
    form = CommitForm(commit, version, memoryview(whole), 0)
    for data in variants(whole):
        expected = declared_commit(data, version)
        assert listed(read_commit(memoryview(data), version, 0)) == expected
        found = form.read(memoryview(data), version, 0)
        if found is not None:
            assert listed(found) == expected
    assert listed(form.read(memoryview(whole), version, 0)) == listed(commit)


@pytest.mark.parametrize("version", [6, 7, 8, 9])
@pytest.mark.parametrize("length", [0, 1, 125, 126, 127, 128, 16_383])
def test_a_form_reads_notes_as_long_as_it_can(version: int, length: int) -> None:
    commit = read_commit(memoryview(commit_of(version)), version, 0)
    assert commit is not None
    form = CommitForm(commit, version, memoryview(commit_of(version)), 0)
    for note in ("n" * length, "\0" * length):
        data = commit_of(version, note)
        found = form.read(memoryview(data), version, 0)
        if version < 8 or length <= 126:
            assert listed(found) == declared_commit(data, version)
        else:
            assert found is None
    assert form.read(memoryview(commit_of(version, None)), version, 0) is not None


def test_what_is_not_said_in_a_reply() -> None:
    """Each part that has a default has the one of the declared form."""
    for version in range(3, 13):
        produced = ProduceResponse(
            responses=[TopicProduceResponse(name="t", partition_responses=[PartitionProduceResponse(index=5)])]
        )
        produced.responses[0].partition_responses[0].base_offset = -1
        assert ProduceResult(5)[1:] == (0, -1, -1, -1, (), None, None)
        for topics in ([("t", [ProduceResult(5)])],):
            assert encode_produce_response(version, 9, topics) == encode_response_frame(produced, version, 9)
        whole = encode_produce_response(version, 9, [("t", [ProduceResult(5, 0, 70, -1, 3)])], 11)
        if version >= 5:
            assert AppendedReply(version, "t", 5, 11).encode(9, 70, 3) == whole
            refused = encode_produce_response(version, 9, [("t", [ProduceResult(5, 6)])], 11)
            assert AppendedReply(version, "t", 5, 11).encode_error(9, 6) == refused
    assert FetchResult(5)[1:] == (0, -1, -1, -1, None, -1, None, None, None)
    for version in range(4, 18):
        fetched = FetchedPartition(partition_index=5, high_watermark=-1, aborted_transactions=None, records=None)
        topic_id = Uuid(bytes(range(16)))
        response = FetchResponse(responses=[FetchedTopic(topic="t", topic_id=topic_id, partitions=[fetched])])
        pieces = encode_fetch_response(version, 9, [(topic_id if version >= 13 else "t", [FetchResult(5)])])
        assert pieces == [encode_response_frame(response, version, 9)]
    for version in range(2, 10):
        committed = OffsetCommitResponse(
            topics=[OffsetCommitResponseTopic(name="t", partitions=[OffsetCommitResponsePartition(partition_index=5)])]
        )
        reply = encode_commit_reply(version, 9, [("t", [(5, 1, 2, "")])])
        assert reply == encode_response_frame(committed, version, 9)
    for version in range(14):
        told = MetadataResponse(cluster_id="c", controller_id=1, topics=[MetadataResponseTopic(name="t")])
        told.topics[0].partitions = [MetadataResponsePartition(partition_index=5, replica_nodes=[1], isr_nodes=[1])]
        partition = MetadataPartition(0, 5, 0, -1, [1], [1])
        topics = [encode_metadata_topic(version, name="t", partitions=[partition])]
        frame = encode_metadata_response(version, 9, brokers=[], cluster_id="c", controller_id=1, topics=topics)
        assert frame == encode_response_frame(told, version, 9)
        assert encode_metadata_topic(version, name="t", topic_id=NIL_UUID) == encode_metadata_topic(version, name="t")
