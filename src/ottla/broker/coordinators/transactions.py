"""The transaction coordinator: the machines of all transactional ids this broker coordinates, and their markers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from ottla.base.clock import Clock, SteadyClock
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.coordinators.markers import Marker, Markers
from ottla.broker.coordinators.peers import TransactionPeers
from ottla.broker.coordinators.runtime import CoordinatorRuntime, Shard
from ottla.broker.parked import Parked
from ottla.broker.replicas import Replicas
from ottla.broker.tasks import Tasks
from ottla.machines.cluster.image import ClusterImage
from ottla.machines.cluster.topic_names import TRANSACTION_STATE_TOPIC
from ottla.machines.transactions.answers import SendMarkers, append_failure_code
from ottla.machines.transactions.record_types import parse_record
from ottla.machines.transactions.shard import TransactionConfig, TransactionShard

log = logging.getLogger(__name__)

MARKER_WAIT_MS = 30_000
RETRY_MS = 100
AT_ONCE_MAX = 64
"""More markers than this are not written in one go, for everybody else would wait meanwhile."""
_MARKER_IS_POINTLESS = frozenset(
    {
        # The partition knows a newer producer or coordinator: whoever comes later has ended it.
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)

TransactionRuntime = CoordinatorRuntime[TransactionShard]


class TransactionCoordinator:
    def __init__(
        self,
        config: BrokerConfig,
        image: ClusterImage,
        replicas: Replicas,
        parked: Parked,
        clock: Clock,
        markers: Markers,
        peers: TransactionPeers,
        tasks: Tasks,
    ) -> None:
        self._broker_config = config
        self._image = image
        self.clock = SteadyClock(clock)
        """What transactions live by: time-outs are counted from a time that is stored."""
        self._markers = markers
        self._peers = peers
        self._tasks = tasks
        self._config = transaction_config(config)
        self.runtime: TransactionRuntime = CoordinatorRuntime(
            TRANSACTION_STATE_TOPIC,
            replicas,
            parked,
            self.clock,
            make_machine=lambda epoch: TransactionShard(self._config, epoch),
            parse=parse_record,
            end_transaction=lambda machine, producer_id, committed: None,
            perform=self._perform,
            client_code=append_failure_code,
            partition_count=self._partition_count,
            commit_timeout_ms=config.integer("offsets.commit.timeout.ms"),
            notes=log,
            load_buffer_bytes=config.integer("transaction.state.log.load.buffer.size"),
        )
        replicas.watch_topic(TRANSACTION_STATE_TOPIC, self.runtime)

    def _partition_count(self) -> int:
        topic = self._image.topics.get(TRANSACTION_STATE_TOPIC)
        if topic is not None:
            return len(topic.partitions)
        return self._broker_config.integer("transaction.state.log.num.partitions")

    async def stop(self) -> None:
        await self.runtime.stop()

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether the partitions are in the producer's open transaction (KIP-890), by what may not be committed yet.

        For whoever has asked `verify_committed` before, to see that the transaction was not ended meanwhile.
        """
        try:
            machine = self.runtime.shard_for(transactional_id).machine
        except KafkaError as e:
            return dict.fromkeys(partitions, e.code)
        return machine.verify_partitions(transactional_id, producer_id, producer_epoch, partitions)

    async def verify_committed(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """As `verify`, once what the answer rests on is committed: a transaction that could still be forgotten when
        its coordinator fails would never be ended. Asks the coordinator wherever it is."""
        state_partition = self._state_partition(transactional_id)
        if self._peers.leads_elsewhere(state_partition):
            return await self._peers.add_partitions(
                state_partition, transactional_id, producer_id, producer_epoch, partitions, verify_only=True
            )
        return await self.verify_committed_here(transactional_id, producer_id, producer_epoch, partitions)

    async def verify_committed_here(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """For those who take this broker for the coordinator; if it is not, they have to look for it themselves."""
        try:
            shard = self.runtime.shard_for(transactional_id)
            codes = shard.machine.verify_partitions(transactional_id, producer_id, producer_epoch, partitions)
            return codes if self.runtime.is_committed(shard) else await self.runtime.when_committed(shard, codes)
        except KafkaError as e:
            return dict.fromkeys(partitions, e.code)

    async def add_elsewhere(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Adds partitions to a transaction that another broker coordinates."""
        return await self._peers.add_partitions(
            self._state_partition(transactional_id),
            transactional_id,
            producer_id,
            producer_epoch,
            partitions,
            verify_only=False,
        )

    def is_coordinated_elsewhere(self, transactional_id: str) -> bool:
        return self._peers.leads_elsewhere(self._state_partition(transactional_id))

    def _state_partition(self, transactional_id: str) -> TopicPartition:
        return TopicPartition(TRANSACTION_STATE_TOPIC, self.runtime.partition_for(transactional_id))

    def is_committed(self, transactional_id: str) -> bool:
        """Whether `verify` can be relied on; also where no broker has anything to say of the id."""
        if self.is_coordinated_elsewhere(transactional_id):
            return False
        shard = self.runtime.active_shard(self.runtime.partition_for(transactional_id))
        return shard is None or self.runtime.is_committed(shard)

    def _perform(self, shard: Shard[TransactionShard], effect: Any) -> None:
        if not isinstance(effect, SendMarkers):
            raise TypeError(f"a transaction cannot ask for {effect!r}")
        marker = Marker(effect.producer_id, effect.producer_epoch, effect.commit, effect.coordinator_epoch)
        left = self._write_at_once(effect.partitions, marker)
        if left:
            self._tasks.spawn(self._send_markers(shard, effect, left, marker))
        else:
            self._markers_written(shard, effect)

    def _write_at_once(self, partitions: Sequence[TopicPartition], marker: Marker) -> Sequence[TopicPartition]:
        """Writes the markers that need nobody's help; returns the other partitions.

        A client whose commit is answered after them finds its transaction ended, and need not try its next one twice.
        """
        if len(partitions) > AT_ONCE_MAX:
            return partitions
        left = []
        for tp in partitions:
            try:
                if self._peers.leads_elsewhere(tp) or not self._markers.write_at_once(tp, marker):
                    left.append(tp)
            except KafkaError as e:
                # It is tried again, where what cannot be repaired is told from what can.
                log.info("%s: the marker of producer %d is not written yet: %s", tp, marker.producer_id, e)
                left.append(tp)
        return left

    async def _send_markers(
        self, shard: Shard[TransactionShard], order: SendMarkers, partitions: Sequence[TopicPartition], marker: Marker
    ) -> None:
        """Does not give up: a transaction whose outcome is decided must be ended in every partition."""
        await asyncio.gather(*(self._send_marker(shard, tp, marker) for tp in partitions))
        self._markers_written(shard, order)

    def _markers_written(self, shard: Shard[TransactionShard], order: SendMarkers) -> None:
        if not shard.is_dropped:
            decision = shard.machine.markers_written(
                order.transactional_id,
                order.producer_id,
                order.producer_epoch,
                now_ms=self.clock.wall_ms(),
                order=order.order,
            )
            self.runtime.run(shard, decision)

    async def _send_marker(self, shard: Shard[TransactionShard], tp: TopicPartition, marker: Marker) -> None:
        while not shard.is_dropped:
            try:
                if self._peers.leads_elsewhere(tp):
                    await self._peers.write_marker(tp, marker)
                else:
                    await self._markers.write(tp, marker, wait_ms=MARKER_WAIT_MS)
                return
            except KafkaError as e:
                is_gone = e.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self._image.partition(tp) is None
                if is_gone or e.code in _MARKER_IS_POINTLESS:
                    log.info("%s: no marker for producer %d: %s", tp, marker.producer_id, e)
                    return
            await asyncio.sleep(RETRY_MS / 1000)


def transaction_config(config: BrokerConfig) -> TransactionConfig:
    return TransactionConfig(
        max_timeout_ms=config.integer("transaction.max.timeout.ms"),
        transactional_id_expiration_ms=config.integer("transactional.id.expiration.ms"),
        abort_interval_ms=config.integer("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
        expiry_interval_ms=config.integer("transaction.remove.expired.transaction.cleanup.interval.ms"),
    )
