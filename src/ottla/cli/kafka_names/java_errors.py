"""Errors in the words of Kafka's Java client, for output under Kafka's script names that programs read."""

from __future__ import annotations

from ottla.base.errors import ErrorCode, KafkaError
from ottla.client.errors import ClientError

_PACKAGE = "org.apache.kafka.common.errors."
_CLASSES = {
    ErrorCode.NON_EMPTY_GROUP: "GroupNotEmptyException",
    ErrorCode.TOPIC_ALREADY_EXISTS: "TopicExistsException",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "InvalidTopicException",
    ErrorCode.REQUEST_TIMED_OUT: "TimeoutException",
    ErrorCode.INVALID_CONFIG: "InvalidConfigurationException",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "TopicAuthorizationException",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "GroupAuthorizationException",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "ClusterAuthorizationException",
    ErrorCode.MESSAGE_TOO_LARGE: "RecordTooLargeException",
    ErrorCode.SECURITY_DISABLED: "SecurityDisabledException",
}
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
    words = "".join(word.capitalize() for word in code.name.split("_"))
    return _PACKAGE + _CLASSES.get(code, words if words.endswith("Exception") else f"{words}Exception")


def java_text(error: KafkaError) -> str:
    """`org.apache.kafka.common.errors.XException: text`; the broker's text where Kafka has none of its own."""
    return f"{java_name(error.code)}: {java_message(error)}"


def java_message(error: KafkaError) -> str:
    told = error.broker_message if isinstance(error, ClientError) else None
    return told or _MESSAGES.get(error.code, error.message)
