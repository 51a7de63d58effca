"""What the transaction coordinator says: answers to requests, orders for markers, and codes that old clients know."""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.machines.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID, Producer
from ottla.wire.api_keys import ApiKey


class Answer(NamedTuple):
    """The response of every `Reply`. The producer is set where the API returns one and nothing went wrong."""

    error_code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


def granted(producer: Producer) -> Answer:
    return Answer(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)


def refused(error: KafkaError, api: ApiKey, version: int) -> Answer:
    return Answer(known_code(error.code, api, version), error.message)


class SendMarkers(NamedTuple):
    """An effect: write these markers, again and again until each partition has its own or is gone.

    When all are done, `markers_written` is to be called on the shard that ordered them, with the same `order`.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    partitions: tuple[TopicPartition, ...]
    order: int
    """Tells this order from an earlier one for the same producer and epoch."""


_KNOWS_FENCED = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}
_KNOWS_ABORTABLE = {
    ApiKey.PRODUCE: 11,
    ApiKey.INIT_PRODUCER_ID: 5,
    ApiKey.ADD_PARTITIONS_TO_TXN: 5,
    ApiKey.ADD_OFFSETS_TO_TXN: 4,
    ApiKey.END_TXN: 4,
    ApiKey.TXN_OFFSET_COMMIT: 4,
}
_RETRIES_CONCURRENT = {ApiKey.PRODUCE: 12, ApiKey.TXN_OFFSET_COMMIT: 5}
"""From here on the client expects the partition to add itself, and so that the last transaction may still be ending."""


def known_code(code: ErrorCode, api: ApiKey, version: int) -> ErrorCode:
    """The code to send in a response of this version: newer codes become what a client of that time can act on."""
    if code == ErrorCode.PRODUCER_FENCED and version < _KNOWS_FENCED.get(api, 0):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code == ErrorCode.TRANSACTION_ABORTABLE and version < _KNOWS_ABORTABLE.get(api, 0):
        return ErrorCode.INVALID_TXN_STATE
    return code


_COORDINATOR_AWAY = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


def verification_code(code: ErrorCode, api: ApiKey, version: int) -> ErrorCode:
    """What Produce or TxnOffsetCommit answers when the coordinator met a verification, or an addition, with `code`.

    These clients talk to a partition, not to the coordinator: its absence must make them try again here, without a
    search for another leader or coordinator.
    """
    is_produce = api == ApiKey.PRODUCE
    if code in _COORDINATOR_AWAY or (code == ErrorCode.CONCURRENT_TRANSACTIONS and version < _RETRIES_CONCURRENT[api]):
        return ErrorCode.NOT_ENOUGH_REPLICAS if is_produce else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if code == ErrorCode.PRODUCER_FENCED and is_produce:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return known_code(code, api, version)


_APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def append_failure_code(code: ErrorCode) -> ErrorCode:
    """What a client is told when the coordinator could not write to its own log."""
    return _APPEND_ERRORS.get(code, code)
