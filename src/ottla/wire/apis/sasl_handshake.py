"""SaslHandshake: agrees on a mechanism. After version 1 the tokens travel in SaslAuthenticate requests.

After version 0 they travel as bare frames without headers. There is no flexible version.
"""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, int16, string
from ottla.wire.message import Request, Response


class SaslHandshakeRequest(Request, api=ApiKey.SASL_HANDSHAKE, versions="0-1"):
    mechanism: str = string()


class SaslHandshakeResponse(Response, api=ApiKey.SASL_HANDSHAKE, versions="0-1"):
    error_code: int = int16()
    mechanisms: list[str] = array(string)
