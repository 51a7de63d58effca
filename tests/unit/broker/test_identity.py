"""Which cluster a broker belongs to and which number it has: settings, directories and store have to agree."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import StartError
from ottla.base.ids import Ids
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.identity import choose_broker_id, ensure_cluster
from ottla.metadata import paths
from ottla.metadata.embedded import EmbeddedStore
from ottla.metadata.store import Create, Operation
from tests.waiting import run_async

ALONE = BrokerConfig({})
ON_ZOOKEEPER = BrokerConfig({"zookeeper.connect": "zk:2181/kafka"})
NODES = [
    *("/consumers", "/brokers/ids", "/brokers/topics", "/config/changes", "/admin/delete_topics", "/brokers/seqid"),
    *("/isr_change_notification", "/latest_producer_id_block", "/log_dir_event_notification", "/config/topics"),
]


class Store:
    """The embedded one, and another broker that makes each node a moment before this one does."""

    def __init__(self, store: EmbeddedStore) -> None:
        self.get = store.get
        self._store = store
        self.rival: bytes | None = None
        """What the rival writes as the cluster's id."""

    async def commit(self, operations: Sequence[Operation]) -> Any:
        (node,) = operations
        if self.rival is not None and isinstance(node, Create):
            data = self.rival if node.path == paths.CLUSTER_ID else node.data
            await self._store.commit([Create(node.path, data)])
        return await self._store.commit(operations)


def directories(cluster_id: str | None = None, broker_id: int | None = None) -> Any:
    return SimpleNamespace(stored_cluster_id=lambda: cluster_id, stored_broker_id=lambda: broker_id)


def with_store(tmp_path: Path, scenario: Callable[[Any], Awaitable[None]]) -> None:
    async def run() -> None:
        embedded = await EmbeddedStore.open(tmp_path / "store")
        try:
            await scenario(Store(embedded))
        finally:
            await embedded.close()

    run_async(run())


def test_the_first_broker_makes_the_cluster_and_the_others_find_it(tmp_path: Path) -> None:
    async def scenario(store: Any) -> None:
        made = await ensure_cluster(store, directories(), ALONE, Ids())
        assert len(made) == 22
        nodes = {path: await store.get(path) for path in [*NODES, "/feature", "/cluster/id"]}
        assert [path for path, node in nodes.items() if node is None] == []
        assert paths.decode_cluster_id(nodes["/cluster/id"].data) == made
        for config in (ALONE, ON_ZOOKEEPER):
            assert await ensure_cluster(store, directories("another"), config, Ids()) == made, "the store is right"
        assert {path: await store.get(path) for path in nodes} == nodes, "what is there stays"

    with_store(tmp_path, scenario)


def test_a_cluster_is_made_again_from_what_its_directories_say(tmp_path: Path) -> None:
    async def scenario(store: Any) -> None:
        assert await ensure_cluster(store, directories("mine"), ALONE, Ids()) == "mine"

    with_store(tmp_path, scenario)


@pytest.mark.parametrize("stored", [None, "mine"])
def test_nobody_makes_a_second_cluster_because_the_path_in_zookeeper_is_wrong(
    tmp_path: Path, stored: str | None
) -> None:
    async def scenario(store: Any) -> None:
        if stored is None:
            assert await ensure_cluster(store, directories(), ON_ZOOKEEPER, Ids())
            return
        with pytest.raises(
            StartError, match=r"of cluster mine, but there is no cluster at zookeeper\.connect=zk:2181/kafka; correct"
        ):
            await ensure_cluster(store, directories(stored), ON_ZOOKEEPER, Ids())
        assert await store.get(paths.CLUSTER_ID) is None

    with_store(tmp_path, scenario)


def test_of_two_that_start_at_once_one_makes_the_cluster(tmp_path: Path) -> None:
    async def scenario(store: Any) -> None:
        store.rival = paths.encode_cluster_id("theirs")
        assert await ensure_cluster(store, directories(), ALONE, Ids()) == "theirs"

    with_store(tmp_path, scenario)


def test_a_cluster_id_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    async def scenario(store: Any) -> None:
        store.rival = b"nonsense"
        with pytest.raises(StartError, match="the node /cluster/id in the metadata store cannot be used: "):
            await ensure_cluster(store, directories(), ALONE, Ids())

    with_store(tmp_path, scenario)


@pytest.mark.parametrize(
    ("settings", "stored", "expected"),
    [
        ({"broker.id": "0"}, 5, [0, 0]),
        ({}, 0, [0, 0]),
        ({}, 5, [5, 5]),
        ({}, None, [1001, 1002]),
        ({"reserved.broker.max.id": "7"}, None, [8, 9]),
    ],
)
def test_a_broker_has_the_id_it_is_given_or_has_had_or_a_new_one(
    tmp_path: Path, settings: dict[str, str], stored: int | None, expected: list[int]
) -> None:
    async def scenario(store: Any) -> None:
        await ensure_cluster(store, directories(), ALONE, Ids())
        config = BrokerConfig(settings)
        chosen = [await choose_broker_id(store, directories(broker_id=stored), config) for _ in range(2)]
        assert chosen == expected

    with_store(tmp_path, scenario)
