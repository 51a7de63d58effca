"""Replies to acks=all appends of one partition that wait until the records are committed, in the order of offsets.

One move of the high watermark completes all that it covers. No timer and no task per reply: the queue has one timer,
for the first that can be late.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode
from ottla.net.server_connection import ClientConnection
from ottla.net.service import LateReply
from ottla.wire.fused.produce import AppendedReply

if TYPE_CHECKING:
    from ottla.broker.partition import Partition

_NEVER_S = float("inf")

_Entry = tuple[int, float, LateReply, ClientConnection, bytes, AppendedReply, int]
"""Last offset, when it is late, the reply to be filled, whose, with what; how to tell an error, and its correlation
id."""


class UncommittedReplies:
    def __init__(self, partition: Partition, loop: asyncio.AbstractEventLoop) -> None:
        self._partition = partition
        self._loop = loop
        self._leads_since = partition.leads_since
        self._entries: deque[_Entry] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = _NEVER_S
        partition.waiters[self] = None

    def __len__(self) -> int:
        return len(self._entries)

    def add(
        self,
        last_offset: int,
        late_s: float,
        connection: ClientConnection,
        reply: bytes,
        form: AppendedReply,
        correlation_id: int,
    ) -> LateReply:
        """`reply` is given once the records up to `last_offset` are committed; `late_s` is in the loop's time."""
        if self._partition.leads_since != self._leads_since:
            self._fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._leads_since = self._partition.leads_since
        late = LateReply()
        self._entries.append((last_offset, late_s, late, connection, reply, form, correlation_id))
        if late_s < self._timer_s:
            self._set_timer(late_s)
        return late

    def try_complete(self) -> None:
        entries = self._entries
        if not entries:
            return
        leader = self._partition.leader
        if leader is None or self._partition.leads_since != self._leads_since:
            self._fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        high_watermark = leader.high_watermark
        if entries[0][0] >= high_watermark:
            return
        if not leader.has_enough_replicas:
            covered = sum(1 for entry in entries if entry[0] < high_watermark)
            self._fail([entries.popleft() for _ in range(covered)], ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            return
        connections: dict[ClientConnection, None] = {}
        while entries and entries[0][0] < high_watermark:
            _, _, late, connection, reply, _, _ = entries.popleft()
            late.append(reply)
            connections[connection] = None
        for connection in connections:
            connection.late_replies_came()

    def drop_unwritten(self) -> None:
        """The write of what was staged is done: where it failed, those that are not in the log are told."""
        entries, end_offset = self._entries, self._partition.log.log_end_offset
        dropped: list[_Entry] = []
        while entries and entries[-1][0] >= end_offset:
            dropped.append(entries.pop())
        if dropped:
            self._fail(dropped[::-1], ErrorCode.KAFKA_STORAGE_ERROR)

    def time_is_up(self) -> None:
        self._fail_all(ErrorCode.REQUEST_TIMED_OUT)

    def _fail_all(self, error: ErrorCode) -> None:
        failed, self._entries = self._entries, deque()
        self._fail(failed, error)

    def _fail(self, failed: deque[_Entry] | list[_Entry], error: ErrorCode) -> None:
        connections: dict[ClientConnection, None] = {}
        for _, _, late, connection, _, form, correlation_id in failed:
            late.append(form.encode_error(correlation_id, error))
            connections[connection] = None
        for connection in connections:
            connection.late_replies_came()

    def _set_timer(self, late_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = late_s
        self._timer = self._loop.call_at(late_s, self._some_are_late)

    def _some_are_late(self) -> None:
        self._timer, self._timer_s = None, _NEVER_S
        now_s = self._loop.time()
        late = [entry for entry in self._entries if entry[1] <= now_s]
        if late:
            self._entries = deque(entry for entry in self._entries if entry[1] > now_s)
            self._fail(late, ErrorCode.REQUEST_TIMED_OUT)
        if self._entries:
            self._set_timer(min(entry[1] for entry in self._entries))
