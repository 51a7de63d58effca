"""A member of a classic group: which request comes next, and what each answer means for it.

Holds identity, generation and timers; time is an argument. Carrying partitions over from one generation to the next,
and telling the application, is the shell's business.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum, auto

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.consumer.offset_requests import Membership
from ottla.client.core.consumer.options import ConsumerSettings
from ottla.client.core.group.protocol import (
    PROTOCOL_TYPE,
    GroupAssignor,
    GroupMemberInfo,
    decode_assignment,
    decode_member,
    encode_assignment,
    encode_subscription,
)
from ottla.client.errors import ClientError, FencedInstanceError, client_error
from ottla.machines.assignors.types import NO_GENERATION
from ottla.wire.apis.heartbeat import HeartbeatRequest
from ottla.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.wire.apis.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

FIRST_LEAVE_BY_MEMBERS = 3


class Verdict(Enum):
    """What an answer asks for."""

    FINE = auto()
    AGAIN_AT_ONCE = auto()
    AGAIN = auto()
    """After a pause."""
    FIND_COORDINATOR = auto()
    REJOIN = auto()
    """The group is rebalancing; what the member holds stays its own until it has joined."""
    LOST = auto()
    """The group does not know the member any more; others may already have what it holds."""
    OUTDATED = auto()
    """The group knows the member, but has gone on without it; others may already have what it holds."""


_COMMON = {
    ErrorCode.NONE: Verdict.FINE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Verdict.AGAIN,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Verdict.FIND_COORDINATOR,
    ErrorCode.NOT_COORDINATOR: Verdict.FIND_COORDINATOR,
    ErrorCode.UNKNOWN_MEMBER_ID: Verdict.LOST,
    ErrorCode.ILLEGAL_GENERATION: Verdict.OUTDATED,
}
_JOIN = {
    **_COMMON,
    ErrorCode.MEMBER_ID_REQUIRED: Verdict.AGAIN_AT_ONCE,
    ErrorCode.REBALANCE_IN_PROGRESS: Verdict.AGAIN,
}
_SYNC = {**_COMMON, ErrorCode.REBALANCE_IN_PROGRESS: Verdict.REJOIN}
_HEARTBEAT = {**_COMMON, ErrorCode.REBALANCE_IN_PROGRESS: Verdict.REJOIN}


class ClassicMember:
    def __init__(self, settings: ConsumerSettings, assignors: Sequence[GroupAssignor]) -> None:
        assert settings.group_id is not None
        self._settings = settings
        self._group_id = settings.group_id
        self._assignors = list(assignors)
        self.is_cooperative = all(assignor.is_cooperative for assignor in assignors)
        """A group may only be cooperative if every assignor it could agree on is."""
        self.member_id = ""
        self.generation = NO_GENERATION
        self.is_leader = False
        self.assignor: GroupAssignor | None = None
        self.members: list[GroupMemberInfo] = []
        """Of the leader only: everybody, as they joined."""
        self._skips_assignment = False
        self._next_heartbeat_ms = 0

    @property
    def is_member(self) -> bool:
        return self.generation != NO_GENERATION

    def membership(self) -> Membership:
        return Membership(self._group_id, self.generation, self.member_id, self._settings.group_instance_id)

    # Joining

    def join_request(self, topics: Collection[str], owned: Collection[TopicPartition]) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=self._settings.session_timeout_ms,
            rebalance_timeout_ms=self._settings.max_poll_interval_ms,
            member_id=self.member_id,
            group_instance_id=self._settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(
                    name=assignor.name,
                    metadata=encode_subscription(
                        topics,
                        owned,
                        self.generation,
                        user_data=assignor.user_data(topics),
                        rack=self._settings.client_rack or None,
                    ),
                )
                for assignor in self._assignors
            ],
        )

    def joined(self, response: JoinGroupResponse) -> Verdict:
        verdict = self._verdict(response.error_code, _JOIN, "joining")
        if verdict is Verdict.AGAIN_AT_ONCE:
            self.member_id = response.member_id
        if verdict is not Verdict.FINE:
            return verdict
        self.member_id = response.member_id
        self.generation = response.generation_id
        chosen = [assignor for assignor in self._assignors if assignor.name == response.protocol_name]
        if not chosen:
            raise ClientError(
                f"the group has agreed on the assignor {response.protocol_name!r}, which this member did not offer",
                code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            )
        self.assignor = chosen[0]
        self.is_leader = response.leader == response.member_id
        self.members = [
            decode_member(member.member_id, member.group_instance_id, member.metadata) for member in response.members
        ]
        self._skips_assignment = response.skip_assignment
        return verdict

    @property
    def must_assign(self) -> bool:
        """Whether this member shares out the partitions; a returning static leader may be spared that (KIP-814)."""
        return self.is_leader and not self._skips_assignment

    def group_topics(self) -> set[str]:
        return {topic for member in self.members for topic in member.topics}

    def assign(self, partition_counts: Mapping[str, int]) -> dict[str, bytes]:
        """As the leader: the assignment of every member, encoded."""
        assert self.assignor is not None
        shares = self.assignor.assign(self.members, partition_counts)
        strangers = set(shares) - {member.member_id for member in self.members}
        if strangers:
            raise ClientError(
                f"the assignor {self.assignor.name} gave partitions to {', '.join(sorted(strangers))},"
                " which are no members of the group",
                code=ErrorCode.INVALID_REQUEST,
                fatal=True,
            )
        return {
            member.member_id: encode_assignment(
                shares.get(member.member_id, ()), self.assignor.assignment_data(member.member_id)
            )
            for member in self.members
        }

    def sync_request(self, assignments: Mapping[str, bytes]) -> SyncGroupRequest:
        assert self.assignor is not None
        return SyncGroupRequest(
            group_id=self._group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self._settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.assignor.name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=data)
                for member_id, data in assignments.items()
            ],
        )

    def synced(self, response: SyncGroupResponse, now_ms: int) -> tuple[Verdict, list[TopicPartition]]:
        verdict = self._verdict(response.error_code, _SYNC, "getting an assignment")
        if verdict is not Verdict.FINE:
            return verdict, []
        assert self.assignor is not None
        partitions, user_data = decode_assignment(response.assignment)
        self.assignor.on_assignment(partitions, user_data, self.generation)
        self._next_heartbeat_ms = now_ms + self._settings.heartbeat_interval_ms
        return verdict, partitions

    # Staying

    def heartbeat_due_ms(self) -> int:
        return self._next_heartbeat_ms

    def heartbeat_request(self, now_ms: int) -> HeartbeatRequest:
        self._next_heartbeat_ms = now_ms + self._settings.heartbeat_interval_ms
        return HeartbeatRequest(
            group_id=self._group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self._settings.group_instance_id,
        )

    def heartbeat_answered(self, request: HeartbeatRequest, error_code: int) -> Verdict:
        # A late answer about a generation this member has left behind says nothing about the one it is in.
        if (request.member_id, request.generation_id) != (self.member_id, self.generation):
            return Verdict.FINE
        return self._verdict(error_code, _HEARTBEAT, "staying")

    # Leaving

    def forget(self) -> None:
        """The group does not know this member any more, or soon will not."""
        self.member_id = ""
        self.forget_generation()

    def forget_generation(self) -> None:
        """The same member joins again: under another name it would have to wait until its old one is given up."""
        self.generation = NO_GENERATION
        self.is_leader = False
        self.members = []

    @property
    def must_say_good_bye(self) -> bool:
        """Static members just stay away: they are expected back (KIP-345)."""
        return bool(self.member_id) and self._settings.group_instance_id is None

    def leave_request(self, member_id: str, version: int, reason: str) -> LeaveGroupRequest:
        if version < FIRST_LEAVE_BY_MEMBERS:
            return LeaveGroupRequest(group_id=self._group_id, member_id=member_id)
        return LeaveGroupRequest(group_id=self._group_id, members=[MemberIdentity(member_id=member_id, reason=reason)])

    def _verdict(self, error_code: int, table: Mapping[ErrorCode, Verdict], doing: str) -> Verdict:
        for code, verdict in table.items():
            if code == error_code:
                return verdict
        if error_code == ErrorCode.FENCED_INSTANCE_ID:
            raise FencedInstanceError(
                f"another consumer joined group {self._group_id} as {self._settings.group_instance_id}; close this one"
            )
        raise client_error(error_code, where=f"{doing} in group {self._group_id}")


class PollTimer:
    """Whether the application still polls (`max.poll.interval.ms`)."""

    def __init__(self, max_poll_interval_ms: int, now_ms: int) -> None:
        self.max_poll_interval_ms = max_poll_interval_ms
        self._polled_at_ms = now_ms
        self._depth = 0

    def begin(self, now_ms: int) -> None:
        self._depth += 1
        self._polled_at_ms = now_ms

    def end(self, now_ms: int) -> None:
        self._depth -= 1
        self._polled_at_ms = now_ms

    def touch(self, now_ms: int) -> None:
        """A poll that had nothing to wait for."""
        self._polled_at_ms = now_ms

    @property
    def is_polling(self) -> bool:
        return self._depth > 0

    def due_ms(self) -> int:
        return self._polled_at_ms + self.max_poll_interval_ms

    def has_expired(self, now_ms: int) -> bool:
        """Never while a poll is under way, however long it waits."""
        return not self._depth and now_ms >= self.due_ms()
