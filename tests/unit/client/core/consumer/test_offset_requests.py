"""Requests about offsets field by field, in old versions and new ones, and what answers to them say."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.client.core.consumer.offset_requests import (
    Committed,
    Membership,
    OffsetAndTimestamp,
    commit_request,
    committed_request,
    epoch_end_request,
    list_offsets_request,
    offsets_to_commit,
    read_commit,
    read_committed_offsets,
    read_epoch_ends,
    read_list_offsets,
)
from ottla.wire.apis import list_offsets, offset_commit, offset_fetch, offset_for_leader_epoch

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ERROR = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)


@pytest.mark.parametrize(
    ("membership", "is_member"),
    [
        (Membership("g", 0, "m"), True),
        (Membership("g", -1, "m"), False),
        (Membership("g", 0, ""), False),
        (Membership("g"), False),
    ],
)
def test_a_member_has_a_name_and_a_generation(membership: Membership, is_member: bool) -> None:
    assert membership.is_member is is_member


def test_listing() -> None:
    request = list_offsets_request({A1: 5, B0: -1, A0: -2}, 1)
    assert (request.replica_id, request.isolation_level) == (-1, 1)
    asked = [(topic.name, [(p.partition_index, p.timestamp) for p in topic.partitions]) for topic in request.topics]
    assert asked == [("a", [(1, 5), (0, -2)]), ("b", [(0, -1)])]


def test_what_was_listed() -> None:
    def topic(name: str, *answers: list_offsets.ListOffsetsPartitionResponse) -> Any:
        return list_offsets.ListOffsetsTopicResponse(name=name, partitions=list(answers))

    entry = list_offsets.ListOffsetsPartitionResponse
    response = list_offsets.ListOffsetsResponse(
        topics=[
            topic(
                "a",
                entry(partition_index=0, offset=7, timestamp=8, leader_epoch=0),
                entry(partition_index=1, error_code=ERROR, offset=7),
            ),
            topic("b", entry(partition_index=0, old_style_offsets=[9, 0], timestamp=-1, leader_epoch=-1)),
        ]
    )
    assert read_list_offsets(response) == {
        A0: OffsetAndTimestamp(7, 8, 0),
        A1: ERROR,
        B0: OffsetAndTimestamp(9, -1, None),
    }


def test_ends_of_epochs() -> None:
    request = epoch_end_request({A0: (3, 4), B0: (5, 6)})
    assert request.replica_id == -1
    asked = [
        (topic.topic, p.partition, p.leader_epoch, p.current_leader_epoch)
        for topic in request.topics
        for p in topic.partitions
    ]
    assert asked == [("a", 0, 3, 4), ("b", 0, 5, 6)]
    end = offset_for_leader_epoch.EpochEndOffset
    response = offset_for_leader_epoch.OffsetForLeaderEpochResponse(
        topics=[
            offset_for_leader_epoch.OffsetForLeaderTopicResult(
                topic="a",
                partitions=[
                    end(partition=0, leader_epoch=3, end_offset=10),
                    end(partition=1, error_code=ERROR, leader_epoch=3, end_offset=10),
                ],
            )
        ]
    )
    assert read_epoch_ends(response) == {A0: (3, 10), A1: ERROR}


def test_commits() -> None:
    membership = Membership("g", 4, "m", "i")
    request = commit_request(membership, {A0: OffsetAndMetadata(5, "x", 0), A1: OffsetAndMetadata(6)})
    assert request.group_id == "g"
    assert (request.generation_id_or_member_epoch, request.member_id, request.group_instance_id) == (4, "m", "i")
    entries = [
        (p.partition_index, p.committed_offset, p.committed_leader_epoch, p.committed_metadata)
        for topic in request.topics
        for p in topic.partitions
    ]
    assert entries == [(0, 5, 0, "x"), (1, 6, -1, "")]
    answer = offset_commit.OffsetCommitResponsePartition
    response = offset_commit.OffsetCommitResponse(
        topics=[
            offset_commit.OffsetCommitResponseTopic(
                name="a", partitions=[answer(partition_index=0), answer(partition_index=1, error_code=ERROR)]
            )
        ]
    )
    assert read_commit(response) == {A1: ERROR}


@pytest.mark.parametrize(
    ("version", "is_by_group", "asks_for_stable"),
    [(1, False, False), (6, False, False), (7, False, True), (8, True, True)],
)
def test_what_was_committed_is_asked_for_in_any_version(version: int, is_by_group: bool, asks_for_stable: bool) -> None:
    membership = Membership("g", 4, "m")
    request = committed_request(membership, [A0, B0, A1], version, require_stable=True)
    assert request.require_stable is asks_for_stable
    assert committed_request(membership, [A0], version, require_stable=False).require_stable is False
    part: Any = request.groups[0] if is_by_group else request
    assert part.group_id == "g"
    assert [(topic.name, topic.partition_indexes) for topic in part.topics] == [("a", [0, 1]), ("b", [0])]
    assert bool(request.groups) is is_by_group
    assert request.encode(version)
    if is_by_group:
        assert (part.member_id, part.member_epoch) == ("m", 4)
        stranger = committed_request(Membership("g"), [A0], version, require_stable=True).groups[0]
        assert (stranger.member_id, stranger.member_epoch) == (None, -1)


def test_what_was_committed() -> None:
    def entries(kind: Any) -> list[Any]:
        return [
            kind(partition_index=0, committed_offset=0, committed_leader_epoch=0, metadata="x"),
            kind(partition_index=1, committed_offset=-1, committed_leader_epoch=-1, metadata=None),
            kind(partition_index=2, committed_offset=7, committed_leader_epoch=-1, metadata=None),
            kind(partition_index=3, committed_offset=7, error_code=ERROR),
        ]

    old = offset_fetch.OffsetFetchResponse(
        error_code=3,
        topics=[
            offset_fetch.OffsetFetchResponseTopic(
                name="a", partitions=entries(offset_fetch.OffsetFetchResponsePartition)
            )
        ],
    )
    new = offset_fetch.OffsetFetchResponse(
        groups=[
            offset_fetch.OffsetFetchResponseGroup(
                error_code=3,
                topics=[
                    offset_fetch.OffsetFetchResponseTopics(
                        name="a", partitions=entries(offset_fetch.OffsetFetchResponsePartitions)
                    )
                ],
            )
        ]
    )
    expected = Committed(
        3,
        {A0: OffsetAndMetadata(0, "x", 0), A1: None, TopicPartition("a", 2): OffsetAndMetadata(7, "", None)},
        {TopicPartition("a", 3): ERROR},
    )
    assert read_committed_offsets(old) == read_committed_offsets(new) == expected


def test_offsets_to_commit() -> None:
    given = OffsetAndMetadata(0, "x")
    assert offsets_to_commit({A0: 0, ("a", 1): given}) == {A0: OffsetAndMetadata(0), A1: given}  # type: ignore[dict-item]
    for wrong, reason in (([A0], "by partition"), ({A0: -1}, "negative"), ({A0: "7"}, "must be a number")):
        with pytest.raises(ValueError, match=reason):
            offsets_to_commit(wrong)  # type: ignore[arg-type]
