"""Follows leaders: fetches what they have appended and stores it as it is, header and checksum looked at, nothing else.

A few connections per leader broker (`num.replica.fetchers`), whatever the number of partitions: fetch sessions tell the
leader only what has changed, and only that is looked at here. A partition that fails waits by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from ottla.base.clock import Clock
from ottla.base.errors import ErrorCode, KafkaError, LogDirError, OttlaError
from ottla.base.types import TopicPartition, Uuid
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.partition import Partition
from ottla.broker.replicas import Replicas
from ottla.broker.replication.leader_offsets import ask_leader_offsets
from ottla.broker.replication.peers import Peers
from ottla.broker.replication.throttles import ReplicationThrottle
from ottla.machines.reader_session import FetchSession, Wanted
from ottla.machines.replication.follower import (
    NOT_TOLD_YET,
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
from ottla.net.connection import Connection
from ottla.net.limits import OS_DEFAULT
from ottla.records.batch import peek_first_offset
from ottla.records.hashing import java_string_hash
from ottla.wire.api_keys import ApiKey
from ottla.wire.apis.fetch import FetchablePartitionResponse, FetchRequest, FetchResponse, ReplicaState
from ottla.wire.header import encode_request_frame, read_response_header

log = logging.getLogger(__name__)

_FIRST_WAIT_MS = 20
_IDLE_MS = 60_000
_NOTHING = memoryview(b"")


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
        *,
        throttle: ReplicationThrottle,
    ) -> None:
        self.broker_id = broker_id
        self.peers = peers
        self.replicas = replicas
        self.clock = clock
        self.config = config
        self.broker_epoch = broker_epoch
        self.throttle = throttle
        self._fetchers: dict[tuple[int, int], _SourceFetcher] = {}
        """By leader broker, and by number."""
        self._of: dict[TopicPartition, _SourceFetcher] = {}
        self._per_source = 1

    def follow(self, partition: Partition) -> None:
        """Under the leader and the epoch that the partition has now."""
        tp, source = partition.tp, partition.leader_id
        if source < 0:
            self.forget(tp)
            return
        self._per_source = max(self.config().integer("num.replica.fetchers"), 1)
        key = source, _fetcher_number(tp, self._per_source)
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            fetcher = self._fetchers[key] = _SourceFetcher(self, *key)
        if self._of.get(tp) is not fetcher:
            self.forget(tp)
        self._of[tp] = fetcher
        fetcher.add(partition)

    def forget(self, tp: TopicPartition) -> None:
        fetcher = self._of.pop(tp, None)
        if fetcher is None:
            return
        fetcher.remove(tp)
        if fetcher.is_idle:
            del self._fetchers[fetcher.key]
            fetcher.cancel()

    def reconfigured(self) -> None:
        """Spreads the partitions anew, if the number of connections per leader was changed."""
        if max(self.config().integer("num.replica.fetchers"), 1) != self._per_source:
            for fetcher in list(self._fetchers.values()):
                for partition in fetcher.partitions:
                    self.follow(partition)

    async def stop(self) -> None:
        fetchers, self._fetchers, self._of = list(self._fetchers.values()), {}, {}
        for fetcher in fetchers:
            fetcher.cancel()
        await asyncio.gather(*(fetcher.task for fetcher in fetchers), return_exceptions=True)


def _fetcher_number(tp: TopicPartition, count: int) -> int:
    return abs(31 * java_string_hash(tp.topic) + tp.partition) % count


class _SourceFetcher:
    """What is fetched from one broker over one connection, with one fetch session.

    While all goes well there is no task between a reply and the next request: the reply is stored as it arrives, and
    the next request, which tells the leader so, is written at once. The task makes connections, and waits.
    """

    def __init__(self, owner: ReplicaFetchers, source: int, number: int) -> None:
        self._owner = owner
        self._source = source
        self.key = source, number
        self._followed: dict[TopicPartition, _Followed] = {}
        self._by_id: dict[tuple[Uuid, int], _Followed] = {}
        self._resting: dict[TopicPartition, _Followed] = {}
        """Those that have failed and wait."""
        self._held_back: dict[TopicPartition, _Followed] = {}
        """Those of them that wait because of a throttle."""
        self._touched: dict[TopicPartition, None] = {}
        """What the leader may have to be told about, because it was not told yet or has changed since."""
        self._asking: list[_Followed] = []
        """Those whose leader has to say where its log begins and ends before they go on."""
        self._session = FetchSession()
        self._changed = asyncio.Event()
        self._connection: Connection | None = None
        self._version = 0
        self._pause: asyncio.Future[None] | None = None
        """What the task waits for while requests follow replies: something that needs it, or an error."""
        self._is_cancelled = False
        self._is_away = False
        """Told once, until it answers again."""
        self.task = asyncio.get_running_loop().create_task(self._run())

    @property
    def is_idle(self) -> bool:
        return not self._followed

    @property
    def partitions(self) -> list[Partition]:
        return [followed.partition for followed in self._followed.values()]

    def add(self, partition: Partition) -> None:
        self.remove(partition.tp)
        followed = self._followed[partition.tp] = _Followed(partition, partition.leader_epoch)
        self._by_id[partition.topic_id, partition.tp.partition] = followed
        self._changed.set()

    def remove(self, tp: TopicPartition) -> None:
        followed = self._followed.pop(tp, None)
        if followed is not None:
            self._by_id.pop((followed.partition.topic_id, tp.partition), None)
            self._resting.pop(tp, None)
            self._held_back.pop(tp, None)
        self._touched[tp] = None

    def cancel(self) -> None:
        self._is_cancelled = True
        self.task.cancel()
        if self._connection is not None:
            # The leader may hold a request of ours, and a successor would wait behind it.
            self._connection.close()

    # The task

    async def _run(self) -> None:
        while True:
            try:
                if not self._has_work():
                    await self._wait_for_work()
                    continue
                self._connection = await self._connect()
                self._version = self._connection.version_for(FetchRequest)
                self._pause = asyncio.get_running_loop().create_future()
                self._send_next()
                await self._pause
                for followed in self._take_asking():
                    await self._ask_and_go_on(followed)
            except (KafkaError, OSError) as e:
                if not self._is_away:
                    log.info("replicas cannot be fetched from broker %d for now: %s", self._source, e)
                self._is_away = True
                await self._start_over()
            except Exception:
                log.exception("replicas of broker %d could not be fetched", self._source)
                await self._start_over()

    async def _connect(self) -> Connection:
        config, name = self._owner.config(), "replica.socket.receive.buffer.bytes"
        buffer_bytes = config.integer(name) if name in config.given else OS_DEFAULT
        return await self._owner.peers.connection(self._source, self._work, receive_buffer_bytes=buffer_bytes)

    @property
    def _work(self) -> str:
        return f"fetch-{self.key[1]}"

    async def _start_over(self) -> None:
        self._session.dropped()
        await asyncio.sleep(self._backoff_ms() / 1000)

    def _has_work(self) -> bool:
        self._wake_rested()
        return len(self._resting) < len(self._followed)

    async def _wait_for_work(self) -> None:
        self._changed.clear()
        now_ms = self._owner.clock.monotonic_ms()
        wait_ms = min((followed.waits_until_ms - now_ms for followed in self._resting.values()), default=_IDLE_MS)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), max(wait_ms, 1) / 1000)

    def _wake_rested(self) -> None:
        if self._resting:
            now_ms = self._owner.clock.monotonic_ms()
            for tp, followed in list(self._resting.items()):
                if followed.waits_until_ms <= now_ms:
                    del self._resting[tp]
                    self._held_back.pop(tp, None)
                    self._touched[tp] = None

    def _shortened(self, wait_ms: int) -> int:
        """Who is held back by a throttle is not to wait for what others wait for."""
        if self._held_back:
            now_ms = self._owner.clock.monotonic_ms()
            return max(min(wait_ms, *(followed.waits_until_ms - now_ms for followed in self._held_back.values())), 1)
        return wait_ms

    def _backoff_ms(self) -> int:
        return self._owner.config().integer("replica.fetch.backoff.ms")

    def _hand_over(self, error: Exception | None = None) -> None:
        """Lets the task go on."""
        if self._pause is not None and not self._pause.done():
            if error is None:
                self._pause.set_result(None)
            else:
                self._pause.set_exception(error)

    # Requests and replies

    def _send_next(self) -> None:
        connection = self._connection
        assert connection is not None
        if not connection.is_writable:
            self._hand_over(KafkaError("the connection was lost", code=ErrorCode.NETWORK_EXCEPTION))
            return
        config = self._owner.config()
        wait_ms = self._shortened(config.integer("replica.fetch.wait.max.ms"))
        request, version = self._request(config, wait_ms), self._version
        connection.begin(
            lambda correlation_id: encode_request_frame(request, version, correlation_id, connection.client_id),
            self._received,
            api_key=ApiKey.FETCH,
            timeout_ms=wait_ms + config.integer("replica.socket.timeout.ms"),
        )

    def _request(self, config: BrokerConfig, wait_ms: int) -> FetchRequest:
        max_bytes = config.integer("replica.fetch.max.bytes")
        if self._session.is_full:
            touched, self._touched = dict.fromkeys(self._followed), {}
        else:
            touched, self._touched = self._touched, {}
        changed: dict[TopicPartition, Wanted] = {}
        gone: list[TopicPartition] = []
        for tp in touched:
            followed = self._followed.get(tp)
            if followed is None or tp in self._resting:
                gone.append(tp)
                continue
            partition = followed.partition
            changed[tp] = Wanted(
                partition.topic_id,
                partition.log.log_end_offset,
                followed.leader_epoch,
                max_bytes,
                partition.log.epochs.latest_epoch,
                partition.log.log_start_offset,
            )
        session = self._session.request_changes(changed, gone)
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self._owner.broker_id, replica_epoch=self._owner.broker_epoch()),
            max_wait_ms=wait_ms,
            min_bytes=config.integer("replica.fetch.min.bytes"),
            max_bytes=config.integer("replica.fetch.response.max.bytes"),
            session_id=session.session_id,
            session_epoch=session.session_epoch,
            topics=session.topics,
            forgotten_topics_data=session.forgotten,
        )

    def _received(self, frame: memoryview | OttlaError) -> None:
        if self._is_cancelled:
            return
        if isinstance(frame, OttlaError):
            self._hand_over(frame)
            return
        try:
            _, position = read_response_header(frame, ApiKey.FETCH, self._version)
            self._take(FetchResponse.decode(frame, self._version, position)[0])
            if self._asking or not self._has_work():
                self._hand_over()
            else:
                self._send_next()
        except Exception as e:
            self._hand_over(e)

    def _take(self, response: FetchResponse) -> None:
        self._session.answered(response.error_code, response.session_id)
        self._is_away = False
        if response.error_code != ErrorCode.NONE:
            return
        for topic in response.responses:
            for answer in topic.partitions:
                followed = self._by_id.get((topic.topic_id, answer.partition_index))
                if followed is not None:
                    self._take_one(followed, answer)

    def _take_one(self, followed: _Followed, answer: FetchablePartitionResponse) -> None:
        partition = followed.partition
        self._touched[partition.tp] = None
        records = memoryview(answer.records or b"")
        fetched = Fetched(
            answer.error_code,
            answer.diverging_epoch.epoch,
            answer.diverging_epoch.end_offset,
            peek_first_offset(records),
        )
        step = after_fetch(fetched, partition.log)
        if isinstance(step, AskOffsets):
            self._asking.append(followed)
        else:
            self._try(followed, step, records, answer.high_watermark, answer.log_start_offset)

    def _try(
        self, followed: _Followed, step: Step, records: memoryview, high_watermark: int, log_start_offset: int
    ) -> None:
        partition = followed.partition
        try:
            self._perform(followed, step, records, high_watermark, log_start_offset)
        except LogDirError as e:
            self._owner.replicas.directory_failed(partition.log.directory.parent, e)
            self.remove(partition.tp)
        except (OttlaError, OSError) as e:
            self._back_off(followed, getattr(e, "code", ErrorCode.UNKNOWN_SERVER_ERROR), str(e))

    def _perform(
        self, followed: _Followed, step: Step, records: memoryview, high_watermark: int, log_start_offset: int
    ) -> None:
        replicas, partition = self._owner.replicas, followed.partition
        match step:
            case Append():
                is_behind = partition.log.log_end_offset < high_watermark
                replicas.append_from_leader(partition, records, high_watermark, log_start_offset)
                followed.told_error, followed.wait_ms = ErrorCode.NONE, 0
                if is_behind and self._owner.throttle.covers(partition.tp):
                    self._hold_back(followed, len(records))
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

    def _hold_back(self, followed: _Followed, count: int) -> None:
        throttle, tp = self._owner.throttle, followed.partition.tp
        throttle.record(count)
        if throttle.room() <= 0:
            followed.waits_until_ms = self._owner.clock.monotonic_ms() + throttle.wait_ms()
            self._resting[tp] = self._held_back[tp] = followed

    def _back_off(self, followed: _Followed, code: int, reason: str) -> None:
        backoff_ms = self._backoff_ms()
        followed.wait_ms = min(max(2 * followed.wait_ms, _FIRST_WAIT_MS), backoff_ms)
        if followed.told_error != code and (code not in NOT_TOLD_YET or followed.wait_ms == backoff_ms):
            log.info("%s cannot be fetched from broker %d for now: %s", followed.partition.tp, self._source, reason)
            followed.told_error = code
        followed.waits_until_ms = self._owner.clock.monotonic_ms() + followed.wait_ms
        self._resting[followed.partition.tp] = followed

    # Where the leader's log begins and ends

    def _take_asking(self) -> list[_Followed]:
        asking, self._asking = self._asking, []
        return asking

    async def _ask_and_go_on(self, followed: _Followed) -> None:
        partition = followed.partition
        try:
            start_offset, end_offset = await ask_leader_offsets(
                self._owner.peers,
                partition,
                self._source,
                replica_id=self._owner.broker_id,
                work=self._work,
                timeout_ms=self._owner.config().integer("replica.socket.timeout.ms"),
            )
        except (OttlaError, OSError) as e:
            self._back_off(followed, getattr(e, "code", ErrorCode.UNKNOWN_SERVER_ERROR), str(e))
            return
        if self._followed.get(partition.tp) is followed:
            step = after_offsets(start_offset, end_offset, partition.log)
            self._try(followed, step, _NOTHING, partition.log.high_watermark, partition.log.log_start_offset)


def _log_cut(partition: Partition, offset: int) -> None:
    lost = partition.log.high_watermark - offset
    cut = f"{partition.tp}: cut from {partition.log.log_end_offset} to {offset}, where the leader goes on"
    if lost > 0:
        log.error("%s; %d records were committed and are gone, for the leader has lost them", cut, lost)
    else:
        log.info("%s", cut)
