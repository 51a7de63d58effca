"""Produce by hand equals the compiled codec, byte for byte, in all served versions."""

from __future__ import annotations

import struct
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import DecodeError, EncodeError
from ottla.wire.apis.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.wire.fused import produce
from ottla.wire.fused.fallbacks import FALLBACKS
from ottla.wire.fused.produce import (
    SERVED_VERSIONS,
    AppendedReply,
    ProducePlan,
    ProduceResult,
    decode_produce,
    encode_produce_response,
    read_single_produce,
)
from ottla.wire.fused.tags import tag_section
from ottla.wire.header import encode_response_frame

from .random_messages import random_message

SEEDS = given(seed=st.integers(0, 2**32))
MODERATELY = settings(max_examples=40, deadline=None, derandomize=True)


def plan_of(request: ProduceRequest) -> ProducePlan:
    return ProducePlan(
        request.transactional_id,
        request.acks,
        request.timeout_ms,
        [(topic.name, [(p.index, p.records) for p in topic.partition_data]) for topic in request.topic_data],  # type: ignore[misc]
    )


@pytest.mark.parametrize("version", SERVED_VERSIONS)
@MODERATELY
@SEEDS
def test_requests_are_read_alike(version: int, seed: int) -> None:
    rng = Random(seed)
    request = random_message(rng, ProduceRequest, version)
    data = request.encode(version)
    fallbacks = FALLBACKS["produce"]
    assert decode_produce(memoryview(b"pad" + data + b"stray"), version, 3) == plan_of(request)
    assert decode_produce(memoryview(b"pad" + data), version, 3) == plan_of(request)
    assert FALLBACKS["produce"] == fallbacks
    for cut in rng.sample(range(len(data)), min(len(data), 30)):
        with pytest.raises(DecodeError):
            decode_produce(memoryview(data[:cut]), version)


@pytest.mark.parametrize("version", SERVED_VERSIONS)
@MODERATELY
@SEEDS
def test_damaged_requests_are_judged_alike(version: int, seed: int) -> None:
    rng = Random(seed)
    data = bytearray(random_message(rng, ProduceRequest, version).encode(version))
    for _ in range(rng.randrange(1, 4)):
        data[rng.randrange(len(data))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    try:
        expected = plan_of(ProduceRequest.decode(data, version)[0])
    except DecodeError as e:
        with pytest.raises(DecodeError) as caught:
            decode_produce(memoryview(data), version)
        assert str(caught.value) == str(e)
    else:
        assert decode_produce(memoryview(data), version) == expected


@pytest.mark.parametrize("version", SERVED_VERSIONS)
@pytest.mark.parametrize("records_bytes", [0, 1, 126, 127, 128, 20_000])
@pytest.mark.parametrize("name_bytes", [0, 1, 126])
def test_a_request_for_one_partition_is_read_as_one(version: int, records_bytes: int, name_bytes: int) -> None:
    records = bytes(records_bytes)
    partition = PartitionProduceData(index=7, records=records)
    topic = TopicProduceData(name="n" * name_bytes, partition_data=[partition])
    data = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]).encode(version)
    single = (-1, 30_000, "n" * name_bytes, 7, records)
    assert read_single_produce(memoryview(b"pad" + data), version, 3) == single
    assert read_single_produce(memoryview(b"pad" + data + b"stray"), version, 3) == single


@pytest.mark.parametrize("version", SERVED_VERSIONS)
def test_any_other_request_is_not_read_as_one(version: int) -> None:
    one = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=1, records=b"r")])
    two = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=i, records=b"r") for i in (1, 2)])
    empty = TopicProduceData(name="t")
    without_records = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=1, records=None)])
    for request in (
        ProduceRequest(topic_data=[one], transactional_id="x"),
        ProduceRequest(topic_data=[one, one]),
        ProduceRequest(topic_data=[two]),
        ProduceRequest(topic_data=[empty]),
        ProduceRequest(topic_data=[without_records]),
        ProduceRequest(topic_data=[]),
    ):
        data = request.encode(version)
        assert read_single_produce(memoryview(data), version, 0) is None
        assert decode_produce(memoryview(data), version) == plan_of(request)


@pytest.mark.parametrize("version", range(9, SERVED_VERSIONS[-1] + 1))
@pytest.mark.parametrize("back", [1, 2, 3])
@pytest.mark.parametrize("number", [0, 5])
def test_a_request_with_tags_anywhere_is_not_read_as_one(version: int, back: int, number: int) -> None:
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=1, records=b"r")])
    request = ProduceRequest(topic_data=[topic])
    data = request.encode(version)
    assert data[-3:] == bytes(3), "no tags behind the partition, the topic and the request"
    at = len(data) - back
    tagged = memoryview(data[:at] + tag_section([(number, b"x")]) + data[at + 1 :])
    assert read_single_produce(tagged, version, 0) is None
    fallbacks = FALLBACKS["produce"]
    assert decode_produce(tagged, version) == plan_of(request)
    assert FALLBACKS["produce"] == fallbacks


@pytest.mark.parametrize("version", [8, 9])
def test_the_longest_name_there_can_be_is_read_by_hand(version: int) -> None:
    topic = TopicProduceData(name="n" * 32_767, partition_data=[PartitionProduceData(index=1, records=b"r")] * 2)
    request = ProduceRequest(topic_data=[topic])
    fallbacks = FALLBACKS["produce"]
    assert decode_produce(memoryview(request.encode(version)), version) == plan_of(request)
    assert FALLBACKS["produce"] == fallbacks


TAGS = st.dictionaries(st.integers(0, 300), st.binary(max_size=200), max_size=3).map(
    lambda tags: tag_section(sorted(tags.items()))
)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), shape=st.lists(st.integers(0, 3), max_size=3), version=st.integers(9, 12))
def test_unknown_tags_may_stand_wherever_tags_may(data: st.DataObject, shape: list[int], version: int) -> None:
    """KIP-482: a newer client may send tags that we do not know, and nothing after them moves."""
    body = bytearray(b"\x00" + struct.pack(">hi", 1, 100) + bytes([len(shape) + 1]))
    expected: list[tuple[str, list[tuple[int, bytes]]]] = []
    for number, partitions in enumerate(shape):
        body += bytes([2, 97 + number, partitions + 1])
        for index in range(partitions):
            body += struct.pack(">iB", index, 3) + b"%02d" % index + data.draw(TAGS)
        expected.append((chr(97 + number), [(index, b"%02d" % index) for index in range(partitions)]))
        body += data.draw(TAGS)
    body += data.draw(TAGS)
    fallbacks = FALLBACKS["produce"]
    assert decode_produce(memoryview(body), version) == (None, 1, 100, expected)
    assert FALLBACKS["produce"] == fallbacks


def test_a_request_that_only_the_declared_codec_reads_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(view: memoryview, position: int) -> tuple[ProducePlan, int]:
        raise ValueError("gave up")

    monkeypatch.setattr(produce, "_decode_flexible", give_up)
    fallbacks = FALLBACKS["produce"]
    request = ProduceRequest(acks=1)
    assert decode_produce(memoryview(request.encode(9)), 9) == plan_of(request)
    assert FALLBACKS["produce"] == fallbacks + 1
    with pytest.raises(DecodeError):
        decode_produce(memoryview(request.encode(9)[:-1]), 9)
    assert FALLBACKS["produce"] == fallbacks + 1


def test_unknown_tags_are_skipped_and_records_stay_writable_slices_of_the_frame() -> None:
    data = bytearray.fromhex("00 0001 00000064 02 02 74 02 00000003 03 6162 01 05 01 ff 01 00 00 01 09 02 0000")
    plan = decode_produce(memoryview(data), 9)
    assert plan == (None, 1, 100, [("t", [(3, b"ab")])])
    records = plan.topics[0][1][0][1]
    assert records is not None
    records[0:1] = b"z"
    assert b"zb" in data


@pytest.mark.parametrize("version", [0, 1, 2])
def test_older_versions_go_through_the_declared_codec(version: int) -> None:
    request = random_message(Random(5), ProduceRequest, version)
    assert decode_produce(memoryview(request.encode(version)), version) == plan_of(request)


def test_versions_that_do_not_exist_are_errors() -> None:
    with pytest.raises(DecodeError, match="0-12, not 13"):
        decode_produce(memoryview(ProduceRequest().encode(12)), 13)
    with pytest.raises(EncodeError, match="not 13"):
        encode_produce_response(13, 1, [])


def random_result(rng: Random) -> ProduceResult:
    plain = rng.random() < 0.5
    return ProduceResult(
        rng.randrange(100),
        0 if plain else rng.randrange(-1, 90),
        rng.randrange(-1, 1 << 62),
        rng.choice((-1, 1_700_000_000_000)),
        rng.randrange(-1, 1 << 40),
        () if plain else [(i, rng.choice((None, "", "bad record"))) for i in range(rng.randrange(3))],
        None if plain else rng.choice((None, "", "why it failed", "w" * 200)),
        None if plain else rng.choice((None, (-1, -1), (1, -1), (3, 77))),
    )


def declared_partition(result: ProduceResult, version: int) -> PartitionProduceResponse:
    leader = result.current_leader if result.current_leader is not None and version >= 10 else (-1, -1)
    return PartitionProduceResponse(
        index=result.index,
        error_code=result.error_code,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in result.record_errors
        ],
        error_message=result.error_message,
        current_leader=LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1]),
    )


@pytest.mark.parametrize("version", SERVED_VERSIONS)
@MODERATELY
@SEEDS
def test_responses_are_written_alike(version: int, seed: int) -> None:
    rng = Random(seed)
    topics = [
        (rng.choice(("t", "größe", "n" * 126, "n" * 127, "n" * 249, "n" * 400)), [random_result(rng) for _ in range(n)])
        for n in rng.choice(([], [1], [1], [1], [0], [2], [1, 3]))
    ]
    endpoints = [NodeEndpoint(node_id=i, host="h", port=9092 + i, rack=None) for i in range(rng.choice((0, 0, 2)))]
    throttle_ms = rng.choice((0, 500))
    declared = ProduceResponse(
        responses=[
            TopicProduceResponse(name=name, partition_responses=[declared_partition(r, version) for r in results])
            for name, results in topics
        ],
        throttle_time_ms=throttle_ms,
        node_endpoints=endpoints if version >= 10 else [],
    )
    frame = encode_produce_response(version, 42, topics, throttle_ms, endpoints)
    assert frame == encode_response_frame(declared, version, 42)


def test_results_that_do_not_fit_are_encode_errors() -> None:
    for results in ([ProduceResult(1 << 40)], [ProduceResult(1 << 40), ProduceResult(2)]):
        with pytest.raises(EncodeError):
            encode_produce_response(9, 1, [("t", results)])


@pytest.mark.parametrize("version", range(5, 13))
@given(
    topic=st.text(min_size=1, max_size=40),
    index=st.integers(0, 2**31 - 1),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    offsets=st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)),
)
@settings(max_examples=20)
def test_a_prepared_reply_is_the_reply(
    version: int, topic: str, index: int, correlation_id: int, offsets: tuple[int, int]
) -> None:
    base_offset, log_start_offset = offsets
    form = AppendedReply(version, topic, index)
    for result, got in (
        (ProduceResult(index, 0, base_offset, -1, log_start_offset), form.encode(correlation_id, *offsets)),
        (ProduceResult(index, 56), form.encode_error(correlation_id, 56)),
    ):
        assert got == encode_produce_response(version, correlation_id, [(topic, [result])])


@pytest.mark.parametrize("version", [8, 9])
def test_replies_about_names_that_no_topic_can_have_are_not_remembered(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longest name there can be has its layout, and no longer one."""
    encode_many = produce._encode_many
    written: list[int] = []
    monkeypatch.setattr(
        produce, "_encode_many", lambda *given: written.append(len(given[2][0][0])) or encode_many(*given)
    )
    for size in (1, 249, 250, 400):
        encode_produce_response(version, 1, [("n" * size, [ProduceResult(1)])])
    assert written == [250, 400]
