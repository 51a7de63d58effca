"""One group of the classic protocol: what it knows, what its log says of it, and who may speak for it.

`joining`, `syncing` and `rebalance` make the decisions that move it along. The generation under way, the requests that
wait and the timers are soft; what a GroupMetadata record holds is durable and comes back through `replay`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.base.errors import DecodeError, ErrorCode, KafkaError
from ottla.machines.coordinator import CoordinatorRecord, SetTimer, TimerKey, Token
from ottla.machines.groups.classic.members import Member, Members, Protocols
from ottla.machines.groups.classic.states import MOVES, GroupState
from ottla.machines.groups.config import GroupConfig
from ottla.wire.apis.describe_groups import DescribedGroup, DescribedGroupMember
from ottla.wire.stored.consumer_offsets import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from ottla.wire.stored.consumer_protocol import ConsumerProtocolSubscription

CONSUMER_PROTOCOL_TYPE = "consumer"
GROUP_KEY_VERSION = 2
GROUP_VALUE_VERSION = 3


@dataclass(slots=True)
class InitialDelay:
    """The first rebalance of an empty group waits a little longer each time somebody new arrives (KIP-134)."""

    remaining_ms: int
    """How much longer the delay may become in all."""
    somebody_came: bool = False


class ClassicGroup:
    def __init__(self, group_id: str, config: GroupConfig) -> None:
        self.group_id = group_id
        self.config = config
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members = Members()
        self.state_timestamp_ms = -1
        self.subscribed_topics: frozenset[str] | None = None
        """Of the current generation; None if the members are not consumers or cannot be understood."""
        self.is_stored = False
        """Whether the log holds a record of this group, which a tombstone has to remove one day."""
        self.issued_ids: set[str] = set()
        """Member ids that were handed out and have not come back yet (KIP-394)."""
        self.joining: dict[str, Token] = {}
        self.syncing: dict[str, Token] = {}
        self.awaited_syncs: set[str] = set()
        """Members of this generation that have not sent their SyncGroup yet."""
        self.initial_delay: InitialDelay | None = None
        self.rebalance_reason = ""
        """What began the rebalance that is under way, or was the last."""

    def move_to(self, state: GroupState) -> None:
        if state not in MOVES[self.state]:
            raise RuntimeError(f"group {self.group_id!r} cannot move from {self.state.value} to {state.value}")
        self.state = state

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def has_nothing(self) -> bool:
        """Nobody would miss the group, apart from its offsets."""
        return self.is_empty and not self.is_stored and not self.issued_ids

    # Timers

    @property
    def join_timer(self) -> TimerKey:
        return ("join", self.group_id)

    @property
    def sync_timer(self) -> TimerKey:
        return ("sync", self.group_id)

    def session_timer(self, member_id: str) -> TimerKey:
        return ("session", self.group_id, member_id)

    def issued_id_timer(self, member_id: str) -> TimerKey:
        return ("pending", self.group_id, member_id)

    def session_starts(self, member: Member) -> SetTimer:
        timeout_ms = self.config.new_member_join_timeout_ms if member.is_new else member.session_timeout_ms
        return SetTimer(self.session_timer(member.member_id), timeout_ms)

    # Checks; each raises the KafkaError that the reply has to carry.

    def check_alive(self) -> None:
        if self.state is GroupState.DEAD:
            raise KafkaError(code=ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        if instance_id is not None:
            known_id = self.members.id_of_instance(instance_id)
            if known_id is not None and known_id != member_id:
                raise KafkaError(code=ErrorCode.FENCED_INSTANCE_ID)
            if known_id is None:
                raise KafkaError(code=ErrorCode.UNKNOWN_MEMBER_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(code=ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise KafkaError(code=ErrorCode.ILLEGAL_GENERATION)

    def check_protocols(self, protocol_type: str, protocols: Protocols) -> None:
        if len(self.members) == 0:
            fits = bool(protocol_type and protocols)
        else:
            fits = protocol_type == self.protocol_type and self.members.have_in_common(protocols)
        if not fits:
            raise KafkaError(code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool) -> None:
        self.check_alive()
        if generation < 0 and self.is_empty:
            return  # Consumers that assign themselves, and tools, commit without being members.
        if generation >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            self.check_generation(generation)
        elif not transactional:
            raise KafkaError(code=ErrorCode.UNKNOWN_MEMBER_ID)
        # While a rebalance is being prepared the old owners may still commit; once the new generation is set, a
        # member has to learn what it owns first. A transaction has its own fencing.
        if self.state is GroupState.COMPLETING_REBALANCE and not transactional:
            raise KafkaError(code=ErrorCode.REBALANCE_IN_PROGRESS)

    def check_offsets_deletable(self) -> None:
        if self.state is GroupState.DEAD:
            raise KafkaError(code=ErrorCode.GROUP_ID_NOT_FOUND)
        if not self.is_empty and self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            # The subscriptions are not known, so any topic may be in use.
            raise KafkaError(code=ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed_to(self, topic: str) -> bool:
        return self.subscribed_topics is not None and topic in self.subscribed_topics

    def offset_age_starts_ms(self, topic: str, commit_timestamp_ms: int) -> int | None:
        """From when an offset's retention counts; None if it must not expire now (KIP-211)."""
        if self.protocol_type is None:
            return commit_timestamp_ms if self.is_empty else None
        if self.is_empty:
            return self.state_timestamp_ms if self.state_timestamp_ms >= 0 else commit_timestamp_ms
        if self.state is GroupState.STABLE and self.subscribed_topics is not None and not self.is_subscribed_to(topic):
            return commit_timestamp_ms
        return None

    # Durable state

    def record(self, timestamp_ms: int, assignments: Mapping[str, bytes] | None = None) -> CoordinatorRecord:
        """The group as it is, with `assignments` by member id instead of the present ones if given."""
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=timestamp_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol),
                    assignment=member.assignment if assignments is None else assignments.get(member.member_id, b""),
                )
                for member in self.members
            ],
        )
        return CoordinatorRecord(self._key(), GROUP_KEY_VERSION, value, GROUP_VALUE_VERSION)

    def tombstones(self) -> list[CoordinatorRecord]:
        return [CoordinatorRecord(self._key(), GROUP_KEY_VERSION, None)] if self.is_stored else []

    def _key(self) -> GroupMetadataKey:
        return GroupMetadataKey(group=self.group_id)

    def replay(self, value: GroupMetadataValue) -> None:
        self.is_stored = True
        self.protocol_type = value.protocol_type or None
        self.generation = value.generation
        self.protocol = value.protocol
        self.leader = value.leader
        self.state_timestamp_ms = value.current_state_timestamp
        for stored in value.members:
            loaded = _loaded_member(stored, value.protocol)
            member = self.members.get(stored.member_id)
            if member is not None and member.metadata(value.protocol) == stored.subscription:
                # A live member may have named more protocols than the one that was chosen and stored.
                loaded.protocols = member.protocols
            if member is not None:
                self.members.remove(stored.member_id)
            self.members.add(loaded)
        self.members.retain(stored.member_id for stored in value.members)
        # Only groups at rest are stored, so the record tells the state. One without a leader was a KIP-848 group and
        # owes its members a rebalance.
        self.state = GroupState.EMPTY
        if value.members:
            self.state = GroupState.STABLE if value.leader is not None else GroupState.PREPARING_REBALANCE
        if self.state is GroupState.PREPARING_REBALANCE:
            self.rebalance_reason = "it was downgraded from the protocol of KIP-848"
        self.find_subscribed_topics()

    def find_subscribed_topics(self) -> None:
        self.subscribed_topics = None
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return
        topics: set[str] = set()
        try:
            for member in self.members:
                # Every version begins as version 0 does, and the topics are all that is needed.
                topics.update(ConsumerProtocolSubscription.decode(member.metadata(self.protocol), 0, 2)[0].topics)
        except DecodeError:
            # The metadata is the clients' affair; not understanding it only keeps offsets from being expired early.
            return
        self.subscribed_topics = frozenset(topics)

    # Views

    def describe(self) -> DescribedGroup:
        """Metadata and assignments are shown of a stable group only: before that they belong to no generation."""
        is_stable = self.state is GroupState.STABLE
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self.state.value,
            protocol_type=self.protocol_type or "",
            protocol_data=(self.protocol or "") if is_stable else "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(self.protocol) if is_stable else b"",
                    member_assignment=member.assignment if is_stable else b"",
                )
                for member in self.members
            ],
        )

    def parked(self) -> list[Token]:
        return [*self.joining.values(), *self.syncing.values()]


def _loaded_member(stored: MemberMetadata, protocol: str | None) -> Member:
    return Member(
        member_id=stored.member_id,
        instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        session_timeout_ms=stored.session_timeout,
        rebalance_timeout_ms=stored.rebalance_timeout if stored.rebalance_timeout >= 0 else stored.session_timeout,
        protocols=() if protocol is None else ((protocol, stored.subscription),),
        assignment=stored.assignment,
        is_new=False,
    )
