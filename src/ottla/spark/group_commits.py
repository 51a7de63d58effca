"""Offsets of groups, committed by a thread of their own: whoever reports them never waits for a broker.

Only the newest offsets of a group count. A commit that fails is made again with the next one; nothing depends on it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

import ottla
from ottla.base.errors import OttlaError
from ottla.base.types import TopicPartition
from ottla.client.core.admin.options import ADMIN_OPTIONS
from ottla.client.core.consumer.cursors import OffsetAndMetadata

_log = logging.getLogger(__name__)
_COMMIT_TIMEOUT_MS = 10_000
_CLOSE_TIMEOUT_S = 15.0

FindCluster = Callable[[str, str], Mapping[str, str] | None]
"""The client settings of the cluster that a group reads a topic in; None if it is none that is known."""

Committed = int | OffsetAndMetadata


class GroupCommits:
    def __init__(self, find_cluster: FindCluster) -> None:
        self._find_cluster = find_cluster
        self._changed = threading.Condition()
        self._waiting: dict[str, dict[TopicPartition, Committed]] = {}
        self._is_busy = False
        self._is_closed = False
        self._admins: dict[tuple[tuple[str, str], ...], ottla.Admin] = {}
        self._failing: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="ottla-group-commits", daemon=True)
        self._thread.start()

    def put(self, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        with self._changed:
            self._waiting.setdefault(group_id, {}).update(offsets)
            self._changed.notify_all()

    def flush(self, timeout_s: float = _CLOSE_TIMEOUT_S) -> None:
        """Waits until all that was put has been tried."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting and not self._is_busy, timeout_s)

    def close(self) -> None:
        """Tries what is left, and ends the thread."""
        self.flush()
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(_CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if self._is_closed:
                    break
                work, self._waiting = self._waiting, {}
                self._is_busy = True
            try:
                for group_id, offsets in work.items():
                    self._commit(group_id, offsets)
            finally:
                with self._changed:
                    self._is_busy = False
                    self._changed.notify_all()
        for admin in self._admins.values():
            admin.close()

    def _commit(self, group_id: str, offsets: dict[TopicPartition, Committed]) -> None:
        by_cluster: dict[tuple[tuple[str, str], ...], dict[TopicPartition, Committed]] = {}
        for partition, offset in offsets.items():
            settings = self._find_cluster(group_id, partition.topic)
            if settings is not None:
                known = tuple(sorted((name, text) for name, text in settings.items() if name in ADMIN_OPTIONS))
                by_cluster.setdefault(known, {})[partition] = offset
        for cluster, there in by_cluster.items():
            try:
                if cluster not in self._admins:
                    self._admins[cluster] = ottla.Admin(dict(cluster))
                self._admins[cluster].alter_group_offsets(group_id, there, timeout_ms=_COMMIT_TIMEOUT_MS).check()
            except OttlaError as e:
                if group_id not in self._failing:
                    self._failing.add(group_id)
                    _log.warning("the position of group %s is not visible for now: %s", group_id, e)
            else:
                self._failing.discard(group_id)
