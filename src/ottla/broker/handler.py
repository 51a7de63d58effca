"""What a handler is: an API, the versions it serves, and a function from a request to its reply.

Most handlers are written against message objects (`message_handler`); Produce and Fetch work on the frame itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.base.errors import KafkaError, ProtocolError
from ottla.broker.access import check_is_needed, needed_operation
from ottla.broker.admission import Admission
from ottla.broker.authorizer import (
    CLUSTER_NAME,
    NOT_REQUESTED,
    OPERATIONS_OF,
    Operation,
    ResourceType,
    refusal,
)
from ottla.broker.slow_requests import WORTH_A_LOOK_NS
from ottla.net.server_connection import ClientConnection
from ottla.net.service import Deferred, Outcome
from ottla.wire.apis import response_class
from ottla.wire.header import encode_response_frame
from ottla.wire.message import Request, Response

if TYPE_CHECKING:
    from ottla.broker.node import Broker

log = logging.getLogger(__name__)

_NO_BYTES = memoryview(b"")


class RequestContext:
    """One request on its way: where it came from and what its header says."""

    __slots__ = (
        "admission",
        "api_key",
        "broker",
        "client_id",
        "connection",
        "correlation_id",
        "frame",
        "position",
        "request_bytes",
        "started_ns",
        "version",
    )

    def __init__(
        self,
        broker: Broker,
        connection: ClientConnection,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
        frame: memoryview,
        position: int,
    ) -> None:
        self.broker = broker
        self.connection = connection
        self.admission: Admission = connection.state
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.frame = frame
        """The request's bytes, valid only until the handler returns."""
        self.started_ns = monotonic_ns()
        self.position = position
        """Where the body starts in `frame`."""
        self.request_bytes = len(frame)

    def may(self, resource_type: ResourceType, name: str = CLUSTER_NAME, *, operation: Operation | None = None) -> bool:
        """Whether the client may do with a resource what this API does with it, or another thing the API needs."""
        if operation is None:
            operation = needed_operation(self.api_key, resource_type)
        else:
            check_is_needed(self.api_key, operation, resource_type)
        return self.admission.may(operation, resource_type, name)

    def require(
        self, resource_type: ResourceType, name: str = CLUSTER_NAME, *, operation: Operation | None = None
    ) -> None:
        if not self.may(resource_type, name, operation=operation):
            raise refusal(resource_type)

    def may_any(self, resource_type: ResourceType) -> bool:
        """Whether there is any resource of the type with which the client may do what this API does."""
        return self.admission.may_any(needed_operation(self.api_key, resource_type), resource_type)

    def authorized_operations(self, requested: bool, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """The bit set a reply carries when the client asks what it may do."""
        if not requested:
            return NOT_REQUESTED
        may = self.admission.may
        return sum(1 << op for op in OPERATIONS_OF[resource_type] if may(op, resource_type, name))

    def cluster_operations(self, requested: bool) -> int:
        """The same for the cluster, of which one has to be allowed to know anything (KIP-430)."""
        if requested and not self.may(ResourceType.CLUSTER, operation=Operation.DESCRIBE):
            return 0
        return self.authorized_operations(requested, ResourceType.CLUSTER)

    def encode(self, reply: Response | bytes) -> tuple[bytes, ...]:
        """The reply as the server sends it; bytes are a frame that is encoded already."""
        elapsed_ns = monotonic_ns() - self.started_ns
        if elapsed_ns > WORTH_A_LOOK_NS:
            self.broker.slow_requests.answered(self, elapsed_ns)
        return (reply if isinstance(reply, bytes) else encode_response_frame(reply, self.version, self.correlation_id),)

    def let_go_of_frame(self) -> None:
        """For a request that stays: its bytes belong to the next one as soon as the handler has returned."""
        self.frame = _NO_BYTES


@dataclass(frozen=True)
class Handler:
    api_key: int
    min_version: int
    max_version: int
    handle: Callable[[RequestContext], Outcome]
    advertised_min_version: int | None = None
    advertised_max_version: int | None = None
    """What clients are told where it differs from what is served."""

    @property
    def advertised_versions(self) -> tuple[int, int]:
        first = self.min_version if self.advertised_min_version is None else self.advertised_min_version
        last = self.max_version if self.advertised_max_version is None else self.advertised_max_version
        return first, last


Q = TypeVar("Q", bound=Request)
Reply = Response | bytes | Coroutine[Any, Any, Response | bytes]


def message_handler(
    request_type: type[Q], versions: tuple[int, int], respond: Callable[[RequestContext, Q], Reply]
) -> Handler:
    """A handler from a function on messages. If the function is a coroutine, the connection waits for its reply."""

    def handle(context: RequestContext) -> Outcome:
        request, _ = request_type.decode(context.frame, context.version, context.position)
        try:
            reply = respond(context, request)
        except KafkaError as e:
            reply = error_response(context, e)
        if isinstance(reply, Response | bytes):
            return context.encode(reply)
        context.let_go_of_frame()
        deferred = Deferred()
        context.broker.spawn(_complete_later(context, reply, deferred))
        return deferred

    return Handler(request_type.API_KEY, *versions, handle)


async def _complete_later(
    context: RequestContext, reply: Coroutine[Any, Any, Response | bytes], deferred: Deferred
) -> None:
    try:
        response: Response | bytes
        try:
            response = await reply
        except KafkaError as e:
            response = error_response(context, e)
        deferred.complete(context.encode(response))
    except asyncio.CancelledError:
        deferred.close_connection()
        raise
    except ProtocolError as e:
        log.warning("%s", e)
        deferred.close_connection()
    except Exception:
        log.exception("request failed: api %d version %d", context.api_key, context.version)
        deferred.close_connection()


def error_response(context: RequestContext, error: KafkaError) -> Response:
    """A reply that says nothing but the error, where the API has a place for it; otherwise the connection must go."""
    kind = response_class(context.api_key)
    fields: dict[str, Any] = {"error_code": error.code}
    if not hasattr(kind, "error_code"):
        raise ProtocolError(f"api {context.api_key} failed as a whole: {error}")
    if hasattr(kind, "error_message"):
        fields["error_message"] = error.message
    return kind(**fields)
