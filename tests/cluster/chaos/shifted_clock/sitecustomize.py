"""Python imports this first in a process whose PYTHONPATH leads here: its wall clock is off by the milliseconds that a
file names, now and whenever that changes. The monotonic clock is left alone."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

_path = Path(os.environ["CLOCK_OFFSET_MS_FILE"])
_true_s, _true_ns = time.time, time.time_ns
_offset_ns = int(_path.read_text()) * 1_000_000


def _shifted_s() -> float:
    return _true_s() + _offset_ns / 1e9


def _shifted_ns() -> int:
    return _true_ns() + _offset_ns


def _follow() -> None:
    global _offset_ns
    while True:
        time.sleep(0.02)
        _offset_ns = int(_path.read_text() or "0") * 1_000_000


time.time, time.time_ns = _shifted_s, _shifted_ns
threading.Thread(target=_follow, name="clock", daemon=True).start()
