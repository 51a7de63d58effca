"""Tells the clients of this process that they are in a child of it now, where their threads do not exist."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    def forked(self) -> None:
        """Called in the child: whatever needs the threads of the parent must become unusable there."""


_watched: weakref.WeakSet[Forkable] = weakref.WeakSet()


def watch_forks(client: Forkable) -> None:
    _watched.add(client)


def forget_forks(client: Forkable) -> None:
    _watched.discard(client)


def _tell_children() -> None:
    for client in list(_watched):
        client.forked()


os.register_at_fork(after_in_child=_tell_children)
