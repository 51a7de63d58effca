"""OffsetCommit by hand equals the declared codec, byte for byte, in all served versions."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import DecodeError
from ottla.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.fused import offset_commit
from ottla.wire.fused.commit_form import CommitForm, has_form
from ottla.wire.fused.offset_commit import (
    KEY_VERSION,
    VALUE_VERSION,
    encode_commit_reply,
    encode_offset_key,
    encode_offset_value,
    read_commit,
)
from ottla.wire.header import encode_response_frame
from ottla.wire.stored.consumer_offsets import OffsetCommitKey, OffsetCommitValue

from .random_messages import random_message

SERVED_VERSIONS = range(2, 10)
BY_HAND = range(6, 10)
LENGTHS = [0, 1, 126]
"""Longer strings have two bytes for their length in flexible versions, and are left to the declared codec."""


def told(request: OffsetCommitRequest) -> Any:
    """What `read_commit` owes for a request; None if it has something unusual in it."""
    names = {topic.name for topic in request.topics if topic.partitions}
    if not names or len(names) < len(request.topics) or request.retention_time_ms >= 0:
        return None
    topics = [
        (
            topic.name,
            [
                (p.partition_index, p.committed_offset, p.committed_leader_epoch, p.committed_metadata or "")
                for p in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    head = request.group_id, request.generation_id_or_member_epoch, request.member_id, request.group_instance_id
    return *head, topics


def listed(commit: Any) -> Any:
    return commit and (*commit[:4], [(topic, list(partitions)) for topic, partitions in commit[4]])


def single(version: int, length: int, metadata: str | None) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=7, committed_offset=2**40, committed_metadata=metadata)
    partition.committed_leader_epoch = 5
    return OffsetCommitRequest(
        group_id="g" * length,
        generation_id_or_member_epoch=3,
        member_id="m" * length,
        topics=[OffsetCommitRequestTopic(name="t" * length, partitions=[partition])],
    )


@pytest.mark.parametrize("version", SERVED_VERSIONS)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32))
def test_requests_are_read_alike(version: int, seed: int) -> None:
    rng = Random(seed)
    request = random_message(rng, OffsetCommitRequest, version)
    if version not in range(2, 5) or rng.random() < 0.5:
        request.retention_time_ms = -1
    data = request.encode(version)
    assert listed(read_commit(memoryview(b"pad" + data + b"stray"), version, 3)) == told(request)
    assert listed(read_commit(memoryview(b"pad" + data), version, 3)) == told(request)
    for cut in rng.sample(range(len(data)), min(len(data), 30)):
        assert read_commit(memoryview(data[:cut]), version, 0) is None


@pytest.mark.parametrize("version", BY_HAND)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32))
def test_damaged_requests_of_one_partition_are_judged_alike(version: int, seed: int) -> None:
    rng = Random(seed)
    data = bytearray(single(version, rng.choice(LENGTHS), rng.choice([None, "", "a note"])).encode(version))
    for _ in range(rng.randrange(1, 4)):
        data[rng.randrange(len(data))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    try:
        expected = told(OffsetCommitRequest.decode(data, version)[0])
    except DecodeError:
        expected = None
    assert listed(read_commit(memoryview(data), version, 0)) == expected


@pytest.mark.parametrize("version", BY_HAND)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("metadata", [None, "", "grüße", "n" * 126])
def test_a_request_of_one_partition_is_read_by_hand(
    version: int, length: int, metadata: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = single(version, length, metadata)
    monkeypatch.setattr(offset_commit, "_read_declared", lambda *_: pytest.fail("it was left to the declared codec"))
    data = request.encode(version)
    assert listed(read_commit(memoryview(b"pad" + data), version, 3)) == told(request)
    assert listed(read_commit(memoryview(b"pad" + data + b"stray"), version, 3)) == told(request)


@pytest.mark.parametrize("version", BY_HAND)
@pytest.mark.parametrize("length", [126, 127, 128])
def test_metadata_with_a_long_length_is_read_whatever_it_ends_with(version: int, length: int) -> None:
    """From 127 bytes on, its length has two bytes in flexible versions, and what looks like tags may be its end."""
    request = single(version, 1, "n" * (length - 1) + "\0")
    assert listed(read_commit(memoryview(request.encode(version)), version, 0)) == told(request)


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize("retention_time_ms", [-1, 0, 1])
def test_a_retention_time_of_its_own_is_unusual(version: int, retention_time_ms: int) -> None:
    request = single(version, 1, "")
    request.topics[0].partitions[0].committed_leader_epoch = -1
    request.retention_time_ms = retention_time_ms
    commit = read_commit(memoryview(request.encode(version)), version, 0)
    assert (commit is None) is (retention_time_ms >= 0)


def test_an_instance_is_read_where_there_is_one() -> None:
    request = single(7, 1, "")
    request.group_instance_id = "i"
    for version in (7, 8, 9):
        assert listed(read_commit(memoryview(request.encode(version)), version, 0)) == told(request)


@pytest.mark.parametrize("version", BY_HAND)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32))
def test_what_a_form_reads_is_what_the_request_says(version: int, seed: int) -> None:
    """With other offsets, with other names, cut short or damaged: a form reads the truth or nothing."""
    rng = Random(seed)
    first = single(version, rng.choice(LENGTHS), rng.choice([None, "", "a note"]))
    commit = read_commit(memoryview(first.encode(version)), version, 0)
    assert commit is not None and has_form(commit, version)
    form = CommitForm(commit, version, memoryview(b"pad" + first.encode(version)), 3)
    assert form.key == encode_offset_key(first.group_id, first.topics[0].name, 7)

    request = single(version, len(first.group_id), rng.choice([None, "", "a note", "grüße", "n" * 126]))
    request.topics[0].partitions[0].committed_offset = rng.randrange(2**63)
    request.topics[0].partitions[0].committed_leader_epoch = rng.randrange(-1, 2**31)
    data = bytearray(request.encode(version))
    assert listed(form.read(memoryview(b"pad" + data + b"stray"), version, 3)) == told(request)
    assert listed(form.read(memoryview(data), version, 0)) == told(request)
    assert form.read(memoryview(data), version + 1, 0) is None
    for cut in rng.sample(range(len(data)), min(len(data), 30)):
        assert form.read(memoryview(data[:cut]), version, 0) is None
    data[rng.randrange(len(data))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    read = form.read(memoryview(data), version, 0)
    assert read is None or listed(read) == listed(read_commit(memoryview(data), version, 0))


@pytest.mark.parametrize("version", SERVED_VERSIONS)
def test_only_usual_requests_have_a_form(version: int) -> None:
    def form_of(request: OffsetCommitRequest) -> bool:
        commit = read_commit(memoryview(request.encode(version)), version, 0)
        return commit is not None and has_form(commit, version)

    request = single(version, 1, "")
    assert form_of(request) == (version in BY_HAND)
    request.topics.append(OffsetCommitRequestTopic(name="other", partitions=request.topics[0].partitions))
    assert not form_of(request)
    request.topics = [OffsetCommitRequestTopic(name="t", partitions=request.topics[0].partitions * 2)]
    assert not form_of(request)
    assert not form_of(single(version, 127, ""))
    if version >= 7:
        request = single(version, 1, "")
        request.group_instance_id = "i"
        assert not form_of(request)


_names = st.sampled_from(["t", "n" * 126, "n" * 127, "grüße" * 40])


@settings(max_examples=100, deadline=None)
@given(
    version=st.sampled_from(SERVED_VERSIONS),
    topics=st.lists(st.tuples(_names, st.lists(st.integers(0, 2**31 - 1), max_size=200)), max_size=3),
    error_code=st.sampled_from([0, 16]),
)
def test_replies_are_written_alike(version: int, topics: list[tuple[str, list[int]]], error_code: int) -> None:
    check_reply(version, topics, error_code)


@pytest.mark.parametrize("version", SERVED_VERSIONS)
@pytest.mark.parametrize("length", [1, 125, 126, 127, 128])
@pytest.mark.parametrize("partitions", [1, 2])
def test_so_are_those_about_one_topic(version: int, length: int, partitions: int) -> None:
    check_reply(version, [("n" * length, list(range(5, 5 + partitions)))], 16)


def check_reply(version: int, topics: list[tuple[str, list[int]]], error_code: int) -> None:
    response = OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=name,
                partitions=[OffsetCommitResponsePartition(partition_index=i, error_code=error_code) for i in indexes],
            )
            for name, indexes in topics
        ]
    )
    commits = [(name, [(index, 1, 2, "m") for index in indexes]) for name, indexes in topics]
    assert encode_commit_reply(version, 77, commits, error_code) == encode_response_frame(response, version, 77)


@given(
    names=st.tuples(_names, _names),
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(-1, 2**63 - 1),
    leader_epoch=st.integers(-1, 2**31 - 1),
    metadata=st.text(st.characters(exclude_categories=["Cs"]), max_size=50),
)
def test_records_are_written_alike(
    names: tuple[str, str], partition: int, offset: int, leader_epoch: int, metadata: str
) -> None:
    group, topic = names
    key = OffsetCommitKey(group=group, topic=topic, partition=partition)
    value = OffsetCommitValue(
        offset=offset, leader_epoch=leader_epoch, metadata=metadata, commit_timestamp=1_700_000_000_000
    )
    assert encode_offset_key(group, topic, partition) == key.encode_versioned(KEY_VERSION)
    stored = encode_offset_value(offset, leader_epoch, metadata, 1_700_000_000_000)
    assert stored == value.encode_versioned(VALUE_VERSION)
