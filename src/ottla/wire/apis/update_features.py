"""UpdateFeatures: raises or lowers cluster features. 1 can validate only, 2 has no result per feature."""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, boolean, int8, int16, int32, string
from ottla.wire.message import Request, Response, Struct


class FeatureUpdateKey(Struct):
    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean(versions="0")
    upgrade_type: int = int8(versions="1+", default=1)


class UpdateFeaturesRequest(Request, api=ApiKey.UPDATE_FEATURES, versions="0-2", flexible="0+"):
    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean(versions="1+")


class UpdatableFeatureResult(Struct):
    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class UpdateFeaturesResponse(Response, api=ApiKey.UPDATE_FEATURES, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, versions="0-1", ignorable=True)
