"""A partition's log in which most records are outdated: keys of 16 bytes, drawn at random, and values of 100."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from ottla.base.types import NIL_UUID, TopicPartition
from ottla.log.config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.records.columns.encode import encode_columns

TP = TopicPartition("table", 0)
_KEY_BYTES, _VALUE_BYTES = 16, 100
_ROWS_AT_ONCE = 200_000
_FIRST_MS = 1_700_000_000_000
_RECORDS_PER_MS = 250
"""About what one producer sends: the records of a batch of 64 KB are a few milliseconds apart."""


@dataclass(frozen=True)
class Shape:
    records: int
    keys: int
    segment_bytes: int
    batch_bytes: int = 65_536


FULL = Shape(records=8_600_000, keys=1_000_000, segment_bytes=104_857_600)
QUICK = Shape(records=860_000, keys=100_000, segment_bytes=10_485_760)


def write_dirty_log(directory: Path, shape: Shape) -> None:
    """A closed log in `directory`, made by the broker's own code."""
    chance = np.random.default_rng(1)
    config = LogConfig(segment_bytes=shape.segment_bytes)
    log = PartitionLog.create(directory, TP, NIL_UUID, config, now_ms=_FIRST_MS)
    log.begin_leader_epoch(0)
    done = 0
    while done < shape.records:
        rows = min(_ROWS_AT_ONCE, shape.records - done)
        for batch in encode_columns(random_rows(chance, rows, shape.keys, done), max_batch_size=shape.batch_bytes):
            log.append_as_leader(batch.make(), leader_epoch=0, now_ms=_FIRST_MS)
        done += rows
    log.advance_high_watermark(log.log_end_offset)
    log.close()


def closed_segments(directory: Path) -> list[Path]:
    """The files that a pass cleans: all but the last."""
    return sorted(directory.glob("*.log"))[:-1]


def random_rows(chance: np.random.Generator, rows: int, keys: int, first: int) -> pa.Table:
    numbers = chance.integers(0, keys, rows).astype(">u8")
    halves = np.stack((numbers, numbers ^ np.uint64(0x5BD1E995)), axis=1)
    stamps = _FIRST_MS + (first + np.arange(rows)) // _RECORDS_PER_MS
    return pa.table(
        {
            "key": _binary(halves.tobytes(), _KEY_BYTES, rows),
            "value": _binary(chance.bytes(rows * _VALUE_BYTES), _VALUE_BYTES, rows),
            "timestamp": pa.array(stamps, pa.timestamp("ms", "UTC")),
        }
    )


def _binary(data: bytes, width: int, rows: int) -> pa.Array:
    ends = pa.py_buffer(np.arange(0, rows * width + 1, width, dtype=np.int32).tobytes())
    return pa.Array.from_buffers(pa.binary(), rows, [None, ends, pa.py_buffer(data)])
