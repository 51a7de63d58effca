"""EndTxn: commits or aborts. 3 is flexible; 5 answers with the producer id and epoch to go on with (KIP-890)."""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import boolean, int16, int32, int64, string
from ottla.wire.message import Request, Response


class EndTxnRequest(Request, api=ApiKey.END_TXN, versions="0-5", flexible="3+"):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class EndTxnResponse(Response, api=ApiKey.END_TXN, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(versions="5+", default=-1, ignorable=True)
    producer_epoch: int = int16(versions="5+", default=-1, ignorable=True)
