"""What every error of the client has in common."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest

from ottla.base.errors import KafkaError
from ottla.base.types import TopicPartition
from ottla.client import errors
from ottla.client.core.producer.batch import copy_of
from ottla.client.errors import ClientError, ErrorCode, client_error, is_fatal

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, ClientError)]
ARGUMENTS: dict[str, Any] = {
    "failures": ["a: refused", "b: unknown host"],
    "reason": "bad checksum",
    "topic_partition": TopicPartition("t", 3),
    "offset": 7,
    "next_offset": 8,
    "message": "what happened",
    "code": ErrorCode.NETWORK_EXCEPTION,
}


def an_error_of(kind: type[ClientError]) -> ClientError:
    wanted = inspect.signature(kind).parameters
    error = kind(**{name: value for name, value in ARGUMENTS.items() if name in wanted})
    error.requires_abort = True
    error.__cause__ = OSError("the reason")
    return error


def facts_of(error: ClientError) -> tuple[object, ...]:
    return type(error), str(error), error.args, error.code, error.retriable, error.__dict__


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_is_copied_with_all_it_says(kind: type[ClientError]) -> None:
    error = an_error_of(kind)
    copied = copy_of(error)
    assert copied is not error
    assert facts_of(copied) == facts_of(error)
    assert copied.__cause__ is error.__cause__
    copied.fatal = not error.fatal
    assert error.fatal is not copied.fatal
    assert facts_of(copy.copy(error)) == facts_of(pickle.loads(pickle.dumps(error))) == facts_of(error)


def test_what_cannot_succeed_again_is_not_retriable() -> None:
    code = ErrorCode.NETWORK_EXCEPTION
    assert ClientError(code=code).retriable
    assert not ClientError(code=code, requires_abort=True).retriable
    assert not ClientError(code=code, fatal=True).retriable


FATAL = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.SASL_AUTHENTICATION_FAILED,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM,
}
"""After these a client is of no more use."""


@pytest.mark.parametrize("code", ErrorCode)
def test_what_a_code_means_to_a_client(code: ErrorCode) -> None:
    error = client_error(code, where="here")
    assert (error.code, error.fatal, error.requires_abort) == (code, code in FATAL, False)
    assert error.message.startswith("here: ")
    assert is_fatal(error) is is_fatal(KafkaError(code=code)) is (code in FATAL)
    # What ends the client needs no abort first.
    assert client_error(code, requires_abort=True).requires_abort is (code not in FATAL)
    assert client_error(code, "said so").message.startswith("said so")


def test_a_code_of_the_future_is_shown_with_its_number() -> None:
    assert client_error(31_999).code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "31999" in client_error(31_999).message
    assert client_error(31_999, "but why").message == "but why"


CONTRACT = {
    "BufferExhaustedError": (ErrorCode.REQUEST_TIMED_OUT, "may be tried again"),
    "ClientClosedError": (ErrorCode.INVALID_REQUEST, "ends the client"),
    "ClientError": (ErrorCode.UNKNOWN_SERVER_ERROR, ""),
    "ClusterUnreachableError": (ErrorCode.NETWORK_EXCEPTION, "may be tried again"),
    "CommitFailedError": (ErrorCode.ILLEGAL_GENERATION, ""),
    "ConcurrentUseError": (ErrorCode.INVALID_REQUEST, ""),
    "CorruptRecordError": (ErrorCode.CORRUPT_MESSAGE, ""),
    "DeliveryTimeoutError": (ErrorCode.REQUEST_TIMED_OUT, "may be tried again"),
    "DeserializationError": (ErrorCode.INVALID_RECORD, ""),
    "FencedInstanceError": (ErrorCode.FENCED_INSTANCE_ID, "ends the client"),
    "ForkedError": (ErrorCode.INVALID_REQUEST, "ends the client"),
    "ListenerError": (ErrorCode.INVALID_CONFIG, "ends the client"),
    "LogTruncationError": (ErrorCode.OFFSET_OUT_OF_RANGE, ""),
    "MetadataTimeoutError": (ErrorCode.REQUEST_TIMED_OUT, "may be tried again"),
    "NoOffsetError": (ErrorCode.OFFSET_OUT_OF_RANGE, ""),
    "OffsetOutOfRangeError": (ErrorCode.OFFSET_OUT_OF_RANGE, ""),
    "PartitionError": (ErrorCode.UNKNOWN_SERVER_ERROR, ""),
    "ProcessingError": (ErrorCode.UNKNOWN_SERVER_ERROR, ""),
    "ProducerFencedError": (ErrorCode.PRODUCER_FENCED, "ends the client"),
    "RebalanceInProgressError": (ErrorCode.REBALANCE_IN_PROGRESS, "may be tried again"),
    "RecordTooLargeError": (ErrorCode.MESSAGE_TOO_LARGE, ""),
    "SerializationError": (ErrorCode.INVALID_RECORD, ""),
    "SubscriptionStateError": (ErrorCode.INVALID_REQUEST, ""),
    "TransactionAbortedError": (ErrorCode.TRANSACTION_ABORTABLE, ""),
    "TransactionStateError": (ErrorCode.INVALID_TXN_STATE, ""),
    "UnassignedPartitionError": (ErrorCode.INVALID_REQUEST, ""),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_each_error_tells_a_program_that_catches_it(kind: type[ClientError]) -> None:
    wanted = inspect.signature(kind).parameters
    error = kind(**{name: value for name, value in ARGUMENTS.items() if name in wanted and name != "code"})
    assert not error.requires_abort
    meaning = "ends the client" if error.fatal else "may be tried again" if error.retriable else ""
    assert (error.code, meaning) == CONTRACT[kind.__name__]


def test_an_error_may_be_made_graver_or_lighter() -> None:
    assert ClientError(fatal=True).fatal and not ClientError().fatal
    assert not errors.FencedInstanceError(fatal=False).fatal
    assert ClientError(requires_abort=True).requires_abort and not ClientError(requires_abort=False).requires_abort
    assert errors.PartitionError("why", topic_partition=TopicPartition("t", 3)).offset == -1
