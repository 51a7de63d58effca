"""How records are shown: decoded, as JSON, and as what the records of internal topics mean."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest

from ottla.base.errors import InvalidConfigError
from ottla.base.types import Uuid, uuid_to_text
from ottla.cli.failures import UsageError
from ottla.cli.lines import PlainRecord
from ottla.cli.record_forms import RecordError, deserializer, json_format, line_format, named_format
from ottla.cli.stored_json import plain
from ottla.client.core.consumer.record import make_record_class
from ottla.records.batch import TimestampType
from ottla.wire.stored.consumer_offsets import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupPartitionMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    PartitionRacks,
    TopicMetadata,
)
from ottla.wire.stored.transaction_state import PartitionsSchema, TransactionLogKey, TransactionLogValue


def record(key: bytes | None, value: bytes | None, headers: Any = (), epoch: int | None = 4) -> PlainRecord:
    return make_record_class("t", 2, TimestampType.CREATE_TIME, epoch)(7, 1234, key, value, headers)


# Single values


@pytest.mark.parametrize(
    ("name", "data", "shown"),
    [
        ("string", b"\xff", b"\xff"),
        ("default", b"a", b"a"),
        ("bytes", b"a", b"a"),
        ("bytearray", b"a", b"a"),
        ("bytebuffer", b"a", b"a"),
        ("hex", b"\0\xab", b"00ab"),
        ("base64", b"\0\xab", b"AKs="),
        ("short", b"\xff\xfe", b"-2"),
        ("int", b"\0\0\1\0", b"256"),
        ("integer", b"\xff\xff\xff\xff", b"-1"),
        ("long", struct.pack(">q", -(1 << 62)), b"-4611686018427387904"),
        ("float", struct.pack(">f", 0.5), b"0.5"),
        ("double", struct.pack(">d", -2.25), b"-2.25"),
        ("uuid", b"00010203-0405-0607-0809-0a0b0c0d0e0f", b"00010203-0405-0607-0809-0a0b0c0d0e0f"),
        ("uuid", bytes(range(16)), b"00010203-0405-0607-0809-0a0b0c0d0e0f"),
        ("json", '{"ü":[1]}'.encode(), '{\n  "ü": [\n    1\n  ]\n}'.encode()),
        ("org.apache.kafka.common.serialization.ByteArrayDeserializer", b"\xff", b"\xff"),
        ("kafka.serializer.StringDecoder", b"a", b"a"),
        ("LongDeserializer", struct.pack(">q", 1), b"1"),
    ],
)
def test_a_value_is_decoded(name: str, data: bytes, shown: bytes) -> None:
    decode = deserializer(name)
    assert decode is not None and decode(data) == shown


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("short", b"abc", "3 bytes are no short, which has 2"),
        ("int", b"", "0 bytes are no int, which has 4"),
        ("double", b"abcd", "4 bytes are no double, which has 8"),
        ("uuid", bytes(15), "15 bytes are no uuid, which has 16, or 36 as text"),
        ("uuid", bytes(37), "37 bytes are no uuid, which has 16, or 36 as text"),
        ("json", b"[" + b"x" * 50, f"b'[{'x' * 39}' is no JSON: Expecting value: line 1 column 2 (char 1)"),
    ],
)
def test_a_value_that_is_something_else(name: str, data: bytes, told: str) -> None:
    decode = deserializer(name)
    assert decode is not None
    with pytest.raises(RecordError) as refusal:
        decode(data)
    assert str(refusal.value) == told


def test_who_decodes_nothing_and_who_needs_more() -> None:
    assert deserializer(None) is None
    with pytest.raises(UsageError, match=r"'x\.Odd' is no deserializer; there are string, default, .*, double, avro$"):
        deserializer("x.Odd")
    for name in ("avro", "io.confluent.kafka.serializers.KafkaAvroDeserializer"):
        with pytest.raises(UsageError, match="avro needs the schemas: --property "):
            deserializer(name)
        with pytest.raises(UsageError):
            deserializer(name, "nowhere")


# Lines

KEYS = {"print.key": "true"}
SHORT = struct.pack(">h", 7)


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize(
    ("properties", "names", "shown"),
    [
        ({}, (None, None), SHORT + b"\t" + SHORT),
        ({}, ("short", None), b"7\t" + SHORT),
        ({}, (None, "short"), SHORT + b"\t7"),
        ({"key.deserializer": "short", "value.deserializer": "hex"}, (None, None), b"7\t0007"),
        ({"key.deserializer": "short"}, ("hex", "hex"), b"7\t0007"),
        ({"value.deserializer": "short"}, ("hex", "hex"), b"0007\t7"),
        (
            {"schema.registry.url": "http://h:1", "headers.deserializer": "string"},
            (None, None),
            SHORT + b"\t" + SHORT,
        ),
    ],
)
def test_keys_and_values_of_lines_are_decoded(
    lenient: bool, properties: dict[str, str], names: tuple[str | None, str | None], shown: bytes
) -> None:
    write = line_format({**KEYS, **properties}, *map(deserializer, names), lenient=lenient)
    assert write(record(SHORT, SHORT)) == shown + b"\n"


def test_nothing_has_no_form_to_decode() -> None:
    decode = deserializer("short")
    assert line_format(KEYS, decode, decode, lenient=False)(record(None, None)) == b"null\tnull\n"


def test_what_is_not_known_of_lines() -> None:
    unknown = {"print.epoch": "true", "nonsense": "1"}
    assert line_format(unknown, None, None, lenient=True)(record(None, b"v")) == b"v\n"
    with pytest.raises(InvalidConfigError, match="nonsense"):
        line_format(unknown, None, None, lenient=False)


# JSON

HEADERS = [("h", b"1"), ("i", None), ("j", b"\xff")]


def as_json(key: bytes | None, value: bytes | None, *names: str | None) -> dict[str, Any]:
    line = json_format(*map(deserializer, names or (None, None)))(record(key, value, HEADERS))
    assert line.endswith(b"}\n") and line.count(b"\n") == 1
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_record_as_json() -> None:
    assert as_json(b"k", "ü".encode()) == {
        "topic": "t",
        "partition": 2,
        "offset": 7,
        "timestamp": 1234,
        "timestamp_type": "CreateTime",
        "key": "k",
        "headers": [
            {"name": "h", "value": "1"},
            {"name": "i", "value": None},
            {"name": "j", "value": {"base64": "/w=="}},
        ],
        "value": "ü",
    }
    assert '"value": "ü"'.encode() in json_format(None, None)(record(None, "ü".encode()))


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (None, None),
        (b"", ""),
        (b'{"a": [1]}', {"a": [1]}),
        (b"[1, null]", [1, None]),
        (b"[1, ", "[1, "),
        (b"{\xff", {"base64": "e/8="}),
        (b"12", "12"),
        (b'"text"', '"text"'),
        (b"\xff", {"base64": "/w=="}),
    ],
)
def test_what_is_json_is_put_in_and_what_is_no_text_is_base64(data: bytes | None, shown: Any) -> None:
    found = as_json(data, data)
    assert (found["key"], found["value"]) == (shown, shown)


def test_decoded_keys_and_values_in_json() -> None:
    found = as_json(SHORT, b"7", "short", "json")
    assert (found["key"], found["value"]) == ("7", 7)
    found = as_json(b'"x"', SHORT, "json", "short")
    assert (found["key"], found["value"]) == ("x", "7")
    assert as_json(b"\xff", None, "string", "json")["key"] == "\ufffd"
    assert as_json(None, None, "short", "json")["value"] is None
    with pytest.raises(RecordError, match="is no JSON"):
        as_json(None, b"{", None, "json")


# Internal topics

OFFSET_KEY = OffsetCommitKey(group="g", topic="t", partition=3)
OFFSET = OffsetCommitValue(offset=9, leader_epoch=2, metadata="m", commit_timestamp=5)
GROUP = GroupMetadataValue(
    protocol_type="consumer",
    generation=4,
    protocol="range",
    leader=None,
    current_state_timestamp=6,
    members=[
        MemberMetadata(
            member_id="m-1",
            group_instance_id=None,
            client_id="c",
            client_host="/h",
            rebalance_timeout=1,
            session_timeout=2,
            subscription=b"\0\1",
            assignment=b"",
        )
    ],
)
TRANSACTION_KEY = TransactionLogKey(transactional_id="x")
TRANSACTION = TransactionLogValue(
    producer_id=1,
    producer_epoch=2,
    transaction_timeout_ms=3,
    transaction_status=1,
    transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[0, 2])],
    transaction_last_update_timestamp_ms=4,
    transaction_start_timestamp_ms=5,
)
OFFSET_RECORD = record(OFFSET_KEY.encode_versioned(1), OFFSET.encode_versioned(3))
GROUP_RECORD = record(GroupMetadataKey(group="g").encode_versioned(2), GROUP.encode_versioned(3))
TRANSACTION_RECORD = record(TRANSACTION_KEY.encode_versioned(0), TRANSACTION.encode_versioned(0))
SHOWN_OFFSET = {
    "key": {"version": 1, "data": {"group": "g", "topic": "t", "partition": 3}},
    "value": {"version": 3, "data": {"offset": 9, "leaderEpoch": 2, "metadata": "m", "commitTimestamp": 5}},
}
SHOWN_GROUP = {
    "key": {"version": 2, "data": {"group": "g"}},
    "value": {
        "version": 3,
        "data": {
            "protocolType": "consumer",
            "generation": 4,
            "protocol": "range",
            "leader": None,
            "currentStateTimestamp": 6,
            "members": [
                {
                    "memberId": "m-1",
                    "groupInstanceId": None,
                    "clientId": "c",
                    "clientHost": "/h",
                    "rebalanceTimeout": 1,
                    "sessionTimeout": 2,
                    "subscription": "AAE=",
                    "assignment": "",
                }
            ],
        },
    },
}
SHOWN_TRANSACTION = {
    "key": {"version": 0, "data": {"transactionalId": "x"}},
    "value": {
        "version": 0,
        "data": {
            "producerId": 1,
            "producerEpoch": 2,
            "transactionTimeoutMs": 3,
            "transactionStatus": 1,
            "transactionPartitions": [{"topic": "t", "partitionIds": [0, 2]}],
            "transactionLastUpdateTimestampMs": 4,
            "transactionStartTimestampMs": 5,
        },
    },
}


def fallback(of: PlainRecord) -> bytes:
    return b"as usual"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("offsets", [SHOWN_OFFSET, None]),
        ("kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter", [SHOWN_OFFSET, None]),
        ("org.apache.kafka.tools.consumer.OffsetsMessageFormatter", [SHOWN_OFFSET, None]),
        ("groupmetadata", [None, SHOWN_GROUP]),
        ("kafka.coordinator.group.GroupMetadataManager$GroupMetadataMessageFormatter", [None, SHOWN_GROUP]),
    ],
)
def test_what_the_records_of_groups_mean(name: str, shown: list[dict[str, Any] | None]) -> None:
    write = named_format(name, fallback, line_end=b"|")
    for of, expected in zip((OFFSET_RECORD, GROUP_RECORD), shown, strict=True):
        line = write(of)
        if expected is None:
            assert line == b""
        else:
            # Without blanks, as Kafka's tools print it.
            assert line == json.dumps(expected, separators=(",", ":")).encode() + b"|"


@pytest.mark.parametrize(
    "name",
    ["transactions", "transactionlog", "kafka.coordinator.transaction.TransactionLog$TransactionLogMessageFormatter"],
)
def test_what_the_records_of_transactions_mean(name: str) -> None:
    write = named_format(name, fallback, line_end=b"\n")
    assert json.loads(write(TRANSACTION_RECORD)) == SHOWN_TRANSACTION
    assert write(record(b"\0\7", None)) == b""


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("default", b"as usual"),
        ("kafka.tools.DefaultMessageFormatter", b"as usual"),
        ("logging", b"as usual"),
        ("kafka.tools.LoggingMessageFormatter", b"as usual"),
        ("noop", b""),
        ("org.apache.kafka.tools.consumer.NoOpMessageFormatter", b""),
    ],
)
def test_formatters_of_any_record(name: str, shown: bytes) -> None:
    assert named_format(name, fallback, line_end=b"\n")(OFFSET_RECORD) == shown


def test_a_formatter_that_is_none() -> None:
    known = "default, logging, noop, offsets, groupmetadata, transactionlog, transactions"
    with pytest.raises(UsageError) as refusal:
        named_format("x.Odd", fallback, line_end=b"")
    assert str(refusal.value) == f"'x.Odd' is no formatter; there are {known}"


def test_offsets_of_the_oldest_version_and_their_end() -> None:
    write = named_format("offsets", fallback, line_end=b"\n")
    old = write(record(OFFSET_KEY.encode_versioned(0), None))
    assert json.loads(old) == {"key": {**SHOWN_OFFSET["key"], "version": 0}, "value": None}
    assert write(record(None, b"v")) == b""


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [("offsets", b"\0\1\0", None), ("groupmetadata", b"\0\2\0\1g", b"\0"), ("transactions", b"\0\0\0\1x", b"\0\0")],
)
def test_bytes_that_are_no_such_record(name: str, key: bytes, value: bytes | None) -> None:
    with pytest.raises(RecordError):
        named_format(name, fallback, line_end=b"\n")(record(key, value))


# Fields of messages


def test_only_fields_of_the_version_are_shown() -> None:
    assert plain(OFFSET, 0) == {"offset": 9, "metadata": "m", "commitTimestamp": 5}
    assert plain(OFFSET, 1) == {"offset": 9, "metadata": "m", "commitTimestamp": 5, "expireTimestamp": -1}


def test_tagged_fields_are_there_if_they_say_something() -> None:
    untagged = plain(TRANSACTION, 1)
    assert untagged == SHOWN_TRANSACTION["value"]["data"]
    told = TransactionLogValue(
        producer_id=1,
        previous_producer_id=7,
        producer_epoch=2,
        transaction_timeout_ms=3,
        transaction_status=1,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=4,
        transaction_start_timestamp_ms=5,
    )
    assert plain(told, 1) == {**untagged, "previousProducerId": 7, "transactionPartitions": None}
    assert plain(told, 0) == {**untagged, "transactionPartitions": None}


def test_ids_bytes_and_what_is_nested() -> None:
    topic_id = Uuid(bytes(range(16)))
    racks = [PartitionRacks(partition=0, racks=["a", "b"])]
    topic = TopicMetadata(topic_id=topic_id, topic_name="t", num_partitions=1, partition_metadata=racks)
    assert plain(ConsumerGroupPartitionMetadataValue(topics=[topic]), 0) == {
        "topics": [
            {
                "topicId": uuid_to_text(topic_id),
                "topicName": "t",
                "numPartitions": 1,
                "partitionMetadata": [{"partition": 0, "racks": ["a", "b"]}],
            }
        ]
    }
    member = ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="c",
        client_host="h",
        subscribed_topic_names=[],
        subscribed_topic_regex=None,
        server_assignor=None,
        classic_member_metadata=ClassicMemberMetadata(
            session_timeout_ms=1, supported_protocols=[ClassicProtocol(name="p", metadata=b"\0\1")]
        ),
    )
    assert plain(member, 0)["classicMemberMetadata"] == {
        "sessionTimeoutMs": 1,
        "supportedProtocols": [{"name": "p", "metadata": base64.b64encode(b"\0\1").decode()}],
    }
