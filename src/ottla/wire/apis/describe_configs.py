"""DescribeConfigs: settings of topics, brokers and groups.

1 tells where a value comes from and what it overrides, 3 adds type and documentation, 4 is flexible.
"""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, boolean, int8, int16, int32, string
from ottla.wire.message import Request, Response, Struct


class DescribeConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(string, nullable="0+")


class DescribeConfigsRequest(Request, api=ApiKey.DESCRIBE_CONFIGS, versions="0-4", flexible="4+"):
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean(versions="1+")
    include_documentation: bool = boolean(versions="3+")


class DescribeConfigsSynonym(Struct):
    name: str = string()
    value: str | None = string(nullable="0+")
    source: int = int8()


class DescribeConfigsResourceResult(Struct):
    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    is_default: bool = boolean(versions="0")
    config_source: int = int8(versions="1+", default=-1, ignorable=True)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, versions="1+", ignorable=True)
    config_type: int = int8(versions="3+", ignorable=True)
    documentation: str | None = string(versions="3+", nullable="0+", ignorable=True)


class DescribeConfigsResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(Response, api=ApiKey.DESCRIBE_CONFIGS, versions="0-4", flexible="4+"):
    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
