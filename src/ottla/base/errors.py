"""Kafka's error codes in one table, and the small tree of exceptions everything here raises.

A broker handler raises `KafkaError` (or a subclass that names a rule) and the reply carries its code; whatever is not
a `KafkaError` is our bug and becomes UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple


class ErrorCode(IntEnum):
    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129


class ErrorInfo(NamedTuple):
    message: str
    retriable: bool = False
    refreshes_metadata: bool = False


ERRORS: dict[ErrorCode, ErrorInfo] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: ErrorInfo("the broker met an error it did not expect; its log says more"),
    ErrorCode.NONE: ErrorInfo(""),
    ErrorCode.OFFSET_OUT_OF_RANGE: ErrorInfo("the offset is outside what the partition holds"),
    ErrorCode.CORRUPT_MESSAGE: ErrorInfo("the records are damaged: checksum, size or structure is wrong", True),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorInfo("this broker does not host this topic-partition", True, True),
    ErrorCode.INVALID_FETCH_SIZE: ErrorInfo("the fetch size is not acceptable"),
    ErrorCode.LEADER_NOT_AVAILABLE: ErrorInfo("the partition has no leader at the moment", True, True),
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorInfo(
        "this broker is not the leader (or a follower) of the partition", True, True
    ),
    ErrorCode.REQUEST_TIMED_OUT: ErrorInfo("the request was not completed within its time-out", True),
    ErrorCode.BROKER_NOT_AVAILABLE: ErrorInfo("the broker is not available"),
    ErrorCode.REPLICA_NOT_AVAILABLE: ErrorInfo("the replica is not on this broker", True, True),
    ErrorCode.MESSAGE_TOO_LARGE: ErrorInfo("the batch is larger than max.message.bytes allows"),
    ErrorCode.STALE_CONTROLLER_EPOCH: ErrorInfo("a newer controller has taken over"),
    ErrorCode.OFFSET_METADATA_TOO_LARGE: ErrorInfo(
        "the metadata of the committed offset is longer than offset.metadata.max.bytes"
    ),
    ErrorCode.NETWORK_EXCEPTION: ErrorInfo("the connection was lost before the reply came", True, True),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorInfo("the coordinator is still loading its state", True),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorInfo("there is no coordinator for this id at the moment", True),
    ErrorCode.NOT_COORDINATOR: ErrorInfo("another broker is the coordinator of this id", True),
    ErrorCode.INVALID_TOPIC_EXCEPTION: ErrorInfo(
        "the topic name is not legal, or the topic cannot be used in this way"
    ),
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorInfo("the records do not fit into one log segment"),
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorInfo(
        "fewer replicas are in sync than min.insync.replicas asks for; nothing was written", True
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorInfo(
        "the records were written, but too few replicas stayed in sync to confirm them", True
    ),
    ErrorCode.INVALID_REQUIRED_ACKS: ErrorInfo("acks must be -1 (all), 0 or 1"),
    ErrorCode.ILLEGAL_GENERATION: ErrorInfo("the generation is not the group's current one"),
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: ErrorInfo("the member's protocols do not fit those of the group"),
    ErrorCode.INVALID_GROUP_ID: ErrorInfo("the group id is not valid"),
    ErrorCode.UNKNOWN_MEMBER_ID: ErrorInfo("the group does not know this member"),
    ErrorCode.INVALID_SESSION_TIMEOUT: ErrorInfo("the session time-out is outside the range the broker allows"),
    ErrorCode.REBALANCE_IN_PROGRESS: ErrorInfo("the group is rebalancing; join it again"),
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: ErrorInfo("the offset commit is too large to store"),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: ErrorInfo("not authorised for this topic"),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: ErrorInfo("not authorised for this group"),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorInfo("not authorised for this operation on the cluster"),
    ErrorCode.INVALID_TIMESTAMP: ErrorInfo("a record's timestamp is outside the accepted range"),
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: ErrorInfo("the SASL mechanism is not enabled here"),
    ErrorCode.ILLEGAL_SASL_STATE: ErrorInfo("the request does not fit the state of the SASL exchange"),
    ErrorCode.UNSUPPORTED_VERSION: ErrorInfo("this version of the API is not supported"),
    ErrorCode.TOPIC_ALREADY_EXISTS: ErrorInfo("a topic of this name already exists"),
    ErrorCode.INVALID_PARTITIONS: ErrorInfo("the number of partitions is not acceptable"),
    ErrorCode.INVALID_REPLICATION_FACTOR: ErrorInfo(
        "the replication factor is below 1 or above the number of live brokers"
    ),
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: ErrorInfo("the replica assignment is not acceptable"),
    ErrorCode.INVALID_CONFIG: ErrorInfo("the configuration is not acceptable"),
    ErrorCode.NOT_CONTROLLER: ErrorInfo("this broker is not the controller", True),
    ErrorCode.INVALID_REQUEST: ErrorInfo("the request breaks the rules of the protocol"),
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: ErrorInfo("the stored message format does not support this"),
    ErrorCode.POLICY_VIOLATION: ErrorInfo("the request violates a policy"),
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: ErrorInfo(
        "the producer's sequence number does not follow the last one stored"
    ),
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: ErrorInfo("the batch has been stored before"),
    ErrorCode.INVALID_PRODUCER_EPOCH: ErrorInfo("a newer producer with this id has written to the partition"),
    ErrorCode.INVALID_TXN_STATE: ErrorInfo("the transaction is not in a state that allows this"),
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: ErrorInfo(
        "the transactional id does not belong to this producer id (it may have expired)"
    ),
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: ErrorInfo(
        "the transaction time-out is not positive or above transaction.max.timeout.ms"
    ),
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorInfo(
        "the previous transaction of this transactional id is still being completed", True
    ),
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: ErrorInfo("a newer transaction coordinator has taken over"),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ErrorInfo("not authorised for this transactional id"),
    ErrorCode.SECURITY_DISABLED: ErrorInfo("no authorizer is configured on this broker"),
    ErrorCode.OPERATION_NOT_ATTEMPTED: ErrorInfo("not attempted, because another part of the request failed"),
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorInfo("the log directory has failed", True, True),
    ErrorCode.LOG_DIR_NOT_FOUND: ErrorInfo("the log directory is not one of this broker's"),
    ErrorCode.SASL_AUTHENTICATION_FAILED: ErrorInfo("authentication failed"),
    ErrorCode.UNKNOWN_PRODUCER_ID: ErrorInfo("nothing is known of this producer id any more"),
    ErrorCode.REASSIGNMENT_IN_PROGRESS: ErrorInfo("the partition is being reassigned"),
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: ErrorInfo("delegation tokens are not enabled"),
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: ErrorInfo("there is no such delegation token"),
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: ErrorInfo("the principal may not use this delegation token"),
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: ErrorInfo("delegation tokens cannot be handled on this connection"),
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: ErrorInfo("not authorised for this delegation token"),
    ErrorCode.DELEGATION_TOKEN_EXPIRED: ErrorInfo("the delegation token has expired"),
    ErrorCode.INVALID_PRINCIPAL_TYPE: ErrorInfo("the type of the principal is not supported"),
    ErrorCode.NON_EMPTY_GROUP: ErrorInfo("the group still has members"),
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorInfo("there is no such group"),
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: ErrorInfo("there is no such fetch session", True),
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: ErrorInfo("the fetch session's epoch is not the expected one", True),
    ErrorCode.LISTENER_NOT_FOUND: ErrorInfo(
        "the leader has no endpoint on the listener this request came through", True, True
    ),
    ErrorCode.TOPIC_DELETION_DISABLED: ErrorInfo("topic deletion is disabled (delete.topic.enable)"),
    ErrorCode.FENCED_LEADER_EPOCH: ErrorInfo("the leader epoch of the request is older than the broker's", True, True),
    ErrorCode.UNKNOWN_LEADER_EPOCH: ErrorInfo("the leader epoch of the request is newer than the broker's", True),
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: ErrorInfo("this compression needs a newer version of the API"),
    ErrorCode.STALE_BROKER_EPOCH: ErrorInfo("the broker has registered again since"),
    ErrorCode.OFFSET_NOT_AVAILABLE: ErrorInfo("the new leader does not know its latest committed offset yet", True),
    ErrorCode.MEMBER_ID_REQUIRED: ErrorInfo("join again with the member id that was just issued"),
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: ErrorInfo("the preferred leader cannot lead at the moment", True, True),
    ErrorCode.GROUP_MAX_SIZE_REACHED: ErrorInfo("the group has as many members as group.max.size allows"),
    ErrorCode.FENCED_INSTANCE_ID: ErrorInfo("another member has taken over this group instance id"),
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: ErrorInfo("no replica is eligible to lead", True, True),
    ErrorCode.ELECTION_NOT_NEEDED: ErrorInfo("the partition is already led as asked", True, True),
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: ErrorInfo("no reassignment is in progress"),
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: ErrorInfo("the group is subscribed to the topic"),
    ErrorCode.INVALID_RECORD: ErrorInfo("a record breaks the rules of its topic"),
    ErrorCode.UNSTABLE_OFFSET_COMMIT: ErrorInfo("an open transaction still holds offsets of this group", True),
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: ErrorInfo("the quota has been exceeded", True),
    ErrorCode.PRODUCER_FENCED: ErrorInfo("a newer producer with this transactional id has taken over"),
    ErrorCode.RESOURCE_NOT_FOUND: ErrorInfo("there is no such resource"),
    ErrorCode.DUPLICATE_RESOURCE: ErrorInfo("the request names the same resource twice"),
    ErrorCode.UNACCEPTABLE_CREDENTIAL: ErrorInfo("the credential is not acceptable"),
    ErrorCode.INCONSISTENT_VOTER_SET: ErrorInfo("the voter sets do not agree"),
    ErrorCode.INVALID_UPDATE_VERSION: ErrorInfo("the update is based on a version that is no longer current"),
    ErrorCode.FEATURE_UPDATE_FAILED: ErrorInfo("the feature could not be updated"),
    ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: ErrorInfo("the forwarded principal cannot be read"),
    ErrorCode.SNAPSHOT_NOT_FOUND: ErrorInfo("there is no such snapshot"),
    ErrorCode.POSITION_OUT_OF_RANGE: ErrorInfo("the position is outside the snapshot"),
    ErrorCode.UNKNOWN_TOPIC_ID: ErrorInfo("this broker does not know the topic id", True, True),
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: ErrorInfo("a live broker with this id is registered"),
    ErrorCode.BROKER_ID_NOT_REGISTERED: ErrorInfo("no broker with this id is registered"),
    ErrorCode.INCONSISTENT_TOPIC_ID: ErrorInfo("the topic id is not that of the stored log", True, True),
    ErrorCode.INCONSISTENT_CLUSTER_ID: ErrorInfo("the cluster id is not this cluster's"),
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: ErrorInfo("there is no such transactional id"),
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: ErrorInfo("a fetch session cannot mix topic names and topic ids", True),
    ErrorCode.INELIGIBLE_REPLICA: ErrorInfo("a proposed in-sync replica is not eligible"),
    ErrorCode.NEW_LEADER_ELECTED: ErrorInfo("the change was made and has moved the leadership"),
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: ErrorInfo("the offset is now in remote storage only"),
    ErrorCode.FENCED_MEMBER_EPOCH: ErrorInfo("the member's epoch is not valid; give up all partitions and join again"),
    ErrorCode.UNRELEASED_INSTANCE_ID: ErrorInfo("another live member holds this group instance id"),
    ErrorCode.UNSUPPORTED_ASSIGNOR: ErrorInfo("the broker does not have this assignor"),
    ErrorCode.STALE_MEMBER_EPOCH: ErrorInfo("the member's epoch is behind; send a heartbeat first"),
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: ErrorInfo("the request was sent to the wrong kind of endpoint"),
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: ErrorInfo("this kind of endpoint is not supported"),
    ErrorCode.UNKNOWN_CONTROLLER_ID: ErrorInfo("there is no controller with this id"),
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID: ErrorInfo("the telemetry subscription is not the current one"),
    ErrorCode.TELEMETRY_TOO_LARGE: ErrorInfo("the telemetry is larger than the broker accepts"),
    ErrorCode.INVALID_REGISTRATION: ErrorInfo("the broker's registration is not acceptable"),
    ErrorCode.TRANSACTION_ABORTABLE: ErrorInfo("the transaction must be aborted; the producer can go on after that"),
    ErrorCode.INVALID_RECORD_STATE: ErrorInfo("the record's state does not allow this acknowledgement"),
    ErrorCode.SHARE_SESSION_NOT_FOUND: ErrorInfo("there is no such share session", True),
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: ErrorInfo("the share session's epoch is not the expected one", True),
    ErrorCode.FENCED_STATE_EPOCH: ErrorInfo("the share state's epoch is not the expected one"),
    ErrorCode.INVALID_VOTER_KEY: ErrorInfo("the voter's key is not the receiver's"),
    ErrorCode.DUPLICATE_VOTER: ErrorInfo("the voter is already in the set"),
    ErrorCode.VOTER_NOT_FOUND: ErrorInfo("the voter is not in the set"),
    ErrorCode.INVALID_REGULAR_EXPRESSION: ErrorInfo("the regular expression is not valid"),
    ErrorCode.REBOOTSTRAP_REQUIRED: ErrorInfo("find the cluster again from the bootstrap servers"),
}


class OttlaError(Exception):
    """The root of everything this project raises on purpose."""


class KafkaError(OttlaError):
    """An error with one of Kafka's codes: what a reply carries, or what a reply carried."""

    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str | None = None, *, code: ErrorCode | None = None) -> None:
        if code is not None:
            self.code = code
        self.message = message if message is not None else ERRORS[self.code].message
        super().__init__(self.message)

    @property
    def retriable(self) -> bool:
        return ERRORS[self.code].retriable

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"

    def __reduce__(self) -> tuple[Callable[..., KafkaError], tuple[object, ...], dict[str, Any]]:
        # Exceptions are copied and pickled by a call with their message, which is not what every subclass is made of.
        return _without_init, (type(self), self.args), self.__dict__


def _without_init(kind: type[KafkaError], args: tuple[object, ...]) -> KafkaError:
    error = kind.__new__(kind)
    error.args = args
    return error


def kafka_error(code: int, message: str | None = None) -> KafkaError:
    """The exception for a code read off the wire; a code newer than this table is an unknown server error."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return KafkaError(message or f"error code {code}, which this version does not know")
    return KafkaError(message, code=known)


class CorruptBatchError(KafkaError):
    code = ErrorCode.CORRUPT_MESSAGE


class InvalidRecordError(KafkaError):
    """Records that are whole but break a rule. `record_errors` names the offending records by their index."""

    code = ErrorCode.INVALID_RECORD

    def __init__(
        self,
        message: str | None = None,
        *,
        code: ErrorCode | None = None,
        record_errors: list[tuple[int, str]] | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.record_errors = record_errors or []


class OffsetOutOfRangeError(KafkaError):
    code = ErrorCode.OFFSET_OUT_OF_RANGE


class LogDirError(KafkaError):
    """A log directory cannot be used: reading or writing failed, or it may not be ours."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class InvalidRequestError(KafkaError):
    code = ErrorCode.INVALID_REQUEST


class InvalidConfigError(KafkaError):
    """A configuration value that cannot be accepted; `key` is the setting's name."""

    code = ErrorCode.INVALID_CONFIG

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class ProtocolError(OttlaError):
    """Bytes from a peer that are not what the protocol allows. The connection cannot be used any further."""


class DecodeError(ProtocolError):
    """A message that cannot be decoded: `path` names the field, `position` the byte where reading failed."""

    def __init__(self, reason: str, *, path: str = "", position: int = 0, excerpt: str = "") -> None:
        self.reason = reason
        self.path = path
        self.position = position
        self.excerpt = excerpt
        where = f"{path or 'message'} at byte {position}"
        super().__init__(f"{where}: {reason}" + (f"\n{excerpt}" if excerpt else ""))


class EncodeError(OttlaError):
    """A message that cannot be encoded in the asked version: our caller's mistake, not the peer's."""


class StartError(OttlaError):
    """The broker cannot start; the message is one sentence for the person who tried."""
