"""AllocateProducerIds: a broker takes a block of producer ids from the controller (KIP-730)."""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import int16, int32, int64
from ottla.wire.message import Request, Response


class AllocateProducerIdsRequest(Request, api=ApiKey.ALLOCATE_PRODUCER_IDS, versions="0", flexible="0+"):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


class AllocateProducerIdsResponse(Response, api=ApiKey.ALLOCATE_PRODUCER_IDS, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id_start: int = int64()
    producer_id_len: int = int32()
