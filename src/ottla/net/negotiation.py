"""Which versions of each API the other side of a connection speaks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ottla import __version__
from ottla.base.errors import DecodeError, ErrorCode, KafkaError, kafka_error
from ottla.wire.api_keys import ApiKey
from ottla.wire.apis import API_TABLE
from ottla.wire.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.header import encode_request_frame, read_response_header
from ottla.wire.message import Request

_SOFTWARE_NAME = "ottla"
_FIRST_VERSION = 3

Exchange = Callable[[Callable[[int], bytes]], Awaitable[memoryview]]
"""Sends what a function makes of a correlation id, and gives the reply."""


async def ask_versions(exchange: Exchange, client_id: str | None) -> dict[int, range]:
    """By API key. A broker that does not know our version of the question says which to ask in (KIP-511)."""
    response = await _ask(exchange, client_id, _FIRST_VERSION)
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        offered = [entry for entry in response.api_keys if entry.api_key == ApiKey.API_VERSIONS]
        version = min(offered[0].max_version, _FIRST_VERSION) if offered else 0
        response = await _ask(exchange, client_id, version)
    if response.error_code:
        raise kafka_error(response.error_code)
    return {entry.api_key: range(entry.min_version, entry.max_version + 1) for entry in response.api_keys}


async def _ask(exchange: Exchange, client_id: str | None, version: int) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name=_SOFTWARE_NAME, client_software_version=__version__)
    frame = await exchange(lambda correlation_id: encode_request_frame(request, version, correlation_id, client_id))
    _, position = read_response_header(frame, ApiKey.API_VERSIONS, version)
    # The code comes first in every version, and a broker that refuses the version answers in version 0.
    error_code = int.from_bytes(frame[position : position + 2], "big", signed=True)
    if error_code != ErrorCode.UNSUPPORTED_VERSION:
        return ApiVersionsResponse.decode(frame, version, position)[0]
    try:
        return ApiVersionsResponse.decode(frame, 0, position)[0]
    except DecodeError:
        # Some peers mix the versions here. The refusal itself is understood, and version 0 always works.
        return ApiVersionsResponse(error_code=error_code)


def newest_common(request: type[Request], theirs: range | None, peer: str) -> int:
    """The newest version of a request that both sides speak."""
    ours = request.VERSIONS
    if theirs is not None:
        newest = min(ours.stop, theirs.stop) - 1
        if newest >= max(ours.start, theirs.start):
            return newest
    name = API_TABLE[request.API_KEY].name
    spoken = f"versions {theirs.start} to {theirs.stop - 1}" if theirs is not None else "no version"
    raise KafkaError(
        f"{peer} speaks {spoken} of {name}, and we speak {ours.start} to {ours.stop - 1}",
        code=ErrorCode.UNSUPPORTED_VERSION,
    )
