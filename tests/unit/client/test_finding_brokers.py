"""Which broker a client asks when any will do, how long it tries, and what it says when none answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NoReturn

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.client.aio import cluster_link
from ottla.client.aio.cluster_link import GROUP, TRANSACTION, ClusterLink
from ottla.client.core.consumer.options import ConsumerSettings
from ottla.client.core.metadata import MetadataCache
from ottla.client.errors import ClusterUnreachableError
from ottla.wire.apis import request_class
from ottla.wire.apis.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.apis.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.apis.metadata import MetadataRequest, MetadataResponse
from ottla.wire.message import Request
from tests.ports import free_port
from tests.waiting import run_async

from .scripted_broker import ScriptedBroker


@asynccontextmanager
async def linked(*servers: str, **settings: object) -> AsyncIterator[ClusterLink]:
    client = ConsumerSettings.parse(
        {"bootstrap.servers": ",".join(servers), "reconnect.backoff.ms": 1, **settings}
    ).client
    link = ClusterLink(client, MetadataCache(), default_client_id="test")
    try:
        yield link
    finally:
        link.close()


@asynccontextmanager
async def hanging_up(calls: list[int]) -> AsyncIterator[str]:
    """Somebody who picks up and says nothing: a port of something else, or a broker that goes down."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.append(1)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def test_who_fails_fast_tries_again_only_where_somebody_picks_up() -> None:
    async def scenario() -> None:
        calls: list[int] = []
        async with hanging_up(calls) as address, linked(address, **{"bootstrap.fail.fast": True}) as link:
            with pytest.raises(ClusterUnreachableError, match=f"cannot reach {address}: "):
                await link.find_cluster(0)
            assert len(calls) == cluster_link._TRIES_TO_FIND == 5
        nobody = f"127.0.0.1:{free_port()}"
        async with linked(nobody, **{"bootstrap.fail.fast": True}) as link:
            with pytest.raises(ClusterUnreachableError, match=f"cannot reach {nobody}: "):
                await link.find_cluster(0)
            assert [line.failures for line in link._lines.values()] == [1]

    run_async(scenario())


@pytest.mark.parametrize("silent", [ApiVersionsRequest, MetadataRequest])
def test_who_fails_fast_waits_for_a_silent_broker_once_and_not_for_long(silent: type[Request]) -> None:
    """As long as for one that does not pick up, not as long as for a request that takes its time."""

    async def never(_: object) -> NoReturn:
        await asyncio.Event().wait()
        raise AssertionError

    async def scenario() -> None:
        settings = {"bootstrap.fail.fast": True, "socket.connection.setup.timeout.ms": 50}
        async with ScriptedBroker() as broker, linked(broker.address, **settings) as link:
            broker.on(MetadataRequest, lambda _: broker.metadata())
            broker.on(silent, never)
            with pytest.raises(ClusterUnreachableError, match=f"cannot reach {broker.address}: no answer to .* 50 ms"):
                await link.find_cluster(0)
            assert len(broker.asked(silent)) == 1

    run_async(scenario())


def test_a_patient_client_starts_without_a_broker() -> None:
    async def scenario() -> None:
        async with linked(f"127.0.0.1:{free_port()}") as link:
            await link.find_cluster(0)
            assert link.metadata.brokers == {}
            with pytest.raises(KafkaError, match="broker 1 is not known") as refusal:
                await link.connection_to(1)
            assert refusal.value.code is ErrorCode.NETWORK_EXCEPTION
            assert link.ready_connection(1) is None

    run_async(scenario())


def test_every_address_is_tried_and_named() -> None:
    async def scenario() -> None:
        nobody = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        async with linked(*nobody) as link:
            with pytest.raises(ClusterUnreachableError) as failure:
                await link.refresh_metadata([], 0)
        for address in nobody:
            # Once as the address; the cause does not repeat it.
            assert failure.value.summary.count(address) == 1

    run_async(scenario())


def test_brokers_with_less_to_do_are_asked_first() -> None:
    async def scenario() -> None:
        may_answer = asyncio.Event()

        async def late(_: object) -> MetadataResponse:
            await may_answer.wait()
            return busy.metadata(idle)

        async with ScriptedBroker(1) as busy, ScriptedBroker(2) as idle, linked(busy.address) as link:
            for broker in (busy, idle):
                broker.on(MetadataRequest, lambda _: busy.metadata(idle))
            await link.refresh_metadata([], 0)
            assert link.in_flight() == {1: 0, 2: 0}
            assert link._candidates() == [("127.0.0.1", busy.port), ("127.0.0.1", idle.port)]
            busy.on(MetadataRequest, late)
            waiting = asyncio.create_task(link.refresh_metadata([], 0))
            while link.in_flight() == {1: 0, 2: 0}:
                await asyncio.sleep(0)
            assert link.in_flight() == {1: 1, 2: 0}
            assert link._candidates() == [("127.0.0.1", idle.port), ("127.0.0.1", busy.port)]
            asked = len(idle.asked(MetadataRequest))
            await link.refresh_metadata([], 0)
            assert len(idle.asked(MetadataRequest)) == asked + 1
            may_answer.set()
            await waiting

    run_async(scenario())


@pytest.mark.parametrize("fault", ["says nothing", "hangs up"])
def test_another_broker_is_asked_where_one_does_not_answer(fault: str) -> None:
    async def scenario() -> None:
        async def never(_: object) -> MetadataResponse:
            if fault == "hangs up":
                raise asyncio.IncompleteReadError(b"", 4)
            await asyncio.Event().wait()
            raise AssertionError

        async with (
            ScriptedBroker(1) as first,
            ScriptedBroker(2) as second,
            linked(first.address, second.address, **{"request.timeout.ms": 50}) as link,
        ):
            first.on(MetadataRequest, never)
            second.on(MetadataRequest, lambda _: second.metadata())
            await link.refresh_metadata([], 0)
            assert list(link.metadata.brokers) == [2]
            assert len(first.asked(MetadataRequest)) == 1
            second.on(MetadataRequest, never)
            with pytest.raises(ClusterUnreachableError) as failure:
                await link.refresh_metadata([], 0)
            assert all(broker.address in failure.value.summary for broker in (first, second))

    run_async(scenario())


def test_a_refusal_is_not_asked_for_elsewhere() -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker(1) as first,
            ScriptedBroker(2) as second,
            linked(first.address, second.address) as link,
        ):
            first.on(MetadataRequest, lambda _: MetadataResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
            second.on(MetadataRequest, lambda _: second.metadata())
            with pytest.raises(KafkaError) as refusal:
                await link.refresh_metadata([], 0)
            assert refusal.value.code in (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.NONE)
            assert second.requests == []

    run_async(scenario())


def test_pauses_grow_until_a_broker_is_there_again() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.on(MetadataRequest, lambda _: broker.metadata())
            async with linked(broker.address) as link:
                await link.refresh_metadata([], 0)
                (line,) = link._lines.values()
                assert (line.failures, link.ready_connection(1)) == (0, line.connection)
                assert line.connection is not None
                line.connection.close()
                assert link.ready_connection(1) is None
                line.failures = 3
                assert await link.connection_to(1) is line.connection
                assert line.failures == 0
        async with linked(f"127.0.0.1:{free_port()}") as link:
            loop = asyncio.get_running_loop()
            for tries in (1, 2, 3):
                with pytest.raises(ClusterUnreachableError):
                    await link.refresh_metadata([], 0)
                (line,) = link._lines.values()
                assert line.failures == tries
                assert line.not_before_s > loop.time() - 1

    run_async(scenario())


def test_a_closed_link_dials_nobody() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.on(MetadataRequest, lambda _: broker.metadata())
            async with linked(broker.address) as link:
                await link.refresh_metadata([], 0)
                connection = await link.connection_to(1)
                link.hang_up()
                assert connection.is_closed
                again = await link.connection_to(1)
                assert not again.is_closed
                link.close()
                assert again.is_closed
                with pytest.raises(KafkaError, match="the client is closed") as refusal:
                    await link.connection_to(1)
                assert refusal.value.code is ErrorCode.NETWORK_EXCEPTION

    run_async(scenario())


@pytest.mark.parametrize("newest", [3, 4])
@pytest.mark.parametrize("kind", [GROUP, TRANSACTION])
def test_a_coordinator_is_asked_for_in_the_form_the_broker_knows(newest: int, kind: int) -> None:
    """Several keys in one request came with version 4 (KIP-699)."""

    async def scenario() -> None:
        async with ScriptedBroker() as broker, linked(broker.address) as link:
            broker.on(MetadataRequest, lambda _: broker.metadata())
            found = Coordinator(key="g", node_id=1, host="127.0.0.1", port=broker.port)
            broker.on(
                FindCoordinatorRequest,
                lambda _: (
                    FindCoordinatorResponse(coordinators=[found]) if newest == 4 else FindCoordinatorResponse(node_id=1)
                ),
            )
            broker.on(ApiVersionsRequest, lambda _: speaking(newest))
            await link.refresh_metadata([], 0)
            assert await link.find_coordinator("g", kind) == 1
            (asked,) = broker.asked(FindCoordinatorRequest)
            assert asked.key_type == kind
            assert (asked.key, asked.coordinator_keys) == (("", ["g"]) if newest == 4 else ("g", []))

    run_async(scenario())


def speaking(newest: int) -> ApiVersionsResponse:
    spoken = [(key, request_class(key).VERSIONS) for key in (3, 18)]
    keys = [ApiVersion(api_key=key, min_version=each.start, max_version=each.stop - 1) for key, each in spoken]
    return ApiVersionsResponse(api_keys=[*keys, ApiVersion(api_key=10, min_version=0, max_version=newest)])


def test_a_coordinator_that_is_not_to_be_had() -> None:
    async def scenario() -> None:
        answer = Coordinator(key="g", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        async with ScriptedBroker() as broker, linked(broker.address) as link:
            broker.on(MetadataRequest, lambda _: broker.metadata())
            broker.on(FindCoordinatorRequest, lambda _: FindCoordinatorResponse(coordinators=[answer]))
            await link.refresh_metadata([], 0)
            with pytest.raises(KafkaError) as refusal:
                await link.find_coordinator("g", GROUP)
            assert refusal.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
            # A broker that is not known yet: metadata is asked for again before the next try.
            answer.error_code, answer.node_id = ErrorCode.NONE, 9
            refreshed_ms = link.metadata.next_refresh_ms()
            with pytest.raises(KafkaError) as refusal:
                await link.find_coordinator("g", GROUP)
            assert refusal.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert link.metadata.next_refresh_ms() < refreshed_ms

    run_async(scenario())
