"""What keys and values of a dump are shown as: text, numbers, or what records of internal topics mean."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable
from typing import Any, TypeVar

from ottla.base.errors import OttlaError
from ottla.cli.record_forms import deserializer
from ottla.cli.stored_json import plain
from ottla.machines.groups.record_types import parse as parse_group_record
from ottla.machines.transactions.record_types import parse_record as parse_transaction_record
from ottla.machines.transactions.states import State
from ottla.records.reader import Record
from ottla.wire.message import StoredRecord, stored_version
from ottla.wire.stored.consumer_offsets import GroupMetadataKey, GroupMetadataValue
from ottla.wire.stored.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.wire.stored.transaction_state import TransactionLogKey, TransactionLogValue

Texts = tuple[str | None, str | None]
Decoders = Callable[[Record], Texts]
"""Key and value of a record; None is not shown."""
DELETED = "<DELETE>"

K = TypeVar("K")
V = TypeVar("V")


def chosen_decoders(options: Namespace) -> Decoders | None:
    if options.offsets_decoder:
        return _stored(parse_group_record, _group_record)
    if options.transaction_log_decoder:
        return _stored(parse_transaction_record, _transaction_record)
    named = options.key_decoder_class, options.value_decoder_class
    if not options.print_data_log and named == (None, None):
        return None
    key, value = (deserializer(name) for name in named)

    def decode(record: Record) -> Texts:
        return _text(record.key, key), _text(record.value, value)

    return decode


def _text(data: bytes | None, decode: Callable[[bytes], bytes] | None) -> str | None:
    if data is None:
        return None
    return (data if decode is None else decode(data)).decode("utf-8", errors="replace")


def _stored(
    parse: Callable[[bytes, bytes | None], tuple[K, V | None] | None], show: Callable[[Record, K, V | None], Texts]
) -> Decoders:
    """Of an internal topic; what cannot be understood is said, and passed over."""

    def decode(record: Record) -> Texts:
        if record.key is None:
            return None, None
        try:
            found = parse(record.key, record.value)
        except OttlaError as e:
            return f"Error at offset {record.offset}, skipping. {e}", None
        if found is None:
            return f"Unknown record type {stored_version(record.key)} at offset {record.offset}, skipping.", None
        return show(record, *found)

    return decode


def _group_record(record: Record, key: StoredRecord, value: StoredRecord | None) -> Texts:
    assert record.key is not None
    # Versions are text there, as in Kafka's tool.
    kind = stored_version(record.key)
    shown_key = _compact({"type": str(kind), "data": plain(key, kind)})
    if value is None or record.value is None:
        return shown_key, DELETED
    version = stored_version(record.value)
    data = plain(value, version)
    if isinstance(key, GroupMetadataKey) and isinstance(value, GroupMetadataValue):
        _open_members(data, value)
    return shown_key, _compact({"version": str(version), "data": data})


def _open_members(data: dict[str, Any], value: GroupMetadataValue) -> None:
    """Consumers put a subscription and an assignment into what other members' groups keep as they are."""
    if value.protocol_type != "consumer":
        return
    for shown, member in zip(data["members"], value.members, strict=True):
        if value.protocol is not None:
            subscription = ConsumerProtocolSubscription.decode_versioned(member.subscription)
            shown["subscription"] = plain(subscription, stored_version(member.subscription))
        assignment = ConsumerProtocolAssignment.decode_versioned(member.assignment)
        shown["assignment"] = plain(assignment, stored_version(member.assignment))


def _transaction_record(record: Record, key: TransactionLogKey, value: TransactionLogValue | None) -> Texts:
    shown_key = f"transaction_metadata::transactionalId={key.transactional_id}"
    if value is None:
        return shown_key, DELETED
    partitions = ",".join(
        f"{part.topic}-{number}" for part in value.transaction_partitions or [] for number in part.partition_ids
    )
    return shown_key, (
        f"producerId:{value.producer_id},producerEpoch:{value.producer_epoch},"
        f"state={State(value.transaction_status).text},partitions=[{partitions}],"
        f"txnLastUpdateTimestamp={value.transaction_last_update_timestamp_ms},"
        f"txnTimeoutMs={value.transaction_timeout_ms}"
    )


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
