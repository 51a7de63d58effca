"""InitProducerId: a producer id and epoch for idempotence or transactions.

2 is flexible; from 3 a producer can send the id and epoch it has, to recover by a new epoch (KIP-360).
"""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import int16, int32, int64, string
from ottla.wire.message import Request, Response


class InitProducerIdRequest(Request, api=ApiKey.INIT_PRODUCER_ID, versions="0-5", flexible="2+"):
    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(versions="3+", default=-1)
    producer_epoch: int = int16(versions="3+", default=-1)


class InitProducerIdResponse(Response, api=ApiKey.INIT_PRODUCER_ID, versions="0-5", flexible="2+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
