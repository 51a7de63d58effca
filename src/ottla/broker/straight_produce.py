"""The short way of nearly every produce request: one batch for one partition.

A request is staged here, and all that were staged are written together when the server has handled what it read. What
this broker alone can commit is answered then; what followers have to have first is answered by the partition's queue
(`uncommitted_replies`), many replies with one move of the high watermark. Whatever is the least bit unusual is left to
`handlers.produce`, which has all the rules; this module has none of its own, and gives the same replies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode
from ottla.broker.partition import Partition
from ottla.broker.uncommitted_replies import UncommittedReplies
from ottla.log.stage import NOT_STAGED
from ottla.machines.cluster.topic_names import INTERNAL_TOPICS
from ottla.net.outgoing import Piece
from ottla.net.server_connection import ClientConnection
from ottla.wire.fused.produce import AppendedReply, read_single_produce

if TYPE_CHECKING:
    from ottla.broker.node import Broker

# Earlier versions must not send zstd, so somebody has to look.
_FIRST_VERSION = 7
_ALL, _LEADER = -1, 1

_LAST_OFFSET = 1
"""Its place in a `WrittenBatch`."""

_Staged = tuple[Partition, list[Piece] | None, AppendedReply, int, int]
"""Partition, the reply to be filled, how to fill it, correlation id, first offset. Of the replies that its queue will
fill a partition has one entry at most, without a reply."""


class StraightProduce:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._clock = broker.clock
        self._loop = broker.parked.loop
        self._replicas = broker.replicas
        self._find = broker.replicas.find
        self._quotas = broker.quotas
        self._now_ms = 0
        """Read once for all that is staged together."""
        self.staged: list[_Staged] = []

    def stage(
        self, connection: ClientConnection, version: int, correlation_id: int, frame: memoryview, position: int
    ) -> list[Piece] | None:
        """The reply, empty until `settle` has written the batch; None if the request must go the long way."""
        if version < _FIRST_VERSION:
            return None
        request = read_single_produce(frame, version, position)
        if request is None:
            return None
        acks, timeout_ms, topic, index, records = request
        partition = self._find(topic, index)
        if partition is None or topic in INTERNAL_TOPICS or not connection.state.may_write(topic):
            return None
        leader = partition.leader
        if leader is None or not (acks == _LEADER or (acks == _ALL and leader.has_enough_replicas)):
            return None
        staged = self.staged
        if not staged:
            self._now_ms = self._clock.wall_ms()
        log = partition.log
        is_first = not log.stage.has_batches
        first_offset = log.stage.add(records, leader.leader_epoch, self._now_ms)
        if first_offset == NOT_STAGED:
            return None
        form = partition.produce_replies.get(version)
        if form is None:
            form = partition.produce_replies[version] = AppendedReply(version, topic, index)
        if self._quotas.is_limiting:
            rate = connection.state.rates_in(frame, position, self._now_ms).producer
            throttle_ms = 0 if rate is None else rate.record(len(frame), self._now_ms)
            if throttle_ms:
                form = AppendedReply(version, topic, index, throttle_ms)
                connection.mute(throttle_ms)
        if acks == _ALL and not leader.commits_alone:
            if is_first:
                staged.append((partition, None, form, correlation_id, first_offset))
            waiting = partition.uncommitted
            if waiting is None:
                waiting = partition.uncommitted = UncommittedReplies(partition, self._loop)
            return waiting.add(
                log.stage.newest[_LAST_OFFSET],
                self._loop.time() + max(timeout_ms, 0) / 1000,
                connection,
                form.encode(correlation_id, first_offset, log.log_start_offset),
                form,
                correlation_id,
            )
        reply: list[Piece] = []
        staged.append((partition, reply, form, correlation_id, first_offset))
        return reply

    def settle(self) -> None:
        """Writes what was staged and completes the replies, with an error where the write has failed."""
        staged, self.staged = self.staged, []
        for partition, reply, form, correlation_id, first_offset in staged:
            log = partition.log
            if log.stage.has_batches:
                self._replicas.commit_staged(partition, self._now_ms)
            if reply is None:
                continue
            if first_offset < log.log_end_offset:
                reply.append(form.encode(correlation_id, first_offset, log.log_start_offset))
            else:
                reply.append(form.encode_error(correlation_id, ErrorCode.KAFKA_STORAGE_ERROR))
