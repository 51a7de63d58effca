from __future__ import annotations

import asyncio
import gc
import os
import queue
import selectors
import socket
import struct
import threading
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from unittest.mock import AsyncMock, patch

import pytest

from ottla.base.errors import DecodeError, ErrorCode, KafkaError, OttlaError
from ottla.net.connection import Connection
from ottla.net.limits import ConnectionLimits
from ottla.net.replies import Frame
from ottla.net.server import Server
from ottla.net.server_connection import ClientConnection
from ottla.net.service import Deferred, Outcome
from ottla.wire.api_keys import ApiKey
from ottla.wire.apis.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.apis.fetch import FetchRequest
from ottla.wire.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.apis.metadata import MetadataRequest, MetadataResponse
from ottla.wire.header import (
    encode_request_frame,
    encode_response_frame,
    read_request_header,
    read_response_header,
)
from tests.waiting import PATIENCE_S, in_time, join, run_async

RunAsync = Callable[[Coroutine[object, object, None]], None]


class TinyBroker:
    """Answers ApiVersions, and FindCoordinator with the key it was asked for; keeps heartbeats waiting."""

    def __init__(self, *, newest_api_versions: int = 4, names_its_versions: bool = True) -> None:
        self.newest_api_versions = newest_api_versions
        self.names_its_versions = names_its_versions
        self.heartbeats: list[tuple[Deferred, bytes]] = []
        self.frames: list[bytes] = []

    def opened(self, connection: ClientConnection) -> None: ...

    def settle(self) -> None: ...

    def end_turn(self) -> None: ...

    def closed(self, connection: ClientConnection) -> None: ...

    def handle(self, connection: ClientConnection, frame: memoryview) -> Outcome:
        self.frames.append(bytes(frame))
        header = read_request_header(frame)
        if header.api_key == ApiKey.API_VERSIONS:
            return [self._api_versions(header.api_version, header.correlation_id)]
        if header.api_key == ApiKey.HEARTBEAT:
            deferred = Deferred(holds_connection=False)
            reply = encode_response_frame(HeartbeatResponse(), header.api_version, header.correlation_id)
            self.heartbeats.append((deferred, reply))
            return deferred
        if header.api_key == ApiKey.METADATA:
            return ()
        request, _ = FindCoordinatorRequest.decode(frame, header.api_version, header.body_position)
        response = FindCoordinatorResponse(host=request.key, error_message="x" * 30_000)
        return [encode_response_frame(response, header.api_version, header.correlation_id)]

    def _api_versions(self, version: int, correlation_id: int) -> bytes:
        if version > self.newest_api_versions:
            known = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=self.newest_api_versions)
            refusal = ApiVersionsResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[known] if self.names_its_versions else []
            )
            return encode_response_frame(refusal, 0, correlation_id)
        ranges = [
            ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=self.newest_api_versions),
            ApiVersion(api_key=ApiKey.FIND_COORDINATOR, min_version=0, max_version=3),
            ApiVersion(api_key=ApiKey.HEARTBEAT, min_version=0, max_version=99),
            ApiVersion(api_key=ApiKey.FETCH, min_version=90, max_version=99),
        ]
        return encode_response_frame(ApiVersionsResponse(api_keys=ranges), version, correlation_id)


@asynccontextmanager
async def connected(broker: TinyBroker, **options: int) -> AsyncIterator[tuple[Connection, Server]]:
    server = Server(broker, limits=ConnectionLimits())
    port = server.listen("PLAINTEXT", "127.0.0.1", 0)
    connection = await Connection.connect("127.0.0.1", port, client_id="me", **options)
    try:
        yield connection, server
    finally:
        connection.close()
        server.close()


@pytest.fixture
def run(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> RunAsync:
    def run_in_loop(coroutine: Coroutine[object, object, None]) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(in_time(coroutine))

    return run_in_loop


def ask_for(connection: Connection, key: str) -> Awaitable[FindCoordinatorResponse]:
    return connection.request(FindCoordinatorRequest(key=key), FindCoordinatorResponse)


def test_many_requests_at_once_get_their_own_replies(run: RunAsync) -> None:
    async def scenario() -> None:
        async with connected(TinyBroker()) as (connection, _):
            await connection.negotiate()
            responses = await asyncio.gather(*(ask_for(connection, f"group-{n}") for n in range(200)))
            assert [response.host for response in responses] == [f"group-{n}" for n in range(200)]
            assert connection.in_flight == 0

    run(scenario())


def test_the_newest_version_of_both_sides_is_used(run: RunAsync) -> None:
    async def scenario() -> None:
        async with connected(TinyBroker()) as (connection, _):
            with pytest.raises(RuntimeError, match="negotiate"):
                connection.version_for(HeartbeatRequest)
            await connection.negotiate()
            assert connection.version_for(FindCoordinatorRequest) == 3
            assert connection.version_for(HeartbeatRequest) == HeartbeatRequest.VERSIONS[-1]
            with pytest.raises(KafkaError, match="speaks versions 90 to 99 of Fetch, and we speak"):
                connection.version_for(FetchRequest)
            with pytest.raises(KafkaError, match="speaks no version of Metadata") as raised:
                connection.version_for(MetadataRequest)
            assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION

    run(scenario())


@pytest.mark.parametrize(("names_its_versions", "asked"), [(True, [3, 2]), (False, [3, 0])])
def test_an_older_broker_is_asked_again_in_its_version(
    run: RunAsync, names_its_versions: bool, asked: list[int]
) -> None:
    async def scenario() -> None:
        broker = TinyBroker(newest_api_versions=2, names_its_versions=names_its_versions)
        async with connected(broker) as (connection, _):
            await connection.negotiate()
            assert [read_request_header(frame).api_version for frame in broker.frames] == asked
            assert connection.version_for(FindCoordinatorRequest) == 3

    run(scenario())


def test_a_refusal_in_mixed_versions_is_understood(run: RunAsync) -> None:
    class Mixed(TinyBroker):
        def _api_versions(self, version: int, correlation_id: int) -> bytes:
            if version < 3:
                return super()._api_versions(version, correlation_id)
            # As seen from librdkafka's mock cluster: a compact count in front of entries of version 0.
            body = struct.pack(">ihBhhhi", correlation_id, ErrorCode.UNSUPPORTED_VERSION, 1, 18, 0, 2, 0)
            return struct.pack(">i", len(body)) + body

    async def scenario() -> None:
        async with connected(Mixed()) as (connection, _):
            await connection.negotiate()
            assert connection.version_for(FindCoordinatorRequest) == 3

    run(scenario())


def test_requests_carry_the_client_id(run: RunAsync) -> None:
    async def scenario() -> None:
        broker = TinyBroker()
        async with connected(broker) as (connection, _):
            await connection.negotiate()
            assert read_request_header(broker.frames[0]).client_id == "me"

    run(scenario())


def test_a_late_reply_does_not_hold_up_sending(run: RunAsync) -> None:
    async def scenario() -> None:
        broker = TinyBroker()
        async with connected(broker) as (connection, _):
            await connection.negotiate()
            late = asyncio.create_task(connection.request(HeartbeatRequest(), HeartbeatResponse))
            behind = asyncio.ensure_future(ask_for(connection, "behind"))
            while not broker.heartbeats:
                await asyncio.sleep(0)
            assert connection.in_flight == 2
            deferred, reply = broker.heartbeats.pop()
            deferred.complete([reply])
            assert (await late).error_code == 0
            assert (await behind).host == "behind"

    run(scenario())


def test_a_cancelled_request_leaves_the_others_alone(run: RunAsync) -> None:
    async def scenario() -> None:
        broker = TinyBroker()
        async with connected(broker) as (connection, _):
            await connection.negotiate()
            cancelled = asyncio.create_task(connection.request(HeartbeatRequest(), HeartbeatResponse))
            while not broker.heartbeats:
                await asyncio.sleep(0)
            cancelled.cancel()
            deferred, reply = broker.heartbeats.pop()
            deferred.complete([reply])
            assert (await ask_for(connection, "next")).host == "next"

    run(scenario())


def test_a_request_without_reply(run: RunAsync) -> None:
    async def scenario() -> None:
        async with connected(TinyBroker()) as (connection, _):
            await connection.negotiate()
            await connection.send(MetadataRequest(), version=0)
            assert (await ask_for(connection, "next")).host == "next"

    run(scenario())


@pytest.mark.parametrize("size", [1000, 100_000, 20_000_000])
def test_requests_in_parts_arrive_whole_and_in_order(run: RunAsync, size: int) -> None:
    """The largest ones do not fit the buffers of sockets, so that small ones have to wait behind them."""
    parts: list[bytes | memoryview] = [b"<", memoryview(os.urandom(size)), b">"]

    async def scenario() -> None:
        received = bytearray()
        wanted = 0
        complete = asyncio.Event()

        async def take(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            await asyncio.sleep(0.05)
            while len(received) < wanted:
                received.extend(await reader.read(1 << 20))
            complete.set()

        async with await asyncio.start_server(take, "127.0.0.1", 0) as server:
            connection = await Connection.connect(*server.sockets[0].getsockname())
            frames: list[Frame] = [[b"a", *parts], b"small", [b"b", *parts], [b"c", b"tiny"]]
            expected = b"".join(frame if isinstance(frame, bytes) else b"".join(frame) for frame in frames)
            wanted = len(expected)
            exchanges = [
                asyncio.ensure_future(connection.exchange(lambda _, frame=frame: frame))  # type: ignore[misc]
                for frame in frames
            ]
            await complete.wait()
            assert received == expected
            connection.close()
            for outcome in await asyncio.gather(*exchanges, return_exceptions=True):
                assert isinstance(outcome, KafkaError)

    run(scenario())


def test_all_pending_requests_fail_when_the_peer_closes(run: RunAsync) -> None:
    async def scenario() -> None:
        broker = TinyBroker()
        async with connected(broker) as (connection, server):
            await connection.negotiate()
            pending = [asyncio.create_task(connection.request(HeartbeatRequest(), HeartbeatResponse)) for _ in range(3)]
            while len(broker.heartbeats) < 3:
                await asyncio.sleep(0)
            server.close()
            errors = await asyncio.gather(*pending, return_exceptions=True)
            assert len({id(error) for error in errors}) == 3
            for error in errors:
                assert isinstance(error, KafkaError)
                assert error.code is ErrorCode.NETWORK_EXCEPTION
                assert f"127.0.0.1:{connection.port}: the peer closed it" in str(error)
            with pytest.raises(KafkaError, match="the peer closed it"):
                await ask_for(connection, "too late")

    run(scenario())


def test_closing_on_this_side_fails_what_is_pending(run: RunAsync) -> None:
    async def scenario() -> None:
        broker = TinyBroker()
        async with connected(broker) as (connection, _):
            await connection.negotiate()
            pending = asyncio.create_task(connection.request(HeartbeatRequest(), HeartbeatResponse))
            while not broker.heartbeats:
                await asyncio.sleep(0)
            connection.close()
            with pytest.raises(KafkaError, match="closed on this side"):
                await pending
            assert "closed on this side" in str(await connection.wait_closed())

    run(scenario())


def test_a_request_that_is_not_answered_in_time_ends_the_connection(run: RunAsync) -> None:
    async def scenario() -> None:
        async with connected(TinyBroker()) as (connection, _):
            await connection.negotiate()
            behind = asyncio.create_task(connection.request(HeartbeatRequest(), HeartbeatResponse))
            with pytest.raises(KafkaError, match="no answer to HEARTBEAT within 1 ms") as raised:
                await connection.request(HeartbeatRequest(), HeartbeatResponse, timeout_ms=1)
            assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
            assert connection.is_closed
            with pytest.raises(KafkaError, match="not answered in time"):
                await behind

    run(scenario())


def test_a_cancelled_request_that_is_not_answered_in_time_ends_the_connection(run: RunAsync) -> None:
    async def scenario() -> None:
        broker = TinyBroker()
        async with connected(broker) as (connection, _):
            await connection.negotiate()
            cancelled = asyncio.create_task(connection.request(HeartbeatRequest(), HeartbeatResponse, timeout_ms=50))
            while not broker.heartbeats:
                await asyncio.sleep(0)
            cancelled.cancel()
            behind = asyncio.create_task(connection.request(HeartbeatRequest(), HeartbeatResponse))
            with pytest.raises(KafkaError, match="not answered in time"):
                await behind

    run(scenario())


def test_a_request_is_begun_now_and_awaited_later(run: RunAsync) -> None:
    async def scenario() -> None:
        async with connected(TinyBroker()) as (connection, _):
            await connection.negotiate()
            assert connection.is_writable
            told: asyncio.Future[memoryview | OttlaError] = asyncio.get_running_loop().create_future()
            connection.begin(
                lambda number: encode_request_frame(FindCoordinatorRequest(key="k"), 2, number, None),
                told.set_result,
                api_key=ApiKey.FIND_COORDINATOR,
            )
            assert connection.in_flight == 1
            reply = await told
            assert isinstance(reply, memoryview)
            _, position = read_response_header(reply, ApiKey.FIND_COORDINATOR, 2)
            assert FindCoordinatorResponse.decode(reply, 2, position)[0].host == "k"
            connection.close()
            assert not connection.is_writable

    run(scenario())


def test_a_request_that_was_begun_and_is_not_answered_in_time_ends_the_connection(run: RunAsync) -> None:
    async def scenario() -> None:
        async with connected(TinyBroker()) as (connection, _):
            await connection.negotiate()

            def heartbeat(number: int) -> bytes:
                return encode_request_frame(HeartbeatRequest(), 3, number, None)

            told: list[tuple[str, object, bool]] = []
            ended = asyncio.Event()

            def take(name: str, reply: object) -> None:
                told.append((name, reply, connection.is_closed))
                if len(told) == 2:
                    ended.set()

            connection.begin(heartbeat, partial(take, "late"), api_key=ApiKey.HEARTBEAT, timeout_ms=1)
            connection.begin(heartbeat, partial(take, "behind"), api_key=ApiKey.HEARTBEAT)
            await ended.wait()
            # In their order, and when nobody could write to the connection any more.
            assert [(name, was_closed) for name, _, was_closed in told] == [("late", True), ("behind", True)]
            late, behind = told[0][1], told[1][1]
            assert isinstance(late, KafkaError) and late.code is ErrorCode.REQUEST_TIMED_OUT
            assert "no answer to HEARTBEAT within 1 ms" in str(late)
            assert isinstance(behind, KafkaError) and "not answered in time" in str(behind)

    run(scenario())


@pytest.mark.parametrize(
    "timeouts_ms", [(1500, 1520), (600_000, 1500)], ids=["after one that was answered", "shorter than one before"]
)
def test_every_request_that_was_begun_has_its_own_time(run: RunAsync, timeouts_ms: tuple[int, int]) -> None:
    """One timer watches over all of them, whichever is due first."""

    async def scenario() -> None:
        async with connected(TinyBroker()) as (connection, _):
            await connection.negotiate()
            answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            late: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            connection.begin(
                lambda number: encode_request_frame(FindCoordinatorRequest(key="k"), 2, number, None),
                answered.set_result,
                api_key=ApiKey.FIND_COORDINATOR,
                timeout_ms=timeouts_ms[0],
            )
            connection.begin(
                lambda number: encode_request_frame(HeartbeatRequest(), 3, number, None),
                late.set_result,
                api_key=ApiKey.HEARTBEAT,
                timeout_ms=timeouts_ms[1],
            )
            assert isinstance(await answered, memoryview)
            assert f"no answer to HEARTBEAT within {timeouts_ms[1]} ms" in str(await late)
            assert connection.is_closed

    run(scenario())


def test_a_reply_is_told_where_it_comes_in(run: RunAsync) -> None:
    """Not in a later round of the loop, so that the next request can be on its way by then."""

    async def scenario() -> None:
        async with connected(TinyBroker()) as (connection, _):
            await connection.negotiate()
            done = asyncio.Event()
            hosts: list[str] = []

            def ask(key: str) -> None:
                connection.request_then(FindCoordinatorRequest(key=key), FindCoordinatorResponse, take, version=2)

            def take(answer: FindCoordinatorResponse | OttlaError) -> None:
                assert isinstance(answer, FindCoordinatorResponse)
                assert connection.in_flight == 0
                hosts.append(answer.host)
                if len(hosts) < 20:
                    ask(f"group-{len(hosts)}")
                else:
                    done.set()

            ask("group-0")
            await done.wait()
            assert hosts == [f"group-{number}" for number in range(20)]

    run(scenario())


@pytest.mark.parametrize("timeout_ms", [1, 60_000])
def test_who_is_told_of_replies_is_told_that_there_is_none(run: RunAsync, timeout_ms: int) -> None:
    async def scenario() -> None:
        async with connected(TinyBroker()) as (connection, server):
            await connection.negotiate()
            told: asyncio.Future[HeartbeatResponse | OttlaError] = asyncio.get_running_loop().create_future()
            connection.request_then(
                HeartbeatRequest(), HeartbeatResponse, told.set_result, version=3, timeout_ms=timeout_ms
            )
            if timeout_ms > 1:
                server.close()
            answer = await told
            assert isinstance(answer, KafkaError)
            assert answer.code is (ErrorCode.REQUEST_TIMED_OUT if timeout_ms == 1 else ErrorCode.NETWORK_EXCEPTION)

    run(scenario())


def test_a_reply_that_makes_no_sense_is_told(run: RunAsync) -> None:
    async def scenario() -> None:
        async with connected(TinyBroker()) as (connection, _):
            await connection.negotiate()
            told: asyncio.Future[MetadataResponse | OttlaError] = asyncio.get_running_loop().create_future()
            # Not what that request is answered with.
            connection.request_then(FindCoordinatorRequest(key="k"), MetadataResponse, told.set_result, version=2)
            assert isinstance(await told, DecodeError)
            assert not connection.is_closed

    run(scenario())


def test_replies_are_taken_in_without_the_loop() -> None:
    """As the consumer for threads does. Its loop is one of asyncio's own."""
    told: list[object] = []

    async def begin(port: int) -> Connection:
        connection = await Connection.connect("127.0.0.1", port)
        for number in range(3):
            connection.request_then(
                FindCoordinatorRequest(key=f"k{number}"),
                FindCoordinatorResponse,
                lambda answer: told.append(answer.host if isinstance(answer, FindCoordinatorResponse) else answer),
                version=2,
            )
        return connection

    with serving(TinyBroker()) as port, asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        connection = runner.run(begin(port))
        deadline_s = time.monotonic() + 30
        while len(told) < 3 and time.monotonic() < deadline_s:
            known = len(told)
            has_received = connection.receive_now()
            assert has_received or len(told) == known
        assert told == ["k0", "k1", "k2"]
        assert not connection.receive_now()
        runner.run(close(connection))


def test_who_takes_in_replies_hears_whether_anything_has_come() -> None:
    loops: list[asyncio.AbstractEventLoop] = []
    told: list[object] = []

    class Broker(TinyBroker):
        def opened(self, connection: ClientConnection) -> None:
            loops.append(asyncio.get_running_loop())

    async def begin(port: int) -> Connection:
        connection = await Connection.connect("127.0.0.1", port)
        connection.request_then(HeartbeatRequest(), HeartbeatResponse, told.append, version=4)
        return connection

    broker = Broker()
    with serving(broker) as port, asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        connection = runner.run(begin(port))
        assert not connection.receive_now()
        deadline_s = time.monotonic() + 30
        while not broker.heartbeats and time.monotonic() < deadline_s:
            time.sleep(0.001)
        ((deferred, reply),) = broker.heartbeats
        assert not connection.receive_now()
        assert connection.awaited_socket is not None
        loops[0].call_soon_threadsafe(deferred.complete, [reply])
        waiting = selectors.DefaultSelector()
        waiting.register(connection.awaited_socket, selectors.EVENT_READ)
        assert waiting.select(30)
        waiting.close()
        assert connection.receive_now()
        assert told == [HeartbeatResponse()]
        assert connection.awaited_socket is None
        assert not connection.receive_now()
        runner.run(close(connection))
        assert not connection.receive_now()


async def close(connection: Connection) -> None:
    connection.close()


@contextmanager
def serving(broker: TinyBroker) -> Iterator[int]:
    """In a thread of its own."""
    ports: queue.Queue[int] = queue.Queue()
    ended = threading.Event()

    async def serve() -> None:
        server = Server(broker, limits=ConnectionLimits())
        ports.put(server.listen("PLAINTEXT", "127.0.0.1", 0))
        while not ended.is_set():
            await asyncio.sleep(0.001)
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        yield ports.get(timeout=30)
    finally:
        ended.set()
        join(thread)


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        (struct.pack(">ii", 4, 77), "carries the correlation id 77"),
        (struct.pack(">ih", 2, 0), "carries the correlation id"),
        (b"HTTP/1.1 400 Bad Request", "HTTP response"),
        (struct.pack(">i", -5), "cannot have -5 bytes"),
    ],
)
def test_a_peer_that_answers_nonsense(run: RunAsync, reply: bytes, complaint: str) -> None:
    async def scenario() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(4)
            writer.write(reply)
            await reader.read()
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            connection = await Connection.connect("127.0.0.1", port)
            with pytest.raises(KafkaError, match=complaint) as raised:
                await connection.negotiate()
            assert raised.value.code is ErrorCode.NETWORK_EXCEPTION

    run(scenario())


def test_large_replies_are_not_overwritten_by_later_ones(run: RunAsync) -> None:
    async def scenario() -> None:
        contents = [os.urandom(300_000), os.urandom(20), os.urandom(1_000_000), os.urandom(70_000)]
        remaining = iter(contents)

        class Blobs(TinyBroker):
            def handle(self, connection: ClientConnection, frame: memoryview) -> Outcome:
                body = next(remaining)
                return [struct.pack(">i", 4 + len(body)), bytes(frame[:4]), body]

        async with connected(Blobs()) as (connection, _):
            replies = await asyncio.gather(
                *(connection.exchange(lambda number: struct.pack(">ii", 4, number)) for _ in contents)
            )
            assert [bytes(reply[4:]) for reply in replies] == contents

    run(scenario())


def test_connecting_to_nobody_is_said_clearly(run: RunAsync) -> None:
    async def scenario() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
            with pytest.raises(KafkaError, match=rf"127\.0\.0\.1:{port}: nothing listens there"):
                await Connection.connect("127.0.0.1", port)
        with pytest.raises(KafkaError, match=r"no-such-host\.invalid:9092: the host name is not known"):
            await Connection.connect("no-such-host.invalid", 9092)
        for host in ("a..b", "a" * 300):
            with pytest.raises(KafkaError, match=f"{host}:9092: the host name is not known"):
                await Connection.connect(host, 9092)

    run(scenario())


def test_a_name_with_several_addresses_that_all_refuse_is_said_as_clearly() -> None:
    """asyncio has made one error of what each of them said."""

    async def scenario() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
            addresses = [
                (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))
                for host in ("127.0.0.1", "127.0.0.2")
            ]
            loop = asyncio.get_running_loop()
            with (
                patch.object(type(loop), "getaddrinfo", AsyncMock(return_value=addresses)),
                pytest.raises(KafkaError, match=rf"two:{port}: nothing listens there \(connection refused\)$"),
            ):
                await Connection.connect("two", port)

    run_async(scenario())


def test_connecting_takes_no_longer_than_allowed(run: RunAsync) -> None:
    async def scenario() -> None:
        with socket.socket() as full:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            address = full.getsockname()
            filling = [socket.socket() for _ in range(8)]
            for sock in filling:
                sock.setblocking(False)
                sock.connect_ex(address)
            with pytest.raises(KafkaError, match="no answer within 50 ms"):
                await Connection.connect(*address, connect_timeout_ms=50)
            for sock in filling:
                sock.close()

    run(scenario())


def test_an_idle_connection_closes_itself_and_one_that_waits_does_not(run: RunAsync) -> None:
    async def check() -> None:
        broker = TinyBroker()
        async with connected(broker, idle_ms=50) as (connection, _):
            await connection.negotiate()
            waiting = asyncio.ensure_future(connection.request(HeartbeatRequest(), HeartbeatResponse))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(connection.wait_closed(), 0.2)
            deferred, reply = broker.heartbeats[0]
            deferred.complete([reply])
            await waiting
            reason = await asyncio.wait_for(connection.wait_closed(), 10)
            assert "idle" in reason.message

    run(check())


def test_without_any_time_to_be_idle_it_ends_at_once(run: RunAsync) -> None:
    async def check() -> None:
        async with connected(TinyBroker(), idle_ms=0) as (connection, _):
            assert "idle" in (await asyncio.wait_for(connection.wait_closed(), PATIENCE_S)).message

    run(check())


def test_the_systems_buffers_can_be_chosen(run: RunAsync) -> None:
    async def check() -> None:
        async with connected(TinyBroker(), send_buffer_bytes=20_000, receive_buffer_bytes=30_000) as (connection, _):
            assert connection._direct is not None
            # Linux keeps twice as much, for its own notes.
            for option, size in ((socket.SO_SNDBUF, 20_000), (socket.SO_RCVBUF, 30_000)):
                assert size <= connection._direct.getsockopt(socket.SOL_SOCKET, option) <= 2 * size

    run(check())


@pytest.mark.parametrize("who", ["this side", "the peer"])
def test_a_connection_that_has_ended_is_not_kept_by_its_timers(run: RunAsync, who: str) -> None:
    async def end_with_a_request_on_its_way() -> weakref.ref[Connection]:
        async with connected(broker := TinyBroker(), idle_ms=3_600_000) as (connection, server):
            await connection.negotiate()
            told: list[object] = []
            connection.request_then(HeartbeatRequest(), HeartbeatResponse, told.append, version=4, timeout_ms=3_600_000)
            while not broker.heartbeats:
                await asyncio.sleep(0.001)
            (connection if who == "this side" else server).close()
            await connection.wait_closed()
            assert [type(reply) for reply in told] == [KafkaError]
            return weakref.ref(connection)

    async def scenario() -> None:
        ended = await end_with_a_request_on_its_way()
        for _ in range(3):
            await asyncio.sleep(0)
        gc.collect()
        assert ended() is None

    run(scenario())


def test_correlation_ids_count_up_and_begin_anew_before_they_would_be_negative(run: RunAsync) -> None:
    async def scenario() -> None:
        broker = TinyBroker()
        async with connected(broker) as (connection, _):
            await connection.negotiate()
            for _ in range(2):
                await ask_for(connection, "group")
            connection._last_correlation_id = 2**31 - 2
            for _ in range(3):
                await ask_for(connection, "group")
            used = [read_request_header(frame).correlation_id for frame in broker.frames]
            first = used[0]
            assert used == [first, first + 1, first + 2, 2**31 - 1, 0, 1]

    run(scenario())
