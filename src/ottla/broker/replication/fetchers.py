"""Follows leaders: fetches what they have appended and stores it as it is, header and checksum looked at, nothing else.

One task and one connection per leader broker, whatever the number of partitions: a fetch session tells the leader only
what has changed. A partition that fails waits by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from ottla.base.clock import Clock
from ottla.base.errors import ErrorCode, KafkaError, LogDirError, OttlaError
from ottla.base.types import TopicPartition
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.partition import Partition
from ottla.broker.replicas import Replicas
from ottla.broker.replication.peers import Peers
from ottla.machines.reader_session import FetchSession, Wanted
from ottla.machines.replication.follower import (
    Append,
    AskOffsets,
    BackOff,
    Fetched,
    StartAnew,
    Step,
    Truncate,
    after_fetch,
    after_offsets,
)
from ottla.records.batch import iter_headers
from ottla.wire.apis.fetch import FetchablePartitionResponse, FetchRequest, FetchResponse, ReplicaState
from ottla.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

log = logging.getLogger(__name__)

_EARLIEST, _LATEST = -2, -1
_ANSWER_MARGIN_MS = 30_000
_FIRST_WAIT_MS = 20
_IDLE_MS = 60_000


@dataclass(slots=True, eq=False)
class _Followed:
    partition: Partition
    leader_epoch: int
    waits_until_ms: int = 0
    wait_ms: int = 0
    """Grows from try to try: most often the leader only has to hear of its role."""
    told_error: int = ErrorCode.NONE
    """An error is told once, not with every try."""


class ReplicaFetchers:
    """Of one broker. `follow` and `forget` are called with every role a partition is given."""

    def __init__(
        self,
        broker_id: int,
        peers: Peers,
        replicas: Replicas,
        clock: Clock,
        config: Callable[[], BrokerConfig],
        broker_epoch: Callable[[], int],
    ) -> None:
        self.broker_id = broker_id
        self.peers = peers
        self.replicas = replicas
        self.clock = clock
        self.config = config
        self.broker_epoch = broker_epoch
        self._by_source: dict[int, _SourceFetcher] = {}

    def follow(self, partition: Partition) -> None:
        """Under the leader and the epoch that the partition has now."""
        self.forget(partition.tp)
        if partition.leader_id < 0:
            return
        fetcher = self._by_source.get(partition.leader_id)
        if fetcher is None:
            fetcher = self._by_source[partition.leader_id] = _SourceFetcher(self, partition.leader_id)
        fetcher.add(partition)

    def forget(self, tp: TopicPartition) -> None:
        for source, fetcher in list(self._by_source.items()):
            fetcher.remove(tp)
            if fetcher.is_idle:
                del self._by_source[source]
                fetcher.cancel()

    async def stop(self) -> None:
        fetchers, self._by_source = list(self._by_source.values()), {}
        for fetcher in fetchers:
            fetcher.cancel()
        await asyncio.gather(*(fetcher.task for fetcher in fetchers), return_exceptions=True)


class _SourceFetcher:
    """All that is fetched from one broker."""

    def __init__(self, owner: ReplicaFetchers, source: int) -> None:
        self._owner = owner
        self._source = source
        self._followed: dict[TopicPartition, _Followed] = {}
        self._session = FetchSession()
        self._changed = asyncio.Event()
        self._is_away = False
        """Told once, until it answers again."""
        self.task = asyncio.get_running_loop().create_task(self._run())

    @property
    def is_idle(self) -> bool:
        return not self._followed

    def add(self, partition: Partition) -> None:
        self._followed[partition.tp] = _Followed(partition, partition.leader_epoch)
        self._changed.set()

    def remove(self, tp: TopicPartition) -> None:
        self._followed.pop(tp, None)

    def cancel(self) -> None:
        self.task.cancel()

    async def _run(self) -> None:
        while True:
            wanted = self._wanted()
            if not wanted:
                await self._wait_for_work()
                continue
            try:
                response = await self._fetch(wanted)
                self._session.answered(response.error_code, response.session_id)
                if response.error_code == ErrorCode.NONE:
                    await self._take(response)
                self._is_away = False
            except (KafkaError, OSError) as e:
                if not self._is_away:
                    log.info("replicas cannot be fetched from broker %d for now: %s", self._source, e)
                self._is_away = True
                await self._start_over()
            except Exception:
                log.exception("replicas of broker %d could not be fetched", self._source)
                await self._start_over()

    async def _start_over(self) -> None:
        self._session.dropped()
        await asyncio.sleep(self._backoff_ms() / 1000)

    async def _wait_for_work(self) -> None:
        self._changed.clear()
        now_ms = self._owner.clock.monotonic_ms()
        wait_ms = min((followed.waits_until_ms - now_ms for followed in self._followed.values()), default=_IDLE_MS)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), max(wait_ms, 1) / 1000)

    def _backoff_ms(self) -> int:
        return self._owner.config().integer("replica.fetch.backoff.ms")

    def _wanted(self) -> dict[TopicPartition, Wanted]:
        now_ms = self._owner.clock.monotonic_ms()
        max_bytes = self._owner.config().integer("replica.fetch.max.bytes")
        return {
            tp: Wanted(
                followed.partition.topic_id,
                followed.partition.log.log_end_offset,
                followed.leader_epoch,
                max_bytes,
                followed.partition.log.epochs.latest_epoch,
                followed.partition.log.log_start_offset,
            )
            for tp, followed in self._followed.items()
            if followed.waits_until_ms <= now_ms
        }

    async def _fetch(self, wanted: dict[TopicPartition, Wanted]) -> FetchResponse:
        config = self._owner.config()
        session = self._session.request(wanted)
        wait_ms = config.integer("replica.fetch.wait.max.ms")
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self._owner.broker_id, replica_epoch=self._owner.broker_epoch()),
            max_wait_ms=wait_ms,
            min_bytes=config.integer("replica.fetch.min.bytes"),
            max_bytes=config.integer("replica.fetch.response.max.bytes"),
            session_id=session.session_id,
            session_epoch=session.session_epoch,
            topics=session.topics,
            forgotten_topics_data=session.forgotten,
        )
        return await self._owner.peers.request(
            self._source, request, FetchResponse, work="fetch", timeout_ms=wait_ms + _ANSWER_MARGIN_MS
        )

    async def _take(self, response: FetchResponse) -> None:
        names = {followed.partition.topic_id: tp.topic for tp, followed in self._followed.items()}
        for topic in response.responses:
            name = names.get(topic.topic_id, topic.topic)
            for answer in topic.partitions:
                followed = self._followed.get(TopicPartition(name, answer.partition_index))
                if followed is not None:
                    await self._take_one(followed, answer)

    async def _take_one(self, followed: _Followed, answer: FetchablePartitionResponse) -> None:
        partition = followed.partition
        records, first = _whole_batches(answer.records)
        fetched = Fetched(answer.error_code, answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset, first)
        try:
            step = after_fetch(fetched, partition.log)
            if isinstance(step, AskOffsets):
                step = after_offsets(*await self._ask_offsets(partition), partition.log)
                records = memoryview(b"")
                if self._followed.get(partition.tp) is not followed:
                    return
            self._perform(followed, step, records, answer)
        except LogDirError as e:
            self._owner.replicas.directory_failed(partition.log.directory.parent, e)
            self.remove(partition.tp)
        except (OttlaError, OSError) as e:
            self._back_off(followed, getattr(e, "code", ErrorCode.UNKNOWN_SERVER_ERROR), str(e))

    def _perform(
        self, followed: _Followed, step: Step, records: memoryview, answer: FetchablePartitionResponse
    ) -> None:
        replicas, partition = self._owner.replicas, followed.partition
        match step:
            case Append():
                replicas.append_from_leader(partition, records, answer.high_watermark, answer.log_start_offset)
                followed.told_error, followed.wait_ms = ErrorCode.NONE, 0
            case Truncate(offset):
                _log_cut(partition, offset)
                partition.log.truncate_to(offset)
            case StartAnew(offset):
                log.warning("%s: the leader's log begins at %d, so this copy starts there", partition.tp, offset)
                partition.log.truncate_fully_and_start_at(offset)
            case BackOff(code):
                self._back_off(followed, code, ErrorCode(code).name)
            case AskOffsets():
                raise AssertionError("asked before")

    def _back_off(self, followed: _Followed, code: int, reason: str) -> None:
        if followed.told_error != code:
            log.info("%s cannot be fetched from broker %d for now: %s", followed.partition.tp, self._source, reason)
            followed.told_error = code
        followed.wait_ms = min(max(2 * followed.wait_ms, _FIRST_WAIT_MS), self._backoff_ms())
        followed.waits_until_ms = self._owner.clock.monotonic_ms() + followed.wait_ms

    async def _ask_offsets(self, partition: Partition) -> tuple[int, int]:
        """Where the leader's log begins and ends."""
        found = []
        for timestamp in (_EARLIEST, _LATEST):
            asked = ListOffsetsPartition(
                partition_index=partition.tp.partition,
                current_leader_epoch=partition.leader_epoch,
                timestamp=timestamp,
            )
            response = await self._owner.peers.request(
                self._source,
                ListOffsetsRequest(
                    replica_id=self._owner.broker_id,
                    topics=[ListOffsetsTopic(name=partition.tp.topic, partitions=[asked])],
                ),
                ListOffsetsResponse,
                work="fetch",
                timeout_ms=_ANSWER_MARGIN_MS,
            )
            answer = response.topics[0].partitions[0]
            if answer.error_code != ErrorCode.NONE:
                raise KafkaError(code=ErrorCode(answer.error_code))
            found.append(answer.offset)
        return found[0], found[1]


def _log_cut(partition: Partition, offset: int) -> None:
    lost = partition.log.high_watermark - offset
    cut = f"{partition.tp}: cut from {partition.log.log_end_offset} to {offset}, where the leader goes on"
    if lost > 0:
        log.error("%s; %d records were committed and are gone, for the leader has lost them", cut, lost)
    else:
        log.info("%s", cut)


def _whole_batches(records: bytes | memoryview | None) -> tuple[memoryview, int | None]:
    """Without the part of a batch that may be at the end; and the offset of the first, if there is one."""
    view = memoryview(records or b"")
    end, first = 0, None
    for position, header in iter_headers(view):
        first = header.base_offset if first is None else first
        end = position + header.size
    return view[:end], first
