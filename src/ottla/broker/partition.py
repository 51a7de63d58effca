"""One replica as this broker holds it: its log, its role, and who waits for it."""

from __future__ import annotations

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition, Uuid
from ottla.broker.parked import Waitable
from ottla.broker.uncommitted_replies import UncommittedReplies
from ottla.log.partition_log import PartitionLog
from ottla.machines.replication.leader import PartitionLeader
from ottla.wire.fused.produce import AppendedReply


class Partition(Waitable):
    """One replica. `leader` is the machine that runs while this broker leads, else None."""

    __slots__ = (
        "has_role",
        "is_offline",
        "leader",
        "leader_epoch",
        "leader_id",
        "leads_since",
        "log",
        "produce_replies",
        "topic_id",
        "tp",
        "uncommitted",
        "verified_producers",
    )

    def __init__(self, tp: TopicPartition, topic_id: Uuid, log: PartitionLog) -> None:
        super().__init__()
        self.tp = tp
        self.topic_id = topic_id
        self.log = log
        self.leader: PartitionLeader | None = None
        self.leader_id = -1
        self.leader_epoch = -1
        self.leads_since = -1
        """The leader epoch in which this broker began to lead without a break. A later one changes nothing for those
        who wait until their records are committed: the log was not cut."""
        self.has_role = False
        """Whether the controller's last word about it is in force."""
        self.produce_replies: dict[int, AppendedReply] = {}
        """What all replies to plain appends have in common, by version."""
        self.uncommitted: UncommittedReplies | None = None
        """Replies that wait for the high watermark, once there was one that had to."""
        self.verified_producers: dict[int, int] = {}
        """Ids and epochs of producers whose coordinator, another broker, was asked whether this partition is in their
        transaction. A marker that comes first takes its producer out (KIP-890)."""
        self.is_offline = False
        """Its directory has failed: nothing can be read or written until the broker is started again."""

    @property
    def is_following(self) -> bool:
        return self.leader is None and self.leader_id >= 0 and not self.is_offline

    def resign(self) -> None:
        """Followers whose fetches wait here are told at once that they wait for nothing."""
        leader, self.leader = self.leader, None
        if leader is not None:
            leader.wake_followers()

    def check_leader_epoch(self, epoch: int) -> None:
        """Fences a client that follows another leader than this one; -1 means it does not say (KIP-320)."""
        if epoch >= 0 and epoch != self.leader_epoch:
            raise KafkaError(
                code=ErrorCode.FENCED_LEADER_EPOCH if epoch < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
            )


def not_leader(partition: Partition) -> KafkaError:
    """Why a partition that this broker holds cannot be used here."""
    return KafkaError(code=ErrorCode.KAFKA_STORAGE_ERROR if partition.is_offline else ErrorCode.NOT_LEADER_OR_FOLLOWER)


def leader_to_append(partition: Partition, requires_all_replicas: bool) -> PartitionLeader:
    """The partition's leader, if records may be appended."""
    leader = partition.leader
    if leader is None:
        raise not_leader(partition)
    if requires_all_replicas and not leader.has_enough_replicas:
        raise KafkaError(
            f"{len(leader.isr)} replicas are in sync, min.insync.replicas is {leader.min_insync_replicas}",
            code=ErrorCode.NOT_ENOUGH_REPLICAS,
        )
    return leader
