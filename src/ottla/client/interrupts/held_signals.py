"""Keeps the handlers of signals out of code that an exception would tear apart.

Python calls them in the main thread, between any two of its instructions, and most of them raise: Ctrl-C does.
"""

from __future__ import annotations

# The functions of `signal` are these with numbers turned into enums, which takes longer than all the rest in here: a
# consumer holds signals for every poll.
import _signal  # type: ignore[import-not-found]
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Self

_Handler = Callable[[int, FrameType | None], object]

_HELD = tuple(
    int(getattr(signal, name))
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)


class HeldSignals:
    """Within its block a signal calls `on_signal` and is noted; `deliver` then calls the handler it was meant for."""

    def __init__(self, on_signal: Callable[[], object] | None = None) -> None:
        self._on_signal = on_signal
        self._handlers: dict[int, _Handler] = {}
        self._noted: list[tuple[int, FrameType | None]] = []

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for signal_number in _HELD:
                handler = _signal.getsignal(signal_number)
                if callable(handler):
                    self._handlers[signal_number] = handler
                    _signal.signal(signal_number, self._note)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for signal_number, handler in self._handlers.items():
            _signal.signal(signal_number, handler)

    def _note(self, signal_number: int, frame: FrameType | None) -> None:
        self._noted.append((signal_number, frame))
        if self._on_signal is not None:
            self._on_signal()

    def deliver(self) -> None:
        while self._noted:
            signal_number, frame = self._noted.pop(0)
            self._handlers[signal_number](signal_number, frame)
