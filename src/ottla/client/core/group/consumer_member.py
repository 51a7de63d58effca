"""A member of a KIP-848 group: heartbeats that carry everything, and the way from what it holds to its target.

The coordinator decides who shall hold what. The member gives up first what it is to lose, says so, and takes what it is
to get. Time and the member's id are arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition, Uuid
from ottla.client.core.consumer.offset_requests import Membership, by_topic
from ottla.client.core.consumer.options import ConsumerSettings
from ottla.client.core.group.classic_member import Verdict
from ottla.client.errors import FencedInstanceError, client_error
from ottla.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedTopicPartitions,
)

JOINING = 0
LEAVING = -1
LEAVING_FOR_A_WHILE = -2
"""A static member that is expected back."""

_VERDICTS = {
    ErrorCode.NONE: Verdict.FINE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Verdict.AGAIN,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Verdict.FIND_COORDINATOR,
    ErrorCode.NOT_COORDINATOR: Verdict.FIND_COORDINATOR,
    ErrorCode.UNKNOWN_MEMBER_ID: Verdict.LOST,
    ErrorCode.FENCED_MEMBER_EPOCH: Verdict.LOST,
}


class ConsumerGroupMember:
    def __init__(self, settings: ConsumerSettings, member_id: str) -> None:
        assert settings.group_id is not None
        self._settings = settings
        self._group_id = settings.group_id
        self.member_id = member_id
        self.epoch = JOINING
        self.heartbeat_interval_ms = 0
        """The coordinator says; zero until it has."""
        self.target: dict[Uuid, frozenset[int]] | None = None
        self._next_heartbeat_ms = 0
        self._may_be_known = False
        """The coordinator may have heard of this member, though it has not answered yet."""
        self._sent_topics: frozenset[str] | None = None
        self._sent_owned: frozenset[TopicPartition] | None = None

    @property
    def is_member(self) -> bool:
        return self.epoch > JOINING

    def membership(self) -> Membership:
        if not self.is_member:
            return Membership(self._group_id)
        return Membership(self._group_id, self.epoch, self.member_id, self._settings.group_instance_id)

    # Heartbeats

    def heartbeat_due_ms(self, topics: frozenset[str], owned: frozenset[TopicPartition]) -> int:
        """At once if there is something to tell."""
        changed = topics != self._sent_topics or owned != self._sent_owned
        return 0 if changed and self.is_member else self._next_heartbeat_ms

    def heartbeat_request(
        self,
        topics: frozenset[str],
        owned: frozenset[TopicPartition],
        topic_ids: Mapping[str, Uuid],
        now_ms: int,
    ) -> ConsumerGroupHeartbeatRequest:
        """Names everything when joining, and later what has changed."""
        is_full = self.epoch == JOINING or self._sent_topics is None or self._sent_owned is None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self.member_id, member_epoch=self.epoch
        )
        if is_full:
            request.instance_id = self._settings.group_instance_id
            request.rack_id = self._settings.client_rack or None
            request.rebalance_timeout_ms = self._settings.max_poll_interval_ms
            request.server_assignor = self._settings.remote_assignor
        if is_full or topics != self._sent_topics:
            request.subscribed_topic_names = sorted(topics)
        if is_full or owned != self._sent_owned:
            request.topic_partitions = _owned(owned, topic_ids)
        self._may_be_known = True
        self._sent_topics, self._sent_owned = topics, owned
        self._next_heartbeat_ms = now_ms + (self.heartbeat_interval_ms or self._settings.heartbeat_interval_ms)
        return request

    def answered(self, response: ConsumerGroupHeartbeatResponse, now_ms: int) -> Verdict:
        for code, verdict in _VERDICTS.items():
            if code == response.error_code:
                if verdict is Verdict.FINE:
                    self._accept(response, now_ms)
                elif verdict is not Verdict.LOST:
                    self.resend(now_ms + self._settings.client.retry_backoff_ms)
                return verdict
        where = f"heartbeat in group {self._group_id}"
        if response.error_code == ErrorCode.FENCED_INSTANCE_ID:
            raise FencedInstanceError(f"{where}: another consumer uses {self._settings.group_instance_id}")
        if response.error_code == ErrorCode.UNRELEASED_INSTANCE_ID:
            raise FencedInstanceError(
                f"{where}: a member of the group has the group.instance.id {self._settings.group_instance_id} already;"
                " give every consumer its own. If the other one crashed, its id is free after the broker's"
                " group.consumer.session.timeout.ms",
                code=ErrorCode.UNRELEASED_INSTANCE_ID,
            )
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            raise client_error(
                response.error_code, "this broker has no consumer protocol; set group.protocol=classic", where=where
            )
        raise client_error(response.error_code, response.error_message, where=where)

    def _accept(self, response: ConsumerGroupHeartbeatResponse, now_ms: int) -> None:
        if response.member_id:
            self.member_id = response.member_id
        self.epoch = response.member_epoch
        self.heartbeat_interval_ms = response.heartbeat_interval_ms
        self._next_heartbeat_ms = now_ms + response.heartbeat_interval_ms
        if response.assignment is not None:
            self.target = {
                entry.topic_id: frozenset(entry.partitions) for entry in response.assignment.topic_partitions
            }

    def resend(self, at_ms: int) -> None:
        """The last request may not have been heard: the next one names everything again."""
        self._sent_topics = self._sent_owned = None
        self._next_heartbeat_ms = at_ms

    # Reconciliation

    def wanted(self, names: Mapping[Uuid, str]) -> frozenset[TopicPartition] | None:
        """The partitions to hold, or None while a topic's name is not known yet or there is no target."""
        if self.target is None or any(topic_id not in names for topic_id in self.target):
            return None
        return frozenset(
            TopicPartition(names[topic_id], index) for topic_id, indexes in self.target.items() for index in indexes
        )

    # Leaving

    def forget(self) -> None:
        """Fenced or gone: everything held is lost, and the next heartbeat joins anew under the same id."""
        self.epoch = JOINING
        self.target = None
        self._next_heartbeat_ms = 0
        self._may_be_known = False
        self._sent_topics = self._sent_owned = None

    def leave_request(self) -> ConsumerGroupHeartbeatRequest | None:
        if not self._may_be_known:
            return None
        is_static = self._settings.group_instance_id is not None
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self.member_id,
            member_epoch=LEAVING_FOR_A_WHILE if is_static else LEAVING,
            instance_id=self._settings.group_instance_id,
        )


def _owned(partitions: Collection[TopicPartition], topic_ids: Mapping[str, Uuid]) -> list[OwnedTopicPartitions]:
    known: Iterable[TopicPartition] = (partition for partition in sorted(partitions) if partition.topic in topic_ids)
    return [
        OwnedTopicPartitions(topic_id=topic_ids[topic], partitions=indexes)
        for topic, indexes in by_topic(known).items()
    ]
