"""Claims a log directory for this process: makes it, locks it, and reads or writes whose it is (`meta.properties`)."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import NamedTuple

from ottla.base.errors import StartError
from ottla.log.checkpoints import CheckpointError, read_properties, write_properties

LOCK_FILE = ".lock"
META_PROPERTIES = "meta.properties"


class DirOwner(NamedTuple):
    """Whose directory it is, as far as it says."""

    broker_id: int | None
    cluster_id: str | None


def lock_directory(path: Path) -> int:
    """Make the directory if need be and lock it; returns the descriptor that holds the lock."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        fd = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as e:
        raise StartError(f"the log directory {path} cannot be used: {e.strerror or e}") from e
    try:
        # The record lock is the kind that Java takes; it does not keep out a second user within this process, so
        # the other kind is taken too.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as e:
        os.close(fd)
        if isinstance(e, BlockingIOError | PermissionError):
            raise StartError(f"the log directory {path} is in use by another process") from e
        raise StartError(f"the log directory {path} cannot be locked: {e.strerror or e}") from e
    return fd


def read_owner(path: Path) -> DirOwner:
    """Who has used the directory so far."""
    properties = _read_meta(path)
    # A directory made by a KRaft broker names its owner node.id.
    broker_id = properties.get("broker.id", properties.get("node.id"))
    try:
        return DirOwner(None if broker_id is None else int(broker_id), properties.get("cluster.id"))
    except ValueError as e:
        raise StartError(f"{path / META_PROPERTIES} names {broker_id!r} as its broker, which is no number") from e


def take_ownership(path: Path, broker_id: int, cluster_id: str | None) -> None:
    """Check that the directory is this broker's, and write so if nobody has used it."""
    owner = read_owner(path)
    if owner.cluster_id is not None and cluster_id is not None and owner.cluster_id != cluster_id:
        raise StartError(
            f"the log directory {path} belongs to cluster {owner.cluster_id}, this cluster is {cluster_id}"
        )
    if owner.broker_id is not None and owner.broker_id != broker_id:
        raise StartError(f"the log directory {path} belongs to broker {owner.broker_id}, this is broker {broker_id}")
    if owner.broker_id is not None and (owner.cluster_id is not None or cluster_id is None):
        return
    properties = {"version": "0", "broker.id": str(broker_id)} | _read_meta(path)
    if cluster_id is not None:
        properties["cluster.id"] = cluster_id
    try:
        write_properties(path / META_PROPERTIES, properties)
    except OSError as e:
        raise StartError(f"the log directory {path} cannot be written: {e.strerror or e}") from e


def _read_meta(path: Path) -> dict[str, str]:
    try:
        return read_properties(path / META_PROPERTIES) or {}
    except CheckpointError as e:
        raise StartError(str(e)) from e
    except OSError as e:
        raise StartError(f"the log directory {path} cannot be read: {e.strerror or e}") from e
