"""Replies that are taken in by the thread that waits for them, without its event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ottla.client.aio.cluster_link import ClusterLink
from ottla.client.core.consumer.options import ConsumerSettings
from ottla.client.core.metadata import MetadataCache
from ottla.net.connection import Connection
from ottla.wire.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.apis.metadata import MetadataRequest

from .scripted_broker import ScriptedBroker

PATIENCE_S = 30.0


@contextmanager
def broker_in_a_thread(may_answer: threading.Event) -> Iterator[str]:
    """Says where coordinators are as soon as it may."""
    loop = asyncio.SelectorEventLoop()

    async def found(_: FindCoordinatorRequest) -> FindCoordinatorResponse:
        await asyncio.to_thread(may_answer.wait, PATIENCE_S)
        return FindCoordinatorResponse(node_id=1)

    async def start() -> str:
        await broker.__aenter__()
        broker.on(MetadataRequest, lambda _: broker.metadata())
        broker.on(FindCoordinatorRequest, found)
        return broker.address

    broker = ScriptedBroker()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(start(), loop).result(PATIENCE_S)
        asyncio.run_coroutine_threadsafe(broker.__aexit__(), loop).result(PATIENCE_S)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_S)
        loop.close()


def test_a_reply_is_waited_for_while_the_loop_does_not_run() -> None:
    may_answer = threading.Event()
    told: list[object] = []

    async def begin() -> tuple[ClusterLink, Connection]:
        settings = ConsumerSettings.parse({"bootstrap.servers": address}).client
        metadata = MetadataCache(max_age_ms=60_000, max_idle_ms=60_000, backoff_ms=100, backoff_max_ms=1000)
        link = ClusterLink(settings, metadata, default_client_id="test")
        await link.refresh_metadata([], 0)
        connection = await link.connection_to(1)
        connection.request_then(FindCoordinatorRequest(key="k"), FindCoordinatorResponse, told.append, version=2)
        return link, connection

    async def end() -> None:
        link.close()

    with (
        broker_in_a_thread(may_answer) as address,
        asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner,
    ):
        link, connection = runner.run(begin())
        assert not link.receive_now(0)
        assert not link.receive_now(0.01)
        answers = threading.Timer(0.05, may_answer.set)
        answers.start()
        assert link.receive_now(PATIENCE_S)
        assert [answer.node_id for answer in told if isinstance(answer, FindCoordinatorResponse)] == [1]
        # Nothing is under way any more that could be waited for.
        assert connection.awaited_socket is None
        assert not link.receive_now(PATIENCE_S)
        answers.join()
        runner.run(end())
