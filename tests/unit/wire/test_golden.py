"""Bytes that others made: every one is read, means what it should, and comes out again as it was."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import pytest

from ottla.base.errors import DecodeError
from ottla.base.types import uuid_to_text
from ottla.wire.apis import request_class, response_class
from ottla.wire.apis.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.apis.metadata import MetadataResponse
from ottla.wire.fused.fetch import decode_fetch
from ottla.wire.fused.produce import decode_produce
from ottla.wire.header import (
    encode_request_frame,
    encode_response_frame,
    read_request_header,
    read_response_header,
)
from ottla.wire.message import Struct
from ottla.wire.stored.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from .golden import VECTORS

FRAMES = VECTORS["request_frames"]
DECODED_FRAMES = [item for item in FRAMES if "header" in item]


def frame_id(item: dict[str, Any]) -> str:
    return f"{item['client'].split()[0]}-{item['api']}-v{item['version']}"


def body_of(hex_frame: str) -> bytes:
    frame = bytes.fromhex(hex_frame)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return frame[4:]


def attribute(kafka_name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kafka_name).lower()


def assert_means(ours: Any, expected: Any, path: str) -> None:
    """The decoded message against the decoding that came with the golden bytes."""
    if isinstance(expected, dict) and isinstance(ours, Struct):
        for name, value in expected.items():
            assert_means(getattr(ours, attribute(name)), value, f"{path}.{name}")
    elif isinstance(expected, list):
        assert len(ours) == len(expected), path
        for index, (left, right) in enumerate(zip(ours, expected, strict=True)):
            assert_means(left, right, f"{path}[{index}]")
    elif isinstance(ours, bytes | memoryview):
        accepted = {bytes(ours).hex(), bytes(ours).decode("utf-8", "replace")}
        if len(ours) == 16:
            text = bytes(ours).hex()
            accepted |= {
                uuid_to_text(bytes(ours)),  # type: ignore[arg-type]
                f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}",
            }
        assert expected in accepted, path
    else:
        assert ours == expected, path


@pytest.mark.parametrize("item", DECODED_FRAMES, ids=frame_id)
def test_a_captured_request_is_read_and_written_again_to_the_byte(item: dict[str, Any]) -> None:
    frame = body_of(item["request_hex"])
    header = read_request_header(frame)
    assert (header.api_key, header.api_version) == (item["key"], item["version"])
    assert header.correlation_id == item["header"]["CorrelationId"]
    assert header.client_id == item["header"]["ClientId"]
    request, end = request_class(header.api_key).decode(frame, header.api_version, header.body_position)
    assert end == len(frame)
    assert_means(request, item["body"], item["api"])
    again = encode_request_frame(request, header.api_version, header.correlation_id, header.client_id)
    assert again.hex() == item["request_hex"]


@pytest.mark.parametrize("item", DECODED_FRAMES, ids=frame_id)
def test_every_truncated_prefix_of_a_captured_request_is_a_decode_error(item: dict[str, Any]) -> None:
    frame = body_of(item["request_hex"])
    cls = request_class(item["key"])
    step = max(1, len(frame) // 150)
    for cut in {*range(0, len(frame), step), len(frame) - 1}:
        with pytest.raises(DecodeError):
            header = read_request_header(frame[:cut])
            cls.decode(frame[:cut], header.api_version, header.body_position)


@pytest.mark.parametrize("item", [i for i in FRAMES if "response_hex" in i], ids=frame_id)
def test_an_accepted_response_is_read_and_written_again_to_the_byte(item: dict[str, Any]) -> None:
    frame = body_of(item["response_hex"])
    correlation_id, position = read_response_header(frame, item["key"], item["version"])
    response, end = response_class(item["key"]).decode(frame, item["version"], position)
    assert end == len(frame)
    assert encode_response_frame(response, item["version"], correlation_id).hex() == item["response_hex"]


@pytest.mark.parametrize("item", [i for i in DECODED_FRAMES if i["api"] == "Produce"], ids=frame_id)
def test_captured_produce_requests_by_hand(item: dict[str, Any]) -> None:
    frame = memoryview(body_of(item["request_hex"]))
    plan = decode_produce(frame, item["version"], read_request_header(frame).body_position)
    assert plan.acks == item["body"]["Acks"]
    assert [(name, [index for index, _ in partitions]) for name, partitions in plan.topics] == [
        (topic["Name"], [p["Index"] for p in topic["PartitionData"]]) for topic in item["body"]["TopicData"]
    ]
    assert all(records is not None and records.obj is frame.obj for _, ps in plan.topics for _, records in ps)


@pytest.mark.parametrize("item", [i for i in DECODED_FRAMES if i["api"] == "Fetch"], ids=frame_id)
def test_captured_fetch_requests_by_hand(item: dict[str, Any]) -> None:
    frame = memoryview(body_of(item["request_hex"]))
    plan = decode_fetch(frame, item["version"], read_request_header(frame).body_position)
    body = item["body"]
    assert (plan.max_wait_ms, plan.min_bytes, plan.session_id) == (
        body["MaxWaitMs"],
        body["MinBytes"],
        body["SessionId"],
    )
    assert [[p.fetch_offset for p in partitions] for _, partitions in plan.topics] == [
        [p["FetchOffset"] for p in topic["Partitions"]] for topic in body["Topics"]
    ]


def test_stray_bytes_after_a_metadata_request_are_ignored() -> None:
    # librdkafka sends three of them after a request for all topics.
    item = next(i for i in DECODED_FRAMES if i["api"] == "Metadata" and i["version"] == 12)
    frame = body_of(item["request_hex"])
    header = read_request_header(frame + b"\x00\x01\x02")
    request, end = request_class(3).decode(frame + b"\x00\x01\x02", 12, header.body_position)
    assert end == len(frame)
    assert_means(request, item["body"], "Metadata")


def test_an_api_versions_request_newer_than_we_know_still_has_a_readable_header() -> None:
    item = next(i for i in FRAMES if "header" not in i)
    frame = bytearray(body_of(item["request_hex"]))
    frame[2:4] = (99).to_bytes(2, "big")
    header = read_request_header(frame)
    assert (header.api_key, header.api_version, header.client_id) == (18, 99, "vec")


STORED = {
    "OffsetCommitKey": "consumer_offsets",
    "OffsetCommitValue": "consumer_offsets",
    "GroupMetadataKey": "consumer_offsets",
    "GroupMetadataValue": "consumer_offsets",
    "TransactionLogKey": "transaction_state",
    "TransactionLogValue": "transaction_state",
}


@pytest.mark.parametrize("item", VECTORS["stored_records"], ids=lambda i: i["schema"])
def test_stored_records(item: dict[str, Any]) -> None:
    cls = getattr(import_module(f"ottla.wire.stored.{STORED[item['schema']]}"), item["schema"])
    data = bytes.fromhex(item["hex"])
    record = cls.decode_versioned(data)
    assert_means(record, item["object"], item["schema"])
    assert record.encode_versioned(item["version"]) == data
    for cut in range(len(data)):
        with pytest.raises(DecodeError):
            cls.decode_versioned(data[:cut])


SUBSCRIPTIONS = [i for i in VECTORS["consumer_protocol"] if "subscription" in i["what"] or "JoinGroup" in i["what"]]
ASSIGNMENTS = [i for i in VECTORS["consumer_protocol"] if i["what"].startswith("assignment")]


@pytest.mark.parametrize("item", SUBSCRIPTIONS, ids=lambda i: i["what"])
def test_subscriptions(item: dict[str, Any]) -> None:
    data = bytes.fromhex(item["hex"])
    subscription = ConsumerProtocolSubscription.decode_versioned(data)
    assert subscription.encode_versioned(int.from_bytes(data[:2], "big")) == data
    if "decoded" in item:
        assert_means(subscription, item["decoded"], "subscription")
    else:
        assert subscription.topics == ["t1", "t2"]
        assert subscription.user_data == b"\x01\x02"


@pytest.mark.parametrize("item", ASSIGNMENTS, ids=lambda i: i["what"])
def test_assignments(item: dict[str, Any]) -> None:
    data = bytes.fromhex(item["hex"])
    assignment = ConsumerProtocolAssignment.decode_versioned(data)
    assert [(t.topic, t.partitions) for t in assignment.assigned_partitions] == [("t1", [0, 1])]
    assert assignment.user_data is None
    assert assignment.encode_versioned(int.from_bytes(data[:2], "big")) == data


def test_a_subscription_newer_than_we_know_is_read_as_far_as_we_know_it() -> None:
    newest = next(i for i in SUBSCRIPTIONS if i["what"] == "subscription v3")
    data = bytearray(bytes.fromhex(newest["hex"]) + b"something new")
    data[1] = 9
    subscription = ConsumerProtocolSubscription.decode_versioned(data)
    assert (subscription.generation_id, subscription.rack_id) == (5, "rack-a")


def test_edge_frames() -> None:
    unsupported, v3, metadata_v9 = (bytes.fromhex(i["response_hex"]) for i in VECTORS["edge_frames"])
    answer = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=3)])
    assert encode_response_frame(answer, 0, 9) == unsupported

    correlation_id, position = read_response_header(v3[4:], 18, 3)
    assert (correlation_id, position) == (9, 4)
    response, end = ApiVersionsResponse.decode(v3[4:], 3, position)
    assert end == len(v3) - 4
    assert [(a.api_key, a.max_version) for a in response.api_keys] == [(0, 9), (18, 3)]

    correlation_id, position = read_response_header(metadata_v9[4:], 3, 9)
    assert (correlation_id, position) == (9, 5)
    metadata, _ = MetadataResponse.decode(metadata_v9[4:], 9, position)
    assert encode_response_frame(metadata, 9, 9) == metadata_v9
