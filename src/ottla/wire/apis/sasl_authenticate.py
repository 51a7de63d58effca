"""SaslAuthenticate: one token of the SASL exchange. 1 answers with the session's lifetime, 2 is flexible.

The tokens are secrets and never show in a repr.
"""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import bytes_, int16, int64, string
from ottla.wire.message import Request, Response


class SaslAuthenticateRequest(Request, api=ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+"):
    auth_bytes: bytes = bytes_(sensitive=True)


class SaslAuthenticateResponse(Response, api=ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+"):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = bytes_(sensitive=True)
    session_lifetime_ms: int = int64(versions="1+", ignorable=True)
