"""Where another broker is found, what the controller is told of a failed directory, and when clients are answered."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.clock import ManualClock
from ottla.base.errors import StartError
from ottla.base.types import Endpoint
from ottla.broker import startup
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.startup import Surroundings, _address_of, _tell_of_failed_directory, direct_route, start_broker
from ottla.machines.cluster.image import BrokerImage, ClusterImage
from ottla.metadata import paths
from ottla.metadata.embedded import EmbeddedStore
from ottla.metadata.store import Create, NodeExistsError, StoreFailedError
from tests.log_lines import messages_of
from tests.waiting import run_async

IN, OUT, OLD = Endpoint("IN", "h", 91), Endpoint("OUT", "h", 92), Endpoint("IN", "old", 93)


@pytest.mark.parametrize(
    ("told", "stored", "found"),
    [
        (None, None, None),
        ((IN, OUT), None, IN),
        ((OUT,), None, None),
        (None, (OUT, IN), IN),
        (None, (OUT,), None),
        ((IN,), (OLD,), IN),
        ((OUT,), (OLD,), OLD),
    ],
)
def test_a_broker_is_found_where_brokers_talk_as_it_was_told_or_else_as_it_is_stored(
    told: tuple[Endpoint, ...] | None, stored: tuple[Endpoint, ...] | None, found: Endpoint | None
) -> None:
    image = ClusterImage("c")
    if told is not None:
        image.set_brokers(1, 1, [BrokerImage(2, told, None)])
    live = {} if stored is None else {2: SimpleNamespace(endpoints=[(each, "PLAINTEXT") for each in stored])}
    controller: Any = SimpleNamespace(state=SimpleNamespace(brokers=live))
    assert _address_of(2, "IN", image, controller) == found
    assert _address_of(3, "IN", image, controller) is None
    assert direct_route(2, IN) is IN


def test_a_failed_directory_is_told_by_a_node_of_its_own(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await EmbeddedStore.open(tmp_path / "store")
        await store.commit([Create(paths.LOG_DIR_EVENTS)])
        for broker_id in (7, 8):
            await _tell_of_failed_directory(store, broker_id)
        nodes = await store.tree(paths.LOG_DIR_EVENTS)
        told = {path: paths.decode_log_dir_event(node.data) for path, node in nodes.items() if node.data}
        assert told == {f"{paths.LOG_DIR_EVENTS}/log_dir_event_{n:010}": 7 + n for n in (0, 1)}
        await store.close()

    run_async(scenario())


@pytest.mark.parametrize("error", [StoreFailedError("nobody there"), NodeExistsError("/x")])
def test_who_cannot_tell_it_says_so(caplog: pytest.LogCaptureFixture, error: Exception) -> None:
    async def commit(operations: object) -> None:
        raise error

    store: Any = SimpleNamespace(commit=commit)
    run_async(_tell_of_failed_directory(store, 7))
    assert messages_of(caplog, "ottla.broker.startup") == [
        f"the controller cannot be told of a failed directory: {error}"
    ]


def test_a_store_that_refuses_stops_the_start_and_nothing_is_left(tmp_path: Path) -> None:
    async def refuses(config: BrokerConfig) -> Any:
        raise NodeExistsError("/x")

    config = BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "data")})
    for _ in range(2):
        with pytest.raises(StartError, match=r"the metadata store refuses .*the node exists already"):
            run_async(start_broker(config, Surroundings(open_store=refuses)))


@pytest.mark.parametrize(("controller_comes_after", "looks"), [(0, 0), (3, 3), (None, 1000)])
def test_clients_are_answered_after_the_controllers_first_word_or_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, controller_comes_after: int | None, looks: int
) -> None:
    clock, image = ManualClock(), ClusterImage("c")
    slept: list[float] = []
    image.controller_id = 0 if controller_comes_after == 0 else -1
    introduced = asyncio.Event()

    async def sleep(seconds: float) -> None:
        assert not introduced.is_set()
        slept.append(seconds)
        clock.advance(10)
        if len(slept) == controller_comes_after:
            image.controller_id = 0

    monkeypatch.setattr(startup, "asyncio", SimpleNamespace(sleep=sleep))
    broker: Any = SimpleNamespace(clock=clock, image=image, introduced=introduced)
    run_async(startup._until_told(broker))
    assert (introduced.is_set(), len(slept)) == (True, looks)
