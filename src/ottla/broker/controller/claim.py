"""The controller's role in the metadata store: who has it, and how a broker takes it, under a new epoch."""

from __future__ import annotations

import logging
from typing import NamedTuple

from ottla.base.errors import ErrorCode, KafkaError
from ottla.metadata import paths
from ottla.metadata.store import (
    BadVersionError,
    Create,
    Delete,
    MetadataStore,
    Node,
    NodeExistsError,
    NoNodeError,
    Operation,
    Set,
)

log = logging.getLogger(__name__)


class Won(NamedTuple):
    epoch: int
    epoch_version: int


async def claim(store: MetadataStore, broker_id: int, now_ms: int, *, is_owner: bool) -> Won | None:
    """None if another broker was faster. `is_owner`: the role is this broker's, by a claim whose answer was lost.
    Raises KafkaError if nobody can say which epoch is the next."""
    node = await store.get(paths.CONTROLLER_EPOCH)
    if node is None:
        try:
            await store.commit([Create(paths.CONTROLLER_EPOCH, b"0")])
        except NodeExistsError:
            return await claim(store, broker_id, now_ms, is_owner=is_owner)
        node = await store.get(paths.CONTROLLER_EPOCH)
        assert node is not None
    try:
        epoch = paths.decode_controller_epoch(node.data) + 1
    except paths.MalformedNodeError as e:
        # Any number could be lower than the last: brokers would refuse this controller, or obey an old one.
        raise KafkaError(
            f"there is no controller until the node {paths.CONTROLLER_EPOCH} is mended: {e}",
            code=ErrorCode.UNKNOWN_SERVER_ERROR,
        ) from e
    operations: list[Operation] = [
        *([Delete(paths.CONTROLLER)] if is_owner else []),
        Create(paths.CONTROLLER, paths.encode_controller(broker_id, now_ms), ephemeral=True),
        Set(paths.CONTROLLER_EPOCH, str(epoch).encode(), node.version),
    ]
    try:
        committed = await store.commit(operations)
    except (NodeExistsError, BadVersionError, NoNodeError):
        return None
    return Won(epoch, committed[-1].version)


def holder(node: Node) -> int:
    try:
        return paths.decode_controller(node.data)
    except paths.MalformedNodeError as e:
        log.error("%s cannot be understood, and is taken for another broker's: %s", paths.CONTROLLER, e)
        return -1
