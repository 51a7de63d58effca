"""Runs coordinator machines: one shard per partition of an internal topic, loaded and dropped with its leadership.

A decision's records are appended as one batch and replayed at once; its effects wait until the batch is committed, and
so does every answer that shows the state (`when_committed`). All durable state is in the log: a shard can be dropped at
any time and is rebuilt by replaying its partition. It is used once all that was replayed is committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from ottla.base.clock import Clock
from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.coordinators.commit_wait import wait_committed
from ottla.broker.coordinators.loading import Machine, Parse, replay_log
from ottla.broker.coordinators.pending_reply import PendingReply, PendingResult
from ottla.broker.parked import Parked
from ottla.broker.partition import Partition
from ottla.broker.replicas import Replicas
from ottla.machines.coordinator import (
    CancelTimer,
    CoordinatorRecord,
    Decision,
    ReplayContext,
    Reply,
    SetTimer,
    TimerKey,
)
from ottla.records.batch import HEADER_SIZE
from ottla.records.builder import encode_record
from ottla.records.compression import Codec
from ottla.records.hashing import coordinator_partition

log = logging.getLogger(__name__)

LOAD_BUFFER_BYTES = 5_242_880

M = TypeVar("M", bound=Machine)
T = TypeVar("T")


class Shard(Generic[M]):
    """One partition's machine while this broker leads the partition."""

    def __init__(self, index: int, partition: Partition, machine: M) -> None:
        self.index = index
        self.partition = partition
        self.machine = machine
        self.leader_epoch = partition.leader_epoch
        self.is_loaded = False
        self.is_dropped = False
        self.last_offset = -1
        """The last record that was appended for this shard, committed or not."""
        self.timers: dict[TimerKey, asyncio.TimerHandle] = {}


class CoordinatorRuntime(Generic[M]):
    def __init__(
        self,
        topic: str,
        replicas: Replicas,
        parked: Parked,
        clock: Clock,
        *,
        make_machine: Callable[[int], M],
        parse: Parse,
        end_transaction: Callable[[M, int, bool], None],
        perform: Callable[[Shard[M], Any], None],
        client_code: Callable[[ErrorCode], ErrorCode],
        partition_count: Callable[[], int],
        commit_timeout_ms: int,
        notes: logging.Logger,
        load_buffer_bytes: int = LOAD_BUFFER_BYTES,
        codec: Codec = Codec.NONE,
        waits_for_replicas: bool = True,
    ) -> None:
        """`make_machine` is given the coordinator epoch.

        `end_transaction` tells a machine of a marker on its partition, `perform` does the effects that are not replies,
        and `client_code` says what a client is told when an append to the coordinator's own log fails. What decisions
        have to say is written to `notes`. If it does not wait for replicas, all that is in its log counts as committed.
        """
        self.topic = topic
        self._replicas = replicas
        self._parked = parked
        self._clock = clock
        self._make_machine = make_machine
        self._parse = parse
        self._end_transaction = end_transaction
        self._perform = perform
        self._client_code = client_code
        self._partition_count = partition_count
        self._commit_timeout_ms = commit_timeout_ms
        self._log = notes
        self._load_buffer_bytes = load_buffer_bytes
        self._codec = codec
        self._waits_for_replicas = waits_for_replicas
        self._shards: dict[int, Shard[M]] = {}
        self._loading: set[asyncio.Task[None]] = set()

    # Which shard

    def partition_for(self, key: str) -> int:
        """The partition that keeps the state of a group or transactional id."""
        return coordinator_partition(key, self._partition_count())

    def shard_for(self, key: str) -> Shard[M]:
        shard = self.find_shard(key)
        if shard is None:
            raise KafkaError(code=ErrorCode.NOT_COORDINATOR)
        if not shard.is_loaded:
            raise KafkaError(code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    def find_shard(self, key: str) -> Shard[M] | None:
        """The shard, loaded or not, if it is here."""
        return self._shards.get(self.partition_for(key))

    @staticmethod
    def commits_alone(shard: Shard[M]) -> bool:
        """Whether the shard can be used, and what is appended for it is committed at once."""
        if shard.is_dropped or not shard.is_loaded:
            return False
        leader = shard.partition.leader
        return leader is not None and leader.commits_alone

    def active_shards(self) -> list[Shard[M]]:
        return [shard for shard in self._shards.values() if shard.is_loaded]

    @property
    def is_loading(self) -> bool:
        return any(not shard.is_loaded for shard in self._shards.values())

    def active_shard(self, index: int) -> Shard[M] | None:
        shard = self._shards.get(index)
        return shard if shard is not None and shard.is_loaded else None

    # Leadership

    def partition_changed(self, partition: Partition) -> None:
        """The partition's role may have changed: load what this broker leads now, drop what it does not."""
        index = partition.tp.partition
        shard = self._shards.get(index)
        leads = partition.leader is not None
        if shard is not None and (not leads or shard.leader_epoch != partition.leader_epoch):
            self.drop(shard, KafkaError(code=ErrorCode.NOT_COORDINATOR))
            shard = None
        if shard is None and leads:
            self._load(partition)

    def partition_removed(self, index: int) -> None:
        shard = self._shards.get(index)
        if shard is not None:
            self.drop(shard, KafkaError(code=ErrorCode.NOT_COORDINATOR))

    def drop(self, shard: Shard[M], reason: KafkaError) -> None:
        shard.is_dropped = True
        self._shards.pop(shard.index, None)
        for timer in shard.timers.values():
            timer.cancel()
        shard.timers.clear()
        for token in shard.machine.unload():
            if isinstance(token, PendingReply | PendingResult):
                token.fail(reason)
        # Whoever waits for the shard's records is told at once, too.
        self._parked.moved(shard.partition)

    async def stop(self) -> None:
        for shard in list(self._shards.values()):
            self.drop(shard, KafkaError(code=ErrorCode.NOT_COORDINATOR))
        for task in list(self._loading):
            task.cancel()
        await asyncio.gather(*self._loading, return_exceptions=True)

    def _load(self, partition: Partition) -> None:
        shard = Shard(partition.tp.partition, partition, self._make_machine(partition.leader_epoch))
        self._shards[shard.index] = shard
        if partition.log.log_end_offset == partition.log.log_start_offset:
            self._finish_loading(shard)
            return
        task = asyncio.get_running_loop().create_task(self._load_from_log(shard))
        self._loading.add(task)
        task.add_done_callback(self._loading.discard)

    async def _load_from_log(self, shard: Shard[M]) -> None:
        partition_log = shard.partition.log
        end_offset = partition_log.log_end_offset
        try:
            # Nobody else touches the machine until it is loaded, so a thread may fill it.
            await self._replicas.threads.run(self._replay, shard, partition_log.log_start_offset, end_offset)
            # What is appended meanwhile (markers of transactions) is short. The partition may have moved to another
            # directory since.
            while not shard.is_dropped:
                start_offset, end_offset = end_offset, shard.partition.log.log_end_offset
                self._replay(shard, start_offset, end_offset)
                shard.last_offset = end_offset - 1
                if self.is_committed(shard):
                    self._finish_loading(shard)
                    return
                await self._wait_until_committed(shard)
        except Exception:
            log.exception("%s: the coordinator's state cannot be loaded", shard.partition.tp)
            self.drop(shard, KafkaError(code=ErrorCode.NOT_COORDINATOR))

    async def _wait_until_committed(self, shard: Shard[M]) -> None:
        """For as long as it takes: another leader may have to be elected first, and then the shard is dropped."""
        try:
            await wait_committed(self._parked, shard.partition, shard.last_offset, self._commit_timeout_ms)
        except KafkaError as e:
            if e.code != ErrorCode.REQUEST_TIMED_OUT and not shard.is_dropped:
                self.drop(shard, KafkaError(code=ErrorCode.NOT_COORDINATOR))

    def _replay(self, shard: Shard[M], start_offset: int, end_offset: int) -> None:
        machine = shard.machine
        replay_log(
            machine,
            self._parse,
            lambda producer_id, committed: self._end_transaction(machine, producer_id, committed),
            shard.partition.log,
            start_offset,
            end_offset,
            buffer_bytes=self._load_buffer_bytes,
        )

    def _finish_loading(self, shard: Shard[M]) -> None:
        shard.is_loaded = True
        self.run(shard, shard.machine.loaded(self._clock.wall_ms()))

    # Decisions

    def run(self, shard: Shard[M], decision: Decision) -> None:
        """Appends and replays the decision's records, sets its timers, performs its effects once it is committed."""
        if shard.is_dropped:
            _fail_replies(decision, KafkaError(code=ErrorCode.NOT_COORDINATOR))
            return
        for timer in decision.timers:
            self.set_timer(shard, timer)
        try:
            # Without records of its own a decision still builds on those before it: it waits for them, too.
            last_offset = self._append_all(shard, decision) if decision.records else shard.last_offset
        except KafkaError as e:
            _fail_replies(decision, e)
            return
        if self._is_committed(shard, last_offset):
            self._perform_all(shard, decision)
        else:
            self.wait_for_commit(shard, decision, last_offset)

    def append(
        self, shard: Shard[M], records: Sequence[bytes], now_ms: int, transaction_of: tuple[int, int] | None = None
    ) -> int:
        """Appends encoded records as one batch, for the caller to replay; returns the offset of the first.

        Raises KafkaError with a code for clients if that failed; the shard is loaded again then.
        """
        if shard.is_dropped:
            raise KafkaError(code=ErrorCode.NOT_COORDINATOR)
        try:
            first_offset = self._replicas.append_own(
                shard.partition,
                records,
                now_ms,
                transaction_of,
                codec=self._codec,
                requires_all_replicas=self._waits_for_replicas,
            )
        except KafkaError as e:
            raise self._append_failed(shard, e) from e
        shard.last_offset = first_offset + len(records) - 1
        return first_offset

    def is_committed(self, shard: Shard[M]) -> bool:
        """Whether all the shard knows is committed, so that it may be shown."""
        return self._is_committed(shard, shard.last_offset)

    def _is_committed(self, shard: Shard[M], last_offset: int) -> bool:
        leader = shard.partition.leader
        return leader is not None and (leader.high_watermark > last_offset or not self._waits_for_replicas)

    def when_committed(self, shard: Shard[M], answer: T) -> asyncio.Future[T]:
        """`answer`, which shows the shard's state, once that is committed; fails if this broker loses the shard."""
        pending: PendingResult[T] = PendingResult()
        self.run(shard, Decision().reply(pending, answer))
        return pending.future

    def wait_for_commit(self, shard: Shard[M], decision: Decision, last_offset: int) -> None:
        waiter = _WaitingDecision(self, shard, decision, last_offset)
        self._parked.park(waiter, [shard.partition], self._commit_timeout_ms)

    def _append_all(self, shard: Shard[M], decision: Decision) -> int:
        """Appends and replays; returns the last offset. Only a decision too large for one batch takes several."""
        now_ms = self._clock.wall_ms()
        producer_id, producer_epoch = decision.producer or (-1, -1)
        for records, encoded in _in_batches(decision.records, shard.partition.log.config.max_message_bytes):
            first_offset = self.append(shard, encoded, now_ms, decision.producer)
            for offset, record in enumerate(records, first_offset):
                context = ReplayContext(offset, producer_id, producer_epoch, now_ms)
                shard.machine.replay(record.key, record.value, context)
        return shard.last_offset

    def _append_failed(self, shard: Shard[M], error: KafkaError) -> KafkaError:
        """Loads the shard again; returns what clients are told."""
        log.warning("%s: an append of the coordinator failed: %s", shard.partition.tp, error)
        reason = KafkaError(error.message, code=self._client_code(error.code))
        self._reload(shard, reason)
        return reason

    def _reload(self, shard: Shard[M], reason: KafkaError) -> None:
        """What the machine decided is not in the log, so the machine is wrong: build it again from what is."""
        if shard.is_dropped:
            return  # The directory of its log has failed, and the broker has lost the partition.
        partition = shard.partition
        self.drop(shard, reason)
        if partition.leader is not None:
            self._load(partition)

    def _perform_all(self, shard: Shard[M], decision: Decision) -> None:
        for note in decision.notes:
            self._log.info("%s", note)
        for effect in decision.effects:
            if isinstance(effect, Reply):
                if isinstance(effect.token, PendingReply | PendingResult):
                    effect.token.complete(effect.response)
            else:
                self._perform(shard, effect)

    def set_timer(self, shard: Shard[M], timer: SetTimer | CancelTimer) -> None:
        running = shard.timers.pop(timer.key, None)
        if running is not None:
            running.cancel()
        if isinstance(timer, SetTimer):
            shard.timers[timer.key] = asyncio.get_running_loop().call_later(
                timer.delay_ms / 1000, self._timer_fired, shard, timer.key
            )

    def _timer_fired(self, shard: Shard[M], key: TimerKey) -> None:
        if shard.timers.pop(key, None) is not None:
            self.run(shard, shard.machine.timer_fired(key, self._clock.wall_ms()))

    def committed(self, shard: Shard[M], decision: Decision) -> None:
        if shard.is_dropped:
            _fail_replies(decision, KafkaError(code=ErrorCode.NOT_COORDINATOR))
        else:
            self._perform_all(shard, decision)


class _WaitingDecision(Generic[M]):
    """A decision whose records are appended but not committed yet."""

    def __init__(self, runtime: CoordinatorRuntime[M], shard: Shard[M], decision: Decision, last_offset: int) -> None:
        self._runtime = runtime
        self._shard = shard
        self._decision = decision
        self._last_offset = last_offset

    def try_complete(self) -> bool:
        leader = self._shard.partition.leader
        is_lost = self._shard.is_dropped or leader is None or leader.leader_epoch != self._shard.leader_epoch
        if is_lost:
            _fail_replies(self._decision, KafkaError(code=ErrorCode.NOT_COORDINATOR))
        elif leader is not None and leader.high_watermark > self._last_offset:
            self._runtime.committed(self._shard, self._decision)
        else:
            return False
        return True

    def expire(self) -> None:
        """The clients are told to try again, but what the records say is still going to happen once they count."""
        _fail_replies(self._decision, KafkaError(code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        left = [effect for effect in self._decision.effects if not isinstance(effect, Reply)]
        if left or self._decision.notes:
            rest = Decision(effects=left, notes=self._decision.notes)
            self._runtime.wait_for_commit(self._shard, rest, self._last_offset)


def _in_batches(
    records: Sequence[CoordinatorRecord], max_bytes: int
) -> Iterator[tuple[Sequence[CoordinatorRecord], list[bytes]]]:
    """The records, and as they are stored, in runs that fit into one batch each."""
    start = 0
    encoded: list[bytes] = []
    room = max_bytes - HEADER_SIZE
    for number, record in enumerate(records):
        key, value = record.encode()
        stored = encode_record(len(encoded), 0, key, value)
        if len(stored) > room and encoded:
            yield records[start:number], encoded
            start, encoded, room = number, [], max_bytes - HEADER_SIZE
            stored = encode_record(0, 0, key, value)
        encoded.append(stored)
        room -= len(stored)
    yield records[start:], encoded


def _fail_replies(decision: Decision, error: KafkaError) -> None:
    for effect in decision.effects:
        if isinstance(effect, Reply) and isinstance(effect.token, PendingReply | PendingResult):
            effect.token.fail(error)
