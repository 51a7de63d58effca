"""Members of groups, request by request: they join, sync and beat when told to, and may lie about themselves."""

from __future__ import annotations

from types import TracebackType

from ottla.base.errors import ErrorCode
from ottla.base.types import Uuid
from ottla.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedTopicPartitions,
)
from ottla.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.wire.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.raw_client import RawClient

JOIN_VERSION = 7
SYNC_VERSION = 4
HEARTBEAT_VERSION = 4
LEAVE_VERSION = 4
CONSUMER_HEARTBEAT_VERSION = 1


class RawMember:
    """Of a classic group. Its `id` and `generation` are what the coordinator last said; tests may overwrite them."""

    def __init__(
        self,
        port: int,
        group: str,
        *,
        instance_id: str | None = None,
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 10_000,
        protocols: tuple[str, ...] = ("range",),
        protocol_type: str = "raw",
        metadata: bytes = b"",
        client_id: str = "raw",
    ) -> None:
        self.client = RawClient(port, client_id=client_id)
        self.group = group
        self.instance_id = instance_id
        self.id = ""
        self.generation = -1
        self.protocols = protocols
        self.metadata = metadata
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._protocol_type = protocol_type

    def __enter__(self) -> RawMember:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.__exit__()

    def send_join(self) -> None:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self.id,
            group_instance_id=self.instance_id,
            protocol_type=self._protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=self.metadata) for name in self.protocols],
        )
        self.client.send(request, JOIN_VERSION)

    def receive_join(self) -> JoinGroupResponse:
        response = self.client.receive(JoinGroupResponse, JOIN_VERSION)
        if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.id = response.member_id
            self.generation = response.generation_id
        return response

    def introduce(self) -> None:
        """The first of two joins of a dynamic member: it gets its id (KIP-394)."""
        self.send_join()
        assert self.receive_join().error_code == ErrorCode.MEMBER_ID_REQUIRED

    def join(self) -> JoinGroupResponse:
        if not self.id and self.instance_id is None:
            self.introduce()
        self.send_join()
        return self.receive_join()

    def send_sync(self, assignments: dict[str, bytes] | None = None) -> None:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in (assignments or {}).items()
            ],
        )
        self.client.send(request, SYNC_VERSION)

    def receive_sync(self) -> SyncGroupResponse:
        return self.client.receive(SyncGroupResponse, SYNC_VERSION)

    def sync(self, assignments: dict[str, bytes] | None = None) -> SyncGroupResponse:
        self.send_sync(assignments)
        return self.receive_sync()

    def join_alone(self) -> RawMember:
        assert self.join().error_code == ErrorCode.NONE
        assert self.sync({self.id: b"all"}).error_code == ErrorCode.NONE
        return self

    def heartbeat(self) -> int:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance_id,
        )
        response = self.client.call(request, HEARTBEAT_VERSION)
        assert isinstance(response, HeartbeatResponse)
        return response.error_code

    def leave(self) -> int:
        identity = MemberIdentity(member_id=self.id, group_instance_id=self.instance_id)
        response = self.client.call(LeaveGroupRequest(group_id=self.group, members=[identity]), LEAVE_VERSION)
        assert isinstance(response, LeaveGroupResponse)
        return response.error_code or response.members[0].error_code

    def commit(self, topic: str, offset: int = 1, *, metadata: str = "", partition: int = 0, version: int = 8) -> int:
        asked = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.id,
            group_instance_id=self.instance_id,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[asked])],
        )
        response = self.client.call(request, version)
        assert isinstance(response, OffsetCommitResponse)
        return response.topics[0].partitions[0].error_code


class RawConsumerMember:
    """A member of a KIP-848 group that says everything in every heartbeat, and owns what it was last told to own."""

    def __init__(self, port: int, group: str, name: str, topic: str, *, rebalance_timeout_ms: int = 600_000) -> None:
        self.client = RawClient(port, client_id=name)
        self.name = name
        self.epoch = 0
        self.owned: frozenset[tuple[Uuid, int]] = frozenset()
        self._group = group
        self._topic = topic
        self._rebalance_timeout_ms = rebalance_timeout_ms

    def __enter__(self) -> RawConsumerMember:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.__exit__()

    def beat(self, *, listing: frozenset[tuple[Uuid, int]] | None = None) -> ConsumerGroupHeartbeatResponse:
        """`listing` is what it claims to own instead of what it was told."""
        owned = self.owned if listing is None else listing
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self.name,
            member_epoch=self.epoch,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            subscribed_topic_names=[self._topic],
            topic_partitions=[OwnedTopicPartitions(topic_id=key, partitions=[index]) for key, index in sorted(owned)],
        )
        response = self.client.call(request, CONSUMER_HEARTBEAT_VERSION)
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        assert response.error_code == ErrorCode.NONE, response
        assert response.assignment is not None, "a full heartbeat is answered with the whole assignment"
        self.epoch = response.member_epoch
        self.owned = frozenset(
            (t.topic_id, index) for t in response.assignment.topic_partitions for index in t.partitions
        )
        return response
