"""Replies that say nothing but an error, for any API and version, with the error in the places the API has for it.

The places are found by asking the broker's own handler on behalf of somebody who may do nothing: it changes nothing and
answers with an error wherever one belongs, and each of them is then replaced by the wanted one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.base.errors import ERRORS, ErrorCode
from ottla.broker.admission import Admission
from ottla.broker.handler import RequestContext
from ottla.net.outgoing import Piece
from ottla.wire.apis import response_class
from ottla.wire.header import encode_response_frame, read_response_header
from ottla.wire.message import Struct

_ERROR_CODES = frozenset({"error_code", "partition_error_code"})
_MESSAGE = "error_message"
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

        self.admission = Admission(
            context.broker.authorizer,
            context.broker.quotas,
            listener=context.connection.listener,
            peer_host=context.connection.peer_host,
            principal=None,
        )


def with_error(
    context: RequestContext, pieces: Sequence[Piece], code: ErrorCode, *, everywhere: bool
) -> Sequence[Piece]:
    """The reply with the error in place of those it has, or in every place it has for one, if `everywhere`."""
    if not pieces:
        return pieces
    frame = b"".join(piece for piece in pieces if isinstance(piece, (bytes, bytearray, memoryview)))[_SIZE_BYTES:]
    kind = response_class(context.api_key)
    _, position = read_response_header(frame, context.api_key, context.version)
    response, _ = kind.decode(frame, context.version, position)
    places = list(_error_places(response, context.version))
    chosen = places if everywhere else [place for place in places if place.code]
    # Nothing was refused where nothing needs a permission; then the error is about the request as a whole.
    for place in chosen or places[:1]:
        place.put(code)
    return (encode_response_frame(response, context.version, context.correlation_id),)


class _ErrorPlace(NamedTuple):
    """A field of a reply that is an error code, and whether a message goes with it."""

    struct: Struct
    field_name: str
    has_message: bool

    @property
    def code(self) -> int:
        return int(getattr(self.struct, self.field_name))

    def put(self, code: ErrorCode) -> None:
        setattr(self.struct, self.field_name, int(code))
        if self.has_message:
            setattr(self.struct, _MESSAGE, ERRORS[code].message)


def _error_places(struct: Struct, version: int) -> Iterator[_ErrorPlace]:
    """Every error code that this version of the message has, the one of the message itself first."""
    fields = [field for field in struct.FIELDS if version in field.versions]
    has_message = any(field.name == _MESSAGE for field in fields)
    for field in fields:
        if field.name in _ERROR_CODES:
            yield _ErrorPlace(struct, field.name, has_message)
    for field in fields:
        value = getattr(struct, field.name)
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, Struct):
                yield from _error_places(item, version)
