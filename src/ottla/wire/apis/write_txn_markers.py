"""WriteTxnMarkers: the coordinator tells partition leaders how a transaction ended. 1 is flexible."""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, boolean, int16, int32, int64, string
from ottla.wire.message import Request, Response, Struct


class WritableTxnMarkerTopic(Struct):
    name: str = string()
    partition_indexes: list[int] = array(int32)


class WritableTxnMarker(Struct):
    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()


class WriteTxnMarkersRequest(Request, api=ApiKey.WRITE_TXN_MARKERS, versions="0-1", flexible="1+"):
    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class WritableTxnMarkerTopicResult(Struct):
    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


class WritableTxnMarkerResult(Struct):
    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


class WriteTxnMarkersResponse(Response, api=ApiKey.WRITE_TXN_MARKERS, versions="0-1", flexible="1+"):
    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
