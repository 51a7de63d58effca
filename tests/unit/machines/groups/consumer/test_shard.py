"""KIP-848 groups inside a shard: beside classic groups, changing kind while empty, with their offsets, reloaded."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.machines.groups.classic.group import ClassicGroup
from ottla.machines.groups.consumer.group import ConsumerGroup
from ottla.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.wire.apis.offset_fetch import OffsetFetchRequestGroup
from tests.unit.machines.groups.runner import GROUP, Runner

ORDERS = ("orders", 0)


@pytest.fixture
def runner() -> Runner:
    return Runner()


def beat(runner: Runner, member_id: str = "m", epoch: int = 0, **fields: Any) -> ConsumerGroupHeartbeatResponse:
    token = runner.token()
    request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member_id, member_epoch=epoch)
    if epoch == 0:
        request.rebalance_timeout_ms = 1000
        request.subscribed_topic_names = ["orders"]
        request.topic_partitions = []
    for name, value in fields.items():
        setattr(request, name, value)
    decision = runner.shard.consumer_heartbeat(
        request,
        token,
        version=1,
        client_id="client",
        client_host="/127.0.0.1",
        new_member_id="unused",
        now_ms=runner.now_ms,
    )
    runner.perform(decision)
    response = runner.reply(token)
    assert isinstance(response, ConsumerGroupHeartbeatResponse)
    return response


def kind(runner: Runner) -> type | None:
    group = runner.shard._groups.get(GROUP)
    return None if group is None else type(group)


def consumer(runner: Runner) -> ConsumerGroup:
    group = runner.shard._groups.get(GROUP)
    assert isinstance(group, ConsumerGroup)
    return group


def test_a_refused_heartbeat_makes_no_group(runner: Runner) -> None:
    assert beat(runner, rebalance_timeout_ms=-1).error_code == ErrorCode.INVALID_REQUEST
    assert beat(runner, epoch=3).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(runner, group_id="").error_code != 0
    assert kind(runner) is None and runner.log == []


def test_a_silent_member_is_removed(runner: Runner) -> None:
    beat(runner)
    runner.advance(44_000)
    assert beat(runner, epoch=1).error_code == 0
    runner.advance(44_999)
    assert not consumer(runner).is_empty
    runner.advance(1)
    assert consumer(runner).is_empty
    assert runner.timers == {}


def test_classic_requests_find_no_member_in_it(runner: Runner) -> None:
    beat(runner)
    assert runner.heartbeat("m", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert runner.leave("m").members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert set(consumer(runner).durable.members) == {"m"}


def test_a_classic_group_whose_members_are_not_understood_takes_no_consumer(runner: Runner) -> None:
    runner.stable_group("a")
    assert beat(runner).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert kind(runner) is ClassicGroup


def test_an_empty_classic_group_becomes_a_consumer_group_and_keeps_its_offsets(runner: Runner) -> None:
    (member_id,) = runner.stable_group("a")
    runner.commit({ORDERS: 7}, member_id, 1)
    runner.leave(member_id)
    assert beat(runner).error_code == 0
    assert kind(runner) is ConsumerGroup
    assert runner.fetch(ORDERS) == {ORDERS: (7, 0)}
    again = runner.reloaded()
    assert kind(again) is ConsumerGroup
    assert consumer(again).durable == consumer(runner).durable
    assert again.fetch(ORDERS) == {ORDERS: (7, 0)}


def test_an_empty_consumer_group_becomes_a_classic_one_and_keeps_its_offsets(runner: Runner) -> None:
    beat(runner)
    assert runner.commit({ORDERS: 5}, "m", 1, version=9) == {ORDERS: 0}
    beat(runner, epoch=-1)
    runner.stable_group("a")
    assert kind(runner) is ClassicGroup
    again = runner.reloaded()
    assert kind(again) is ClassicGroup
    assert again.fetch(ORDERS) == {ORDERS: (5, 0)}
    assert beat(again).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_commits_and_fetches_carry_the_member_epoch(runner: Runner) -> None:
    beat(runner)
    assert runner.commit({ORDERS: 5}, "m", 2, version=9) == {ORDERS: ErrorCode.STALE_MEMBER_EPOCH}
    assert runner.commit({ORDERS: 5}, "x", 1, version=9) == {ORDERS: ErrorCode.UNKNOWN_MEMBER_ID}
    assert runner.commit({ORDERS: 5}, version=9) == {ORDERS: ErrorCode.UNKNOWN_MEMBER_ID}
    assert runner.fetch(ORDERS) == {ORDERS: (-1, 0)}
    assert runner.commit({ORDERS: 5}, "m", 1, version=9) == {ORDERS: 0}
    for member_epoch, code in ((1, 0), (2, ErrorCode.STALE_MEMBER_EPOCH)):
        request = OffsetFetchRequestGroup(group_id=GROUP, member_id="m", member_epoch=member_epoch, topics=None)
        assert runner.shard.fetch_offsets(request, require_stable=False).error_code == code


@pytest.mark.parametrize(
    ("member_id", "member_epoch", "code"),
    [
        (None, -1, 0),
        ("", -1, 0),
        (None, 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("m", -1, ErrorCode.STALE_MEMBER_EPOCH),
        ("m", 0, ErrorCode.STALE_MEMBER_EPOCH),
        ("m", 1, 0),
        ("x", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_fetches_offsets_as_a_member_has_to_be_one(
    runner: Runner, member_id: str | None, member_epoch: int, code: int
) -> None:
    beat(runner)
    request = OffsetFetchRequestGroup(group_id=GROUP, member_id=member_id, member_epoch=member_epoch, topics=None)
    assert runner.shard.fetch_offsets(request, require_stable=False).error_code == code
    request.group_id = "classic"
    runner.commit({ORDERS: 5}, group="classic")
    response = runner.shard.fetch_offsets(request, require_stable=False)
    assert (response.error_code, len(response.topics)) == (0, 1), "a classic group does not ask"


@pytest.mark.parametrize(
    ("member_id", "generation", "code"),
    [("", -1, 0), ("m", -1, 0), ("", 0, ErrorCode.UNKNOWN_MEMBER_ID), ("m", 1, ErrorCode.UNKNOWN_MEMBER_ID)],
)
def test_who_commits_to_a_group_that_all_have_left_is_no_member(
    runner: Runner, member_id: str, generation: int, code: int
) -> None:
    beat(runner)
    beat(runner, epoch=-1)
    assert runner.commit({ORDERS: 5}, member_id, generation, version=9) == {ORDERS: code}


def test_it_is_listed_and_described_as_what_it_is(runner: Runner) -> None:
    beat(runner)
    listed = runner.shard.list([], ["consumer"])
    assert [(group.group_id, group.group_state, group.group_type) for group in listed] == [
        (GROUP, "Stable", "consumer")
    ]
    assert runner.shard.list([], ["classic"]) == []
    described = runner.shard.consumer_describe(GROUP)
    assert (described.error_code, described.group_state, len(described.members)) == (0, "Stable", 1)
    assert runner.shard.consumer_describe("other").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_deleting_it_takes_everything_out_of_the_log(runner: Runner) -> None:
    beat(runner)
    runner.commit({ORDERS: 5}, "m", 1, version=9)
    token = runner.token()
    runner.perform(runner.shard.delete_group(GROUP, token, now_ms=0))
    assert runner.reply(token) == ErrorCode.NON_EMPTY_GROUP
    beat(runner, epoch=-1)
    token = runner.token()
    runner.perform(runner.shard.delete_group(GROUP, token, now_ms=0))
    assert runner.reply(token) == ErrorCode.NONE
    assert kind(runner) is None and kind(runner.reloaded()) is None
    last_values = {entry[0]: entry[1] for entry in runner.log}
    assert set(last_values.values()) == {None}


def test_a_topic_that_grows_reaches_the_group_through_the_shard(runner: Runner) -> None:
    beat(runner)
    runner.topics.counts["orders"] = 6
    runner.perform(runner.shard.topics_changed(runner.now_ms))
    response = beat(runner, epoch=1)
    assert response.member_epoch == 2
    assert response.assignment is not None
    assert response.assignment.topic_partitions[0].partitions == [0, 1, 2, 3, 4, 5]


def test_a_shard_reloaded_after_any_decision_equals_the_live_one(runner: Runner) -> None:
    lengths = [(0, None)]
    steps = [("a", 0), ("b", 0), ("a", 1), ("b", -1), ("a", 1), ("a", -1)]
    for member_id, epoch in steps:
        beat(runner, member_id, epoch)
        lengths.append((len(runner.log), consumer(runner).durable.copy()))
    for length, state in lengths:
        again = runner.reloaded(length)
        assert (None if state is None else consumer(again).durable) == state
