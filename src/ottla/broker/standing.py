"""Whether the cluster still counts this broker among the living, while the metadata store cannot be reached.

A session that ends tells its owner only if the owner is connected. Silence proves nothing: if the whole store is
silent, nobody is elected and records go on. If this broker alone is cut off, others lead by now what it leads, and
clients would wait for acknowledgements that never come. Its peers know which of the two it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ottla.base.errors import KafkaError
from ottla.broker.replication.peers import Peers
from ottla.machines.cluster.image import ClusterImage
from ottla.wire.apis.metadata import MetadataRequest, MetadataResponse

ASK_MS = 500
_TIMEOUT_MS = 2_000
_WORK = "standing"

AskPeers = Callable[[], Awaitable[bool]]
"""Whether some peer was told that this broker is gone."""


def ask_peers(broker_id: int, image: ClusterImage, peers: Peers) -> AskPeers:
    async def knows_of_no_such_broker(peer: int) -> bool:
        asked = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        try:
            known = await peers.request(peer, asked, MetadataResponse, work=_WORK, timeout_ms=_TIMEOUT_MS)
        except (KafkaError, OSError):
            return False
        # A peer that was told nothing yet knows of nobody.
        return bool(known.brokers) and all(broker.node_id != broker_id for broker in known.brokers)

    async def is_given_up() -> bool:
        others = [other for other in image.brokers if other != broker_id]
        return any(await asyncio.gather(*map(knows_of_no_such_broker, others)))

    return is_given_up
