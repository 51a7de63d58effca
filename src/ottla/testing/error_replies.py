"""Replies that say nothing but an error, for any API and version, with the error in the places the API has for it.

The places are found by asking the broker's own handler on behalf of somebody who may do nothing: it changes nothing and
answers with a refusal wherever one belongs, and each refusal is then replaced by the wanted error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ottla.base.errors import ERRORS, ErrorCode
from ottla.broker.authorizer import CLUSTER_NAME, REFUSAL_OF, Operation, ResourceType
from ottla.broker.handler import RequestContext
from ottla.net.outgoing import Piece
from ottla.wire.apis import response_class
from ottla.wire.header import encode_response_frame, read_response_header
from ottla.wire.message import Struct

_REFUSALS = frozenset(REFUSAL_OF.values())
_SIZE_BYTES = 4


class Refused(RequestContext):
    """The same request from somebody who may do nothing."""

    def __init__(self, context: RequestContext) -> None:
        super().__init__(
            context.broker,
            context.connection,
            context.api_key,
            context.version,
            context.correlation_id,
            context.client_id,
            context.frame,
            context.position,
        )

    def may(self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        return False


def with_error(
    context: RequestContext, pieces: Sequence[Piece], code: ErrorCode, *, everywhere: bool
) -> Sequence[Piece]:
    """The reply with the error in place of its refusals, or of every error code it has, if `everywhere`."""
    if not pieces:
        return pieces
    frame = b"".join(piece for piece in pieces if isinstance(piece, (bytes, bytearray, memoryview)))[_SIZE_BYTES:]
    kind = response_class(context.api_key)
    _, position = read_response_header(frame, context.api_key, context.version)
    response, _ = kind.decode(frame, context.version, position)
    places = list(_error_places(response))
    chosen = places if everywhere else [place for place in places if place.error_code in _REFUSALS]
    # Nothing was refused where nothing needs a permission; then the error is about the request as a whole.
    for place in chosen or places[:1]:
        place.error_code = int(code)
        if hasattr(place, "error_message"):
            place.error_message = ERRORS[code].message
    return (encode_response_frame(response, context.version, context.correlation_id),)


def _error_places(struct: Struct) -> Iterator[Any]:
    """Every part of a message that has an error code, the message itself first."""
    if any(field.name == "error_code" for field in struct.FIELDS):
        yield struct
    for field in struct.FIELDS:
        value = getattr(struct, field.name)
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, Struct):
                yield from _error_places(item)
