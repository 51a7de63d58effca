"""Watches that go on, made of ZooKeeper's, which fire once: each is set again, and what was missed is looked up.

A look at a node sets its watches and compares what is there with what was known, so that between two watches nothing
is missed but children that have come and gone. Every node at or below the path is watched: for the few and shallow
paths that a broker watches, not for whole trees.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import EventType, WatchedEvent

from ottla.metadata.store import StoreFailedError, Watcher
from ottla.metadata.watching import Watchers
from ottla.metadata.zookeeper.requests import Requests, describe

log = logging.getLogger(__name__)

_NOT_LOOKED_AT = -1

_Fired = Callable[[WatchedEvent], None]
_Seen = Callable[[int | None, Sequence[str]], None]
_Look = Callable[[str, bool, bool, _Fired, _Seen], None]


class Watches:
    def __init__(self, client: KazooClient, requests: Requests, chroot: str) -> None:
        self._client = client
        self._requests = requests
        self._chroot = chroot
        self._watchers = Watchers()
        self._roots: dict[tuple[str, int | None], tuple[_WatchedTree, int]] = {}
        """By path and depth, each with how many watch it."""
        self._looks: set[asyncio.Future[Any]] = set()

    def add(self, path: str, watcher: Watcher, depth: int | None = None) -> Callable[[], None]:
        key = path, depth
        root, watching = self._roots.get(key) or (self._begin(path, depth), 0)
        self._roots[key] = root, watching + 1
        forget = self._watchers.add(path, watcher, depth)
        is_ended = False

        def end() -> None:
            nonlocal is_ended
            if is_ended:
                return
            is_ended = True
            forget()
            root, watching = self._roots.pop(key)
            if watching > 1:
                self._roots[key] = root, watching - 1
            else:
                root.is_ended = True

        return end

    def end_all(self) -> None:
        for root, _ in self._roots.values():
            root.is_ended = True

    def set_again(self) -> None:
        """There is a new connection, on which nothing is watched yet."""
        for root, _ in self._roots.values():
            root.look_at_all()
        self._watchers.tell_all()

    async def settled(self) -> None:
        """Waits until all that ZooKeeper has told of so far is looked up, and watchers know of it."""
        while self._looks:
            await asyncio.wait(self._looks)

    def _begin(self, path: str, depth: int | None) -> _WatchedTree:
        since_id = self._client.last_zxid
        tree = _WatchedTree(path, depth, since_id, self._look, lambda changed: self._watchers.tell([changed]))
        tree.look(path)
        return tree

    def _look(self, path: str, is_root: bool, has_levels: bool, fired: _Fired, seen: _Seen) -> None:
        """Sets watches, and calls `seen` with what is there; of children only if levels below are watched, too. The
        requests leave at once: what comes after them is watched."""
        full_path = self._chroot + path or "/"
        # A watch on a node that is not there would stay for ever, unless it is the one that somebody waits for.
        look_at = self._client.exists_async if is_root else self._client.get_async
        node = self._requests.read(lambda: look_at(full_path, watch=fired))
        asked = [node]
        if has_levels:
            asked.append(self._requests.read(lambda: self._client.get_children_async(full_path, watch=fired)))
        look = asyncio.gather(*asked, return_exceptions=True)
        self._looks.add(look)

        def done(look: asyncio.Future[Any]) -> None:
            self._looks.discard(look)
            found, *names = (None if isinstance(part, NoNodeError) else part for part in look.result())
            failures = [part for part in (found, *names) if isinstance(part, BaseException)]
            if not failures:
                stat = found[1] if isinstance(found, tuple) and not is_root else found
                seen(None if stat is None else stat.mzxid, sorted(names[0] or ()) if names else ())
            elif not isinstance(failures[0], StoreFailedError):
                log.error("%s cannot be watched: %s", path, describe(failures[0]))
            # Without a connection nothing can be seen; with the next one everything is looked at.

        look.add_done_callback(done)


class _WatchedTree:
    def __init__(self, path: str, depth: int | None, since_id: int, look: _Look, tell: Watcher) -> None:
        """Tells of changes after the commit `since_id`, or a little more."""
        self.is_ended = False
        self._path = path
        self._depth = depth
        self._since_id = since_id
        self._look = look
        self._tell = tell
        self._known: dict[str, int] = {}
        """The nodes there are, each with its last change."""

    def look(self, path: str, *, was_created: bool = False) -> None:
        def fired(event: WatchedEvent) -> None:
            # NONE is said of the session, which is dealt with elsewhere.
            if not self.is_ended and event.type != EventType.NONE:
                self.look(path, was_created=event.type == EventType.CREATED)

        def seen(modified_id: int | None, children: Sequence[str]) -> None:
            if self.is_ended:
                return
            if modified_id is None and was_created and path not in self._known:
                # It has come and gone. Whoever has read it in between is to learn that it is not there any more.
                self._tell(path)
            self._compare(path, modified_id, children)

        level = path[len(self._path) :].count("/")
        self._look(path, path == self._path, self._depth is None or level < self._depth, fired, seen)

    def look_at_all(self) -> None:
        for path in {self._path, *self._known}:
            self.look(path)

    def _compare(self, path: str, modified_id: int | None, children: Sequence[str]) -> None:
        if modified_id is None:
            if self._known.pop(path, None) is not None:
                self._tell(path)
            return
        before, self._known[path] = self._known.get(path), modified_id
        if before != modified_id and modified_id > self._since_id:
            self._tell(path)
        for name in children:
            child = f"{path}/{name}"
            if child not in self._known:
                self._known[child] = _NOT_LOOKED_AT
                self.look(child)
