"""Which cluster a broker belongs to, and which of its brokers it is: settings, directories and store have to agree."""

from __future__ import annotations

from contextlib import suppress

from ottla.base.errors import StartError
from ottla.base.ids import Ids
from ottla.base.types import uuid_to_text
from ottla.broker.config.broker_config import BrokerConfig
from ottla.log.log_dir import LogDirs
from ottla.metadata import paths
from ottla.metadata.store import Create, MetadataStore, NodeExistsError, Set


async def ensure_cluster(store: MetadataStore, log_dirs: LogDirs, config: BrokerConfig, ids: Ids) -> str:
    """The cluster's id; the first start makes one. The nodes every cluster has are made where they are missing."""
    for path in paths.PERSISTENT_PATHS:
        if await store.get(path) is None:
            await _make(store, Create(path))
    if await store.get(paths.FEATURE) is None:
        await _make(store, Create(paths.FEATURE, paths.encode_features()))
    while (node := await store.get(paths.CLUSTER_ID)) is None:
        stored = log_dirs.stored_cluster_id()
        if stored is not None and config.optional_text("zookeeper.connect") is not None:
            raise StartError(
                f"the log directories are those of cluster {stored}, but there is no cluster at zookeeper.connect="
                f"{config.text('zookeeper.connect')}; correct it (the path at its end, too), or use empty directories"
            )
        cluster_id = stored or uuid_to_text(ids.uuid())
        await _make(store, Create(paths.CLUSTER_ID, paths.encode_cluster_id(cluster_id)))
    try:
        return paths.decode_cluster_id(node.data)
    except paths.MalformedNodeError as e:
        raise StartError(f"the node {paths.CLUSTER_ID} in the metadata store cannot be used: {e}") from e


async def _make(store: MetadataStore, node: Create) -> None:
    with suppress(NodeExistsError):  # another broker of the cluster makes it at the same time
        await store.commit([node])


async def choose_broker_id(store: MetadataStore, log_dirs: LogDirs, config: BrokerConfig) -> int:
    """The configured id, else the one the log directories were made with, else a new one above the reserved."""
    if config.broker_id is not None:
        return config.broker_id
    stored = log_dirs.stored_broker_id()
    if stored is not None:
        return stored
    # The version belongs to this commit alone, however many brokers draw at the same time.
    (drawn,) = await store.commit([Set(paths.BROKER_SEQUENCE, b"")])
    return config.integer("reserved.broker.max.id") + drawn.version
