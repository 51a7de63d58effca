"""From a frame to a reply by a function on messages: what becomes of errors, and who is answered later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from ottla.base.errors import ErrorCode, KafkaError, ProtocolError
from ottla.broker import handler as handler_module
from ottla.broker.dispatch import Dispatch
from ottla.broker.handler import Handler, RequestContext, error_response, message_handler
from ottla.net.service import Deferred
from ottla.wire.apis.create_topics import CreateTopicsRequest
from ottla.wire.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.header import encode_request_frame, encode_response_frame
from ottla.wire.message import Request
from tests.log_lines import messages_of
from tests.waiting import run_async

KAFKA_ERROR = KafkaError("not here", code=ErrorCode.NOT_COORDINATOR)


class Asked:
    """A broker that has nothing but tasks, and one request."""

    def __init__(self, request: Request, version: int) -> None:
        self.tasks: list[asyncio.Task[Any]] = []
        broker: Any = SimpleNamespace(spawn=self._spawn, slow_requests=SimpleNamespace(answered=lambda *_: None))
        frame = memoryview(b"head" + request.encode(version))
        connection: Any = SimpleNamespace(state=None)
        self.context = RequestContext(broker, connection, request.API_KEY, version, 77, "c", frame, 4)

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        self.tasks.append(asyncio.ensure_future(work))


def beat(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    assert (request.group_id, request.generation_id, request.member_id) == ("g", 3, "m")
    return HeartbeatResponse(throttle_time_ms=5)


def refuse(context: RequestContext, request: Any) -> HeartbeatResponse:
    raise KAFKA_ERROR


def raw(context: RequestContext, request: HeartbeatRequest) -> bytes:
    return b"encoded already"


def later(respond: Callable[..., Any]) -> Callable[..., Any]:
    async def respond_later(context: RequestContext, request: Any) -> Any:
        await asyncio.sleep(0)
        return respond(context, request)

    return respond_later


def frame_of(response: HeartbeatResponse) -> bytes:
    return encode_response_frame(response, 4, 77)


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize(
    ("respond", "reply"),
    [
        (beat, frame_of(HeartbeatResponse(throttle_time_ms=5))),
        (refuse, frame_of(HeartbeatResponse(error_code=16))),
        (raw, b"encoded already"),
    ],
    ids=["reply", "error", "frame"],
)
def test_a_reply_and_an_error_at_once_and_later(respond: Callable[..., Any], reply: bytes, is_late: bool) -> None:
    async def scenario() -> None:
        asked = Asked(HeartbeatRequest(group_id="g", generation_id=3, member_id="m"), 4)
        handler = message_handler(HeartbeatRequest, (1, 4), later(respond) if is_late else respond)
        assert handler == Handler(12, 1, 4, handler.handle)
        outcome = handler.handle(asked.context)
        if not is_late:
            assert outcome == (reply,)
            return
        assert isinstance(outcome, Deferred) and outcome.pieces is None and not asked.context.frame
        await asyncio.gather(*asked.tasks)
        assert outcome.pieces == (reply,)

    run_async(scenario())


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ProtocolError("nonsense"), "nonsense"),
        (ValueError("a mistake of ours"), "request failed: api 12 version 4"),
        (asyncio.CancelledError(), None),
    ],
)
def test_where_there_is_no_reply_the_connection_is_closed(
    caplog: pytest.LogCaptureFixture, error: BaseException, said: str | None
) -> None:
    def fail(context: RequestContext, request: Any) -> HeartbeatResponse:
        raise error

    async def scenario() -> None:
        asked = Asked(HeartbeatRequest(), 4)
        outcome = message_handler(HeartbeatRequest, (1, 4), later(fail)).handle(asked.context)
        assert isinstance(outcome, Deferred)
        (ended,) = await asyncio.gather(*asked.tasks, return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError) is (said is None)
        closed: list[bool] = []
        outcome.attach(SimpleNamespace(deferred_failed=lambda: closed.append(True)))
        assert (outcome.pieces, closed) == (None, [True])

    run_async(scenario())
    assert messages_of(caplog, "ottla.broker.handler") == ([] if said is None else [said])


def test_an_error_is_told_where_the_reply_has_a_place_for_it() -> None:
    def told(request: Request) -> Any:
        return error_response(Asked(request, 0).context, KAFKA_ERROR)

    assert told(HeartbeatRequest()) == HeartbeatResponse(error_code=16)
    assert told(FindCoordinatorRequest()) == FindCoordinatorResponse(error_code=16, error_message="not here")
    with pytest.raises(ProtocolError, match="api 19 failed as a whole: NOT_COORDINATOR: not here"):
        told(CreateTopicsRequest())


@pytest.mark.parametrize(
    ("first", "last", "expected"), [(None, None, (2, 4)), (0, None, (0, 4)), (None, 0, (2, 0)), (1, 5, (1, 5))]
)
def test_versions_that_clients_are_told(first: int | None, last: int | None, expected: tuple[int, int]) -> None:
    handler = Handler(12, 2, 4, lambda context: (), first, last)
    assert handler.advertised_versions == expected


@pytest.mark.parametrize(("version", "is_served"), [(0, False), (1, True), (3, True), (4, False)])
def test_a_version_that_is_not_served_ends_the_connection(version: int, is_served: bool) -> None:
    checked: list[int] = []
    connection: Any = SimpleNamespace(state=SimpleNamespace(check=checked.append))
    handler = Handler(12, 1, 3, lambda context: ())
    dispatch = Dispatch(MagicMock(), {12: handler})
    frame = memoryview(bytearray(encode_request_frame(HeartbeatRequest(group_id="g"), version, 77, "me")[4:]))
    if is_served:
        found, context = dispatch.find(connection, frame)
        assert found is handler
        assert (context.api_key, context.version, context.correlation_id, context.client_id) == (12, version, 77, "me")
        assert HeartbeatRequest.decode(context.frame, version, context.position)[0].group_id == "g"
        assert context.request_bytes == len(frame)
    else:
        with pytest.raises(ProtocolError, match=f"version {version} of api 12 is not served, only 1 to 3"):
            dispatch.find(connection, frame)
    assert checked == [12]


def test_an_api_that_is_not_served_ends_the_connection() -> None:
    connection: Any = SimpleNamespace(state=SimpleNamespace(check=lambda api_key: None))
    dispatch = Dispatch(MagicMock(), {})
    frame = memoryview(bytearray(encode_request_frame(HeartbeatRequest(), 0, 77, "me")[4:]))
    with pytest.raises(ProtocolError, match="api 12 is not served"):
        dispatch.find(connection, frame)


@pytest.mark.parametrize(("elapsed_ns", "is_looked_at"), [(1_000_000, False), (1_000_001, True)])
def test_replies_that_took_a_millisecond_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, elapsed_ns: int, is_looked_at: bool
) -> None:
    seen: list[Any] = []
    context = Asked(HeartbeatRequest(), 4).context
    slow: Any = SimpleNamespace(answered=lambda *answered: seen.append(answered))
    context.broker.slow_requests = slow
    monkeypatch.setattr(handler_module, "monotonic_ns", lambda: context.started_ns + elapsed_ns)
    assert context.encode(b"reply") == (b"reply",)
    assert seen == ([(context, elapsed_ns)] if is_looked_at else [])
