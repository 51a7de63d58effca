"""AddPartitionsToTxn: partitions join a transaction before they are written to.

3 is flexible. From 4 brokers ask for many transactions at once, or only verify (KIP-890); clients use up to 3.
"""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, boolean, int16, int32, int64, string
from ottla.wire.message import Request, Response, Struct


class AddPartitionsToTxnTopic(Struct):
    name: str = string()
    partitions: list[int] = array(int32)


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    verify_only: bool = boolean()
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic)


class AddPartitionsToTxnRequest(Request, api=ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-5", flexible="3+"):
    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, versions="4+")
    v3_and_below_transactional_id: str = string(versions="0-3")
    v3_and_below_producer_id: int = int64(versions="0-3")
    v3_and_below_producer_epoch: int = int16(versions="0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, versions="0-3")


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = int32()
    partition_error_code: int = int16()


class AddPartitionsToTxnTopicResult(Struct):
    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult)


class AddPartitionsToTxnResult(Struct):
    transactional_id: str = string()
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult)


class AddPartitionsToTxnResponse(Response, api=ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32()
    error_code: int = int16(versions="4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, versions="4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, versions="0-3"
    )
