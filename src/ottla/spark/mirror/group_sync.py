"""Translates offsets of groups again and again, in a thread of its own, as long as a mirror runs, and once at its end.

Nothing that is copied waits for it. What fails is tried again at the next turn.
"""

from __future__ import annotations

import logging
import threading

from ottla.base.errors import OttlaError
from ottla.client.core.consumer.options import CONSUMER_OPTIONS
from ottla.spark.connections import FAIL_FAST
from ottla.spark.mirror.group_offsets import GroupOffsets, MapReader
from ottla.spark.mirror.settings import Mirror

_log = logging.getLogger(__name__)
_CLOSE_TIMEOUT_S = 60.0


def open_map(mirror: Mirror) -> MapReader:
    known = {name: text for name, text in mirror.target.items() if name in CONSUMER_OPTIONS}
    return MapReader(mirror, {**FAIL_FAST, **known})


class GroupSync:
    def __init__(self, mirror: Mirror, interval_ms: int) -> None:
        self._mirror = mirror
        self._interval_s = interval_ms / 1000
        self._offsets = GroupOffsets(mirror)
        self._map: MapReader | None = None
        self._is_failing = False
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"ottla-mirror-{mirror.name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Translates once more, what was copied last included."""
        self._is_closing.set()
        self._thread.join(_CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        while not self._is_closing.wait(self._interval_s):
            self._turn()
        self._turn()
        if self._map is not None:
            self._map.close()

    def _turn(self) -> None:
        try:
            if self._map is None:
                self._map = open_map(self._mirror)
            group_ids = self._offsets.chosen_groups()
            self._offsets.commit(self._offsets.translate(self._map.read(), group_ids))
        except (OttlaError, ValueError) as e:
            if not self._is_failing:
                self._is_failing = True
                _log.warning("mirror %s: offsets of groups are not translated for now: %s", self._mirror.name, e)
        else:
            self._is_failing = False
