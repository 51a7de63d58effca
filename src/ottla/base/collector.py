"""Keeps the garbage collector from looking through objects while they are made in bulk."""

from __future__ import annotations

import gc
import os
import threading


class _CollectorPause:
    """A block in which no collection begins, in whatever thread. It is on again after the last such block, if it was
    on before the first: blocks of several threads overlap."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks = 0
        self._was_enabled = False

    def __enter__(self) -> None:
        with self._lock:
            if not self._blocks:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._blocks += 1

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            self._blocks -= 1
            self._resume_after_the_last()

    def _resume_after_the_last(self) -> None:
        if not self._blocks and self._was_enabled:
            gc.enable()

    def forget_other_threads(self) -> None:
        """In a child process the threads are gone, and will not leave their blocks. No thread forks within one."""
        self._lock = threading.Lock()
        if self._blocks:
            self._blocks = 0
            self._resume_after_the_last()


COLLECTOR_PAUSE = _CollectorPause()
"""For the milliseconds in which thousands of objects are made that all stay.

The collector starts anew after every few hundred of them. Each time it goes through what it has seen before, and from
time to time through all objects of the process: making the records of a batch takes three to four times as long then.
One look after the batch is enough. There is nothing narrower than to switch it off: instances of classes are tracked,
whatever they hold.
"""

os.register_at_fork(after_in_child=COLLECTOR_PAUSE.forget_other_threads)
