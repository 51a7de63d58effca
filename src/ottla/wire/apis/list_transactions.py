"""ListTransactions: the transactions a coordinator holds (KIP-664). 1 filters by duration."""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, int16, int32, int64, string
from ottla.wire.message import Request, Response, Struct


class ListTransactionsRequest(Request, api=ApiKey.LIST_TRANSACTIONS, versions="0-1", flexible="0+"):
    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    duration_filter: int = int64(versions="1+", default=-1)


class TransactionState(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


class ListTransactionsResponse(Response, api=ApiKey.LIST_TRANSACTIONS, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string)
    transaction_states: list[TransactionState] = array(TransactionState)
