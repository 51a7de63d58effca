"""CreateAcls. 1 has pattern types, 2 is flexible, 3 knows users as resources."""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, int8, int16, int32, string
from ottla.wire.message import Request, Response, Struct


class AclCreation(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(versions="1+", default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class CreateAclsRequest(Request, api=ApiKey.CREATE_ACLS, versions="0-3", flexible="2+"):
    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class CreateAclsResponse(Response, api=ApiKey.CREATE_ACLS, versions="0-3", flexible="2+"):
    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)
