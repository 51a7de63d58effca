"""IncrementalAlterConfigs: sets, deletes, appends to or subtracts from settings (KIP-339). 1 is flexible."""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, boolean, int8, int16, int32, string
from ottla.wire.message import Request, Response, Struct


class AlterableConfig(Struct):
    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class IncrementalAlterConfigsRequest(Request, api=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions="0-1", flexible="1+"):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


class IncrementalAlterConfigsResponse(Response, api=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
