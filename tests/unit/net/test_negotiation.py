"""Which versions two sides speak: what is asked, what is understood of the answer, and the newest that both know."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla import __version__
from ottla.base.errors import ErrorCode, KafkaError
from ottla.net.negotiation import ask_versions, newest_common
from ottla.wire.api_keys import ApiKey
from ottla.wire.apis.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.apis.metadata import MetadataRequest
from ottla.wire.header import encode_response_frame, read_request_header

OFFER = [ApiVersion(api_key=3, min_version=1, max_version=9), ApiVersion(api_key=0, min_version=0, max_version=0)]
SPOKEN = {3: range(1, 10), 0: range(1)}


class Broker:
    """Answers the question for versions in turn, each time with a response in some version."""

    def __init__(self, *answers: tuple[ApiVersionsResponse, int]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[int, str | None, str, str]] = []

    async def exchange(self, make: Callable[[int], bytes]) -> memoryview:
        frame = make(77)[4:]
        header = read_request_header(frame)
        request, _ = ApiVersionsRequest.decode(frame, header.api_version, header.body_position)
        assert (header.api_key, header.correlation_id) == (ApiKey.API_VERSIONS, 77)
        names = request.client_software_name, request.client_software_version
        self.asked.append((header.api_version, header.client_id, *names))
        response, version = self.answers.pop(0)
        return memoryview(encode_response_frame(response, version, 77))[4:]


def ask(broker: Broker, client_id: str | None = "me") -> dict[int, range]:
    question: Awaitable[dict[int, range]] = ask_versions(broker.exchange, client_id)
    return asyncio.run(question)  # type: ignore[arg-type]


def refusal(*offered: ApiVersion) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=list(offered))


def test_a_broker_that_knows_the_question_is_asked_once() -> None:
    broker = Broker((ApiVersionsResponse(api_keys=OFFER), 3))
    assert ask(broker) == SPOKEN
    assert broker.asked == [(3, "me", "ottla", __version__)]
    nameless = Broker((ApiVersionsResponse(api_keys=OFFER), 3))
    assert ask(nameless, None) == SPOKEN
    assert nameless.asked[0][1] is None


@pytest.mark.parametrize(("highest", "second"), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3)])
def test_a_broker_that_refuses_says_in_which_version_to_ask(highest: int, second: int) -> None:
    offered = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=highest)
    other = ApiVersion(api_key=ApiKey.METADATA, min_version=0, max_version=1)
    broker = Broker((refusal(other, offered), 0), (ApiVersionsResponse(api_keys=OFFER), second))
    assert ask(broker) == SPOKEN
    assert [asked[0] for asked in broker.asked] == [3, second]


@pytest.mark.parametrize("version", [0, 3])
def test_a_broker_that_only_refuses_is_asked_in_the_first_version(version: int) -> None:
    """Whichever version its refusal is in."""
    broker = Broker((refusal(), version), (ApiVersionsResponse(api_keys=OFFER), 0))
    assert ask(broker) == SPOKEN
    assert [asked[:2] for asked in broker.asked] == [(3, "me"), (0, "me")]


def test_any_other_error_is_raised() -> None:
    broker = Broker((ApiVersionsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED), 3))
    with pytest.raises(KafkaError) as refused:
        ask(broker)
    assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    again = Broker((refusal(), 0), (refusal(), 0))
    with pytest.raises(KafkaError) as refused:
        ask(again)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("theirs", "newest"),
    [
        (range(14), 13),
        (range(99), 13),
        (range(5, 9), 8),
        (range(13, 20), 13),
        (range(1), 0),
        (range(14, 20), None),
        (range(5, 5), None),
        (None, None),
    ],
)
def test_the_newest_version_that_both_speak(theirs: range | None, newest: int | None) -> None:
    assert range(14) == MetadataRequest.VERSIONS
    if newest is not None:
        assert newest_common(MetadataRequest, theirs, "the broker") == newest
    else:
        with pytest.raises(KafkaError, match=r"the broker speaks .* of Metadata, and we speak 0 to 13") as refused:
            newest_common(MetadataRequest, theirs, "the broker")
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(("start", "newest"), [(3, 5), (5, 5), (6, None)])
def test_nothing_below_our_first_version_is_spoken(start: int, newest: int | None) -> None:
    class Later(MetadataRequest, versions=f"{start}-8", api=ApiKey.METADATA):
        pass

    if newest is not None:
        assert newest_common(Later, range(6), "it") == newest
    else:
        with pytest.raises(KafkaError, match="speaks versions 0 to 5 of Metadata, and we speak 6 to 8"):
            newest_common(Later, range(6), "it")
