"""Runs a GroupShard as a broker would, with a log in memory and a clock that moves only when told to."""

from __future__ import annotations

import itertools
from typing import Any

from ottla.base.types import Uuid
from ottla.machines.coordinator import Decision, ReplayContext, Reply, SetTimer, TimerKey
from ottla.machines.groups.classic.group import ClassicGroup
from ottla.machines.groups.config import GroupConfig
from ottla.machines.groups.record_types import parse
from ottla.machines.groups.shard import GroupShard
from ottla.wire.apis.heartbeat import HeartbeatRequest
from ottla.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.apis.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.apis.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.message import Message
from ottla.wire.stored.consumer_protocol import ConsumerProtocolSubscription

GROUP = "g"
START_MS = 1_700_000_000_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000


class Topics:
    """Two topics of four partitions."""

    def __init__(self) -> None:
        self.counts = {"orders": 4, "clicks": 4}

    def names(self) -> list[str]:
        return list(self.counts)

    def partition_count(self, name: str) -> int | None:
        return self.counts.get(name)

    def topic_id(self, name: str) -> Uuid | None:
        return Uuid(name.encode().ljust(16, b"-")) if name in self.counts else None

    def name_of(self, topic_id: Uuid) -> str | None:
        return next((name for name in self.counts if self.topic_id(name) == topic_id), None)


LogEntry = tuple[bytes, bytes | None, tuple[int, int] | None] | tuple[int, bool]
"""(key, value, producer) of a record, or (producer id, committed) of a transaction marker."""


class Runner:
    def __init__(
        self, config: GroupConfig | None = None, log: list[LogEntry] | None = None, topics: Topics | None = None
    ) -> None:
        self.config = config or GroupConfig(initial_rebalance_delay_ms=DELAY_MS)
        self.topics = topics or Topics()
        self.now_ms = START_MS
        self.log: list[LogEntry] = []
        self.timers: dict[TimerKey, int] = {}
        self.replies: dict[object, Any] = {}
        self.asked: list[object] = []
        self.notes: list[str] = []
        self._ids = itertools.count(1)
        self.shard = GroupShard(self.config, self.topics)
        for entry in log or ():
            self._append(entry)
        if log is not None:
            self.perform(self.shard.loaded(self.now_ms))

    # What a coordinator's runtime does

    def perform(self, decision: Decision) -> None:
        for record in decision.records:
            key, value = record.encode()
            self._append((key, value, decision.producer))
        for timer in decision.timers:
            if isinstance(timer, SetTimer):
                self.timers[timer.key] = self.now_ms + timer.delay_ms
            else:
                self.timers.pop(timer.key, None)
        self.notes += decision.notes
        for effect in decision.effects:
            assert isinstance(effect, Reply)
            assert effect.token in self.asked, "a reply to nobody"
            assert effect.token not in self.replies, "a second reply"
            self.replies[effect.token] = effect.response

    def _append(self, entry: LogEntry) -> None:
        self.log.append(entry)
        if len(entry) == 2:
            self.shard.end_transaction(*entry)
            return
        key_bytes, value_bytes, producer = entry
        parsed = parse(key_bytes, value_bytes)
        assert parsed is not None
        producer_id, epoch = producer or (-1, -1)
        self.shard.replay(*parsed, ReplayContext(len(self.log) - 1, producer_id, epoch, self.now_ms))

    def marker(self, producer_id: int, *, committed: bool) -> None:
        self._append((producer_id, committed))

    def advance(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while self.timers:
            due_ms, key = min((due, key) for key, due in self.timers.items())
            if due_ms > end_ms:
                break
            self.now_ms = due_ms
            del self.timers[key]
            self.perform(self.shard.timer_fired(key, due_ms))
        self.now_ms = end_ms

    def reloaded(self, entries: int | None = None) -> Runner:
        """A new coordinator that has read the log, or its beginning."""
        return Runner(self.config, self.log[:entries], self.topics)

    # Requests

    def token(self) -> object:
        token = f"request {next(self._ids)}"
        self.asked.append(token)
        return token

    def reply(self, token: object) -> Any:
        return self.replies.get(token)

    def join(
        self,
        member_id: str = "",
        *,
        version: int = 9,
        instance_id: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] | None = None,
        protocol_type: str = "consumer",
        session_timeout_ms: int = SESSION_MS,
        rebalance_timeout_ms: int = REBALANCE_MS,
        group: str = GROUP,
        client_id: str = "client",
        client_host: str = "/127.0.0.1",
    ) -> object:
        token = self.token()
        chosen = (("range", subscription("orders")),) if protocols is None else protocols
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in chosen],
        )
        decision = self.shard.join(
            request,
            token,
            version=version,
            client_id=client_id,
            client_host=client_host,
            new_member_id=f"uuid{next(self._ids)}",
            now_ms=self.now_ms,
        )
        self.perform(decision)
        return token

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        group: str = GROUP,
    ) -> object:
        token = self.token()
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=key, assignment=value)
                for key, value in (assignments or {}).items()
            ],
        )
        self.perform(self.shard.sync(request, token, version=5, now_ms=self.now_ms))
        return token

    def heartbeat(self, member_id: str, generation: int, *, instance_id: str | None = None, group: str = GROUP) -> int:
        token = self.token()
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance_id
        )
        self.perform(self.shard.heartbeat(request, token, now_ms=self.now_ms))
        return int(self.replies[token].error_code)

    def leave(self, *members: str | tuple[str, str], version: int = 5, group: str = GROUP) -> Any:
        """Members as ids, or as (id, instance id)."""
        token = self.token()
        pairs = [(member, None) if isinstance(member, str) else member for member in members]
        request = LeaveGroupRequest(group_id=group)
        if version < 3:
            request.member_id = pairs[0][0]
        else:
            request.members = [MemberIdentity(member_id=key, group_instance_id=name) for key, name in pairs]
        self.perform(self.shard.leave(request, token, version=version, now_ms=self.now_ms))
        return self.replies[token]

    def commit(
        self,
        offsets: dict[tuple[str, int], int],
        member_id: str = "",
        generation: int = -1,
        *,
        instance_id: str | None = None,
        metadata: str = "",
        version: int = 8,
        retention_time_ms: int = -1,
        group: str = GROUP,
    ) -> dict[tuple[str, int], int]:
        """The error of each partition."""
        token = self.token()
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            retention_time_ms=retention_time_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_metadata=metadata
                        )
                    ],
                )
                for (topic, index), offset in offsets.items()
            ],
        )
        self.perform(self.shard.commit_offsets(request, token, version=version, now_ms=self.now_ms))
        return _errors(self.replies[token])

    def commit_in_transaction(
        self,
        offsets: dict[tuple[str, int], int],
        producer_id: int,
        member_id: str = "",
        generation: int = -1,
        *,
        group: str = GROUP,
    ) -> dict[tuple[str, int], int]:
        token = self.token()
        request = TxnOffsetCommitRequest(
            transactional_id=f"txn-{producer_id}",
            group_id=group,
            producer_id=producer_id,
            producer_epoch=0,
            generation_id=generation,
            member_id=member_id,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset)],
                )
                for (topic, index), offset in offsets.items()
            ],
        )
        self.perform(self.shard.commit_transactional_offsets(request, token, version=3, now_ms=self.now_ms))
        return _errors(self.replies[token])

    def fetch(
        self, *partitions: tuple[str, int], require_stable: bool = False, group: str = GROUP
    ) -> dict[tuple[str, int], tuple[int, int]]:
        """(offset, error) of each partition; of all that have an offset if none is named."""
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[index]) for topic, index in partitions]
        request = OffsetFetchRequestGroup(group_id=group, topics=topics if partitions else None)
        response = self.shard.fetch_offsets(request, require_stable=require_stable)
        assert response.error_code == 0
        return {
            (topic.name, item.partition_index): (item.committed_offset, item.error_code)
            for topic in response.topics
            for item in topic.partitions
        }

    # What is there

    @property
    def group(self) -> ClassicGroup:
        group = self.shard._groups.get(GROUP)
        assert isinstance(group, ClassicGroup)
        return group

    def has_group(self, group: str = GROUP) -> bool:
        return self.shard._groups.get(group) is not None

    def stable_group(self, *members: str) -> list[str]:
        """Brings up a group of dynamic members with these client ids; gives their member ids, the leader first."""
        ids = [str(self.replies[self.join(client_id=name)].member_id) for name in members]
        tokens = [self.join(member_id, client_id=name) for member_id, name in zip(ids, members, strict=True)]
        self.advance(min(DELAY_MS * (len(members) + 1), SESSION_MS - 1))
        replies = [self.replies[token] for token in tokens]
        assert {reply.error_code for reply in replies} == {0}
        leader = str(replies[0].leader)
        ids.sort(key=lambda member_id: member_id != leader)
        self.sync(leader, replies[0].generation_id, {member_id: member_id.encode() for member_id in ids})
        for member_id in ids[1:]:
            assert self.replies[self.sync(member_id, replies[0].generation_id)].assignment == member_id.encode()
        return ids


def subscription(*topics: str) -> bytes:
    return ConsumerProtocolSubscription(topics=list(topics)).encode_versioned(1)


def _errors(response: Any) -> dict[tuple[str, int], int]:
    assert isinstance(response, Message)
    return {
        (topic.name, item.partition_index): item.error_code
        for topic in response.topics  # type: ignore[attr-defined]
        for item in topic.partitions
    }
