"""The metadata store as the controller sees it: a tree of versioned nodes, ephemeral ones, watches, atomic commits.

This is the part of ZooKeeper that Kafka uses and nothing more, so one controller runs on a ZooKeeper ensemble or on the
embedded store. The module owns the interface only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from ottla.base.errors import ErrorCode, KafkaError, OttlaError

ANY_VERSION = -1
PERSISTENT = 0
"""No session owns the node."""


class Node(NamedTuple):
    data: bytes
    version: int
    """How often the data has been set since the node was created."""
    created_id: int
    """A number that grows with every commit: the commit that created the node (ZooKeeper's czxid)."""
    modified_id: int
    """The commit that last set its data (mzxid)."""
    owner: int = PERSISTENT
    """The session that an ephemeral node belongs to and goes with (ephemeralOwner)."""


class Create(NamedTuple):
    path: str
    data: bytes = b""
    ephemeral: bool = False


class CreateSequential(NamedTuple):
    """Creates `prefix` followed by a ten-digit number that grows with every such child of the same parent."""

    prefix: str
    data: bytes = b""


class Set(NamedTuple):
    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Makes the commit fail unless the node is at this version; changes nothing."""

    path: str
    version: int


Operation = Create | CreateSequential | Set | Delete | Check


class Committed(NamedTuple):
    """What an operation has come to."""

    path: str
    version: int
    """The node's version now; of one that was deleted, ANY_VERSION."""


class StoreError(OttlaError):
    """A commit that was refused; nothing of it was done."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path


class StoreFailedError(KafkaError):
    """The store itself cannot be read or written: a full disk, a lost file."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class StoreUnreachableError(StoreFailedError):
    """The store is not here and does not answer. Clients must be told at once: they would try again for a minute what
    they take for a failed disk."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


class NodeExistsError(StoreError):
    def __init__(self, path: str) -> None:
        super().__init__(path, "the node exists already")


class NoNodeError(StoreError):
    def __init__(self, path: str) -> None:
        super().__init__(path, "there is no such node")


class NotEmptyError(StoreError):
    def __init__(self, path: str) -> None:
        super().__init__(path, "the node has children")


class BadVersionError(StoreError):
    def __init__(self, path: str) -> None:
        super().__init__(path, "the node has been changed meanwhile")


Watcher = Callable[[str], None]
"""Called on the event loop with the path of a node that was created, changed or deleted."""


class SessionEvent(Enum):
    """What has become of a store's session. Losing it is an event and not an error: another one takes its place."""

    SUSPENDED = "suspended"
    """The store cannot be reached. The session may live on, or may be over without anybody here knowing."""
    RESUMED = "resumed"
    """The store can be reached again, and the session is the same."""
    LOST = "lost"
    """The session is over: its ephemeral nodes are gone."""
    RENEWED = "renewed"
    """A new session has begun, with nothing in it; watches go on, and have missed what happened meanwhile."""
    ENDED = "ended"
    """There will be no other session: the process that served the store is gone. Only a served store says so."""


SessionListener = Callable[[SessionEvent], None]
"""Called on the event loop."""


class MetadataStore(Protocol):
    """One session with the store; what is created as ephemeral belongs to it."""

    session_id: int
    session_outlives_ms: int
    """How long, at most, the session of a process lives on that has died."""

    async def get(self, path: str) -> Node | None: ...

    async def children(self, path: str) -> list[str]:
        """Names of the node's children, sorted; empty if there is no such node."""

    async def tree(self, path: str) -> dict[str, Node]:
        """Every node at or below `path`: one read for what a new controller loads."""

    async def commit(self, operations: Sequence[Operation]) -> list[Committed]:
        """Does all of it or nothing, durably; returns what each operation has come to.

        Parents of a created node must exist. Raises a StoreError that names the node which stood in the way, or
        StoreFailedError if the store cannot say that it did it: it may have, all the same.
        """

    def watch(self, path: str, watcher: Watcher, *, depth: int | None = None) -> Callable[[], None]:
        """Tells `watcher` of every change at or below `path`, whoever made it; the result ends the watch. With `depth`
        only of nodes that are at most so many levels below."""

    def on_session(self, listener: SessionListener) -> None:
        """Tells `listener` of all that becomes of the session but its end by `close`."""

    async def close(self) -> None:
        """Ends the session: its ephemeral nodes disappear."""
