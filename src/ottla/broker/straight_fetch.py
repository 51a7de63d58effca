"""The short way of a fetch that finds records: a consumer without a session asks for one partition.

Whatever is the least bit unusual is left to `handlers.fetch`, which has all the rules; this module has none of its own,
and gives the same replies. A fetch that has to wait is unusual in this sense, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.base.errors import KafkaError
from ottla.broker.authorizer import AllowAll
from ottla.net.outgoing import Piece
from ottla.wire.fused.fetch import FetchResult, encode_fetch_response
from ottla.wire.fused.fetch_single import read_single_fetch

if TYPE_CHECKING:
    from ottla.broker.node import Broker

_READ_COMMITTED = 1
_NO_EPOCH = -1
_NO_PREFERRED_REPLICA = -1


class StraightFetch:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._find = broker.replicas.find

    def reply(self, version: int, correlation_id: int, frame: memoryview, position: int) -> Sequence[Piece] | None:
        """None if the request must go the long way."""
        broker = self._broker
        if type(broker.authorizer) is not AllowAll:
            return None
        request = read_single_fetch(frame, version, position)
        if request is None:
            return None
        wait_ms, min_bytes, max_bytes, isolation_level, topic, index, epoch, offset, limit = request
        name = topic if isinstance(topic, str) else broker.image.topic_name(topic)
        partition = None if name is None else self._find(name, index)
        if (
            partition is None
            or partition.leader is None
            or (name is not topic and partition.topic_id != topic)
            or (epoch != _NO_EPOCH and epoch != partition.leader_epoch)
        ):
            return None
        log = partition.log
        high_watermark, last_stable_offset = log.high_watermark, log.last_stable_offset
        is_committed_read = isolation_level == _READ_COMMITTED
        end_offset = last_stable_offset if is_committed_read else high_watermark
        if not log.log_start_offset <= offset < end_offset:
            return None
        limit = min(limit, max_bytes, broker.config.integer("fetch.max.bytes"))
        try:
            found = log.read(offset, max(limit, 0), end_offset=end_offset)
        except KafkaError:
            return None
        data = found.data
        if data is None or (data.length < min_bytes and wait_ms > 0 and found.is_last_segment):
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
        return encode_fetch_response(version, correlation_id, [(topic, [result])])
