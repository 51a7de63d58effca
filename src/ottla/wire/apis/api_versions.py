"""ApiVersions: what the broker can do; the first request of most clients.

3 is flexible and names the client's software (KIP-511), but its response keeps header version 0, because the client may
not know yet what the broker speaks. 4 lets a feature start at version 0.
"""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, boolean, int16, int32, int64, string
from ottla.wire.message import Request, Response, Struct


class ApiVersionsRequest(Request, api=ApiKey.API_VERSIONS, versions="0-4", flexible="3+"):
    client_software_name: str = string(versions="3+", ignorable=True)
    client_software_version: str = string(versions="3+", ignorable=True)


class ApiVersion(Struct):
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Struct):
    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


class FinalizedFeatureKey(Struct):
    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


class ApiVersionsResponse(Response, api=ApiKey.API_VERSIONS, versions="0-4", flexible="3+"):
    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, tag=0, tagged="3+", ignorable=True)
    finalized_features_epoch: int = int64(tag=1, tagged="3+", default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, tag=2, tagged="3+", ignorable=True)
    zk_migration_ready: bool = boolean(tag=3, tagged="3+", ignorable=True)
