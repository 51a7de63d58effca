"""What records of internal topics are shown as, in the words of Kafka's tool."""

from __future__ import annotations

import base64
import json
from argparse import Namespace
from typing import Any

import pytest

from ottla.cli.dump_log.decoders import DELETED, chosen_decoders
from ottla.machines.transactions.states import State
from ottla.records.reader import Record
from ottla.wire.stored.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.wire.stored.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopic,
)
from ottla.wire.stored.transaction_state import PartitionsSchema, TransactionLogKey, TransactionLogValue


def shown(key: bytes | None, value: bytes | None, **options: Any) -> tuple[str | None, str | None]:
    unset = {
        "offsets_decoder": False,
        "transaction_log_decoder": False,
        "key_decoder_class": None,
        "value_decoder_class": None,
        "print_data_log": False,
    }
    decode = chosen_decoders(Namespace(**(unset | options)))
    assert decode is not None
    return decode(Record(17, 0, key, value, ()))


def of_group(key: bytes | None, value: bytes | None) -> tuple[Any, Any]:
    found = shown(key, value, offsets_decoder=True)
    assert all(text is None or " " not in text for text in found)
    return tuple(text if text in (None, DELETED) else json.loads(text) for text in found)  # type: ignore[return-value]


def test_nothing_is_decoded_that_nobody_wants_to_see() -> None:
    options = Namespace(
        offsets_decoder=False,
        transaction_log_decoder=False,
        key_decoder_class=None,
        value_decoder_class=None,
        print_data_log=False,
    )
    assert chosen_decoders(options) is None


def test_plain_records_are_text() -> None:
    assert shown(b"k", None, print_data_log=True) == ("k", None)
    assert shown(None, b"\xff", print_data_log=True) == (None, "�")


KEY = OffsetCommitKey(group="g", topic="t", partition=3).encode_versioned(1)


def test_an_offset() -> None:
    value = OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=9).encode_versioned(3)
    key = {"type": "1", "data": {"group": "g", "topic": "t", "partition": 3}}
    data = {"offset": 5, "leaderEpoch": 2, "metadata": "m", "commitTimestamp": 9}
    assert of_group(KEY, value) == (key, {"version": "3", "data": data})
    assert of_group(KEY, None) == (key, DELETED)


SUBSCRIPTION = ConsumerProtocolSubscription(topics=["t"]).encode_versioned(0)
ASSIGNMENT = ConsumerProtocolAssignment(
    assigned_partitions=[ConsumerProtocolTopic(topic="t", partitions=[0, 1])]
).encode_versioned(0)


def group(protocol_type: str, protocol: str | None) -> Any:
    member = MemberMetadata(member_id="m", subscription=SUBSCRIPTION, assignment=ASSIGNMENT)
    value = GroupMetadataValue(protocol_type=protocol_type, protocol=protocol, members=[member])
    key, found = of_group(GroupMetadataKey(group="g").encode_versioned(2), value.encode_versioned(3))
    assert key == {"type": "2", "data": {"group": "g"}}
    assert found["version"] == "3"
    (shown_member,) = found["data"]["members"]
    return shown_member["subscription"], shown_member["assignment"]


AS_IT_IS = tuple(base64.b64encode(data).decode() for data in (SUBSCRIPTION, ASSIGNMENT))
OPENED = (
    {"topics": ["t"], "userData": None},
    {"assignedPartitions": [{"topic": "t", "partitions": [0, 1]}], "userData": None},
)


@pytest.mark.parametrize(
    ("protocol_type", "protocol", "expected"),
    [
        ("consumer", "range", OPENED),
        ("consumer", None, (AS_IT_IS[0], OPENED[1])),
        ("connect", "range", AS_IT_IS),
    ],
)
def test_members_of_consumer_groups_say_what_they_read(
    protocol_type: str, protocol: str | None, expected: tuple[object, object]
) -> None:
    assert group(protocol_type, protocol) == expected


def test_a_transaction() -> None:
    key = TransactionLogKey(transactional_id="tx").encode_versioned(0)
    value = TransactionLogValue(
        producer_id=7,
        producer_epoch=1,
        transaction_timeout_ms=60,
        transaction_status=State.PREPARE_COMMIT,
        transaction_partitions=[
            PartitionsSchema(topic="t", partition_ids=[0, 2]),
            PartitionsSchema(topic="u", partition_ids=[1]),
        ],
        transaction_last_update_timestamp_ms=9,
    )
    named = "transaction_metadata::transactionalId=tx"
    told = "producerId:7,producerEpoch:1,state=PrepareCommit,partitions=[{}],txnLastUpdateTimestamp=9,txnTimeoutMs=60"
    both = shown(key, value.encode_versioned(0), transaction_log_decoder=True)
    assert both == (named, told.format("t-0,t-2,u-1"))
    value.transaction_partitions = None
    assert shown(key, value.encode_versioned(0), transaction_log_decoder=True) == (named, told.format(""))
    assert shown(key, None, transaction_log_decoder=True) == (named, DELETED)


@pytest.mark.parametrize("decoder", ["offsets_decoder", "transaction_log_decoder"])
def test_what_cannot_be_understood_is_said_and_passed_over(decoder: str) -> None:
    assert shown(None, b"v", **{decoder: True}) == (None, None)
    unknown = shown(b"\x00\x63", b"v", **{decoder: True})
    assert unknown == ("Unknown record type 99 at offset 17, skipping.", None)
    said, value = shown(b"\x00", b"v", **{decoder: True})
    assert said is not None and said.startswith("Error at offset 17, skipping. ")
    assert value is None
