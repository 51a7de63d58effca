"""Passes of the cleaner for tests, on one thread."""

from __future__ import annotations

import numpy as np

from ottla.log.cleaning.candidates import find_candidate
from ottla.log.cleaning.chunks import Chunk, open_batches
from ottla.log.cleaning.cleaner import Cleaner
from ottla.log.cleaning.key_hashes import PADDING
from ottla.log.cleaning.pass_plan import CleanerLimits, plan_pass
from ottla.log.cleaning.rewriting import emptied, rewrite_batches
from ottla.log.partition_log import PartitionLog
from ottla.records.arrays.headers import HeaderColumns
from ottla.records.batch import read_header

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
        return bytes(emptied(header).data)
    octets = np.frombuffer(batch + bytes(PADDING), np.uint8)
    chunk = Chunk("the batch", memoryview(batch), octets, HeaderColumns.read(octets, np.zeros(1, np.int64)))
    opened = open_batches(chunk, np.zeros(1, np.int64))
    starts, ends = opened.bounds(chunk.path)
    needs_horizon = np.array([new_horizon_ms is not None])
    result = rewrite_batches(
        opened, starts[rows], ends[rows], np.array([len(rows)]), needs_horizon, new_horizon_ms or 0
    )
    assert int(result.sizes.sum()) == len(result.data)
    return bytes(result.data)
