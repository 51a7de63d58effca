"""Request and response headers, and the rule which of their versions goes with which message.

A header is flexible when its body is, with two exceptions: ControlledShutdown version 0 is asked with header 0, and
ApiVersions is always answered with header 0, because the client cannot know yet what the broker speaks (KIP-511).
"""

from __future__ import annotations

import struct
from functools import partial
from typing import NamedTuple

from ottla.base.errors import DecodeError, EncodeError
from ottla.wire.api_keys import ApiKey
from ottla.wire.apis import request_class, response_class
from ottla.wire.fields import int16, int32, string
from ottla.wire.message import Message, Request, Response
from ottla.wire.primitives import STRING_BYTES_MAX, Buffer, read_unsigned_varint

_KEY_AND_VERSION = struct.Struct(">hh")
_BARE = struct.Struct(">hhi")
_WITH_CLIENT_LENGTH = struct.Struct(">hhih")
_unpack_with_client_length = _WITH_CLIENT_LENGTH.unpack_from
_SIZE_AND_CORRELATION = struct.Struct(">ii")
_SIZE_CORRELATION_TAGS = struct.Struct(">iiB")


class RequestHeaderMessage(Message, versions="0-2", flexible="2+"):
    """The declared form, which the reference codec walks; `read_request_header` is the fast one."""

    request_api_key: int = int16()
    request_api_version: int = int16()
    correlation_id: int = int32()
    client_id: str | None = string(versions="1+", nullable="1+", ignorable=True, compact=False)


class ResponseHeaderMessage(Message, versions="0-1", flexible="1+"):
    correlation_id: int = int32()


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int
    """Where the body starts in the frame."""


def request_header_version(api_key: int, api_version: int) -> int:
    if api_key == ApiKey.CONTROLLED_SHUTDOWN and api_version == 0:
        return 0
    return 2 if api_version in request_class(api_key).FLEXIBLE_VERSIONS else 1


def response_header_version(api_key: int, api_version: int) -> int:
    if api_key == ApiKey.API_VERSIONS:
        return 0
    return 1 if api_version in response_class(api_key).FLEXIBLE_VERSIONS else 0


_request_header_versions: dict[tuple[int, int], int] = {}
_header_of = partial(tuple.__new__, RequestHeader)
"""From a tuple that already has the right fields, without NamedTuple's slower constructor."""


def read_request_header(frame: Buffer) -> RequestHeader:
    """The header of a request frame (without its size).

    The version need not be one we serve: an ApiVersions request of an unknown version still has to be answered. An API
    we do not know at all is a ProtocolError.
    """
    try:
        api_key, api_version, correlation_id, length = _WITH_CLIENT_LENGTH.unpack_from(frame)
        header_version = _request_header_versions.get((api_key, api_version))
        if header_version is None:
            header_version = request_header_version(api_key, api_version)
            # Only versions that exist are remembered, so that no peer can make this table grow.
            if api_version in request_class(api_key).VERSIONS:
                _request_header_versions[api_key, api_version] = header_version
        if header_version == 0:
            return RequestHeader(api_key, api_version, correlation_id, None, _BARE.size)
        position = _WITH_CLIENT_LENGTH.size
        client_id = None
        if length >= 0:
            position += length
            client_id = str(frame[_WITH_CLIENT_LENGTH.size : position], "utf-8")
        elif length != -1:
            return _read_slowly(frame)
        if header_version == 2:
            if frame[position]:
                position = _skip_tags(frame, position)
            else:
                position += 1
    except (struct.error, IndexError, UnicodeDecodeError):
        return _read_slowly(frame)
    if position > len(frame):
        return _read_slowly(frame)
    return _header_of((api_key, api_version, correlation_id, client_id, position))


def skim_request_header(frame: Buffer) -> tuple[int, int, int, int]:
    """API key, version, correlation id and where the body starts, of a header without tags.

    The position is 0 where `read_request_header` has to be asked; nothing of the header has been judged then. The
    client id is passed over unread, for requests that nobody asks for it.
    """
    try:
        api_key, api_version, correlation_id, length = _unpack_with_client_length(frame)
        header_version = _request_header_versions[api_key, api_version]
        position = 10 + length if length > 0 else 10
        if length < -1:
            return 0, 0, 0, 0
        if header_version == 2:
            if frame[position]:
                return 0, 0, 0, 0
            position += 1
        elif header_version == 0:
            return 0, 0, 0, 0
    except (struct.error, IndexError, KeyError):
        return 0, 0, 0, 0
    return api_key, api_version, correlation_id, position


def _skip_tags(frame: Buffer, position: int) -> int:
    count, position = read_unsigned_varint(frame, position)
    for _ in range(count):
        _, position = read_unsigned_varint(frame, position)
        size, position = read_unsigned_varint(frame, position)
        position += size
    return position


def _read_slowly(frame: Buffer) -> RequestHeader:
    """The way through the declared header: right for every frame, and its errors name the field."""
    if len(frame) < _KEY_AND_VERSION.size:
        raise DecodeError("the frame ends within the API key and version", path="request_api_key", position=len(frame))
    api_key, api_version = _KEY_AND_VERSION.unpack_from(frame)
    header, position = RequestHeaderMessage.decode(frame, request_header_version(api_key, api_version))
    return RequestHeader(api_key, api_version, header.correlation_id, header.client_id, position)


def response_frame_prefix(header_version: int, correlation_id: int, body_bytes: int) -> bytes:
    """Frame size and response header, for a body of `body_bytes`."""
    if header_version:
        return _SIZE_CORRELATION_TAGS.pack(body_bytes + 5, correlation_id, 0)
    return _SIZE_AND_CORRELATION.pack(body_bytes + 4, correlation_id)


def encode_response_frame(response: Response, api_version: int, correlation_id: int) -> bytes:
    """A whole response frame, size included."""
    body: list[bytes] = [b""]
    response.encode_into(body, api_version)
    header_version = response_header_version(response.API_KEY, api_version)
    body[0] = response_frame_prefix(header_version, correlation_id, sum(map(len, body)))
    return b"".join(body)


def encode_request_frame(request: Request, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A whole request frame, size included."""
    return b"".join(encode_request_parts(request, api_version, correlation_id, client_id))


def encode_request_parts(request: Request, api_version: int, correlation_id: int, client_id: str | None) -> list[bytes]:
    """The same frame in parts, of which record batches are as they were given: for who can write without joining."""
    out: list[bytes] = [b"", b""]
    request.encode_into(out, api_version)
    header_version = request_header_version(request.API_KEY, api_version)
    out[1] = request_header_bytes(header_version, request.API_KEY, api_version, correlation_id, client_id)
    out[0] = sum(map(len, out)).to_bytes(4, "big")
    return out


def request_header_bytes(
    header_version: int, api_key: int, api_version: int, correlation_id: int, client_id: str | None
) -> bytes:
    if header_version == 0:
        return _BARE.pack(api_key, api_version, correlation_id)
    name = b"" if client_id is None else client_id.encode()
    if len(name) > STRING_BYTES_MAX:
        raise EncodeError(f"a client id of {len(name)} bytes is over {STRING_BYTES_MAX}")
    length = -1 if client_id is None else len(name)
    fixed = _WITH_CLIENT_LENGTH.pack(api_key, api_version, correlation_id, length)
    return fixed + name + (b"\x00" if header_version == 2 else b"")


def read_response_header(frame: Buffer, api_key: int, api_version: int) -> tuple[int, int]:
    """The correlation id of a response frame (without its size), and where its body starts."""
    header, position = ResponseHeaderMessage.decode(frame, response_header_version(api_key, api_version))
    return header.correlation_id, position
