"""DescribeTransactions: state and partitions of transactional ids (KIP-664)."""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, int16, int32, int64, string
from ottla.wire.message import Request, Response, Struct


class DescribeTransactionsRequest(Request, api=ApiKey.DESCRIBE_TRANSACTIONS, versions="0", flexible="0+"):
    transactional_ids: list[str] = array(string)


class TopicData(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class TransactionState(Struct):
    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)


class DescribeTransactionsResponse(Response, api=ApiKey.DESCRIBE_TRANSACTIONS, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    transaction_states: list[TransactionState] = array(TransactionState)
