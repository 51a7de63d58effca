"""Who wants to hear of which changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.metadata.store import Watcher


class Watchers:
    def __init__(self) -> None:
        self._entries: dict[object, tuple[str, Watcher, int | None]] = {}

    def add(self, path: str, watcher: Watcher, depth: int | None = None) -> Callable[[], None]:
        """The result ends the watch; calling it again does nothing."""
        key = object()
        self._entries[key] = (path, watcher, depth)
        return lambda: _forget(self._entries, key)

    def tell(self, changed: Iterable[str]) -> None:
        for path in changed:
            for watched, watcher, depth in list(self._entries.values()):
                if is_within(path, watched, depth):
                    watcher(path)

    def tell_all(self) -> None:
        """Changes may have been missed: everybody is to look."""
        for watched, watcher, _ in list(self._entries.values()):
            watcher(watched)


def is_within(path: str, above: str, depth: int | None) -> bool:
    """Whether a node is another one, or is below it and at most so many levels."""
    prefix = above.rstrip("/") + "/"
    return path == above or (path.startswith(prefix) and (depth is None or path[len(prefix) :].count("/") < depth))


def _forget(entries: dict[object, tuple[str, Watcher, int | None]], key: object) -> None:
    entries.pop(key, None)
