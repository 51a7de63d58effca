"""A refusal is a reply: for every API and every resource it names, the right error in the right place, and no more."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.access import NEEDS
from ottla.broker.admission import AccessRules
from ottla.broker.handlers import BETWEEN_BROKERS, all_handlers
from ottla.broker.table_authorizer import TableAuthorizer
from ottla.metadata.served.server import StoreServer
from ottla.testing import EmbeddedBroker
from ottla.wire.api_keys import ApiKey
from tests.access.messages import refusals_in, request_of
from tests.access.refusals import CASES, Case, Denied, World
from tests.access.world import EVERYTHING, PATIENCE_S, denial, failure, prepared, refused_client
from tests.raw_client import ConnectionClosedError, RawClient


@dataclass
class Guarded:
    world: World
    authorizer: TableAuthorizer

    def deny(self, denied: Sequence[Denied]) -> None:
        self.authorizer.replace([*EVERYTHING, *map(denial, denied)])


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """The only broker of a cluster that could have others: it serves what brokers send to each other as well."""
    authorizer = TableAuthorizer(EVERYTHING)
    cluster = tmp_path_factory.mktemp("cluster")
    settings = {"broker.id": 1, "ottla.cluster.dir": str(cluster)}
    with served_store(cluster), EmbeddedBroker(config=settings, access=AccessRules(authorizer)) as broker:
        yield Guarded(prepared(broker.port, 1), authorizer)


@contextmanager
def served_store(directory: Path) -> Iterator[None]:
    """A metadata store with a thread and an event loop of its own."""
    with asyncio.Runner() as runner, ThreadPoolExecutor(max_workers=1) as thread:
        is_over = asyncio.Event()
        is_served = threading.Event()

        async def serve() -> None:
            server = await StoreServer.start(directory)
            is_served.set()
            await is_over.wait()
            await server.close()

        loop = runner.get_loop()
        served = thread.submit(loop.run_until_complete, serve())
        assert is_served.wait(PATIENCE_S)
        yield
        loop.call_soon_threadsafe(is_over.set)
        served.result(PATIENCE_S)


def test_a_broker_without_others_serves_nothing_that_brokers_send() -> None:
    with EmbeddedBroker() as broker, RawClient(broker.port) as client:
        reply: Any = client.call(request_of(ApiKey.API_VERSIONS), 0)
        assert not {entry.api_key for entry in reply.api_keys} & BETWEEN_BROKERS
        with pytest.raises(ConnectionClosedError):
            client.call(request_of(ApiKey.STOP_REPLICA), 4)


def test_the_table_of_needs_has_every_api() -> None:
    assert set(NEEDS) == {ApiKey(key) for key in all_handlers()}


def test_every_need_is_refused_in_some_case() -> None:
    refused = {(case.api, operation, kind) for case in CASES for operation, kind, _ in case.denied}
    needed = {(api, need.operation, need.resource_type) for api, needs in NEEDS.items() for need in needs}
    assert refused == needed


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_a_refusal_is_a_reply(guarded: Guarded, case: Case) -> None:
    guarded.deny(case.denied)
    with refused_client(guarded.world) as client:
        problems = "".join(failure(case, guarded.world, client, version) for version in case.versions)
    assert not problems, problems


@pytest.mark.parametrize("case", [case for case in CASES if case.each_is_enough], ids=lambda case: case.title)
def test_where_one_permission_is_enough_the_other_is_not_needed(guarded: Guarded, case: Case) -> None:
    version = max(case.versions)
    for denied in case.denied:
        guarded.deny([denied])
        with refused_client(guarded.world) as client:
            response = client.call(case.request(guarded.world, version), version)
            assert refusals_in(response, guarded.world.names_of_ids) == {}, denied
