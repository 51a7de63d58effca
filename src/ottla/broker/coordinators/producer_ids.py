"""Producer ids, unique in the cluster: blocks of a thousand are reserved in the metadata store, then handed out."""

from __future__ import annotations

import asyncio
import logging

from ottla.base.errors import ErrorCode, KafkaError
from ottla.metadata import paths
from ottla.metadata.store import (
    BadVersionError,
    Create,
    MetadataStore,
    NodeExistsError,
    Set,
    StoreUnreachableError,
)

log = logging.getLogger(__name__)

BLOCK_SIZE = 1_000


class ProducerIds:
    def __init__(self, store: MetadataStore, broker_id: int) -> None:
        self._store = store
        self._broker_id = broker_id
        self._next = 0
        self._end = 0
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        async with self._lock:
            if self._next == self._end:
                try:
                    self._next = await self.reserve_block(self._broker_id)
                except StoreUnreachableError as e:
                    # Of all codes the one after which producers ask again.
                    raise KafkaError(e.message, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) from e
                self._end = self._next + BLOCK_SIZE
            self._next += 1
            return self._next - 1

    async def reserve_block(self, broker_id: int) -> int:
        """The first of a thousand ids that are the broker's alone."""
        while True:
            node = await self._store.get(paths.PRODUCER_ID_BLOCK)
            first = 0 if node is None or not node.data else _end_of(node.data) + 1
            data = paths.encode_producer_id_block(broker_id, first, first + BLOCK_SIZE - 1)
            try:
                if node is None:
                    await self._store.commit([Create(paths.PRODUCER_ID_BLOCK, data)])
                else:
                    await self._store.commit([Set(paths.PRODUCER_ID_BLOCK, data, node.version)])
            except (BadVersionError, NodeExistsError):
                continue  # Another broker was faster: take the block after its own.
            return first


def _end_of(block: bytes) -> int:
    try:
        return paths.decode_producer_id_block(block)[1]
    except paths.MalformedNodeError as e:
        # Which ids are taken is known from there only. Replies have no room for words.
        reason = f"there are no producer ids until the node {paths.PRODUCER_ID_BLOCK} is mended: {e}"
        log.error("%s", reason)
        raise KafkaError(reason, code=ErrorCode.UNKNOWN_SERVER_ERROR) from e
