"""The short way of an offset commit gives what the long way gives: the same replies, records, offsets and timers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.acls import AclPermission
from ottla.base.errors import ErrorCode
from ottla.broker.authorizer import Operation, ResourceType
from ottla.broker.straight_commit import StraightCommit
from ottla.broker.table_authorizer import Rule, TableAuthorizer
from ottla.wire.apis.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.apis.offset_commit import OffsetCommitRequest
from ottla.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.unit.broker.commit_world import (
    HIDDEN,
    KINDS,
    LONG,
    SHORT,
    TOPICS,
    World,
    commit,
    error_of,
    plain,
    reply_of,
    run,
)

# The law

_partitions = st.tuples(
    st.sampled_from([0, 0, 0, 1, 2, -1]), st.integers(0, 2**40), st.sampled_from(["", "a note", None, "n" * 11])
)
_topics = st.tuples(st.sampled_from([*TOPICS, *TOPICS, HIDDEN, "none"]), st.lists(_partitions, max_size=3))
_usual = st.tuples(st.just("orders"), st.tuples(_partitions).map(list)).map(lambda topic: [topic])
_requests = st.tuples(
    st.sampled_from(KINDS),
    st.sampled_from(["mine", "mine", "nobody", "stranger", "late"]),
    st.one_of(_usual, _usual, st.lists(_topics, max_size=3)),
    st.integers(2, 9),
    st.sampled_from([None, None, None, "instance"]),
    st.sampled_from([-1, -1, 1000]),
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, asyncio.AbstractEventLoop]]:
    loop = asyncio.new_event_loop()
    hidden = Rule(AclPermission.DENY, Operation.READ, ResourceType.TOPIC, HIDDEN)
    world = loop.run_until_complete(World.start(tmp_path_factory.mktemp("broker"), hidden))
    loop.run_until_complete(world.join())
    yield world, loop
    loop.run_until_complete(world.broker.stop())
    loop.close()


def _as_member(world: World, group_id: str, who: str) -> tuple[str, int]:
    member_id, generation = world.members.get(group_id, ("", -1))
    return {
        "mine": (member_id, generation),
        "nobody": ("", -1),
        "stranger": ("stranger", generation),
        "late": (member_id, generation + 1),
    }[who]


@settings(max_examples=80, deadline=None)
@given(turns=st.lists(st.lists(_requests, min_size=1, max_size=6), min_size=1, max_size=4))
def test_both_ways_are_the_same(world: tuple[World, asyncio.AbstractEventLoop], turns: list[list[Any]]) -> None:
    async def compare() -> None:
        here = world[0]
        for turn in turns:
            here.clock.advance(5)
            expected, got = [], []
            for kind, who, topics, version, instance_id, retention_ms in turn:
                fields: dict[str, Any] = {}
                if version >= 7:
                    fields["group_instance_id"] = instance_id
                elif version < 5:
                    fields["retention_time_ms"] = retention_ms
                for way, ask, replies in ((LONG, here.long, expected), (SHORT, here.short, got)):
                    group_id = kind + way
                    request = commit(group_id, *topics, member=_as_member(here, group_id, who), **fields)
                    replies.append((ask(request, version), version))
            here.dispatch.settle()
            for one, other in zip(expected, got, strict=True):
                assert reply_of(other[0], 8, other[1]) == reply_of(one[0], 8, one[1])
        for kind in KINDS:
            assert here.records(kind + SHORT) == here.records(kind + LONG)
            offsets = [
                here.shard(group_id).machine._offsets.of_group(group_id) for group_id in (kind + LONG, kind + SHORT)
            ]
            stored = [{where: kept._replace(log_offset=0) for where, kept in group.items()} for group in offsets]
            assert stored[0] == stored[1]

    world[1].run_until_complete(compare())


# What it is for


def test_the_commits_of_a_turn_are_one_batch(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.ask(plain("g", 1), 7)
        replies = [world.short(plain("g", offset), version) for offset, version in ((2, 7), (3, 9), (4, 6))]
        assert replies == [[], [], []], "they wait for the end of the turn"
        assert len(world.records("g")) == 1
        world.dispatch.settle()
        header, records = world.batches("g")[-1]
        assert [value.offset for _, _, value in records] == [2, 3, 4]
        assert header.record_count == 3
        shard = world.shard("g")
        assert shard.last_offset == header.last_offset == shard.partition.log.high_watermark - 1
        assert shard.machine._offsets.of_group("g")["orders", 0].log_offset == header.last_offset

    run(tmp_path, scenario)


def test_who_asks_in_the_same_turn_sees_what_was_committed_before(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.ask(plain("g", 1), 7)
        committed = world.short(plain("g", 5), 7)
        assert committed == []
        asked = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="orders", partition_indexes=[0])])
        reply = await world.ask(asked, 5)
        assert reply.topics[0].partitions[0].committed_offset == 5
        assert error_of(committed) is ErrorCode.NONE

    run(tmp_path, scenario)


def test_a_member_that_commits_begins_its_session_anew(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.join()
        for kind, is_renewed in (("classic", True), ("consumer", False)):
            group_id = kind + SHORT
            timers = world.shard(group_id).timers
            before = dict(timers)
            replies = [world.short(plain(group_id, 1, world.members[group_id]), 9) for _ in range(2)]
            assert replies == [[], []]
            world.dispatch.settle()
            assert timers.keys() == before.keys()
            assert [key for key in timers if timers[key] is not before[key]] == [key for key in before if is_renewed]

    run(tmp_path, scenario)


def test_what_does_not_fit_into_a_batch_is_stored_in_another(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.ask(plain("g", 1), 7)
        log = world.shard("g").partition.log
        log.update_config(replace(log.config, max_message_bytes=200))
        outcomes = [world.short(plain("g", offset), 7) for offset in range(2, 8)]
        world.dispatch.settle()
        assert {error_of(outcome) for outcome in outcomes} == {ErrorCode.NONE}
        assert [value.offset for _, _, value in world.records("g")] == [1, 2, 3, 4, 5, 6, 7]
        assert all(header.size <= 200 for header, _ in world.batches("g"))
        too_large = world.short(commit("g", ("orders", [(0, 9, "n" * 10)] * 3)), 7)
        world.dispatch.settle()
        assert error_of(too_large) is ErrorCode.NONE, "a decision may take several batches"
        assert [value.offset for _, _, value in world.records("g")][-3:] == [9, 9, 9]
        # Nothing of it is left in the batch that it did not fit into.
        both = world.short(plain("g", 10), 7), world.short(commit("g", ("orders", [(0, 11, "n" * 10)] * 3)), 7)
        world.dispatch.settle()
        assert {error_of(outcome) for outcome in both} == {ErrorCode.NONE}
        assert [value.offset for _, _, value in world.records("g")][-5:] == [9, 10, 11, 11, 11]
        assert [record.offset for record in world.stored("g")] == list(range(log.log_end_offset))

    run(tmp_path, scenario)


def test_a_failed_write_is_told_to_everybody_it_concerns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        await world.ask(plain("g", 1), 7)
        shard = world.shard("g")
        replies = [world.short(plain("g", offset), 7) for offset in (2, 3)]
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", _no_space)
            world.dispatch.settle()
        assert [error_of(reply) for reply in replies] == [ErrorCode.NOT_COORDINATOR] * 2
        assert shard.is_dropped
        assert shard.machine._offsets.of_group("g")["orders", 0].offset == 1
        later = world.short(plain("g", 4), 7)
        world.dispatch.settle()
        assert error_of(later) is ErrorCode.NOT_COORDINATOR

    run(tmp_path, scenario)


def _no_space(*_: Any) -> int:
    raise OSError(28, "No space left on device")


def test_a_shard_that_is_dropped_meanwhile_has_committed_nothing(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.ask(plain("g", 1), 7)
        shard = world.shard("g")
        reply = world.short(plain("g", 2), 7)
        world.broker.groups.runtime.partition_removed(shard.index)
        log_end_offset = shard.partition.log.log_end_offset
        world.dispatch.settle()
        assert error_of(reply) is ErrorCode.NOT_COORDINATOR
        assert shard.partition.log.log_end_offset == log_end_offset

    run(tmp_path, scenario)


def test_rules_that_change_count_for_the_next_commit(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        authorizer = world.broker.authorizer
        assert isinstance(authorizer, TableAuthorizer)
        assert error_of(await _settled(world, plain("g", 1))) is ErrorCode.NONE
        group = Rule(AclPermission.DENY, Operation.READ, ResourceType.GROUP, "g")
        allowed = authorizer.rules
        authorizer.replace([*allowed, group])
        assert error_of(await _settled(world, plain("g", 2))) is ErrorCode.GROUP_AUTHORIZATION_FAILED
        authorizer.replace([*allowed, Rule(AclPermission.DENY, Operation.READ, ResourceType.TOPIC, "orders")])
        assert error_of(await _settled(world, plain("g", 3))) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert [value.offset for _, _, value in world.records("g")] == [1]

    run(tmp_path, scenario)


def test_a_topic_that_has_gone_counts_for_the_next_commit(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        assert error_of(await _settled(world, plain("g", 1))) is ErrorCode.NONE
        assert error_of(await _settled(world, plain("g", 2))) is ErrorCode.NONE
        await world.broker.topic_admin.delete("orders")
        assert error_of(await _settled(world, plain("g", 3))) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(tmp_path, scenario)


def test_what_a_connection_repeats_is_judged_anew(tmp_path: Path) -> None:
    """Only its group, topic and partition are remembered, neither what the group is like nor another connection's."""

    async def scenario(world: World) -> None:
        group_id = f"classic{SHORT}"
        await world.join()
        member = world.members[group_id]
        for offset in (1, 2):
            assert error_of(await _settled(world, plain(group_id, offset, member))) is ErrorCode.NONE
        await world.ask(LeaveGroupRequest(group_id=group_id, members=[MemberIdentity(member_id=member[0])]), 4)
        assert error_of(await _settled(world, plain(group_id, 3, member))) is ErrorCode.UNKNOWN_MEMBER_ID
        too_long = commit("g", ("orders", [(0, 4, "n" * 11)]))
        assert error_of(await _settled(world, plain("g", 4))) is ErrorCode.NONE
        assert error_of(await _settled(world, too_long)) is ErrorCode.OFFSET_METADATA_TOO_LARGE

    run(tmp_path, scenario)


async def _settled(world: World, request: OffsetCommitRequest) -> Any:
    outcome = world.short(request, 7)
    world.dispatch.settle()
    return outcome


def test_commits_and_nothing_else_take_the_short_way_of_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        await world.ask(plain("g", 1), 7)
        staged: list[int] = []
        stage = StraightCommit.stage

        def noted(way: StraightCommit, connection: Any, version: int, *others: Any) -> Any:
            staged.append(version)
            return stage(way, connection, version, *others)

        monkeypatch.setattr(StraightCommit, "stage", noted)
        await world.ask(OffsetFetchRequest(group_id="g", topics=None), 5)
        assert staged == []
        await world.ask(plain("g", 2), 7)
        assert staged == [7]

    run(tmp_path, scenario)
