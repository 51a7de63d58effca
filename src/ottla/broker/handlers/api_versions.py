"""ApiVersions: what this broker can be asked. The list is derived from the registered handlers.

A version this broker does not know is not closed upon but answered in version 0, with the range it does know, so that a
newer client can try again (KIP-511).
"""

from __future__ import annotations

import re

from ottla.base.errors import ErrorCode
from ottla.broker.handler import Handler, RequestContext
from ottla.net.service import Outcome
from ottla.wire.api_keys import ApiKey
from ottla.wire.apis.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

MAX_VERSION = 4
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(context: RequestContext) -> Outcome:
    if context.version > MAX_VERSION:
        context.version = 0
        own_range = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=MAX_VERSION)
        return context.encode(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own_range]))
    request, _ = ApiVersionsRequest.decode(context.frame, context.version, context.position)
    if context.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return context.encode(ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST))
    served = [
        ApiVersion(api_key=handler.api_key, min_version=first, max_version=last)
        for _, handler in sorted(context.broker.handlers.items())
        for first, last in [handler.advertised_versions]
    ]
    return context.encode(ApiVersionsResponse(api_keys=served))


HANDLER = Handler(ApiKey.API_VERSIONS, 0, 32767, handle, advertised_max_version=MAX_VERSION)
