"""Passes of the cleaner for tests, on one thread."""

from __future__ import annotations

import numpy as np

from ottla.log.cleaning.candidates import find_candidate
from ottla.log.cleaning.cleaner import Cleaner
from ottla.log.cleaning.pass_plan import CleanerLimits, plan_pass
from ottla.log.cleaning.rewriting import empty_batch, rewrite_batch
from ottla.log.partition_log import PartitionLog
from ottla.records.arrays.layout import Payload, RecordLayout
from ottla.records.batch import read_header
from ottla.records.scan import read_payload

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


def rewritten(batch: bytes, rows: list[int], new_horizon_ms: int | None = None) -> bytes:
    """The batch with only these of its records, as the cleaner writes it."""
    header = read_header(batch)
    if not rows:
        return empty_batch(header)
    payload = read_payload(batch, header)
    layout = RecordLayout(payload, np.frombuffer(payload, np.uint8), [Payload(header, 0, len(payload))])
    return rewrite_batch(header, layout, np.array(rows), new_horizon_ms)
