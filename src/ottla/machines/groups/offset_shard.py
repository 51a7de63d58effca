"""The half of a shard that is about offsets: who may commit, fetch and delete them, and when they go.

What a request means for each partition is in `offset_requests`.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode, KafkaError
from ottla.machines.coordinator import Decision, SetTimer, Token
from ottla.machines.groups import offset_requests
from ottla.machines.groups.classic.group import ClassicGroup
from ottla.machines.groups.config import GroupConfig, TopicView
from ottla.machines.groups.consumer.group import ConsumerGroup
from ottla.machines.groups.group_table import GroupTable
from ottla.machines.groups.offset_requests import commit_error
from ottla.machines.groups.offsets import CommittedOffset
from ottla.wire.apis.offset_commit import OffsetCommitRequest
from ottla.wire.apis.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.wire.apis.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from ottla.wire.apis.txn_offset_commit import TxnOffsetCommitRequest
from ottla.wire.fused.offset_commit import TopicCommits

_MEMBER_EPOCH_VERSION = 9
_NO_ERROR = ErrorCode.NONE
_EXPIRED_AT_ONCE = 5_000
"""A decision is one batch, which has a limit; what is left expires next time."""


class OffsetShard:
    def __init__(self, config: GroupConfig, topics: TopicView) -> None:
        self._config = config
        self._topics = topics
        self._groups = GroupTable(config, topics)
        self._offsets = self._groups.offsets

    def commit_offsets(self, request: OffsetCommitRequest, token: Token, *, version: int, now_ms: int) -> Decision:
        decision = Decision()
        generation = request.generation_id_or_member_epoch
        try:
            session = self.check_commit(
                request.group_id, request.member_id, request.group_instance_id, generation, version=version
            )
        except KafkaError as e:
            errors = offset_requests.all_failed(request.topics, e.code)
            return decision.reply(token, offset_requests.commit_response(errors))
        if session is not None:
            decision.timers.append(session)
        expires_ms = now_ms + request.retention_time_ms if request.retention_time_ms >= 0 else -1
        terms = offset_requests.CommitTerms(request.group_id, now_ms, expires_ms)
        decision.records, errors = offset_requests.commit(request.topics, terms, self._config, self._topics)
        return decision.reply(token, offset_requests.commit_response(errors))

    def check_commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        version: int,
        transactional: bool = False,
    ) -> SetTimer | None:
        """Raises the KafkaError of a commit that is refused. A member whose commit is not begins its session anew."""
        group = self._groups.get(group_id)
        if group is None:
            if generation >= 0:
                knows_epochs = version >= _MEMBER_EPOCH_VERSION and not transactional
                raise KafkaError(code=ErrorCode.GROUP_ID_NOT_FOUND if knows_epochs else ErrorCode.ILLEGAL_GENERATION)
        elif isinstance(group, ClassicGroup):
            group.check_commit(member_id, instance_id, generation, transactional=transactional)
            member = group.members.get(member_id) if member_id else None
            if member is not None and not member.is_new:
                return group.session_starts(member)
        else:
            _check_consumer_commit(group, member_id, generation, version, transactional)
        return None

    def stores_all(self, topics: TopicCommits) -> bool:
        """Whether none of the partitions in a commit is refused."""
        config = self._config
        for name, partitions in topics:
            partition_count = self._topics.partition_count(name) or 0
            for index, _, _, metadata in partitions:
                if commit_error(index, metadata, partition_count, config) is not _NO_ERROR:
                    return False
        return True

    def replay_commit(self, group_id: str, topics: TopicCommits, commit_timestamp_ms: int, log_offset: int) -> int:
        """The same as `replay` of the records of a commit, one for each partition, which lie from `log_offset` on.

        Returns where they end.
        """
        replay_offset = self._groups.replay_offset
        for name, partitions in topics:
            for index, offset, leader_epoch, metadata in partitions:
                committed = CommittedOffset(offset, leader_epoch, metadata, commit_timestamp_ms, -1, log_offset)
                replay_offset(group_id, (name, index), committed)
                log_offset += 1
        return log_offset

    def commit_transactional_offsets(
        self, request: TxnOffsetCommitRequest, token: Token, *, version: int, now_ms: int
    ) -> Decision:
        decision = Decision(producer=(request.producer_id, request.producer_epoch))
        try:
            session = self.check_commit(
                request.group_id,
                request.member_id,
                request.group_instance_id,
                request.generation_id,
                version=version,
                transactional=True,
            )
        except KafkaError as e:
            errors = offset_requests.all_failed(request.topics, e.code)
            return decision.reply(token, offset_requests.transactional_commit_response(errors))
        if session is not None:
            decision.timers.append(session)
        terms = offset_requests.CommitTerms(request.group_id, now_ms)
        decision.records, errors = offset_requests.commit(request.topics, terms, self._config, self._topics)
        return decision.reply(token, offset_requests.transactional_commit_response(errors))

    def fetch_offsets(self, group: OffsetFetchRequestGroup, *, require_stable: bool) -> OffsetFetchResponseGroup:
        owner = self._groups.get(group.group_id)
        if isinstance(owner, ConsumerGroup) and (group.member_id is not None or group.member_epoch >= 0):
            try:
                owner.check_fetch(group.member_id or "", group.member_epoch)
            except KafkaError as e:
                return OffsetFetchResponseGroup(group_id=group.group_id, error_code=e.code)
        return offset_requests.fetch(self._offsets, group, require_stable=require_stable)

    def delete_offsets(self, request: OffsetDeleteRequest, token: Token, *, now_ms: int) -> Decision:
        group = self._groups.get(request.group_id)
        try:
            if group is None:
                raise KafkaError(code=ErrorCode.GROUP_ID_NOT_FOUND)
            if isinstance(group, ClassicGroup):
                group.check_offsets_deletable()
        except KafkaError as e:
            return Decision().reply(token, OffsetDeleteResponse(error_code=e.code))
        records, response = offset_requests.delete(
            self._offsets, request.group_id, request.topics, self._topics, group.is_subscribed_to
        )
        return Decision(records=records).reply(token, response)

    def expire_offsets(self, now_ms: int) -> Decision:
        decision = Decision()
        for group in self._groups:
            decision.records += self._groups.expire(group, now_ms)
            if len(decision.records) >= _EXPIRED_AT_ONCE:
                break
        return decision

    def topic_deleted(self, topics: set[str], now_ms: int) -> Decision:
        return Decision(records=self._offsets.tombstones_of_topics(topics))


def _check_consumer_commit(
    group: ConsumerGroup, member_id: str, member_epoch: int, version: int, transactional: bool
) -> None:
    try:
        group.check_commit(member_id, member_epoch, knows_epochs=transactional or version >= _MEMBER_EPOCH_VERSION)
    except KafkaError as e:
        if transactional and e.code is ErrorCode.STALE_MEMBER_EPOCH:
            # TxnOffsetCommit has no word for it.
            raise KafkaError(code=ErrorCode.ILLEGAL_GENERATION) from e
        raise
