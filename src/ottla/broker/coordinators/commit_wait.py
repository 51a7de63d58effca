"""Waiting for records to be committed, for code of the broker that can await."""

from __future__ import annotations

import asyncio

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.parked import Parked
from ottla.broker.partition import Partition, not_leader


class _CommitWait:
    def __init__(self, partition: Partition, last_offset: int) -> None:
        self._partition = partition
        self._leads_since = partition.leads_since
        self._last_offset = last_offset
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def try_complete(self) -> bool:
        leader = self._partition.leader
        if leader is None or self._partition.leads_since != self._leads_since:
            self._fail(not_leader(self._partition))
            return True
        if leader.high_watermark > self._last_offset:
            if not self.future.done():
                self.future.set_result(None)
            return True
        return False

    def expire(self) -> None:
        self._fail(KafkaError(code=ErrorCode.REQUEST_TIMED_OUT))

    def _fail(self, error: KafkaError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


async def wait_committed(parked: Parked, partition: Partition, last_offset: int, wait_ms: int) -> None:
    """Returns once the high watermark has passed `last_offset`; raises KafkaError if that fails or takes too long."""
    wait = _CommitWait(partition, last_offset)
    if wait.try_complete():
        await wait.future
        return
    request = parked.park(wait, [partition], wait_ms)
    try:
        await wait.future
    finally:
        request.forget()
