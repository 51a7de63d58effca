"""Keys and values of the records in `__transaction_state`: one per transactional id, the newest wins."""

from __future__ import annotations

from ottla.wire.fields import array, int8, int16, int32, int64, string
from ottla.wire.message import StoredRecord, Struct


class TransactionLogKey(StoredRecord, versions="0"):
    transactional_id: str = string()


class PartitionsSchema(Struct):
    topic: str = string()
    partition_ids: list[int] = array(int32)


class TransactionLogValue(StoredRecord, versions="0-1", flexible="1+"):
    producer_id: int = int64()
    previous_producer_id: int = int64(tag=0, tagged="1+", default=-1)
    next_producer_id: int = int64(tag=1, tagged="1+", default=-1)
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16(tag=2, tagged="1+")
