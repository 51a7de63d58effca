"""Fetch by hand equals the compiled codec, byte for byte, in all served versions."""

from __future__ import annotations

import struct
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import DecodeError, EncodeError
from ottla.base.types import NIL_UUID, FileSlice, Uuid
from ottla.wire.apis import fetch as apis
from ottla.wire.fused.fallbacks import FALLBACKS
from ottla.wire.fused.fetch import FetchPartition, FetchPlan, FetchResult, Piece, decode_fetch, encode_fetch_response
from ottla.wire.fused.fetch_request import SERVED_VERSIONS
from ottla.wire.fused.fetch_single import read_single_fetch
from ottla.wire.fused.tags import tag_section
from ottla.wire.header import encode_response_frame

from .random_messages import random_message

SEEDS = given(seed=st.integers(0, 2**32))
MODERATELY = settings(max_examples=40, deadline=None, derandomize=True)

CONTENT = Random(0).randbytes(100_000)


class File:
    fd = -1


FILE = File()


def plan_of(request: apis.FetchRequest, version: int) -> FetchPlan:
    def ref(topic: Any) -> Any:
        return topic.topic_id if version >= 13 else topic.topic

    return FetchPlan(
        request.replica_state.replica_id if version >= 15 else request.replica_id,
        request.replica_state.replica_epoch,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
        [
            (
                ref(topic),
                [
                    FetchPartition(
                        p.partition,
                        p.current_leader_epoch,
                        p.fetch_offset,
                        p.last_fetched_epoch,
                        p.log_start_offset,
                        p.partition_max_bytes,
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ],
        [(ref(topic), topic.partitions) for topic in request.forgotten_topics_data],
        request.rack_id,
    )


@pytest.mark.parametrize("version", SERVED_VERSIONS)
@MODERATELY
@SEEDS
def test_requests_are_read_alike(version: int, seed: int) -> None:
    rng = Random(seed)
    request = random_message(rng, apis.FetchRequest, version)
    data = request.encode(version)
    fallbacks = FALLBACKS["fetch"]
    assert decode_fetch(memoryview(b"pad" + data + b"stray"), version, 3) == plan_of(request, version)
    assert decode_fetch(memoryview(b"pad" + data), version, 3) == plan_of(request, version)
    # Only a cluster id, which nobody but a quorum's voters sends, is left to the declared codec.
    assert FALLBACKS["fetch"] == fallbacks + (2 if request.cluster_id is not None else 0)
    for cut in rng.sample(range(len(data)), min(len(data), 30)):
        with pytest.raises(DecodeError):
            decode_fetch(memoryview(data[:cut]), version)


@pytest.mark.parametrize("version", SERVED_VERSIONS)
@MODERATELY
@SEEDS
def test_damaged_requests_are_judged_alike(version: int, seed: int) -> None:
    rng = Random(seed)
    data = bytearray(random_message(rng, apis.FetchRequest, version).encode(version))
    for _ in range(rng.randrange(1, 4)):
        data[rng.randrange(len(data))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    try:
        expected = plan_of(apis.FetchRequest.decode(data, version)[0], version)
    except DecodeError as e:
        with pytest.raises(DecodeError) as caught:
            decode_fetch(memoryview(data), version)
        assert str(caught.value) == str(e)
    else:
        assert decode_fetch(memoryview(data), version) == expected


TAGS = st.dictionaries(st.integers(2, 300), st.binary(max_size=200), max_size=3).map(
    lambda tags: tag_section(sorted(tags.items()))
)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), shape=st.lists(st.integers(0, 3), max_size=3), version=st.integers(12, 17))
def test_unknown_tags_may_stand_wherever_tags_may(data: st.DataObject, shape: list[int], version: int) -> None:
    """KIP-482: a newer client may send tags that we do not know, and nothing after them moves."""
    body = bytearray(struct.pack(">i", -1) if version < 15 else b"")
    body += struct.pack(">iiibii", 500, 1, 1 << 20, 1, 3, 4)

    def topic_ref(number: int) -> bytes:
        return bytes([number]) * 16 if version >= 13 else bytes([2, 97 + number])

    def topic(number: int) -> str | Uuid:
        return Uuid(bytes([number]) * 16) if version >= 13 else chr(97 + number)

    topics, forgotten = [], []
    body.append(len(shape) + 1)
    for number, partitions in enumerate(shape):
        body += topic_ref(number) + bytes([partitions + 1])
        for index in range(partitions):
            body += struct.pack(">iiqiqi", index, 5, 6, 7, 8, 9) + data.draw(TAGS)
        body += data.draw(TAGS)
        topics.append((topic(number), [FetchPartition(index, 5, 6, 7, 8, 9) for index in range(partitions)]))
    body.append(len(shape) + 1)
    for number, partitions in enumerate(shape):
        body += topic_ref(number) + bytes([partitions + 1]) + struct.pack(f">{partitions}i", *range(partitions))
        body += data.draw(TAGS)
        forgotten.append((topic(number), list(range(partitions))))
    body += b"\x05rack" + data.draw(TAGS)
    fallbacks = FALLBACKS["fetch"]
    plan = decode_fetch(memoryview(body), version)
    assert plan == (-1, -1, 500, 1, 1 << 20, 1, 3, 4, topics, forgotten, "rack")
    assert FALLBACKS["fetch"] == fallbacks


def test_a_lying_partition_count_is_a_decode_error() -> None:
    topic = apis.FetchTopic(topic="t", partitions=[apis.FetchPartition()])
    data = bytearray(apis.FetchRequest(topics=[topic]).encode(12))
    at = data.index(b"\x02\x02t\x02") + 3
    data[at] = 9
    with pytest.raises(DecodeError, match="topics"):
        decode_fetch(memoryview(data), 12)


def test_versions_that_do_not_exist_are_errors() -> None:
    with pytest.raises(DecodeError, match="0-17, not 18"):
        decode_fetch(memoryview(apis.FetchRequest().encode(17)), 18)
    with pytest.raises(EncodeError, match="not 3"):
        encode_fetch_response(3, 1, [])
    assert decode_fetch(memoryview(apis.FetchRequest(max_wait_ms=7).encode(2)), 2).max_wait_ms == 7


@st.composite
def nearly_single(draw: st.DrawFn) -> tuple[apis.FetchRequest, int]:
    """A consumer's request for one partition, often with one thing that makes it another kind of request."""
    version = draw(st.integers(11, 17))
    name = draw(st.sampled_from(("t", "größe", "n" * 126, "n" * 127, "")))
    partition = apis.FetchPartition(partition=3, current_leader_epoch=4, fetch_offset=5, partition_max_bytes=6)
    topic = apis.FetchTopic(topic=name, topic_id=Uuid(bytes(range(16))), partitions=[partition])
    request = apis.FetchRequest(max_wait_ms=7, min_bytes=8, max_bytes=9, isolation_level=1, topics=[topic])
    match draw(st.integers(0, 13)):
        case 0:
            request.topics.append(topic)
        case 10:
            request.topics.clear()
        case 1:
            topic.partitions.append(partition)
        case 2:
            topic.partitions.clear()
        case 3:
            request.rack_id = "r"
        case 4:
            request.session_id = 1
        case 5:
            request.session_epoch = 0
        case 6 if version >= 15:
            request.replica_state.replica_id = 1
        case 6:
            request.replica_id = 1
        case 7 if version >= 12:
            partition.last_fetched_epoch = 0
        case 8:
            request.forgotten_topics_data.append(apis.ForgottenTopic(topic="t"))
        case 9 if version >= 17:
            partition.replica_directory_id = Uuid(bytes(range(16)))
    return request, version


@settings(max_examples=300, deadline=None)
@given(nearly_single())
def test_a_consumers_request_for_one_partition_is_read_as_one_and_no_other(case: tuple[apis.FetchRequest, int]) -> None:
    request, version = case
    data = request.encode(version)
    single = read_single_fetch(memoryview(b"pad" + data), version, 3)
    plan = decode_fetch(memoryview(data), version)
    partitions = [partition for _, partitions in plan.topics for partition in partitions]
    of_a_consumer = plan.replica_id == -1 and not plan.forgotten and not plan.rack_id
    short_name = version >= 13 or all(len(topic.topic.encode()) <= 126 for topic in request.topics)
    tagless = version < 17 or all(p.replica_directory_id == NIL_UUID for t in request.topics for p in t.partitions)
    if len(plan.topics) == len(partitions) <= 1 and of_a_consumer and short_name and tagless:
        head = (plan.max_wait_ms, plan.min_bytes, plan.max_bytes, plan.isolation_level)
        named = (plan.topics[0][0], partitions[0]) if partitions else (None, None)
        assert single == (*head, plan.session_id, plan.session_epoch, *named)
    else:
        assert single is None


@pytest.mark.parametrize("version", range(11, 18))
def test_an_empty_request_with_anything_else_in_it_is_not_read_as_one(version: int) -> None:
    data = apis.FetchRequest(max_wait_ms=7).encode(version)
    assert read_single_fetch(memoryview(data), version, 0) is not None
    # No topics, no forgotten ones, no rack, and no tags.
    for back in (10, 6, 2) if version == 11 else (4, 3, 2, 1):
        changed = bytearray(data)
        changed[-back] += 1
        assert read_single_fetch(memoryview(changed), version, 0) is None
    if version < 15:
        follower = apis.FetchRequest(max_wait_ms=7, replica_id=1).encode(version)
        assert read_single_fetch(memoryview(follower), version, 0) is None


def random_records(rng: Random) -> tuple[Any, bytes | None]:
    """Records in one of their forms, and the bytes they stand for."""

    def file_slice() -> FileSlice:
        position = rng.randrange(50_000)
        return FileSlice(FILE, position, rng.choice((0, 1, 126, 127, 128, 20_000)))

    match rng.randrange(5):
        case 0:
            return None, None
        case 1:
            data = rng.randbytes(rng.choice((0, 1, 127, 300)))
            return data, data
        case 2:
            one = file_slice()
            return one, CONTENT[one.position : one.position + one.length]
        case 3:
            several = [file_slice(), b"between", file_slice()]
            return several, flatten(several)
        case _:
            return memoryview(b"view"), b"view"


def flatten(pieces: list[Any]) -> bytes:
    return b"".join(
        CONTENT[p.position : p.position + p.length] if isinstance(p, FileSlice) else bytes(p) for p in pieces
    )


def random_result(rng: Random, version: int) -> tuple[FetchResult, apis.FetchablePartitionResponse]:
    records, data = random_records(rng)
    aborted = rng.choice((None, None, [], [(4000, 7)], [(i, i * i) for i in range(130)]))
    tagged = version >= 12
    diverging = rng.choice((None, None, (-1, -1), (3, 99))) if tagged else None
    leader = rng.choice((None, None, (-1, -1), (2, 5))) if tagged else None
    preferred = rng.choice((-1, 3)) if version >= 11 else -1
    fixed = (
        rng.randrange(50),
        rng.randrange(-1, 80),
        rng.randrange(1 << 60),
        rng.randrange(1 << 60),
        rng.randrange(99),
    )
    result = FetchResult(*fixed, aborted, preferred, diverging, leader, records)
    declared = apis.FetchablePartitionResponse(
        partition_index=fixed[0],
        error_code=fixed[1],
        high_watermark=fixed[2],
        last_stable_offset=fixed[3],
        log_start_offset=fixed[4],
        aborted_transactions=None
        if aborted is None
        else [apis.AbortedTransaction(producer_id=p, first_offset=o) for p, o in aborted],
        preferred_read_replica=preferred,
        records=data,
    )
    if diverging is not None:
        declared.diverging_epoch = apis.EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
    if leader is not None:
        declared.current_leader = apis.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
    return result, declared


@pytest.mark.parametrize("version", SERVED_VERSIONS)
@MODERATELY
@SEEDS
def test_responses_are_written_alike(version: int, seed: int) -> None:
    rng = Random(seed)
    topics, responses = [], []
    for _ in range(rng.randrange(4)):
        name, topic_id = rng.choice(("t", "größe", "n" * 200)), Uuid(rng.randbytes(16))
        pairs = [random_result(rng, version) for _ in range(rng.randrange(4))]
        topics.append((topic_id if version >= 13 else name, [result for result, _ in pairs]))
        declared = apis.FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=[d for _, d in pairs])
        responses.append(declared)
    endpoints = [apis.NodeEndpoint(node_id=i, host="h", port=i) for i in range(rng.choice((0, 0, 2)))]
    session = {"error_code": rng.choice((0, 70)), "session_id": rng.randrange(1 << 31)} if version >= 7 else {}
    response = apis.FetchResponse(
        throttle_time_ms=9, responses=responses, node_endpoints=endpoints if version >= 16 else [], **session
    )
    pieces = encode_fetch_response(version, 42, topics, throttle_ms=9, node_endpoints=endpoints, **session)
    assert flatten(list(pieces)) == encode_response_frame(response, version, 42)
    assert_well_formed(pieces)


def assert_well_formed(pieces: list[Piece]) -> None:
    """Bytes first, no empty piece, no two runs of bytes side by side."""
    assert isinstance(pieces[0], bytes)
    assert all(piece.length if isinstance(piece, FileSlice) else piece for piece in pieces)
    for left, right in pairwise(pieces):
        assert isinstance(left, FileSlice) or isinstance(right, FileSlice)


def test_an_empty_response_is_one_piece() -> None:
    assert encode_fetch_response(12, 7, []) == [bytes.fromhex("00000011 00000007 00 00000000 0000 00000000 01 00")]


def test_results_that_do_not_fit_are_encode_errors() -> None:
    for version in (4, 12):
        with pytest.raises(EncodeError, match="does not fit"):
            encode_fetch_response(version, 1, [("t", [FetchResult(1 << 40)])])
