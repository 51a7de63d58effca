"""All groups of one `__consumer_offsets` partition: finds the group a request is for, and turns refusals into replies.

The rules of a classic group are in `joining`, `syncing` and `rebalance`, those of a KIP-848 group in `consumer.group`,
those of offsets in `offset_requests`, how groups change from one kind to the other in `migration`.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode, KafkaError
from ottla.machines.coordinator import Decision, ReplayContext, TimerKey, Token
from ottla.machines.groups.classic import joining, syncing
from ottla.machines.groups.classic.group import ClassicGroup
from ottla.machines.groups.classic.joining import JoinCall
from ottla.machines.groups.classic.rebalance import join_refused, sync_refused
from ottla.machines.groups.classic.states import GroupState
from ottla.machines.groups.consumer.confirmations import Connection
from ottla.machines.groups.consumer.group import TIMERS, ConsumerGroup
from ottla.machines.groups.consumer.member import JOIN_EPOCH
from ottla.machines.groups.consumer.state import Draft
from ottla.machines.groups.group_table import Group
from ottla.machines.groups.migration import classic_members, upgrade
from ottla.machines.groups.offset_shard import OffsetShard
from ottla.wire.apis import consumer_group_describe, describe_groups
from ottla.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.apis.join_group import JoinGroupRequest
from ottla.wire.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from ottla.wire.apis.list_groups import ListedGroup
from ottla.wire.apis.sync_group import SyncGroupRequest
from ottla.wire.message import StoredRecord

_LEAVE_MANY_VERSION = 3
_DESCRIBE_ERRORS_VERSION = 6

Tokens = list[Token]
Groups = list[ListedGroup]


class GroupShard(OffsetShard):
    # Membership, classic protocol

    def join(
        self,
        request: JoinGroupRequest,
        token: Token,
        *,
        version: int,
        client_id: str,
        client_host: str,
        new_member_id: str,
        now_ms: int,
    ) -> Decision:
        call = JoinCall(request, version, client_id, client_host, new_member_id, token)
        try:
            return self._join(call, now_ms)
        except KafkaError as e:
            return Decision().reply(token, join_refused(request.member_id, e.code))

    def _join(self, call: JoinCall, now_ms: int) -> Decision:
        request = call.request
        _check_group_id(request.group_id)
        config = self._config
        if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
            raise KafkaError(code=ErrorCode.INVALID_SESSION_TIMEOUT)
        group = self._groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return joining.join(group, call, now_ms)
        if group is not None and not group.is_empty:
            return classic_members.join(group, call, now_ms)
        if request.member_id:
            raise KafkaError(code=ErrorCode.UNKNOWN_MEMBER_ID)
        new_group = ClassicGroup(request.group_id, config)
        decision = joining.join(new_group, call, now_ms)
        if group is not None:
            decision.records[:0] = group.tombstones()
        self._groups.put(new_group)
        return decision

    def sync(self, request: SyncGroupRequest, token: Token, *, version: int, now_ms: int) -> Decision:
        try:
            group = self._with_members(request.group_id)
            if isinstance(group, ConsumerGroup):
                return classic_members.sync(group, request, token)
            return syncing.sync(group, request, token, now_ms)
        except KafkaError as e:
            return Decision().reply(token, sync_refused(e.code))

    def heartbeat(self, request: HeartbeatRequest, token: Token, *, now_ms: int) -> Decision:
        try:
            group = self._with_members(request.group_id)
            if isinstance(group, ConsumerGroup):
                return classic_members.heartbeat(group, request, token)
            return syncing.heartbeat(group, request, token)
        except KafkaError as e:
            return Decision().reply(token, HeartbeatResponse(error_code=e.code))

    def leave(self, request: LeaveGroupRequest, token: Token, *, version: int, now_ms: int) -> Decision:
        leaves_many = version >= _LEAVE_MANY_VERSION
        identities = request.members if leaves_many else [MemberIdentity(member_id=request.member_id)]
        try:
            decision, results = self._leave(request.group_id, identities, now_ms)
        except KafkaError as e:
            return Decision().reply(token, LeaveGroupResponse(error_code=e.code))
        if leaves_many:
            return decision.reply(token, LeaveGroupResponse(members=results))
        return decision.reply(token, LeaveGroupResponse(error_code=results[0].error_code))

    def _leave(
        self, group_id: str, identities: list[MemberIdentity], now_ms: int
    ) -> tuple[Decision, list[MemberResponse]]:
        _check_group_id(group_id)
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup):
            decision, results = joining.leave(group, identities, now_ms)
            return self._settle(group, decision), results
        if group is not None:
            return classic_members.leave(group, identities)
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        return Decision(), [
            MemberResponse(
                member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=unknown
            )
            for identity in identities
        ]

    def _with_members(self, group_id: str) -> Group:
        """For requests of members: a group that does not exist does not know them."""
        _check_group_id(group_id)
        group = self._groups.get(group_id)
        if group is None:
            raise KafkaError(code=ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    # Membership, KIP-848

    def consumer_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        token: Token,
        *,
        version: int,
        client_id: str,
        client_host: str,
        new_member_id: str,
        now_ms: int,
        connection: Connection = None,
    ) -> Decision:
        try:
            _check_group_id(request.group_id)
            former = self._groups.get(request.group_id)
            if isinstance(former, ConsumerGroup):
                group, begun = former, None
            else:
                group = self._groups.new_consumer_group(request.group_id)
                begun = _begin_upgrade(former, group, request.member_epoch)
        except KafkaError as e:
            response = ConsumerGroupHeartbeatResponse(error_code=e.code, error_message=e.message)
            return Decision().reply(token, response)
        decision = group.heartbeat(
            request,
            token,
            version=version,
            client_id=client_id,
            client_host=client_host,
            new_member_id=new_member_id,
            now_ms=now_ms,
            connection=connection,
            begun=begun,
        )
        if former is not group and decision.records:
            if isinstance(former, ClassicGroup):
                decision = upgrade.take_leave(former).extend(decision)
            self._groups.put(group)
        return decision

    def consumer_describe(self, group_id: str) -> consumer_group_describe.DescribedGroup:
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group.describe()
        error = KafkaError(code=ErrorCode.GROUP_ID_NOT_FOUND)
        return consumer_group_describe.DescribedGroup(
            error_code=error.code, error_message=error.message, group_id=group_id
        )

    def topics_changed(self, now_ms: int) -> Decision:
        """The cluster's topics are not what they were: groups that assign on the server may have to do it again."""
        decision = Decision()
        for group in self._groups:
            if isinstance(group, ConsumerGroup):
                decision.extend(group.topics_changed(now_ms))
        return decision

    # Administration

    def delete_group(self, group_id: str, token: Token, *, now_ms: int) -> Decision:
        """Replies with an ErrorCode."""
        group = self._groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            return Decision().reply(token, ErrorCode.GROUP_ID_NOT_FOUND)
        if not group.is_empty:
            return Decision().reply(token, ErrorCode.NON_EMPTY_GROUP)
        return Decision(records=self._groups.remove(group)).reply(token, ErrorCode.NONE)

    def describe(self, group_id: str, *, version: int = 0) -> describe_groups.DescribedGroup:
        """A group that is unknown, or of the other kind, is shown as dead; from version 6 on it is an error."""
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return group.describe()
        described = describe_groups.DescribedGroup(group_id=group_id, group_state="Dead")
        if version >= _DESCRIBE_ERRORS_VERSION:
            error = KafkaError(code=ErrorCode.GROUP_ID_NOT_FOUND)
            described.error_code, described.error_message = error.code, error.message
        return described

    def list(self, states: list[str], types: list[str]) -> Groups:
        """An empty filter lets everything pass; case does not matter."""
        wanted_states = {state.lower() for state in states}
        wanted_types = {kind.lower() for kind in types}
        return [
            listed
            for listed in map(_listed, self._groups)
            if (not wanted_states or listed.group_state.lower() in wanted_states)
            and (not wanted_types or listed.group_type.lower() in wanted_types)
        ]

    # Life in the runtime

    def timer_fired(self, key: TimerKey, now_ms: int) -> Decision:
        """A timer may outlive its group, or find one of the other kind in its place."""
        group = self._groups.get(key[1])
        is_of_consumers = key[0] in TIMERS
        if isinstance(group, ClassicGroup) and not is_of_consumers:
            return self._settle(group, syncing.timer_fired(group, key, now_ms))
        if isinstance(group, ConsumerGroup) and is_of_consumers:
            return group.timer_fired(key, now_ms)
        return Decision()

    def replay(self, key: StoredRecord, value: StoredRecord | None, context: ReplayContext) -> None:
        self._groups.replay(key, value, context)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        for group_id in self._offsets.end_transaction(producer_id, committed=committed):
            self._groups.forget_if_nothing_left(group_id)

    def loaded(self, now_ms: int) -> Decision:
        decision = Decision()
        for group in self._groups:
            decision.extend(syncing.loaded(group) if isinstance(group, ClassicGroup) else group.loaded(now_ms))
        return decision

    def unload(self) -> Tokens:
        """The requests that wait here, for the runtime to answer. The shard must not be used any more."""
        return self._groups.close()

    def _settle(self, group: ClassicGroup, decision: Decision) -> Decision:
        """A group that only ever handed out member ids leaves nothing behind."""
        if not decision.records:
            self._groups.forget_if_nothing_left(group.group_id)
        return decision


def _check_group_id(group_id: str) -> None:
    if not group_id:
        raise KafkaError(code=ErrorCode.INVALID_GROUP_ID)


def _begin_upgrade(former: ClassicGroup | None, group: ConsumerGroup, member_epoch: int) -> Draft | None:
    """None if there is nobody to take over. Only a member that joins can change what the group is."""
    if former is None or former.is_empty:
        return None
    if member_epoch == JOIN_EPOCH:
        return upgrade.begin(former, group)
    if member_epoch > JOIN_EPOCH and group.config.migration_policy.allows_upgrade:
        # It was removed, as the last of its kind, and does not know yet. To clients GROUP_ID_NOT_FOUND is fatal, but
        # this one can join again.
        raise KafkaError(code=ErrorCode.UNKNOWN_MEMBER_ID)
    raise KafkaError(code=ErrorCode.GROUP_ID_NOT_FOUND)


def _listed(group: Group) -> ListedGroup:
    if isinstance(group, ClassicGroup):
        kind, protocol_type = "classic", group.protocol_type or ""
    else:
        kind, protocol_type = "consumer", "consumer"
    return ListedGroup(
        group_id=group.group_id, protocol_type=protocol_type, group_state=group.state.value, group_type=kind
    )
