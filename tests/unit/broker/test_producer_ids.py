"""Producer ids: blocks of a thousand, each handed out once, whoever asks and whatever the node holds."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.coordinators.producer_ids import BLOCK_SIZE, ProducerIds
from ottla.metadata import paths
from ottla.metadata.embedded import EmbeddedStore
from ottla.metadata.store import Create, MetadataStore, Operation, Set, StoreUnreachableError
from tests.waiting import run_async


def test_no_id_is_given_twice(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await EmbeddedStore.open(tmp_path / "store")
        one, other = ProducerIds(store, 1), ProducerIds(store, 2)
        drawn = [await each.next() for _ in range(BLOCK_SIZE + 1) for each in (one, other)]
        assert len(set(drawn)) == len(drawn) == 2 * BLOCK_SIZE + 2
        assert max(drawn) < 4 * BLOCK_SIZE
        await store.close()

    run_async(scenario())


@pytest.mark.parametrize("garbage", [b"nonsense", b"{}", b'{"block_start":"0","block_end":"soon"}'])
def test_a_node_that_cannot_be_understood_is_named_and_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, garbage: bytes
) -> None:
    async def scenario() -> None:
        store = await EmbeddedStore.open(tmp_path / "store")
        await store.commit([Create(paths.PRODUCER_ID_BLOCK, garbage)])
        ids = ProducerIds(store, 1)
        with pytest.raises(KafkaError, match="no producer ids until the node /latest_producer_id_block is") as refused:
            await ids.next()
        assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        node = await store.get(paths.PRODUCER_ID_BLOCK)
        assert node is not None and node.data == garbage
        await store.commit([Set(paths.PRODUCER_ID_BLOCK, paths.encode_producer_id_block(1, 5000, 5999))])
        assert await ids.next() == 6000
        await store.close()

    run_async(scenario())
    assert "no producer ids until the node /latest_producer_id_block is mended" in caplog.text


class Store:
    """The embedded one; what meets the next commits and reads is the test's choice."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self.rivals: list[list[Operation]] = []
        self.is_away = False

    async def get(self, path: str) -> Any:
        if self.is_away:
            raise StoreUnreachableError("nobody there")
        return await self._store.get(path)

    async def commit(self, operations: Sequence[Operation]) -> Any:
        if self.rivals:
            await self._store.commit(self.rivals.pop(0))
        return await self._store.commit(operations)


def with_store(tmp_path: Path, scenario: Callable[[Store], Awaitable[None]]) -> None:
    async def run() -> None:
        store = await EmbeddedStore.open(tmp_path / "store")
        try:
            await scenario(Store(store))
        finally:
            await store.close()

    run_async(run())


async def block(store: Store) -> tuple[int, int, int]:
    """Whose it is, the first and the last."""
    fields = json.loads((await store.get(paths.PRODUCER_ID_BLOCK)).data)
    return fields["broker"], int(fields["block_start"]), int(fields["block_end"])


def test_blocks_are_of_a_thousand_and_written_down_before_the_first_id_is_given(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        ids = ProducerIds(cast(MetadataStore, store), 7)
        assert [await ids.next() for _ in range(1000)] == list(range(1000))
        assert await block(store) == (7, 0, 999)
        assert (await ids.next(), await block(store)) == (1000, (7, 1000, 1999))
        assert (await ids.reserve_block(3), await block(store)) == (2000, (3, 2000, 2999))
        assert await ids.next() == 1001

    with_store(tmp_path, scenario)


def test_an_empty_node_is_the_beginning(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        await store.commit([Create(paths.PRODUCER_ID_BLOCK, b"")])
        assert await ProducerIds(cast(MetadataStore, store), 7).next() == 0
        assert await block(store) == (7, 0, 999)

    with_store(tmp_path, scenario)


def test_who_was_slower_takes_the_block_after_that_of_the_other(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        def theirs(first: int) -> bytes:
            return paths.encode_producer_id_block(2, first, first + 999)

        path = paths.PRODUCER_ID_BLOCK
        store.rivals = [[Create(path, theirs(0))], [Set(path, theirs(1000))], [Set(path, theirs(2000))]]
        assert await ProducerIds(cast(MetadataStore, store), 7).next() == 3000
        assert (await block(store), store.rivals) == ((7, 3000, 3999), [])

    with_store(tmp_path, scenario)


def test_without_the_store_producers_are_told_to_ask_again(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        ids = ProducerIds(cast(MetadataStore, store), 7)
        store.is_away = True
        with pytest.raises(KafkaError, match="nobody there") as refused:
            await ids.next()
        assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        store.is_away = False
        assert await ids.next() == 0
        store.is_away = True
        assert await ids.next() == 1, "what is left of a block needs no store"

    with_store(tmp_path, scenario)
