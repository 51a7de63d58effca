"""What the client library raises: every error says whether to try again, give up the transaction, or close the client.

`retriable`: the same call may succeed later. `requires_abort`: the transaction must be aborted, after which the
producer can go on. `fatal`: this client object is of no more use.
"""

from __future__ import annotations

from ottla.base.errors import ERRORS, ErrorCode, KafkaError

__all__ = [
    "BufferExhaustedError",
    "ClientClosedError",
    "ClientError",
    "DeliveryTimeoutError",
    "ForkedError",
    "MetadataTimeoutError",
    "ProducerFencedError",
    "RecordTooLargeError",
    "SerializationError",
    "TransactionAbortedError",
    "TransactionStateError",
    "client_error",
]

_FATAL = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    }
)


class ClientError(KafkaError):
    """An error of the client library, or one that a broker has answered with."""

    fatal: bool = False
    requires_abort: bool = False

    def __init__(
        self,
        message: str | None = None,
        *,
        code: ErrorCode | None = None,
        fatal: bool | None = None,
        requires_abort: bool | None = None,
    ) -> None:
        super().__init__(message, code=code)
        if fatal is not None:
            self.fatal = fatal
        if requires_abort is not None:
            self.requires_abort = requires_abort


class BufferExhaustedError(ClientError):
    """The producer's buffer stayed full for `max.block.ms`."""

    code = ErrorCode.REQUEST_TIMED_OUT


class RecordTooLargeError(ClientError):
    code = ErrorCode.MESSAGE_TOO_LARGE


class SerializationError(ClientError):
    """A key, value or header that could not be turned into bytes, or back."""

    code = ErrorCode.INVALID_RECORD


class DeliveryTimeoutError(ClientError):
    """A record was not acknowledged within `delivery.timeout.ms`. It may have been stored all the same."""

    code = ErrorCode.REQUEST_TIMED_OUT


class MetadataTimeoutError(ClientError):
    """Nothing could be learnt about a topic within the time allowed."""

    code = ErrorCode.REQUEST_TIMED_OUT


class ClientClosedError(ClientError):
    """The client has been closed, or was never started."""

    code = ErrorCode.INVALID_REQUEST
    fatal = True


class ForkedError(ClientError):
    """A client was used in a child process, where its connections and its thread do not exist."""

    code = ErrorCode.INVALID_REQUEST
    fatal = True


class TransactionStateError(ClientError):
    """A call that the state of the transaction does not allow."""

    code = ErrorCode.INVALID_TXN_STATE


class TransactionAbortedError(ClientError):
    """A record was dropped because its transaction was aborted before it was sent."""

    code = ErrorCode.TRANSACTION_ABORTABLE


class ProducerFencedError(ClientError):
    """Another producer with the same transactional id has taken over."""

    code = ErrorCode.PRODUCER_FENCED
    fatal = True


def client_error(
    code: int, message: str | None = None, *, where: str = "", requires_abort: bool = False
) -> ClientError:
    """The exception for a code read off the wire; `where` says what it was about."""
    try:
        known = ErrorCode(code)
    except ValueError:
        known = ErrorCode.UNKNOWN_SERVER_ERROR
        message = message or f"error code {code}, which this version does not know"
    text = message or ERRORS[known].message
    if where:
        text = f"{where}: {text}"
    if known is ErrorCode.PRODUCER_FENCED:
        return ProducerFencedError(f"{text}; close this producer: another one uses its transactional id")
    if known is ErrorCode.MESSAGE_TOO_LARGE:
        return RecordTooLargeError(text, requires_abort=requires_abort)
    return ClientError(text, code=known, fatal=known in _FATAL, requires_abort=requires_abort and known not in _FATAL)
