"""One pass of our cleaner over a log, as a program: `python -m bench.compaction.own_pass DIRECTORY SEGMENT_BYTES`.

The pass runs in a process of its own, as a broker has it; its start counts.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from bench.compaction.dirty_log import TP
from ottla.base.types import NIL_UUID
from ottla.log.cleaning.candidates import find_candidate
from ottla.log.cleaning.pass_plan import CleanerLimits, plan_pass
from ottla.log.cleaning.process import CleaningProcess
from ottla.log.config import LogConfig
from ottla.log.recovery import load_partition

# The defaults of log.cleaner.dedupe.buffer.size and its neighbours.
_LIMITS = CleanerLimits(map_bytes=128 << 20, map_load_factor=0.9, buffer_bytes=512 << 10)
_FAR_AWAY = 2**62


def main() -> None:
    directory, segment_bytes = Path(sys.argv[1]), int(sys.argv[2])
    config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=segment_bytes)
    now_ms = time.time_ns() // 1_000_000
    log = load_partition(
        directory, TP, NIL_UUID, config, is_clean=True, recovery_point=_FAR_AWAY, log_start_offset=0,
        high_watermark=_FAR_AWAY, now_ms=now_ms,
    )  # fmt: skip
    candidate = find_candidate(log, now_ms)
    if candidate is None:
        raise SystemExit(f"there is nothing to compact in {directory}")
    wall_s, cpu_s = time.perf_counter(), _cpu_s()
    cleaning = CleaningProcess(
        plan_pass(candidate, now_ms), _LIMITS, bytes_per_second=2.0**63, is_called_off=lambda: False
    )
    for sources, segment in cleaning.groups():
        log.exchange(sources, segment)
        log.secure_exchange()
    spent = {"wall_s": time.perf_counter() - wall_s, "cpu_s": _cpu_s() - cpu_s}
    log.close()
    counts = cleaning.counts
    print(json.dumps({**spent, "mb": counts.bytes_before / 1e6, "records_after": counts.records_after}))


def _cpu_s() -> float:
    """Of this process and of those it has waited for."""
    return sum(os.times()[:4])


if __name__ == "__main__":
    main()
