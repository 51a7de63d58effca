"""Passes of the cleaner for tests, on one thread."""

from __future__ import annotations

from ottla.log.cleaning.candidates import find_candidate
from ottla.log.cleaning.cleaner import Cleaner, CleanerLimits
from ottla.log.cleaning.pass_plan import plan_pass
from ottla.log.partition_log import PartitionLog

LIMITS = CleanerLimits(map_bytes=1 << 20, map_load_factor=0.9, buffer_bytes=1 << 16)


def clean(log: PartitionLog, now_ms: int, limits: CleanerLimits = LIMITS) -> Cleaner | None:
    """One pass; None if there is nothing to be cleaned."""
    candidate = find_candidate(log, now_ms)
    if candidate is None:
        return None
    cleaner = Cleaner(plan_pass(candidate, now_ms), limits)
    for group in cleaner.groups():
        log.exchange(group.sources, group.segment)
    log.clean_offset = cleaner.end_offset
    return cleaner
