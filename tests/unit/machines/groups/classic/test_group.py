"""One classic group by itself: how it begins, what it writes of itself, and from when on its offsets grow old."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.machines.coordinator import CoordinatorRecord
from ottla.machines.groups.classic.group import ClassicGroup
from ottla.machines.groups.classic.members import Member
from ottla.machines.groups.classic.states import GroupState
from ottla.machines.groups.config import GroupConfig
from ottla.wire.apis.describe_groups import DescribedGroup, DescribedGroupMember
from ottla.wire.stored.consumer_offsets import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from tests.unit.machines.groups.runner import DELAY_MS, GROUP, SESSION_MS, Runner, subscription


def member(member_id: str = "m", instance_id: str | None = "i") -> Member:
    return Member(member_id, instance_id, "client", "/host", 10_000, 60_000, (("range", b"r"), ("sticky", b"s")), b"a")


def group(state: GroupState = GroupState.EMPTY, *members: Member) -> ClassicGroup:
    made = ClassicGroup(GROUP, GroupConfig())
    made.state = state
    for each in members:
        made.members.add(each)
    return made


def test_a_group_begins_with_nothing() -> None:
    new = group()
    assert (new.group_id, new.state, new.generation, new.state_timestamp_ms) == (GROUP, GroupState.EMPTY, 0, -1)
    assert (new.protocol_type, new.protocol, new.leader, new.subscribed_topics, new.initial_delay) == (None,) * 5
    assert (list(new.members), new.issued_ids, new.joining, new.syncing, new.awaited_syncs) == (
        [],
        set(),
        {},
        {},
        set(),
    )
    assert (new.is_stored, new.rebalance_reason, new.is_empty, new.has_nothing) == (False, "", True, True)
    assert (new.tombstones(), new.parked()) == ([], [])


MOVES = {
    "Empty": {"PreparingRebalance", "Dead"},
    "PreparingRebalance": {"CompletingRebalance", "Empty", "Dead"},
    "CompletingRebalance": {"Stable", "PreparingRebalance", "Dead"},
    "Stable": {"PreparingRebalance", "Dead"},
    "Dead": set(),
}


@pytest.mark.parametrize("before", GroupState)
@pytest.mark.parametrize("after", GroupState)
def test_a_group_moves_as_kafkas_do(before: GroupState, after: GroupState) -> None:
    moved = group(before)
    if after.value in MOVES[before.value]:
        moved.move_to(after)
        assert moved.state is after
    else:
        with pytest.raises(RuntimeError, match=f"cannot move from {before.value} to {after.value}"):
            moved.move_to(after)
        assert moved.state is before


@pytest.mark.parametrize(
    ("protocol_type", "state", "since_ms", "subscribed", "starts_ms"),
    [
        (None, GroupState.EMPTY, 500, None, 70),
        (None, GroupState.PREPARING_REBALANCE, 500, None, None),
        ("consumer", GroupState.EMPTY, -1, None, 70),
        ("consumer", GroupState.EMPTY, 0, None, 0),
        ("consumer", GroupState.EMPTY, 500, {"t"}, 500),
        ("connect", GroupState.EMPTY, 500, None, 500),
        ("consumer", GroupState.STABLE, 500, {"other"}, 70),
        ("consumer", GroupState.STABLE, 500, set(), 70),
        ("consumer", GroupState.STABLE, 500, {"t", "other"}, None),
        ("consumer", GroupState.STABLE, 500, None, None),
        ("consumer", GroupState.PREPARING_REBALANCE, 500, {"other"}, None),
        ("consumer", GroupState.COMPLETING_REBALANCE, 500, {"other"}, None),
    ],
)
def test_an_offset_ages_from_its_commit_or_from_the_end_of_its_group(
    protocol_type: str | None, state: GroupState, since_ms: int, subscribed: set[str] | None, starts_ms: int | None
) -> None:
    aging = group(state)
    aging.protocol_type = protocol_type
    aging.state_timestamp_ms = since_ms
    aging.subscribed_topics = None if subscribed is None else frozenset(subscribed)
    assert aging.offset_age_starts_ms("t", 70) == starts_ms


def test_the_whole_group_is_written() -> None:
    written = group(GroupState.STABLE, member(), member("n", None))
    written.generation, written.protocol_type, written.protocol, written.leader = 7, "consumer", "sticky", "n"

    def stored(member_id: str, instance_id: str | None, assignment: bytes) -> MemberMetadata:
        return MemberMetadata(
            member_id=member_id,
            group_instance_id=instance_id,
            client_id="client",
            client_host="/host",
            rebalance_timeout=60_000,
            session_timeout=10_000,
            subscription=b"s",
            assignment=assignment,
        )

    def record(m: bytes, n: bytes) -> CoordinatorRecord:
        value = GroupMetadataValue(
            protocol_type="consumer",
            generation=7,
            protocol="sticky",
            leader="n",
            current_state_timestamp=99,
            members=[stored("m", "i", m), stored("n", None, n)],
        )
        return CoordinatorRecord(GroupMetadataKey(group=GROUP), 2, value, 3)

    assert written.record(99) == record(b"a", b"a")
    assert written.record(99, {"m": b"new"}) == record(b"new", b"")
    written.is_stored = True
    assert written.tombstones() == [CoordinatorRecord(GroupMetadataKey(group=GROUP), 2, None)]


@pytest.mark.parametrize(
    ("state", "data", "metadata", "assignment"),
    [
        (GroupState.STABLE, "range", b"r", b"a"),
        (GroupState.COMPLETING_REBALANCE, "", b"", b""),
        (GroupState.PREPARING_REBALANCE, "", b"", b""),
    ],
)
def test_a_group_is_described_in_full_once_it_is_stable(
    state: GroupState, data: str, metadata: bytes, assignment: bytes
) -> None:
    described = group(state, member())
    described.protocol_type, described.protocol = "consumer", "range"
    assert described.describe() == DescribedGroup(
        group_id=GROUP,
        group_state=state.value,
        protocol_type="consumer",
        protocol_data=data,
        members=[
            DescribedGroupMember(
                member_id="m",
                group_instance_id="i",
                client_id="client",
                client_host="/host",
                member_metadata=metadata,
                member_assignment=assignment,
            )
        ],
    )


@pytest.mark.parametrize(
    ("member_id", "instance_id", "code"),
    [
        ("m", None, None),
        ("m", "i", None),
        ("x", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("x", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("m", "other", ErrorCode.UNKNOWN_MEMBER_ID),
        ("x", "other", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_a_member_says_to_be_is_checked(member_id: str, instance_id: str | None, code: ErrorCode | None) -> None:
    known = member()
    checked = group(GroupState.STABLE, known)
    if code is None:
        assert checked.check_member(member_id, instance_id) is known
        return
    with pytest.raises(KafkaError) as raised:
        checked.check_member(member_id, instance_id)
    assert raised.value.code is code


MEMBER, NOBODY, INSTANCE = ("m", None), ("", None), ("", "i")


@pytest.mark.parametrize(
    ("state", "who", "generation", "plain", "transactional"),
    [
        (GroupState.DEAD, NOBODY, -1, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (GroupState.EMPTY, NOBODY, -1, None, None),
        (GroupState.EMPTY, MEMBER, -1, None, None),
        (GroupState.EMPTY, NOBODY, 0, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID),
        (GroupState.STABLE, NOBODY, -1, ErrorCode.UNKNOWN_MEMBER_ID, None),
        (GroupState.STABLE, INSTANCE, -1, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID),
        (GroupState.STABLE, MEMBER, -1, ErrorCode.ILLEGAL_GENERATION, ErrorCode.ILLEGAL_GENERATION),
        (GroupState.STABLE, MEMBER, 2, ErrorCode.ILLEGAL_GENERATION, ErrorCode.ILLEGAL_GENERATION),
        (GroupState.STABLE, MEMBER, 3, None, None),
        (GroupState.PREPARING_REBALANCE, MEMBER, 3, None, None),
        (GroupState.COMPLETING_REBALANCE, MEMBER, 3, ErrorCode.REBALANCE_IN_PROGRESS, None),
        (GroupState.COMPLETING_REBALANCE, NOBODY, -1, ErrorCode.UNKNOWN_MEMBER_ID, None),
    ],
)
def test_who_may_commit(
    state: GroupState,
    who: tuple[str, str | None],
    generation: int,
    plain: ErrorCode | None,
    transactional: ErrorCode | None,
) -> None:
    checked = group(state, *(() if state is GroupState.EMPTY else (member(),)))
    checked.generation = 3
    for is_transactional, code in ((False, plain), (True, transactional)):
        if code is None:
            checked.check_commit(*who, generation, transactional=is_transactional)
            continue
        with pytest.raises(KafkaError) as raised:
            checked.check_commit(*who, generation, transactional=is_transactional)
        assert raised.value.code is code


def test_who_has_joined_a_full_group_may_join_again() -> None:
    runner = Runner(GroupConfig(max_size=2, initial_rebalance_delay_ms=DELAY_MS))
    ids = [runner.reply(runner.join()).member_id for _ in range(2)]
    first, second = (runner.join(member_id) for member_id in ids)
    again = runner.join(ids[0])
    assert runner.reply(first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert (runner.reply(second), runner.reply(again)) == (None, None)
    runner.advance(2 * DELAY_MS)
    replies = [runner.reply(token) for token in (second, again)]
    assert [(reply.error_code, reply.generation_id, reply.member_id) for reply in replies] == [
        (0, 1, ids[1]),
        (0, 1, ids[0]),
    ]


def test_a_member_has_a_whole_session_from_its_first_generation_on() -> None:
    runner = Runner()
    member_id = runner.reply(runner.join()).member_id
    joining = runner.join(member_id)
    assert runner.timers["session", GROUP, member_id] == runner.now_ms + 300_000
    runner.advance(DELAY_MS)
    assert runner.reply(joining).generation_id == 1
    assert runner.timers["session", GROUP, member_id] == runner.now_ms + SESSION_MS


@pytest.mark.parametrize(
    ("protocol_type", "protocol_name", "code"),
    [
        (None, None, ErrorCode.NONE),
        ("consumer", None, ErrorCode.NONE),
        (None, "range", ErrorCode.NONE),
        ("consumer", "range", ErrorCode.NONE),
        ("connect", "range", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("consumer", "sticky", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_member_asks_for_what_was_agreed_on(
    protocol_type: str | None, protocol_name: str | None, code: ErrorCode
) -> None:
    runner = Runner()
    (leader,) = runner.stable_group("a")
    token = runner.sync(leader, 1, protocol_type=protocol_type, protocol_name=protocol_name)
    assert runner.reply(token).error_code == code


def test_who_gives_its_id_back_is_not_waited_for() -> None:
    runner = Runner()
    (leader,) = runner.stable_group("a")
    issued = runner.reply(runner.join()).member_id
    rejoining = runner.join(leader, protocols=(("range", subscription("clicks")),))
    assert runner.reply(rejoining) is None
    assert [each.error_code for each in runner.leave(issued).members] == [0]
    assert runner.reply(rejoining).generation_id == 2
