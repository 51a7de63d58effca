"""AlterClientQuotas: sets or removes quotas (KIP-546). 1 is flexible."""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, boolean, float64, int16, int32, string
from ottla.wire.message import Request, Response, Struct


class AlteredEntity(Struct):
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class QuotaOperation(Struct):
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class AlterClientQuotasRequestEntry(Struct):
    entity: list[AlteredEntity] = array(AlteredEntity)
    ops: list[QuotaOperation] = array(QuotaOperation)


class AlterClientQuotasRequest(Request, api=ApiKey.ALTER_CLIENT_QUOTAS, versions="0-1", flexible="1+"):
    entries: list[AlterClientQuotasRequestEntry] = array(AlterClientQuotasRequestEntry)
    validate_only: bool = boolean()


class AlterClientQuotasResponseEntry(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entity: list[AlteredEntity] = array(AlteredEntity)


class AlterClientQuotasResponse(Response, api=ApiKey.ALTER_CLIENT_QUOTAS, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32()
    entries: list[AlterClientQuotasResponseEntry] = array(AlterClientQuotasResponseEntry)
