"""Errors in the words of Kafka's Java client, for output under Kafka's script names that programs read."""

from __future__ import annotations

from ottla.base.errors import ErrorCode, KafkaError
from ottla.client.errors import ClientError

_PACKAGE = "org.apache.kafka.common.errors."
_CLASSES = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "UnknownServerException",
    ErrorCode.CORRUPT_MESSAGE: "CorruptRecordException",
    ErrorCode.REQUEST_TIMED_OUT: "TimeoutException",
    ErrorCode.MESSAGE_TOO_LARGE: "RecordTooLargeException",
    ErrorCode.STALE_CONTROLLER_EPOCH: "ControllerMovedException",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "OffsetMetadataTooLarge",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "InvalidTopicException",
    ErrorCode.NETWORK_EXCEPTION: "NetworkException",
    ErrorCode.RECORD_LIST_TOO_LARGE: "RecordBatchTooLargeException",
    ErrorCode.TOPIC_ALREADY_EXISTS: "TopicExistsException",
    ErrorCode.INVALID_CONFIG: "InvalidConfigurationException",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "OutOfOrderSequenceException",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "DuplicateSequenceException",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "InvalidPidMappingException",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "InvalidTxnTimeoutException",
    ErrorCode.KAFKA_STORAGE_ERROR: "KafkaStorageException",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "DelegationTokenDisabledException",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "UnsupportedByAuthenticationException",
    ErrorCode.NON_EMPTY_GROUP: "GroupNotEmptyException",
    ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: "PrincipalDeserializationException",
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: "FetchSessionTopicIdException",
}
"""Those that are not called as their code is."""
_NO_PERMISSION = ("_AUTHORIZATION_FAILED", "_AUTHENTICATION_FAILED")
_MESSAGES = {
    ErrorCode.NON_EMPTY_GROUP: "The group is not empty.",
    ErrorCode.GROUP_ID_NOT_FOUND: "The group id does not exist.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: (
        "Deleting offsets of a topic is forbidden while the consumer group is actively subscribed to it."
    ),
    ErrorCode.OFFSET_OUT_OF_RANGE: "The requested offset is not within the range of offsets maintained by the server.",
}


def java_name(code: ErrorCode) -> str:
    """The name of the class, with its package."""
    if code is ErrorCode.INVALID_RECORD:
        return "org.apache.kafka.common.InvalidRecordException"
    name = code.name.removesuffix("_FAILED") if code.name.endswith(_NO_PERMISSION) else code.name
    words = "".join(word.capitalize() for word in name.split("_"))
    return _PACKAGE + _CLASSES.get(code, f"{words}Exception")


def java_text(error: KafkaError) -> str:
    """`org.apache.kafka.common.errors.XException: text`; the broker's text where Kafka has none of its own."""
    return f"{java_name(error.code)}: {java_message(error)}"


def java_message(error: KafkaError) -> str:
    told = error.broker_message if isinstance(error, ClientError) else None
    return told or _MESSAGES.get(error.code, error.message)
