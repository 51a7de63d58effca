"""Produce: appends each partition's batch as it came, then replies at once or when all replicas have it.

The batch is never opened here: the log reads its header, checks its checksum and writes the bytes. Every partition
succeeds or fails on its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from ottla.base.errors import ErrorCode, InvalidRecordError, KafkaError, ProtocolError
from ottla.broker.authorizer import ResourceType, refusal
from ottla.broker.handler import Handler, RequestContext
from ottla.broker.handlers.transactional_produce import (
    FIRST_VERSION_THAT_ADDS,
    Refused,
    add_partitions,
    check_in_transaction,
    must_wait_for_coordinator,
    unverified_partitions,
    verify_partitions,
)
from ottla.broker.partition import Partition
from ottla.machines.cluster.topic_names import INTERNAL_TOPICS
from ottla.machines.transactions.answers import verification_code
from ottla.net.service import Deferred, Outcome
from ottla.records.batch import CODEC_MASK, TRANSACTIONAL_BIT, peek_attributes
from ottla.records.compression import Codec
from ottla.wire.api_keys import ApiKey
from ottla.wire.apis.produce import NodeEndpoint
from ottla.wire.fused.produce import ProducePlan, ProduceResult, decode_produce, encode_produce_response

MIN_VERSION = 3
MAX_VERSION = 12
_ADMIN_CLIENT = "__admin_client"
_NOTHING_REFUSED: Refused = {}

TopicResults = list[tuple[str, list[ProduceResult]]]


def handle(context: RequestContext) -> Outcome:
    plan = decode_produce(context.frame, context.version, context.position)
    acks = plan.acks
    if acks not in (-1, 0, 1):
        return (_reply(context, _all_failed(plan, ErrorCode.INVALID_REQUIRED_ACKS)),)
    if plan.transactional_id is not None and not context.may(ResourceType.TRANSACTIONAL_ID, plan.transactional_id):
        return (_reply(context, _all_failed(plan, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)),)
    if plan.transactional_id is not None and context.version >= FIRST_VERSION_THAT_ADDS:
        unverified = unverified_partitions(context, plan)
        if unverified:
            return _ask_coordinator_first(context, plan, partial(add_partitions, unverified=unverified))
    elif plan.transactional_id is not None and must_wait_for_coordinator(context, plan.transactional_id):
        unverified = unverified_partitions(context, plan)
        if unverified:
            return _ask_coordinator_first(context, plan, partial(verify_partitions, unverified=unverified))
    return _produce(context, plan, _NOTHING_REFUSED)


def _produce(context: RequestContext, plan: ProducePlan, refused: Refused) -> Outcome:
    """Appends what is not in `refused`."""
    acks = plan.acks
    now_ms = context.broker.clock.wall_ms()
    results: TopicResults = []
    waiting: list[_Pending] = []
    for topic, partitions in plan.topics:
        outcomes = []
        for index, records in partitions:
            try:
                outcomes.append(_append(context, plan, topic, index, records, now_ms, waiting, refused))
            except KafkaError as e:
                outcomes.append(_failed(context, topic, index, e))
        results.append((topic, outcomes))
    if acks == 0:
        _throttle_ms(context)
        return _no_reply(results)
    if waiting:
        return _wait_for_replicas(context, plan, results, waiting)
    return (_reply(context, results),)


def _ask_coordinator_first(
    context: RequestContext, plan: ProducePlan, ask: Callable[[RequestContext, str], Awaitable[Refused]]
) -> Outcome:
    """The records outlive the request's frame, so they are copied; that happens once per transaction and partition."""
    kept = plan._replace(
        topics=[
            (topic, [(index, None if records is None else memoryview(bytearray(records))) for index, records in parts])
            for topic, parts in plan.topics
        ]
    )
    context.let_go_of_frame()
    deferred = Deferred()

    async def ask_and_produce() -> None:
        try:
            refused = await ask(context, kept.transactional_id or "")
        except KafkaError as e:
            code = verification_code(e.code, ApiKey.PRODUCE, context.version)
            deferred.complete((_reply(context, _all_failed(kept, code, e.message)),))
            return
        outcome = _produce(context, kept, refused)
        if isinstance(outcome, Deferred):
            outcome.forward_to(deferred)
        else:
            deferred.complete(outcome)

    context.broker.spawn(ask_and_produce())
    return deferred


def _append(
    context: RequestContext,
    plan: ProducePlan,
    topic: str,
    index: int,
    records: memoryview | None,
    now_ms: int,
    waiting: list[_Pending],
    refused: Refused,
) -> ProduceResult:
    if not context.admission.may_write(topic):
        raise refusal(ResourceType.TOPIC)
    replicas = context.broker.replicas
    partition = replicas.led(topic, index)
    if topic in INTERNAL_TOPICS and context.client_id != _ADMIN_CLIENT:
        raise KafkaError(f"clients cannot write to {topic}", code=ErrorCode.INVALID_TOPIC_EXCEPTION)
    if not records:
        raise InvalidRecordError("the request holds no records for this partition")
    attributes = peek_attributes(records)
    if context.version < 7 and attributes & CODEC_MASK == Codec.ZSTD:
        raise KafkaError(code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if attributes & TRANSACTIONAL_BIT:
        if plan.transactional_id is None:
            raise KafkaError(code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if partition.tp in refused:
            raise KafkaError(code=refused[partition.tp])
        check_in_transaction(context, plan.transactional_id, partition, records)
    needs_all = plan.acks == -1
    info = replicas.append(partition, records, requires_all_replicas=needs_all, now_ms=now_ms)
    if needs_all and partition.log.high_watermark <= info.last_offset:
        waiting.append(_Pending(partition, topic, index, info.last_offset))
    return ProduceResult(index, 0, info.first_offset, info.log_append_time_ms, info.log_start_offset)


def _failed(context: RequestContext, topic: str, index: int, error: KafkaError) -> ProduceResult:
    partition = context.broker.replicas.find(topic, index)
    leader = None
    if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER and partition is not None:
        leader = (partition.leader_id, partition.leader_epoch)
    return ProduceResult(
        index,
        error.code,
        log_start_offset=-1 if partition is None else partition.log.log_start_offset,
        record_errors=error.record_errors if isinstance(error, InvalidRecordError) else (),
        error_message=error.message,
        current_leader=leader,
    )


def _all_failed(plan: ProducePlan, code: ErrorCode, message: str | None = None) -> TopicResults:
    return [
        (topic, [ProduceResult(index, code, error_message=message) for index, _ in partitions])
        for topic, partitions in plan.topics
    ]


def _no_reply(results: TopicResults) -> Outcome:
    """With acks=0 the only way to tell the client of an error is to close its connection."""
    for topic, outcomes in results:
        for outcome in outcomes:
            if outcome.error_code:
                raise ProtocolError(
                    f"a produce request with acks=0 failed for {topic}-{outcome.index}: "
                    f"{ErrorCode(outcome.error_code).name}"
                )
    return ()


def _reply(context: RequestContext, results: TopicResults) -> bytes:
    return encode_produce_response(
        context.version,
        context.correlation_id,
        results,
        _throttle_ms(context),
        node_endpoints=_new_leaders(context, results),
    )


def _throttle_ms(context: RequestContext) -> int:
    """Counts the request against its producer's quota, once; its connection is not read for the time returned."""
    broker = context.broker
    if not broker.quotas.is_limiting:
        return 0
    now_ms = broker.clock.wall_ms()
    rate = context.admission.rates(context.client_id, now_ms).producer
    throttle_ms = 0 if rate is None else rate.record(context.request_bytes, now_ms)
    if throttle_ms:
        context.connection.mute(throttle_ms)
    return throttle_ms


def _new_leaders(context: RequestContext, results: TopicResults) -> Sequence[NodeEndpoint]:
    """Where the leaders named in errors can be reached, so that clients need no metadata first (KIP-951)."""
    leaders = {outcome.current_leader[0] for _, outcomes in results for outcome in outcomes if outcome.current_leader}
    if not leaders or context.version < 10:
        return ()
    return [
        NodeEndpoint(node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
        for broker in context.broker.image.brokers.values()
        if broker.broker_id in leaders
        for endpoint in [broker.endpoint(context.connection.listener)]
        if endpoint is not None
    ]


class _Pending:
    """A partition whose records are appended here but not yet on all in-sync replicas."""

    __slots__ = ("index", "last_offset", "leads_since", "partition", "topic")

    def __init__(self, partition: Partition, topic: str, index: int, last_offset: int) -> None:
        self.partition = partition
        self.topic = topic
        self.index = index
        self.last_offset = last_offset
        self.leads_since = partition.leads_since

    def error(self) -> ErrorCode | None:
        """NONE once the records are committed, another code if they cannot be any more, None while it is open."""
        leader = self.partition.leader
        if leader is None or self.partition.leads_since != self.leads_since:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if leader.high_watermark <= self.last_offset:
            return None
        return ErrorCode.NONE if leader.has_enough_replicas else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class _WaitingProduce:
    def __init__(
        self, context: RequestContext, results: TopicResults, waiting: list[_Pending], deferred: Deferred
    ) -> None:
        self._context = context
        self._results = results
        self._waiting = waiting
        self._deferred = deferred
        self._errors: dict[tuple[str, int], ErrorCode] = {}

    def try_complete(self) -> bool:
        still_open = []
        for pending in self._waiting:
            error = pending.error()
            if error is None:
                still_open.append(pending)
            elif error != ErrorCode.NONE:
                self._errors[pending.topic, pending.index] = error
        self._waiting = still_open
        if not still_open:
            self._reply()
        return not still_open

    def expire(self) -> None:
        for pending in self._waiting:
            self._errors[pending.topic, pending.index] = ErrorCode.REQUEST_TIMED_OUT
        self._reply()

    def _reply(self) -> None:
        results = [
            (
                topic,
                [
                    ProduceResult(outcome.index, self._errors[topic, outcome.index])
                    if (topic, outcome.index) in self._errors
                    else outcome
                    for outcome in outcomes
                ],
            )
            for topic, outcomes in self._results
        ]
        self._deferred.complete((_reply(self._context, results),))


def _wait_for_replicas(
    context: RequestContext, plan: ProducePlan, results: TopicResults, waiting: list[_Pending]
) -> Outcome:
    # The append is done and ordered, so later requests of the connection need not wait for this one's replicas.
    deferred = Deferred(holds_connection=False)
    waiter = _WaitingProduce(context, results, waiting, deferred)
    parked = context.broker.parked.park(waiter, [pending.partition for pending in waiting], max(plan.timeout_ms, 0))
    deferred.on_abandoned = parked.forget
    context.let_go_of_frame()
    return deferred


# Versions 0 to 2 are advertised but not served: librdkafka looks for version 0 to find out whether it may compress.
HANDLER = Handler(ApiKey.PRODUCE, MIN_VERSION, MAX_VERSION, handle, advertised_min_version=0)
