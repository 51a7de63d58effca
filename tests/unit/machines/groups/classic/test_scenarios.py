"""Classic groups through whole stories: rebalances, static members, the member-id handshake, sessions."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.machines.coordinator import Decision
from ottla.machines.groups.classic.states import GroupState
from ottla.machines.groups.config import GroupConfig
from ottla.wire.apis.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.apis.sync_group import SyncGroupRequest
from tests.unit.machines.groups.runner import (
    DELAY_MS,
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    START_MS,
    Runner,
    subscription,
)

RANGE = (("range", b"r"),)


@pytest.fixture
def runner() -> Runner:
    return Runner()


# A group comes up


def test_the_first_rebalance_waits_for_the_initial_delay(runner: Runner) -> None:
    token = runner.join(version=3)
    runner.advance(DELAY_MS - 1)
    assert runner.reply(token) is None
    runner.advance(1)
    reply = runner.reply(token)
    assert (reply.error_code, reply.generation_id, reply.protocol_name) == (0, 1, "range")
    assert reply.leader == reply.member_id == reply.members[0].member_id
    assert reply.protocol_type == "consumer"


def test_the_initial_delay_grows_while_members_come_but_not_beyond_the_rebalance_timeout(runner: Runner) -> None:
    first = runner.join(version=3, rebalance_timeout_ms=10_000)
    for _ in range(4):
        runner.advance(DELAY_MS - 1_000)
        runner.join(version=3, rebalance_timeout_ms=10_000)
    runner.advance(START_MS + 10_000 - runner.now_ms - 1)
    assert runner.reply(first) is None
    runner.advance(1)
    assert len(runner.reply(first).members) == 5


def test_without_newcomers_the_initial_delay_does_not_grow(runner: Runner) -> None:
    first = runner.join(version=3)
    runner.advance(DELAY_MS)
    assert runner.reply(first).generation_id == 1


def test_no_initial_delay() -> None:
    runner = Runner(GroupConfig(initial_rebalance_delay_ms=0))
    assert runner.reply(runner.join(version=3)).generation_id == 1


def test_the_shortest_initial_delay_is_a_delay() -> None:
    runner = Runner(GroupConfig(initial_rebalance_delay_ms=1))
    token = runner.join(version=3)
    assert runner.reply(token) is None
    runner.advance(1)
    assert runner.reply(token).generation_id == 1


@pytest.mark.parametrize(("beyond_ms", "is_over"), [(-1, True), (0, True), (1, False), (2, False)])
def test_the_initial_delay_grows_by_what_is_left_of_the_rebalance_timeout(
    runner: Runner, beyond_ms: int, is_over: bool
) -> None:
    tokens = [runner.join(version=3, rebalance_timeout_ms=DELAY_MS + beyond_ms) for _ in range(2)]
    del runner.timers["join", GROUP]
    runner.now_ms += DELAY_MS
    runner.perform(runner.shard.timer_fired(("join", GROUP), runner.now_ms))
    assert (runner.reply(tokens[0]) is not None) is is_over
    if not is_over:
        assert runner.timers["join", GROUP] == runner.now_ms + beyond_ms


def test_everybody_leaving_ends_the_initial_delay(runner: Runner) -> None:
    token = runner.join(version=3)
    member_id = next(iter(runner.group.members)).member_id
    runner.leave(member_id)
    assert runner.reply(token).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert runner.group.state is GroupState.EMPTY


def test_the_leader_assigns_and_each_member_gets_its_share(runner: Runner) -> None:
    tokens = [runner.join(version=3) for _ in range(3)]
    runner.advance(3 * DELAY_MS)
    leader, second, third = (runner.reply(token).member_id for token in tokens)
    assert [len(runner.reply(token).members) for token in tokens] == [3, 0, 0]
    early = runner.sync(second, 1)
    assert runner.reply(early) is None
    first = runner.sync(leader, 1, {leader: b"1", second: b"2"})
    assert runner.reply(first).assignment == b"1"
    assert runner.reply(early).assignment == b"2"
    assert runner.reply(runner.sync(third, 1)).assignment == b"", "a member the leader left out gets nothing"
    assert runner.group.state is GroupState.STABLE


def test_an_assignment_for_nobody_is_ignored(runner: Runner) -> None:
    token = runner.join(version=3)
    runner.advance(DELAY_MS)
    member_id = runner.reply(token).member_id
    runner.sync(member_id, 1, {member_id: b"1", "stranger": b"2"})
    assert [member.member_id for member in runner.group.members] == [member_id]


def test_a_member_whose_reply_was_lost_is_told_again(runner: Runner) -> None:
    leader, follower = runner.stable_group("a", "b")
    runner.join(leader)
    runner.join(follower)
    assert runner.group.state is GroupState.COMPLETING_REBALANCE
    assert len(runner.reply(runner.join(leader)).members) == 2
    assert runner.reply(runner.join(follower)).members == []
    runner.sync(leader, 2, {follower: b"x"})
    assert runner.reply(runner.sync(follower, 2)).assignment == b"x"
    assert runner.reply(runner.sync(follower, 2)).assignment == b"x"


def test_a_second_join_or_sync_answers_the_first(runner: Runner) -> None:
    leader, follower = runner.stable_group("a", "b")
    first = runner.join(leader)
    second = runner.join(leader)
    assert runner.reply(first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    runner.join(follower)
    assert runner.reply(second).generation_id == 2
    first_sync = runner.sync(follower, 2)
    second_sync = runner.sync(follower, 2)
    assert runner.reply(first_sync).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    runner.sync(leader, 2, {follower: b"x"})
    assert runner.reply(second_sync).assignment == b"x"


# Protocols


def test_the_protocol_most_members_like_best_wins(runner: Runner) -> None:
    both = (("range", b"r"), ("sticky", b"s"))
    liked = (("sticky", b"s"), ("range", b"r"), ("mine", b""))
    tokens = [runner.join(version=3, protocols=protocols) for protocols in (both, liked, liked)]
    runner.advance(4 * DELAY_MS)
    reply = runner.reply(tokens[0])
    assert reply.protocol_name == "sticky"
    assert {member.metadata for member in reply.members} == {b"s"}


def test_a_protocol_not_all_support_cannot_win(runner: Runner) -> None:
    tokens = [
        runner.join(version=3, protocols=(("sticky", b""), ("range", b""))),
        runner.join(version=3, protocols=(("sticky", b""), ("range", b""))),
        runner.join(version=3, protocols=(("range", b""),)),
    ]
    runner.advance(4 * DELAY_MS)
    assert runner.reply(tokens[0]).protocol_name == "range"


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("connect", RANGE), ("consumer", (("sticky", b""),)), ("consumer", ()), ("", RANGE)],
)
def test_a_member_that_shares_nothing_is_refused(
    runner: Runner, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    runner.stable_group("a")
    reply = runner.reply(runner.join(protocol_type=protocol_type, protocols=protocols))
    assert reply.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", RANGE), ("consumer", ())])
def test_a_first_member_needs_a_protocol(
    runner: Runner, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    reply = runner.reply(runner.join(protocol_type=protocol_type, protocols=protocols))
    assert reply.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert not runner.has_group()


# Rebalances


def test_a_rebalance_drops_whoever_does_not_come_back_in_time(runner: Runner) -> None:
    leader, follower = runner.stable_group("a", "b")
    token = runner.join(leader)
    for _ in range(REBALANCE_MS // 5_000):
        assert runner.reply(token) is None
        assert runner.heartbeat(follower, 1) == ErrorCode.REBALANCE_IN_PROGRESS
        runner.advance(5_000)
    assert [member.member_id for member in runner.reply(token).members] == [leader]
    assert runner.heartbeat(follower, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_leader_is_found_when_the_old_one_leaves(runner: Runner) -> None:
    leader, follower = runner.stable_group("a", "b")
    runner.leave(leader)
    assert runner.heartbeat(follower, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    reply = runner.reply(runner.join(follower))
    assert (reply.generation_id, reply.leader) == (2, follower)


def test_the_leader_stays_leader_if_it_joins_again(runner: Runner) -> None:
    leader, follower = runner.stable_group("a", "b")
    runner.join(follower, protocols=(("range", subscription("clicks")),))
    assert runner.reply(runner.join(leader)).leader == leader


def test_members_that_wait_for_an_assignment_are_told_of_the_rebalance(runner: Runner) -> None:
    leader, follower = runner.stable_group("a", "b")
    runner.join(leader)
    runner.join(follower)
    waiting = runner.sync(follower, 2)
    runner.leave(leader)
    assert runner.reply(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert runner.timers["session", GROUP, follower] == runner.now_ms + SESSION_MS
    assert runner.reply(runner.join(follower)).generation_id == 3


def test_the_last_that_had_to_sync_takes_the_time_for_it_along(runner: Runner) -> None:
    leader, follower = runner.stable_group("a", "b")
    runner.join(leader)
    runner.join(follower)
    runner.sync(follower, 2)
    assert runner.group.awaited_syncs == {leader}
    runner.leave(leader)
    assert runner.group.awaited_syncs == set()
    assert ("sync", GROUP) not in runner.timers


def test_the_time_to_sync_ends_with_the_last_sync(runner: Runner) -> None:
    leader, follower = runner.stable_group("a", "b")
    runner.join(leader)
    runner.join(follower)
    runner.sync(leader, 2, {})
    assert runner.timers["sync", GROUP] == runner.now_ms + REBALANCE_MS
    runner.sync(follower, 2)
    assert ("sync", GROUP) not in runner.timers


def test_nobody_has_to_sync_once_the_next_rebalance_has_begun(runner: Runner) -> None:
    members = runner.stable_group("a", "b", "c")
    for member_id in members:
        runner.join(member_id)
    assert runner.group.awaited_syncs == set(members)
    assert ("sync", GROUP) in runner.timers
    runner.leave(members[0])
    assert runner.group.awaited_syncs == set()
    assert ("sync", GROUP) not in runner.timers


def test_members_that_never_sync_are_removed(runner: Runner) -> None:
    leader, follower = runner.stable_group("a", "b")
    runner.join(leader)
    runner.join(follower)
    runner.sync(leader, 2, {})
    for _ in range(REBALANCE_MS // 5_000):
        assert runner.heartbeat(leader, 2) == 0
        assert runner.heartbeat(follower, 2) == 0
        runner.advance(5_000)
    assert runner.heartbeat(follower, 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert runner.heartbeat(leader, 2) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_group_that_all_have_left_is_empty_and_says_so_in_the_log(runner: Runner) -> None:
    leader, follower = runner.stable_group("a", "b")
    response = runner.leave(leader, follower, "stranger")
    assert [item.error_code for item in response.members] == [0, 0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert runner.group.state is GroupState.EMPTY
    assert runner.reloaded().group.generation == runner.group.generation == 2
    for group in (runner.group, runner.reloaded().group):
        assert (group.protocol_type, group.protocol, group.leader) == ("consumer", None, None)


def test_a_decision_moves_the_group_before_its_record_is_replayed(runner: Runner) -> None:
    (leader,) = runner.stable_group("a")
    assert runner.reply(runner.join(leader)).generation_id == 2
    states = []
    assigns = SyncGroupRequest(group_id=GROUP, generation_id=2, member_id=leader)
    decision = runner.shard.sync(assigns, runner.token(), version=5, now_ms=runner.now_ms)
    states.append(runner.group.state)
    runner.perform(decision)
    leaves = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=leader)])
    decision = runner.shard.leave(leaves, runner.token(), version=5, now_ms=runner.now_ms)
    states.append(runner.group.state)
    assert states == [GroupState.STABLE, GroupState.EMPTY]
    assert len(decision.records) == 1


# Sessions


def test_a_silent_member_is_removed_when_its_session_ends(runner: Runner) -> None:
    leader, follower = runner.stable_group("a", "b")
    runner.advance(SESSION_MS - DELAY_MS)
    assert runner.heartbeat(leader, 1) == 0
    runner.advance(DELAY_MS)
    assert runner.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert runner.heartbeat(follower, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert runner.commit({("orders", 0): 1}, follower, 1) == {("orders", 0): ErrorCode.UNKNOWN_MEMBER_ID}


@pytest.mark.parametrize("sign", ["heartbeat", "join", "sync", "commit"])
def test_every_sign_of_life_renews_the_session(runner: Runner, sign: str) -> None:
    leader, follower = runner.stable_group("a", "b")
    for _ in range(3):
        runner.advance(SESSION_MS - 1)
        if not runner.has_group() or follower not in runner.group.members:
            pytest.fail("removed in spite of its signs of life")
        match sign:
            case "heartbeat":
                assert runner.heartbeat(follower, 1) == 0
            case "join":
                runner.join(follower)
            case "sync":
                runner.sync(follower, 1)
            case _:
                runner.commit({("orders", 0): 1}, follower, 1)
        runner.heartbeat(leader, 1)


def test_a_member_is_alive_while_the_broker_keeps_its_request(runner: Runner) -> None:
    leader, follower = runner.stable_group("a", "b")
    token = runner.join(leader)
    for _ in range(5):
        runner.advance(SESSION_MS - 1)
        runner.heartbeat(follower, 1)
    assert leader in runner.group.members
    runner.join(follower)
    assert runner.reply(token).generation_id == 2


def test_a_new_member_waits_five_minutes_at_most(runner: Runner) -> None:
    leader, _ = runner.stable_group("a", "b")
    ten_minutes = 600_000
    runner.join(leader, rebalance_timeout_ms=ten_minutes)
    token = runner.join(version=3, rebalance_timeout_ms=ten_minutes)
    static = runner.join(instance_id="i", rebalance_timeout_ms=ten_minutes)
    follower = next(member.member_id for member in runner.group.members if member.member_id != leader)
    for _ in range(300_000 // 5_000):
        assert runner.reply(token) is None
        runner.heartbeat(follower, 1)
        runner.advance(5_000)
    assert runner.reply(token).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert runner.reply(static).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert runner.group.state is GroupState.PREPARING_REBALANCE


def test_a_new_member_gets_no_more_time_by_joining_again(runner: Runner) -> None:
    runner.stable_group("a", "b")
    member_id = runner.reply(runner.join()).member_id
    first = runner.join(member_id)
    due_ms = runner.timers["session", GROUP, member_id]
    assert due_ms == runner.now_ms + 300_000
    runner.now_ms += 5_000
    runner.join(member_id)
    assert runner.reply(first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert runner.timers["session", GROUP, member_id] == due_ms


def test_a_known_member_begins_its_session_anew_with_each_join(runner: Runner) -> None:
    leader, _ = runner.stable_group("a", "b")
    for _ in range(2):
        runner.now_ms += 1_000
        runner.join(leader)
        assert runner.timers["session", GROUP, leader] == runner.now_ms + SESSION_MS


# The member-id handshake (KIP-394)


def test_a_new_member_has_to_come_back_with_its_id(runner: Runner) -> None:
    refused = runner.reply(runner.join(client_id="app"))
    assert refused.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert refused.member_id.startswith("app-")
    assert len(runner.group.members) == 0
    token = runner.join(refused.member_id)
    runner.advance(DELAY_MS)
    assert runner.reply(token).member_id == refused.member_id


@pytest.mark.parametrize("version", [4, 5, 9])
def test_clients_of_a_version_with_the_handshake_are_not(runner: Runner, version: int) -> None:
    assert runner.reply(runner.join(version=version)).error_code == ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_older_clients_are_let_in_at_once(runner: Runner, version: int) -> None:
    token = runner.join(version=version)
    runner.advance(DELAY_MS)
    assert runner.reply(token).error_code == 0


def test_an_id_that_is_not_used_is_forgotten_with_the_group_made_for_it(runner: Runner) -> None:
    member_id = runner.reply(runner.join()).member_id
    runner.advance(SESSION_MS)
    assert not runner.has_group()
    assert runner.reply(runner.join(member_id)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_ids_that_were_handed_out(runner: Runner) -> None:
    (leader,) = runner.stable_group("a")
    member_id = runner.reply(runner.join()).member_id
    token = runner.join(leader)
    assert runner.reply(token) is None
    runner.join(member_id)
    assert len(runner.reply(token).members) == 2


def test_a_rebalance_stops_waiting_when_the_id_expires_or_is_given_back(runner: Runner) -> None:
    (leader,) = runner.stable_group("a")
    given_back = runner.reply(runner.join()).member_id
    runner.join()
    token = runner.join(leader)
    assert runner.leave(given_back).members[0].error_code == 0
    assert runner.reply(token) is None
    runner.advance(SESSION_MS)
    assert len(runner.reply(token).members) == 1


def test_an_id_that_was_handed_out_is_no_member_yet(runner: Runner) -> None:
    runner.stable_group("a")
    member_id = runner.reply(runner.join()).member_id
    assert runner.heartbeat(member_id, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert runner.reply(runner.sync(member_id, 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert runner.reply(runner.join(member_id, instance_id="i")).error_code == ErrorCode.UNKNOWN_MEMBER_ID


# Static members (KIP-345, KIP-814)


def static_group(runner: Runner, *instances: str) -> list[str]:
    tokens = [runner.join(instance_id=name) for name in instances]
    runner.advance(DELAY_MS * (len(instances) + 1))
    ids = [str(runner.reply(token).member_id) for token in tokens]
    for member_id in ids:
        runner.sync(member_id, 1, {key: key.encode() for key in ids})
    return ids


def test_a_static_member_comes_back_without_a_rebalance(runner: Runner) -> None:
    leader, old_id = static_group(runner, "i1", "i2")
    runner.advance(SESSION_MS - 1)
    runner.heartbeat(leader, 1)
    reply = runner.reply(runner.join(instance_id="i2"))
    assert (reply.error_code, reply.generation_id, reply.leader) == (0, 1, leader)
    assert reply.member_id.startswith("i2-")
    assert reply.member_id != old_id
    assert (reply.members, reply.skip_assignment) == ([], False)
    assert runner.reply(runner.sync(reply.member_id, 1)).assignment == old_id.encode()
    assert runner.heartbeat(leader, 1) == 0
    assert runner.heartbeat(reply.member_id, 1, instance_id="i2") == 0
    reloaded = runner.reloaded().group
    assert [member.member_id for member in reloaded.members] == [leader, reply.member_id]


def test_a_static_member_may_come_back_from_elsewhere(runner: Runner) -> None:
    static_group(runner, "i1")
    runner.join(instance_id="i1", client_id="new", client_host="/10.0.0.9")
    (member,) = runner.group.members
    assert (member.client_id, member.client_host) == ("new", "/10.0.0.9")


def test_the_former_self_of_a_static_member_is_fenced(runner: Runner) -> None:
    _, old_id = static_group(runner, "i1", "i2")
    runner.join(instance_id="i2")
    assert runner.heartbeat(old_id, 1, instance_id="i2") == ErrorCode.FENCED_INSTANCE_ID
    assert runner.reply(runner.join(old_id, instance_id="i2")).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert runner.reply(runner.sync(old_id, 1, instance_id="i2")).error_code == ErrorCode.FENCED_INSTANCE_ID
    key = ("orders", 0)
    assert runner.commit({key: 1}, old_id, 1, instance_id="i2") == {key: ErrorCode.FENCED_INSTANCE_ID}
    assert runner.leave((old_id, "i2")).members[0].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert runner.heartbeat(old_id, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_requests_of_the_former_self_are_answered(runner: Runner) -> None:
    leader, old_id = static_group(runner, "i1", "i2")
    waiting = runner.join(old_id, instance_id="i2", protocols=(("range", subscription("clicks")),))
    runner.join(instance_id="i2")
    assert runner.reply(waiting).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert runner.reply(runner.join(leader, instance_id="i1")).generation_id == 2


def test_a_static_member_that_is_back_has_a_session_of_its_own_length(runner: Runner) -> None:
    _, old_id = static_group(runner, "i1", "i2")
    runner.now_ms += 1_000
    new_id = runner.reply(runner.join(instance_id="i2", session_timeout_ms=7_000)).member_id
    assert ("session", GROUP, old_id) not in runner.timers
    assert runner.timers["session", GROUP, new_id] == runner.now_ms + 7_000


def test_nobody_waits_for_the_sync_of_a_former_self(runner: Runner) -> None:
    leader, follower = (runner.join(instance_id=name) for name in ("i1", "i2"))
    runner.advance(3 * DELAY_MS)
    leader_id, old_id = (runner.reply(token).member_id for token in (leader, follower))
    runner.sync(leader_id, 1, {leader_id: b"1", old_id: b"2"})
    assert runner.group.awaited_syncs == {old_id}
    back = runner.reply(runner.join(instance_id="i2")).member_id
    assert runner.group.awaited_syncs == set()
    runner.perform(runner.shard.timer_fired(("sync", GROUP), runner.now_ms))
    assert runner.group.state is GroupState.STABLE
    assert runner.heartbeat(back, 1, instance_id="i2") == 0


def test_a_returning_leader_is_told_to_skip_the_assignment(runner: Runner) -> None:
    old_leader, _ = static_group(runner, "i1", "i2")
    reply = runner.reply(runner.join(instance_id="i1", version=9))
    assert reply.skip_assignment
    assert reply.leader == reply.member_id
    assert len(reply.members) == 2, "it has to watch the topics of all members"
    assert runner.reply(runner.sync(reply.member_id, 1)).assignment == old_leader.encode()
    assert runner.group.leader == reply.member_id


def test_an_older_returning_leader_is_told_that_another_leads(runner: Runner) -> None:
    old_leader, _ = static_group(runner, "i1", "i2")
    reply = runner.reply(runner.join(instance_id="i1", version=8))
    assert (reply.leader, reply.members, reply.skip_assignment) == (old_leader, [], False)


def test_a_static_member_that_comes_back_with_other_wishes_starts_a_rebalance(runner: Runner) -> None:
    static_group(runner, "i1")
    token = runner.join(instance_id="i1", protocols=(("range", b""), ("sticky", b"")))
    assert runner.reply(token).generation_id == 1, "the protocol is still the same"
    both = (("sticky", b""), ("range", b""))
    reply = runner.reply(runner.join(instance_id="i1", protocols=both))
    assert (reply.generation_id, reply.protocol_name) == (2, "sticky")


def test_an_absent_static_member_keeps_its_place_through_a_rebalance(runner: Runner) -> None:
    leader, absent = static_group(runner, "i1", "i2")
    token = runner.join(leader, instance_id="i1", rebalance_timeout_ms=5_000)
    runner.group.members[absent].rebalance_timeout_ms = 5_000
    runner.heartbeat(absent, 1)
    runner.perform(runner.shard.timer_fired(("join", GROUP), runner.now_ms))
    assert [member.member_id for member in runner.reply(token).members] == [leader, absent]
    runner.sync(leader, 2, {absent: b"kept"})
    back = runner.reply(runner.join(instance_id="i2"))
    assert back.generation_id == 2
    assert runner.reply(runner.sync(back.member_id, 2)).assignment == b"kept"


def test_an_absent_static_member_goes_when_its_session_ends(runner: Runner) -> None:
    leader, absent = static_group(runner, "i1", "i2")
    runner.advance(SESSION_MS - 1)
    runner.heartbeat(leader, 1)
    runner.advance(1)
    assert absent not in runner.group.members
    assert runner.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_rebalance_without_any_leader_waits_until_sessions_end(runner: Runner) -> None:
    leader, follower = static_group(runner, "i1", "i2")
    runner.leave(("", "i1"))
    assert leader not in runner.group.members
    del runner.timers["join", GROUP]
    runner.perform(runner.shard.timer_fired(("join", GROUP), runner.now_ms))
    assert runner.group.state is GroupState.PREPARING_REBALANCE
    assert follower in runner.group.members
    assert runner.timers["join", GROUP] == runner.now_ms + REBALANCE_MS
    runner.advance(SESSION_MS)
    assert runner.group.is_empty


def test_an_empty_instance_id_is_refused(runner: Runner) -> None:
    assert runner.reply(runner.join(instance_id="")).error_code == ErrorCode.INVALID_REQUEST
    assert not runner.has_group()


# Limits and bad ids


@pytest.mark.parametrize("timeout_ms", [5_999, 1_800_001, 0, -1])
def test_a_session_timeout_outside_the_range_is_refused(runner: Runner, timeout_ms: int) -> None:
    reply = runner.reply(runner.join(session_timeout_ms=timeout_ms))
    assert reply.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert not runner.has_group()


@pytest.mark.parametrize("timeout_ms", [6_000, 6_001, 1_799_999, 1_800_000])
def test_a_session_timeout_at_the_ends_of_the_range_is_taken(runner: Runner, timeout_ms: int) -> None:
    runner.join(version=3, session_timeout_ms=timeout_ms)
    assert [member.session_timeout_ms for member in runner.group.members] == [timeout_ms]


@pytest.mark.parametrize(("given_ms", "kept_ms"), [(-1, SESSION_MS), (0, 0), (1, 1)])
def test_a_client_without_a_rebalance_timeout_has_only_its_session_timeout(
    runner: Runner, given_ms: int, kept_ms: int
) -> None:
    runner.join(version=3, rebalance_timeout_ms=given_ms)
    assert [member.rebalance_timeout_ms for member in runner.group.members] == [kept_ms]


@pytest.mark.parametrize(("stored_ms", "kept_ms"), [(-1, SESSION_MS), (0, 0), (1, 1)])
def test_a_stored_member_without_a_rebalance_timeout_has_only_its_session_timeout(
    runner: Runner, stored_ms: int, kept_ms: int
) -> None:
    (leader,) = runner.stable_group("a")
    runner.group.members[leader].rebalance_timeout_ms = stored_ms
    runner.perform(Decision(records=[runner.group.record(runner.now_ms)]))
    assert runner.reloaded().group.members[leader].rebalance_timeout_ms == kept_ms


def test_an_instance_id_that_nobody_has_is_not_lent_to_a_dynamic_member(runner: Runner) -> None:
    leader, _ = runner.stable_group("a", "b")
    assert runner.heartbeat(leader, 1, instance_id="nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    assert runner.leave((leader, "nobody")).members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert runner.heartbeat(leader, 1) == 0


@pytest.mark.parametrize(
    ("generation", "error"), [(-2, 0), (-1, 0), (0, ErrorCode.UNKNOWN_MEMBER_ID), (1, ErrorCode.UNKNOWN_MEMBER_ID)]
)
def test_only_a_negative_generation_commits_to_an_empty_group(runner: Runner, generation: int, error: int) -> None:
    (leader,) = runner.stable_group("a")
    runner.leave(leader)
    assert runner.commit({("orders", 0): 1}, generation=generation) == {("orders", 0): error}


@pytest.mark.parametrize(("generation", "error"), [(-1, 0), (0, ErrorCode.ILLEGAL_GENERATION)])
def test_only_a_negative_generation_commits_to_a_group_that_does_not_exist(
    runner: Runner, generation: int, error: int
) -> None:
    assert runner.commit({("orders", 0): 1}, generation=generation) == {("orders", 0): error}


def test_an_unknown_id_is_refused_before_anything_else_is_looked_at(runner: Runner) -> None:
    assert runner.reply(runner.join("m", protocols=())).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_empty_group_id_is_refused(runner: Runner) -> None:
    assert runner.reply(runner.join(group="")).error_code == ErrorCode.INVALID_GROUP_ID
    assert runner.reply(runner.sync("m", 1, group="")).error_code == ErrorCode.INVALID_GROUP_ID
    assert runner.heartbeat("m", 1, group="") == ErrorCode.INVALID_GROUP_ID
    assert runner.leave("m", group="").error_code == ErrorCode.INVALID_GROUP_ID


def test_an_unknown_group_knows_no_members(runner: Runner) -> None:
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert runner.reply(runner.join("m")).error_code == unknown
    assert runner.reply(runner.sync("m", 1)).error_code == unknown
    assert runner.heartbeat("m", 1) == unknown
    assert runner.leave("m", version=2).error_code == unknown
    response = runner.leave("m", ("", "i"))
    assert (response.error_code, [item.error_code for item in response.members]) == (0, [unknown, unknown])


def test_a_full_group_takes_nobody_else() -> None:
    runner = Runner(GroupConfig(max_size=2, initial_rebalance_delay_ms=DELAY_MS))
    leader, _ = runner.stable_group("a", "b")
    reply = runner.reply(runner.join(version=3))
    assert (reply.error_code, reply.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert runner.reply(runner.join(leader)) is None, "members may join again"


def test_a_static_member_replaces_itself_in_a_full_group() -> None:
    runner = Runner(GroupConfig(max_size=1, initial_rebalance_delay_ms=DELAY_MS))
    static_group(runner, "i1")
    assert runner.reply(runner.join(instance_id="i2")).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED, "it is another"
    assert runner.reply(runner.join(instance_id="i1")).error_code == 0


def test_a_static_member_that_is_away_keeps_its_place_in_a_full_group() -> None:
    runner = Runner(GroupConfig(max_size=2, initial_rebalance_delay_ms=DELAY_MS))
    runner.join(instance_id="i1")
    present = runner.reply(runner.join()).member_id
    runner.join(present)
    runner.advance(2 * DELAY_MS)
    assert len(runner.group.members) == 2
    rebalancing = runner.join(present, protocols=(("range", subscription("clicks")),))
    assert runner.group.state is GroupState.PREPARING_REBALANCE
    for version in (3, 9):
        reply = runner.reply(runner.join(version=version))
        assert (reply.error_code, reply.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    back = runner.join(instance_id="i1")
    assert {runner.reply(token).error_code for token in (rebalancing, back)} == {ErrorCode.NONE}
    assert len(runner.group.members) == 2


def test_a_group_that_is_too_large_when_loaded_shrinks() -> None:
    runner = Runner()
    ids = runner.stable_group("a", "b", "c")
    small = Runner(GroupConfig(max_size=2, initial_rebalance_delay_ms=DELAY_MS), runner.log)
    assert small.group.state is GroupState.PREPARING_REBALANCE
    tokens = [small.join(member_id) for member_id in ids]
    errors = [small.reply(token).error_code for token in tokens]
    assert errors == [0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert len(small.group.members) == 2


def test_an_id_that_is_refused_for_size_is_not_waited_for() -> None:
    runner = Runner(GroupConfig(max_size=1, initial_rebalance_delay_ms=DELAY_MS))
    first, second = (runner.reply(runner.join()).member_id for _ in range(2))
    runner.join(first)
    assert runner.reply(runner.join(second)).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert runner.group.issued_ids == set()
    assert ("pending", GROUP, second) not in runner.timers
