from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import DecodeError, EncodeError, ProtocolError
from ottla.wire.api_keys import ApiKey
from ottla.wire.apis import API_TABLE, request_class
from ottla.wire.apis.api_versions import ApiVersionsResponse
from ottla.wire.apis.controlled_shutdown import ControlledShutdownRequest
from ottla.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.header import (
    RequestHeaderMessage,
    encode_request_frame,
    encode_response_frame,
    read_request_header,
    read_response_header,
    request_header_bytes,
    request_header_version,
    response_frame_prefix,
    response_header_version,
    skim_request_header,
)


@pytest.mark.parametrize(
    ("api_key", "version", "request_version", "response_version"),
    [
        (ApiKey.METADATA, 8, 1, 0),
        (ApiKey.METADATA, 9, 2, 1),
        (ApiKey.API_VERSIONS, 2, 1, 0),
        (ApiKey.API_VERSIONS, 3, 2, 0),
        (ApiKey.API_VERSIONS, 4, 2, 0),
        (ApiKey.CONTROLLED_SHUTDOWN, 0, 0, 0),
        (ApiKey.CONTROLLED_SHUTDOWN, 1, 1, 0),
        (ApiKey.CONTROLLED_SHUTDOWN, 3, 2, 1),
        (ApiKey.SASL_HANDSHAKE, 1, 1, 0),
        (ApiKey.OFFSET_DELETE, 0, 1, 0),
    ],
)
def test_header_versions(api_key: int, version: int, request_version: int, response_version: int) -> None:
    assert request_header_version(api_key, version) == request_version
    assert response_header_version(api_key, version) == response_version


@given(
    api=st.sampled_from(sorted(API_TABLE)),
    data=st.data(),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.none() | st.text(max_size=40),
)
@settings(max_examples=200, derandomize=True)
def test_the_fast_header_equals_the_declared_one(
    api: int, data: st.DataObject, correlation_id: int, client_id: str | None
) -> None:
    version = data.draw(st.sampled_from(request_class(api).VERSIONS))
    header_version = request_header_version(api, version)
    declared = RequestHeaderMessage(
        request_api_key=api, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    coded = declared.encode(header_version)
    assert request_header_bytes(header_version, api, version, correlation_id, client_id) == coded
    header = read_request_header(memoryview(coded + b"body"))
    assert header == (api, version, correlation_id, client_id if header_version else None, len(coded))
    for cut in range(len(coded)):
        with pytest.raises(DecodeError):
            read_request_header(coded[:cut])


def test_tags_in_the_header_are_skipped() -> None:
    frame = bytes.fromhex("0012 0003 00000007 0001 61 02 00 02 ffff 09 00") + b"body"
    header = read_request_header(frame)
    assert frame[header.body_position :] == b"body"
    assert header.client_id == "a"


@pytest.mark.parametrize(
    "frame",
    [
        "0012 0003 00000007 fffe 00",  # a length below -1
        "0012 0003 00000007 0001 ff 00",  # not UTF-8
        "0012 0003 00000007 ffff 01 00 7f",  # a tag beyond the end
        "0012 0003 00000007 ffff 01 00 8080808080",
        "0012 0003 00000007 7fff 61",
    ],
)
def test_bad_headers_are_decode_errors(frame: str) -> None:
    with pytest.raises(DecodeError):
        read_request_header(bytes.fromhex(frame))


def test_an_unknown_api_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="no API with key 1000"):
        read_request_header(bytes.fromhex("03e8 0000 00000007 ffff"))


def test_versions_nobody_declared_are_not_remembered() -> None:
    from ottla.wire import header

    for version in range(100, 200):
        read_request_header(bytes.fromhex("0012") + version.to_bytes(2, "big") + bytes.fromhex("00000007 ffff 00"))
    assert all(version < 100 for _, version in header._request_header_versions)


def test_frames_round_trip() -> None:
    request = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
    for version in HeartbeatRequest.VERSIONS:
        frame = encode_request_frame(request, version, 77, "me")
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        header = read_request_header(frame[4:])
        assert header[:4] == (ApiKey.HEARTBEAT, version, 77, "me")
        assert HeartbeatRequest.decode(frame[4:], version, header.body_position)[0] == request

        response = HeartbeatResponse(error_code=27)
        frame = encode_response_frame(response, version, -5)
        correlation_id, position = read_response_header(frame[4:], ApiKey.HEARTBEAT, version)
        assert correlation_id == -5
        assert HeartbeatResponse.decode(frame[4:], version, position)[0] == response


def test_the_oldest_controlled_shutdown_has_no_client_id() -> None:
    frame = encode_request_frame(ControlledShutdownRequest(broker_id=4), 0, 1, "ignored")
    assert frame.hex() == "0000000c000700000000000100000004"
    assert read_request_header(frame[4:]) == (7, 0, 1, None, 8)


def test_response_prefixes() -> None:
    assert response_frame_prefix(0, 9, 10).hex() == "0000000e00000009"
    assert response_frame_prefix(1, 9, 10).hex() == "0000000f0000000900"
    assert encode_response_frame(ApiVersionsResponse(), 3, 9)[4:8] == b"\0\0\0\x09"


def test_a_client_id_that_is_too_long_is_an_encode_error() -> None:
    with pytest.raises(EncodeError, match="client id"):
        request_header_bytes(2, 3, 9, 1, "x" * 40_000)


@given(
    api_key=st.sampled_from([0, 1, 3, 7, 18]),
    version=st.integers(0, 12),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.none() | st.text(max_size=20),
    cut=st.integers(0, 60),
)
def test_a_skimmed_header_is_the_header(
    api_key: int, version: int, correlation_id: int, client_id: str | None, cut: int
) -> None:
    head = request_header_bytes(request_header_version(api_key, version), api_key, version, correlation_id, client_id)
    frame = (head + b"body")[: len(head) + 4 - cut] if cut < 10 else head + b"body"
    try:
        found = read_request_header(frame)
    except (DecodeError, ProtocolError):
        # It judges less than the whole reading does; what is cut off shows where the body should be.
        assert skim_request_header(frame)[3] in (0, len(head))
        return
    skimmed = skim_request_header(frame)
    assert skimmed in ((0, 0, 0, 0), (found.api_key, found.api_version, found.correlation_id, found.body_position))
    if version in request_class(api_key).VERSIONS and api_key != 7:
        assert skimmed[3] == found.body_position


@pytest.mark.parametrize("tail", [b"\x01\x00\x00", b"\xff\xff\xff"])
def test_a_header_with_tags_or_a_strange_length_is_not_skimmed(tail: bytes) -> None:
    read_request_header(request_header_bytes(2, 0, 9, 1, "c") + b"body")
    assert skim_request_header(request_header_bytes(2, 0, 9, 1, "c")[:-1] + tail) == (0, 0, 0, 0)
    assert skim_request_header(b"\x00\x00\x00\x09\x00\x00\x00\x01\xff\xfe" + tail) == (0, 0, 0, 0)
