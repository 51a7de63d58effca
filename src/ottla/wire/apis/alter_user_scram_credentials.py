"""AlterUserScramCredentials: sets or removes SCRAM credentials (KIP-554).

Salt and salted password are secrets and never show in a repr.
"""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, bytes_, int8, int16, int32, string
from ottla.wire.message import Request, Response, Struct


class ScramCredentialDeletion(Struct):
    name: str = string()
    mechanism: int = int8()


class ScramCredentialUpsertion(Struct):
    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = bytes_(sensitive=True)
    salted_password: bytes = bytes_(sensitive=True)


class AlterUserScramCredentialsRequest(Request, api=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+"):
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


class AlterUserScramCredentialsResult(Struct):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class AlterUserScramCredentialsResponse(Response, api=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
