"""What a group of a simulated cluster commits, and when it says that a commit is lost."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.testing.sim.checks import ViolationError
from ottla.testing.sim.clients import SimGroup
from ottla.wire.apis.find_coordinator import FindCoordinatorRequest
from ottla.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.sim.answering import AnsweringCluster, Told, coordinator, for_a_while

NONE = ErrorCode.NONE


class World:
    """A group whose coordinator stores what is committed, unless it is told to answer otherwise."""

    def __init__(self, seed: int = 5) -> None:
        self.commits: list[int] = []
        """Every offset that came."""
        self.stored = -1
        self.commit_codes: dict[int, ErrorCode | None] = {}
        """By offset; None is no answer."""
        self.fetch_codes: list[ErrorCode | None] = []
        """In turn."""
        self.forgets_from = 1 << 30
        self.looked: list[tuple[int, int]] = []
        """After so many commits, what was there."""
        self.coordinators = [(NONE, "broker-2")]
        self.cluster = AnsweringCluster(
            {
                FindCoordinatorRequest: coordinator(self._find),
                OffsetCommitRequest: self._commit,
                OffsetFetchRequest: self._fetch,
            }
        )
        self.told = Told()
        self.group = SimGroup("g", self.cluster.names, Random(seed), self.told.checks)

    def run(self, seconds: float = 10.0) -> None:
        self.cluster.run(self.group.party, lambda: for_a_while(self.group.run(), seconds))

    @property
    def found_coordinators(self) -> int:
        return len(self.cluster.asked(FindCoordinatorRequest))

    def _find(self) -> tuple[ErrorCode, str]:
        return self.coordinators.pop(0) if len(self.coordinators) > 1 else self.coordinators[0]

    def _commit(self, name: str, request: OffsetCommitRequest) -> OffsetCommitResponse | None:
        (topic,) = request.topics
        (partition,) = topic.partitions
        assert (name, request.group_id, topic.name, partition.partition_index) == ("broker-2", "g", "safe", 0)
        assert partition.committed_metadata == ""
        offset = partition.committed_offset
        self.commits.append(offset)
        code = self.commit_codes.get(offset, NONE)
        if code == NONE and offset < self.forgets_from:
            self.stored = offset
        if code is None:
            return None
        answer = OffsetCommitResponsePartition(partition_index=0, error_code=code)
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="safe", partitions=[answer])])

    def _fetch(self, name: str, request: OffsetFetchRequest) -> OffsetFetchResponse | None:
        (group,) = request.groups
        (topic,) = group.topics or ()
        assert (name, group.group_id, topic.name, topic.partition_indexes) == ("broker-2", "g", "safe", [0])
        self.looked.append((len(self.commits), self.stored))
        code = self.fetch_codes.pop(0) if self.fetch_codes else NONE
        if code is None:
            return None
        found = OffsetFetchResponsePartitions(partition_index=0, committed_offset=self.stored)
        topics = [] if code != NONE else [OffsetFetchResponseTopics(name="safe", partitions=[found])]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=code)])


def test_a_group_commits_ever_higher_offsets_and_looks_after_half_of_them() -> None:
    world = World()
    world.run(30)
    count = len(world.commits)
    assert count > 100 and world.commits == list(range(1, count + 1))
    assert world.group.done_so_far in (count - 1, count)
    assert 0.35 < len(world.looked) / count < 0.65
    assert all(commits == stored for commits, stored in world.looked)
    assert world.found_coordinators == 1
    assert {(*tuple(r.coordinator_keys), r.key_type) for _, r in world.cluster.asked(FindCoordinatorRequest)} == {
        ("g", 0)
    }


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, None])
def test_after_any_trouble_the_coordinator_is_looked_for_again(code: ErrorCode | None) -> None:
    world = World()
    world.commit_codes = {3: code, 5: code}
    world.run()
    assert world.commits[:7] == [1, 2, 3, 4, 5, 6, 7]
    assert world.found_coordinators == 3
    assert world.group.done_so_far >= 7


def test_a_coordinator_that_cannot_be_found_is_looked_for_after_a_pause() -> None:
    world = World()
    world.coordinators = [(ErrorCode.COORDINATOR_NOT_AVAILABLE, "")] * 20 + [(NONE, "broker-2")]
    world.run()
    assert world.found_coordinators == 21 and world.commits[0] == 21
    assert world.group.done_so_far in world.commits[-2:]


def test_a_look_that_fails_says_nothing_of_what_is_there() -> None:
    world = World()
    world.fetch_codes = [ErrorCode.NOT_COORDINATOR, None, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    world.run(20)
    assert world.found_coordinators == 4 and not world.fetch_codes and len(world.looked) > 3


@pytest.mark.parametrize("forgets_from", [1, 2, 7])
def test_a_commit_that_is_not_there_breaks_a_promise(forgets_from: int) -> None:
    world = World()
    world.forgets_from = forgets_from
    with pytest.raises(ViolationError) as raised:
        world.run()
    committed, stored = world.commits[-1], (forgets_from - 1 or -1)
    assert str(raised.value) == f"group g: {committed} was committed, {stored} is there"


def test_what_was_not_committed_may_be_there() -> None:
    """Also if only its answer was lost, and before what was committed last."""
    world = World()

    def stores_more(name: str, request: Any) -> OffsetFetchResponse | None:
        world.stored += 1
        return World._fetch(world, name, request)

    world.cluster.answer(OffsetFetchRequest, stores_more)
    world.run()
    assert len(world.looked) > 10


@pytest.mark.parametrize("topic", ["__consumer_offsets", "safe"])
def test_commits_may_be_gone_where_the_topic_of_offsets_has_lost_records(topic: str) -> None:
    world = World()
    assert not world.group.is_excused
    world.told.checks.excused |= {TopicPartition("other", 0), TopicPartition(topic, 0)}
    assert world.group.is_excused is (topic != "safe")
    world.forgets_from = 1
    if world.group.is_excused:
        world.run()
        assert world.group.done_so_far > 10
    else:
        with pytest.raises(ViolationError):
            world.run()
