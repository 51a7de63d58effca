"""AlterConfigs: replaces all settings of a resource (IncrementalAlterConfigs changes some). 2 is flexible."""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, boolean, int8, int16, int32, string
from ottla.wire.message import Request, Response, Struct


class AlterableConfig(Struct):
    name: str = string()
    value: str | None = string(nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class AlterConfigsRequest(Request, api=ApiKey.ALTER_CONFIGS, versions="0-2", flexible="2+"):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


class AlterConfigsResponse(Response, api=ApiKey.ALTER_CONFIGS, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
