"""Who wants to hear of which changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.metadata.store import Watcher


class Watchers:
    def __init__(self) -> None:
        self._entries: dict[object, tuple[str, Watcher]] = {}

    def add(self, path: str, watcher: Watcher) -> Callable[[], None]:
        """The result ends the watch; calling it again does nothing."""
        key = object()
        self._entries[key] = (path, watcher)
        return lambda: _forget(self._entries, key)

    def tell(self, changed: Iterable[str]) -> None:
        for path in changed:
            for watched, watcher in list(self._entries.values()):
                if path == watched or path.startswith(watched.rstrip("/") + "/"):
                    watcher(path)

    def tell_all(self) -> None:
        """Changes may have been missed: everybody is to look."""
        for watched, watcher in list(self._entries.values()):
            watcher(watched)


def _forget(entries: dict[object, tuple[str, Watcher]], key: object) -> None:
    entries.pop(key, None)
