"""ControlledShutdown: a broker asks the controller to move its leaderships away before it stops.

Version 0 is the one request whose header has no client id. 2 knows broker epochs, 3 is flexible.
"""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, int16, int32, int64, string
from ottla.wire.message import Request, Response, Struct


class ControlledShutdownRequest(Request, api=ApiKey.CONTROLLED_SHUTDOWN, versions="0-3", flexible="3+"):
    broker_id: int = int32()
    broker_epoch: int = int64(versions="2+", default=-1, ignorable=True)


class RemainingPartition(Struct):
    topic_name: str = string()
    partition_index: int = int32()


class ControlledShutdownResponse(Response, api=ApiKey.CONTROLLED_SHUTDOWN, versions="0-3", flexible="3+"):
    error_code: int = int16()
    remaining_partitions: list[RemainingPartition] = array(RemainingPartition)
