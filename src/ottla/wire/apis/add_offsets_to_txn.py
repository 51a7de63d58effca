"""AddOffsetsToTxn: a group's offsets partition joins a transaction. 3 is flexible; 4 adds an error code only."""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import int16, int32, int64, string
from ottla.wire.message import Request, Response


class AddOffsetsToTxnRequest(Request, api=ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4", flexible="3+"):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Response, api=ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4", flexible="3+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
