"""What a member of a classic group says in its requests, and what it forgets."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.consumer.offset_requests import Membership
from ottla.client.core.consumer.options import ConsumerSettings
from ottla.client.core.group.classic_member import ClassicMember, PollTimer, Verdict
from ottla.client.core.group.protocol import (
    GroupAssignor,
    choose_assignors,
    decode_member,
    encode_assignment,
    encode_subscription,
)
from ottla.client.errors import ClientError, FencedInstanceError
from ottla.wire.apis.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla.wire.apis.leave_group import MemberIdentity
from ottla.wire.apis.sync_group import SyncGroupResponse

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def member(*assignors: GroupAssignor | str, **settings: object) -> ClassicMember:
    names = [each for each in assignors if isinstance(each, str)]
    own = [each for each in assignors if not isinstance(each, str)]
    given = {name.replace("_", "."): value for name, value in settings.items()}
    parsed = ConsumerSettings.parse({"bootstrap.servers": "h:1", "group.id": "g", **given})
    return ClassicMember(parsed, choose_assignors(names, own))


def joined(found: ClassicMember, *, leader: str = "other", generation: int = 3, skips: bool = False) -> ClassicMember:
    members = [JoinGroupResponseMember(member_id="me", metadata=encode_subscription(["t"], [], -1))]
    response = JoinGroupResponse(
        member_id="me",
        generation_id=generation,
        protocol_name=found.join_request([], []).protocols[0].name,
        leader=leader,
        members=members if leader == "me" else [],
        skip_assignment=skips,
    )
    assert found.joined(response) is Verdict.FINE
    return found


@pytest.mark.parametrize(("rack", "told"), [("", None), ("r", "r")])
def test_who_joins_says_what_it_wants_and_has(rack: str, told: str | None) -> None:
    found = member(
        "range",
        "roundrobin",
        client_rack=rack,
        group_instance_id="i",
        session_timeout_ms=4000,
        heartbeat_interval_ms=1000,
        max_poll_interval_ms=7000,
    )
    for generation in (-1, 3):
        request = found.join_request(["u", "t"], [T1, T0])
        assert (request.group_id, request.group_instance_id, request.protocol_type) == ("g", "i", "consumer")
        assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (4000, 7000)
        assert request.member_id == ("" if generation < 0 else "me")
        assert [protocol.name for protocol in request.protocols] == ["range", "roundrobin"]
        info = decode_member("me", None, request.protocols[0].metadata)
        assert (info.topics, info.owned, info.rack) == ({"t", "u"}, {T0, T1}, told)
        assert info.generation == generation
        joined(found)


def test_a_member_is_named_in_every_request() -> None:
    found = member("range", group_instance_id="i")
    assert found.membership() == Membership("g", -1, "", "i") and not found.is_member
    joined(found, generation=0)
    assert found.is_member and found.membership() == Membership("g", 0, "me", "i")
    sync = found.sync_request({"me": b"1", "you": b"2"})
    assert (sync.group_id, sync.generation_id, sync.member_id, sync.group_instance_id) == ("g", 0, "me", "i")
    assert (sync.protocol_type, sync.protocol_name) == ("consumer", "range")
    assert [(each.member_id, each.assignment) for each in sync.assignments] == [("me", b"1"), ("you", b"2")]
    beat = found.heartbeat_request(0)
    assert (beat.group_id, beat.generation_id, beat.member_id, beat.group_instance_id) == ("g", 0, "me", "i")


@pytest.mark.parametrize("version", [2, 3])
def test_who_leaves_is_named_as_the_version_wants(version: int) -> None:
    request = member("range").leave_request("you", version, "because")
    assert request.group_id == "g"
    if version < 3:
        assert (request.member_id, request.members) == ("you", [])
    else:
        assert (request.member_id, request.members) == ("", [MemberIdentity(member_id="you", reason="because")])


def test_a_member_has_said_nothing_at_first() -> None:
    found = member("range")
    assert found.heartbeat_due_ms() == 0 and not found.must_assign and not found.must_say_good_bye
    assert found.group_topics() == set() and found.assignor is None


def test_a_leader_that_has_to_join_again_leads_no_more() -> None:
    found = joined(member("range"), leader="me")
    assert found.must_assign and found.group_topics() == {"t"}
    found.forget_generation()
    assert not found.must_assign and found.group_topics() == set()
    assert (found.member_id, found.generation) == ("me", -1)
    joined(found, leader="me", skips=True)
    assert not found.must_assign
    joined(found, leader="me")
    assert found.must_assign, "it was spared once"


@pytest.mark.parametrize("changes", ["generation", "member"])
def test_a_late_answer_is_about_who_it_was_then(changes: str) -> None:
    found = joined(member("range"))
    late = found.heartbeat_request(0)
    if changes == "generation":
        found.generation = 4
    else:
        found.member_id = "somebody"
    assert found.heartbeat_answered(late, ErrorCode.UNKNOWN_MEMBER_ID) is Verdict.FINE
    assert found.heartbeat_answered(found.heartbeat_request(0), ErrorCode.UNKNOWN_MEMBER_ID) is Verdict.LOST


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Verdict.AGAIN),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, Verdict.FIND_COORDINATOR),
        (ErrorCode.NOT_COORDINATOR, Verdict.FIND_COORDINATOR),
        (ErrorCode.UNKNOWN_MEMBER_ID, Verdict.LOST),
        (ErrorCode.ILLEGAL_GENERATION, Verdict.OUTDATED),
    ],
)
def test_what_is_said_of_coordinators_and_members_means_the_same_in_every_answer(
    code: ErrorCode, verdict: Verdict
) -> None:
    found = joined(member("range"))
    assert found.joined(JoinGroupResponse(error_code=code)) is verdict
    assert found.synced(SyncGroupResponse(error_code=code), 0) == (verdict, [])
    assert found.heartbeat_answered(found.heartbeat_request(0), code) is verdict


@pytest.mark.parametrize("code", [ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.INCONSISTENT_GROUP_PROTOCOL])
def test_what_no_answer_to_a_member_should_say_is_an_error(code: ErrorCode) -> None:
    found = joined(member("range"))
    with pytest.raises(ClientError, match="getting an assignment in group g") as raised:
        found.synced(SyncGroupResponse(error_code=code), 0)
    assert raised.value.code is code
    with pytest.raises(ClientError, match="staying in group g"):
        found.heartbeat_answered(found.heartbeat_request(0), code)


def test_a_static_member_whose_name_another_one_took_is_told_so() -> None:
    found = joined(member("range", group_instance_id="i"))
    with pytest.raises(FencedInstanceError, match="another consumer joined group g as i; close this one"):
        found.heartbeat_answered(found.heartbeat_request(0), ErrorCode.FENCED_INSTANCE_ID)


class Noting(GroupAssignor):
    """Gives everything to nobody, and notes what it is told."""

    name = "noting"

    def __init__(self) -> None:
        self.told: list[object] = []

    def assign(self, members: object, partition_counts: object) -> dict[str, list[TopicPartition]]:
        return {}

    def assignment_data(self, member_id: str) -> bytes | None:
        return member_id.encode()

    def on_assignment(self, partitions: object, user_data: bytes | None, generation: int) -> None:
        self.told.append((partitions, user_data, generation))


def test_assignors_send_data_with_an_assignment_and_hear_of_theirs() -> None:
    noting = Noting()
    found = joined(member(noting), leader="me")
    shares = found.assign({"t": 2})
    assert shares == {"me": encode_assignment([], b"me")}, "who gets nothing is told so, too"
    answer = SyncGroupResponse(assignment=encode_assignment([T0, T1], b"data"))
    assert found.synced(answer, 0) == (Verdict.FINE, [T0, T1])
    assert noting.told == [([T0, T1], b"data", 3)]


def test_polls_within_polls_count_until_the_last_has_ended() -> None:
    timer = PollTimer(1000, 0)
    assert not timer.is_polling
    timer.begin(10)
    timer.begin(20)
    timer.end(30)
    assert timer.is_polling and not timer.has_expired(10_000)
    timer.end(40)
    assert not timer.is_polling and timer.due_ms() == 1040
    timer.begin(50)
    assert timer.due_ms() == 1050
