"""Producers that nobody has closed when the interpreter ends: what they hold is sent, or it is said that it is lost."""

from __future__ import annotations

import atexit
import time
import weakref
from typing import Protocol

from ottla.client.interrupts.loop_end import LAST_S

_LEAST_S = 0.1
"""What each has in any case: only the first may be one that has nobody to send to."""


class Leftover(Protocol):
    def _send_rest(self, timeout_s: float) -> None:
        """Sends what it holds, or says that this is lost. What a transaction holds that nobody has committed is not."""


_open: weakref.WeakSet[Leftover] = weakref.WeakSet()


def watch_exit(producer: Leftover) -> None:
    _open.add(producer)


def forget_exit(producer: Leftover) -> None:
    _open.discard(producer)


@atexit.register
def _at_exit() -> None:
    """Together they have about as long as one: a program is not to hang at its end because a broker is away."""
    deadline_s = time.monotonic() + LAST_S
    for producer in list(_open):
        producer._send_rest(max(_LEAST_S, deadline_s - time.monotonic()))
