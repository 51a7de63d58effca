"""Requests captured from foreign clients and between brokers of Apache Kafka, and the answers they accepted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import DecodeError
from ottla.wire.apis import request_class, response_class
from ottla.wire.header import (
    encode_request_frame,
    encode_response_frame,
    read_request_header,
    read_response_header,
)

GOLDEN = Path(__file__).parents[2] / "golden"
CAPTURED: list[dict[str, Any]] = [
    item
    for name in ("captured.json", "between_brokers.json")
    for item in json.loads((GOLDEN / name).read_text("utf-8"))
]
ALL_FRAMES = next(
    (found for parent in GOLDEN.parents if (found := parent / "shared/facts/cluster/frames.json").exists()), None
)
"""Of the same recording as `between_brokers.json`, where it lies next to the project."""


def frame_id(item: dict[str, Any]) -> str:
    return f"{item['client'].split()[0]}-{item['api']}-v{item['version']}"


@pytest.mark.parametrize("item", CAPTURED, ids=frame_id)
def test_requests_and_answers_come_out_as_they_came_in(item: dict[str, Any]) -> None:
    assert_comes_out_as_it_came_in(item["key"], item)


@pytest.mark.skipif(ALL_FRAMES is None, reason="the whole recording is not part of the project")
def test_all_that_three_brokers_of_kafka_said_to_each_other() -> None:
    assert ALL_FRAMES is not None
    frames = json.loads(ALL_FRAMES.read_text("utf-8"))
    for item in frames:
        assert_comes_out_as_it_came_in(item["api_key"], item)
    assert len(frames) >= 99


def assert_comes_out_as_it_came_in(api_key: int, item: dict[str, Any]) -> None:
    frame = bytes.fromhex(item["request_hex"])[4:]
    header = read_request_header(frame)
    assert (header.api_key, header.api_version) == (api_key, item["version"])
    request, end = request_class(header.api_key).decode(frame, header.api_version, header.body_position)
    assert end == len(frame)
    again = encode_request_frame(request, header.api_version, header.correlation_id, header.client_id)
    assert again.hex() == item["request_hex"]

    answer = bytes.fromhex(item["response_hex"])[4:]
    correlation_id, position = read_response_header(answer, header.api_key, header.api_version)
    assert correlation_id == header.correlation_id
    response, end = response_class(header.api_key).decode(answer, header.api_version, position)
    assert end == len(answer)
    assert encode_response_frame(response, header.api_version, correlation_id).hex() == item["response_hex"]


@pytest.mark.parametrize("item", CAPTURED, ids=frame_id)
def test_every_truncated_prefix_is_a_decode_error(item: dict[str, Any]) -> None:
    frame = bytes.fromhex(item["request_hex"])[4:]
    for cut in range(len(frame)):
        with pytest.raises(DecodeError):
            header = read_request_header(frame[:cut])
            request_class(item["key"]).decode(frame[:cut], header.api_version, header.body_position)
