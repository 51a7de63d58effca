"""The replicas this broker holds: each partition's log, its role, and who waits for it.

Owns the way in (`append`) and the way out (`read`) of records. Roles change only through the controller's LeaderAndIsr
and StopReplica. Knows nothing of requests and replies.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from ottla.base.clock import Clock
from ottla.base.errors import ErrorCode, KafkaError, LogDirError
from ottla.base.types import NIL_UUID, TopicPartition, Uuid
from ottla.broker.background import BackgroundThreads
from ottla.broker.parked import Parked
from ottla.broker.partition import Partition, leader_to_append, not_leader
from ottla.log.config import LogConfig
from ottla.log.log_dir import LogDirs
from ottla.log.partition_log import AppendInfo, Origin, PartitionLog
from ottla.machines.fetch_session import PartitionKey, SessionWatch
from ottla.machines.replication.isr import ProposeIsr
from ottla.machines.replication.leader import PartitionLeader
from ottla.machines.replication.order_rules import HeldReplica, why_role_refused, why_stop_refused
from ottla.records.compression import Codec
from ottla.wire.apis.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest
from ottla.wire.apis.stop_replica import StopReplicaRequest

log = logging.getLogger(__name__)

_LAG_MS_MAX = 30_000
_NOBODY = -1


def _held(partition: Partition | None) -> HeldReplica | None:
    if partition is None:
        return None
    return HeldReplica(partition.topic_id, partition.leader_epoch, partition.has_role, partition.is_offline)


class Following(Protocol):
    """Who fetches for partitions that this broker does not lead."""

    def follow(self, partition: Partition) -> None: ...

    def forget(self, tp: TopicPartition) -> None: ...


class RoleWatcher(Protocol):
    def partition_changed(self, partition: Partition) -> None: ...

    def partition_removed(self, index: int) -> None: ...


class Replicas:
    def __init__(
        self,
        broker_id: int,
        log_dirs: LogDirs,
        parked: Parked,
        clock: Clock,
        threads: BackgroundThreads,
        *,
        read_config: Callable[[str], Awaitable[LogConfig]],
        on_all_failed: Callable[[], None],
        lag_ms_max: Callable[[], int] = lambda: _LAG_MS_MAX,
    ) -> None:
        self.broker_id = broker_id
        self.log_dirs = log_dirs
        self._parked = parked
        self._clock = clock
        self.threads = threads
        """For what touches the disk: not on the loop's time."""
        self._read_config = read_config
        self.lag_ms_max = lag_ms_max
        self._on_all_failed = on_all_failed
        self._topics: dict[str, dict[int, Partition]] = {}
        self._controller_epoch = -1
        self._watchers: dict[str, RoleWatcher] = {}
        self.following: Following = _FollowingNobody()
        self.propose_isr: Callable[[Partition, ProposeIsr], None] = _propose_nothing
        self.on_directory_failed: Callable[[], None] = _tell_nobody
        self.is_elsewhere: Callable[[TopicPartition], bool] = lambda tp: False
        """Whether the cluster has the partition, as far as this broker was told."""
        self._offline: set[TopicPartition] = set()
        """Partitions of this broker whose directory could not be used when it started."""

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._topics.values():
            yield from partitions.values()

    def watch_topic(self, topic: str, watcher: RoleWatcher) -> None:
        """Tells `watcher` whenever a partition of the topic was given a role, or is not held any more."""
        self._watchers[topic] = watcher

    def find(self, topic: str, index: int) -> Partition | None:
        partitions = self._topics.get(topic)
        return partitions.get(index) if partitions is not None else None

    def led(self, topic: str, index: int) -> Partition:
        """The partition, if this broker leads it."""
        partitions = self._topics.get(topic)
        partition = partitions.get(index) if partitions is not None else None
        if partition is None:
            raise self.not_held(topic, index)
        if partition.leader is None:
            raise not_leader(partition)
        return partition

    def not_held(self, topic: str, index: int) -> KafkaError:
        """Why a partition cannot be found here."""
        tp = TopicPartition(topic, index)
        if tp in self._offline:
            return KafkaError(code=ErrorCode.KAFKA_STORAGE_ERROR)
        # Whoever looks for it here has to find out where it was moved to.
        return KafkaError(
            code=ErrorCode.NOT_LEADER_OR_FOLLOWER if self.is_elsewhere(tp) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )

    def append(
        self,
        partition: Partition,
        records: memoryview,
        *,
        requires_all_replicas: bool,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
    ) -> AppendInfo:
        leader = leader_to_append(partition, requires_all_replicas)
        partition_log = partition.log
        try:
            info = partition_log.append_as_leader(
                records, leader_epoch=leader.leader_epoch, now_ms=now_ms, origin=origin
            )
        except LogDirError as e:
            self.directory_failed(partition_log.directory.parent, e)
            raise
        self._appended(partition, leader)
        return info

    def append_own(
        self,
        partition: Partition,
        records: Sequence[bytes],
        now_ms: int,
        transaction_of: tuple[int, int] | None = None,
        *,
        codec: Codec = Codec.NONE,
        requires_all_replicas: bool = True,
    ) -> int:
        """Appends encoded records of a coordinator as one batch; returns the offset of the first."""
        leader = leader_to_append(partition, requires_all_replicas)
        partition_log = partition.log
        try:
            first_offset = partition_log.append_own(
                records, leader_epoch=leader.leader_epoch, now_ms=now_ms, transaction_of=transaction_of, codec=codec
            )
        except LogDirError as e:
            self.directory_failed(partition_log.directory.parent, e)
            raise
        self._appended(partition, leader)
        return first_offset

    def commit_staged(self, partition: Partition, now_ms: int) -> None:
        """Writes what is staged in the partition's log. If that fails, the end of the log says so by not moving."""
        leader, partition_log = partition.leader, partition.log
        try:
            partition_log.stage.write(now_ms)
        except LogDirError as e:
            self.directory_failed(partition_log.directory.parent, e)
            if partition.uncommitted is not None:
                partition.uncommitted.drop_unwritten()
            return
        if leader is not None:
            self._appended(partition, leader)

    def _appended(self, partition: Partition, leader: PartitionLeader) -> None:
        partition_log = partition.log
        leader.appended(partition_log.log_end_offset)
        self._advance(partition, leader)
        leader.wake_followers()

    def _advance(self, partition: Partition, leader: PartitionLeader) -> None:
        """The one place where what the leader knows to be committed becomes what readers may see."""
        partition_log = partition.log
        if leader.high_watermark != partition_log.high_watermark:
            partition_log.advance_high_watermark(leader.high_watermark)
            leader.note_for_followers()
        if partition.waiters:
            self._parked.moved(partition)

    # Copies

    def follower_fetched(
        self,
        partition: Partition,
        replica: int,
        offset: int,
        log_start_offset: int,
        broker_epoch: int,
        watch: tuple[SessionWatch, PartitionKey] | None = None,
    ) -> None:
        """A follower asks for `offset`, so it has all before. `watch` is to be told what happens to the partition."""
        leader = partition.leader
        if leader is None:
            raise not_leader(partition)
        proposal = leader.follower_fetched(
            replica,
            offset,
            log_start_offset,
            broker_epoch=broker_epoch,
            now_ms=self._clock.monotonic_ms(),
            lag_ms_max=self.lag_ms_max(),
        )
        if watch is not None:
            follower = leader.followers[replica]
            follower.watch, follower.key = watch
        self._advance(partition, leader)
        if proposal is not None:
            self.propose_isr(partition, proposal)

    def check_lag(self) -> None:
        """Followers that have fallen behind are to leave the in-sync sets."""
        now_ms, lag_ms_max = self._clock.monotonic_ms(), self.lag_ms_max()
        for partition in self:
            leader = partition.leader
            if leader is not None and not leader.is_level:
                proposal = leader.check_lag(now_ms, lag_ms_max)
                self._advance(partition, leader)
                if proposal is not None:
                    self.propose_isr(partition, proposal)

    def isr_changed(self, partition: Partition) -> None:
        if partition.leader is not None:
            self._advance(partition, partition.leader)
            # Who is not in sync has to be asked again whether it may join.
            partition.leader.note_for_followers()

    def append_from_leader(
        self, partition: Partition, records: memoryview, high_watermark: int, log_start_offset: int
    ) -> None:
        """Stores a leader's batches as they are, and follows what it says is committed and what is gone."""
        partition_log = partition.log
        if records:
            partition_log.append_fetched(records, now_ms=self._clock.wall_ms())
        committed = min(high_watermark, partition_log.log_end_offset)
        if committed > partition_log.high_watermark:
            partition_log.advance_high_watermark(committed)
        if partition_log.log_start_offset < log_start_offset <= partition_log.high_watermark:
            partition_log.advance_log_start_offset(log_start_offset)
        if partition.waiters:
            self._parked.moved(partition)

    def directory_failed(self, path: Path, error: LogDirError) -> None:
        """Takes the partitions of a failed directory offline; the others go on."""
        self.log_dirs.fail(path, error)
        for partition in list(self):
            if partition.log.directory.parent == path and not partition.is_offline:
                partition.is_offline = True
                partition.resign()
                self.following.forget(partition.tp)
                self._parked.moved(partition)
                if partition.tp.topic in self._watchers:
                    self._watchers[partition.tp.topic].partition_changed(partition)
        if self.log_dirs.usable_paths:
            self.on_directory_failed()
        else:
            self._on_all_failed()

    def drop_roles(self) -> None:
        """Others may lead by now what this broker has led: nothing is led or followed until the controller says so."""
        for partition in list(self):
            partition.has_role = False
            self._take_role(partition)

    def _take_role(self, partition: Partition) -> None:
        partition.resign()
        partition.leader_id = _NOBODY
        self.following.forget(partition.tp)
        self._parked.moved(partition)
        if partition.tp.topic in self._watchers:
            self._watchers[partition.tp.topic].partition_changed(partition)

    def moved(self, partition: Partition) -> None:
        """Something of the partition besides its records has changed: let waiters look."""
        self._parked.moved(partition)
        if partition.leader is not None:
            partition.leader.wake_followers()

    async def apply_leader_and_isr(self, request: LeaderAndIsrRequest) -> dict[TopicPartition, ErrorCode]:
        self.check_controller(request.controller_epoch)
        outcome: dict[TopicPartition, ErrorCode] = {}
        for topic in request.topic_states:
            for state in topic.partition_states:
                tp = TopicPartition(topic.topic_name, state.partition_index)
                held = _held(self.find(*tp))
                code = why_role_refused(self.broker_id, held, topic.topic_id, state.leader_epoch, state.replicas)
                reason = code.name
                if code == ErrorCode.NONE:
                    try:
                        await self._apply(tp, topic.topic_id, state)
                    except KafkaError as e:
                        code, reason = e.code, e.message
                outcome[tp] = code
                is_repeated = (
                    code == ErrorCode.STALE_CONTROLLER_EPOCH and held and held.leader_epoch == state.leader_epoch
                )
                if code != ErrorCode.NONE and not is_repeated:
                    log.error("%s: cannot take the role given by the controller: %s", tp, reason)
        return outcome

    async def apply_stop_replica(self, request: StopReplicaRequest) -> dict[TopicPartition, ErrorCode]:
        self.check_controller(request.controller_epoch)
        outcome: dict[TopicPartition, ErrorCode] = {}
        for topic in request.topic_states:
            for state in topic.partition_states:
                tp = TopicPartition(topic.topic_name, state.partition_index)
                partition = self.find(*tp)
                outcome[tp] = why_stop_refused(_held(partition), state.leader_epoch)
                if outcome[tp] != ErrorCode.NONE:
                    log.error("%s: is not stopped, for the order is older than its role", tp)
                elif state.delete_partition:
                    self._delete(tp)
                elif partition is not None:
                    self._take_role(partition)
        return outcome

    def remove_moved_away(self, tp: TopicPartition, topic_id: Uuid, leader_epoch: int) -> None:
        """The cluster has given a partition to other replicas under `leader_epoch`. Most often the controller has told
        this broker to delete its copy; but that word is lost if either of them has died meanwhile."""
        found = self.log_dirs.get(tp)
        if found is None or topic_id == NIL_UUID or found.topic_id != topic_id:
            return
        partition = self.find(*tp)
        if leader_epoch > (found.epochs.latest_epoch if partition is None else partition.leader_epoch):
            log.info("%s was moved to other brokers: its copy here is deleted", tp)
            try:
                self._delete(tp)
            except LogDirError as e:
                self.directory_failed(found.directory.parent, e)

    def topics(self) -> list[str]:
        return list(self._topics)

    def set_topic_config(self, topic: str, config: LogConfig) -> None:
        for partition in self._topics.get(topic, {}).values():
            partition.log.update_config(config)
            if partition.leader is not None:
                partition.leader.set_min_insync_replicas(config.min_insync_replicas)
                self._advance(partition, partition.leader)

    def check_controller(self, epoch: int) -> None:
        if epoch < self._controller_epoch:
            raise KafkaError(code=ErrorCode.STALE_CONTROLLER_EPOCH)
        self._controller_epoch = epoch

    async def _apply(self, tp: TopicPartition, topic_id: Uuid, state: LeaderAndIsrPartitionState) -> None:
        partition = self.find(*tp)
        if partition is None:
            partition = Partition(tp, topic_id, await self._open_log(tp, topic_id, is_new=state.is_new))
            self._topics.setdefault(tp.topic, {})[tp.partition] = partition
        partition.leader_id = state.leader
        if state.leader == self.broker_id:
            self.following.forget(tp)
            if partition.leader is None:
                partition.leads_since = state.leader_epoch
            self._lead(partition, state)
        else:
            partition.resign()
            partition.leader_epoch = state.leader_epoch
            self.following.follow(partition)
        partition.has_role = True
        self._parked.moved(partition)
        watcher = self._watchers.get(tp.topic)
        if watcher is not None:
            watcher.partition_changed(partition)

    def _lead(self, partition: Partition, state: LeaderAndIsrPartitionState) -> None:
        partition.log.begin_leader_epoch(state.leader_epoch)
        partition.resign()
        partition.leader = PartitionLeader(
            local_id=self.broker_id,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            replicas=state.replicas,
            adding=state.adding_replicas,
            isr=state.isr,
            log_end_offset=partition.log.log_end_offset,
            high_watermark=partition.log.high_watermark,
            min_insync_replicas=partition.log.config.min_insync_replicas,
            now_ms=self._clock.monotonic_ms(),
        )
        partition.leader_epoch = state.leader_epoch
        partition.log.advance_high_watermark(partition.leader.high_watermark)

    async def _open_log(self, tp: TopicPartition, topic_id: Uuid, *, is_new: bool) -> PartitionLog:
        found = self.log_dirs.get(tp)
        if found is None:
            if self.log_dirs.failed and not is_new:
                # An empty log made elsewhere would pass for the partition, and its records would be gone.
                self._offline.add(tp)
                raise LogDirError("its log is not in any directory that can be used")
            config = await self._read_config(tp.topic)
            try:
                return await self.threads.run(self.log_dirs.create, tp, topic_id, config)
            except LogDirError as e:
                for path in list(self.log_dirs.failed):
                    self.directory_failed(path, e)
                raise
        if topic_id not in (NIL_UUID, found.topic_id) and found.topic_id != NIL_UUID:
            raise KafkaError(
                "the log on disk belongs to another topic of the same name", code=ErrorCode.INCONSISTENT_TOPIC_ID
            )
        if found.topic_id == NIL_UUID != topic_id:
            await self.threads.run(found.assign_topic_id, topic_id)
        return found

    def _delete(self, tp: TopicPartition) -> None:
        self._offline.discard(tp)
        partitions = self._topics.get(tp.topic, {})
        partition = partitions.pop(tp.partition, None)
        if not partitions:
            self._topics.pop(tp.topic, None)
        if partition is not None:
            partition.resign()
            self.following.forget(tp)
            self._parked.moved(partition)
            if tp.topic in self._watchers:
                self._watchers[tp.topic].partition_removed(tp.partition)
        if self.log_dirs.get(tp) is not None:
            self.log_dirs.delete(tp)


class _FollowingNobody:
    def follow(self, partition: Partition) -> None:
        pass

    def forget(self, tp: TopicPartition) -> None:
        pass


def _tell_nobody() -> None:
    pass


def _propose_nothing(partition: Partition, proposal: ProposeIsr) -> None:
    pass
