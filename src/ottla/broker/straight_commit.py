"""The short way of nearly every offset commit: all its partitions can be stored, by a coordinator that commits alone.

Commits are staged here, and all that were staged for one partition of `__consumer_offsets` become one batch when the
server has handled what it read. Whatever is the least bit unusual is left to `handlers.offset_commit`, which has all
the rules; this module has none of its own, and gives the same replies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import KafkaError
from ottla.broker.admission import Admission
from ottla.broker.coordinators.runtime import Shard
from ottla.machines.coordinator import SetTimer, TimerKey
from ottla.machines.groups.shard import GroupShard
from ottla.net.outgoing import Piece
from ottla.net.server_connection import ClientConnection
from ottla.records.batch import HEADER_SIZE
from ottla.records.builder import encode_record
from ottla.wire.fused.commit_form import CommitForm, has_form
from ottla.wire.fused.offset_commit import (
    Commit,
    TopicCommits,
    encode_commit_reply,
    encode_offset_key,
    encode_offset_value,
    read_commit,
)

if TYPE_CHECKING:
    from ottla.broker.node import Broker

_FIRST_VERSION, _LAST_VERSION = 2, 9

_Waiting = tuple[list[Piece], int, int, str, TopicCommits]
"""The reply to be filled, version, correlation id, group, and what it commits."""


class _Staged:
    """The commits of one shard that share a batch."""

    __slots__ = ("records", "room_bytes", "timers", "waiting")

    def __init__(self, room_bytes: int) -> None:
        self.records: list[bytes] = []
        self.room_bytes = room_bytes
        """What the batch still takes."""
        self.waiting: list[_Waiting] = []
        self.timers: dict[TimerKey, SetTimer] = {}
        """Of the sessions that begin anew, once however often a member has committed."""


class _KnownCommit:
    """The last commit of a connection, and where it went. Most connections repeat it, with another offset."""

    __slots__ = ("form", "generations", "shard")

    def __init__(self, form: CommitForm, shard: Shard[GroupShard], generations: tuple[int, int]) -> None:
        self.form = form
        self.shard = shard
        self.generations = generations
        """Of rules and cluster: as long as they are the same, the client may commit, and the group is the shard's."""


class StraightCommit:
    def __init__(self, broker: Broker) -> None:
        self._clock = broker.clock
        self._runtime = broker.groups.runtime
        self._authorizer = broker.authorizer
        self._image = broker.image
        self._now_ms = 0
        """Read once for all that is staged together."""
        self.staged: dict[Shard[GroupShard], _Staged] = {}

    def stage(
        self, connection: ClientConnection, version: int, correlation_id: int, frame: memoryview, position: int
    ) -> list[Piece] | None:
        """The reply, empty until `settle` has stored the offsets; None if the request must go the long way."""
        admission: Admission = connection.state
        generations = (self._authorizer.generation, self._image.generation)
        known: _KnownCommit | None = admission.last_commit
        if known is not None and known.generations == generations:
            commit = known.form.read(frame, version, position)
            if commit is not None:
                return self._stage(known.shard, commit, known.form.key, version, correlation_id)
        if not _FIRST_VERSION <= version <= _LAST_VERSION:
            return None
        commit = read_commit(frame, version, position)
        if commit is None:
            return None
        group_id, topics = commit[0], commit[4]
        if not admission.may_read_group(group_id) or not all(admission.may_read(topic) for topic, _ in topics):
            return None
        shard = self._runtime.find_shard(group_id)
        if shard is None:
            return None
        if has_form(commit, version):
            admission.last_commit = _KnownCommit(CommitForm(commit, version, frame, position), shard, generations)
        return self._stage(shard, commit, None, version, correlation_id)

    def _stage(
        self, shard: Shard[GroupShard], commit: Commit, known_key: bytes | None, version: int, correlation_id: int
    ) -> list[Piece] | None:
        """`known_key` is that of the only record, if it is known already."""
        group_id, generation, member_id, instance_id, topics = commit
        machine = shard.machine
        if not self._runtime.commits_alone(shard) or not machine.stores_all(topics):
            return None
        try:
            session = machine.check_commit(group_id, member_id, instance_id, generation, version=version)
        except KafkaError:
            return None
        if not self.staged:
            self._now_ms = self._clock.wall_ms()
        staged = self.staged.get(shard)
        if staged is None:
            staged = _Staged(shard.partition.log.config.max_message_bytes - HEADER_SIZE)
        records, room_bytes = staged.records, staged.room_bytes
        first, now_ms = len(records), self._now_ms
        for topic, partitions in topics:
            for index, offset, leader_epoch, metadata in partitions:
                key = known_key or encode_offset_key(group_id, topic, index)
                value = encode_offset_value(offset, leader_epoch, metadata, now_ms)
                record = encode_record(len(records), 0, key, value)
                room_bytes -= len(record)
                records.append(record)
        if room_bytes < 0:
            del records[first:]
            return None
        staged.room_bytes = room_bytes
        if session is not None:
            staged.timers[session.key] = session
        reply: list[Piece] = []
        staged.waiting.append((reply, version, correlation_id, group_id, topics))
        self.staged[shard] = staged
        return reply

    def settle(self) -> None:
        """Stores what was staged and completes the replies, with an error where that has failed."""
        if not self.staged:
            return
        all_staged, self.staged = self.staged, {}
        now_ms = self._now_ms
        for shard, staged in all_staged.items():
            try:
                log_offset = self._runtime.append(shard, staged.records, now_ms)
            except KafkaError as e:
                for reply, version, correlation_id, _, topics in staged.waiting:
                    reply.append(encode_commit_reply(version, correlation_id, topics, e.code))
                continue
            for timer in staged.timers.values():
                self._runtime.set_timer(shard, timer)
            replay_commit = shard.machine.replay_commit
            for reply, version, correlation_id, group_id, topics in staged.waiting:
                log_offset = replay_commit(group_id, topics, now_ms, log_offset)
                reply.append(encode_commit_reply(version, correlation_id, topics))
