"""How a decision gets into the metadata store: in one commit, or in several if it is large."""

from __future__ import annotations

from ottla.broker.controller.stored_state import Writing
from ottla.machines.cluster.state import NO_VERSION, Change
from ottla.metadata.store import Check, Create, MetadataStore, Operation, Set

BYTES_MAX = 500_000
"""ZooKeeper takes a megabyte at once (jute.maxbuffer). More is committed in several steps, each of whole changes where
one change is not larger itself; a controller that stops between two leaves what the next one goes on with."""
_OPERATION_BYTES = 100
"""What an operation takes beside its path and its data, or a little less."""


class Committing:
    """Of one decision. Every commit is made under `guard`."""

    def __init__(self, store: MetadataStore, controller_epoch: int, guard: Check) -> None:
        self.has_begun = False
        """Whether a part is stored."""
        self._store = store
        self._writing = Writing(store, controller_epoch)
        self._guard = guard
        self._versions: list[int] = []
        self._waiting: list[tuple[int, Operation]] = []
        """Operations, each with the place of its change."""
        self._waiting_bytes = 0

    async def commit(self, changes: list[Change]) -> list[int]:
        """Stores all changes, or none if they fit into one commit; returns the version of each."""
        self._versions = [NO_VERSION] * len(changes)
        for place, change in enumerate(changes):
            operations = await self._writing.operations_of(change)
            if self._waiting_bytes + sum(map(_size, operations)) > BYTES_MAX:
                await self._flush()
            for operation in operations:
                if self._waiting_bytes > BYTES_MAX:
                    await self._flush()
                self._waiting.append((place, operation))
                self._waiting_bytes += _size(operation)
        await self._flush()
        return self._versions

    async def _flush(self) -> None:
        if not self._waiting:
            return
        committed = await self._store.commit([self._guard, *(operation for _, operation in self._waiting)])
        self.has_begun = True
        for (place, _), done in zip(self._waiting, committed[1:], strict=True):
            # That of a change is that of its first operation.
            if self._versions[place] == NO_VERSION:
                self._versions[place] = done.version
        self._waiting, self._waiting_bytes = [], 0


def _size(operation: Operation) -> int:
    match operation:
        case Create(path, data) | Set(path, data):
            return _OPERATION_BYTES + len(path) + len(data)
        case _:
            return 2 * _OPERATION_BYTES
