"""Errors as Kafka's Java clients call them. The names are those of kafka-clients 3.9."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.cli.kafka_names.java_errors import java_message, java_name, java_text
from ottla.client.errors import ClientError

OF_THEIR_OWN = {
    "UNKNOWN_SERVER_ERROR": "errors.UnknownServerException",
    "CORRUPT_MESSAGE": "errors.CorruptRecordException",
    "REQUEST_TIMED_OUT": "errors.TimeoutException",
    "MESSAGE_TOO_LARGE": "errors.RecordTooLargeException",
    "STALE_CONTROLLER_EPOCH": "errors.ControllerMovedException",
    "OFFSET_METADATA_TOO_LARGE": "errors.OffsetMetadataTooLarge",
    "NETWORK_EXCEPTION": "errors.NetworkException",
    "INVALID_TOPIC_EXCEPTION": "errors.InvalidTopicException",
    "RECORD_LIST_TOO_LARGE": "errors.RecordBatchTooLargeException",
    "TOPIC_AUTHORIZATION_FAILED": "errors.TopicAuthorizationException",
    "GROUP_AUTHORIZATION_FAILED": "errors.GroupAuthorizationException",
    "CLUSTER_AUTHORIZATION_FAILED": "errors.ClusterAuthorizationException",
    "TOPIC_ALREADY_EXISTS": "errors.TopicExistsException",
    "INVALID_CONFIG": "errors.InvalidConfigurationException",
    "OUT_OF_ORDER_SEQUENCE_NUMBER": "errors.OutOfOrderSequenceException",
    "DUPLICATE_SEQUENCE_NUMBER": "errors.DuplicateSequenceException",
    "INVALID_PRODUCER_ID_MAPPING": "errors.InvalidPidMappingException",
    "INVALID_TRANSACTION_TIMEOUT": "errors.InvalidTxnTimeoutException",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "errors.TransactionalIdAuthorizationException",
    "KAFKA_STORAGE_ERROR": "errors.KafkaStorageException",
    "SASL_AUTHENTICATION_FAILED": "errors.SaslAuthenticationException",
    "DELEGATION_TOKEN_AUTH_DISABLED": "errors.DelegationTokenDisabledException",
    "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED": "errors.UnsupportedByAuthenticationException",
    "DELEGATION_TOKEN_AUTHORIZATION_FAILED": "errors.DelegationTokenAuthorizationException",
    "NON_EMPTY_GROUP": "errors.GroupNotEmptyException",
    "INVALID_RECORD": "InvalidRecordException",
    "PRINCIPAL_DESERIALIZATION_FAILURE": "errors.PrincipalDeserializationException",
    "FETCH_SESSION_TOPIC_ID_ERROR": "errors.FetchSessionTopicIdException",
}
"""Below org.apache.kafka.common. All others are called as their code is."""


@pytest.mark.parametrize("code", [code for code in ErrorCode if code is not ErrorCode.NONE], ids=lambda code: code.name)
def test_errors_have_the_names_of_javas_classes(code: ErrorCode) -> None:
    as_code = f"errors.{''.join(word.capitalize() for word in code.name.split('_'))}Exception"
    assert java_name(code) == f"org.apache.kafka.common.{OF_THEIR_OWN.get(code.name, as_code)}"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ClientError("ours", code=ErrorCode.NON_EMPTY_GROUP), "The group is not empty."),
        (ClientError("ours", code=ErrorCode.GROUP_ID_NOT_FOUND), "The group id does not exist."),
        (
            ClientError("ours", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            "This server does not host this topic-partition.",
        ),
        (
            ClientError("ours", code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
            "Deleting offsets of a topic is forbidden while the consumer group is actively subscribed to it.",
        ),
        (
            ClientError("ours", code=ErrorCode.OFFSET_OUT_OF_RANGE),
            "The requested offset is not within the range of offsets maintained by the server.",
        ),
        (ClientError("ours", code=ErrorCode.INVALID_REQUEST), "ours"),
        (KafkaError("ours", code=ErrorCode.INVALID_REQUEST), "ours"),
    ],
    ids=str,
)
def test_errors_have_kafkas_words(error: KafkaError, text: str) -> None:
    assert java_text(error) == f"{java_name(error.code)}: {text}"


def test_what_the_broker_said_comes_first() -> None:
    error = ClientError("ours", code=ErrorCode.NON_EMPTY_GROUP)
    error.broker_message = "the broker's"
    assert java_message(error) == "the broker's"
    assert java_text(error) == "org.apache.kafka.common.errors.GroupNotEmptyException: the broker's"
