"""The short way of a fetch that finds records: a consumer asks for one partition, with a session or without.

Whatever is the least bit unusual is left to `handlers.fetch`, which has all the rules; this module has none of its own,
and gives the same replies. A fetch that has to wait is unusual in this sense, too. Until it is known that there is a
reply nothing is changed, so that the long way finds everything as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.base.errors import KafkaError
from ottla.broker.handlers.fetch import divergence
from ottla.machines.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION_ID, FetchRequestHead, PartitionKey
from ottla.net.outgoing import Piece
from ottla.net.server_connection import ClientConnection
from ottla.wire.fused.fetch import FetchPartition, FetchResult, encode_fetch_response
from ottla.wire.fused.fetch_request import FIRST_WITH_TOPIC_IDS
from ottla.wire.fused.fetch_single import read_single_fetch

if TYPE_CHECKING:
    from ottla.broker.node import Broker

_READ_COMMITTED = 1
_NO_EPOCH = -1
_NO_PREFERRED_REPLICA = -1


class StraightFetch:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._clock = broker.clock
        self._find = broker.replicas.find
        self._quotas = broker.quotas
        self._sessions = broker.fetch_sessions

    def reply(
        self, connection: ClientConnection, version: int, correlation_id: int, frame: memoryview, position: int
    ) -> Sequence[Piece] | None:
        """None if the request must go the long way."""
        request = read_single_fetch(frame, version, position)
        if request is None:
            return None
        wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, topic, named = request
        wanted, head = named, None
        if session_epoch != FINAL_EPOCH or session_id != NO_SESSION_ID:
            head = FetchRequestHead(session_id, session_epoch, version >= FIRST_WITH_TOPIC_IDS, False)
            if session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
                sole = self._sessions.sole_partition(head)
                if sole is None or (named is not None and sole[0] != (topic, named.partition)):
                    return None
                if named is None:
                    (topic, _), wanted = sole
        if topic is None or wanted is None:
            return None
        index, epoch, offset, last_fetched_epoch, _, limit = wanted
        broker = self._broker
        name = topic if isinstance(topic, str) else broker.image.topic_name(topic)
        partition = None if name is None else self._find(name, index)
        if (
            name is None
            or partition is None
            or partition.leader is None
            or (name is not topic and partition.topic_id != topic)
            or (epoch != _NO_EPOCH and epoch != partition.leader_epoch)
            or not connection.state.may_read(name)
        ):
            return None
        log = partition.log
        high_watermark, last_stable_offset = log.high_watermark, log.last_stable_offset
        is_committed_read = isolation_level == _READ_COMMITTED
        end_offset = last_stable_offset if is_committed_read else high_watermark
        if not log.log_start_offset <= offset < end_offset:
            return None
        limit = min(limit, max_bytes, broker.config.integer("fetch.max.bytes"))
        rate, now_ms = None, 0
        if self._quotas.is_limiting:
            now_ms = self._clock.wall_ms()
            rate = connection.state.rates_in(frame, position, now_ms).consumer
            if rate is not None:
                limit = min(limit, rate.most_in_window)
        try:
            if last_fetched_epoch >= 0 and divergence(log, wanted) is not None:
                return None
            found = log.read(offset, max(limit, 0), end_offset=end_offset)
        except KafkaError:
            return None
        data = found.data
        if data is None or (data.length < min_bytes and wait_ms > 0 and found.is_last_segment):
            return None
        if rate is not None and rate.record(data.length, now_ms):
            rate.take_back(data.length)
            return None
        aborted = None
        if is_committed_read:
            aborted = [(aborted.producer_id, aborted.first_offset) for aborted in log.aborted_in(found, end_offset)]
        result = FetchResult(
            index,
            0,
            high_watermark,
            last_stable_offset,
            log.log_start_offset,
            aborted,
            _NO_PREFERRED_REPLICA,
            None,
            None,
            data,
        )
        if head is not None:
            session_id = self._note_in_session(head, (topic, index), named, result)
        return encode_fetch_response(version, correlation_id, [(topic, [result])], session_id=session_id)

    def _note_in_session(
        self, head: FetchRequestHead, key: PartitionKey, named: FetchPartition | None, result: FetchResult
    ) -> int:
        """The reply is certain now. Returns the session it belongs to."""
        is_new = head.session_epoch == INITIAL_EPOCH
        context = self._sessions.begin(
            head,
            () if named is None else ((key, named),),
            (),
            now_ms=self._clock.monotonic_ms(),
            new_session_id=self._broker.ids.fetch_session_id() if is_new else 0,
        )
        context.select(((key, result),), (True,))
        return context.session_id
