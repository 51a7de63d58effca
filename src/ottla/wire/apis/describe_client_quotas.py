"""DescribeClientQuotas: the quotas a filter matches (KIP-546). 1 is flexible."""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, boolean, float64, int8, int16, int32, string
from ottla.wire.message import Request, Response, Struct


class QuotaFilter(Struct):
    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable="0+")


class DescribeClientQuotasRequest(Request, api=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions="0-1", flexible="1+"):
    components: list[QuotaFilter] = array(QuotaFilter)
    strict: bool = boolean()


class DescribedEntity(Struct):
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class QuotaValue(Struct):
    key: str = string()
    value: float = float64()


class DescribedQuota(Struct):
    entity: list[DescribedEntity] = array(DescribedEntity)
    values: list[QuotaValue] = array(QuotaValue)


class DescribeClientQuotasResponse(Response, api=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entries: list[DescribedQuota] | None = array(DescribedQuota, nullable="0+")
