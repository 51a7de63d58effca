"""A broker's session with a ZooKeeper ensemble."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import (
    KazooException,
    NoAuthError,
    NoNodeError,
    SessionClosedRequireSaslError,
    UnimplementedError,
    ZookeeperError,
)
from kazoo.protocol.serialization import GetChildren, GetData
from kazoo.protocol.states import KazooState, KeeperState, ZnodeStat
from kazoo.retry import KazooRetry

from ottla.base.errors import StartError
from ottla.metadata.store import (
    PERSISTENT,
    Committed,
    Create,
    Node,
    NodeExistsError,
    Operation,
    SessionEvent,
    SessionListener,
    StoreFailedError,
    Watcher,
)
from ottla.metadata.zookeeper.address import EnsembleAddress
from ottla.metadata.zookeeper.handler import LoopHandler
from ottla.metadata.zookeeper.multi_read import READS_MAX, MultiRead
from ottla.metadata.zookeeper.requests import Requests, describe
from ottla.metadata.zookeeper.security import Security
from ottla.metadata.zookeeper.transaction import read_results, transaction
from ottla.metadata.zookeeper.watches import Watches

log = logging.getLogger(__name__)
_kazoo_log = logging.getLogger("kazoo")

_RECONNECT_S, _RECONNECT_S_MAX = 0.05, 1.0
_REVIVE_S = 1.0


class SessionOptions(NamedTuple):
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    max_in_flight: int = 10
    security: Security = Security()


class ZooKeeperStore:
    """MetadataStore on ZooKeeper. Use `connect`."""

    def __init__(self, address: EnsembleAddress, options: SessionOptions) -> None:
        self.session_id = PERSISTENT
        self.client_id = (PERSISTENT, b"")
        """The session and its secret."""
        # ZooKeeper looks at sessions in ticks, and lets none be shorter than two of them.
        self.session_outlives_ms = 2 * options.session_timeout_ms + 4_000
        self._address = address
        self._options = options
        loop = asyncio.get_running_loop()
        servers = address.hosts.count(",") + 1
        share_ms = options.session_timeout_ms // 3
        self._handler = LoopHandler(
            loop, connect_timeout_ms=max(share_ms // servers, 1_000), tls=options.security.tls_context()
        )
        self._client = KazooClient(
            address.hosts,
            timeout=options.session_timeout_ms / 1000,
            handler=self._handler,
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=_RECONNECT_S,
                max_delay=_RECONNECT_S_MAX,
                sleep_func=self._handler.sleep_func,
            ),
            logger=_kazoo_log,
            **options.security.client_options(),
        )
        self._client.add_listener(self._hand_over)
        self._requests = Requests(
            loop,
            max_in_flight=options.max_in_flight,
            patience_ms=share_ms,
            is_live=lambda: self._client.connected,
            say_why=self._why_unreachable,
        )
        self._watches = Watches(self._client, self._requests, address.chroot)
        self._session_listeners: list[SessionListener] = []
        self._has_begun = asyncio.Event()
        self._takes_many = True
        self._is_reachable = False
        self._is_lost = False
        self._is_closed = False

    @classmethod
    async def connect(cls, address: EnsembleAddress, options: SessionOptions | None = None) -> ZooKeeperStore:
        """Begins a session, and makes the chroot if it is missing. Raises StartError if nobody can be reached."""
        _quieten_kazoo()
        store = cls(address, options or SessionOptions())
        try:
            await store._begin()
            await store._make_chroot()
        except StoreFailedError as e:
            await store.close()
            raise StartError(e.message) from e
        except BaseException:
            await store.close()
            raise
        return store

    # The tree

    async def get(self, path: str) -> Node | None:
        self._catch_up()
        (answer,) = await self._answers([self._get(path)])
        await self._watches.settled()
        return None if answer is None else _node(*answer)

    async def children(self, path: str) -> list[str]:
        self._catch_up()
        (names,) = await self._answers([self._list(path)])
        await self._watches.settled()
        return sorted(names or ())

    async def tree(self, path: str) -> dict[str, Node]:
        """Level by level, with many reads in each request."""
        self._catch_up()
        nodes: dict[str, Node] = {}
        level = [path]
        while level:
            found = await self._read_many([GetData(self._full(each), None) for each in level])
            there = [(each, answer) for each, answer in zip(level, found, strict=True) if answer is not None]
            nodes.update((each, _node(*answer)) for each, answer in there)
            parents = [each for each, (_, stat) in there if stat.numChildren]
            listings = await self._read_many([GetChildren(self._full(each), None) for each in parents])
            level = [
                f"{parent.rstrip('/')}/{name}"
                for parent, names in zip(parents, listings, strict=True)
                for name in names or ()
            ]
        await self._watches.settled()
        return nodes

    async def commit(self, operations: Sequence[Operation]) -> list[Committed]:
        request = transaction(self._client, operations, self._full, self._options.security.acl)
        results = await self._requests.write(request.commit_async)
        await self._watches.settled()
        return read_results(operations, results, len(self._address.chroot))

    # The session

    def watch(self, path: str, watcher: Watcher, *, depth: int | None = None) -> Callable[[], None]:
        return self._watches.add(path, watcher, depth)

    def on_session(self, listener: SessionListener) -> None:
        self._session_listeners.append(listener)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._watches.end_all()
        try:
            await asyncio.to_thread(self._stop_client)
        except KazooException as e:
            log.warning("the session with ZooKeeper is left to its timeout: %s", describe(e))
        self._requests.close()

    def _stop_client(self) -> None:
        self._client.stop()
        self._client.close()

    async def _begin(self) -> None:
        await asyncio.to_thread(self._client.start_async)
        try:
            async with asyncio.timeout(self._options.connection_timeout_ms / 1000):
                await self._has_begun.wait()
                # A session begins before its credentials are looked at; only an answer shows that they are accepted.
                await self._requests.read(partial(self._client.exists_async, "/"))
                self._is_reachable = True
        except SessionClosedRequireSaslError:
            raise StartError(
                f"ZooKeeper ({self._address.hosts}) insists on SASL; set ottla.zookeeper.auth=sasl and "
                "ottla.zookeeper.credentials"
            ) from None
        except TimeoutError:
            raise StartError(
                f"{self._why_unreachable()}; start it (`ottla zookeeper start` runs one), or correct zookeeper.connect"
            ) from None

    async def _make_chroot(self) -> None:
        names = self._address.chroot.split("/")[1:]
        for path in itertools.accumulate(names, lambda above, name: f"{above}/{name}", initial=""):
            if path and await self._requests.read(partial(self._client.exists_async, path)) is None:
                request = transaction(self._client, [Create(path)], lambda path: path, self._options.security.acl)
                with suppress(NodeExistsError):  # another broker has just made it
                    read_results([Create(path)], await self._requests.write(request.commit_async), 0)

    def _hand_over(self, state: str) -> None:
        """Called in kazoo's thread; by the time the event loop hears of it, the client may be in another state."""
        client = self._client
        self._handler.queue.put(partial(self._state_changed, state, client.client_state, client.client_id))

    def _state_changed(self, state: str, client_state: str, client_id: tuple[int, bytes] | None) -> None:
        if self._is_closed:
            return
        if state == KazooState.CONNECTED and client_id is not None:
            self._connected(client_id)
        elif state == KazooState.SUSPENDED:
            self._unreachable(SessionEvent.SUSPENDED)
        elif state == KazooState.LOST:
            self._lost(client_state)

    def _connected(self, client_id: tuple[int, bytes]) -> None:
        was_lost, is_first = self._is_lost, not self._has_begun.is_set()
        self._is_reachable, self._is_lost = not is_first, False
        self.client_id = client_id
        self.session_id = client_id[0]
        self._requests.connected()
        if is_first:
            self._has_begun.set()
            return
        log.info("ZooKeeper can be reached again, %s", "in a new session" if was_lost else "in the same session")
        self._tell_listeners(SessionEvent.RENEWED if was_lost else SessionEvent.RESUMED)
        self._watches.set_again()

    def _unreachable(self, event: SessionEvent) -> None:
        if self._is_reachable:
            log.warning("the connection to ZooKeeper is lost: nothing can be decided until there is another")
        self._is_reachable = False
        self._requests.disconnected()
        self._tell_listeners(event)

    def _lost(self, client_state: str) -> None:
        self._is_lost = True
        self._requests.session_lost()
        self._unreachable(SessionEvent.LOST)
        if client_state in (KeeperState.AUTH_FAILED, KeeperState.CLOSED):
            # Kazoo tries no more after a failure that it takes for the last. It is closed, too, when a server that
            # insists on SASL refuses a password.
            if client_state == KeeperState.AUTH_FAILED or self._options.security.proves_by_sasl:
                self._handler.last_problem = "it does not accept ottla.zookeeper.credentials"
                self._requests.refused()
            asyncio.get_running_loop().call_later(_REVIVE_S, self._revive)

    def _revive(self) -> None:
        if not self._is_closed:
            asyncio.get_running_loop().run_in_executor(None, self._client.start_async)

    def _tell_listeners(self, event: SessionEvent) -> None:
        for listener in self._session_listeners:
            listener(event)

    # Requests

    def _full(self, path: str) -> str:
        return self._address.chroot + path or "/"

    def _get(self, path: str) -> asyncio.Future[Any]:
        return self._requests.read(partial(self._client.get_async, self._full(path)))

    def _list(self, path: str) -> asyncio.Future[Any]:
        return self._requests.read(partial(self._client.get_children_async, self._full(path)))

    async def _read_many(self, reads: Sequence[Any]) -> list[Any]:
        if not self._takes_many:
            return await self._answers([self._requests.read(partial(self._send, read)) for read in reads])
        parts = [MultiRead(reads[first : first + READS_MAX]) for first in range(0, len(reads), READS_MAX)]
        try:
            answers = await asyncio.gather(*(self._requests.read(partial(self._send, part)) for part in parts))
        except UnimplementedError:
            log.info("this ZooKeeper is older than 3.6: each node is read by a request of its own")
            self._takes_many = False
            return await self._read_many(reads)
        return _check_answers([answer for part in answers for answer in part])

    def _send(self, request: Any) -> Any:
        result = self._handler.async_result()
        self._client._call(request, result)
        return result

    async def _answers(self, requests: Sequence[asyncio.Future[Any]]) -> list[Any]:
        return _check_answers(await asyncio.gather(*requests, return_exceptions=True))

    def _catch_up(self) -> None:
        """Has the server that this session is with learn of all that was committed, before it answers what follows.

        Otherwise a broker could be told of a topic by a controller, and not find its settings.
        """
        asked = self._requests.read(partial(self._client.sync_async, self._address.chroot or "/"))
        asked.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _why_unreachable(self) -> str:
        problem = self._handler.last_problem
        return f"ZooKeeper ({self._address.hosts}) cannot be reached{f': {problem}' if problem else ''}"


def _node(data: bytes | None, stat: ZnodeStat) -> Node:
    return Node(data or b"", stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner)


def _check_answers(answers: Sequence[Any]) -> list[Any]:
    """None for what was asked of a node that is not there; raises what else went wrong."""
    for answer in answers:
        if isinstance(answer, NoAuthError):
            raise StoreFailedError("ZooKeeper's access list does not let this broker read its nodes") from answer
        if isinstance(answer, ZookeeperError) and not isinstance(answer, NoNodeError):
            raise StoreFailedError(f"ZooKeeper refused a read: {describe(answer)}") from answer
        if isinstance(answer, BaseException) and not isinstance(answer, NoNodeError):
            raise answer
    return [None if isinstance(answer, NoNodeError) else answer for answer in answers]


def _quieten_kazoo() -> None:
    """It tells of every attempt to connect; what a reader of the log should know is said here."""
    if _kazoo_log.level == logging.NOTSET:
        _kazoo_log.setLevel(logging.CRITICAL)
