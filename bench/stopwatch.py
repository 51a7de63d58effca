"""The time that passes and the processor time this process uses meanwhile: on a busy machine the second tells more."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Spent:
    wall_s: float
    cpu_s: float


class Stopwatch:
    def __init__(self) -> None:
        self._wall_s = time.perf_counter()
        self._cpu_s = time.process_time()

    def read(self) -> Spent:
        return Spent(time.perf_counter() - self._wall_s, time.process_time() - self._cpu_s)
