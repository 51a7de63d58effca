"""Fetch: ranges of log files, sent as they are. Waits for records where the client asks it to.

Which partitions are read and which results are sent is the fetch session's business; this module reads them, decides
whether there is enough to reply, and parks the request if there is not. Consumers may read from followers, up to what
these know to be committed; a leader sends them to one in their rack, if there is a selector (KIP-392).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import Uuid
from ottla.broker.authorizer import ResourceType, refusal
from ottla.broker.handler import Handler, RequestContext
from ottla.broker.parked import Parked, ParkedRequest
from ottla.broker.partition import Partition, not_leader
from ottla.broker.quotas import ByteRate
from ottla.broker.replication.throttles import ReplicationThrottle
from ottla.log.partition_log import PartitionLog
from ottla.machines.fetch_session import INITIAL_EPOCH, FetchContext, FetchRequestHead, PartitionKey, TopicKey
from ottla.machines.replication.closest_replica import closest_replica
from ottla.net.outgoing import Piece
from ottla.net.service import Deferred, Outcome
from ottla.wire.api_keys import ApiKey
from ottla.wire.fused.fetch import FetchPartition, FetchPlan, FetchResult, decode_fetch, encode_fetch_response

FIRST_VERSION_WITH_RACKS = 11
FIRST_VERSION_WITH_IDS = 13
_READ_COMMITTED = 1
# An empty set of records, as Kafka sends it: librdkafka cannot read a null one and never gets past it.
_NO_RECORDS = b""

KeyedResult = tuple[PartitionKey, FetchResult]


def handle(context: RequestContext) -> Outcome:
    plan = decode_fetch(context.frame, context.version, context.position)
    broker = context.broker
    asked = [((topic, wanted.partition), wanted) for topic, partitions in plan.topics for wanted in partitions]
    forgotten = [(topic, index) for topic, indexes in plan.forgotten for index in indexes]
    head = FetchRequestHead(
        plan.session_id, plan.session_epoch, context.version >= FIRST_VERSION_WITH_IDS, plan.replica_id >= 0
    )
    try:
        session = broker.fetch_sessions.begin(
            head,
            asked,
            forgotten,
            now_ms=broker.clock.monotonic_ms(),
            new_session_id=broker.ids.fetch_session_id() if plan.session_epoch == INITIAL_EPOCH else 0,
        )
    except KafkaError as e:
        return _encode(context, e.code, 0, [])
    attempt = _FetchAttempt(context, plan, session)
    if plan.replica_id >= 0:
        attempt.note_follower()
        if forgotten:
            _stop_watching(context, plan.replica_id, forgotten)
    if attempt.is_satisfied() or plan.max_wait_ms <= 0:
        return attempt.reply()
    return _wait_for_records(context, plan, attempt)


class _FetchAttempt:
    """One pass over the request's partitions: what there is to send now."""

    def __init__(self, context: RequestContext, plan: FetchPlan, session: FetchContext[FetchPartition]) -> None:
        self._context = context
        self._plan = plan
        self._session = session
        self._results: list[KeyedResult] = []
        self._carries: list[bool] = []
        self._bytes = 0
        self._must_reply = False
        self.partitions: list[Partition] = []
        self._followed: list[tuple[Partition, PartitionKey, FetchPartition]] = []
        """For followers: what could be read, and where from. One whose log goes another way has nothing of ours."""
        self.watch = session.watch
        self._level: list[tuple[PartitionKey, Partition, int]] = []
        """Of a follower's session: where there is nothing to tell but this high watermark."""
        self._rate = _rate_of(context, plan)
        self._throttle = context.broker.leader_throttle if plan.replica_id >= 0 else None
        self._throttled_bytes = 0
        self.throttled_ms = 0
        """How long it takes until a follower that is held back gets more; 0 if none is."""
        self._read_all()

    def note_follower(self) -> None:
        """Once per request: what a follower asks for, it has all before."""
        replica = self._plan.replica_id
        replicas = self._context.broker.replicas
        watch = self.watch
        for partition, key, wanted in self._followed:
            replicas.follower_fetched(
                partition,
                replica,
                wanted.fetch_offset,
                wanted.log_start_offset,
                self._plan.replica_epoch,
                None if watch is None else (watch, key),
            )

    def is_satisfied(self) -> bool:
        has_nothing = not self.partitions and self.watch is None
        return self._must_reply or has_nothing or self._bytes >= self._plan.min_bytes

    def again(self) -> _FetchAttempt:
        return _FetchAttempt(self._context, self._plan, self._session)

    def reply(self) -> Sequence[Piece]:
        if self._throttle is not None and self._throttled_bytes:
            self._throttle.record(self._throttled_bytes)
        if self._rate is not None:
            throttle_ms = self._rate.record(self._bytes, self._context.broker.clock.wall_ms())
            if throttle_ms:
                return self._throttled(self._rate, throttle_ms)
        results = self._session.select(self._results, self._carries)
        # The request itself may have moved a high watermark, which the results do not have.
        self._session.close(key for key, partition, told in self._level if partition.log.high_watermark == told)
        return _encode(self._context, ErrorCode.NONE, self._session.session_id, results)

    def _throttled(self, rate: ByteRate, throttle_ms: int) -> Sequence[Piece]:
        """Nothing but the time to wait: the client asks again for what it does not get now."""
        rate.take_back(self._bytes)
        self._context.connection.mute(throttle_ms)
        session_id = self._context.broker.fetch_sessions.leave_untold(self._session)
        return _encode(self._context, ErrorCode.NONE, session_id, [], throttle_ms)

    def _read_all(self) -> None:
        plan = self._plan
        room = min(plan.max_bytes, self._context.broker.config.integer("fetch.max.bytes"))
        if self._rate is not None:
            room = min(room, self._rate.most_in_window)
        for key, wanted in self._session.partitions():
            try:
                partition = _readable_partition(self._context, plan, key, wanted)
                self.partitions.append(partition)
                closer = self._closer_replica(partition, wanted) if plan.rack_id and plan.replica_id < 0 else None
                if closer is not None:
                    self._must_reply = True
                    self._add(key, _read_elsewhere(partition, wanted, closer), carries=True)
                    continue
                left = room - self._bytes
                throttle = self._throttle
                is_throttled = throttle is not None and _is_held_back(throttle, partition, plan.replica_id)
                if throttle is not None and is_throttled:
                    left = min(left, throttle.room() - self._throttled_bytes)
                    if left <= 0:
                        self.throttled_ms = throttle.wait_ms()
                is_first = self._bytes == 0 and (left > 0 or not is_throttled)
                result, size, is_behind = _read(partition, plan, wanted, left, is_first=is_first)
                if is_throttled:
                    self._throttled_bytes += size
                if plan.replica_id >= 0 and result.diverging_epoch is None:
                    self._followed.append((partition, key, wanted))
                    if size == 0 and _is_level(partition, plan.replica_id, wanted):
                        self._level.append((key, partition, result.high_watermark))
            except KafkaError as e:
                self._must_reply = True
                self._add(key, _failed(self._context, key, wanted.partition, e), carries=True)
                continue
            # A reader of an older segment has fallen behind: more than it gets now will not come by waiting.
            if is_behind or result.diverging_epoch is not None:
                self._must_reply = True
            self._bytes += size
            self._add(key, result, carries=size > 0 or result.diverging_epoch is not None)

    def _closer_replica(self, partition: Partition, wanted: FetchPartition) -> int | None:
        broker = self._context.broker
        if partition.leader is None or not broker.config.reads_from_closest_replica:
            return None
        listener = self._context.connection.listener
        racks = {
            other.broker_id: other.rack
            for other in broker.image.brokers.values()
            if other.endpoint(listener) is not None
        }
        return closest_replica(partition.leader, wanted.fetch_offset, self._plan.rack_id, racks)

    def _add(self, key: PartitionKey, result: FetchResult, *, carries: bool) -> None:
        self._results.append((key, result))
        self._carries.append(carries)


def _is_held_back(throttle: ReplicationThrottle, partition: Partition, replica: int) -> bool:
    leader = partition.leader
    return leader is not None and replica not in leader.isr and throttle.covers(partition.tp)


def _is_level(partition: Partition, replica: int, wanted: FetchPartition) -> bool:
    """Whether a follower has everything, and is in sync: who is not may join with its next fetch."""
    leader = partition.leader
    return wanted.fetch_offset == partition.log.log_end_offset and leader is not None and replica in leader.isr


def _stop_watching(context: RequestContext, replica: int, forgotten: Sequence[PartitionKey]) -> None:
    """What a follower does not fetch any more its session does not speak for."""
    for topic, index in forgotten:
        name = topic if isinstance(topic, str) else context.broker.image.topic_name(Uuid(topic))
        partition = None if name is None else context.broker.replicas.find(name, index)
        follower = None if partition is None or partition.leader is None else partition.leader.followers.get(replica)
        if follower is not None:
            follower.watch = None


def _rate_of(context: RequestContext, plan: FetchPlan) -> ByteRate | None:
    """Where a consumer's bytes are counted, if it has a quota."""
    broker = context.broker
    if not broker.quotas.is_limiting or plan.replica_id >= 0:
        return None
    return context.admission.rates(context.client_id, broker.clock.wall_ms()).consumer


def _readable_partition(
    context: RequestContext, plan: FetchPlan, key: PartitionKey, wanted: FetchPartition
) -> Partition:
    name = _topic_name(context, key[0])
    if not (context.admission.may_read(name) if plan.replica_id < 0 else context.may(ResourceType.CLUSTER)):
        raise refusal(ResourceType.TOPIC)
    replicas = context.broker.replicas
    partition = replicas.find(name, wanted.partition)
    if partition is None:
        raise replicas.not_held(name, wanted.partition)
    if context.version >= FIRST_VERSION_WITH_IDS and partition.topic_id != key[0]:
        raise KafkaError(code=ErrorCode.INCONSISTENT_TOPIC_ID)
    partition.check_leader_epoch(wanted.current_leader_epoch)
    leader = partition.leader
    if leader is None:
        may_be_follower = plan.replica_id < 0 and context.version >= FIRST_VERSION_WITH_RACKS
        if not may_be_follower or not partition.is_following:
            raise not_leader(partition)
        return partition
    if plan.replica_id >= 0 and plan.replica_id not in leader.followers:
        # Its controller may know more than ours: with an epoch it tries again, without it looks for the leader.
        has_epoch = wanted.current_leader_epoch >= 0
        raise KafkaError(code=ErrorCode.UNKNOWN_LEADER_EPOCH if has_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if plan.replica_id >= 0 and leader.is_outdated(plan.replica_id, plan.replica_epoch):
        raise KafkaError(code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return partition


def _topic_name(context: RequestContext, topic: TopicKey) -> str:
    if isinstance(topic, str):
        return topic
    name = context.broker.image.topic_name(Uuid(topic))
    if name is None:
        raise KafkaError(code=ErrorCode.UNKNOWN_TOPIC_ID)
    return name


def _read(
    partition: Partition, plan: FetchPlan, wanted: FetchPartition, room: int, *, is_first: bool
) -> tuple[FetchResult, int, bool]:
    log = partition.log
    high_watermark = log.high_watermark
    last_stable_offset = log.last_stable_offset
    if wanted.last_fetched_epoch >= 0:
        diverging = divergence(partition.log, wanted)
        if diverging is not None:
            at_fork = FetchResult(
                wanted.partition,
                0,
                high_watermark,
                last_stable_offset,
                log.log_start_offset,
                diverging_epoch=diverging,
                records=_NO_RECORDS,
            )
            return at_fork, 0, False
    is_committed_read = False
    if plan.replica_id < 0:
        is_committed_read = plan.isolation_level == _READ_COMMITTED
        end_offset = last_stable_offset if is_committed_read else high_watermark
    else:
        end_offset = log.log_end_offset
    limit = min(wanted.max_bytes, room)
    found = log.read(wanted.fetch_offset, max(limit, 0), end_offset=end_offset, min_one_batch=is_first)
    aborted = None
    if is_committed_read:
        aborted = [
            (transaction.producer_id, transaction.first_offset) for transaction in log.aborted_in(found, end_offset)
        ]
    result = FetchResult(
        wanted.partition,
        0,
        high_watermark,
        last_stable_offset,
        log.log_start_offset,
        aborted=aborted,
        records=_NO_RECORDS if found.data is None else found.data,
    )
    if found.data is None:
        return result, 0, False
    return result, found.data.length, not found.is_last_segment


def _read_elsewhere(partition: Partition, wanted: FetchPartition, replica: int) -> FetchResult:
    log = partition.log
    return FetchResult(
        wanted.partition,
        0,
        log.high_watermark,
        log.last_stable_offset,
        log.log_start_offset,
        preferred_read_replica=replica,
        records=_NO_RECORDS,
    )


def divergence(log: PartitionLog, wanted: FetchPartition) -> tuple[int, int] | None:
    """Where the reader's history leaves ours, if it does (KIP-595)."""
    epoch, end_offset = log.epochs.end_offset_for(wanted.last_fetched_epoch, log.log_end_offset)
    if epoch < 0 or end_offset < 0:
        raise KafkaError(code=ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        return epoch, end_offset
    return None


def _failed(context: RequestContext, key: PartitionKey, index: int, error: KafkaError) -> FetchResult:
    leader = None
    log_start_offset = -1
    if isinstance(key[0], str):
        partition = context.broker.replicas.find(key[0], index)
    else:
        name = context.broker.image.topic_name(Uuid(key[0]))
        partition = None if name is None else context.broker.replicas.find(name, index)
    if partition is not None:
        log_start_offset = partition.log.log_start_offset
        if error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            leader = (partition.leader_id, partition.leader_epoch)
    return FetchResult(index, error.code, -1, -1, log_start_offset, current_leader=leader, records=_NO_RECORDS)


def _encode(
    context: RequestContext, code: ErrorCode, session_id: int, results: Sequence[KeyedResult], throttle_ms: int = 0
) -> Sequence[Piece]:
    topics: list[tuple[TopicKey, list[FetchResult]]] = []
    for (topic, _), result in results:
        if topics and topics[-1][0] == topic:
            topics[-1][1].append(result)
        else:
            topics.append((topic, [result]))
    return encode_fetch_response(
        context.version,
        context.correlation_id,
        topics,
        throttle_ms=throttle_ms,
        error_code=code,
        session_id=session_id,
    )


class _WaitingFetch:
    def __init__(self, attempt: _FetchAttempt, deferred: Deferred, parking: Parked) -> None:
        self._attempt = attempt
        self._deferred = deferred
        self._parking = parking
        self.parked: ParkedRequest | None = None

    def try_complete(self) -> bool:
        attempt = self._attempt.again()
        if attempt.is_satisfied():
            self._reply(attempt)
            return True
        self.look_again(attempt)
        return False

    def look_again(self, attempt: _FetchAttempt) -> None:
        """When a throttle leaves room for more."""
        if attempt.throttled_ms and self.parked is not None:
            self._parking.loop.call_later(attempt.throttled_ms / 1000, self._parking.soon, self.parked)

    def expire(self) -> None:
        self._reply(self._attempt.again())

    def _reply(self, attempt: _FetchAttempt) -> None:
        if attempt.watch is not None:
            attempt.watch.on_moved = None
        self._deferred.complete(attempt.reply())


def _wait_for_records(context: RequestContext, plan: FetchPlan, attempt: _FetchAttempt) -> Outcome:
    deferred = Deferred()
    parking = context.broker.parked
    waiter = _WaitingFetch(attempt, deferred, parking)
    if attempt.watch is None:
        parked = parking.park(waiter, attempt.partitions, plan.max_wait_ms)
    else:
        parked = parking.park_unplaced(waiter, plan.max_wait_ms)
        attempt.watch.on_moved = partial(parking.soon, parked)
    waiter.parked = parked
    waiter.look_again(attempt)
    deferred.on_abandoned = parked.forget
    context.let_go_of_frame()
    return deferred


HANDLER = Handler(ApiKey.FETCH, 4, 17, handle)
