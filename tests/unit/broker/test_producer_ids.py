"""Producer ids: blocks of a thousand, each handed out once, whoever asks and whatever the node holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.coordinators.producer_ids import BLOCK_SIZE, ProducerIds
from ottla.metadata import paths
from ottla.metadata.embedded import EmbeddedStore
from ottla.metadata.store import Create, Set
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
